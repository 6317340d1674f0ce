/*
 * When this process writes its evidence.
 */
#include "core/incident/dumps.h"

#include <errno.h>
#include <string.h>

#include "core/evidence/dump_pipe.h"
#include "core/evidence/evidence.h"
#include "core/incident/incident_thread.h"
#include "core/incident/job_snapshot.h"
#include "core/report/dump.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"

#define EVIDENCE_NS  (5 * NG_S) /* for our own at least, if the wait for dumps is shorter */
#define REQUESTS_MAX 4          /* dumps that were asked for and are under way */

static struct ng_evidence *requested[REQUESTS_MAX];

/* How long our own evidence is waited for: others wait for it no longer, either. */
int64_t ng_dumps_bound_ns(void)
{
    return ng_guard.config.dump_wait_ns > EVIDENCE_NS ? ng_guard.config.dump_wait_ns : EVIDENCE_NS;
}

/* What is known of this host, to be written; NULL nothing is. */
static struct ng_evidence *gather_here(void)
{
    struct ng_evidence *evidence = NULL;
    struct ng_view view;
    uint32_t self;

    if (ng_snapshot_take(NG_SNAPSHOT_HOST, &view) == 0 && ng_snapshot_find_self(&view, &self)) {
        evidence = ng_evidence_create(&view, NULL, ng_guard_dump_dir());
        if (evidence)
            evidence->self = self;
    }
    ng_view_fini(&view);
    return evidence;
}

/*
 * Our own evidence; and where the verdict is reached on another host, the first of those who live
 * here writes that of its dead, too. False: the folder hangs, and no other file will come there.
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
    /* Of its own host only. Where hosts share a folder, the claimant's replaces it. */
    if (!claimant && first_here)
        ng_evidence_begin(evidence, NG_EVIDENCE_TRACE);
    if (done)
        done = ng_evidence_await(evidence, NG_EVIDENCE_ALL & ~NG_EVIDENCE_OWN,
                                 ng_clock_mono_ns() + NG_DUMPS_WRITE_NS);
    ng_evidence_release(evidence);
    return done;
}

/* A place for one more dump that somebody asked for; NULL: too many are under way. */
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

/* Dump ourselves into `folder`, as far as it can be had; nobody waits for it. */
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

void ng_dumps_after_fork(void)
{
    memset(requested, 0, sizeof(requested));
}
