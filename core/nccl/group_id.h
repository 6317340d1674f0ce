/*
 * Identity of a group without communication: every rank computes the same id alone.
 *
 * Pure functions, never 0. Source of the rule: the unique id is opaque, all 128 bytes count;
 * children are made in the same order on all ranks of a parent (NCCL: split, shrink and grow are
 * collective on it).
 */
#ifndef NCCLGUARD_CORE_NCCL_GROUP_ID_H
#define NCCLGUARD_CORE_NCCL_GROUP_ID_H

#include <stddef.h>
#include <stdint.h>

#define NG_UNIQUE_ID_BYTES 128

/* A 64-bit hash of bytes, for ids only; stable between versions and machines. */
uint64_t ng_hash(uint64_t seed, const void *bytes, size_t count);

/* From one unique id, or from all of a scalable init. */
uint64_t ng_group_id_unique(const void *unique_ids, int count);

/* The hash by which the log and RAS of NCCL `version` (22809) name a communicator made from this
 * unique id; one that is a child of another is named otherwise. As of 2.24 to 2.30. */
uint64_t ng_group_id_nccl(const void *unique_id, int version);

/* The `ordinal`-th child (from 1) of a parent: split by color; grow with color 0. */
uint64_t ng_group_id_split(uint64_t parent, uint32_t ordinal, int color);

/* A hash of the ranks that a shrink excludes, in any order. */
uint64_t ng_group_id_excluded(const int *excluded, int count);

/* A shrink that excludes `excluded`. */
uint64_t ng_group_id_shrink(uint64_t parent, uint32_t ordinal, uint64_t excluded);

/* ncclCommInitAll: one process, its `ordinal`-th such call. */
uint64_t ng_group_id_init_all(const char *host, int pid, uint64_t start_ticks, uint32_t ordinal);

#endif
