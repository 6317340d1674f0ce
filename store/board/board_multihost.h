/*
 * The board of a job on several hosts: that of this host, and the store that all hosts share.
 *
 * Processes of this host are read from their black boxes, at once and whatever state the store is
 * in; the others from what the other hosts' processes publish. If the store is lost, each host
 * continues as if it were alone, and says so in its verdicts.
 */
#ifndef NCCLGUARD_STORE_BOARD_BOARD_MULTIHOST_H
#define NCCLGUARD_STORE_BOARD_BOARD_MULTIHOST_H

#include "core/nccl/board.h"
#include "store/publish/publish.h"

/* Names the layout of the keys: runs of one job are distinguished by labels, not by names. */
#define NG_BOARD_RUN "1"

struct ng_kv;

/*
 * The board over `host` (store/board/local.h) and `kv`; takes ownership of both. 0 or -errno; on
 * failure they remain the caller's. Does not touch the network: its thread does, from the first use
 * on.
 */
int ng_board_multihost_open(struct ng_board *host, struct ng_kv *kv,
                            const struct ng_publisher_options *options,
                            struct ng_board **ret_board);

#endif
