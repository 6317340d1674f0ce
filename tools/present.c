/*
 * The verdict on a job at this moment.
 *
 * The library asks the same questions at its own times: see the watchdog and the incident thread.
 */
#include "tools/present.h"

#include <stdio.h>

#include "core/straggler.h"

#define DEATH_STALL_NS (200 * NG_MS) /* as the incident thread has it */

bool ng_present_is_gone(enum ng_life life)
{
    return life == NG_LIFE_DEAD || life == NG_LIFE_EXITED || life == NG_LIFE_LOST;
}

static bool can_wait(const struct ng_view *view, uint32_t process, bool victims)
{
    enum ng_life life = view->processes[process].life;

    return !ng_present_is_gone(life) && (victims || life != NG_LIFE_ENDED_BY_GUARD);
}

int64_t ng_present_oldest_wait(const struct ng_view *view, bool victims)
{
    int64_t oldest = 0;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        if (member->pending_record && member->pending_age_ns > oldest &&
            can_wait(view, member->process, victims))
            oldest = member->pending_age_ns;
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].age_ns > oldest && can_wait(view, view->calls[i].process, victims))
            oldest = view->calls[i].age_ns;
    return oldest;
}

/*
 * What the guard would say now: of work that is old enough to be suspect; or of a death that holds
 * others up, without waiting so long.
 */
static int judge(const struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                 struct ng_verdict *ret_verdict)
{
    int64_t oldest_ns = ng_present_oldest_wait(view, false);
    struct ng_verdict_query query = {.stalled_ns = suspect_ns};
    bool death = false;

    for (uint32_t i = 0; i < view->process_count; i++)
        death |= ng_present_is_gone(view->processes[i].life);
    if (asked_ns)
        query.stalled_ns = asked_ns;
    else if (oldest_ns >= suspect_ns)
        query.stalled_ns = suspect_ns / 2; /* others may have waited less, and be the reason */
    int error = ng_verdict_reach(view, &query, ret_verdict);
    if (error || asked_ns || !death || ret_verdict->kind != NG_KIND_HEALTHY)
        return error;
    struct ng_verdict verdict;
    query.stalled_ns = DEATH_STALL_NS;
    error = ng_verdict_reach(view, &query, &verdict);
    if (error) {
        ng_verdict_fini(ret_verdict);
        return error;
    }
    /* Who leaves while others still tidy up has done its part. */
    bool tells = (verdict.kind == NG_KIND_DEAD_RANK || verdict.kind == NG_KIND_LEFT_EARLY) &&
                 (verdict.op >= NG_OP_LIMIT || ng_op_table[verdict.op].op_class != NG_CLASS_END);
    ng_verdict_fini(tells ? ret_verdict : &verdict);
    if (tells)
        *ret_verdict = verdict;
    return 0;
}

int ng_present_judge(const struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                     struct ng_verdict *ret_verdict)
{
    int error = judge(view, asked_ns, suspect_ns, ret_verdict);

    if (error)
        return error;
    error = ng_straggler_blame(view, ret_verdict);
    if (error) {
        ng_verdict_fini(ret_verdict);
        return error;
    }
    ret_verdict->detected_by = -1;
    ret_verdict->action = "none";
    ret_verdict->time_unix_ns = ng_clock_unix_ns();
    snprintf(ret_verdict->job, sizeof(ret_verdict->job), "%s", view->job);
    return 0;
}
