/*
 * Views of the job for the incident thread.
 */
#include "core/incident/job_snapshot.h"

#include <stdio.h>
#include <string.h>

#include "core/comm/deadline.h"
#include "core/nccl/board.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"

/* Take a view of the whole job or of this host. */
int ng_snapshot_take(enum ng_snapshot_range range, struct ng_view *ret_view)
{
    struct ng_board *board = ng_guard.board;
    int error = 0;

    ng_view_init(ret_view);
    if (board)
        error = range == NG_SNAPSHOT_JOB ? board->ops->view(board, ret_view)
                                         : board->ops->view_host(board, ret_view);
    /* Without a board, or if our box is no longer where the board looks, this process is added all
     * the same. */
    if (!error && !NG_ANY(process, ret_view->processes, ret_view->process_count, process->self)) {
        error = ng_view_add_box(ret_view, &ng_guard.box, NG_LIFE_RUNNING, ng_clock_mono_ns(),
                                "this process");
        if (!error)
            ret_view->processes[ret_view->process_count - 1].self = true;
        ng_view_seal(ret_view);
    }
    if (error)
        ng_log(NG_LOG_ERROR, "cannot gather the evidence: %s", strerror(-error));
    return error;
}

int ng_snapshot_at_job(struct ng_view *ret_view)
{
    return ng_snapshot_take(NG_SNAPSHOT_JOB, ret_view);
}

/* The global rank of this process as messages name it. */
int ng_snapshot_own_rank(const struct ng_view *view)
{
    NG_EACH (member, view->members, view->member_count)
        if (view->processes[member->process].self)
            return ng_view_rank(view, member);
    return ng_guard.launch.rank;
}

int ng_snapshot_judge(const struct ng_view *view, const struct ng_verdict_query *query,
                      const char *action, struct ng_verdict *ret_verdict)
{
    int error = ng_verdict_reach(view, query, ret_verdict);
    if (error) {
        ng_log(NG_LOG_ERROR, "cannot reach a verdict: %s", strerror(-error));
        return error;
    }
    /* No view contains the deadlines of calls that create or end communicators, which a rule may
     * have set for this group. */
    if (ng_op_is_init(ret_verdict->op))
        ret_verdict->deadline_ns = ng_deadline_of_group(ret_verdict->group_id, ret_verdict->op);
    ret_verdict->time_unix_ns = ng_clock_unix_ns();
    ret_verdict->detected_by = ng_snapshot_own_rank(view);
    ret_verdict->action = action;
    snprintf(ret_verdict->job, sizeof(ret_verdict->job), "%s", ng_guard.launch.job);
    return 0;
}

bool ng_snapshot_find_self(const struct ng_view *view, uint32_t *ret_process)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].self) {
            *ret_process = i;
            return true;
        }
    return false;
}

/* Is this process the first live one of this host (lowest pid)? That one writes what only one must
 * write. */
bool ng_snapshot_is_first_here(const struct ng_view *view, uint32_t self)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life == NG_LIFE_RUNNING &&
            view->processes[i].pid < view->processes[self].pid)
            return false;
    return view->processes[self].life == NG_LIFE_RUNNING;
}
