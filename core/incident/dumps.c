/*
 * Writes the evidence of this process at a deadline and on request.
 */
#include "core/incident/dumps.h"

#include <errno.h>

#include "core/evidence/dump_pipe.h"
#include "core/evidence/evidence.h"
#include "core/incident/job_snapshot.h"
#include "core/incident/ras_witness.h"
#include "core/report/dump.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define EVIDENCE_NS  (5 * NG_S) /* at least, for our own, if the wait for dumps is shorter */
#define REQUESTS_MAX 4          /* requested dumps that are under way */

static NG_FORGOTTEN struct ng_evidence *requested[REQUESTS_MAX];

/* How long this process waits for its own evidence; other processes wait no longer for it. */
int64_t ng_dumps_bound_ns(void)
{
    return ng_guard.config.dump_wait_ns > EVIDENCE_NS ? ng_guard.config.dump_wait_ns : EVIDENCE_NS;
}

/* Gather the evidence of this host; NULL there is none. */
static struct ng_evidence *gather_here(void)
{
    struct ng_evidence *evidence = NULL;
    struct ng_view view;
    uint32_t self;

    if (ng_snapshot_take(NG_SNAPSHOT_HOST, &view) == 0 && ng_snapshot_find_self(&view, &self)) {
        uint32_t notes = view.note_count;
        ng_ras_witness_add(&view);
        /* As missing evidence they would make a verdict on these files less certain. */
        view.note_count = notes;
        evidence = ng_evidence_create(&view, NULL, ng_guard_dump_dir());
        if (evidence)
            evidence->self = self;
    }
    ng_view_fini(&view);
    return evidence;
}

/*
 * Write the evidence of this process. If the verdict is reached on another host, the first live
 * process of this host also writes the evidence of its dead processes. False: the folder hangs, so
 * no other file will be written there.
 */
bool ng_dumps_write_here(const struct ng_incident *incident, bool claimant)
{
    struct ng_board *board = ng_guard.board;
    int64_t until = ng_clock_mono_ns() + ng_dumps_bound_ns();
    struct ng_evidence *evidence = gather_here();
    bool first_here = evidence && incident->source == NG_SOURCE_JOB &&
                      ng_snapshot_is_first_here(&evidence->view, evidence->self);

    ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
    ng_evidence_await(evidence, NG_EVIDENCE_OWN, until);
    bool done = ng_evidence_is_done(evidence, NG_EVIDENCE_BIT(NG_EVIDENCE_SELF));
    if (done && board)
        board->ops->dumped(board, incident);
    if (claimant || first_here)
        ng_evidence_begin(evidence, NG_EVIDENCE_NEIGHBOURS);
    /* Covers only this host. If hosts share a folder, the claimant's file replaces it. */
    if (!claimant && first_here)
        ng_evidence_begin(evidence, NG_EVIDENCE_TRACE);
    if (done)
        done = ng_evidence_await(evidence, NG_EVIDENCE_ALL & ~NG_EVIDENCE_OWN,
                                 ng_clock_mono_ns() + NG_DUMPS_WRITE_NS);
    ng_evidence_release(evidence);
    return done;
}

/* A slot for one more requested dump; NULL: too many are under way. */
static struct ng_evidence **place_for_request(void)
{
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        struct ng_evidence **place = &requested[i];
        if (!*place)
            return place;
        if (!ng_evidence_is_done(*place, NG_EVIDENCE_ALL))
            continue;
        ng_evidence_release(*place);
        *place = NULL;
        return place;
    }
    return NULL;
}

/* Dump this process into `folder`, best effort and without waiting. */
void ng_dumps_on_request(const char *folder, int rank)
{
    struct ng_evidence **place = place_for_request();
    struct ng_view view;
    uint32_t self;

    if (!place) {
        ng_log(NG_LOG_WARN, "not dumping to %s: earlier dumps are still blocked", folder);
        return;
    }
    bool asked = ng_snapshot_take(NG_SNAPSHOT_HOST, &view) == 0 &&
                 ng_snapshot_find_self(&view, &self) &&
                 (rank < 0 || ng_dump_rank(&view, self) == rank);
    view.on_request = true;
    struct ng_evidence *evidence = asked ? ng_evidence_create(&view, NULL, folder) : NULL;
    if (evidence) {
        evidence->self = self;
        ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
        *place = evidence;
    }
    ng_view_fini(&view);
}

void ng_dumps_read_pipe(void)
{
    if (!ng_dump_pipe_asked())
        return;
    ng_log(NG_LOG_INFO, "a dump was requested: evidence in %s", ng_guard_dump_dir());
    ng_dumps_on_request(ng_guard_dump_dir(), -1);
}

int ng_dumps_write(const char *folder)
{
    struct ng_evidence **place = place_for_request();
    struct ng_view view;
    uint32_t self;

    if (!place)
        return -EBUSY;
    int error = ng_snapshot_take(NG_SNAPSHOT_HOST, &view);
    view.on_request = true;
    if (!error && !ng_snapshot_find_self(&view, &self))
        error = -ENOENT;
    struct ng_evidence *evidence =
        error ? NULL : ng_evidence_create(&view, NULL, *folder ? folder : ng_guard_dump_dir());
    if (!error && !evidence)
        error = -ENOMEM;
    if (evidence) {
        evidence->self = self;
        ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
        if (!ng_evidence_await(evidence, NG_EVIDENCE_OWN, ng_clock_mono_ns() + NG_DUMPS_WRITE_NS))
            error = -ETIMEDOUT;
        *place = evidence;
    }
    ng_view_fini(&view);
    return error;
}
