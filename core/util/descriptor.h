/*
 * The guard's file descriptors in the program's process.
 *
 * A program may close every descriptor that it did not open, and later get the same number for a
 * file of its own. So ours have high numbers, and before one is read or written, it is checked that
 * it is still the file that we opened.
 */
#ifndef NCCLGUARD_CORE_UTIL_DESCRIPTOR_H
#define NCCLGUARD_CORE_UTIL_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct ng_descriptor {
    int fd; /* -1 none */
    dev_t device;
    ino_t inode;
    char link[24]; /* start of its name in /proc/self/fd: distinguishes kinds that have no inodes of
                      their own */
};

#define NG_DESCRIPTOR_NONE ((struct ng_descriptor){.fd = -1})

/* Take over `fd` (-1 stays -1): moved to a high number, close-on-exec, remembered. */
struct ng_descriptor ng_descriptor_keep(int fd);

/* Is it still ours? A few system calls: not for hot paths. */
bool ng_descriptor_ours(const struct ng_descriptor *descriptor);

/* Close it, if it is still ours. */
void ng_descriptor_close(struct ng_descriptor *descriptor);

#endif
