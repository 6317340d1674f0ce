/*
 * The path of a call through core: communicator, record, events.
 *
 * Work before and after the real function: collectives, sends and receives here, the rest in
 * group_calls.c and creation.c. Entered by the program's threads. Must never block, except if NCCL
 * has failed a call because a peer is gone (ng_deaths_await_report), nor change errno or NCCL's
 * result; a call that cannot be recorded passes unrecorded, and is counted.
 */
#include "core/nccl/call.h"

#include <errno.h>

#include "core/call/creation.h"
#include "core/call/group_calls.h"
#include "core/call/host_call.h"
#include "core/call/init_retry.h"
#include "core/call/nonblocking.h"
#include "core/call/work_call.h"
#include "core/check/call_check.h"
#include "core/check/check.h"
#include "core/check/lockstep_check.h"
#include "core/comm/comm.h"
#include "core/comm/ended.h"
#include "core/comm/failure.h"
#include "core/comm/gate.h"
#include "core/comm/in_flight_calls.h"
#include "core/comm/ring.h"
#include "core/comm/thread.h"
#include "core/config/timing.h"
#include "core/device/async.h"
#include "core/device/burst.h"
#include "core/device/capture.h"
#include "core/device/device_wait.h"
#include "core/device/gpu.h"
#include "core/device/in_progress.h"
#include "core/device/poison.h"
#include "core/device/work.h"
#include "core/incident/deaths.h"
#include "core/policy/abort.h"
#include "core/registration/registrations.h"
#include "core/runtime/runtime.h"
#include "core/util/fast_clock.h"
#include "core/view/hash_log.h"

void ng_work_keep_last(const struct ng_call *call, struct ng_box_group *group)
{
    NG_STORE(group->last_call, ng_box_pack_call(call->op, call->dtype, call->root));
    NG_STORE(group->last_redop, call->redop);
    NG_STORE(group->last_count, call->count);
}

/* The call that the thread's slot shows: a send or receive has no sequence number there. */
static inline void fill_work(struct ng_async_op *work, const struct ng_box_thread *slot)
{
    uint64_t seq = NG_LOAD(slot->seq);

    ng_async_op_fill(work, NG_LOAD(slot->record_id), seq, seq, !seq, NG_LOAD(slot->since_mono_ns));
}

/* The call is being captured into a CUDA graph. */
static __attribute__((noinline)) uintptr_t begin_capture(struct ng_comm *comm, void *stream,
                                                         const struct ng_box_thread *slot)
{
    uint64_t seq = NG_LOAD(slot->seq);

    if (seq)
        ng_hash_log_capture(comm->hash_log, seq);
    struct ng_captured *begun = ng_capture_begin(comm, stream);
    return begun ? (uintptr_t)begun : NG_CALL_CAPTURED;
}

struct ng_work_events ng_work_start(struct ng_comm *comm, void *stream,
                                    const struct ng_box_thread *slot)
{
    struct ng_work_events events = {.capture = 0};
    struct ng_thread *thread = ng_this_thread;
    int saved = errno;
    bool capturing;

    bool in_burst =
        ng_burst_goes_on(comm, thread, stream, NG_LOAD(slot->since_mono_ns), NG_BURST_GAP_NS);
    ng_burst_end(thread);
    events.work = ng_gpu_start(comm, stream, in_burst, &capturing);
    if (__builtin_expect(events.work != NULL, 1))
        fill_work(events.work, slot);
    else if (capturing)
        events.capture = begin_capture(comm, stream, slot);
    errno = saved;
    return events;
}

struct ng_work_events ng_work_start_measured(const struct ng_call *call, struct ng_comm *comm,
                                             const struct ng_box_thread *slot)
{
    uint64_t seq = NG_LOAD(slot->seq), number = seq ? seq : NG_LOAD(comm->timing.p2p_works);
    struct ng_work_events events = {.capture = 0};
    int saved = errno;
    bool capturing;

    if (!ng_timing_take(&ng_guard.timing, seq ? &comm->timing.next_coll : &comm->timing.next_p2p,
                        number))
        return ng_work_start(comm, call->stream, slot);
    ng_burst_end(ng_this_thread);
    struct ng_async_op *work = ng_gpu_start_timed(comm, call->stream, &capturing);
    events.work = work;
    if (work) {
        work->op = call->op;
        work->calls = 1;
        work->bytes = call->count * ng_dtype_bytes(call->dtype);
        work->symmetric = ng_op_is_symmetric(call->op);
        fill_work(work, slot);
    } else if (capturing) {
        events.capture = begin_capture(comm, call->stream, slot);
    }
    errno = saved;
    return events;
}

/* The call did not happen; the group's numbering must stay that of the other ranks. */
static void uncount_work(const struct ng_call *call, const struct ng_call_context *context)
{
    struct ng_box_group *group = context->comm->group;

    if (ng_op_table[call->op].op_class == NG_CLASS_P2P) {
        atomic_fetch_sub_explicit(&group->p2p_entered, 1, memory_order_relaxed);
        ng_comm_uncount_peer(context->comm, call->op, call->root);
    } else {
        atomic_fetch_sub_explicit(&group->entered, 1, memory_order_relaxed);
        NG_STORE(context->comm->timing.next_coll, 0); /* its sequence number will be used again */
        NG_STORE(group->rolling_hash, ng_ring_unroll(group, call));
        ng_async_op_forget_last(group);
    }
}

/* NCCL refused the call. */
static void fail_work(const struct ng_call *call, const struct ng_call_context *context, int result)
{

    atomic_store(&context->comm->wait.failed, false); /* NCCL's own error text is newer */
    /* Other threads may have overwritten it while this one was inside. */
    struct ng_box_record *record = ng_ring_find(context->record_id);
    if (record) {
        NG_STORE(record->result, result);
        NG_STORE(record->rolling_hash, 0);
        ng_ring_advance(record, context->record_id, NG_RECORD_FAILED);
    }
    if (context->work)
        ng_gpu_give(context->work);
    uncount_work(call, context);
    if (ng_check_strict() && ng_op_table[call->op].op_class == NG_CLASS_COLLECTIVE)
        ng_lockstep_take_back(context->comm, context->seq);
}

/* The call was captured into a CUDA graph: it has not run, and each replay counts separately
 * (core/device/graph.h). */
static void uncount_captured(const struct ng_call *call, const struct ng_call_context *context)
{
    struct ng_box_group *group = context->comm->group;

    uncount_work(call, context);
    NG_STORE(group->scheduled, NG_LOAD(group->entered));
    if (context->record)
        NG_STORE(context->record->rolling_hash, 0);
    ng_ring_advance(context->record, context->record_id, NG_RECORD_CAPTURED);
}

/* Keep a captured call, with an event that shows when a replay gets to it. */
static __attribute__((noinline)) void keep_captured(const struct ng_call *call,
                                                    struct ng_call_context *context)
{
    struct ng_captured *begun =
        context->capture == NG_CALL_CAPTURED ? NULL : (struct ng_captured *)context->capture;

    ng_capture_add(context->comm, call->stream, call, begun);
    uncount_captured(call, context);
}

/* Answer the call with `result` without calling NCCL. */
static int turn_down(const struct ng_call *call, struct ng_call_context *context, int result)
{
    ng_thread_leave(context->thread);
    fail_work(call, context, result);
    if (context->group_calls)
        ng_thread_refuse(call->nccl, result);
    return result;
}

int ng_work_await(const struct ng_call *call, struct ng_call_context *context)
{
    int saved = errno, answer = NG_CALL_PROCEED;

    if (ng_in_flight_await(context->comm)) {
        if (ng_guard.registers)
            ng_registrations_leave(context->comm, true);
        answer = turn_down(call, context, ng_abort_answer(context->comm, call));
    }
    errno = saved;
    return answer;
}

/* While the call waited to release registrations, another thread of the program aborted the
 * communicator: return what NCCL returns to a thread that is inside. */
static int refuse_aborted(const struct ng_call *call, struct ng_call_context *context)
{
    ng_registrations_leave(context->comm, true);
    return turn_down(call, context, NG_NCCL_INTERNAL_ERROR);
}

static int check_work(const struct ng_call *call, struct ng_call_context *context)
{
    char reason[NG_COMM_REASON_BYTES];

    int result = ng_call_check(call, context, reason, sizeof(reason));
    if (result == NG_CALL_PROCEED)
        return result;
    turn_down(call, context, result);
    ng_call_check_keep_reason(context->comm, reason);
    return result;
}

int ng_work_prepare(const struct ng_call *call, bool p2p, struct ng_call_context *context)
{
    int answer = ng_guard.checks_calls ? check_work(call, context) : NG_CALL_PROCEED;

    if (answer == NG_CALL_PROCEED && ng_guard.registers &&
        !ng_registrations_enter(context->comm, call, p2p))
        return refuse_aborted(call, context);
    return answer;
}

/* Hand over a work that is tracked, or that the call itself waits for. Returns the result for the
 * program. */
static __attribute__((noinline)) int enqueue_work(struct ng_comm *comm, struct ng_async_op *work,
                                                  void *stream)
{
    int64_t entered_mono_ns = work->entered_mono_ns;
    struct ng_async_op *waiter = NULL;

    if (ng_poison_is_on())
        ng_poison_note(comm, work->gpu, stream);
    if (ng_guard.config.blocking_wait)
        waiter = ng_device_wait_begin(work->gpu, stream);
    ng_async_op_hand_over(comm, work);
    return ng_device_wait_end(comm, waiter, entered_mono_ns, ng_device_wait_newest());
}

void ng_work_leave_unobserved(const struct ng_call *call, struct ng_call_context *context)
{
    int saved = errno;

    if (context->capture) {
        keep_captured(call, context);
    } else {
        ng_async_op_give_up(NULL, 1);
        ng_ring_advance(context->record, context->record_id, NG_RECORD_UNWATCHED);
    }
    errno = saved;
}

int ng_work_hand(struct ng_comm *comm, struct ng_async_op *work, void *stream,
                 struct ng_box_record *record)
{
    int saved = errno, result = NG_NCCL_SUCCESS;

    if (__builtin_expect(!ng_gpu_record(work->gpu, work->end, stream), 0)) {
        ng_ring_advance(record, work->last_record, NG_RECORD_UNWATCHED);
        ng_async_op_give_up(work, 1);
    } else {
        ng_ring_advance(record, work->last_record, NG_RECORD_SCHEDULED);
        if (__builtin_expect(ng_guard.tends_works, 0))
            result = enqueue_work(comm, work, stream);
        else {
            ng_async_op_hand_over(comm, work);
            ng_burst_keep(comm, ng_this_thread, stream, ng_fast_clock_mono_ns());
        }
    }
    errno = saved;
    return result;
}

/* NCCL will launch it later; the program must query NCCL to learn when. */
static void keep_unfinished(const struct ng_call *call, bool p2p, struct ng_call_context *context)
{
    struct ng_comm *comm = context->comm;
    struct ng_async_op *work = context->work;

    atomic_store_explicit(&comm->mode.nonblocking, true, memory_order_relaxed);
    if (context->capture) {
        uncount_captured(call, context);
    } else if (!work) {
        if (!p2p)
            NG_STORE(comm->group->scheduled, context->seq);
        ng_async_op_give_up(work, 1);
        ng_ring_advance(context->record, context->record_id, NG_RECORD_UNWATCHED);
    } else {
        ng_in_progress_keep(comm, work, call->stream);
    }
    ng_in_progress_stay(comm, context->thread);
}

/* Finish a call that has not returned success. */
static int leave_unsuccessful(const struct ng_call *call, bool p2p, struct ng_call_context *context,
                              int result)
{
    struct ng_comm *comm = context->comm;

    result = ng_nonblocking_finish(comm, context->group_calls, context->thread, result);
    if (result == NG_NCCL_SUCCESS)
        return ng_work_leave(call, p2p, false, context->thread, context, result);
    if (context->group_calls && result == NG_NCCL_IN_PROGRESS) {
        ng_group_calls_keep(call, p2p, context);
        ng_thread_leave(context->thread);
        return result;
    }
    if (result == NG_NCCL_IN_PROGRESS) {
        keep_unfinished(call, p2p, context);
        return result;
    }
    if (result == NG_NCCL_REMOTE_ERROR)
        ng_deaths_await_report(comm);
    ng_thread_leave(context->thread);
    fail_work(call, context, result);
    ng_device_wait_note_error(comm);
    ng_failure_tell(call, comm, p2p ? 0 : context->seq, result);
    return result;
}

int ng_work_leave_unsuccessful(const struct ng_call *call, bool p2p,
                               struct ng_call_context *context, int result)
{
    int saved = errno;

    result = leave_unsuccessful(call, p2p, context, result);
    errno = saved;
    return result;
}

/* A communicator that is not known: made without our wrappers, or ended. NULL: *ret_answer is the
 * result for the program, or the call is forwarded untouched. */
static __attribute__((noinline)) struct ng_comm *find_unknown(const struct ng_call *call,
                                                              int *ret_answer)
{
    *ret_answer = ng_ended_answer(call->comm, call->op);
    if (*ret_answer == NG_CALL_PROCEED)
        return ng_creation_adopt(call);
    ng_thread_refuse(call->nccl, *ret_answer);
    return NULL;
}

static inline __attribute__((always_inline)) int enter_work(const struct ng_call *call, bool p2p,
                                                            struct ng_call_context *ret_context)
{
    int answer;

    ret_context->thread = NULL;
    if (__builtin_expect(!atomic_load_explicit(&ng_guard.running, memory_order_acquire), 0) &&
        !ng_guard_start())
        return NG_CALL_PROCEED;
    struct ng_thread *thread = ng_thread_get();
    if (__builtin_expect(!thread, 0))
        return NG_CALL_PROCEED;
    struct ng_comm *comm = ng_comm_find(call->comm);
    if (__builtin_expect(!comm, 0) && !(comm = find_unknown(call, &answer)))
        return answer;
    struct ng_group_calls *group_calls = ng_thread_open_group(thread, call->nccl);
    if (__builtin_expect(group_calls && group_calls->broken, 0))
        return NG_NCCL_SYSTEM_ERROR;
    answer = ng_work_enter(call, p2p, false, thread, comm, group_calls, ret_context);
    ret_context->thread = thread;
    return answer;
}

static inline int leave_work(const struct ng_call *call, bool p2p, struct ng_call_context *context,
                             int result)
{
    if (__builtin_expect(!context->thread, 0))
        return result;
    if (__builtin_expect(ng_guard.registers, 0))
        ng_registrations_leave(context->comm, context->work || context->group_calls);
    return ng_work_leave(call, p2p, false, context->thread, context, result);
}

int ng_collective_enter(const struct ng_call *call, struct ng_call_context *ret_context)
{
    return enter_work(call, false, ret_context);
}

int ng_collective_leave(const struct ng_call *call, struct ng_call_context *context, int result)
{
    return leave_work(call, false, context, result);
}

int ng_p2p_enter(const struct ng_call *call, struct ng_call_context *ret_context)
{
    return enter_work(call, true, ret_context);
}

int ng_p2p_leave(const struct ng_call *call, struct ng_call_context *context, int result)
{
    return leave_work(call, true, context, result);
}

/* Enter a creating call; if it is converted, carry it out completely. */
static int enter_creation(const struct ng_call *call, struct ng_thread *thread,
                          struct ng_call_context *context)
{
    bool converts = ng_nonblocking_takes(call);

    if (__builtin_expect(ng_init_retry_takes(call, thread), 0))
        return ng_init_retry_make(call, thread, context, converts, ng_call_leave);
    int result = ng_creation_enter(call, thread, context);

    if (result != NG_CALL_PROCEED || !converts)
        return result;
    return ng_call_leave(call, context, ng_nonblocking_make(call, context));
}

static int visit(const struct ng_call *call, struct ng_call_context *context)
{
    struct ng_comm *comm = call->op == NG_OP_CommGetAsyncError ? ng_comm_find(call->comm) : NULL;

    if (comm && atomic_load(&comm->mode.converted) && !ng_comm_is_condemned(comm))
        return ng_nonblocking_answer(comm, call);
    return ng_abort_visit(call, &context->comm);
}

static __attribute__((noinline)) int enter_call(const struct ng_call *call,
                                                struct ng_call_context *ret_context)
{
    enum ng_op_class op_class = ng_op_table[call->op].op_class;
    bool running = atomic_load_explicit(&ng_guard.running, memory_order_acquire);
    if (op_class == NG_CLASS_CREATE || (!running && op_class == NG_CLASS_GROUP))
        ng_guard_expect_communicator();
    if (__builtin_expect(!atomic_load_explicit(&ng_guard.running, memory_order_acquire), 0) &&
        !ng_guard_start())
        return NG_CALL_PROCEED;
    struct ng_thread *thread = ng_thread_get();
    if (!thread)
        return NG_CALL_PROCEED;
    ret_context->thread = thread;
    int answer;
    switch (op_class) {
    case NG_CLASS_GROUP:
        return ng_group_calls_enter(call, thread);
    case NG_CLASS_CREATE:
        answer = enter_creation(call, thread, ret_context);
        break;
    case NG_CLASS_END:
        answer = ng_ending_enter(call, thread, ret_context);
        break;
    case NG_CLASS_HOST:
        answer = ng_host_call_enter(call, thread, ret_context);
        break;
    default: /* QUERY, ONESIDED: handled at leave, or only passed on */
        ret_context->visits = true;
        answer = visit(call, ret_context);
    }
    if (op_class != NG_CLASS_QUERY)
        ng_thread_refuse(call->nccl, answer);
    return answer;
}

int ng_call_enter(const struct ng_call *call, struct ng_call_context *ret_context)
{
    struct ng_thread *thread = ng_this_thread;

    ret_context->thread = NULL;
    ret_context->comm = NULL;
    ret_context->visits = false;
    /* The usual case. */
    if (ng_op_table[call->op].op_class != NG_CLASS_GROUP ||
        !atomic_load_explicit(&ng_guard.running, memory_order_acquire) ||
        !ng_thread_is_known(thread))
        return enter_call(call, ret_context);
    ret_context->thread = thread;
    return ng_group_calls_enter(call, thread);
}

/* The communicator of a call; NULL none. For a creating call, the one that the thread's slot
 * names. */
static struct ng_comm *comm_of(const struct ng_call *call, const struct ng_call_context *context)
{
    uint32_t slot = NG_LOAD(context->thread->slot->group_slot);
    bool in_slot = ng_op_table[call->op].op_class == NG_CLASS_CREATE;

    return !in_slot ? context->comm : slot < ng_comm_count() ? ng_comm_at(slot) : NULL;
}

int ng_call_leave(const struct ng_call *call, struct ng_call_context *context, int result)
{
    if (!context->thread)
        return result;
    enum ng_op_class op_class = ng_op_table[call->op].op_class;
    if (op_class == NG_CLASS_GROUP)
        return ng_group_calls_leave(call, context->thread, result);
    /* While the thread is still marked as inside: the call is what waits for the dead peer. */
    if (__builtin_expect(result == NG_NCCL_REMOTE_ERROR, 0))
        ng_deaths_await_report(comm_of(call, context));
    switch (op_class) {
    case NG_CLASS_CREATE:
        ng_creation_leave(call, context, result);
        break;
    case NG_CLASS_END:
        result = ng_ending_leave(call, context, result);
        break;
    case NG_CLASS_HOST:
        result = ng_host_call_leave(call, context, result);
        break;
    default:
        if (op_class == NG_CLASS_ONESIDED)
            result = ng_nonblocking_finish(context->comm,
                                           ng_thread_open_group(context->thread, call->nccl),
                                           context->thread, result);
        if (call->op == NG_OP_CommGetUniqueId)
            ng_creation_invite(call, result);
        else
            ng_creation_poll(call, result);
        if (call->op == NG_OP_CommGetAsyncError && context->comm && result == NG_NCCL_SUCCESS &&
            call->recv_buffer) {
            ng_async_record_answer(context->comm, *(const int *)call->recv_buffer);
            ng_in_progress_note_state(context->comm, *(const int *)call->recv_buffer);
        }
    }
    if (__builtin_expect(result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS, 0)) {
        ng_device_wait_note_error(comm_of(call, context));
        ng_failure_tell(call, comm_of(call, context), 0, result);
    }
    if (context->visits)
        ng_gate_leave(context->comm);
    return result;
}
