/*
 * Incarnations of a job: which processes belong together, without an explicit declaration.
 *
 * Two runs of one job may overlap on one store: a late rank of the first, and all of the second.
 * Only the groups are specific to a run, since their ids come from NCCL's unique ids. So a process
 * carries the id of its first group as a label, and a group that connects two labels unites them:
 * the smaller is the root of both. A group that its ranks know by different ids, because one rank
 * has another unique id, unites labels too, once that is detected. Pure except for the store; one
 * thread.
 */
#ifndef NCCLGUARD_STORE_WIRE_INCARNATION_H
#define NCCLGUARD_STORE_WIRE_INCARNATION_H

#include <stdint.h>

struct ng_kv;

/* The label that `label` is part of; `label` itself if none. 0 or -errno of the store. */
int ng_incarnation_root(struct ng_kv *kv, uint64_t label, int64_t deadline_mono_ns,
                        uint64_t *ret_root);

/* A process of label `label` is a member of the group: all other members are of the same
 * incarnation. `ttl_ms`: how long that is remembered. 0 or -errno of the store. */
int ng_incarnation_join(struct ng_kv *kv, uint64_t group_id, uint64_t label, int64_t ttl_ms,
                        int64_t deadline_mono_ns, uint64_t *ret_root);

/* The label under which the group was created. 0; -ENOENT: not registered; or -errno of the
 * store. */
int ng_incarnation_of_group(struct ng_kv *kv, uint64_t group_id, int64_t deadline_mono_ns,
                            uint64_t *ret_label);

/* Name of the key that holds the label that a label is part of. */
#define NG_INCARNATION_KEY_BYTES 32
void ng_incarnation_key(uint64_t label, char ret_key[NG_INCARNATION_KEY_BYTES]);

#endif
