/*
 * Checks of calls: configuration, rules, and the way to each check.
 *
 * Entered by the program's threads; never if NCCLGUARD_CHECK has none of `strict`, `+args` and
 * `+nan`.
 */
#include "core/check/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/check/arguments.h"
#include "core/check/lockstep_check.h"
#include "core/check/nan.h"
#include "core/comm/comm.h"
#include "core/nccl/call.h"
#include "core/runtime/runtime.h"

static bool signatures, arguments, strict, strict_across,
    nan_wanted; /* written before any guard thread runs */

/* The parts of a value of NCCLGUARD_CHECK: one of three modes, and additions. */
struct parts {
    int base;
    bool arguments, nan;
};

static struct parts parts_of(int check)
{
    int added = check / 3;

    return (struct parts){.base = check % 3,
                          .arguments =
                              added == NG_CHECK_OFF_ARGS / 3 || added >= NG_CHECK_OFF_ARGS_NAN / 3,
                          .nan = added >= NG_CHECK_OFF_NAN / 3};
}

bool ng_check_arguments(void)
{
    return parts_of(ng_guard.config.check).arguments;
}

void ng_check_start(void)
{
    struct parts parts = parts_of(ng_guard.config.check);

    signatures = parts.base != NG_CHECK_OFF;
    arguments = parts.arguments;
    strict = parts.base == NG_CHECK_STRICT;
    strict_across = strict && !getenv("NCCL_COMM_ID");
    nan_wanted = parts.nan && ng_nan_start();
    ng_guard.checks_calls = arguments || strict || nan_wanted;
}

bool ng_check_signatures(void)
{
    return signatures;
}

bool ng_check_strict(void)
{
    return strict;
}

bool ng_check_strict_across(void)
{
    return strict_across;
}

static unsigned rule_of(uint64_t group_id, enum ng_op op)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        unsigned check = NG_LOAD(comm->deadline.check[op]);
        if (check && NG_LOAD(comm->group->id) == group_id)
            return check;
    }
    return NG_RULE_CHECK_UNSAID;
}

bool ng_check_compares(uint64_t group_id)
{
    return rule_of(group_id, NG_OP_NONE) != NG_RULE_CHECK_OFF;
}

bool ng_check_ends(uint64_t group_id, enum ng_op op)
{
    return rule_of(group_id, op) == NG_RULE_CHECK_END;
}

int ng_check_call(const struct ng_call *call, struct ng_call_context *context, char *ret_reason,
                  unsigned bytes)
{
    struct ng_comm *comm = context->comm;
    unsigned rule = NG_LOAD(comm->deadline.check[call->op]);
    int result = NG_CALL_PROCEED;

    bool asks = strict && ng_op_table[call->op].op_class == NG_CLASS_COLLECTIVE;
    if (asks && (context->group_calls || rule == NG_RULE_CHECK_OFF))
        ng_lockstep_pass(comm, context->seq);
    if (rule == NG_RULE_CHECK_OFF)
        return NG_CALL_PROCEED;
    if (arguments) {
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
    if (nan_wanted && result == NG_CALL_PROCEED)
        ng_nan_look_at(call, comm,
                       ng_op_table[call->op].op_class == NG_CLASS_P2P ? 0 : context->seq,
                       NG_LOAD(comm->group->p2p_entered));
    return result;
}

void ng_check_keep_reason(struct ng_comm *comm, const char *reason)
{
    comm->wait.reason.kind = NG_KIND_HEALTHY;
    snprintf(comm->wait.reason.text, sizeof(comm->wait.reason.text), "%s", reason);
    atomic_store(&comm->wait.failed, true);
}
