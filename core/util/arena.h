/*
 * Memory for the guard's own threads, straight from mmap.
 *
 * Why not malloc: a verdict must be reached in a process whose program is stuck inside malloc with
 * its lock held. One owner at a time; not thread safe. Freed as a whole.
 */
#ifndef NCCLGUARD_CORE_UTIL_ARENA_H
#define NCCLGUARD_CORE_UTIL_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct ng_arena {
    struct ng_arena_chunk *chunks;
};

/* Zeroed memory aligned to 16 bytes; NULL when the system has none. */
void *ng_arena_alloc(struct ng_arena *arena, size_t bytes);

/* A copy of `text` (NULL gives ""), or of its first `length` bytes, all of which are there. */
char *ng_arena_strdup(struct ng_arena *arena, const char *text);
char *ng_arena_strndup(struct ng_arena *arena, const char *text, size_t length);

/* What it makes is cut to 1023 bytes. */
__attribute__((format(printf, 2, 3))) char *ng_arena_printf(struct ng_arena *arena,
                                                            const char *format, ...);

/*
 * Room for one more element in an array of the arena that has room for `*room` elements of `each`
 * bytes and holds `used`: the array itself, or, if it is full, a larger copy. The old one stays in
 * the arena, which at most doubles the memory. NULL: no memory, and nothing has changed.
 */
void *ng_arena_grow(struct ng_arena *arena, void *array, uint32_t used, uint32_t *room,
                    size_t each);

/* The next element of an array that is full or not, counted in; NULL: no memory. All are lvalues.
 * An element that was not in use before is zeroed. */
#define NG_ARENA_APPEND(arena, array, count, room)                                                 \
    ({                                                                                             \
        void *grown_ = ng_arena_grow(arena, array, count, &(room), sizeof(*(array)));              \
        if (grown_)                                                                                \
            (array) = (__typeof__(array))grown_;                                                   \
        grown_ ? &(array)[(count)++] : NULL;                                                       \
    })

/* Free all memory; the arena is empty and can be used again. */
void ng_arena_reset(struct ng_arena *arena);

/* The same, but keep as much memory for the next use: for arenas that are filled repeatedly. */
void ng_arena_recycle(struct ng_arena *arena);

#endif
