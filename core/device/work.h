/*
 * Handing a work from the call that put it on a stream to the watchdog, for single calls and for
 * NCCL groups.
 *
 * Program threads. Nothing here waits or allocates.
 */
#ifndef NCCLGUARD_CORE_DEVICE_WORK_H
#define NCCLGUARD_CORE_DEVICE_WORK_H

#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/device/gpu.h"
#include "core/runtime/runtime.h"

/* Hand a work whose end is recorded to the watchdog. Its records are marked scheduled before it can
 * finish. */
static inline void ng_async_op_hand_over(struct ng_comm *comm, struct ng_async_op *work)
{
    struct ng_async_op *head = atomic_load_explicit(&comm->incoming, memory_order_relaxed);
    do
        work->next = head;
    while (!atomic_compare_exchange_weak_explicit(&comm->incoming, &head, work,
                                                  memory_order_release, memory_order_relaxed));
}

/* The end of these operations will not be observed: NCCL launches them later, or no event was
 * available. Their work, if any, is returned. */
static inline void ng_async_op_give_up(struct ng_async_op *work, uint64_t operations)
{
    if (work)
        ng_gpu_give(work);
    atomic_fetch_add_explicit(&ng_guard.box.header->records_lost, 1, memory_order_relaxed);
    ng_completion_lose(operations);
}

/* How many operations a work stands for. */
static inline uint64_t ng_async_op_operations(const struct ng_async_op *work)
{
    return work->p2p_count + (work->last_seq ? work->last_seq - work->first_seq + 1 : 0);
}

static inline void ng_async_op_fill(struct ng_async_op *work, uint64_t last_record,
                                    uint64_t first_seq, uint64_t last_seq, uint32_t p2p_count,
                                    int64_t entered_mono_ns)
{
    work->last_record = last_record;
    work->first_seq = first_seq;
    work->last_seq = last_seq;
    work->p2p_count = p2p_count;
    work->entered_mono_ns = entered_mono_ns;
}

/* Without records, the group itself keeps its newest call; it is cleared for a call that did not
 * happen, so that it is not compared. */
static inline void ng_async_op_forget_last(struct ng_box_group *group)
{
    NG_STORE(group->last_call, 0);
}

#endif
