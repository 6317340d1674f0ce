/*
 * Checks of a call before it is made, one after the other.
 *
 * Entered by the program's threads; never if NCCLGUARD_CHECK has none of `strict`, `+args` and
 * `+nan`.
 */
#include "core/check/call_check.h"

#include <stdatomic.h>
#include <stdio.h>

#include "core/check/arguments.h"
#include "core/check/check.h"
#include "core/check/lockstep_check.h"
#include "core/check/nan.h"
#include "core/comm/comm.h"
#include "core/nccl/call.h"

int ng_call_check(const struct ng_call *call, struct ng_call_context *context, char *ret_reason,
                  unsigned bytes)
{
    struct ng_comm *comm = context->comm;
    unsigned rule = NG_LOAD(comm->deadline.check[call->op]);
    int result = NG_CALL_PROCEED;

    bool asks = ng_check_strict() && ng_op_table[call->op].op_class == NG_CLASS_COLLECTIVE;
    if (asks && (context->group_calls || rule == NG_RULE_CHECK_OFF))
        ng_lockstep_pass(comm, context->seq);
    if (rule == NG_RULE_CHECK_OFF)
        return NG_CALL_PROCEED;
    if (ng_check_arguments()) {
        bool refuse = rule == NG_RULE_CHECK_REFUSE || rule == NG_RULE_CHECK_END;
        int deserved = ng_arguments_check(call, comm, ret_reason, bytes);
        if (deserved != NG_NCCL_SUCCESS) {
            ng_arguments_tell(call, context, ret_reason, refuse ? deserved : NG_NCCL_SUCCESS);
            if (refuse)
                return deserved;
        }
    }
    if (asks && !context->group_calls)
        result = ng_lockstep_agree(call, comm, context->seq, ret_reason, bytes);
    /* Last: data of a rejected call is not sent. */
    if (ng_check_nan() && result == NG_CALL_PROCEED)
        ng_nan_look_at(call, comm,
                       ng_op_table[call->op].op_class == NG_CLASS_P2P ? 0 : context->seq,
                       NG_LOAD(comm->group->p2p_entered));
    return result;
}

void ng_call_check_keep_reason(struct ng_comm *comm, const char *reason)
{
    comm->wait.reason.kind = NG_KIND_HEALTHY;
    snprintf(comm->wait.reason.text, sizeof(comm->wait.reason.text), "%s", reason);
    atomic_store(&comm->wait.failed, true);
}
