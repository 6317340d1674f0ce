/*
 * A map of address ranges: which allocation, mapping or reservation an address lies in.
 *
 * Not in the path of a call. Any thread; one mutex per map, never held across a call of the driver
 * or of NCCL. Ranges never overlap: a new range replaces those that it overlaps, since they must
 * have been freed unseen. Memory comes from mmap, once per map, and is touched as it fills.
 */
#ifndef NCCLGUARD_CORE_UTIL_MEMORY_MAP_H
#define NCCLGUARD_CORE_UTIL_MEMORY_MAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Black boxes store these numbers, so they must never change. */
enum ng_segment_kind {
    NG_SEGMENT_PLAIN,   /* cuMemAlloc, cuMemAllocPitch */
    NG_SEGMENT_POOL,    /* allocated in stream order, from a pool */
    NG_SEGMENT_MANAGED, /* cuMemAllocManaged */
    NG_SEGMENT_MAPPED,  /* cuMemMap: one mapping */
    NG_SEGMENT_NCCL,    /* ncclMemAlloc */
    NG_SEGMENT_PEER,    /* memory of another process, opened by its IPC handle */
    NG_SEGMENT_KINDS,
};

const char *ng_segment_kind_name(enum ng_segment_kind kind);

#define NG_SEGMENT_SHAREABLE 1u /* NCCL can hand it to other processes */
#define NG_SEGMENT_WHOLE     2u /* it fills its reservation: nothing can be mapped next to it */

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
    /* Protects everything below. May be taken while callers hold other locks; nothing is called
     * with it held. */
    pthread_mutex_t lock;
    struct ng_memory_place *places; /* the leaves, by address; NULL: empty so far */
    struct ng_memory_leaf *leaves, *free;
    uint32_t place_count, leaf_count;
    struct ng_memory_sum sums[NG_SEGMENT_KINDS];
    uint64_t lost;     /* ranges dropped for lack of room */
    uint64_t replaced; /* ranges replaced because they were freed unseen */
};

/* Initialiser of an empty map. */
#define NG_MEMORY_MAP_EMPTY                                                                        \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* 0; -EINVAL: no bytes, or they wrap around the end of the address space; -ENOMEM. *ret_replaced,
 * always set: other ranges were there, which were freed unseen. Any thread. */
int ng_memory_map_put(struct ng_memory_map *map, const struct ng_segment *segment,
                      bool *ret_replaced);

/* The same, without ret_replaced. */
int ng_memory_map_add(struct ng_memory_map *map, const struct ng_segment *segment);

/* Remove the range that begins at `base`. False: there is none. Any thread. */
bool ng_memory_map_remove(struct ng_memory_map *map, uintptr_t base,
                          struct ng_segment *ret_segment);

/* The range that contains an address. False: none does. Any thread. */
bool ng_memory_map_find(struct ng_memory_map *map, uintptr_t address,
                        struct ng_segment *ret_segment);

/* The first range that begins at `from` or later. False: there is none. Any thread. */
bool ng_memory_map_next(struct ng_memory_map *map, uintptr_t from, struct ng_segment *ret_segment);

/* Remove all ranges for which `matches` is true; returns their number. Any thread. */
uint64_t ng_memory_map_remove_all(struct ng_memory_map *map,
                                  bool (*matches)(const struct ng_segment *segment, int argument),
                                  int argument);

/* Totals by kind. Any thread. */
void ng_memory_map_sum(struct ng_memory_map *map, struct ng_memory_sum ret_sums[NG_SEGMENT_KINDS]);

/* Remove everything, and release the memory. Also in a forked child, where the lock may be held by
 * a thread that does not exist there. */
void ng_memory_map_reset(struct ng_memory_map *map);

#endif
