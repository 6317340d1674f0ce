/*
 * Names for addresses in an ELF image: the functions that they lie in.
 *
 * From the dynamic symbols in memory, which costs no look at the file system, and from the symbol
 * table of the file, which has more names where it was not stripped. No malloc, no lock; any guard
 * thread. An address that no function covers gets no name: the nearest one would be a wrong one.
 */
#ifndef NCCLGUARD_CORE_UNWIND_SYMBOLS_H
#define NCCLGUARD_CORE_UNWIND_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "core/unwind/image.h"
#include "core/util/arena.h"

#define NG_SYMBOL_NAME_BYTES 768 /* with its end; longer names are cut */

/* An address that wants a name. */
struct ng_symbol_query {
    uint64_t address; /* in the file's terms: without the image's bias */
    const char *name; /* NULL none found yet */
    uint64_t start;   /* of the function, in the same terms */
    uint32_t quality; /* how well it fits; of this file's concern */
    uint32_t name_offset;
};

/*
 * Name what has no better name yet; `queries` sorted by address, names from `arena`. 0, or -errno:
 * -ENOENT no symbols; -ESTALE (file) it is not what was loaded any more; -EREMOTE (file) it lies on
 * another machine, which may not answer: that is not tried. Bounded by the time `until_mono_ns`
 * (CLOCK_MONOTONIC), as long as the disk answers.
 */
int ng_symbols_of_memory(const struct ng_image *image, struct ng_symbol_query *queries,
                         uint32_t count, int64_t until_mono_ns, struct ng_arena *arena);
int ng_symbols_of_file(const struct ng_image *image, struct ng_symbol_query *queries,
                       uint32_t count, int64_t until_mono_ns, struct ng_arena *arena);

/* How many of `count` bytes at a place could be read. */
typedef size_t ng_symbols_read(const void *context, uint64_t place, void *bytes, size_t count);

/*
 * How many symbols a dynamic section's table has, which stands nowhere but in its hash tables:
 * their places, 0 none. 0: not known. Believes no number of what is read.
 */
uint64_t ng_symbols_count(uint64_t hash, uint64_t gnu_hash, int64_t until_mono_ns,
                          ng_symbols_read *read, const void *context);

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
