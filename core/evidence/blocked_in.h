/*
 * What a thread of this process is blocked in, as the kernel reports it without stopping the
 * thread.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_BLOCKED_IN_H
#define NCCLGUARD_CORE_EVIDENCE_BLOCKED_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_blocked_in {
    char name[32];  /* of the thread; "" not known */
    char state;     /* R running, S sleeping, D uninterruptible sleep, …; '?' not known */
    char wait[64];  /* the kernel's function that it sleeps in; "" not known */
    bool in_system; /* it sleeps in a system call, and the fields below are known */
    int64_t call;
    uint64_t arguments[6];
    uint64_t stack, program; /* its registers there */
};

/* 0, or -ESRCH: there is no such thread. Any guard thread; no allocation. */
int ng_blocked_in_read(int tid, struct ng_blocked_in *ret_inside);

/*
 * In words: "running", "in futex", "in read of /data/x.bin", "in poll (sleeps in do_sys_poll)". To
 * describe a descriptor, it reads the path from the kernel and never queries the file system.
 * Always NUL-terminated.
 */
void ng_blocked_in_describe(const struct ng_blocked_in *inside, char *ret_text, size_t bytes);

#endif
