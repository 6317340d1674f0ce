/*
 * Calls of the program that are in progress.
 *
 * Entered by the program's threads: the one that has made the call, and the one that queries the
 * state, which may be another. Must never call NCCL.
 */
#include "core/device/in_progress.h"

#include "core/comm/comm.h"
#include "core/comm/ring.h"
#include "core/comm/thread.h"
#include "core/device/work.h"
#include "core/nccl/nccl.h"

void ng_in_progress_stay(struct ng_comm *comm, struct ng_thread *thread)
{
    /* Nobody sees that slot, and it goes with its thread. */
    if (thread->slot == &thread->spare) {
        ng_thread_leave(thread);
        return;
    }
    comm->in_progress.stays_since_mono_ns = NG_LOAD(thread->slot->since_mono_ns);
    atomic_store_explicit(&comm->in_progress.stays_in, thread->slot, memory_order_release);
}

void ng_in_progress_stay_here(struct ng_thread *thread)
{
    uint32_t slot = NG_LOAD(thread->slot->group_slot);

    if (slot < ng_comm_count())
        ng_in_progress_stay(ng_comm_at(slot), thread);
    else
        ng_thread_leave(thread);
}

/* Mark its thread as outside the call, unless it is in another one by now. */
static void leave(struct ng_comm *comm)
{
    struct ng_box_thread *slot = atomic_exchange(&comm->in_progress.stays_in, NULL);

    if (slot && NG_LOAD(slot->group_slot) == comm->slot &&
        NG_LOAD(slot->since_mono_ns) == comm->in_progress.stays_since_mono_ns)
        atomic_store_explicit(&slot->op, 0, memory_order_release);
}

void ng_in_progress_keep(struct ng_comm *comm, struct ng_async_op *work, void *stream)
{
    struct ng_async_op *head = atomic_load(&comm->in_progress.works);

    work->stream = stream;
    do
        work->next = head;
    while (!atomic_compare_exchange_weak(&comm->in_progress.works, &head, work));
}

/* Take all works, in call order. */
static struct ng_async_op *take_all(struct ng_comm *comm)
{
    struct ng_async_op *work = atomic_exchange(&comm->in_progress.works, NULL), *oldest = NULL;

    while (work) {
        struct ng_async_op *next = work->next;
        work->next = oldest;
        oldest = work;
        work = next;
    }
    return oldest;
}

static void launched(struct ng_comm *comm, struct ng_async_op *work)
{
    if (work->last_seq)
        NG_STORE(comm->group->scheduled, work->last_seq);
    if (!ng_gpu_record(work->gpu, work->end, work->stream)) {
        ng_ring_set_chain(work->last_record, NG_RECORD_UNWATCHED);
        ng_async_op_give_up(work, ng_async_op_operations(work));
        return;
    }
    ng_ring_set_chain(work->last_record, NG_RECORD_SCHEDULED);
    ng_async_op_hand_over(comm, work);
}

static void drop_all(struct ng_comm *comm)
{
    struct ng_async_op *next;

    for (struct ng_async_op *work = take_all(comm); work; work = next) {
        next = work->next;
        ng_ring_set_chain(work->last_record, NG_RECORD_FAILED);
        ng_gpu_give(work);
    }
}

void ng_in_progress_note_state(struct ng_comm *comm, int state)
{
    struct ng_async_op *next;

    if (state == NG_NCCL_IN_PROGRESS)
        return;
    if (state != NG_NCCL_SUCCESS)
        drop_all(comm);
    for (struct ng_async_op *work = take_all(comm); work; work = next) {
        next = work->next;
        launched(comm, work);
    }
    if (!NG_LOAD(comm->host_calls->open)) /* their NCCL group has been closed */
        NG_STORE(comm->host_calls->op, 0);
    leave(comm);
}

void ng_in_progress_end(struct ng_comm *comm)
{
    drop_all(comm);
    leave(comm);
}
