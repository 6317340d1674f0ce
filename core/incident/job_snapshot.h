/*
 * Views of the job for the incident thread, and verdicts on them.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_JOB_SNAPSHOT_H
#define NCCLGUARD_CORE_INCIDENT_JOB_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

enum ng_snapshot_range { NG_SNAPSHOT_HOST, NG_SNAPSHOT_JOB };

/* Take a view of the whole job or of this host; it contains at least this process. 0 or -errno,
 * which is logged; release it with ng_view_fini in either case. */
int ng_snapshot_take(enum ng_snapshot_range range, struct ng_view *ret_view);
int ng_snapshot_at_job(struct ng_view *ret_view);

/* The global rank of this process as messages name it. */
int ng_snapshot_own_rank(const struct ng_view *view);

/* Judge a view; the verdict is signed by this process. 0, then release it with ng_verdict_fini; or
 * -errno, which is logged. */
int ng_snapshot_judge(const struct ng_view *view, const struct ng_verdict_query *query,
                      const char *action, struct ng_verdict *ret_verdict);

/* Find the index of this process in the view. */
bool ng_snapshot_find_self(const struct ng_view *view, uint32_t *ret_process);

/* Is this process the first live one of this host (lowest pid)? That one writes what only one must
 * write. */
bool ng_snapshot_is_first_here(const struct ng_view *view, uint32_t self);

#endif
