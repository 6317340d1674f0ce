/*
 * Decides which calls may use a communicator, and what the others return.
 *
 * Entered by program threads, and by guard threads that register buffers. Must never wait.
 */
#include "core/comm/gate.h"

#include <stdbool.h>

#include "core/comm/comm.h"
#include "core/comm/ended.h"
#include "core/comm/thread.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/report/report.h"
#include "core/runtime/runtime.h"

/* The first NCCL version with ncclRemoteError. */
#define VERSION_REMOTE_ERROR 21300

/* Verdicts of these kinds blame a peer. */
static bool blames_peer(enum ng_verdict_kind kind)
{
    switch (kind) {
    case NG_KIND_MISSING_RANK:
    case NG_KIND_DEAD_RANK:
    case NG_KIND_STOPPED_RANK:
    case NG_KIND_LEFT_EARLY:
    case NG_KIND_INIT_MISSING_RANK:
    case NG_KIND_INIT_MISMATCH:
    case NG_KIND_ASYNC_ERROR:
    case NG_KIND_CUDA_ERROR:
        return true;
    default:
        return false;
    }
}

/* Is this rank itself the culprit, so that no peer is to blame? */
static bool is_own_fault(const struct ng_comm *comm, const char *reason)
{
    int rank = ng_guard.box.header->rank;

    return ng_report_line_blames(reason, rank >= 0 ? rank : NG_LOAD(comm->group->group_rank));
}

int ng_gate_result(const struct ng_comm *comm, enum ng_verdict_kind kind, const char *reason)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    bool own = blames_peer(kind) && is_own_fault(comm, reason);
    bool peer = blames_peer(kind) && !own;

    if (own && kind == NG_KIND_CUDA_ERROR)
        return NG_NCCL_UNHANDLED_CUDA_ERROR;
    return peer && nccl->version >= VERSION_REMOTE_ERROR ? NG_NCCL_REMOTE_ERROR
                                                         : NG_NCCL_SYSTEM_ERROR;
}

int ng_gate_try(const void *handle, enum ng_op op, struct ng_comm **ret_comm)
{
    struct ng_comm *comm = ng_comm_find(handle);

    *ret_comm = comm;
    if (!comm)
        return ng_ended_answer(handle, op);
    atomic_store_explicit(&comm->in_flight.guest_tid, ng_this_thread ? ng_this_thread->tid : 0,
                          memory_order_relaxed);
    atomic_fetch_add(&comm->in_flight.guests, 1);
    if (!ng_comm_is_condemned(comm))
        return NG_CALL_PROCEED;
    atomic_fetch_sub(&comm->in_flight.guests, 1);
    /* NCCL may have reused the handle for a communicator that another thread is creating. */
    if (!ng_comm_find_made(handle))
        return comm->abort.result;
    *ret_comm = NULL;
    return NG_CALL_PROCEED;
}

int ng_gate_visit(const void *handle, struct ng_comm **ret_guest)
{
    int answer = ng_gate_try(handle, NG_OP_NONE, ret_guest);

    if (answer != NG_CALL_PROCEED)
        *ret_guest = NULL;
    return answer;
}

void ng_gate_leave(struct ng_comm *guest)
{
    if (guest)
        atomic_fetch_sub(&guest->in_flight.guests, 1);
}
