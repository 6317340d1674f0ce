/*
 * Stragglers: the rank that the others of its group wait for, again and again.
 *
 * Pure: no clock, no file, no globals; the live library and the tools share it. A collective in
 * which every rank waits for every other ends on all of them at about the same time, and begins on
 * each as it arrives. So the rank that measured the shortest duration of a collective arrived last,
 * and the additional time that the others took is the time that they waited for it.
 *
 * Only collectives that *every* rank of the group has measured are compared: for any other, it is
 * not known which rank arrived last. A rank is a straggler if
 *
 *   - at least 8 such collectives are known, and it came last in at least half of them,
 *   - this is not by chance: if all ranks were alike, one of them would come last so often in
 *     less than one of 1,000 such jobs (binomial distribution, times the number of ranks),
 *   - and it matters: in the median of those collectives the others' median wait for it was at
 *     least 50 us and a tenth of the time that they took.
 *
 * It is certain if the rank came last in nine of ten, and at least 16 are known; otherwise likely.
 */
#ifndef NCCLGUARD_CORE_VERDICT_STRAGGLER_H
#define NCCLGUARD_CORE_VERDICT_STRAGGLER_H

#include "core/verdict/verdict.h"
#include "core/view/view.h"

#define NG_STRAGGLER_SAMPLES      8u
#define NG_STRAGGLER_SAMPLES_SURE 16u
#define NG_STRAGGLER_WAIT_NS      50000

struct ng_straggler {
    uint32_t group;                      /* index in the view */
    const struct ng_view_member *member; /* the rank that comes last */
    uint32_t last, samples;              /* it came last in `last` of `samples` collectives */
    uint64_t first_seq, last_seq;        /* the range of these collectives */
    /* Over the collectives in which it came last: how long the others waited for it (per
     * collective, their median), and how long they were in the collective; medians over the
     * collectives, and a sum. */
    int64_t wait_ns, duration_ns, total_wait_ns;
    enum ng_confidence confidence; /* LIKELY or CERTAIN */
};

/*
 * The straggler of one group of a sealed view. False: it has none, or there are too few
 * measurements, or no memory is left in `arena`.
 */
bool ng_straggler_find(const struct ng_view *view, uint32_t group, struct ng_arena *arena,
                       struct ng_straggler *ret_straggler);

/* The stragglers of all groups, in order of the groups; as many as there is memory for. */
struct ng_stragglers {
    struct ng_straggler *stragglers;
    uint32_t count;
};
void ng_stragglers_find(const struct ng_view *view, struct ng_arena *arena,
                        struct ng_stragglers *ret_stragglers);

/* One sentence, as for a culprit: "came last in 15 of 16 …". */
void ng_straggler_why(const struct ng_straggler *straggler, char *ret_why, size_t bytes);

/*
 * Turns a verdict that found nothing stuck into kind STRAGGLER, naming the straggler that costs
 * most, if there is one. Any other verdict is left unchanged. 0 or -ENOMEM.
 */
int ng_straggler_blame(const struct ng_view *view, struct ng_verdict *verdict);

#endif
