/*
 * The exported functions: one wrapper for each row of nccl_api.def.
 *
 * Step 1 of a call's life, and the frame around steps 2 to 6. Entered by the program's threads, by
 * NCCL's own, and by NCCL itself through the PLT (ncclBcast calls ncclBroadcast). Must never change
 * a result, an argument or errno, and does nothing on the way but enter, the real function, leave.
 */
#include <errno.h>
#include <stdatomic.h>

#include "core/call.h"
#include "shim/depth.h"
#include "shim/instance.h"
#include "shim/shim.h"

__thread unsigned ng_shim_depth NG_TLS_INITIAL_EXEC;

static atomic_bool shim_active;

void ng_shim_set_active(bool active)
{
    atomic_store(&shim_active, active);
}

void ng_shim_adopt_thread(void)
{
    ng_shim_depth++;
}

/* Calls that go on untouched: the guard is off, NCCL calls itself, or there is no NCCL. */
static inline bool is_bypassed(const struct ng_instance *instance, const void *caller)
{
    return __builtin_expect(!atomic_load_explicit(&shim_active, memory_order_relaxed) ||
                                ng_shim_depth > 0 || instance == &ng_instance_absent ||
                                ng_instance_contains(caller),
                            0);
}

#define NG_EXPORT __attribute__((visibility("default")))

/* Known when this is compiled: each wrapper keeps one branch. */
#define IS_COLLECTIVE(op_name) ((int)NG_OP_CLASS_##op_name == (int)NG_CLASS_COLLECTIVE)
#define IS_P2P(op_name)        ((int)NG_OP_CLASS_##op_name == (int)NG_CLASS_P2P)

/* Of rows that make communicators. */
#define NG_CREATION(...)                                                                           \
    .creation = &(const struct ng_creation)                                                        \
    {                                                                                              \
        .rank = -1, __VA_ARGS__                                                                    \
    }

/* Defaults first, then the row's own fields: the later initialiser counts. */
#pragma GCC diagnostic ignored "-Woverride-init"

/*
 * The depth also covers enter and leave, so that nothing core does there is taken for the
 * program's. Where the header declares a function, the compiler checks this definition against it.
 */
#define NG_TRACK(api_name, major, minor, patch, op_name, owner, prototype, arguments, ...)         \
    NG_EXPORT ncclResult_t nccl##api_name prototype                                                \
    {                                                                                              \
        const void *ng_caller = __builtin_return_address(0);                                       \
        const struct ng_instance *ng_instance = ng_instance_of(owner);                             \
                                                                                                   \
        if (is_bypassed(ng_instance, ng_caller))                                                   \
            return ng_instance->functions.api_name arguments;                                      \
                                                                                                   \
        struct ng_call ng_call = {.dtype = -1,                                                     \
                                  .redop = -1,                                                     \
                                  .root = -1,                                                      \
                                  .op = NG_OP_##op_name,                                           \
                                  .nccl = &ng_instance->nccl,                                      \
                                  .caller = ng_caller,                                             \
                                  .comm = owner,                                                   \
                                  __VA_ARGS__};                                                    \
        int *ng_errno = &errno;                                                                    \
        int ng_saved = *ng_errno;                                                                  \
                                                                                                   \
        struct ng_passage ng_passage;                                                              \
                                                                                                   \
        ng_shim_depth = 1;                                                                         \
        if (IS_COLLECTIVE(op_name))                                                                \
            ng_collective_enter(&ng_call, &ng_passage);                                            \
        else if (IS_P2P(op_name))                                                                  \
            ng_p2p_enter(&ng_call, &ng_passage);                                                   \
        else                                                                                       \
            ng_call_enter(&ng_call, &ng_passage);                                                  \
        *ng_errno = ng_saved;                                                                      \
        ncclResult_t ng_result = ng_instance->functions.api_name arguments;                        \
        ng_saved = *ng_errno;                                                                      \
        if (IS_COLLECTIVE(op_name))                                                                \
            ng_collective_leave(&ng_call, &ng_passage, (int)ng_result);                            \
        else if (IS_P2P(op_name))                                                                  \
            ng_p2p_leave(&ng_call, &ng_passage, (int)ng_result);                                   \
        else                                                                                       \
            ng_call_leave(&ng_call, &ng_passage, (int)ng_result);                                  \
        ng_shim_depth = 0;                                                                         \
        *ng_errno = ng_saved;                                                                      \
        return ng_result;                                                                          \
    }

static inline void leave_depth(unsigned **depth)
{
    --**depth;
}

/* The depth covers these as well: some of NCCL's functions call others through the PLT. */
#define NG_PASS(api_name, major, minor, patch, owner, type, missing, prototype, arguments, reason) \
    NG_EXPORT type nccl##api_name prototype                                                        \
    {                                                                                              \
        const struct ng_instance *ng_instance = ng_instance_of(owner);                             \
        __attribute__((cleanup(leave_depth))) unsigned *ng_depth = &ng_shim_depth;                 \
                                                                                                   \
        ++*ng_depth;                                                                               \
        return ng_instance->functions.api_name arguments;                                          \
    }

#include "shim/nccl_api.def"
