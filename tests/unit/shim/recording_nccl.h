/*
 * A NCCL that only remembers how it was called: what its functions and the tests that read them
 * share.
 *
 * Built from the same table as the wrappers, so every row has a function on the other side.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_RECORDING_NCCL_H
#define NCCLGUARD_TESTS_UNIT_SHIM_RECORDING_NCCL_H

#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "shim/nccl_compat.h"

enum recording_id {
#define NG_TRACK(name, ...) RECORDING_##name,
#define NG_PASS(name, ...)  RECORDING_##name,
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
    RECORDING_COUNT,
};

#define RECORDING_VERSION 22809

struct recording {
    uint64_t calls; /* so far */
    uint64_t hash;  /* of the last call's arguments */
    int errno_seen; /* at the last call's entry */
};

extern "C" {
/* The record of one function. */
struct recording recording_of(enum recording_id id);
/*
 * From now on functions return recording_value() instead of success, and set errno to
 * `leave_errno`.
 */
void recording_set_distinct(bool distinct, int leave_errno);
/* Runs inside every call of the function, before it returns; NULL: nothing. */
void recording_set_hook(enum recording_id id, void (*hook)(void));
/* Calls ncclAllReduce as NCCL calls itself: through the PLT, from its own code. */
ncclResult_t recording_call_from_inside(void);
}

/* FNV-1a over the bytes of every argument in turn. */
template <typename... Arguments> uint64_t recording_hash(const std::tuple<Arguments...> &arguments)
{
    uint64_t hash = 0xcbf29ce484222325u;

    auto add = [&hash](const auto &argument) {
        static_assert(std::has_unique_object_representations_v<std::decay_t<decltype(argument)>>,
                      "padding would make the hash vary");
        unsigned char bytes[sizeof(argument)];
        memcpy(bytes, &argument, sizeof(bytes));
        for (unsigned char byte : bytes)
            hash = (hash ^ byte) * 0x100000001b3u;
    };
    std::apply([&add](const auto &...each) { (add(each), ...); }, arguments);
    return hash;
}

/* A return value that tells functions apart, as far as its type can. */
template <typename Value> Value recording_value(enum recording_id id)
{
    if constexpr (std::is_same_v<Value, struct ncclTeam>)
        return {1000 + (int)id, 2000 + (int)id, 3000 + (int)id};
    else if constexpr (std::is_same_v<Value, const char *>)
        return (const char *)(uintptr_t)(0x1000 + id);
    else if constexpr (std::is_enum_v<Value>)
        return (Value)(1 + id % 14); /* more bits than the enumerators need would be undefined */
    else if constexpr (!std::is_void_v<Value>)
        return (Value)(1000 + id);
}

#endif
