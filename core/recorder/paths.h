/*
 * The folders of a job, and their safe creation.
 */
#ifndef NCCLGUARD_CORE_RECORDER_PATHS_H
#define NCCLGUARD_CORE_RECORDER_PATHS_H

#include <stddef.h>

/* Per user and job, in shared memory: black boxes and the local board. Needs no file system access.
 */
void ng_paths_default_dir(const char *job, char *ret_path, size_t bytes);

/* Per user and job, under the temporary folder (TMPDIR, else /tmp): evidence. */
void ng_paths_default_dump_dir(const char *job, char *ret_path, size_t bytes);

/* The same under `temporary`; NULL or "": /tmp. */
void ng_paths_dump_dir_in(const char *temporary, const char *job, char *ret_path, size_t bytes);

/*
 * Create a folder and its missing parents, mode 0700. 0, or -errno; -EPERM if the folder exists but
 * belongs to another user or is writable by others (a possible trap in a shared temporary folder).
 */
int ng_paths_make(const char *path);

/*
 * Remove the files of boards from a folder (black boxes, incidents), and the folder if it is then
 * empty. Other files are kept. Errors are ignored.
 */
void ng_paths_remove_board(const char *path);

/* The same for the folder opened as `fd`: there may be no descriptor left to open it. */
void ng_paths_remove_open_board(int fd, const char *path);

#endif
