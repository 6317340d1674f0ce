/*
 * What NCCL's connections of one rank showed when they were last looked at: how much has been sent,
 * has come and was taken, for each peer and direction.
 *
 * Written by the thread that looks (core/device/connections.h) into the black box, which readers
 * copy. Steps are NCCL's: a connection counts those that it has moved, alike on both ends.
 */
#ifndef NCCLGUARD_CORE_RECORDER_EDGES_H
#define NCCLGUARD_CORE_RECORDER_EDGES_H

#include <stdint.h>

#include "core/util/clock.h"

struct ng_box;

#define NG_EDGES_MAX 24u /* of one rank; those with more peers are not known */
/* Looks of several ranks show one picture if no more than this lies between them. A rank looks
 * again every ten seconds (core/device/connections.h). */
#define NG_EDGES_TOGETHER_NS (20 * NG_S)

#define NG_EDGE_SENDS     1u  /* to the peer; otherwise it receives from it */
#define NG_EDGE_RING      2u  /* the peer is its neighbour in a ring */
#define NG_EDGE_TREE_UP   4u  /* its parent in a tree */
#define NG_EDGE_TREE_DOWN 8u  /* its child in a tree */
#define NG_EDGE_PROXY     16u /* a thread of NCCL's takes the data over a network */
#define NG_EDGE_MOVES     32u /* it went on while it was looked at */

/* A rank and a peer, in one direction, over those channels that the running launch has not counted
 * yet, the first eight of them. */
struct ng_edge {
    int32_t peer;     /* rank in the group */
    uint8_t flags;    /* NG_EDGE_* bits */
    uint8_t channels; /* with a connection */
    /* Channels on which the sender has put something there since this end's kernel began; on which
     * the receiver has taken something since then; on which something waits to be taken. */
    uint8_t begun, taken, held;
    /* Of the first channel with something put there, or else the first: its number; the steps at
     * which this end's kernel began, the lower half; those put there and taken since; steps that
     * wait for NCCL's network thread. */
    uint8_t channel, queued;
    uint32_t base;
    uint16_t posted, consumed;
};

/* Make the edges of the group in this slot known; its oldest record in flight is `pending_record`.
 * One thread at a time. */
void ng_edges_write(struct ng_box *box, uint32_t group_slot, uint64_t pending_record,
                    const struct ng_edge *edges, uint32_t count);

/* As many as are known of the group's oldest record in flight, 0 none, and when that was. Any
 * thread. */
uint32_t ng_edges_read(const struct ng_box *box, uint32_t group_slot, uint64_t pending_record,
                       struct ng_edge ret_edges[NG_EDGES_MAX], int64_t *ret_looked_mono_ns);

#endif
