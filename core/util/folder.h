/*
 * Reads a folder without malloc, and without a path if it is already open.
 *
 * One reader at a time per struct. The struct contains its buffer: about 4 KiB of stack.
 */
#ifndef NCCLGUARD_CORE_UTIL_FOLDER_H
#define NCCLGUARD_CORE_UTIL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

struct ng_folder {
    int fd;
    bool ours; /* the reader closes the descriptor */
    size_t used, length;
    _Alignas(8) char buffer[4096];
};

/* Open a folder to read it; `follow`: it may be a symbolic link. 0 or -errno. */
int ng_folder_open(struct ng_folder *ret_folder, const char *path, bool follow);

/* Read the folder opened as `fd`, from its beginning; `fd` stays the caller's. */
void ng_folder_borrow(struct ng_folder *ret_folder, int fd);

/* The next name except "." and "..", valid until the next call; NULL at the end or on an error. */
const char *ng_folder_next(struct ng_folder *folder);

void ng_folder_close(struct ng_folder *folder);

#endif
