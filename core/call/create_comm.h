/*
 * NCCL's own functions that make communicators, called by the guard in the program's place.
 *
 * Program threads.
 */
#ifndef NCCLGUARD_CORE_CALL_CREATE_COMM_H
#define NCCLGUARD_CORE_CALL_CREATE_COMM_H

#include "core/nccl/call.h"

/* The call as the program made it, but with this configuration, which may be NULL: NCCL's result.
 * Not for ncclCommInitAll. */
int ng_create_comm(const struct ng_call *call, void *config);

#endif
