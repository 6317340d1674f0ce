/*
 * Are the arguments of a call what NCCL and the device can work with (NCCLGUARD_CHECK=…+args)?
 *
 * Program threads, only where it is asked for: it asks the CUDA driver about each buffer. The rules
 * are those of NCCL's own checks (its argument check, and NCCL_CHECK_POINTERS) and of its
 * documentation of in-place operations; beyond them what a kernel would fault on.
 */
#ifndef NCCLGUARD_CORE_CHECK_ARGUMENTS_H
#define NCCLGUARD_CORE_CHECK_ARGUMENTS_H

#include <stdint.h>

struct ng_call;
struct ng_comm;
struct ng_call_context;

/* NG_NCCL_SUCCESS; or the ncclResult_t that the call deserves, and why: the argument, its value,
 * and what is allowed. Takes no lock, keeps pending CUDA errors. */
int ng_arguments_check(const struct ng_call *call, const struct ng_comm *comm, char *ret_why,
                       unsigned bytes);

/* Bytes that the call reads from its send buffer on this rank; 0 none, or not known. */
uint64_t ng_arguments_sent_bytes(const struct ng_call *call, const struct ng_comm *comm);

/* Log it, once for each operation of a group, and mark the call's record. `result`: what the
 * program gets instead of the call; NG_NCCL_SUCCESS: it is made. */
void ng_arguments_tell(const struct ng_call *call, struct ng_call_context *context, const char *why,
                       int result);

#endif
