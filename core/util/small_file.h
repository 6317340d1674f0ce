/*
 * Reads a small file as a whole: a key, rules, a file of /proc.
 *
 * Any thread; never calls malloc, and never waits for the writer of a pipe.
 */
#ifndef NCCLGUARD_CORE_UTIL_SMALL_FILE_H
#define NCCLGUARD_CORE_UTIL_SMALL_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Read the bytes of a regular file, at most `room`: for a file of up to N bytes, a room of N + 1
 * shows whether it has more. `path` is relative to `folder`; AT_FDCWD: to the current folder.
 * Returns the number of bytes, or -errno: -EISDIR a folder, -ENOTSUP not a regular file. */
ssize_t ng_small_file_read(int folder, const char *path, void *ret_bytes, size_t room);

/* The same as NUL-terminated text, of at most `room` bytes including the NUL. */
ssize_t ng_small_file_read_text(const char *path, char *ret_text, size_t room);

#endif
