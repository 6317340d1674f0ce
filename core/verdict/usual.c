/*
 * Does a rank make the call that it usually made after the same preceding calls?
 *
 * Pure. A call deviates if the longest sequence of preceding calls that also occurred earlier was
 * never followed by such a call, but by a different one. Only the newest calls of each communicator
 * are searched: this takes negligible time, and a large job of which only the newest calls are kept
 * has the same verdict.
 */
#include "core/verdict/usual.h"

#include <errno.h>

#include "core/util/macros.h"
#include "core/verdict/wait_graph.h"
#include "core/view/signature.h"

/* Fewer equal calls are not significant; more are not needed. */
#define CONTEXT_MIN 2u
#define CONTEXT_MAX 64u

/* The number of calls that are examined, from the oldest unfinished one on. */
#define LOOKS 64u

struct made {
    const struct ng_view_record *record;
    uint32_t group;
};

struct calls {
    struct made *made; /* in call order */
    uint32_t count;
};

/* The thread that made the oldest unfinished call of a member; 0 not known. */
static uint32_t thread_of(const struct ng_view_member *member)
{
    for (uint32_t i = 0; i < member->record_count; i++)
        if (!ng_view_record_is_retired(&member->records[i]))
            return member->records[i].tid;
    return 0;
}

/* Sorts by record id, which grows with every call of a process. False: two ids are the same. */
static bool sort(struct calls *calls)
{
    NG_SORT(calls->made, calls->count, a->record->id < b->record->id);
    for (uint32_t i = 1; i < calls->count; i++)
        if (calls->made[i - 1].record->id == calls->made[i].record->id)
            return false;
    return true;
}

/* Collects all calls of the thread, on all communicators of the same rank. */
static int collect(const struct ng_view_index *processes, const struct ng_view_member *stuck,
                   struct ng_arena *arena, struct calls *ret_calls)
{
    const struct ng_view *view = processes->view;
    uint32_t first = processes->first[stuck->process], last = processes->first[stuck->process + 1];
    uint32_t tid = thread_of(stuck), room = 1;
    uint64_t ring_first = view->processes[stuck->process].ring_first;

    for (uint32_t m = first; m < last; m++)
        room += view->members[processes->members[m]].record_count;
    ret_calls->made = ng_arena_alloc(arena, room * sizeof(*ret_calls->made));
    if (!ret_calls->made)
        return -ENOMEM;
    ret_calls->count = 0;
    for (uint32_t m = first; m < last; m++) {
        const struct ng_view_member *member = &view->members[processes->members[m]];
        uint32_t oldest =
            member->record_count > NG_USUAL_RECORDS ? member->record_count - NG_USUAL_RECORDS : 0;
        /* Between calls that outlasted others, some are lost. */
        while (oldest < member->record_count && member->records[oldest].id < ring_first)
            oldest++;
        for (uint32_t i = oldest; i < member->record_count && ng_same_actor(view, member, stuck);
             i++)
            if (ng_view_record_counts(&member->records[i]) && member->records[i].tid == tid)
                ret_calls->made[ret_calls->count++] =
                    (struct made){&member->records[i], member->group};
    }
    return 0;
}

static bool alike(const struct calls *calls, uint32_t a, uint32_t b)
{
    return calls->made[a].group == calls->made[b].group &&
           !ng_signature_differ(&calls->made[a].record->signature,
                                &calls->made[b].record->signature) &&
           calls->made[a].record->signature.root == calls->made[b].record->signature.root;
}

/* The number of calls immediately before two of them that are alike. */
static uint32_t context(const struct calls *calls, uint32_t a, uint32_t b)
{
    uint32_t length = 0;

    while (length < a && length < CONTEXT_MAX && alike(calls, a - 1 - length, b - 1 - length))
        length++;
    return length;
}

/* 1: it deviates, 0: it does not, -1: not known. */
static int look_at(const struct calls *calls, uint32_t at)
{
    uint32_t same = 0, other = 0;

    for (uint32_t earlier = 0; earlier < at; earlier++) {
        uint32_t length = context(calls, earlier, at);
        uint32_t *best = alike(calls, earlier, at) ? &same : &other;
        *best = NG_MAX(*best, length);
    }
    return same < CONTEXT_MIN && other < CONTEXT_MIN ? -1 : same < other;
}

int ng_usual_look(const struct ng_view_index *processes, uint32_t member, uint32_t before,
                  struct ng_arena *arena, int *ret_departures)
{
    struct calls calls;
    uint32_t at = 0;
    int departures = 0;

    int error = collect(processes, &processes->view->members[member], arena, &calls);
    if (error)
        return error;
    *ret_departures = -1;
    if (!sort(&calls))
        return 0;
    while (at < calls.count && ng_view_record_is_retired(calls.made[at].record))
        at++;
    if (at == calls.count)
        return 0;
    for (uint32_t i = at > before ? at - before : 0; i < calls.count && i < at + LOOKS; i++)
        departures += look_at(&calls, i) > 0;
    if (departures || look_at(&calls, at) == 0)
        *ret_departures = departures;
    return 0;
}

bool ng_usual_is_of_another_thread(const struct ng_view_member *member,
                                   const struct ng_view_member *stuck)
{
    uint32_t tid = thread_of(stuck), usual = member->record_count ? member->records[0].tid : 0;

    for (uint32_t i = 1; i < member->record_count; i++)
        if (member->records[i].tid != usual)
            return false;
    return member->record_count >= CONTEXT_MIN && tid && usual && tid != usual;
}
