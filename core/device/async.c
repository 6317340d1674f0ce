/*
 * Querying NCCL for asynchronous errors, and alarms for these and those of CUDA.
 *
 * The watchdog thread queries handles that program threads may free: either the freeing thread sees
 * the query, or the querying thread sees that the handle is being freed, since both write first and
 * then read. Must never query a handle that NCCL may have freed.
 */
#include "core/device/async.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/comm/in_flight_calls.h"
#include "core/comm/ring.h"
#include "core/nccl/nccl.h"
#include "core/nccl/op.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define BUSY_PAUSE_NS (100 * NG_MS) /* between two queries of a communicator with work */
#define IDLE_PAUSE_NS NG_S

/* NCCL is being queried about this one. */
static NG_FORGOTTEN _Atomic(const struct ng_comm *) asked;
static NG_FORGOTTEN int64_t looked_mono_ns; /* used by the watchdog only */

bool ng_async_asks(const struct ng_comm *comm)
{
    return atomic_load(&asked) == comm || atomic_load(&comm->mode.questions);
}

static bool is_error(int result)
{
    return result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS;
}

/* NCCL's text for the error, for readers of the black box. Only the first of this process. */
static void keep_text(const struct ng_nccl *nccl)
{
    /* Decides which of the watchdog and the program's threads was first; a forked child has another
     * box. */
    static struct ng_box_header *_Atomic kept_in;
    struct ng_box_header *header = ng_guard.box.header;
    const char *text = nccl->get_last_error ? nccl->get_last_error(NULL) : NULL;

    if (!text || !text[0] || atomic_exchange(&kept_in, header) == header)
        return;
    snprintf(header->error_text, sizeof(header->error_text), "%s", text);
    atomic_store_explicit(&header->error_text_bytes, (uint32_t)strlen(header->error_text),
                          memory_order_release);
}

/* The first error is kept. */
static void remember(struct ng_comm *comm, int error)
{
    int none = NG_NCCL_SUCCESS;
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);

    if (!is_error(error) || NG_LOAD(comm->group->async_error))
        return;
    if (!NG_LOAD(comm->group->error_mono_ns))
        NG_STORE(comm->group->error_mono_ns, ng_clock_mono_ns());
    if (!atomic_compare_exchange_strong(&comm->group->async_error, &none, error))
        return;
    keep_text(nccl);
    ng_failure_tell_async(nccl, comm, error);
    ng_wake_watchdog();
}

void ng_async_record_answer(struct ng_comm *comm, int error)
{
    if (__builtin_expect(is_error(error), 0) && ng_comm_is_let_live(comm))
        remember(comm, error);
}

static bool is_alive(const struct ng_comm *comm)
{
    return atomic_load(&comm->group->state) == NG_GROUP_READY && ng_comm_is_let_live(comm);
}

static bool has_failed(const struct ng_comm *comm)
{
    return NG_LOAD(comm->group->async_error) ||
           ng_cuda_error_is_permanent(NG_LOAD(comm->group->cuda_error));
}

/* For a communicator whose creation we did not see, it is unknown how NCCL created it and whether
 * it still exists. */
static bool may_be_asked(const struct ng_comm *comm)
{
    return is_alive(comm) &&
           (!atomic_load(&comm->mode.nonblocking) || atomic_load(&comm->mode.converted)) &&
           NG_LOAD(comm->group->created_by) != NG_OP_NONE;
}

static bool has_work(const struct ng_comm *comm)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = NG_LOAD(box->header->thread_used);

    if (comm->watch.first || atomic_load_explicit(&comm->incoming, memory_order_relaxed))
        return true;
    return NG_ANY(thread, box->threads, NG_MIN(used, box->thread_capacity),
                  NG_LOAD(thread->op) && NG_LOAD(thread->group_slot) == comm->slot);
}

static void ask(struct ng_comm *comm, int64_t now_mono_ns)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    int error = NG_NCCL_SUCCESS, result = NG_NCCL_INVALID_ARGUMENT;

    if (!nccl->comm_get_async_error || !may_be_asked(comm) ||
        now_mono_ns - comm->async.asked_mono_ns < (has_work(comm) ? BUSY_PAUSE_NS : IDLE_PAUSE_NS))
        return;
    comm->async.asked_mono_ns = now_mono_ns;
    bool converted = atomic_load(&comm->mode.converted);
    if (converted && !ng_in_flight_hold(comm))
        return;
    atomic_store(&asked, comm);
    void *handle = atomic_load(&comm->handle);
    if (handle && is_alive(comm))
        result = nccl->comm_get_async_error(handle, &error);
    atomic_store(&asked, NULL);
    if (converted)
        ng_in_flight_let_go(comm);
    if (result == NG_NCCL_SUCCESS)
        remember(comm, error);
}

static enum ng_op last_op(const struct ng_box_group *group)
{
    struct ng_box_record *record = ng_ring_find(NG_LOAD(group->entered_record));

    return record ? (enum ng_op)NG_LOAD(record->op) : NG_OP_NONE;
}

static void raise_alarm(struct ng_comm *comm, int64_t now_mono_ns, uint32_t restarts)
{
    const struct ng_box_group *group = comm->group;
    struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                             .failed = true,
                             .group_id = NG_LOAD(group->id),
                             .seq = NG_LOAD(group->entered),
                             .op = last_op(group),
                             .age_ns = now_mono_ns - NG_LOAD(group->error_mono_ns),
                             .restarts = restarts};

    comm->async.raised = true;
    ng_alarm_raise(&alarm);
}

static void look_at(struct ng_comm *comm, int64_t now_mono_ns, uint32_t restarts)
{
    uint32_t generation = NG_LOAD(comm->group->generation);

    if (comm->async.generation != generation) {
        comm->async.generation = generation;
        comm->async.asked_mono_ns = 0;
        comm->async.raised = false;
    }
    if (!has_failed(comm)) {
        ask(comm, now_mono_ns);
        return;
    }
    if (!comm->async.raised && is_alive(comm) &&
        now_mono_ns - NG_LOAD(comm->group->error_mono_ns) >= NG_ASYNC_GRACE_NS)
        raise_alarm(comm, now_mono_ns, restarts);
}

void ng_async_look(int64_t now_mono_ns, uint32_t restarts)
{
    if (now_mono_ns - looked_mono_ns < BUSY_PAUSE_NS)
        return;
    looked_mono_ns = now_mono_ns;
    NG_EACH_COMM (comm)
        if (atomic_load_explicit(&comm->group->state, memory_order_relaxed) == NG_GROUP_READY)
            look_at(comm, now_mono_ns, restarts);
}

bool ng_async_still(const struct ng_alarm *alarm)
{
    return NG_FIND_COMM(comm, NG_LOAD(comm->group->id) == alarm->group_id && is_alive(comm) &&
                                  has_failed(comm)) != NULL;
}
