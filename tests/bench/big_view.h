/*
 * Views of large jobs, and verdicts over them, in C: C++ does not know the black box's atomics.
 */
#ifndef NCCLGUARD_TESTS_BENCH_BIG_VIEW_H
#define NCCLGUARD_TESTS_BENCH_BIG_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

enum big_trouble {
    BIG_NOTHING,
    BIG_MISSING_RANK, /* one of all, in every group of it */
    BIG_LOST_HOST,    /* eight ranks */
    BIG_ORDER,        /* everybody came to half of its groups first, and not the same half */
    BIG_RING,         /* each waits in one group, for a rank that waits in the next */
    BIG_DEVICE,       /* everybody came, and nothing finishes */
    BIG_PARTED,       /* likewise, and the rolling hash of one rank differs */
    BIG_EVERY_SEND,   /* sends and receives with many peers of the world */
};

struct big_shape {
    int processes; /* with ten groups each */
    int records;   /* of each in each group */
    enum big_trouble trouble;
};

struct ng_view;

/* A sealed view, as a reader of the board builds it; NULL when memory is short. */
struct ng_view *big_view_make(const struct big_shape *shape);
void big_view_free(struct ng_view *view);

/* Reach a verdict, and say which. False when memory is short. */
bool big_view_judge(const struct ng_view *view, char *ret_what, size_t bytes);

__END_DECLS

#endif
