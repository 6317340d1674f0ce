/*
 * Calls NCCL's functions that create communicators on behalf of the program.
 *
 * Program threads.
 */
#ifndef NCCLGUARD_CORE_CALL_CREATE_COMM_H
#define NCCLGUARD_CORE_CALL_CREATE_COMM_H

#include "core/nccl/call.h"

/* Make the program's call, but with this configuration, which may be NULL. Returns NCCL's result.
 * Not for ncclCommInitAll. */
int ng_create_comm(const struct ng_call *call, void *config);

#endif
