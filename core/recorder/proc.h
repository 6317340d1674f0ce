/*
 * What the kernel reports of a process: its identity, whether it runs, whether it is stopped.
 */
#ifndef NCCLGUARD_CORE_RECORDER_PROC_H
#define NCCLGUARD_CORE_RECORDER_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * State letter ('R', 'S', 'T', 'Z' …) and start time in clock ticks after boot of process `pid` (0:
 * this one), from /proc/PID/stat. A process of which only the first thread has ended is not
 * reported as a zombie ('Z'). 0, or -ESRCH when there is no such process, or -errno; -ENOTSUP if
 * /proc is not mounted.
 */
int ng_proc_stat(int pid, char *ret_state, uint64_t *ret_start_ticks);

/*
 * How a process ended; available until its parent has waited for it, or, from Linux 6.15 on,
 * through a pidfd that was opened before (-1 none): NG_EXIT_STATUS_SIGNAL or NG_EXIT_STATUS_SILENT
 * and a number; 0 not known.
 */
int ng_proc_end(int pid, uint64_t start_ticks, int pid_fd);

/* Has this process's first thread ended before the others? */
bool ng_proc_first_thread_ended(void);

/*
 * Does a process have a file mapped: by inode number (0: ignored), or by the end of its path? 0;
 * -ESRCH: it has no memory (any more); or -errno: no permission to read it.
 */
int ng_proc_maps(int pid, uint64_t inode, const char *name, bool *ret_maps);

/* Inode of this process's pid namespace; 0 unknown. Processes of different namespaces cannot name
 * each other. */
uint64_t ng_proc_pid_namespace(void);

/* Boot id of the running kernel ("" unknown): a box with another one is from before a reboot. */
void ng_proc_boot_id(char *ret_id, size_t bytes);

#endif
