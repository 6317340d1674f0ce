/*
 * Which copy of NCCL serves a call: the one that would have served it without us.
 *
 * Threads of the program, at each call; keeps errno.
 */
#ifndef NCCLGUARD_SHIM_CALLER_H
#define NCCLGUARD_SHIM_CALLER_H

#include <stdatomic.h>
#include <stdint.h>

#include "shim/instance.h"

#pragma GCC visibility push(hidden)

/*
 * The slow path of ng_caller_instance: no library known yet, several, or a call without a
 * communicator. The call goes where it would have gone without us: to the library that created the
 * communicator, else to the one to which the symbols of the caller's object are bound. Never NULL.
 * Keeps errno.
 */
const struct ng_instance *ng_caller_choose(const void *owner, const void *caller);

/*
 * The first object that stays until the end and whose symbols are bound to the first library; of
 * size 0 until it is known. Its calls without a communicator go to that library.
 */
extern struct ng_caller_object {
    _Atomic uintptr_t start, size;
} ng_caller_usual;

/*
 * Before main: find the library that serves the calls of a program linked with NCCL. Doing this
 * later would call the dynamic linker, and a thread that calls NCCL could deadlock with a thread
 * that waits for it inside dlopen.
 */
void ng_caller_start(void);

/* In a forked child. */
void ng_caller_after_fork(void);

#pragma GCC visibility pop

/* The instance that serves a call on `owner`, which is the communicator or NULL. */
static inline const struct ng_instance *ng_caller_instance(const void *owner, const void *caller)
{
    return ng_instance_is_only(owner) ? &ng_instances[0] : ng_caller_choose(owner, caller);
}

#endif
