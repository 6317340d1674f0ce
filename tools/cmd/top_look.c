/*
 * Looks at a job, for `ncclguard top`.
 *
 * Reads the board from outside, invisibly to the job. Must never wait for a store for longer than
 * it says.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/board/board_client.h"
#include "tools/cmd/top.h"
#include "tools/judge/live_verdict.h"

void ng_top_look_fini(struct ng_top_look *look)
{
    if (look->made) {
        ng_table_fini(&look->table);
        ng_verdict_fini(&look->verdict);
    }
    ng_view_fini(&look->view);
    look->made = false;
}

int ng_top_look_take(struct ng_job *job, int64_t asked_ns, struct ng_top_look *ret_look)
{
    struct ng_top_look *look = ret_look;

    look->made = false;
    ng_view_init(&look->view);
    job->why[0] = '\0';
    int count = ng_board_client_view(&job->observed, ng_clock_mono_ns() + NG_JOBS_WAIT_NS,
                                     &look->view, job->why, sizeof(job->why));
    look->time_unix_ns = ng_clock_unix_ns();
    if (count <= 0) {
        ng_view_fini(&look->view);
        return count == -ENOENT ? 0 : count;
    }
    if (!look->view.job[0])
        snprintf(look->view.job, sizeof(look->view.job), "%s", job->name);
    int64_t stuck_ns = asked_ns ? asked_ns : ng_jobs_stuck_ns(job);
    look->stuck_ns = ng_live_verdict_is_over(&look->view) ? 0 : stuck_ns;
    int error = ng_live_verdict_judge(&look->view, asked_ns, stuck_ns, &look->verdict);
    if (!error) {
        look->verdict.time_unix_ns = look->time_unix_ns;
        error = ng_table_make(&look->view, &look->verdict, &look->table);
        if (error)
            ng_verdict_fini(&look->verdict);
    }
    look->made = !error;
    if (error)
        ng_top_look_fini(look);
    return error ?: count;
}
