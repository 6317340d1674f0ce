/* The black box of the measuring process itself: proof that the guard was at work, and how well. */
#ifndef TESTS_BENCH_OWN_BOX_H
#define TESTS_BENCH_OWN_BOX_H

#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

struct own_box {
    uint64_t records;     /* written so far */
    uint64_t lost;        /* works whose completion could not be observed: no event was free */
    uint64_t groups_lost; /* communicators that found no slot */
    size_t map_bytes;
};

/* Finds the box among this process's mappings and reads its counters: 0, -ENOENT where there is
 * none (not guarded), -EPROTO where its layout is not this build's, or -errno. */
int own_box_read(struct own_box *ret_box);

/* On stderr, where there is one, for the script that compares: what the guard recorded. */
void own_box_print(void);

__END_DECLS

#endif
