/*
 * The copies of NCCL in this process, each with the table of its real functions.
 *
 * Every thread of the program reads it on every call, without a lock; it is written only when a
 * library is seen for the first time. Never loads a library that is not loaded yet, and never
 * releases one that it knows: once its functions were handed out, a library stays loaded, even
 * after the program's dlclose.
 */
#ifndef NCCLGUARD_SHIM_INSTANCE_H
#define NCCLGUARD_SHIM_INSTANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/nccl.h"
#include "shim/nccl_compat.h"
#include "shim/object.h"

/* One number for each row of nccl_api.def; an index into ng_api_table. */
enum ng_api_id {
#define NG_TRACK(name, ...) NG_API_##name,
#define NG_PASS(name, ...)  NG_API_##name,
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

/* The real functions. Never NULL: a function that the library lacks is a stand-in that logs this
 * and fails. */
struct ng_functions {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t(*name) prototype;
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type(*name) prototype;
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

#define NG_API_COUNT (sizeof(struct ng_functions) / sizeof(void (*)(void)))

struct ng_instance {
    struct ng_functions functions;
    struct ng_nccl nccl; /* core's view of it */
    struct ng_object object;
    /* The next definition in the global scope belongs to another interposer: not all functions are
     * `object`'s own. */
    bool chained;
    /* Return addresses in this range are NCCL's own; empty if NCCL is part of a larger library. */
    uintptr_t start;
    uintptr_t size;
};

/* Bounds: libraries whose calls are guarded, and libraries that are known, so that calls of the
 * others still reach the right library. */
#define NG_INSTANCES_MAX  NG_NCCL_MAX
#define NG_INSTANCES_ROOM 64

/* Hidden visibility, so that a call reads them without the global offset table. */
#pragma GCC visibility push(hidden)

/* Entries below the count are complete and never change again, except for the version: it is read
 * at the first call, so that an unused library is not initialised. */
extern struct ng_instance ng_instances[NG_INSTANCES_ROOM];
extern atomic_uint ng_instance_count;

/* One bit per index, for guarded libraries: a call of the program reached it. */
extern atomic_uint ng_instance_called;

/* Used when no NCCL is loaded: each of its functions logs this and fails. */
extern const struct ng_instance ng_instance_absent;

/*
 * The library to which `function` itself belongs, which the program has just looked up under the
 * name of row `id`; registered if it is new. NULL: it belongs to none (another interposer's), or
 * the table is full (logged). Keeps errno.
 */
const struct ng_instance *ng_instance_of_function(enum ng_api_id id, const void *function);

/*
 * Register libraries that are not known yet; NULL: there is none. They call the dynamic linker; the
 * caller must clear dlerror.
 *   add            the NCCL that an object contains itself
 *   add_next       the next definition in the global scope: the library that the program is linked
 *                  with, perhaps behind another interposer
 *   add_needed_by  what the local scope of an object leads to
 *   add_all        all loaded copies, by NCCL's name, or by its symbols
 */
const struct ng_instance *ng_instance_add(const struct ng_object *object);
const struct ng_instance *ng_instance_add_next(void);
const struct ng_instance *ng_instance_add_needed_by(const struct ng_object *caller);
void ng_instance_add_all(bool any_name);

/* "2.28.9": until 2.8 the number had one digit less. */
#define NG_VERSION_TEXT_BYTES 32
const char *ng_instance_version_text(int version, char buffer[NG_VERSION_TEXT_BYTES]);

/* Logged once: `instance` is one of those that are not guarded. */
void ng_instance_tell_too_many(const struct ng_instance *instance);

/* The slow path of ng_instance_note_call. */
void ng_instance_first_call(const struct ng_instance *instance);

/* In a forked child. */
void ng_instance_after_fork(void);

#pragma GCC visibility pop

/* Whether there is nothing to choose: communicators of an unknown library are not known either, so
 * the only known library serves the call on `owner`. */
static inline bool ng_instance_is_only(const void *owner)
{
    return owner && atomic_load_explicit(&ng_instance_count, memory_order_acquire) == 1;
}

/* Whether its calls reach core: it is neither ng_instance_absent nor beyond the table's bound. */
static inline bool ng_instance_is_guarded(const struct ng_instance *instance)
{
    return (uintptr_t)instance - (uintptr_t)ng_instances < NG_INSTANCES_MAX * sizeof(*instance);
}

/* A call of the program goes to `instance`, which is in ng_instances. */
static inline void ng_instance_note_call(const struct ng_instance *instance)
{
    unsigned bit = ng_instance_is_guarded(instance) ? 1u << (instance - ng_instances) : 0;

    if (bit && __builtin_expect(
                   !(atomic_load_explicit(&ng_instance_called, memory_order_acquire) & bit), 0))
        ng_instance_first_call(instance);
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
