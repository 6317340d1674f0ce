/*
 * The board of one host: the job's folder of black boxes in shared memory. No server.
 *
 * Ranks see each other's progress by mapping each other's boxes; liveness by pidfd, or, where
 * process namespaces differ, by the lock that every process holds on its box; incidents are small
 * files, claimed by link(2), which succeeds for exactly one; news arrive through inotify, or are
 * looked for where there is none to be had.
 */
#ifndef NCCLGUARD_STORE_LOCAL_H
#define NCCLGUARD_STORE_LOCAL_H

#include "core/board.h"

struct ng_box;

/*
 * The board in `folder`, which exists. `own_box` is this process's, and must outlive the board; it
 * is read when the board is first used, so it may be made afterwards. 0 or -errno; freed with the
 * process.
 */
int ng_local_open(const char *folder, const struct ng_box *own_box, struct ng_board **ret_board);

/*
 * Append every black box in `folder` to a view, with the liveness of its process now, and seal it:
 * for tools. Files that are no usable box get a note. Returns how many boxes were read, or -errno.
 */
int ng_local_collect(const char *folder, struct ng_view *view);

#endif
