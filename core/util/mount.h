/*
 * Is a file system one of another machine's, which may not answer for a long time?
 */
#ifndef NCCLGUARD_CORE_UTIL_MOUNT_H
#define NCCLGUARD_CORE_UTIL_MOUNT_H

#include <stdbool.h>

/*
 * By the kernel's list of mounts alone: the file system is not asked. False where it is not known.
 * Any guard thread; no allocation.
 */
bool ng_mount_is_remote(unsigned major, unsigned minor);

/* Does a line of /proc/self/mountinfo speak of the device? Then *ret_remote. The line is changed.
 */
bool ng_mount_tells(char *line, unsigned major, unsigned minor, bool *ret_remote);

#endif
