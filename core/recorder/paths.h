/*
 * The folders of a job, and safe making of them.
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
 * Make a folder and those above it that are missing, mode 0700. 0, or -errno; -EPERM when the
 * folder exists but belongs to somebody else or others may write to it (a stranger's trap in a
 * shared temporary folder).
 */
int ng_paths_make(const char *path);

/*
 * Remove what boards put into a folder (black boxes, incidents), and the folder if that leaves it
 * empty. Whatever else lies there is not ours and stays. Errors are ignored.
 */
void ng_paths_remove_board(const char *path);

/* The same for a folder that `fd` has open: there may be no descriptor left to open it. */
void ng_paths_remove_open_board(int fd, const char *path);

#endif
