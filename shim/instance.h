/*
 * The copies of NCCL in this process, each with the table of its real functions.
 *
 * Read by every thread of the program on every call, without a lock; written only when a library is
 * met for the first time. Never loads a library that is not loaded yet, and never lets go of one
 * that it knows: a library of which functions were handed out stays loaded, also after the
 * program's dlclose.
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

#define NG_API_COUNT (sizeof(struct ng_functions) / sizeof(void (*)(void)))

struct ng_instance {
    struct ng_functions functions;
    struct ng_nccl nccl; /* what core sees of it */
    struct ng_object object;
    /* What is next to us in the global scope goes through another interposer: not only `object`'s
     * own functions. */
    bool chained;
    /* Return addresses here are NCCL's own; empty where NCCL is part of a larger library. */
    uintptr_t start;
    uintptr_t size;
};

/* Those whose calls are guarded, and those that are known, so that the calls of the rest still go
 * where they should. */
#define NG_INSTANCES_MAX  NG_NCCL_MAX
#define NG_INSTANCES_ROOM 64

/* Hidden, so that a call reads them without a detour through the global offset table. */
#pragma GCC visibility push(hidden)

/* Entries below the count are complete and never change again, but for the version: it is asked
 * with the first call, since a library that nobody calls is not to be woken. */
extern struct ng_instance ng_instances[NG_INSTANCES_ROOM];
extern atomic_uint ng_instance_count;

/* Bit by index, of the guarded ones: a call of the program reached it. */
extern atomic_uint ng_instance_called;

/* Stands in where no NCCL is loaded: every function of it says so in the log and fails. */
extern const struct ng_instance ng_instance_absent;

/*
 * The slow half of ng_instance_of: no library known yet, several, or a call without a communicator.
 * It goes where it would have gone without us: to the library that made the communicator, else to
 * the one that the symbols of the caller's object lead to. Never NULL. Keeps errno.
 */
const struct ng_instance *ng_instance_choose(const void *owner, const void *caller);

/*
 * The library of its own to which `function`, just looked up by the program under the name of row
 * `id`, belongs; made known if it is new. NULL: it belongs to none (another interposer's), or to
 * one too many (said in the log). Keeps errno.
 */
const struct ng_instance *ng_instance_of_function(enum ng_api_id id, const void *function);

/*
 * Makes libraries known, where they are not; NULL: there is none. They call the dynamic linker and
 * leave it to the caller to clear dlerror.
 *   add            the NCCL that an object holds itself
 *   add_next       what comes next to us in the global scope: the library that the program is
 * linked with, perhaps behind another interposer add_needed_by  what the local scope of an object
 * leads to add_all        all that lie about, by NCCL's name, or by its symbols
 */
const struct ng_instance *ng_instance_add(const struct ng_object *object);
const struct ng_instance *ng_instance_add_next(void);
const struct ng_instance *ng_instance_add_needed_by(const struct ng_object *caller);
void ng_instance_add_all(bool any_name);

/* One line, once: `instance` is one of those that are not guarded. */
void ng_instance_tell_too_many(const struct ng_instance *instance);

/* The slow half of ng_instance_note_call. */
void ng_instance_first_call(const struct ng_instance *instance);

/*
 * Before main: where the calls of a program that is linked with NCCL go. Later the dynamic linker
 * would have to be asked, and a thread that calls NCCL while another one is inside dlopen and waits
 * for it would wait for that other one.
 */
void ng_caller_start(void);

/* In a forked child. */
void ng_instance_after_fork(void);
void ng_caller_after_fork(void);

#pragma GCC visibility pop

/* Whether there is nothing to choose: of a library that is not known no communicator is known
 * either, so the one known library serves the call on `owner`. */
static inline bool ng_instance_is_only(const void *owner)
{
    return owner && atomic_load_explicit(&ng_instance_count, memory_order_acquire) == 1;
}

/* The instance that serves a call on `owner`, the communicator, or NULL. */
static inline const struct ng_instance *ng_instance_of(const void *owner, const void *caller)
{
    return ng_instance_is_only(owner) ? &ng_instances[0] : ng_instance_choose(owner, caller);
}

/* Whether calls of it reach core: not ng_instance_absent, nor one too many. */
static inline bool ng_instance_is_guarded(const struct ng_instance *instance)
{
    return (uintptr_t)instance - (uintptr_t)ng_instances < NG_INSTANCES_MAX * sizeof(*instance);
}

/* A call of the program goes to `instance`, one of ng_instances. */
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
