/*
 * What the kernel tells of a process: is it the one we mean, does it run, is it stopped.
 */
#ifndef NCCLGUARD_CORE_PROC_H
#define NCCLGUARD_CORE_PROC_H

#include <stddef.h>
#include <stdint.h>

/*
 * State letter ('R', 'S', 'T', 'Z' …) and start time in clock ticks after boot of process `pid` (0:
 * this one), from /proc/PID/stat. 0, or -ESRCH when there is no such process, or -errno.
 */
int ng_proc_stat(int pid, char *ret_state, uint64_t *ret_start_ticks);

/* Inode of this process's pid namespace; 0 unknown. Processes of different namespaces cannot name
 * each other. */
uint64_t ng_proc_pid_namespace(void);

/* Boot id of the running kernel ("" unknown): a box with another one is of before a reboot. */
void ng_proc_boot_id(char *ret_id, size_t bytes);

#endif
