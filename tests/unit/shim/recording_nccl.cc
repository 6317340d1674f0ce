/*
 * A NCCL that only remembers how it was called. Entered by the tests' threads.
 */
#include "tests/unit/shim/recording_nccl.h"

#include <atomic>
#include <cerrno>
#include <mutex>

#define EXPORT extern "C" __attribute__((visibility("default")))

static std::mutex lock; /* protects the next two; innermost */
static struct recording recordings[RECORDING_COUNT];
static void (*hooks[RECORDING_COUNT])(void);

static std::atomic<bool> distinct_values;
static std::atomic<int> errno_to_leave;

EXPORT struct recording recording_of(enum recording_id id)
{
    std::lock_guard<std::mutex> guard(lock);
    return recordings[id];
}

EXPORT void recording_set_distinct(bool distinct, int leave_errno)
{
    distinct_values = distinct;
    errno_to_leave = leave_errno;
}

EXPORT void recording_set_hook(enum recording_id id, void (*hook)(void))
{
    std::lock_guard<std::mutex> guard(lock);
    hooks[id] = hook;
}

template <typename... Arguments>
static void record(enum recording_id id, const std::tuple<Arguments...> &arguments)
{
    int seen = errno;
    void (*hook)(void);
    {
        std::lock_guard<std::mutex> guard(lock);
        recordings[id].calls++;
        recordings[id].hash = recording_hash(arguments);
        recordings[id].errno_seen = seen;
        hook = hooks[id];
    }
    if (hook)
        hook();
    if (id == RECORDING_GetVersion && !distinct_values)
        if constexpr (std::is_same_v<std::tuple<Arguments...>, std::tuple<int *>>)
            *std::get<0>(arguments) = RECORDING_VERSION;
    if (errno_to_leave)
        errno = errno_to_leave;
}

template <typename Value> static Value answer(enum recording_id id)
{
    if constexpr (!std::is_void_v<Value>)
        return distinct_values ? recording_value<Value>(id) : Value{};
}

#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    EXPORT type nccl##name prototype                                                               \
    {                                                                                              \
        record(RECORDING_##name, std::make_tuple arguments);                                       \
        return answer<type>(RECORDING_##name);                                                     \
    }
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    NG_PASS(name, major, minor, patch, owner, ncclResult_t, , prototype, arguments, "")
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS

EXPORT ncclResult_t recording_call_from_inside(void)
{
    /* The address comes from the dynamic linker, so it is the wrapper's where there is one. */
    ncclResult_t (*volatile all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                        ncclComm_t, cudaStream_t) = ncclAllReduce;
    ncclResult_t result = all_reduce(nullptr, nullptr, 7, ncclInt8, ncclSum, nullptr, nullptr);

    /* Keeps this from being a tail call, which would hide the return address. */
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return result;
}
