/*
 * This process, for the `ncclguard run` above it: core/recorder/loaded.h.
 */
#ifndef NCCLGUARD_STORE_BOARD_ANNOUNCE_H
#define NCCLGUARD_STORE_BOARD_ANNOUNCE_H

#include "core/config/launch.h"

/* Tell the `ncclguard run` of this id ("" none) that a process of this rank has started. Waits
 * while its queue is full, 0.2 s at most; keeps errno. */
void ng_announce_start(const char *run_id, const struct ng_launch *launch);

#endif
