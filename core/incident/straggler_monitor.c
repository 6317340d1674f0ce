/*
 * Stragglers of a running job.
 *
 * Written by the incident thread, read by the status thread.
 */
#include "core/incident/straggler_monitor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/verdict/straggler.h"

/* Protects the stragglers kept. Nests inside nothing; held only to copy, by guard threads alone. */
static NG_FORGOTTEN pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_slow_rank kept[NG_STRAGGLER_MONITOR_MAX] NG_LARGE;
static NG_FORGOTTEN uint32_t kept_count;

/* Incident thread alone, except `interval`. */
static _Atomic int64_t interval; /* set by ng_straggler_monitor_start */
static NG_FORGOTTEN int64_t next_ns;

void ng_straggler_monitor_start(int64_t interval_ns)
{
    interval = interval_ns;
}

bool ng_straggler_monitor_is_due(int64_t now_mono_ns)
{
    if (interval && !next_ns)
        next_ns = now_mono_ns + interval;
    return interval && now_mono_ns >= next_ns;
}

static bool is_own(const struct ng_view *view, uint32_t group, bool *ret_whole)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    *ret_whole = view->groups[group].nranks <= (int)view->groups[group].member_count;
    return NG_ANY(member, members, count,
                  view->processes[member->process].self && member->state == NG_GROUP_READY);
}

bool ng_straggler_monitor_keep(const struct ng_view *view, int64_t now_mono_ns)
{
    struct ng_slow_rank found[NG_STRAGGLER_MONITOR_MAX];
    struct ng_straggler straggler;
    struct ng_arena arena = {0};
    uint32_t count = 0;
    bool complete = true;

    for (uint32_t i = 0; i < view->group_count && count < NG_STRAGGLER_MONITOR_MAX; i++) {
        bool whole;
        if (!is_own(view, i, &whole))
            continue;
        complete &= whole;
        if (whole && ng_straggler_find(view, i, &arena, &straggler))
            found[count++] = (struct ng_slow_rank){.group_id = view->groups[i].id,
                                                   .rank = ng_view_rank(view, straggler.member),
                                                   .last = straggler.last,
                                                   .samples = straggler.samples,
                                                   .wait_ns = straggler.wait_ns};
        ng_arena_recycle(&arena);
    }
    ng_arena_reset(&arena);
    pthread_mutex_lock(&lock);
    memcpy(kept, found, count * sizeof(kept[0]));
    kept_count = count;
    pthread_mutex_unlock(&lock);
    next_ns = now_mono_ns + interval;
    return complete;
}

bool ng_straggler_monitor_find(uint64_t group_id, struct ng_slow_rank *ret_late)
{
    NG_HOLD(&lock);
    const struct ng_slow_rank *late = NG_FIND(slow, kept, kept_count, slow->group_id == group_id);
    if (late)
        *ret_late = *late;
    return late;
}
