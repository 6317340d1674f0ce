/*
 * A map of address ranges: which allocation, mapping or reservation an address lies in.
 *
 * Beside the steps of a call. Any thread, one mutex a map, never held across a call of the driver
 * or of NCCL. Ranges never overlap: one that is added over others replaces them, since what was
 * there must have been freed unseen. Memory comes from mmap, once for a map, and is touched as it
 * fills.
 */
#ifndef NCCLGUARD_CORE_UTIL_MEMORY_MAP_H
#define NCCLGUARD_CORE_UTIL_MEMORY_MAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Black boxes tell them by these numbers, which are for ever. */
enum ng_segment_kind {
    NG_SEGMENT_PLAIN,   /* cuMemAlloc, cuMemAllocPitch */
    NG_SEGMENT_POOL,    /* allocated in stream order, from a pool */
    NG_SEGMENT_MANAGED, /* cuMemAllocManaged */
    NG_SEGMENT_MAPPED,  /* cuMemMap: one mapping */
    NG_SEGMENT_NCCL,    /* ncclMemAlloc */
    NG_SEGMENT_PEER,    /* of another process, opened by its IPC handle */
    NG_SEGMENT_KINDS,
};

const char *ng_segment_kind_name(enum ng_segment_kind kind);

#define NG_SEGMENT_SHAREABLE 1u /* NCCL can hand it to other processes */
#define NG_SEGMENT_WHOLE     2u /* it fills its reservation: nothing will be mapped next to it */

struct ng_segment {
    uintptr_t base;
    size_t bytes;
    int16_t device; /* -1 none, or not known */
    uint8_t kind;   /* enum ng_segment_kind */
    uint8_t flags;  /* NG_SEGMENT_* bits */
};

struct ng_memory_sum {
    uint64_t segments, bytes;
};

struct ng_memory_leaf;
struct ng_memory_place;

struct ng_memory_map {
    /* Protects everything below. Nests inside whatever its callers hold; nothing is called with it
     * held. */
    pthread_mutex_t lock;
    struct ng_memory_place *places; /* of the leaves, by address; NULL: empty so far */
    struct ng_memory_leaf *leaves, *free;
    uint32_t place_count, leaf_count;
    struct ng_memory_sum sums[NG_SEGMENT_KINDS];
    uint64_t lost;     /* ranges without room */
    uint64_t replaced; /* ranges that were freed unseen */
};

/* A map that may be used as it is. */
#define NG_MEMORY_MAP_EMPTY                                                                        \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* 0; -EINVAL: no bytes, or they go around the end of the address space; -ENOMEM. *ret_replaced, set
 * whatever the answer is: others lay there, which were freed unseen. Any thread. */
int ng_memory_map_put(struct ng_memory_map *map, const struct ng_segment *segment,
                      bool *ret_replaced);

/* The same, for who does not ask. */
int ng_memory_map_add(struct ng_memory_map *map, const struct ng_segment *segment);

/* Take out the range that begins at `base`. False: there is none. Any thread. */
bool ng_memory_map_remove(struct ng_memory_map *map, uintptr_t base,
                          struct ng_segment *ret_segment);

/* The range that holds an address. False: none does. Any thread. */
bool ng_memory_map_find(struct ng_memory_map *map, uintptr_t address,
                        struct ng_segment *ret_segment);

/* The first range that begins at `from` or later. False: there is none. Any thread. */
bool ng_memory_map_next(struct ng_memory_map *map, uintptr_t from, struct ng_segment *ret_segment);

/* Take out all that `matches`; how many. Any thread. */
uint64_t ng_memory_map_remove_all(struct ng_memory_map *map,
                                  bool (*matches)(const struct ng_segment *segment, int argument),
                                  int argument);

/* What there is, by kind. Any thread. */
void ng_memory_map_sum(struct ng_memory_map *map, struct ng_memory_sum ret_sums[NG_SEGMENT_KINDS]);

/* Forget everything, and give the memory back. In a forked child too, where the lock may be held by
 * a thread that does not exist. */
void ng_memory_map_reset(struct ng_memory_map *map);

#endif
