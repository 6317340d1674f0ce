/*
 * Which checks of calls are wanted, by configuration and rules.
 */
#include "core/check/check.h"

#include <stdlib.h>

#include "core/check/nan.h"
#include "core/comm/comm.h"
#include "core/runtime/runtime.h"

static bool signatures, strict, strict_across, nan; /* written before any guard thread runs */

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
    strict = parts.base == NG_CHECK_STRICT;
    strict_across = strict && !getenv("NCCL_COMM_ID");
    nan = parts.nan && ng_nan_start();
    ng_guard.checks_calls = parts.arguments || strict || nan;
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

bool ng_check_nan(void)
{
    return nan;
}

static unsigned rule_of(uint64_t group_id, enum ng_op op)
{
    NG_EACH_COMM (comm) {
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
