/*
 * The state of a job just before its end.
 *
 * A job that was killed from outside (a batch system's SIGKILL) has only dead ranks, and dead ranks
 * do not wait; nor do ranks that left after a long wait, as frameworks' watchdogs and programs with
 * a timeout of their own end theirs. Those of the last wave of ends count as alive.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_LAST_MOMENT_H
#define NCCLGUARD_TOOLS_JUDGE_LAST_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"
#include "tools/judge/postmortem.h"

/* How the view was changed to show the job just before its end. */
struct ng_last_moment {
    bool ended;                     /* every process had ended, so the view was changed */
    const struct ng_incident *told; /* a guard's verdict on what was still stuck then; NULL none */
    bool first_seen; /* it is known which process ended first, and in a way unlike any other */
    const struct ng_view_process *gave_up; /* that process, if its own work was stuck; NULL none */
    bool death_told;                       /* and that verdict was that ranks had died, */
    bool dead_named;                       /* one of which is a process of the view */
    bool difference_told;                  /* or that their calls differed */
};

/*
 * Changes a sealed view of a job whose processes have all ended, none by its guard. A rank that
 * ended earlier stays so, and so does one that a guard reported dead. `long_ns`: a rank that had
 * waited for so long gave up.
 */
struct ng_last_moment ng_last_moment_restore(struct ng_view *view,
                                             const struct ng_postmortem *postmortem,
                                             int64_t long_ns);

#endif
