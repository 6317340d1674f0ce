/*
 * A small file, read whole: a key, rules, a file of /proc.
 *
 * Any thread; never calls malloc, and never waits for somebody who writes into a pipe.
 */
#ifndef NCCLGUARD_CORE_UTIL_SMALL_FILE_H
#define NCCLGUARD_CORE_UTIL_SMALL_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* The bytes of a regular file, `room` at most: so where a file may have up to N, a room of N + 1
 * tells whether it has more. `path` is relative to `folder`, AT_FDCWD: to where the process is. How
 * many, or -errno: -EISDIR a folder, -ENOTSUP anything else that is no regular file. */
ssize_t ng_small_file_read(int folder, const char *path, void *ret_bytes, size_t room);

/* The same as text, ended by a zero, of `room` bytes at most with it. */
ssize_t ng_small_file_read_text(const char *path, char *ret_text, size_t room);

#endif
