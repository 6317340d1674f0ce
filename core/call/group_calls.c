/*
 * NCCL groups: all calls on one communicator and stream become one work when the group is closed.
 *
 * Entered by the program's threads. Must never block; allocates only when a group grows larger than
 * any before it on its thread.
 */
#include "core/call/group_calls.h"

#include "core/call/creation.h"
#include "core/call/host_call.h"
#include "core/call/nonblocking.h"
#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/comm/ring.h"
#include "core/config/timing.h"
#include "core/device/burst.h"
#include "core/device/capture.h"
#include "core/device/device_wait.h"
#include "core/device/gpu.h"
#include "core/device/in_progress.h"
#include "core/device/poison.h"
#include "core/device/work.h"
#include "core/incident/deaths.h"
#include "core/registration/registrations.h"
#include "core/util/clock.h"
#include "core/util/fast_clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/view/hash_log.h"

/* Keep a call for ng_capture_add_group, which needs all calls or none. */
static void keep_call(struct ng_group_calls *calls, struct ng_pending *pending,
                      const struct ng_call *call)
{
    struct ng_grouped_call *grouped = pending->calls_lost ? NULL : ng_thread_add_grouped(calls);

    if (!grouped) {
        pending->calls_lost = true;
        pending->last_call = 0;
        return;
    }
    *grouped = (struct ng_grouped_call){.call = *call, .before = pending->last_call};
    pending->last_call = calls->grouped_count;
}

void ng_group_calls_keep(const struct ng_call *call, bool p2p,
                         const struct ng_call_context *context)
{
    struct ng_group_calls *calls = context->group_calls;
    struct ng_pending *pending = NULL;

    for (uint32_t i = calls->pending_count; i > 0 && !pending; i--)
        if (calls->pending[i - 1].comm == context->comm &&
            calls->pending[i - 1].stream == call->stream)
            pending = &calls->pending[i - 1];
    if (!pending) {
        if (!calls->pending_count)
            calls->grouped_count = 0;
        pending = ng_thread_add_pending(calls);
        if (!pending) {
            /* If its record stayed ENTERED, it would look like a group that is never closed. */
            ng_async_op_give_up(NULL, 1);
            ng_ring_advance(context->record, context->record_id, NG_RECORD_UNWATCHED);
            if (!p2p)
                NG_STORE(context->comm->group->scheduled, context->seq);
            return;
        }
        ng_group_calls_begin(pending, context->comm, call->stream, context->entered_mono_ns);
    }
    if (context->record) {
        NG_STORE(context->record->work_previous, pending->last_record);
        pending->last_record = context->record_id;
    }
    if (p2p) {
        pending->p2p_count++;
    } else {
        if (!pending->first_seq) {
            pending->first_seq = context->seq;
            pending->hash_before = ng_ring_unroll(context->comm->group, call);
        }
        pending->last_seq = context->seq;
        pending->coll_count++;
    }
    if (ng_capture_is_on())
        keep_call(calls, pending, call);
}

void ng_group_calls_keep_host_call(struct ng_group_calls *calls, const struct ng_call *call,
                                   struct ng_comm *comm, const struct ng_thread *thread)
{
    struct ng_pending *pending;

    NG_STORE(comm->host_calls->op, call->op);
    NG_STORE(comm->host_calls->tid, thread->tid);
    NG_STORE(comm->host_calls->open, 1);
    for (uint32_t i = 0; i < calls->pending_count; i++)
        if (calls->pending[i].comm == comm)
            return;
    if (!calls->pending_count)
        calls->grouped_count = 0;
    if ((pending = ng_thread_add_pending(calls)))
        ng_group_calls_begin(pending, comm, NULL, ng_clock_mono_ns());
}

/* Is there work on its stream? There is none if only calls of class HOST were made. */
static bool has_work(const struct ng_pending *pending)
{
    return pending->coll_count + pending->p2p_count != 0;
}

/* The communicator's calls of class HOST are over. */
static void end_host_calls(const struct ng_group_calls *calls)
{
    for (uint32_t i = 0; i < calls->pending_count; i++)
        if (NG_LOAD(calls->pending[i].comm->host_calls->op))
            NG_STORE(calls->pending[i].comm->host_calls->op, 0);
}

/* Counts groups so that launches can be told apart later: NCCL launches the calls of one group
 * together. A communicator is called from one thread at a time. */
static void count_joined(const struct ng_pending *pending)
{
    struct ng_box_group *group = pending->comm->group;

    if (pending->coll_count + pending->p2p_count > 1)
        NG_STORE(group->groups_closed, NG_LOAD(group->groups_closed) + 1);
    if (pending->coll_count > 1)
        NG_STORE(group->coll_joined, NG_LOAD(group->coll_joined) + pending->coll_count - 1);
    if (pending->p2p_count > 1)
        NG_STORE(group->p2p_joined, NG_LOAD(group->p2p_joined) + pending->p2p_count - 1);
}

/*
 * Start the work of a closing group, and decide whether it is measured: a single call is treated
 * like one outside groups; several calls count as one group, so that large groups are not measured
 * more often.
 */
static struct ng_async_op *start_work(struct ng_pending *pending, bool in_burst)
{
    struct ng_comm *comm = pending->comm;
    bool single = pending->coll_count == 1 && pending->p2p_count == 0;
    _Atomic uint64_t *next = single                ? &comm->timing.next_coll
                             : pending->coll_count ? &comm->timing.next_joined
                                                   : &comm->timing.next_p2p;
    uint64_t number = single                ? pending->first_seq
                      : pending->coll_count ? NG_LOAD(comm->timing.joined_works) + 1
                                            : NG_LOAD(comm->timing.p2p_works) + 1;

    if (!ng_timing_may(next, number) || !ng_timing_take(&ng_guard.timing, next, number))
        return ng_gpu_start(comm, pending->stream, in_burst, &pending->capturing);
    return ng_gpu_start_timed(comm, pending->stream, &pending->capturing);
}

static void count_work(const struct ng_pending *pending)
{
    struct ng_comm *comm = pending->comm;

    if (!pending->coll_count)
        NG_STORE(comm->timing.p2p_works, NG_LOAD(comm->timing.p2p_works) + 1);
    else if (pending->coll_count + pending->p2p_count > 1)
        NG_STORE(comm->timing.joined_works, NG_LOAD(comm->timing.joined_works) + 1);
}

/* Describe a timed work from its records, as far back as they exist. */
static void describe_work(struct ng_async_op *work, const struct ng_pending *pending)
{
    struct ng_box_record *record = ng_ring_find(pending->last_record);

    work->calls = pending->coll_count + pending->p2p_count;
    work->op = work->calls > 1 || !record ? NG_OP_GroupEnd : (enum ng_op)NG_LOAD(record->op);
    work->bytes = 0;
    work->symmetric = record != NULL;
    for (uint32_t i = 0; record && i < work->calls; i++) {
        work->bytes += NG_LOAD(record->count) * ng_dtype_bytes(NG_LOAD(record->dtype));
        work->symmetric &= ng_op_is_symmetric(NG_LOAD(record->op));
        uint64_t previous = NG_LOAD(record->work_previous);
        record = ng_ring_find(previous);
        work->symmetric &= record || !previous;
    }
}

/*
 * None of these calls happened: the numbering must stay that of the other ranks, whether or not
 * there are records. Only records show the peers of sends and receives.
 */
static void undo_work(const struct ng_pending *pending, enum ng_record_state state, int result)
{
    struct ng_box_group *group = pending->comm->group;
    uint64_t id = pending->last_record;

    atomic_fetch_sub_explicit(&group->entered, pending->coll_count, memory_order_relaxed);
    atomic_fetch_sub_explicit(&group->p2p_entered, pending->p2p_count, memory_order_relaxed);
    /* Their sequence numbers will be used again. */
    NG_STORE(pending->comm->timing.next_coll, 0);
    NG_STORE(pending->comm->timing.next_joined, 0);
    NG_STORE(pending->comm->timing.next_p2p, 0);
    ng_async_op_forget_last(group);
    uint32_t p2p_left = pending->p2p_count;
    for (struct ng_box_record *record; id && (record = ng_ring_find(id));) {
        uint64_t previous = NG_LOAD(record->work_previous);
        enum ng_op op = (enum ng_op)NG_LOAD(record->op);
        if (ng_op_table[op].op_class == NG_CLASS_P2P) {
            ng_comm_uncount_peer(pending->comm, op, NG_LOAD(record->root));
            p2p_left--;
        }
        NG_STORE(record->result, result);
        NG_STORE(record->rolling_hash, 0);
        ng_ring_set_state(id, state);
        id = previous;
    }
    if (p2p_left)
        ng_comm_lose_peers(pending->comm);
}

/* An NCCL group was closed, and NCCL accepted its calls on one communicator and stream. */
static void close_work(const struct ng_group_calls *calls, struct ng_pending *pending, int result,
                       struct ng_thread *thread, int64_t left_mono_ns)
{
    struct ng_async_op *work = pending->work;

    if (pending->capturing) {
        /* Captured into a CUDA graph: nothing has run, so the calls are undone below, and each
         * replay counts separately (core/device/graph.h). */
        if (result == NG_NCCL_SUCCESS && pending->last_call)
            ng_capture_add_group(pending->comm, pending->stream, calls->grouped, pending->last_call,
                                 pending->begun);
        return;
    }
    count_joined(pending);
    count_work(pending);
    if (pending->last_seq && (result == NG_NCCL_SUCCESS || !work))
        NG_STORE(pending->comm->group->scheduled, pending->last_seq);
    if (result == NG_NCCL_IN_PROGRESS)
        atomic_store_explicit(&pending->comm->mode.nonblocking, true, memory_order_relaxed);
    /* NCCL launches it later from its own thread; an event recorded now would fire too early. */
    if (work && result == NG_NCCL_IN_PROGRESS) {
        if (work->timed)
            describe_work(work, pending);
        ng_async_op_fill(work, pending->last_record, pending->first_seq, pending->last_seq,
                         pending->p2p_count, pending->entered_mono_ns);
        ng_in_progress_keep(pending->comm, work, pending->stream);
        return;
    }
    if (!work || result != NG_NCCL_SUCCESS ||
        !ng_gpu_record(work->gpu, work->end, pending->stream)) {
        ng_async_op_give_up(work, pending->coll_count + pending->p2p_count);
        ng_ring_set_chain(pending->last_record, NG_RECORD_UNWATCHED);
        return;
    }
    if (work->timed)
        describe_work(work, pending);
    ng_async_op_fill(work, pending->last_record, pending->first_seq, pending->last_seq,
                     pending->p2p_count, pending->entered_mono_ns);
    ng_ring_set_chain(pending->last_record, NG_RECORD_SCHEDULED);
    ng_burst_keep(pending->comm, thread, pending->stream, left_mono_ns);
    if (__builtin_expect(ng_guard.tends_works, 0)) {
        if (ng_poison_is_on())
            ng_poison_note(pending->comm, work->gpu, pending->stream);
        if (ng_guard.config.blocking_wait)
            pending->waiter = ng_device_wait_begin(work->gpu, pending->stream);
    }
    ng_async_op_hand_over(pending->comm, work);
}

/* NCCL is about to close a group of which it has not seen all calls; after an error it launches
 * nothing. So make a call that every release refuses before it uses CUDA. */
static void spoil(const struct ng_nccl *nccl)
{
    if (nccl->all_reduce)
        nccl->all_reduce(NULL, NULL, 0, 0, 0, NULL, NULL);
}

/* A communicator of the group whose abort by the guard is under way or done; NULL none. */
static const struct ng_comm *find_aborted(const struct ng_group_calls *calls)
{
    NG_EACH (entry, calls->pending, calls->pending_count)
        if (atomic_load(&entry->comm->fate) >= NG_FATE_ABORTING)
            return entry->comm;
    for (uint32_t i = 0; i < calls->created_count; i++)
        if (atomic_load(&calls->created[i].comm->fate) >= NG_FATE_ABORTING)
            return calls->created[i].comm;
    return NULL;
}

/* Of several streams of one communicator, the one with the first collective has the rolling hash
 * from before the group. That is not always the first stream, which may have begun with a send. */
static void undo_hash(const struct ng_pending *pending)
{
    struct ng_box_group *group = pending->comm->group;

    if (pending->first_seq && pending->first_seq == NG_LOAD(group->entered) + 1)
        NG_STORE(group->rolling_hash, pending->hash_before);
}

/* Undo the calls that were captured into CUDA graphs. Newest first, as below. */
static void undo_captured(const struct ng_group_calls *calls)
{
    for (uint32_t i = calls->pending_count; i > 0; i--)
        if (calls->pending[i - 1].capturing)
            undo_work(&calls->pending[i - 1], NG_RECORD_CAPTURED, NG_NCCL_SUCCESS);
    for (uint32_t i = 0; i < calls->pending_count; i++)
        if (calls->pending[i].capturing)
            undo_hash(&calls->pending[i]);
}

static void undo_all(struct ng_group_calls *calls, int result)
{
    for (uint32_t i = calls->pending_count; i > 0; i--) {
        struct ng_pending *pending = &calls->pending[i - 1];
        if (pending->work)
            ng_gpu_give(pending->work);
        undo_work(pending, NG_RECORD_FAILED, result);
    }
    for (uint32_t i = 0; i < calls->pending_count; i++)
        undo_hash(&calls->pending[i]);
    calls->pending_count = 0;
}

/* Refuse to close the group: NCCL would read freed memory. */
static int refuse_end(struct ng_group_calls *calls, struct ng_thread *thread, int result)
{
    ng_thread_let_go_group(calls); /* what is undone below is no more known to it then */
    if (ng_guard.registers)
        ng_registrations_leave_group(calls);
    calls->broken = true;
    ng_log(NG_LOG_ERROR,
           "thread %u has kept a NCCL group open while a communicator in it was aborted: NCCL "
           "cannot be used from this thread any more",
           thread->tid);
    ng_thread_leave(thread);
    undo_all(calls, result);
    ng_creation_bind(calls, result);
    return result;
}

/* The last check before NCCL closes the group. */
static int let_close(struct ng_group_calls *calls, struct ng_thread *thread,
                     const struct ng_nccl *nccl)
{
    const struct ng_comm *aborted = find_aborted(calls);

    if (aborted)
        return refuse_end(calls, thread, aborted->abort.result);
    if (calls->error != NG_NCCL_SUCCESS)
        spoil(nccl);
    return NG_CALL_PROCEED;
}

int ng_group_calls_enter(const struct ng_call *call, struct ng_thread *thread)
{
    struct ng_group_calls *calls = ng_thread_open_group(thread, call->nccl);

    if (!calls)
        return NG_CALL_PROCEED;
    if (__builtin_expect(calls->broken, 0))
        return NG_NCCL_SYSTEM_ERROR;
    if (call->op == NG_OP_GroupStart || calls->depth != 1)
        return NG_CALL_PROCEED;
    if (call->op == NG_OP_GroupSimulateEnd)
        return let_close(calls, thread, call->nccl);
    int64_t now_mono_ns = ng_fast_clock_mono_ns(), gap_ns = NG_BURST_GAP_NS;
    for (uint32_t i = 0; i < calls->pending_count; i++)
        gap_ns += NG_BURST_CALL_NS * (calls->pending[i].coll_count + calls->pending[i].p2p_count);
    for (uint32_t i = 0; i < calls->pending_count && calls->error == NG_NCCL_SUCCESS; i++) {
        struct ng_pending *pending = &calls->pending[i];
        ng_host_call_closing(pending->comm);
        if (!has_work(pending))
            continue;
        pending->work = start_work(
            pending, ng_burst_goes_on(pending->comm, thread, pending->stream, now_mono_ns, gap_ns));
        if (pending->capturing && pending->first_seq)
            ng_hash_log_capture(pending->comm->hash_log, pending->first_seq);
        if (pending->capturing)
            pending->begun = ng_capture_begin(pending->comm, pending->stream);
    }
    ng_burst_end(thread);
    /* The thread's slot names the first communicator in the group; the whole group waits in this
     * call. */
    const struct ng_comm *comm = calls->pending_count   ? calls->pending[0].comm
                                 : calls->created_count ? calls->created[0].comm
                                                        : NULL;
    ng_thread_enter(thread, call->op, comm, 0,
                    calls->pending_count ? calls->pending[0].first_seq : 0, now_mono_ns);
    ng_thread_let_go_group(calls);
    if (__builtin_expect(ng_guard.registers, 0))
        ng_registrations_enter_group(calls);
    return let_close(calls, thread, call->nccl);
}

static void open_group(const struct ng_call *call, struct ng_thread *thread)
{
    struct ng_group_calls *calls = ng_thread_group_calls(thread, call->nccl);

    if (calls)
        ng_group_calls_open(calls, thread);
}

/* Wait for the works of the group that need it, one after the other; the first failure counts. */
static int await_works(struct ng_group_calls *calls, int result)
{
    uint32_t newest = ng_device_wait_newest();

    NG_EACH (pending, calls->pending, calls->pending_count) {
        int one =
            ng_device_wait_end(pending->comm, pending->waiter, pending->entered_mono_ns, newest);
        pending->waiter = NULL;
        if (result == NG_NCCL_SUCCESS)
            result = one;
    }
    return result;
}

/* *ret_told: a call of the group was refused, which has been reported. */
static int leave(const struct ng_call *call, struct ng_thread *thread, int result, bool *ret_told)
{
    if (call->op == NG_OP_GroupStart && result == NG_NCCL_SUCCESS) {
        open_group(call, thread);
        return result;
    }
    struct ng_group_calls *calls = ng_thread_open_group(thread, call->nccl);
    *ret_told = calls && calls->error != NG_NCCL_SUCCESS;
    if (call->op == NG_OP_GroupStart)
        return result;
    if (*ret_told && calls->depth == 1)
        result = calls->error;
    if (calls && calls->depth == 1 && result == NG_NCCL_IN_PROGRESS)
        result = ng_nonblocking_finish_group(calls, thread);
    if (calls && calls->depth == 1 && result == NG_NCCL_IN_PROGRESS)
        ng_in_progress_stay_here(thread);
    else
        ng_thread_leave(thread);
    if (!calls)
        return result;
    NG_STORE(thread->slot->group_depth, --thread->open_groups);
    if (--calls->depth)
        return result;
    bool taken =
        call->op == NG_OP_GroupEnd && (result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS);
    if (call->op != NG_OP_GroupEnd) /* which has done so before NCCL was called */
        ng_thread_let_go_group(calls);
    if (__builtin_expect(ng_guard.registers, 0))
        ng_registrations_leave_group(calls);
    int64_t left_mono_ns = ng_fast_clock_mono_ns();
    bool captured = false;
    for (uint32_t i = 0; taken && i < calls->pending_count; i++) {
        if (!has_work(&calls->pending[i]))
            continue;
        close_work(calls, &calls->pending[i], result, thread, left_mono_ns);
        captured |= calls->pending[i].capturing;
    }
    if (captured)
        undo_captured(calls);
    if (result != NG_NCCL_IN_PROGRESS)
        end_host_calls(calls);
    if (!taken) /* The group failed as a whole, or was only simulated. */
        undo_all(calls, result);
    ng_creation_bind(calls, result);
    if (__builtin_expect(ng_guard.tends_works && taken, 0))
        result = await_works(calls, result);
    calls->pending_count = 0;
    calls->joined_count = 0;
    calls->error = NG_NCCL_SUCCESS;
    return result;
}

/* The communicator that the thread's slot names for a call that closes a group; NULL none. */
static struct ng_comm *comm_of(const struct ng_call *call, const struct ng_thread *thread)
{
    uint32_t slot = NG_LOAD(thread->slot->group_slot);

    return call->op == NG_OP_GroupEnd && slot < ng_comm_count() ? ng_comm_at(slot) : NULL;
}

int ng_group_calls_leave(const struct ng_call *call, struct ng_thread *thread, int result)
{
    bool is_told = false;

    /* While the thread is still marked as inside: the call is what waits for the dead peer. */
    if (__builtin_expect(result == NG_NCCL_REMOTE_ERROR, 0))
        ng_deaths_await_report(comm_of(call, thread));
    result = leave(call, thread, result, &is_told);
    if (__builtin_expect(result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS && !is_told,
                         0)) {
        ng_device_wait_note_error(comm_of(call, thread));
        ng_failure_tell(call, comm_of(call, thread), 0, result);
    }
    return result;
}
