/*
 * A bump allocator on mmap, for the guard's own threads.
 *
 * Entered by one thread at a time per arena. Must never call malloc: see arena.h.
 */
#include "core/util/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES (256u << 10)
#define ALIGNMENT   16u

struct ng_arena_chunk {
    struct ng_arena_chunk *next;
    size_t bytes; /* size of the whole mapping */
    size_t used;
};

void *ng_arena_alloc(struct ng_arena *arena, size_t bytes)
{
    size_t header = (sizeof(struct ng_arena_chunk) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct ng_arena_chunk *chunk = arena->chunks;

    if (bytes > ((size_t)1 << 40))
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!chunk || chunk->bytes - chunk->used < bytes) {
        size_t wanted = bytes + header > CHUNK_BYTES ? bytes + header : CHUNK_BYTES;
        void *map = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED)
            return NULL;
        chunk = map;
        chunk->bytes = wanted;
        chunk->used = header;
        /* A chunk for one large object goes behind the current one, which may have room left. */
        if (wanted > CHUNK_BYTES && arena->chunks) {
            chunk->next = arena->chunks->next;
            arena->chunks->next = chunk;
        } else {
            chunk->next = arena->chunks;
            arena->chunks = chunk;
        }
    }
    void *memory = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return memory;
}

void *ng_arena_grow(struct ng_arena *arena, void *array, uint32_t used, uint32_t *room, size_t each)
{
    if (used < *room)
        return array;
    uint32_t wanted = *room ? *room * 2 : 16;
    void *bigger = ng_arena_alloc(arena, wanted * each);
    if (!bigger)
        return NULL;
    if (used)
        memcpy(bigger, array, used * each);
    *room = wanted;
    return bigger;
}

char *ng_arena_strdup(struct ng_arena *arena, const char *text)
{
    return ng_arena_strndup(arena, text, text ? strlen(text) : 0);
}

char *ng_arena_strndup(struct ng_arena *arena, const char *text, size_t length)
{
    char *copy = ng_arena_alloc(arena, length + 1);

    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

char *ng_arena_printf(struct ng_arena *arena, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    return ng_arena_strdup(arena, line);
}

void ng_arena_reset(struct ng_arena *arena)
{
    struct ng_arena_chunk *chunk = arena->chunks;

    arena->chunks = NULL;
    while (chunk) {
        struct ng_arena_chunk *next = chunk->next;
        munmap(chunk, chunk->bytes);
        chunk = next;
    }
}

void ng_arena_recycle(struct ng_arena *arena)
{
    struct ng_arena_chunk *only = arena->chunks;
    size_t header = (sizeof(*only) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1), bytes = 0;

    if (only && !only->next) {
        memset((char *)only + header, 0, only->used - header);
        only->used = header;
        return;
    }
    for (const struct ng_arena_chunk *chunk = only; chunk; chunk = chunk->next)
        bytes += chunk->bytes;
    ng_arena_reset(arena);
    if (!bytes)
        return;
    /* One chunk with room for everything so far, and a little more; without it the arena also
     * works. */
    bytes += bytes / 4;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return;
    only = map;
    only->bytes = bytes;
    only->used = header;
    arena->chunks = only;
}
