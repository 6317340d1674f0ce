/*
 * Group ids: hashes of data that is the same on all ranks of a group.
 *
 * Pure.
 */
#include "core/nccl/group_id.h"

#include <string.h>

/* Finalizer of splitmix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t ng_hash(uint64_t seed, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = mix(seed + UINT64_C(0x9e3779b97f4a7c15) + count);

    for (; count >= 8; count -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix(hash ^ word) + UINT64_C(0x9e3779b97f4a7c15);
    }
    uint64_t rest = 0;
    memcpy(&rest, at, count);
    hash = mix(hash ^ rest);
    return hash ? hash : 1;
}

/* Kinds of origin never collide: each starts from its own seed. */
enum { SEED_UNIQUE = 1, SEED_SPLIT, SEED_SHRINK, SEED_INIT_ALL, SEED_EXCLUDED };

uint64_t ng_group_id_unique(const void *unique_ids, int count)
{
    return ng_hash(SEED_UNIQUE, unique_ids, (size_t)(count > 0 ? count : 1) * NG_UNIQUE_ID_BYTES);
}

/* Of NCCL 2.25 and older. */
static uint64_t old_nccl_hash(const char *bytes)
{
    uint64_t hash = 5381;

    /* Of the machine's own signedness, as in NCCL. */
    for (unsigned i = 0; i < NG_UNIQUE_ID_BYTES; i++)
        hash = hash * 33 ^ (uint64_t)(int64_t)bytes[i];
    return hash;
}

uint64_t ng_group_id_nccl(const void *unique_id, int version)
{
    const unsigned char *bytes = unique_id;
    uint64_t sum = 1 ^ NG_UNIQUE_ID_BYTES, state = 1, word;

    if (version < 22600)
        return old_nccl_hash(unique_id);
    for (unsigned i = 0; i < NG_UNIQUE_ID_BYTES; i += sizeof(word)) {
        sum += state;
        state ^= sum;
        sum = (sum ^ sum >> 31) * UINT64_C(0x9de62bbc8cef3ce3);
        state = (state ^ state >> 32) * UINT64_C(0x485cd6311b599e79);
        memcpy(&word, bytes + i, sizeof(word));
        sum += word;
    }
    sum = (sum ^ sum >> 31) * UINT64_C(0xbac3bd562846de6b) + state;
    return (sum ^ sum >> 32) * UINT64_C(0x995a187a14e7b445);
}

uint64_t ng_group_id_split(uint64_t parent, uint32_t ordinal, int color)
{
    uint64_t words[] = {parent, ordinal, (uint64_t)(int64_t)color};
    return ng_hash(SEED_SPLIT, words, sizeof(words));
}

uint64_t ng_group_id_excluded(const int *excluded, int count)
{
    uint64_t words[] = {(uint64_t)count, 0};

    /* A sum of hashes is independent of the order, which NCCL itself changes. */
    for (int i = 0; i < count; i++)
        words[1] += mix((uint64_t)(int64_t)excluded[i] + UINT64_C(0x9e3779b97f4a7c15));
    return ng_hash(SEED_EXCLUDED, words, sizeof(words));
}

uint64_t ng_group_id_shrink(uint64_t parent, uint32_t ordinal, uint64_t excluded)
{
    uint64_t words[] = {parent, ordinal, excluded};
    return ng_hash(SEED_SHRINK, words, sizeof(words));
}

uint64_t ng_group_id_init_all(const char *host, int pid, uint64_t start_ticks, uint32_t ordinal)
{
    uint64_t words[] = {ng_hash(0, host, strlen(host)), (uint64_t)pid, start_ticks, ordinal};
    return ng_hash(SEED_INIT_ALL, words, sizeof(words));
}
