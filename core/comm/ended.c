/*
 * What calls on ended communicators return, and which ones were left.
 *
 * Entered by the program's threads if a handle is not that of a live communicator, which is rare,
 * and by the thread that exits.
 */
#include "core/comm/ended.h"

#include <stdbool.h>

#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/text.h"

/* Named in the line of those that were left; the others are counted. */
#define LEFT_NAMED 4

/* Another thread may be creating a new communicator whose handle NCCL has already written. */
static bool has_ended(const void *handle)
{
    return ng_comm_has_ended(handle) && !ng_comm_find_made(handle);
}

static int answer(const void *handle, const char *name, bool gives_back)
{
    int result = gives_back ? NG_NCCL_SUCCESS : NG_NCCL_INVALID_ARGUMENT;

    ng_failure_tell_ended(name, handle, result);
    return result;
}

int ng_ended_answer(const void *handle, enum ng_op op)
{
    if (!has_ended(handle))
        return NG_CALL_PROCEED;
    if (op == NG_OP_NONE) /* ng_ended_passed knows the call */
        return NG_NCCL_INVALID_ARGUMENT;
    return answer(handle, ng_op_name(op),
                  ng_op_table[op].op_class == NG_CLASS_END || ng_op_gives_back(op));
}

int ng_ended_passed(const void *handle, const char *name, int result)
{
    if (ng_comm_find(handle) || !has_ended(handle))
        return result;
    return answer(handle, name, false);
}

const char *ng_ended_reason(const void *handle)
{
    return has_ended(handle) ? "the program has destroyed or aborted this communicator: no call "
                               "can use it any more"
                             : NULL;
}

/* It was made, the guard has not aborted it, the program has not begun to end it, and other ranks
 * may wait for this one. */
static bool is_left(const struct ng_comm *comm)
{
    return atomic_load_explicit(&comm->group->state, memory_order_acquire) == NG_GROUP_READY &&
           NG_LOAD(comm->group->nranks) > 1 && atomic_load(&comm->fate) == NG_FATE_LIVES;
}

static bool is_used(const struct ng_comm *comm)
{
    return atomic_load_explicit(&comm->group->state, memory_order_acquire) != NG_GROUP_FREE;
}

/* Is this process rank 0 of the group? It may have several of its ranks. */
static bool has_first_rank(uint64_t group_id)
{
    return NG_FIND_COMM(comm, is_used(comm) && NG_LOAD(comm->group->id) == group_id &&
                                  NG_LOAD(comm->group->group_rank) == 0) != NULL;
}

/* Does this process warn on behalf of the job: is it rank 0 of the largest group that it had, and
 * of all of that size? A job has many groups, and each process may be rank 0 of a small one. */
static bool warns_for_job(void)
{
    int32_t largest = 0;

    NG_EACH_COMM (comm)
        if (is_used(comm))
            largest = NG_MAX(largest, NG_LOAD(comm->group->nranks));
    return !NG_FIND_COMM(comm, is_used(comm) && NG_LOAD(comm->group->nranks) == largest &&
                                   !has_first_rank(NG_LOAD(comm->group->id)));
}

void ng_ended_tell_left(void)
{
    char list[700] = "", group[160];
    struct ng_text text = {list, 0, sizeof(list)};
    uint32_t left = 0;

    NG_EACH_COMM (comm) {
        if (!is_left(comm) || left++ >= LEFT_NAMED)
            continue;
        ng_comm_describe(comm, group, sizeof(group));
        ng_text_add(&text, "%s%s", left > 1 ? "; " : "", group);
    }
    if (left > LEFT_NAMED)
        ng_text_add(&text, "; and %u more", left - LEFT_NAMED);
    if (left)
        ng_log(warns_for_job() ? NG_LOG_WARN : NG_LOG_INFO,
               "not destroyed when exit() began: %s. Unless a destructor of the program does so "
               "later, the process ends without ncclCommDestroy: its other ranks may still wait "
               "for this one in ncclCommDestroy, and what NCCL holds is not given back in order "
               "(PyTorch: call torch.distributed.destroy_process_group())",
               list);
}
