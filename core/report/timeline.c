/*
 * A job as a timeline: which rows, which records, from when to when.
 *
 * Called by the guard's threads and by the command. Must never call malloc, and must tolerate any
 * numbers that a damaged black box held.
 */
#include "core/report/timeline.h"

#include <errno.h>

#include "core/util/clock.h"
#include "core/util/macros.h"

/* Nothing older than a year is drawn: larger ages are damage. */
#define AGE_MAX_NS (366 * 24 * INT64_C(3600) * NG_S)
#define LOOK_BACK  64 /* records searched for the end of the one before */

/* ---- Rows ---- */

static struct ng_timeline_rank *add_rank(struct ng_timeline *timeline, int rank, uint32_t process)
{
    struct ng_timeline_rank *added = &timeline->ranks[timeline->rank_count++];

    *added = (struct ng_timeline_rank){.rank = rank, .process = process};
    return added;
}

/* Adds the rows of one process: one, or one for each device that it drives. */
static void add_process(struct ng_timeline *timeline, uint32_t process, int *ranks_of_members)
{
    const struct ng_view *view = timeline->view;
    const struct ng_view_process *from = &view->processes[process];
    const uint32_t *members = &view->by_process[from->first_member];
    uint32_t first_rank = timeline->rank_count, placed = from->first_member;

    for (uint32_t i = 0; i < from->member_count; i++) {
        int rank = ng_view_rank(view, &view->members[members[i]]);
        uint32_t at = first_rank;
        ranks_of_members[i] = rank;
        while (at < timeline->rank_count && timeline->ranks[at].rank != rank)
            at++;
        if (at == timeline->rank_count)
            add_rank(timeline, rank, process);
    }
    if (timeline->rank_count == first_rank)
        add_rank(timeline, from->rank, process);
    for (uint32_t at = first_rank; at < timeline->rank_count; at++) {
        struct ng_timeline_rank *rank = &timeline->ranks[at];
        rank->first = placed;
        for (uint32_t i = 0; i < from->member_count; i++)
            if (ranks_of_members[i] == rank->rank)
                timeline->members[placed++] = members[i];
        rank->count = placed - rank->first;
    }
}

static bool comes_before(const struct ng_timeline_rank *a, const struct ng_timeline_rank *b)
{
    /* -1 (not known) sorts last. */
    if (a->rank != b->rank)
        return (unsigned)a->rank < (unsigned)b->rank;
    return a->process < b->process;
}

/* Heapsort: qsort may call malloc, which the guard's threads must not. */
static void sort_ranks(struct ng_timeline_rank *ranks, uint32_t count)
{
    for (uint32_t start = count / 2, end = count; end > 1;) {
        struct ng_timeline_rank moving;
        if (start > 0) {
            moving = ranks[--start];
        } else {
            moving = ranks[--end];
            ranks[end] = ranks[0];
        }
        uint32_t hole = start, child;
        while ((child = 2 * hole + 1) < end) {
            if (child + 1 < end && comes_before(&ranks[child], &ranks[child + 1]))
                child++;
            if (!comes_before(&moving, &ranks[child]))
                break;
            ranks[hole] = ranks[child];
            hole = child;
        }
        ranks[hole] = moving;
    }
}

static bool is_culprit(const struct ng_timeline *timeline, const struct ng_timeline_rank *rank,
                       const struct ng_culprit *culprit)
{
    const struct ng_view_process *process = &timeline->view->processes[rank->process];

    if (culprit->rank != rank->rank)
        return false;
    if (!culprit->pid)
        return true;
    return ng_culprit_is_of(culprit, process);
}

/* Marks the culprits, and adds a row for each culprit without evidence. */
static void mark_culprits(struct ng_timeline *timeline)
{
    const struct ng_verdict *verdict = timeline->verdict;
    uint32_t seen = timeline->rank_count;

    for (uint32_t i = 0; i < verdict->culprit_count; i++) {
        const struct ng_culprit *culprit = &verdict->culprits[i];
        bool found = false;
        for (uint32_t k = 0; k < seen; k++)
            if (is_culprit(timeline, &timeline->ranks[k], culprit)) {
                timeline->ranks[k].culprit = culprit;
                found = true;
            }
        if (!found)
            add_rank(timeline, culprit->rank, NG_TIMELINE_NOBODY)->culprit = culprit;
    }
}

static bool is_waiting(const struct ng_verdict *verdict, int rank)
{
    uint32_t low = NG_FIRST_INDEX(verdict->waiting_count, i, verdict->waiting[i] < rank);

    return low < verdict->waiting_count && verdict->waiting[low] == rank;
}

static int make_ranks(struct ng_timeline *timeline)
{
    const struct ng_view *view = timeline->view;
    const struct ng_verdict *verdict = timeline->verdict;
    size_t room = (size_t)view->process_count + view->member_count +
                  (verdict ? verdict->culprit_count : 0) + 1;

    timeline->ranks = ng_arena_alloc(&timeline->arena, room * sizeof(*timeline->ranks));
    timeline->members =
        ng_arena_alloc(&timeline->arena, (view->member_count + 1) * sizeof(*timeline->members));
    int *ranks_of_members =
        ng_arena_alloc(&timeline->arena, (view->member_count + 1) * sizeof(*ranks_of_members));
    if (!timeline->ranks || !timeline->members || !ranks_of_members || !view->by_process)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++)
        add_process(timeline, i, ranks_of_members);
    if (verdict) {
        mark_culprits(timeline);
        for (uint32_t i = 0; i < timeline->rank_count; i++)
            timeline->ranks[i].waits =
                !timeline->ranks[i].culprit && is_waiting(verdict, timeline->ranks[i].rank);
    }
    sort_ranks(timeline->ranks, timeline->rank_count);
    return 0;
}

/* ---- Which records ---- */

static uint64_t count_records(const struct ng_view *view, uint32_t each)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < view->member_count; i++)
        sum += view->members[i].record_count < each ? view->members[i].record_count : each;
    return sum;
}

/* The same number of records for each member, as many as there is room for. */
static void share_out(struct ng_timeline *timeline, uint32_t records_max)
{
    uint32_t low = 0, high = UINT32_MAX;

    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (count_records(timeline->view, middle) <= records_max)
            low = middle;
        else
            high = middle - 1;
    }
    timeline->records_each = low;
    timeline->records_left_out =
        count_records(timeline->view, UINT32_MAX) - count_records(timeline->view, low);
}

uint32_t ng_timeline_first(const struct ng_timeline *timeline, const struct ng_view_member *member)
{
    return member->record_count > timeline->records_each
               ? member->record_count - timeline->records_each
               : 0;
}

/* ---- When ---- */

int64_t ng_timeline_at(const struct ng_timeline *timeline, uint32_t process, int64_t age_ns)
{
    int64_t age = age_ns < 0 ? 0 : age_ns > AGE_MAX_NS ? AGE_MAX_NS : age_ns;

    return timeline->clocks.moments_ns[process] - age;
}

/* Finds the oldest record drawn, and the latest moment at which a process was inspected. */
static void find_ends(struct ng_timeline *timeline)
{
    const struct ng_view *view = timeline->view;
    bool any = false;

    for (uint32_t i = 0; i < view->process_count; i++) {
        int64_t moment = timeline->clocks.moments_ns[i];
        if (!any || moment > timeline->end_ns)
            timeline->end_ns = moment;
        if (!any || moment < timeline->begin_ns)
            timeline->begin_ns = moment;
        any = true;
    }
    NG_EACH (member, view->members, view->member_count) {
        int64_t oldest_ns = member->pending_record ? member->pending_age_ns : 0;
        for (uint32_t k = ng_timeline_first(timeline, member); k < member->record_count; k++)
            oldest_ns = NG_MAX(oldest_ns, member->records[k].entered_age_ns);
        int64_t at = ng_timeline_at(timeline, member->process, oldest_ns);
        timeline->begin_ns = NG_MIN(timeline->begin_ns, at);
    }
    for (uint32_t i = 0; i < view->call_count; i++) {
        int64_t at = ng_timeline_at(timeline, view->calls[i].process, view->calls[i].age_ns);
        timeline->begin_ns = NG_MIN(timeline->begin_ns, at);
    }
}

static enum ng_span_state state_of(const struct ng_view_record *record)
{
    switch (record->state) {
    case NG_RECORD_ENTERED:
        return NG_SPAN_CALLED;
    case NG_RECORD_SCHEDULED:
        return NG_SPAN_QUEUED;
    case NG_RECORD_STARTED:
        return NG_SPAN_DEVICE;
    case NG_RECORD_COMPLETED:
        return record->completed_age_ns > 0 ? NG_SPAN_DONE : NG_SPAN_POINT;
    default:
        return NG_SPAN_POINT;
    }
}

bool ng_timeline_knows(const struct ng_view_record *record)
{
    enum ng_span_state state = state_of(record);

    return record->entered_age_ns > 0 || (state != NG_SPAN_DONE && state != NG_SPAN_POINT);
}

/* The age at which the previous work on a record's stream was last seen to end; 0 not known. */
static int64_t before_it(const struct ng_view_member *member, const struct ng_view_record *record)
{
    const struct ng_view_record *other = record;

    for (int looked = 0; other > member->records && looked < LOOK_BACK; looked++) {
        other--;
        if (other->stream == record->stream && other->completed_age_ns > record->completed_age_ns)
            return other->completed_age_ns;
    }
    return 0;
}

struct ng_span ng_timeline_span(const struct ng_timeline *timeline,
                                const struct ng_view_member *member,
                                const struct ng_view_record *record)
{
    struct ng_span span = {.state = state_of(record)};

    span.entered_ns = ng_timeline_at(timeline, member->process, record->entered_age_ns);
    span.start_ns = span.end_ns = span.entered_ns;
    if (record->started_age_ns > 0 && span.state != NG_SPAN_POINT)
        span.start_ns = ng_timeline_at(timeline, member->process, record->started_age_ns);
    span.start_ns = NG_MAX(span.start_ns, span.entered_ns);
    if (span.state == NG_SPAN_DONE)
        span.end_ns = ng_timeline_at(timeline, member->process, record->completed_age_ns);
    else if (span.state != NG_SPAN_POINT)
        span.end_ns = ng_timeline_at(timeline, member->process, 0);
    span.end_ns = NG_MAX(span.end_ns, span.start_ns);
    if (span.state == NG_SPAN_DONE && span.end_ns == span.start_ns) {
        int64_t age = before_it(member, record);
        int64_t since = age ? ng_timeline_at(timeline, member->process, age) : span.entered_ns;
        span.bounds = true;
        span.start_ns = since > span.entered_ns ? since : span.entered_ns;
        span.start_ns = span.start_ns < span.end_ns ? span.start_ns : span.end_ns;
    }
    if (span.state == NG_SPAN_DONE && record->duration_ns > 0 &&
        record->duration_ns < span.end_ns - span.start_ns)
        span.start_ns = span.end_ns - record->duration_ns;
    return span;
}

int ng_timeline_make(const struct ng_view *view, const struct ng_verdict *verdict,
                     uint32_t records_max, struct ng_timeline *ret_timeline)
{
    struct ng_timeline timeline = {.view = view, .verdict = verdict};

    int error = ng_clock_sync(view, &timeline.arena, &timeline.clocks) ?: make_ranks(&timeline);
    if (error) {
        ng_arena_reset(&timeline.arena);
        return error;
    }
    share_out(&timeline, records_max);
    find_ends(&timeline);
    *ret_timeline = timeline;
    return 0;
}

void ng_timeline_fini(struct ng_timeline *timeline)
{
    ng_arena_reset(&timeline->arena);
}
