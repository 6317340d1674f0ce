/*
 * Writing a file that the user has named.
 */
#ifndef NCCLGUARD_TOOLS_BASE_SAVE_AS_H
#define NCCLGUARD_TOOLS_BASE_SAVE_AS_H

/*
 * Write the file `path` with `write_content`, which returns 0 or -errno. The file is complete or
 * missing, and an older one stays until then. A device, a pipe, and the target of a symbolic link
 * are written in place. Mode 0600, since evidence contains details of programs. 0 or -errno.
 */
int ng_save_as(const char *path, int (*write_content)(const void *context, int fd),
               const void *context);

#endif
