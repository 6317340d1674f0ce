/*
 * Memory for the guard's own threads, straight from mmap.
 *
 * Why not malloc: a verdict must be reached in a process whose program is stuck inside malloc with
 * its lock held. One owner at a time; not thread safe. Freed as a whole.
 */
#ifndef NCCLGUARD_CORE_UTIL_ARENA_H
#define NCCLGUARD_CORE_UTIL_ARENA_H

#include <stddef.h>

struct ng_arena {
    struct ng_arena_chunk *chunks;
};

/* Zeroed memory aligned to 16 bytes; NULL when the system has none. */
void *ng_arena_alloc(struct ng_arena *arena, size_t bytes);

/* A copy of `text` (NULL gives ""). */
char *ng_arena_strdup(struct ng_arena *arena, const char *text);

__attribute__((format(printf, 2, 3))) char *ng_arena_printf(struct ng_arena *arena,
                                                            const char *format, ...);

/* Free all memory; the arena is empty and can be used again. */
void ng_arena_reset(struct ng_arena *arena);

/* The same, but keep as much memory for the next use: for arenas that are filled repeatedly. */
void ng_arena_recycle(struct ng_arena *arena);

#endif
