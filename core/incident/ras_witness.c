/*
 * Questions to NCCL's RAS.
 *
 * Entered by the incident thread; the question itself runs on a thread for I/O, which writes the
 * answer before it ends its bit, after which the incident thread alone reads it. Must never wait.
 */
#include "core/incident/ras_witness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define PLACE       "NCCL's RAS"
#define ASK_NS      (1500 * NG_MS) /* RAS is told to wait for its own peers for one second of it */
#define AGAIN_NS    (50 * NG_MS)
#define REPEATS_MAX 8
#define FRESH_NS    (3 * NG_S)  /* then RAS is asked again */
#define OLD_NS      (10 * NG_S) /* the answer is not used any more */
#define ASKING      1u

#define NCCL_WITH_RAS 22400

_Static_assert(ASK_NS < NG_RAS_WITNESS_NS, "the answer is in time for the verdict");
_Static_assert(2 * NG_RAS_WITNESS_NS < OLD_NS, "what is awaited is awaited once");

static NG_FORGOTTEN _Atomic uint32_t under_way;
static NG_FORGOTTEN struct {
    /* The question that is under way, or the last one. */
    int64_t asked_mono_ns; /* 0 none yet */
    int error;             /* of the last one that ended */
    struct ng_ras_answer answer;
    /* Of the incident thread: since when an answer is awaited (0 none has been), and for what. */
    int64_t awaited_mono_ns;
    bool for_deadline;
} own;

static bool is_idle(void)
{
    return !(atomic_load(&under_way) & ASKING);
}

/* Jobs of one user share the port of their host. A text does not list all ranks. */
static bool is_of_our_job(const struct ng_ras_answer *answer)
{
    int pid = getpid();

    NG_EACH (communicator, answer->communicators, answer->count) {
        if (communicator->partial)
            return true;
        NG_EACH (rank, communicator->ranks, communicator->rank_count)
            if (rank->pid == pid)
                return true;
    }
    return false;
}

static void ask(void *unused)
{
    int64_t until = own.asked_mono_ns + ASK_NS;
    int repeats = 0;

    (void)unused;
    do {
        ng_arena_reset(&own.answer.arena);
        own.answer = (struct ng_ras_answer){0};
        own.error = ng_guard.ask_ras(ng_guard.ras_address, until, &own.answer);
        if (!own.error && !is_of_our_job(&own.answer))
            own.error = -ENOENT;
        /* Another connection may reach our own job. */
    } while (own.error == -ENOENT && repeats++ < REPEATS_MAX &&
             ng_clock_mono_ns() < until - AGAIN_NS && usleep(AGAIN_NS / 1000) == 0);
    ng_log(NG_LOG_INFO, "asked NCCL's RAS at %s: %s", ng_guard.ras_address,
           own.error == -ENOENT ? "it is another job's"
           : own.error          ? strerror(-own.error)
                                : "it answered");
    ng_io_workers_end(&under_way, ASKING);
}

static void begin(void)
{
    own.asked_mono_ns = ng_clock_mono_ns();
    own.error = -EINPROGRESS;
    atomic_fetch_or(&under_way, ASKING);
    if (ng_io_workers_add(PLACE, ask, NULL) != 0) {
        own.error = -EAGAIN;
        atomic_fetch_and(&under_way, ~ASKING);
    }
}

/* The communicators of this process, with the hashes by which RAS names them. */
static struct ng_ras_known *list_known(struct ng_view *view, uint32_t *ret_count)
{
    uint32_t count = ng_comm_count(), kept = 0;
    struct ng_ras_known *known = ng_arena_alloc(&view->arena, (count + 1) * sizeof(*known));

    for (uint32_t i = 0; i < count && known; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        uint32_t state = NG_LOAD(comm->group->state);
        if (state == NG_GROUP_READY || state == NG_GROUP_FINALIZED)
            known[kept++] = (struct ng_ras_known){.group_id = NG_LOAD(comm->group->id),
                                                  .hash = atomic_load(&comm->nccl_hash)};
    }
    *ret_count = kept;
    return known;
}

void ng_ras_witness_add(struct ng_view *view)
{
    int64_t age_ns = ng_clock_mono_ns() - own.asked_mono_ns;
    struct ng_ras_known *known;
    uint32_t count;

    if (!own.asked_mono_ns || !is_idle() || age_ns > OLD_NS)
        return;
    if (own.error == 0) {
        known = list_known(view, &count);
        if (!known || ng_ras_match(&own.answer, known, count, age_ns, view) != 0)
            ng_log(NG_LOG_ERROR, "cannot use what NCCL's RAS says: %s", strerror(ENOMEM));
        else if (!view->ras_count)
            ng_log(NG_LOG_INFO,
                   "NCCL's RAS says nothing of ranks that are missing here: %u communicators, the "
                   "first with hash %016" PRIx64 " and %u ranks, ours with hash %016" PRIx64,
                   own.answer.count, own.answer.count ? own.answer.communicators[0].hash : 0,
                   own.answer.count ? own.answer.communicators[0].rank_count : 0,
                   count ? known[0].hash : 0);
    } else if (age_ns < FRESH_NS && own.error == -ETIMEDOUT) {
        ng_view_note(view, "NCCL's RAS did not answer in time");
    } else if (age_ns < FRESH_NS && (own.error == -EBADMSG || own.error == -EMSGSIZE)) {
        ng_view_note(view, "NCCL's RAS gave no answer that can be read");
    } else if (age_ns < FRESH_NS && own.error == -ENOENT) {
        ng_view_note(view, "NCCL's RAS answered for another job only");
    }
}

void ng_ras_witness_forget_old(void)
{
    if (!own.asked_mono_ns || !is_idle() || ng_clock_mono_ns() - own.asked_mono_ns <= OLD_NS)
        return;
    ng_arena_reset(&own.answer.arena);
    own.answer = (struct ng_ras_answer){0};
    own.asked_mono_ns = 0;
}

/* Of the processes of this host that wait in the call of the verdict, is this the one that asks? */
static bool is_asker(const struct ng_view *view, const struct ng_verdict *verdict)
{
    const struct ng_view_process *self = NULL, *first = NULL;

    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].self)
            self = &view->processes[i];
    for (uint32_t i = 0; i < view->member_count && self; i++) {
        const struct ng_view_member *member = &view->members[i];
        const struct ng_view_process *process = &view->processes[member->process];
        if (member->pending_record && view->groups[member->group].id == verdict->group_id &&
            process->life == NG_LIFE_RUNNING && strcmp(process->host, self->host) == 0 &&
            (!first || process->pid < first->pid))
            first = process;
    }
    return !first || first == self;
}

/* Could RAS complete this verdict? Where NCCL has no RAS, its port is another service's. */
static bool may_help(const struct ng_view *view, const struct ng_verdict *verdict)
{
    uint32_t group = ng_view_find_group(view, verdict->group_id);

    return verdict->kind == NG_KIND_UNKNOWN && verdict->lacks_ranks && ng_guard.ras_address[0] &&
           ng_guard.ask_ras && group != UINT32_MAX &&
           view->groups[group].nccl_version >= NCCL_WITH_RAS;
}

bool ng_ras_witness_is_awaited(const struct ng_view *view, const struct ng_verdict *verdict,
                               bool deadline)
{
    int64_t now = ng_clock_mono_ns();

    if (!may_help(view, verdict))
        return false;
    /* RAS itself notices a silent process after seconds only: what it could not say at the
     * suspicion it may say at the deadline. */
    if (!own.awaited_mono_ns || now - own.awaited_mono_ns > OLD_NS ||
        (deadline && !own.for_deadline)) {
        own.awaited_mono_ns = now;
        own.for_deadline = deadline;
    }
    int64_t age_ns = now - own.asked_mono_ns;
    bool fresh = own.asked_mono_ns && age_ns < FRESH_NS && age_ns < verdict->stalled_ns &&
                 (!own.error || own.asked_mono_ns >= own.awaited_mono_ns);
    if (is_idle() && fresh)
        return false;
    int64_t waited_ns = now - own.awaited_mono_ns;
    /* The one that asks may get its alarm later. It is waited for only so long. */
    bool first = is_asker(view, verdict);
    if (waited_ns > (first ? 1 : 2) * NG_RAS_WITNESS_NS)
        return false;
    if (is_idle() && (first || waited_ns > NG_RAS_WITNESS_NS))
        begin();
    return true;
}
