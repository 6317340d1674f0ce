/*
 * The path of a collective, send or receive: what nearly every call of a program goes through.
 *
 * Inlined into the wrappers (shim/entry.c), where most of the arguments stay in registers, and into
 * core/call/call.c for calls in unusual circumstances. All that is not needed by a usual call is in
 * functions of call.c, which get copies, so that the structs exist only for them. Entered by the
 * program's threads. Must never change errno: the functions that may are those of call.c, which
 * restore it.
 */
#ifndef NCCLGUARD_CORE_CALL_WORK_CALL_H
#define NCCLGUARD_CORE_CALL_WORK_CALL_H

#include "core/call/group_calls.h"
#include "core/comm/call_stack.h"
#include "core/comm/comm.h"
#include "core/comm/ring.h"
#include "core/comm/thread.h"
#include "core/config/timing.h"
#include "core/device/burst.h"
#include "core/device/gpu.h"
#include "core/device/work.h"
#include "core/nccl/call.h"
#include "core/runtime/runtime.h"
#include "core/util/fast_clock.h"
#include "core/view/hash_log.h"

#define NG_WORK_INLINE static inline __attribute__((always_inline))

/* ---- The slow parts, in core/call/call.c ---- */

#pragma GCC visibility push(hidden)

/* What shows the progress of a call. */
struct ng_work_events {
    struct ng_async_op *work; /* NULL: it is not observed, or its stream is being captured: */
    uintptr_t capture;        /* as in struct ng_call_context */
};
/* Begin to observe what the call that the thread's slot shows puts on its stream. */
struct ng_work_events ng_work_start(struct ng_comm *comm, void *stream,
                                    const struct ng_box_thread *slot);
/* The same for a call that may be measured. */
struct ng_work_events ng_work_start_measured(const struct ng_call *call, struct ng_comm *comm,
                                             const struct ng_box_thread *slot);
/* There are no records: the group itself keeps the call. */
void ng_work_keep_last(const struct ng_call *call, struct ng_box_group *group);
/* What the configuration adds to a call before it reaches NCCL. */
int ng_work_prepare(const struct ng_call *call, bool p2p, struct ng_call_context *context);
/* The communicator is held or condemned: waits, or refuses the call. */
int ng_work_await(const struct ng_call *call, struct ng_call_context *context);
/* NCCL has put the work on its stream: hand it to the watchdog. Returns the result for the
 * program. */
int ng_work_hand(struct ng_comm *comm, struct ng_async_op *work, void *stream,
                 struct ng_box_record *record);
/* The call was captured, or there was no work for it: its end is not observed. */
void ng_work_leave_unobserved(const struct ng_call *call, struct ng_call_context *context);
/* NCCL has not returned success. */
int ng_work_leave_unsuccessful(const struct ng_call *call, bool p2p,
                               struct ng_call_context *context, int result);

#pragma GCC visibility pop

/* ---- Before and after the real function ---- */

/* A communicator is called from one thread at a time (NCCL's rule), so its counters are plain loads
 * and stores. */
NG_WORK_INLINE uint64_t ng_work_count_up(_Atomic uint64_t *counter)
{
    uint64_t next = atomic_load_explicit(counter, memory_order_relaxed) + 1;
    atomic_store_explicit(counter, next, memory_order_release);
    return next;
}

/* The slow parts get copies: only then are the structs in memory, and complete. */
#define NG_WORK_COPY(call, context, of_thread)                                                     \
    struct ng_call call_copy = *(call);                                                            \
    struct ng_call_context context_copy = *(context);                                              \
    ng_work_complete(&context_copy, of_thread)

/* The thread's slot has the rest. */
NG_WORK_INLINE void ng_work_complete(struct ng_call_context *context, struct ng_thread *thread)
{
    context->thread = thread;
    context->record_id = NG_LOAD(context->slot->record_id);
    context->seq = NG_LOAD(context->slot->seq);
    context->entered_mono_ns = NG_LOAD(context->slot->since_mono_ns);
}

/* A usual call once it is recorded: its record keeps what would take up a register during the
 * calls of CUDA and NCCL. */
NG_WORK_INLINE struct ng_call ng_work_later(const struct ng_call *call,
                                            const struct ng_call_context *context)
{
    struct ng_call later = *call;

    later.caller = (const void *)NG_LOAD(context->record->caller);
    return later;
}

/* May a usual call take ng_work_enter and ng_work_leave? Collectives outside of NCCL groups may,
 * and sends and receives inside of them. The others take core/nccl/call.h. */
NG_WORK_INLINE bool ng_work_is_short(const struct ng_thread *thread, bool p2p)
{
    return (thread->open_groups != 0) == p2p && !(p2p && thread->first.broken);
}

/*
 * As ng_work_start, for a collective: no measured one, and on a stream in whose context the
 * communicator has worked before. NULL: it is another case, and nothing has happened.
 */
NG_WORK_INLINE struct ng_async_op *ng_work_start_usual(struct ng_comm *comm,
                                                       struct ng_thread *thread, void *stream,
                                                       uint64_t record_id, uint64_t seq,
                                                       int64_t now_mono_ns)
{
    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_acquire);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE; /* 0, as CUDA_SUCCESS is */

    if (__builtin_expect(!ng_gpu_is_at_hand(gpu) || ng_gpu_default_stream(stream), 0))
        return NULL;
    struct ng_async_op *work = ng_pool_take(&gpu->pool);
    if (__builtin_expect(!work, 0))
        return NULL;
    /* Before CUDA is called, while all of this is in registers. */
    ng_async_op_fill(work, record_id, seq, seq, 0, now_mono_ns);
    work->has_start =
        !__builtin_expect(ng_burst_goes_on(comm, thread, stream, now_mono_ns, NG_BURST_GAP_NS), 1);
    ng_burst_end(thread);
    int saved = *thread->errno_at;
    CUresult result = ng_guard.cuda.stream_is_capturing(stream, &capture);
    bool good =
        __builtin_expect(((int)result | (int)capture) == 0, 1) &&
        (!work->has_start || ng_guard.cuda.event_record(work->start, stream) == CUDA_SUCCESS);
    *thread->errno_at = saved;
    if (__builtin_expect(good, 1))
        return work;
    ng_gpu_give(work);
    return NULL;
}

/* As ng_work_hand, for such a work. */
NG_WORK_INLINE int ng_work_hand_usual(struct ng_comm *comm, struct ng_thread *thread,
                                      struct ng_async_op *work, void *stream,
                                      struct ng_box_record *record)
{
    int saved = *thread->errno_at;
    bool recorded = !ng_gpu_default_stream(stream) &&
                    ng_guard.cuda.event_record(work->end, stream) == CUDA_SUCCESS;

    *thread->errno_at = saved;
    if (__builtin_expect(!recorded, 0))
        return ng_work_hand(comm, work, stream, record);
    ng_ring_schedule(record, work->last_record);
    ng_async_op_hand_over(comm, work);
    ng_burst_keep(comm, thread, stream, ng_fast_clock_mono_ns());
    return NG_NCCL_SUCCESS;
}

/*
 * Count the call, record it, and mark the thread as inside. `is_usual`, a constant: ng_unusual was
 * 0, so the slow parts that depend on the configuration are left out. `group_calls`: of the open
 * NCCL group; NULL: none is open. Otherwise as ng_call_enter.
 */
NG_WORK_INLINE int ng_work_enter(const struct ng_call *call, bool p2p, bool is_usual,
                                 struct ng_thread *thread, struct ng_comm *comm,
                                 struct ng_group_calls *group_calls,
                                 struct ng_call_context *ret_context)
{
    struct ng_call_context *context = ret_context;
    struct ng_box_group *group = comm->group;
    struct ng_box_thread *slot = thread->slot;
    uint32_t group_slot = comm->slot;
    struct ng_box_record *record = NULL;
    uint32_t flags = group_calls ? NG_RECORD_IN_GROUP : 0;
    uint64_t record_id = 0, coll_seq, p2p_seq, peer_ordinal = 0, hash = 0;

    /* Each value is stored as soon as it is known: there are few registers beside the arguments. */
    bool records = is_usual || __builtin_expect(ng_guard.box.record_capacity != 0, 1);
    if (records) {
        record = ng_ring_begin(group_slot, &record_id);
        ng_ring_describe(record, call);
        ng_ring_set_origin(record, group_slot, group, thread->tid);
    }
    ng_thread_set_record(slot, group_slot, record_id);
    if (p2p) {
        coll_seq = NG_LOAD(group->entered);
        p2p_seq = ng_work_count_up(&group->p2p_entered);
        peer_ordinal = ng_comm_count_peer(comm, call->op, call->root);
        flags |= NG_RECORD_P2P;
    } else {
        struct ng_signature signature = ng_ring_signature(call);
        flags |= call->send_buffer == call->recv_buffer ? NG_RECORD_IN_PLACE : 0;
        hash = ng_signature_roll(NG_LOAD(group->rolling_hash), &signature);
        coll_seq = NG_LOAD(group->entered) + 1;
        p2p_seq = NG_LOAD(group->p2p_entered);
    }
    if (records)
        ng_ring_count(record, coll_seq, p2p_seq, peer_ordinal, flags, hash);
    else if (!p2p)
        ng_work_keep_last(call, group);
    if (!p2p) {
        NG_STORE(group->rolling_hash, hash);
        ng_hash_log_add(comm->hash_log, coll_seq, hash);
        NG_STORE(group->entered_record, record_id);
    }
    int64_t now = ng_fast_clock_mono_ns();
    if (records)
        ng_ring_publish(record, record_id, now);
    if (!p2p)
        atomic_store_explicit(&group->entered, coll_seq, memory_order_release);
    if (!is_usual)
        ng_call_stack_keep(thread, call->caller, record_id);
    context->comm = comm;
    context->slot = slot;
    context->record = record;
    context->group_calls = group_calls;
    context->work = NULL;
    context->capture = 0;
    ng_thread_mark(slot, call->op, p2p ? 0 : coll_seq, now);
    if (!is_usual) {
        NG_WORK_COPY(call, context, thread);
        int answer = ng_work_prepare(&call_copy, p2p, &context_copy);
        if (answer != NG_CALL_PROCEED)
            return answer;
    }
    if (ng_comm_is_shut_now(comm)) {
        NG_WORK_COPY(call, context, thread);
        int answer = ng_work_await(&call_copy, &context_copy);
        if (answer != NG_CALL_PROCEED)
            return answer;
    }
    if (group_calls)
        return NG_CALL_PROCEED;
    uint64_t number = p2p ? ng_work_count_up(&comm->timing.p2p_works) : coll_seq;
    struct ng_work_events events;
    if (ng_timing_may(p2p ? &comm->timing.next_p2p : &comm->timing.next_coll, number)) {
        struct ng_call call_copy = *call;
        events = ng_work_start_measured(&call_copy, comm, slot);
    } else {
        if (is_usual &&
            __builtin_expect((context->work = ng_work_start_usual(
                                  comm, thread, call->stream, record_id, coll_seq, now)) != NULL,
                             1)) {
            thread->eager_stream = call->stream;
            return NG_CALL_PROCEED;
        }
        events = ng_work_start(comm, call->stream, slot);
    }
    if (is_usual && !p2p && events.work)
        thread->eager_stream = call->stream;
    context->work = events.work;
    context->capture = events.capture;
    return NG_CALL_PROCEED;
}

/*
 * `result` is that of the real function. Returns the one for the program. `is_usual` as for
 * ng_work_enter; a usual collective has a work.
 */
NG_WORK_INLINE int ng_work_leave(const struct ng_call *call, bool p2p, bool is_usual,
                                 struct ng_thread *thread, const struct ng_call_context *context,
                                 int result)
{
    if (!p2p && is_usual)
        thread->eager_stream = NG_THREAD_NO_STREAM;
    if (__builtin_expect(result != NG_NCCL_SUCCESS, 0)) {
        struct ng_call later = is_usual ? ng_work_later(call, context) : *call;
        NG_WORK_COPY(&later, context, thread);
        return ng_work_leave_unsuccessful(&call_copy, p2p, &context_copy, result);
    }
    if (context->group_calls && is_usual) {
        struct ng_call later = ng_work_later(call, context);
        if (ng_group_calls_keep_usual(context->group_calls, &later, context->comm, context->record,
                                      NG_LOAD(context->slot->record_id),
                                      NG_LOAD(context->slot->since_mono_ns))) {
            ng_thread_unmark(context->slot);
            return result;
        }
    }
    if (context->group_calls) {
        struct ng_call call_copy = is_usual ? ng_work_later(call, context) : *call;
        struct ng_call_context context_copy; /* as far as the function reads it */
        context_copy.comm = context->comm;
        context_copy.record = context->record;
        context_copy.group_calls = context->group_calls;
        context_copy.record_id = NG_LOAD(context->slot->record_id);
        context_copy.seq = NG_LOAD(context->slot->seq);
        context_copy.entered_mono_ns = NG_LOAD(context->slot->since_mono_ns);
        /* Before the thread is marked as out of NCCL: from now on the group holds the
         * communicator. */
        ng_group_calls_keep(&call_copy, p2p, &context_copy);
        ng_thread_unmark(context->slot);
        return result;
    }
    ng_thread_unmark(context->slot);
    if (!p2p)
        NG_STORE(context->comm->group->scheduled, NG_LOAD(context->slot->seq));
    if (is_usual)
        return ng_work_hand_usual(context->comm, thread, context->work, call->stream,
                                  context->record);
    if (__builtin_expect(context->work != NULL, 1))
        return ng_work_hand(context->comm, context->work, call->stream, context->record);
    NG_WORK_COPY(call, context, thread);
    ng_work_leave_unobserved(&call_copy, &context_copy);
    return NG_NCCL_SUCCESS;
}

#endif
