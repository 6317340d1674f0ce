/*
 * NCCL's allocator and the program's own registrations, if the guard registers buffers too.
 *
 * Beside the steps of a call. Entered by the program's threads. Does not change NCCL's results: it
 * reports memory to core/registration/segments.h, and keeps registrations of the guard and of the
 * program from running inside NCCL at the same time, since NCCL has no lock there.
 */
#include "shim/memory_calls.h"

#include "core/call/nonblocking.h"
#include "core/registration/registration_check.h"
#include "core/registration/registrations.h"
#include "core/registration/segment_map.h"
#include "core/registration/segments.h"
#include "core/runtime/runtime.h"
#include "shim/parts.h"
#include "shim/state.h"

/* For the call that this thread is about to make. */
static __thread struct {
    const struct ng_instance *instance;
    struct ng_comm *guest;
    const void *caller;
} call __attribute__((tls_model("initial-exec")));

static ncclResult_t mem_alloc(void **pointer, size_t bytes)
{
    ncclResult_t result = call.instance->functions.MemAlloc(pointer, bytes);

    if (result == ncclSuccess && pointer && *pointer && bytes)
        ng_segments_allocated(NG_SEGMENT_NCCL, (uintptr_t)*pointer, bytes, ng_cuda_memory_device());
    return result;
}

static ncclResult_t mem_free(void *pointer)
{
    const struct ng_instance *instance = call.instance;
    struct ng_segment segment;

    if (ng_registration_check_on() && ng_segment_map_find(pointer, &segment))
        ng_registration_check_freeing(segment.base, segment.bytes, true, call.caller);
    bool known = ng_segments_freeing((uintptr_t)pointer, &segment);
    ncclResult_t result = instance->functions.MemFree(pointer);
    if (result != ncclSuccess && known)
        ng_segments_restore(&segment);
    return result;
}

static ncclResult_t comm_register(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    const struct ng_instance *instance = call.instance;
    struct ng_comm *guest = call.guest;
    const void *caller = call.caller;

    if (!ng_registrations_hold(guest))
        return ncclInternalError;
    ncclResult_t result = instance->functions.CommRegister(comm, buffer, bytes, handle);
    ng_registrations_let_go(guest);
    if (ng_registration_check_on() && result == ncclSuccess && handle)
        ng_registration_check_made(guest, buffer, bytes, *handle, caller);
    return (ncclResult_t)ng_nonblocking_finish_passed(guest, (int)result);
}

static ncclResult_t comm_deregister(const ncclComm_t comm, void *handle)
{
    const struct ng_instance *instance = call.instance;
    struct ng_comm *guest = call.guest;

    if (!ng_registrations_hold(guest))
        return ncclInternalError;
    if (ng_registration_check_on())
        ng_registration_check_ending(guest, handle, call.caller);
    ncclResult_t result = instance->functions.CommDeregister(comm, handle);
    ng_registrations_let_go(guest);
    return result;
}

/* A window is a registration, too. */
#define WINDOW_CALL(name, function, parameters, arguments)                                         \
    static ncclResult_t name parameters                                                            \
    {                                                                                              \
        const struct ng_instance *instance = call.instance;                                        \
        struct ng_comm *guest = call.guest;                                                        \
        if (!ng_registrations_hold(guest))                                                         \
            return ncclInternalError;                                                              \
        ncclResult_t result = instance->functions.function arguments;                              \
        ng_registrations_let_go(guest);                                                            \
        return result;                                                                             \
    }
WINDOW_CALL(comm_window_register, CommWindowRegister,
            (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags),
            (comm, buffer, bytes, window, flags))
WINDOW_CALL(comm_window_deregister, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t window),
            (comm, window))

void *ng_memory_call(enum ng_api_id id, const struct ng_instance *instance, struct ng_comm *guest,
                     const void *caller)
{
    static void *const calls[NG_API_COUNT] = {
        [NG_API_MemAlloc] = (void *)mem_alloc,
        [NG_API_MemFree] = (void *)mem_free,
        [NG_API_CommRegister] = (void *)comm_register,
        [NG_API_CommDeregister] = (void *)comm_deregister,
        [NG_API_CommWindowRegister] = (void *)comm_window_register,
        [NG_API_CommWindowDeregister] = (void *)comm_window_deregister,
    };

    if (!ng_guard.follows_memory)
        return NULL;
    call.instance = instance;
    call.guest = guest;
    call.caller = caller;
    return calls[id];
}
