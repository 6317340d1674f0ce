/*
 * Writing a file that the user named.
 */
#ifndef NCCLGUARD_TOOLS_BASE_SAVE_AS_H
#define NCCLGUARD_TOOLS_BASE_SAVE_AS_H

/*
 * The file `path`, by `write_content`, which returns 0 or -errno: complete or not there, and an
 * older one stays until then. A device, a pipe, and what a symbolic link leads to are written to as
 * they are. Mode 0600, since evidence tells of programs. 0 or -errno.
 */
int ng_save_as(const char *path, int (*write_content)(const void *context, int fd),
               const void *context);

#endif
