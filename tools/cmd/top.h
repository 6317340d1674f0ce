/*
 * Looks at a job, as `ncclguard top` takes them; and browsing them on a terminal.
 */
#ifndef NCCLGUARD_TOOLS_CMD_TOP_H
#define NCCLGUARD_TOOLS_CMD_TOP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/clock.h"
#include "core/verdict/verdict.h"
#include "tools/jobs/jobs.h"
#include "tools/render/table.h"

/* A store that comes back empty has no data until every rank has published again. */
#define NG_TOP_EMPTY_NS (10 * NG_S)

/* One snapshot of the job. Its table points into it: do not copy it. */
struct ng_top_look {
    struct ng_view view;
    struct ng_verdict verdict;
    struct ng_table table;
    int64_t time_unix_ns;
    int64_t stuck_ns; /* threshold for stuck; 0: the job is over */
    bool made;
};

/* How many processes were seen, 0 included, or -errno with the reason in job->why. */
int ng_top_look_take(struct ng_job *job, int64_t asked_ns, struct ng_top_look *ret_look);
void ng_top_look_fini(struct ng_top_look *look);

/* Browse the job, or redraw it where the terminal has only the plain screen; `choose`: first the
 * jobs that there are. Returns an exit status; -ENOSYS: there are none to choose from, or no
 * browser to do it in. */
int ng_top_browse(struct ng_job *job, bool choose, int64_t asked_ns, int64_t interval_ns);

/* ng_jobs_choose with its words in ret_error instead of on standard error. */
int ng_top_choose(const char *name, const char *store, const char *run, struct ng_job *ret_job,
                  char *ret_error, size_t bytes);

#endif
