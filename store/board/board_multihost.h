/*
 * The board of a job on several hosts: that of this host, and the store that all hosts share.
 *
 * What is on this host is seen in its black boxes, at once and whatever state the store is in; the
 * rest is what the other hosts' processes publish. Where the store is lost, each host goes on as if
 * it were alone, and says so in its verdicts.
 */
#ifndef NCCLGUARD_STORE_BOARD_BOARD_MULTIHOST_H
#define NCCLGUARD_STORE_BOARD_BOARD_MULTIHOST_H

#include "core/nccl/board.h"
#include "store/publish/publish.h"

/* Names the layout of the keys: runs of one job are told apart by labels, not by names. */
#define NG_BOARD_RUN "1"

struct ng_kv;

/*
 * The board over `host` (store/board/local.h) and `kv`; takes over both. 0 or -errno, then they
 * stay the caller's. Touches no network: its thread does, from the first use on.
 */
int ng_board_multihost_open(struct ng_board *host, struct ng_kv *kv,
                            const struct ng_publisher_options *options,
                            struct ng_board **ret_board);

#endif
