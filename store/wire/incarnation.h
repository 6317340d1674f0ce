/*
 * Incarnations of a job: which processes belong together, without anybody telling.
 *
 * Two runs of one job may overlap on one store: a late rank of the first, and all of the second.
 * What a run has of its own are its groups, whose ids come from NCCL's unique ids. So a process
 * carries the id of its first group as a label, and groups that bring two labels together unite
 * them: the smaller is the root of both. So does a group that not all of its ranks know by one id,
 * as one of them has another unique id, once that is found out. Pure but for the store; one thread.
 */
#ifndef NCCLGUARD_STORE_WIRE_INCARNATION_H
#define NCCLGUARD_STORE_WIRE_INCARNATION_H

#include <stdint.h>

struct ng_kv;

/* The label that `label` is part of, itself where of none. 0 or -errno of the store. */
int ng_incarnation_root(struct ng_kv *kv, uint64_t label, int64_t deadline_mono_ns,
                        uint64_t *ret_root);

/* A process of label `label` is a member of the group: whoever else is, is of the same incarnation.
 * `ttl_ms`: how long that is remembered. 0 or -errno of the store. */
int ng_incarnation_join(struct ng_kv *kv, uint64_t group_id, uint64_t label, int64_t ttl_ms,
                        int64_t deadline_mono_ns, uint64_t *ret_root);

/* The label that the group was made under. 0; -ENOENT: nobody has told of it; or -errno of the
 * store. */
int ng_incarnation_of_group(struct ng_kv *kv, uint64_t group_id, int64_t deadline_mono_ns,
                            uint64_t *ret_label);

/* Name of the key that says what a label is part of. */
#define NG_INCARNATION_KEY_BYTES 32
void ng_incarnation_key(uint64_t label, char ret_key[NG_INCARNATION_KEY_BYTES]);

#endif
