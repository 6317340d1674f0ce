/*
 * A verdict long after.
 *
 * Used by `ncclguard analyze`. What counts as stuck, and who counts as alive, is decided here; who
 * is to blame only by the verdict engine.
 */
#include "tools/hindsight.h"

#include "core/clock.h"
#include "tools/present.h"

/* Dumps do not say when their job calls work stuck; black boxes do. */
#define STALLED_DEFAULT_NS (5 * NG_S)
#define UNUSUAL_NS         NG_S /* beside work that is stuck, waits of this length are no chance */
/* The heartbeat of a black box is at least this fresh at its process's end. */
#define TOGETHER_NS (2 * NG_S)

/*
 * A job that was killed from outside (a batch system's SIGKILL) has only dead ranks, and the dead
 * wait for nobody. What matters is how it stood just before: the ranks of the last wave of deaths
 * count as alive then. A rank that died earlier stays dead.
 */
static bool look_before_the_end(struct ng_view *view)
{
    int64_t last = INT64_MAX;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (process->life != NG_LIFE_DEAD && process->life != NG_LIFE_EXITED)
            return false;
        if (process->life == NG_LIFE_DEAD && process->life_age_ns < last)
            last = process->life_age_ns;
    }
    if (last == INT64_MAX)
        return false;
    for (uint32_t i = 0; i < view->process_count; i++) {
        struct ng_view_process *process = &view->processes[i];
        if (process->life == NG_LIFE_DEAD && process->life_age_ns <= last + TOGETHER_NS)
            process->life = NG_LIFE_ENDED_BY_GUARD; /* ended by somebody: a victim, not a cause */
    }
    return true;
}

/* Whether there was an incident, whatever the clock says: a death among the living, or the guard
 * ended the job. */
static bool ended_badly(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life == NG_LIFE_DEAD ||
            view->processes[i].life == NG_LIFE_ENDED_BY_GUARD)
            return true;
    return false;
}

static bool has_nan(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].nan.age_ns)
            return true;
    return false;
}

/* Nothing is stuck, or for no longer than calls may take. */
static bool is_ordinary(const struct ng_verdict *verdict)
{
    return verdict->kind == NG_KIND_HEALTHY ||
           (verdict->stalled_ns < UNUSUAL_NS &&
            (verdict->kind == NG_KIND_GPU_STALL || verdict->kind == NG_KIND_MISSING_RANK ||
             verdict->kind == NG_KIND_UNKNOWN));
}

int ng_hindsight_judge(struct ng_view *view, const struct ng_hindsight *hindsight,
                       struct ng_verdict *ret_verdict)
{
    struct ng_verdict_query query = {.stalled_ns = hindsight->stalled_ns};
    bool looked_before = look_before_the_end(view);
    bool incident = hindsight->incident || (!looked_before && ended_badly(view));
    int64_t oldest_ns = ng_present_oldest_wait(view, true);

    if (!query.stalled_ns)
        query.stalled_ns = STALLED_DEFAULT_NS;
    /*
     * As the library does: once something is stuck, half of the longest wait counts, for ranks do
     * not come at the same moment; but what came later may be the reason, if it is no
     * ordinary wait. And a death is noticed long before the work that it holds up is old.
     */
    if (oldest_ns >= query.stalled_ns || incident)
        query.stalled_ns = oldest_ns / 2 < UNUSUAL_NS ? oldest_ns / 2 + 1 : UNUSUAL_NS;
    if (hindsight->asked_ns > 0)
        query.stalled_ns = hindsight->asked_ns;
    int error = ng_verdict_reach(view, &query, ret_verdict);
    /* Nobody need have waited for it: what was under way then was nothing unusual. */
    if (error || !has_nan(view) || !is_ordinary(ret_verdict))
        return error;
    ng_verdict_fini(ret_verdict);
    query.nan = true;
    return ng_verdict_reach(view, &query, ret_verdict);
}
