/*
 * What core may ask of a NCCL library: a table that the shim fills for each library instance.
 *
 * Functions that the library lacks are NULL. Called with the shim's depth guard set or from the
 * guard's own threads, straight into the library, never through our own wrappers.
 */
#ifndef NCCLGUARD_CORE_NCCL_H
#define NCCLGUARD_CORE_NCCL_H

#include <stdbool.h>
#include <stdint.h>

/* Copies of NCCL in one process. */
#define NG_NCCL_MAX 8

struct ng_nccl {
    uint32_t index;   /* of the instance in this process, from 0; below NG_NCCL_MAX */
    int version;      /* ncclGetVersion: 22809 is 2.28.9; 0 not known yet */
    const char *path; /* of the shared object; "" unknown */
    bool foreign;     /* in another namespace of the linker: its CUDA is not the one that we know */

    /* ncclResult_t is int here; ncclComm_t is void *. */
    int (*comm_abort)(void *comm);
    int (*comm_get_async_error)(void *comm, int *ret_error);
    int (*comm_count)(const void *comm, int *ret_count);
    int (*comm_user_rank)(const void *comm, int *ret_rank);
    int (*comm_cu_device)(const void *comm, int *ret_device);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(void *comm);
};

/* ncclResult_t values that core must tell apart (nccl.h; part of NCCL's ABI). */
#define NG_NCCL_SUCCESS          0
#define NG_NCCL_SYSTEM_ERROR     2
#define NG_NCCL_INVALID_ARGUMENT 4
#define NG_NCCL_REMOTE_ERROR     6
#define NG_NCCL_IN_PROGRESS      7

#endif
