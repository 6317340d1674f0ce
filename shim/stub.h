/*
 * Stubs: what dlsym returns to a program that fetches a function of NCCL by name. One for each row
 * of the table and each library.
 *
 * A stub stores the library in a thread-local variable and jumps into the wrapper, which reads and
 * clears it. Read by dlsym.S too, hence the two parts.
 */
#ifndef NCCLGUARD_SHIM_STUB_H
#define NCCLGUARD_SHIM_STUB_H

/* Bytes from one stub to the next. */
#define NG_STUB_SIZE 32

#ifndef __ASSEMBLER__

#include "shim/instance.h"

extern const char ng_stubs[] __attribute__((visibility("hidden")));

static inline void *ng_stub(enum ng_api_id id, unsigned instance)
{
    return (void *)&ng_stubs[((unsigned)id * NG_INSTANCES_MAX + instance) * NG_STUB_SIZE];
}

#endif

#endif
