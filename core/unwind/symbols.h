/*
 * Names for addresses in an ELF image: the functions that contain them.
 *
 * Sources are the dynamic symbols in memory, which need no file access, and the symbol table of the
 * file, which has more names unless it was stripped. No malloc, no lock; any guard thread. An
 * address that no function covers gets no name: that of the nearest function would be wrong.
 */
#ifndef NCCLGUARD_CORE_UNWIND_SYMBOLS_H
#define NCCLGUARD_CORE_UNWIND_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "core/unwind/image.h"
#include "core/util/arena.h"

#define NG_SYMBOL_NAME_BYTES 768 /* with its NUL; longer names are cut */

/* An address to be named. */
struct ng_symbol_query {
    uint64_t address; /* as in the file: without the image's bias */
    const char *name; /* NULL none found yet */
    uint64_t start;   /* of the function, likewise */
    uint32_t quality; /* how well it fits; internal */
    uint32_t name_offset;
};

/*
 * Name addresses that have no better name yet; `queries` sorted by address, names from `arena`. 0,
 * or -errno: -ENOENT no symbols; -ESTALE (file) it is no longer the file that was loaded; -EREMOTE
 * (file) it is on another machine, which may not answer, and is not read. Bounded by
 * `until_thread_ns` (ng_clock_thread_ns): by its own work, so that a busy machine takes no names
 * away. Time in which the disk reads is not counted.
 */
int ng_symbols_of_memory(const struct ng_image *image, struct ng_symbol_query *queries,
                         uint32_t count, int64_t until_thread_ns, struct ng_arena *arena);
int ng_symbols_of_file(const struct ng_image *image, struct ng_symbol_query *queries,
                       uint32_t count, int64_t until_thread_ns, struct ng_arena *arena);

/* Read up to `count` bytes at a place; returns how many could be read. */
typedef size_t ng_symbols_read(const void *context, uint64_t place, void *bytes, size_t count);

/*
 * How many symbols a dynamic section's table has, which only its hash tables reveal: their
 * addresses, 0 none. 0: not known. Trusts no number that is read.
 */
uint64_t ng_symbols_count(uint64_t hash, uint64_t gnu_hash, int64_t until_thread_ns,
                          ng_symbols_read *read, const void *context);

/* An address in memory to be named. */
struct ng_symbol_wanted {
    const struct ng_image *image;
    uint64_t place;   /* inside the function, not after it */
    const char *name; /* found, in the arena; NULL none */
    uint64_t start;   /* of the function, in memory */
};

/* ng_symbols_of_memory or ng_symbols_of_file. */
typedef int ng_symbol_source(const struct ng_image *image, struct ng_symbol_query *queries,
                             uint32_t count, int64_t until_thread_ns, struct ng_arena *arena);

/* Set `name` and `start` of those whose name is found in time. -ENOMEM is the only error. */
int ng_symbolize(struct ng_symbol_wanted *wanted, uint32_t count, ng_symbol_source *source,
                 int64_t until_thread_ns, struct ng_arena *arena);

#endif
