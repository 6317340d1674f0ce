/*
 * The copies of NCCL in this process, each with the table of its real functions.
 *
 * Step 5 of a call's life. Read by every thread of the program on every call, without a lock;
 * written only when a library is met for the first time. Never loads a library that is not loaded
 * yet, and never lets go of one that it knows.
 */
#ifndef NCCLGUARD_SHIM_INSTANCE_H
#define NCCLGUARD_SHIM_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/nccl.h"
#include "shim/nccl_compat.h"

/* One number for each row of nccl_api.def; an index into ng_api_table. */
enum ng_api_id {
#define NG_TRACK(name, ...) NG_API_##name,
#define NG_PASS(name, ...)  NG_API_##name,
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

/* The real functions. Never NULL: one that the library lacks says so in the log and fails. */
struct ng_functions {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t(*name) prototype;
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type(*name) prototype;
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

struct ng_instance {
    struct ng_functions functions;
    struct ng_nccl nccl; /* what core sees of it */
    void *handle;        /* of dlopen; holds the library in memory */
    uintptr_t base;      /* load address: the instance's identity */
    /* Return addresses here are NCCL's own; empty where NCCL is part of a larger library. */
    uintptr_t start;
    uintptr_t size;
};

#define NG_INSTANCES_MAX 8

/* Hidden, so that a call reads them without a detour through the global offset table. */
#pragma GCC visibility push(hidden)

/* Entries below the count are complete and never change again. */
extern struct ng_instance ng_instances[NG_INSTANCES_MAX];
extern atomic_uint ng_instance_count;

/* Stands in where no NCCL is loaded: every function of it says so in the log and fails. */
extern const struct ng_instance ng_instance_absent;

#pragma GCC visibility pop

/*
 * The slow half of ng_instance_of: none known yet (looks for one), or several. Keeps errno.
 * The one place where a handle is bound to an instance.
 */
const struct ng_instance *ng_instance_choose(const void *owner);

/* The instance that serves a call on `owner` (a communicator, or NULL). Never NULL. */
static inline const struct ng_instance *ng_instance_of(const void *owner)
{
    if (__builtin_expect(atomic_load_explicit(&ng_instance_count, memory_order_acquire) == 1, 1))
        return &ng_instances[0];
    return ng_instance_choose(owner);
}

/* Whether a return address lies in a NCCL library. */
static inline bool ng_instance_contains(const void *address)
{
    unsigned count = atomic_load_explicit(&ng_instance_count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++)
        if ((uintptr_t)address - ng_instances[i].start < ng_instances[i].size)
            return true;
    return false;
}

#endif
