/*
 * Jobs as metrics, for `ncclguard exporter`: names and labels are those of the file that each
 * process writes (core/incident/metrics.h) where both have the same, plus the label `run`.
 *
 * Pure: no clock, no store. docs/metrics.md lists all of it.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_JOB_METRICS_H
#define NCCLGUARD_TOOLS_RENDER_JOB_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* What became of a file that has the name of a black box. */
enum ng_box_result {
    NG_BOX_RESULT_READ,
    NG_BOX_RESULT_FOREIGN,   /* not a black box */
    NG_BOX_RESULT_VERSION,   /* of another version of the layout */
    NG_BOX_RESULT_TRUNCATED, /* damaged, or cut off */
    NG_BOX_RESULT_STALE,     /* from before the last boot */
    NG_BOX_RESULT_UNREADABLE,
    NG_BOX_RESULTS,
};

/* What the header of a black box has beyond a view. */
struct ng_box_facts {
    uint64_t uid; /* as in struct ng_view_process */
    char version[17];
    uint64_t records_lost, groups_lost, threads_lost, durations_lost;
};

/* One run of a job: from the boxes of this host, or all that a store has of a job. */
struct ng_job_metrics {
    struct ng_job_metrics *next;
    char job[128];
    char run[32]; /* 16 hex digits, of another user's job with "-" and the user's number; "" of a
                     store */
    struct ng_view view;
    struct ng_verdict verdict; /* at this moment */
    struct ng_incident last;   /* the newest verdict of a guard; level 0: none */
    int64_t last_age_ns;       /* since that guard claimed it; with has_incidents */
    bool has_incidents;
    uint64_t incidents[NG_INCIDENT_LIMIT]; /* by level, if known */
};

struct ng_scrape {
    struct ng_job_metrics *jobs;
    struct ng_box_facts *facts; /* sorted by uid */
    uint32_t facts_count;
    uint64_t boxes[NG_BOX_RESULTS];
    uint64_t runs_left_out;
    const char *store_job; /* NULL: no store was read */
    bool store_up;
    int64_t took_ns;
};

/* Write all of it to `fd`. 0, -ENOMEM or -errno of writing. */
int ng_job_metrics_write(const struct ng_scrape *scrape, int fd);

#endif
