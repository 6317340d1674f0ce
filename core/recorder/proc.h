/*
 * What the kernel tells of a process: is it the one we mean, does it run, is it stopped.
 */
#ifndef NCCLGUARD_CORE_RECORDER_PROC_H
#define NCCLGUARD_CORE_RECORDER_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * State letter ('R', 'S', 'T', 'Z' …) and start time in clock ticks after boot of process `pid` (0:
 * this one), from /proc/PID/stat. A process whose first thread alone has ended is no zombie ('Z').
 * 0, or -ESRCH when there is no such process, or -errno; -ENOTSUP where no /proc is mounted.
 */
int ng_proc_stat(int pid, char *ret_state, uint64_t *ret_start_ticks);

/*
 * How a process ended, while its parent has not asked for it yet, or, from Linux 6.15 on, by a
 * descriptor that was had of it before (-1 none): NG_EXIT_STATUS_SIGNAL or NG_EXIT_STATUS_SILENT
 * and a number; 0 not known.
 */
int ng_proc_end(int pid, uint64_t start_ticks, int pid_fd);

/* Has this process's first thread ended before the others? */
bool ng_proc_first_thread_ended(void);

/*
 * Does a process have a file in its memory: by inode number (0: not asked), or by the end
 * of its path? 0; -ESRCH: it has no memory (any more); or -errno: it may not be asked.
 */
int ng_proc_maps(int pid, uint64_t inode, const char *name, bool *ret_maps);

/* Inode of this process's pid namespace; 0 unknown. Processes of different namespaces cannot name
 * each other. */
uint64_t ng_proc_pid_namespace(void);

/* Boot id of the running kernel ("" unknown): a box with another one is of before a reboot. */
void ng_proc_boot_id(char *ret_id, size_t bytes);

#endif
