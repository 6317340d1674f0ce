/*
 * The durations of all ranks.
 *
 * Used by `ncclguard analyze`. Counts may come from damaged evidence: sums saturate, and divisors
 * are checked.
 */
#include "tools/ingest/timings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"

static int compare(const void *left, const void *right)
{
    const struct ng_timing *a = left, *b = right;

    int order = NG_ORDER(a->group, b->group) ?: NG_ORDER(a->op, b->op);
    return order ?: NG_ORDER(a->size_class, b->size_class);
}

/* Sums that overflow become the maximum. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void merge(struct ng_timing *timing, const struct ng_timing *other)
{
    timing->processes += other->processes;
    timing->count = plus(timing->count, other->count);
    timing->sum_ns = plus(timing->sum_ns, other->sum_ns);
    if (other->min_ns < timing->min_ns)
        timing->min_ns = other->min_ns;
    if (other->max_ns > timing->max_ns)
        timing->max_ns = other->max_ns;
    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++)
        timing->histogram[i] = plus(timing->histogram[i], other->histogram[i]);
}

int ng_timings_find(const struct ng_view *view, struct ng_timings *ret_timings)
{
    struct ng_timing *list = calloc((size_t)view->duration_count + 1, sizeof(*list));
    uint32_t count = 0, kept = 0;

    if (!list)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->duration_count; i++) {
        const struct ng_duration *from = &view->durations[i].duration;
        uint32_t group = ng_view_find_group(view, from->group_id);
        if (group == UINT32_MAX || !from->count)
            continue;
        struct ng_timing *timing = &list[count++];
        *timing = (struct ng_timing){.group = group,
                                     .op = from->op,
                                     .size_class = from->size_class,
                                     .processes = 1,
                                     .count = from->count,
                                     .sum_ns = from->sum_ns,
                                     .min_ns = from->min_ns,
                                     .max_ns = from->max_ns};
        memcpy(timing->histogram, from->histogram, sizeof(timing->histogram));
    }
    qsort(list, count, sizeof(*list), compare);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && compare(&list[kept - 1], &list[i]) == 0)
            merge(&list[kept - 1], &list[i]);
        else
            list[kept++] = list[i];
    }
    *ret_timings = (struct ng_timings){list, kept};
    return 0;
}

void ng_timings_fini(struct ng_timings *timings)
{
    free(timings->list);
    *timings = (struct ng_timings){0};
}

uint64_t ng_timing_within_ns(const struct ng_timing *timing, unsigned percent)
{
    uint64_t all = 0, seen = 0;

    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++)
        all = plus(all, timing->histogram[i]);
    /* Rounded up: at least so many. */
    uint64_t wanted = all / 100 * percent + (all % 100 * percent + 99) / 100;
    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++) {
        seen = plus(seen, timing->histogram[i]);
        uint64_t end_ns = (uint64_t)ng_duration_bucket_end_ns(i);
        if (all && seen >= wanted)
            return end_ns < timing->max_ns ? end_ns : timing->max_ns;
    }
    return timing->max_ns;
}

uint64_t ng_timing_size_bytes(const struct ng_timing *timing)
{
    return timing->size_class < 64 ? UINT64_C(1) << timing->size_class : UINT64_MAX;
}

uint64_t ng_timing_mean_ns(const struct ng_timing *timing)
{
    return timing->count ? timing->sum_ns / timing->count : 0;
}
