/*
 * The verdict on a job at this moment.
 *
 * The library queries the same engine at its own times: see the watchdog and the incident thread.
 */
#include "tools/judge/live_verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/verdict/straggler.h"
#include "tools/judge/postmortem.h"

#define DEATH_STALL_NS (200 * NG_MS) /* as the incident thread has it */
#define UNUSUAL_NS     NG_S          /* as `ncclguard analyze` has it */

bool ng_live_verdict_is_over(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++) {
        enum ng_life life = view->processes[i].life;
        if (!ng_life_is_gone(life) && life != NG_LIFE_ENDED_BY_GUARD)
            return false;
    }
    return view->process_count > 0;
}

/* Longer than any duration measured in this job, and than harmless waits. */
static bool is_unusual(const struct ng_view *view, int64_t wait_ns)
{
    int64_t usual_ns = UNUSUAL_NS;

    for (uint32_t i = 0; i < view->duration_count; i++)
        if (view->durations[i].duration.max_ns > (uint64_t)usual_ns)
            usual_ns = ng_view_age((int64_t)view->durations[i].duration.max_ns);
    return wait_ns > usual_ns;
}

/* Does it report that waiting ranks are held up by one that is gone or frozen, or what one had
 * waited for that has ended since? Such a verdict needs no waiting time. A rank that leaves, or is
 * frozen, while others still tear down has done its part. */
static bool tells_of_end(const struct ng_verdict *verdict)
{
    if (verdict->op < NG_OP_LIMIT && ng_op_table[verdict->op].op_class == NG_CLASS_END)
        return false;
    return verdict->kind == NG_KIND_DEAD_RANK || verdict->kind == NG_KIND_LEFT_EARLY ||
           verdict->gave_up_ns ||
           (verdict->kind == NG_KIND_STOPPED_RANK && verdict->waiting_count > 0);
}

/*
 * The guard's verdict now: on work that is old enough to be suspect; or on a rank that is gone or
 * frozen and holds others up, without the usual wait.
 */
static int judge(const struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                 struct ng_verdict *ret_verdict)
{
    int64_t oldest_ns = ng_postmortem_oldest_wait(view, false);
    struct ng_verdict_query query = {.stalled_ns = suspect_ns};
    bool ended = false;

    for (uint32_t i = 0; i < view->process_count; i++)
        ended |=
            ng_life_is_gone(view->processes[i].life) || view->processes[i].life == NG_LIFE_STOPPED;
    if (asked_ns)
        query.stalled_ns = asked_ns;
    else if (oldest_ns >= suspect_ns)
        query.stalled_ns = suspect_ns / 2; /* others may have waited for a shorter time, and be the
                                            * cause */
    int error = ng_verdict_reach(view, &query, ret_verdict);
    if (error || asked_ns || ret_verdict->kind != NG_KIND_HEALTHY)
        return error;
    if (is_unusual(view, oldest_ns))
        ret_verdict->confidence = NG_CONFIDENCE_LIKELY;
    if (!ended)
        return 0;
    struct ng_verdict verdict;
    query.stalled_ns = DEATH_STALL_NS;
    error = ng_verdict_reach(view, &query, &verdict);
    if (error) {
        ng_verdict_fini(ret_verdict);
        return error;
    }
    bool tells = tells_of_end(&verdict);
    ng_verdict_fini(tells ? ret_verdict : &verdict);
    if (tells)
        *ret_verdict = verdict;
    return 0;
}

/* No rank waits any more, but some did: judge as `ncclguard analyze` does with the same black
 * boxes. Lives assumed for the verdict are used only there; the display shows how the processes
 * ended. */
static int judge_after_the_end(struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                               struct ng_verdict *ret_verdict)
{
    struct ng_postmortem postmortem = {.asked_ns = asked_ns, .stalled_ns = suspect_ns};
    enum ng_life *lives = malloc(view->process_count * sizeof(*lives));

    if (!lives)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++)
        lives[i] = view->processes[i].life;
    int error = ng_postmortem_judge(view, &postmortem, ret_verdict);
    for (uint32_t i = 0; i < view->process_count; i++)
        view->processes[i].life = lives[i];
    free(lives);
    return error;
}

int ng_live_verdict_judge(struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                          struct ng_verdict *ret_verdict)
{
    int error = ng_live_verdict_is_over(view)
                    ? judge_after_the_end(view, asked_ns, suspect_ns, ret_verdict)
                    : judge(view, asked_ns, suspect_ns, ret_verdict);

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

/* "5 s", "1.5 s", "300 ms", "1234 ms" */
static void put_bound(int64_t ns, char *ret_text, size_t bytes)
{
    int64_t ms = ns / NG_MS;

    if (ms >= 1000 && ms % 1000 == 0)
        snprintf(ret_text, bytes, "%" PRId64 " s", ms / 1000);
    else if (ms >= 1000 && ms % 100 == 0)
        snprintf(ret_text, bytes, "%" PRId64 ".%" PRId64 " s", ms / 1000, ms % 1000 / 100);
    else
        snprintf(ret_text, bytes, "%" PRId64 " ms", ms);
}

void ng_live_verdict_line(const struct ng_verdict *verdict, int64_t stuck_ns, char *ret_line,
                          size_t bytes)
{
    const char *text = ng_verdict_kind_text(NG_KIND_HEALTHY);
    char line[NG_REPORT_LINE_BYTES], bound[32];

    ng_report_line(verdict, line, sizeof(line));
    const char *found = verdict->kind == NG_KIND_HEALTHY && stuck_ns ? strstr(line, text) : NULL;
    if (!found) {
        snprintf(ret_line, bytes, "%s", line);
        return;
    }
    int head = (int)(found - line) + (int)strlen(text);
    put_bound(stuck_ns, bound, sizeof(bound));
    snprintf(ret_line, bytes, "%.*s longer than %s%s", head, line, bound, line + head);
}

bool ng_live_verdict_verdict_stays(const json_t *verdict, bool over)
{
    const char *action = json_string_value(json_object_get(verdict, "action"));
    const char *kind = json_string_value(json_object_get(verdict, "kind"));
    const json_t *detected_by = json_object_get(verdict, "detected_by");

    if (action && strcmp(action, "none") != 0)
        return true;
    /* -1: `ncclguard dump` wrote it. */
    return over && kind && !(json_is_integer(detected_by) && json_integer_value(detected_by) < 0) &&
           (strcmp(kind, "dead_rank") == 0 || strcmp(kind, "left_early") == 0 ||
            strcmp(kind, "mismatch") == 0);
}
