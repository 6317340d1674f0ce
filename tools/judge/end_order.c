/*
 * The order in which the processes of a job ended.
 *
 * Linear in processes.
 */
#include "tools/judge/end_order.h"

#include <string.h>

#include "core/util/macros.h"
#include "core/view/told_to_end.h"

int64_t ng_end_order_last_sign_unix_ns(const struct ng_view *view)
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

int64_t ng_end_order_sign_age_ns(const struct ng_view_process *process, int64_t last_unix_ns)
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

/* Do all processes tell their moments by the monotonic clock, and not only by the wall clock, which
 * each took at a time of its own? */
static bool have_one_clock(const struct ng_view *view)
{
    return !NG_ANY(process, view->processes, view->process_count, process->moment_mono_ns <= 0);
}

static int64_t moment_of(const struct ng_view_process *process, bool mono)
{
    return mono ? process->moment_mono_ns : process->moment_unix_ns;
}

const struct ng_view_process *ng_end_order_find_first(const struct ng_view *view)
{
    const struct ng_view_process *first = NULL;
    bool mono = have_one_clock(view);

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
