/*
 * Names for addresses of any images: the functions that they lie in.
 *
 * Asks one source (core/unwind/symbols.h) for all addresses of an image at once. No malloc, no
 * lock; any guard thread.
 */
#ifndef NCCLGUARD_CORE_UNWIND_SYMBOLIZE_H
#define NCCLGUARD_CORE_UNWIND_SYMBOLIZE_H

#include <stdint.h>

#include "core/unwind/image.h"
#include "core/unwind/symbols.h"
#include "core/util/arena.h"

/* An address in memory that wants a name. */
struct ng_symbol_wanted {
    const struct ng_image *image;
    uint64_t place;   /* in the function, not behind it */
    const char *name; /* found, in the arena; NULL none */
    uint64_t start;   /* of the function, in memory */
};

/* ng_symbols_of_memory or ng_symbols_of_file. */
typedef int ng_symbol_source(const struct ng_image *image, struct ng_symbol_query *queries,
                             uint32_t count, int64_t until_mono_ns, struct ng_arena *arena);

/* Sets `name` and `start` of those whose name is found by then. -ENOMEM is the only error. */
int ng_symbolize(struct ng_symbol_wanted *wanted, uint32_t count, ng_symbol_source *source,
                 int64_t until_mono_ns, struct ng_arena *arena);

#endif
