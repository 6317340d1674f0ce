/*
 * What calls on ended communicators return.
 *
 * Entered by the program's threads if a handle is not that of a live communicator, which is rare.
 */
#include "core/comm/ended.h"

#include <stdbool.h>

#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"

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
