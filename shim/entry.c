/*
 * The exported functions: one wrapper for each row of nccl_api.def.
 *
 * Entered by the program's threads, by NCCL's own, and by NCCL itself through the PLT (ncclBcast
 * calls ncclBroadcast). Must never change a result, an argument or errno. Does only three things:
 * enter, the real function, leave.
 */
#include <errno.h>
#include <stdatomic.h>

#include "core/call/nonblocking.h"
#include "core/call/work_call.h"
#include "core/comm/ended.h"
#include "core/comm/failure.h"
#include "core/comm/gate.h"
#include "core/comm/thread.h"
#include "core/fault/inject.h"
#include "core/nccl/call.h"
#include "core/policy/abort.h"
#include "core/runtime/unusual.h"
#include "shim/caller.h"
#include "shim/memory_calls.h"
#include "shim/replay.h"
#include "shim/shim.h"
#include "shim/state.h"
#include "shim/stub.h"

void ng_shim_set_active(bool active)
{
    if (active)
        ng_caller_start();
    atomic_store(&ng_shim_active, active);
    ng_unusual_set(NG_UNUSUAL_FORWARDED, !active);
}

void ng_shim_after_fork(void)
{
    ng_instance_after_fork();
    ng_caller_after_fork();
}

/* The slow path of serve(): the call came through a stub, or from inside another one, or has no
 * communicator, or there are several libraries. */
static __attribute__((noinline)) const struct ng_instance *
serve_slowly(const void *owner, const void *caller, bool *ret_bypassed)
{
    uint32_t bound = ng_shim_state.bound;
    const struct ng_instance *instance;

    if (bound) {
        ng_shim_state.bound = 0; /* at once, so that it never applies to another call */
        instance = &ng_instances[bound - 1];
        ng_instance_note_call(instance);
    } else {
        instance = ng_caller_instance(owner, caller);
    }
    *ret_bypassed = ng_shim_state.depth > 0 || !ng_instance_is_guarded(instance);
    return instance;
}

/*
 * The library that serves a call: the one named by a stub, or the one to which the symbol is bound.
 * *ret_bypassed: the call is forwarded untouched, since the guard is already active on this thread,
 * or core does not know the library.
 */
static inline const struct ng_instance *serve(const void *owner, const void *caller,
                                              bool *ret_bypassed)
{
    if (__builtin_expect(ng_shim_state.any == 0 && ng_instance_is_only(owner), 1)) {
        *ret_bypassed = false;
        return &ng_instances[0];
    }
    return serve_slowly(owner, caller, ret_bypassed);
}

/* Calls that are also forwarded untouched: the guard is off, or NCCL calls itself. */
static inline bool is_bypassed(bool bypassed, const void *caller)
{
    return __builtin_expect(bypassed ||
                                !atomic_load_explicit(&ng_shim_active, memory_order_relaxed) ||
                                ng_instance_contains(caller),
                            0);
}

/* The thread comes from a stub of the only library: as serve_slowly(). False: it does not. */
static __attribute__((noinline)) bool leave_stub(void)
{
    if (ng_shim_state.depth > 0 || ng_shim_state.bound != 1)
        return false;
    ng_shim_state.bound = 0;
    ng_instance_note_call(&ng_instances[0]);
    return true;
}

/*
 * The short way (core/call/work_call.h): a collective, send or receive of the program on a known
 * communicator, while nothing is unusual. Then only one library is known.
 */
static inline bool is_usual(const void *caller)
{
    return __builtin_expect(!atomic_load_explicit(&ng_unusual, memory_order_acquire), 1) &&
           __builtin_expect((uintptr_t)caller - ng_instances[0].start >= ng_instances[0].size, 1) &&
           (__builtin_expect(ng_shim_state.any == 0, 1) || leave_stub());
}

/* The same for a call without a communicator: from the object whose calls go to the only library,
 * or from a stub of that library. */
static inline bool is_usual_without_comm(const void *caller)
{
    uintptr_t size = atomic_load_explicit(&ng_caller_usual.size, memory_order_acquire);
    uintptr_t start = atomic_load_explicit(&ng_caller_usual.start, memory_order_relaxed);

    if (__builtin_expect(atomic_load_explicit(&ng_unusual, memory_order_acquire), 0))
        return false;
    if (__builtin_expect(ng_shim_state.any == 0, 1))
        return __builtin_expect((uintptr_t)caller - start < size, 1);
    return (uintptr_t)caller - ng_instances[0].start >= ng_instances[0].size && leave_stub();
}

#define NG_EXPORT __attribute__((visibility("default")))

/* The name to which stubs jump: the exported one could lead to an interposer before us. */
#define NG_ENTRY(api_name, type, prototype)                                                        \
    extern type ng_entry_##api_name prototype                                                      \
        __attribute__((alias("nccl" #api_name), visibility("hidden")));

/* A compile-time constant: each wrapper keeps one branch. */
#define IS_COLLECTIVE(op_name) ((int)NG_OP_CLASS_##op_name == (int)NG_CLASS_COLLECTIVE)
#define IS_P2P(op_name)        ((int)NG_OP_CLASS_##op_name == (int)NG_CLASS_P2P)
#define IS_GROUP(op_name)      ((int)NG_OP_CLASS_##op_name == (int)NG_CLASS_GROUP)

/* For rows that create communicators. */
#define NG_CREATION(...)                                                                           \
    .creation = &(const struct ng_creation)                                                        \
    {                                                                                              \
        .rank = -1, __VA_ARGS__                                                                    \
    }

/* Defaults first, then the row's own fields: the later initialiser takes effect. */
#pragma GCC diagnostic ignored "-Woverride-init"

/*
 * What an injected fault may change, by the parameter names of the rows. A row without one of these
 * parameters refers to these variables instead, which are never read.
 */
#define NG_TLS_OWN __attribute__((tls_model("initial-exec")))
static __thread size_t count NG_TLS_OWN, sendcount NG_TLS_OWN, recvcount NG_TLS_OWN;
static __thread ncclDataType_t datatype NG_TLS_OWN;
static __thread ncclRedOp_t op NG_TLS_OWN;
static __thread int root NG_TLS_OWN, peer NG_TLS_OWN, nranks NG_TLS_OWN;
static __thread ncclUniqueId *commIds NG_TLS_OWN;

/* The current value in core. */
#define NG_TAKE_ARGUMENTS(op_name)                                                                 \
    if (IS_COLLECTIVE(op_name) || IS_P2P(op_name)) {                                               \
        count = sendcount = recvcount = (size_t)ng_call.count;                                     \
        datatype = (ncclDataType_t)ng_call.dtype;                                                  \
        op = (ncclRedOp_t)ng_call.redop;                                                           \
        root = peer = ng_call.root;                                                                \
    } else if (ng_call.creation) {                                                                 \
        nranks = ng_call.creation->nranks;                                                         \
        commIds = (ncclUniqueId *)ng_call.creation->unique_ids;                                    \
    }

/*
 * The depth also covers enter and leave, so that calls of core there are not taken for the
 * program's. `real` is the call of NCCL.
 */
#define NG_THROUGH(op_name, real)                                                                  \
    struct ng_call_context ng_call_context;                                                        \
                                                                                                   \
    ng_shim_state.depth = 1;                                                                       \
    int ng_answer = IS_COLLECTIVE(op_name) ? ng_collective_enter(&ng_call, &ng_call_context)       \
                    : IS_P2P(op_name)      ? ng_p2p_enter(&ng_call, &ng_call_context)              \
                                           : ng_call_enter(&ng_call, &ng_call_context);                 \
    *ng_errno = ng_saved;                                                                          \
    if (__builtin_expect(ng_answer != NG_CALL_PROCEED, 0)) {                                       \
        ng_shim_state.depth = 0;                                                                   \
        return (ncclResult_t)ng_answer;                                                            \
    }                                                                                              \
    ncclResult_t ng_result = real;                                                                 \
    ng_saved = *ng_errno;                                                                          \
    if (IS_COLLECTIVE(op_name))                                                                    \
        ng_result = (ncclResult_t)ng_collective_leave(&ng_call, &ng_call_context, (int)ng_result); \
    else if (IS_P2P(op_name))                                                                      \
        ng_result = (ncclResult_t)ng_p2p_leave(&ng_call, &ng_call_context, (int)ng_result);        \
    else                                                                                           \
        ng_result = (ncclResult_t)ng_call_leave(&ng_call, &ng_call_context, (int)ng_result);       \
    ng_shim_state.depth = 0;                                                                       \
    *ng_errno = ng_saved;

/* A compile-time constant, too. */
#define IS_MEMORY_CALL(api_name)                                                                   \
    (__builtin_strcmp(#api_name, "MemAlloc") == 0 ||                                               \
     __builtin_strcmp(#api_name, "MemFree") == 0 ||                                                \
     __builtin_strcmp(#api_name, "CommRegister") == 0 ||                                           \
     __builtin_strcmp(#api_name, "CommDeregister") == 0 ||                                         \
     __builtin_strcmp(#api_name, "CommWindowRegister") == 0 ||                                     \
     __builtin_strcmp(#api_name, "CommWindowDeregister") == 0)

/* The call of NCCL; or of what stands before it, if the guard follows the program's memory. */
#define NG_REAL(api_name, arguments)                                                               \
    ({                                                                                             \
        __typeof__(ng_instance->functions.api_name) ng_seen =                                      \
            IS_MEMORY_CALL(api_name)                                                               \
                ? (__typeof__(ng_seen))ng_memory_call(NG_API_##api_name, ng_instance,              \
                                                      ng_call_context.comm, ng_caller)             \
                : NULL;                                                                            \
        ng_seen ? ng_seen arguments : ng_instance->functions.api_name arguments;                   \
    })

/* The wrappers, by the names that stubs use. */
static const struct ng_functions wrappers;

static inline void end_injected(struct ng_injection *injection)
{
    ng_replay_end(injection, &wrappers);
}

/* The same if faults are armed. */
#define NG_THROUGH_INJECTED(api_name, op_name, arguments)                                          \
    struct ng_injection ng_injection __attribute__((cleanup(end_injected)));                       \
                                                                                                   \
    ng_shim_state.depth = 1;                                                                       \
    int ng_injected = ng_inject_enter(&ng_call, &ng_injection);                                    \
    ng_shim_state.depth = 0;                                                                       \
    *ng_errno = ng_saved;                                                                          \
    if (ng_injected != NG_CALL_PROCEED)                                                            \
        return (ncclResult_t)ng_injected;                                                          \
    NG_TAKE_ARGUMENTS(op_name)                                                                     \
    NG_THROUGH(op_name, (ncclResult_t)ng_inject_result(&ng_call, &ng_injection,                    \
                                                       ng_injection.replaces                       \
                                                           ? ng_injection.result                   \
                                                           : (int)NG_REAL(api_name, arguments)))   \
    return ng_result;

/*
 * The same for a usual call: all of it stands in the wrapper. That is a collective outside of NCCL
 * groups, or a send or receive inside of one. The others, and what is captured into a CUDA graph,
 * go through core's functions. Those restore errno where they may have changed it.
 */
#define NG_FIELDS(op_name, owner, ...)                                                             \
    {                                                                                              \
        .dtype = -1, .redop = -1, .root = -1, .op = NG_OP_##op_name,                               \
        .nccl = &ng_instances[0].nccl, .caller = ng_caller, .comm = owner, __VA_ARGS__             \
    }

#define NG_SHORT_WAY(api_name, op_name, owner, arguments, ...)                                     \
    const struct ng_call ng_call = NG_FIELDS(op_name, owner, __VA_ARGS__);                         \
    struct ng_call_context ng_context;                                                             \
    int ng_answer;                                                                                 \
                                                                                                   \
    ng_shim_state.depth = 1;                                                                       \
    if (__builtin_expect(!ng_work_is_short(ng_thread, IS_P2P(op_name)), 0)) {                      \
        struct ng_call call_copy = ng_call;                                                        \
        struct ng_call_context context_copy;                                                       \
        ng_answer = IS_P2P(op_name) ? ng_p2p_enter(&call_copy, &context_copy)                      \
                                    : ng_collective_enter(&call_copy, &context_copy);              \
        if (ng_answer == NG_CALL_PROCEED)                                                          \
            NG_LEAVE_SLOWLY(api_name, op_name, arguments)                                          \
    } else if (__builtin_expect(                                                                   \
                   (ng_answer = ng_work_enter(&ng_call, IS_P2P(op_name), true, ng_thread, ng_comm, \
                                              IS_P2P(op_name) ? &ng_thread->first : NULL,          \
                                              &ng_context)) != NG_CALL_PROCEED,                    \
                   0)) {                                                                           \
        ;                                                                                          \
    } else if (__builtin_expect(!IS_P2P(op_name) && !ng_context.work, 0)) {                        \
        struct ng_call ng_again = ng_work_later(&ng_call, &ng_context);                            \
        NG_WORK_COPY(&ng_again, &ng_context, ng_thread);                                           \
        NG_LEAVE_SLOWLY(api_name, op_name, arguments)                                              \
    } else {                                                                                       \
        ng_answer = (int)ng_instances[0].functions.api_name arguments;                             \
        ng_answer =                                                                                \
            ng_work_leave(&ng_call, IS_P2P(op_name), true, ng_thread, &ng_context, ng_answer);     \
    }                                                                                              \
    ng_shim_state.depth = 0;                                                                       \
    return (ncclResult_t)ng_answer;

#define NG_LEAVE_SLOWLY(api_name, op_name, arguments)                                              \
    {                                                                                              \
        ng_answer = (int)ng_instances[0].functions.api_name arguments;                             \
        ng_answer = IS_P2P(op_name) ? ng_p2p_leave(&call_copy, &context_copy, ng_answer)           \
                                    : ng_collective_leave(&call_copy, &context_copy, ng_answer);   \
    }

/* The short way of opening and closing NCCL groups. */
#define NG_GROUP_WAY(api_name, op_name, arguments)                                                 \
    static const struct ng_call ng_call = {.dtype = -1,                                            \
                                           .redop = -1,                                            \
                                           .root = -1,                                             \
                                           .op = NG_OP_##op_name,                                  \
                                           .nccl = &ng_instances[0].nccl};                         \
    int ng_answer = NG_CALL_PROCEED, ng_saved;                                                     \
                                                                                                   \
    ng_shim_state.depth = 1;                                                                       \
    if (NG_OP_##op_name != NG_OP_GroupStart || ng_thread->open_groups) {                           \
        ng_saved = *ng_thread->errno_at;                                                           \
        ng_answer = ng_group_calls_enter(&ng_call, ng_thread);                                     \
        *ng_thread->errno_at = ng_saved;                                                           \
    }                                                                                              \
    if (__builtin_expect(ng_answer == NG_CALL_PROCEED, 1)) {                                       \
        ng_answer = (int)ng_instances[0].functions.api_name arguments;                             \
        if (NG_OP_##op_name == NG_OP_GroupStart && ng_answer == NG_NCCL_SUCCESS) {                 \
            ng_group_calls_open(&ng_thread->first, ng_thread);                                     \
        } else {                                                                                   \
            ng_saved = *ng_thread->errno_at;                                                       \
            ng_answer = ng_group_calls_leave(&ng_call, ng_thread, ng_answer);                      \
            *ng_thread->errno_at = ng_saved;                                                       \
        }                                                                                          \
    }                                                                                              \
    ng_shim_state.depth = 0;                                                                       \
    return (ncclResult_t)ng_answer;

/* If the header declares a function, the compiler checks this definition against it. */
#define NG_TRACK(api_name, major, minor, patch, op_name, owner, prototype, arguments, ...)         \
    static __attribute__((noinline)) ncclResult_t long_way_##api_name prototype                    \
    {                                                                                              \
        const void *ng_caller = ng_shim_state.caller;                                              \
        bool ng_bypassed;                                                                          \
        const struct ng_instance *ng_instance = serve(owner, ng_caller, &ng_bypassed);             \
                                                                                                   \
        if (is_bypassed(ng_bypassed, ng_caller))                                                   \
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
        if (__builtin_expect(ng_inject_armed, 0)) {                                                \
            NG_THROUGH_INJECTED(api_name, op_name, arguments)                                      \
        }                                                                                          \
        NG_THROUGH(op_name, NG_REAL(api_name, arguments))                                          \
        return ng_result;                                                                          \
    }                                                                                              \
    NG_EXPORT ncclResult_t nccl##api_name prototype                                                \
    {                                                                                              \
        const void *ng_caller = __builtin_return_address(0);                                       \
                                                                                                   \
        if ((IS_COLLECTIVE(op_name) || IS_P2P(op_name)) && is_usual(ng_caller)) {                  \
            struct ng_thread *ng_thread = ng_this_thread;                                          \
            struct ng_comm *ng_comm = ng_thread_find_comm(ng_thread, owner);                       \
            if (__builtin_expect(ng_comm != NULL, 1)) {                                            \
                NG_SHORT_WAY(api_name, op_name, owner, arguments, __VA_ARGS__)                     \
            }                                                                                      \
        }                                                                                          \
        if (IS_GROUP(op_name)) {                                                                   \
            struct ng_thread *ng_thread = ng_this_thread;                                          \
            if (__builtin_expect(                                                                  \
                    ng_thread_is_known(ng_thread) && is_usual_without_comm(ng_caller), 1)) {       \
                NG_GROUP_WAY(api_name, op_name, arguments)                                         \
            }                                                                                      \
        }                                                                                          \
        ng_shim_state.caller = ng_caller;                                                          \
        return long_way_##api_name arguments;                                                      \
    }                                                                                              \
    NG_ENTRY(api_name, ncclResult_t, prototype)

static inline void leave_depth(uint32_t **depth)
{
    --**depth;
}

static inline void leave_comm(struct ng_comm **guest)
{
    if (*guest)
        ng_gate_leave(*guest);
}

static inline const char *closed_text(const void *owner)
{
    const char *reason = ng_abort_reason(owner);
    return reason ? reason : "";
}

/* Frameworks ask for the reason without a communicator if none was created. */
#define IS_LAST_ERROR(api_name) (__builtin_strcmp(#api_name, "GetLastError") == 0)

/* A forwarded call that failed is reported like those that core sees; a function that the library
 * lacks was reported already. */
static __attribute__((noinline, cold)) void tell_failed(const struct ng_instance *instance,
                                                        const struct ng_comm *guest,
                                                        const char *name, int result)
{
    int saved = errno;

    ng_failure_tell_passed(name, &instance->nccl, guest, result);
    errno = saved;
}

#define NG_GIVES_RESULT(api_name, prototype)                                                       \
    _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype : true, default : false)

#define NG_RESULT(api_name, prototype, result)                                                     \
    _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype                            \
             : (result), default                                                                   \
             : ncclSuccess)

#define NG_TELL_FAILED(api_name, result)                                                           \
    if (__builtin_expect((result) != ncclSuccess && (result) != NG_NCCL_IN_PROGRESS, 0) &&         \
        !is_bypassed(ng_bypassed, ng_caller) &&                                                    \
        ng_instance->functions.api_name != ng_instance_absent.functions.api_name)                  \
        tell_failed(ng_instance, ng_guest, #api_name, (int)(result));

/*
 * The depth covers these as well: some of NCCL's functions call others through the PLT. On a
 * communicator that the guard has aborted, a function that returns a result returns the error, one
 * that returns a text returns the reason, and any other returns its value for a missing function.
 */
#define NG_PASS(api_name, major, minor, patch, owner, type, missing, prototype, arguments, reason) \
    static inline type closed_##api_name(void)                                                     \
    {                                                                                              \
        return missing;                                                                            \
    }                                                                                              \
    NG_EXPORT type nccl##api_name prototype                                                        \
    {                                                                                              \
        const void *ng_caller = __builtin_return_address(0);                                       \
        bool ng_bypassed;                                                                          \
        const struct ng_instance *ng_instance = serve(owner, ng_caller, &ng_bypassed);             \
        __attribute__((cleanup(leave_depth))) uint32_t *ng_depth = &ng_shim_state.depth;           \
        __attribute__((cleanup(leave_comm))) struct ng_comm *ng_guest = NULL;                      \
                                                                                                   \
        ++*ng_depth;                                                                               \
        if (owner && !is_bypassed(ng_bypassed, ng_caller)) {                                       \
            int ng_answer = ng_gate_visit(owner, &ng_guest);                                       \
            if (__builtin_expect(ng_answer != NG_CALL_PROCEED, 0)) {                               \
                ng_answer = ng_ended_passed(owner, #api_name, ng_answer);                          \
                return _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype         \
                                : (ncclResult_t)ng_answer, const char *(*)prototype                \
                                : closed_text(owner), default                                      \
                                : closed_##api_name());                                            \
            }                                                                                      \
            bool ng_is_text = _Generic(ng_instance->functions.api_name, const char *(*)prototype   \
                                       : true, default                                             \
                                       : false);                                                   \
            if (ng_is_text && ng_abort_reason(owner))                                              \
                return _Generic(ng_instance->functions.api_name, const char *(*)prototype          \
                                : closed_text(owner), default                                      \
                                : closed_##api_name());                                            \
        } else if (IS_LAST_ERROR(api_name) && !is_bypassed(ng_bypassed, ng_caller) &&              \
                   ng_abort_reason(NULL)) {                                                        \
            return _Generic(ng_instance->functions.api_name, const char *(*)prototype              \
                            : closed_text(NULL), default                                           \
                            : closed_##api_name());                                                \
        }                                                                                          \
        if (IS_MEMORY_CALL(api_name) && !is_bypassed(ng_bypassed, ng_caller)) {                    \
            type(*ng_seen) prototype = (type(*) prototype)ng_memory_call(                          \
                NG_API_##api_name, ng_instance, ng_guest, ng_caller);                              \
            if (ng_seen) {                                                                         \
                ncclResult_t ng_result = NG_RESULT(api_name, prototype, ng_seen arguments);        \
                NG_TELL_FAILED(api_name, ng_result)                                                \
                return _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype         \
                                : ng_result, default                                               \
                                : closed_##api_name());                                            \
            }                                                                                      \
        }                                                                                          \
        if (!NG_GIVES_RESULT(api_name, prototype))                                                 \
            return _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype             \
                            : closed_##api_name(), default                                         \
                            : ng_instance->functions.api_name arguments);                          \
        /* It may be in progress on a communicator that the guard has made nonblocking. */         \
        ncclResult_t ng_result = (ncclResult_t)ng_nonblocking_finish_passed(                       \
            ng_guest,                                                                              \
            (int)NG_RESULT(api_name, prototype, ng_instance->functions.api_name arguments));       \
        NG_TELL_FAILED(api_name, ng_result)                                                        \
        return _Generic(ng_instance->functions.api_name, ncclResult_t(*) prototype                 \
                        : ng_result, default                                                       \
                        : closed_##api_name());                                                    \
    }                                                                                              \
    NG_ENTRY(api_name, type, prototype)

#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS

static const struct ng_functions wrappers = {
#define NG_TRACK(name, ...) .name = ng_entry_##name,
#define NG_PASS(name, ...)  .name = ng_entry_##name,
#include "shim/nccl_api.def"
};
