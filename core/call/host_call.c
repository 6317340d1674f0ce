/*
 * Host calls of a group, before and after the real function.
 *
 * Entered by the program's threads. Must never block.
 */
#include "core/call/host_call.h"

#include "core/call/creation.h"
#include "core/call/group_calls.h"
#include "core/call/nonblocking.h"
#include "core/comm/comm.h"
#include "core/comm/ended.h"
#include "core/comm/in_flight_calls.h"
#include "core/device/in_progress.h"
#include "core/policy/abort.h"
#include "core/util/clock.h"
#include "core/util/log.h"

/* `by`: 1 the call is made, -1 it did not happen, so that the number stays that of other ranks. */
static void count(const struct ng_call *call, const struct ng_comm *comm, int by)
{
    int index = ng_op_joint_call(call->op);

    if (index >= 0)
        NG_STORE(comm->host_calls->entered[index],
                 NG_LOAD(comm->host_calls->entered[index]) + (uint32_t)by);
}

int ng_host_call_enter(const struct ng_call *call, struct ng_thread *thread,
                       struct ng_call_context *context)
{
    const struct ng_group_calls *calls = ng_thread_open_group(thread, call->nccl);
    struct ng_comm *comm = ng_comm_find(call->comm);

    if (calls && calls->broken)
        return NG_NCCL_SYSTEM_ERROR;
    if (!comm) {
        int ended = ng_ended_answer(call->comm, call->op);
        if (ended != NG_CALL_PROCEED)
            return ended;
        comm = ng_creation_adopt(call);
    } else if (ng_comm_is_condemned(comm) && ng_comm_find_made(call->comm)) {
        comm = NULL; /* NCCL has reused the handle for a communicator that is being created */
    }
    context->comm = comm;
    if (!comm)
        return NG_CALL_PROCEED;
    count(call, comm, 1);
    ng_thread_enter(thread, call->op, comm, 0, 0, ng_clock_mono_ns());
    if (!ng_comm_is_shut_now(comm) || !ng_in_flight_await(comm))
        return NG_CALL_PROCEED;
    count(call, comm, -1);
    ng_thread_leave(thread);
    return ng_abort_answer(comm, call);
}

/* What the program's own kernels move through it is announced by no call. */
static void tell_unwatched(enum ng_op op)
{
    static atomic_flag told[2] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    bool window = op == NG_OP_CommWindowRegister;

    if ((window || op == NG_OP_DevCommCreate) && !atomic_flag_test_and_set(&told[window]))
        ng_log(
            NG_LOG_INFO,
            "unwatched: this program has %s; what kernels move through %s without a call of NCCL "
            "on the host is not seen, and a kernel that waits there is not explained",
            window ? "symmetric windows" : "device communicators", window ? "them" : "those");
}

/*
 * Does it go on although NCCL reports success? With nonblocking communicators 2.28.9 does so for
 * windows and device communicators. To ask is harmless here: the call has returned, and its own
 * thread asks. An abort frees the communicator only once no query is counted.
 */
static bool goes_on(const struct ng_call *call, struct ng_comm *comm)
{
    int state = NG_NCCL_SUCCESS;

    if (!atomic_load_explicit(&comm->mode.nonblocking, memory_order_relaxed) ||
        !call->nccl->comm_get_async_error)
        return false;
    atomic_fetch_add(&comm->mode.questions, 1);
    bool known = ng_comm_is_let_live(comm) &&
                 call->nccl->comm_get_async_error(call->comm, &state) == NG_NCCL_SUCCESS;
    atomic_fetch_sub(&comm->mode.questions, 1);
    return known && state == NG_NCCL_IN_PROGRESS;
}

int ng_host_call_leave(const struct ng_call *call, const struct ng_call_context *context,
                       int result)
{
    struct ng_comm *comm = context->comm;
    struct ng_group_calls *calls = ng_thread_open_group(context->thread, call->nccl);

    if (!comm)
        return result;
    bool under_way = !calls && result == NG_NCCL_SUCCESS && goes_on(call, comm);
    int finished = ng_nonblocking_finish(comm, calls, context->thread,
                                         under_way ? NG_NCCL_IN_PROGRESS : result);
    under_way &= finished == NG_NCCL_IN_PROGRESS;
    result = under_way ? result : finished;
    bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;
    if (!good)
        count(call, comm, -1);
    else
        tell_unwatched(call->op);
    if (result == NG_NCCL_IN_PROGRESS)
        atomic_store_explicit(&comm->mode.nonblocking, true, memory_order_relaxed);
    if (calls && good)
        ng_group_calls_keep_host_call(calls, call, comm, context->thread);
    if ((under_way || result == NG_NCCL_IN_PROGRESS) && !calls)
        ng_in_progress_stay(comm, context->thread);
    else
        ng_thread_leave(context->thread);
    /* NCCL may return success where an abort has freed the communicator. */
    return result == NG_NCCL_SUCCESS && ng_comm_is_condemned(comm) ? comm->abort.result : result;
}
