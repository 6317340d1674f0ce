/*
 * Reports a stuck abort.
 *
 * Incident thread. Does not use the board: no other rank knows more, or can do anything about it.
 */
#include "core/policy/escalate.h"

#include <stdio.h>
#include <string.h>

#include "core/evidence/evidence.h"
#include "core/policy/abort.h"
#include "core/recorder/fault_log.h"
#include "core/report/report.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/verdict/verdict.h"

/* Time for the disk; then the process must end. */
#define WRITE_NS (2 * NG_S)

static void fill_culprit(const struct ng_abort_stuck *stuck, struct ng_culprit *ret_culprit)
{
    const struct ng_box_header *header = ng_guard.box.header;
    struct ng_culprit *culprit = ret_culprit;

    culprit->rank = header->rank >= 0 ? header->rank : stuck->group_rank;
    culprit->group_rank = stuck->group_rank;
    culprit->pid = header->pid;
    culprit->life = NG_LIFE_RUNNING;
    snprintf(culprit->host, sizeof(culprit->host), "%s", header->host);
    snprintf(culprit->why, sizeof(culprit->why), "%s; it was aborted for %.*s", stuck->why,
             (int)(sizeof(culprit->why) - strlen(stuck->why) - sizeof("; it was aborted for ")),
             stuck->reason);
}

/* List the faults injected into this rank; those of other ranks are in the quoted verdict. */
static void list_rehearsal(struct ng_verdict *verdict)
{
    const struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();
    struct ng_logged_fault fault;

    if (!box->fault_capacity)
        return;
    verdict->rehearsal =
        ng_arena_alloc(&verdict->arena, box->fault_capacity * sizeof(*verdict->rehearsal));
    for (uint32_t i = 0; verdict->rehearsal && i < box->fault_capacity; i++)
        if (ng_fault_log_read(box, i, &fault))
            verdict->rehearsal[verdict->rehearsal_count++] =
                (struct ng_verdict_rehearsal){.rank = fault.rank,
                                              .fault = box->faults[i].text,
                                              .times = fault.times,
                                              .op = fault.op,
                                              .group_id = fault.group_id,
                                              .seq = fault.seq,
                                              .age_ns = now - fault.last_mono_ns};
}

bool ng_escalate_stuck_abort(void)
{
    struct ng_arena arena = {0};
    struct ng_abort_stuck stuck;
    char line[NG_REPORT_LINE_BYTES];

    if (!ng_abort_stuck(&stuck))
        return false;
    struct ng_culprit *culprit = ng_arena_alloc(&arena, sizeof(*culprit));
    if (culprit)
        fill_culprit(&stuck, culprit);
    struct ng_verdict verdict = {.arena = arena,
                                 .kind = NG_KIND_ABORT_STUCK,
                                 .confidence = NG_CONFIDENCE_CERTAIN,
                                 .group_id = stuck.group_id,
                                 .group_nranks = stuck.nranks,
                                 .op = stuck.op,
                                 .stalled_ns = stuck.since_ns,
                                 .culprits = culprit,
                                 .culprit_count = culprit != NULL,
                                 .time_unix_ns = ng_clock_unix_ns(),
                                 .detected_by = culprit ? culprit->rank : ng_guard.box.header->rank,
                                 .action = "kill"};
    snprintf(verdict.job, sizeof(verdict.job), "%s", ng_guard.launch.job);
    snprintf(verdict.group_name, sizeof(verdict.group_name), "%s", stuck.group_name);
    list_rehearsal(&verdict);
    ng_report_line(&verdict, line, sizeof(line));
    ng_evidence_write_verdict(&verdict, false, ng_clock_mono_ns() + WRITE_NS);
    ng_verdict_fini(&verdict);
    ng_log(NG_LOG_ERROR, "%s; evidence in %s; ending the process", line, ng_guard_dump_dir());
    return true;
}
