/*
 * The state of a job just before its end.
 *
 * Linear in members and records, and in processes times calls. Which rank is to blame is not
 * decided here.
 */
#include "tools/judge/last_moment.h"

#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"

/* The heartbeat of a black box is at least this recent at its process's end. */
#define TOGETHER_NS (2 * NG_S)
/* Clocks of different hosts differ by less than this. */
#define CLOCKS_APART_NS NG_S

/* When the last of the dead processes gave its last sign of life, by the clocks of their hosts; 0
 * not known for all. */
static int64_t last_sign_unix_ns(const struct ng_view *view)
{
    int64_t last_ns = 0;

    NG_EACH (process, view->processes, view->process_count) {
        if (process->life != NG_LIFE_DEAD)
            continue;
        if (process->moment_unix_ns <= 0)
            return 0;
        if (process->moment_unix_ns > last_ns)
            last_ns = process->moment_unix_ns;
    }
    return last_ns;
}

/*
 * How long ago the last sign of life was. Not how long ago it was found dead, which is the same for
 * all if nothing checked before; and not by ages, if there are clocks: each dump has ages relative
 * to its own moment.
 */
static int64_t sign_age_ns(const struct ng_view_process *process, int64_t last_unix_ns)
{
    if (last_unix_ns)
        return last_unix_ns - process->moment_unix_ns;
    return process->alive_age_ns ? process->alive_age_ns : process->life_age_ns;
}

/* May it be the cause of the others' end? */
static bool may_be_first(const struct ng_view_process *process)
{
    bool failed = process->life == NG_LIFE_EXITED
                      ? process->exit_status > 0 && process->exit_status < NG_EXIT_STATUS_SIGNAL
                      : process->exit_status >= NG_EXIT_STATUS_SIGNAL;

    return failed && !ng_told_to_end(process->exit_status);
}

static int64_t moment_of(const struct ng_view_process *process, bool mono)
{
    return mono ? process->moment_mono_ns : process->moment_unix_ns;
}

/*
 * The rank that crashed or failed before its launcher began to end the others: it ended before all
 * of them, and in another way than any. That is known if one observer saw all ends: by the clock of
 * one host. NULL: not known.
 */
static const struct ng_view_process *find_first(const struct ng_view *view)
{
    const struct ng_view_process *first = NULL;
    /* Do all tell their moments by the monotonic clock, and not only by the wall clock, which each
     * took at a time of its own? */
    bool mono =
        !NG_ANY(process, view->processes, view->process_count, process->moment_mono_ns <= 0);

    NG_EACH (process, view->processes, view->process_count) {
        if (!ng_life_has_ended_by_itself(process->life))
            return NULL;
        if (!first || moment_of(process, mono) < moment_of(first, mono))
            first = process;
    }
    if (!first || !may_be_first(first) || view->process_count < 2)
        return NULL;
    NG_EACH (process, view->processes, view->process_count)
        if (process != first &&
            (moment_of(process, mono) <= moment_of(first, mono) ||
             strcmp(process->host, first->host) != 0 ||
             process->exit_status == first->exit_status ||
             (process->life == NG_LIFE_DEAD && process->exit_status < NG_EXIT_STATUS_SIGNAL)))
            return NULL;
    return first;
}

static bool is_stuck_in(const struct ng_view *view, const struct ng_incident *incident)
{
    NG_EACH (member, view->members, view->member_count)
        if (member->pending_record && view->groups[member->group].id == incident->group_id &&
            member->pending_seq == incident->seq)
            return true;
    return NG_ANY(call, view->calls, view->call_count,
                  call->group_id == incident->group_id && call->seq == incident->seq &&
                      call->op == (enum ng_op)incident->op);
}

/* Is it the process that a guard has named? By host and process id; if several are named, only
 * their ranks are known. */
static bool is_named(const struct ng_incident *told, const struct ng_view_process *process)
{
    char name[128];

    if (process->pid <= 0)
        return false;
    if (process->host[0])
        snprintf(name, sizeof(name), "(host %s, pid %d)", process->host, process->pid);
    else
        snprintf(name, sizeof(name), "(pid %d)", process->pid);
    return strstr(told->line, name) != NULL;
}

/*
 * Did it end because its own work was stuck, as frameworks' watchdogs end their rank? Then what it
 * waited for is the cause, and its end is not.
 */
static bool has_given_up(const struct ng_view *view, const struct ng_view_process *process,
                         int64_t long_ns)
{
    for (uint32_t i = 0; i < process->member_count; i++) {
        const struct ng_view_member *member =
            &view->members[view->by_process[process->first_member + i]];
        if (member->pending_record && member->pending_age_ns >= long_ns)
            return true;
    }
    return NG_ANY(call, view->calls, view->call_count,
                  &view->processes[call->process] == process && call->age_ns >= long_ns);
}

static const struct ng_view_member *member_of(const struct ng_view *view, uint32_t group,
                                              const struct ng_view_process *process)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    return NG_FIND(member, members, count, &view->processes[member->process] == process);
}

/* 0: a send or a receive. */
static uint64_t collective_of(const struct ng_view_record *record)
{
    return ng_view_record_is_p2p(record) ? 0 : record->coll_seq;
}

/* Has `first` finished this collective? Then nobody waits in it for `first`. */
static bool has_finished(const struct ng_view_member *first, uint64_t coll_seq)
{
    return coll_seq && coll_seq <= first->completed;
}

/* The call that a member made and `first` did not reach; else the newest that was not seen to
 * finish, on neither. NULL: none. */
static const struct ng_view_record *waits_in(const struct ng_view_member *member,
                                             const struct ng_view_member *first)
{
    if (first && member->entered > first->entered)
        return ng_view_collective(member, first->entered + 1);
    for (uint32_t k = member->record_count; k > 0 && first; k--)
        if (!ng_view_record_is_retired(&member->records[k - 1]) &&
            !has_finished(first, collective_of(&member->records[k - 1])))
            return &member->records[k - 1];
    return NULL;
}

/* No process lived long enough to see that its work does not complete, nor that earlier work
 * did. */
static void note_pending(struct ng_view *view, const struct ng_view_process *first)
{
    NG_EACH (member, view->members, view->member_count) {
        if (&view->processes[member->process] == first)
            continue;
        const struct ng_view_member *same = member_of(view, member->group, first);
        if (same && has_finished(same, member->pending_seq))
            member->pending_record = 0;
        const struct ng_view_record *record = waits_in(member, same);
        if (!record || record->entered_age_ns <= 0)
            continue;
        member->pending_record = record->id;
        member->pending_seq = collective_of(record);
        member->pending_age_ns = record->entered_age_ns;
    }
}

/*
 * A program that gives up may abort its communicators before it ends, so that nothing is pending
 * any more: what it was stuck in is as it was before that.
 */
static void undo_aborts(struct ng_view *view)
{
    NG_EACH (member, view->members, view->member_count) {
        int64_t waited_ns;
        const struct ng_view_record *record = ng_view_aborted_wait(member, &waited_ns);
        if (!record)
            continue;
        member->state = NG_GROUP_READY;
        member->records[record - member->records].state = NG_RECORD_STARTED;
        member->pending_record = record->id;
        member->pending_seq = record->coll_seq;
        member->pending_age_ns = waited_ns;
        member->pending_started = record->started_age_ns > 0;
    }
}

/* By a signal, or by itself while its own work was stuck. */
static bool has_ended_in_vain(const struct ng_view *view, const struct ng_view_process *process,
                              int64_t long_ns)
{
    return process->life == NG_LIFE_DEAD ||
           (process->life == NG_LIFE_EXITED && has_given_up(view, process, long_ns));
}

/* The process of which one observer saw that it ended first, and whether that was because of its
 * own wait. A verdict that a guard reached on what is still stuck says more than another end. */
static const struct ng_view_process *find_cause(struct ng_view *view, int64_t long_ns,
                                                struct ng_last_moment *moment)
{
    const struct ng_view_process *first = find_first(view);

    if (first && has_given_up(view, first, long_ns)) {
        moment->gave_up = first;
        return first;
    }
    if (moment->told)
        return NULL;
    if (first)
        note_pending(view, first);
    return first;
}

struct ng_last_moment ng_last_moment_restore(struct ng_view *view,
                                             const struct ng_postmortem *postmortem,
                                             int64_t long_ns)
{
    struct ng_last_moment moment = {0};
    int64_t last_unix_ns = last_sign_unix_ns(view);
    const struct ng_view_process *last = NULL;

    /* Every process, and none by its guard. */
    moment.ended = !NG_ANY(process, view->processes, view->process_count,
                           !ng_life_has_ended_by_itself(process->life));
    if (moment.ended)
        undo_aborts(view);
    /* The newest on an operation in which the ranks still were according to their last evidence. */
    moment.told = NG_FIND(one, postmortem->told, postmortem->told_count, is_stuck_in(view, one));
    moment.death_told = moment.told && moment.told->kind == NG_KIND_DEAD_RANK;
    moment.difference_told = moment.told && moment.told->kind == NG_KIND_MISMATCH;
    NG_EACH (process, view->processes, view->process_count)
        if (moment.ended && has_ended_in_vain(view, process, long_ns) &&
            (!last || sign_age_ns(process, last_unix_ns) < sign_age_ns(last, last_unix_ns)))
            last = process;
    moment.ended = last != NULL;
    if (!last)
        return moment;
    const struct ng_view_process *first = find_cause(view, long_ns, &moment);
    moment.first_seen = first != NULL;
    int64_t last_ns = sign_age_ns(last, last_unix_ns);
    NG_EACH (process, view->processes, view->process_count) {
        int64_t apart_ns = TOGETHER_NS + (strcmp(process->host, last->host) ? CLOCKS_APART_NS : 0);
        bool named = moment.death_told && is_named(moment.told, process);
        moment.dead_named |= named;
        bool victim = first ? moment.gave_up || (process != first && process->life == NG_LIFE_DEAD)
                            : has_ended_in_vain(view, process, long_ns) &&
                                  sign_age_ns(process, last_unix_ns) - last_ns <= apart_ns;
        if (!victim || named)
            continue;
        if (!first && process->life == NG_LIFE_EXITED)
            moment.gave_up = process;
        process->life = NG_LIFE_ENDED_BY_GUARD;
    }
    return moment;
}
