/*
 * Checks that NCCL and the device can work with the arguments of a call (NCCLGUARD_CHECK=…+args).
 *
 * Program threads, only if configured: it queries the CUDA driver about each buffer. The rules are
 * those of NCCL's own checks (its argument check, and NCCL_CHECK_POINTERS) and of its documentation
 * of in-place operations, plus what a kernel would fault on.
 */
#ifndef NCCLGUARD_CORE_CHECK_ARGUMENTS_H
#define NCCLGUARD_CORE_CHECK_ARGUMENTS_H

#include <stdint.h>

struct ng_call;
struct ng_comm;
struct ng_call_context;

/* NG_NCCL_SUCCESS; or the ncclResult_t for the call and the reason: the argument, its value, and
 * what is allowed. Takes no lock, keeps pending CUDA errors. */
int ng_arguments_check(const struct ng_call *call, const struct ng_comm *comm, char *ret_why,
                       unsigned bytes);

/* Bytes that the call reads from its send buffer on this rank; 0 none, or not known. */
uint64_t ng_arguments_sent_bytes(const struct ng_call *call, const struct ng_comm *comm);

/* Log the fault, once for each operation of a group, and mark the call's record. `result`: what the
 * program gets instead of the call; NG_NCCL_SUCCESS: the call is made. */
void ng_arguments_tell(const struct ng_call *call, struct ng_call_context *context, const char *why,
                       int result);

#endif
