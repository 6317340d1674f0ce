/*
 * The NCCL functions that core uses: a table that the shim fills for each library instance.
 *
 * Functions that the library lacks are NULL. Called with the shim's depth guard set or from the
 * guard's own threads, straight into the library, never through our own wrappers.
 */
#ifndef NCCLGUARD_CORE_NCCL_NCCL_H
#define NCCLGUARD_CORE_NCCL_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/clock.h"

/* Copies of NCCL in one process. */
#define NG_NCCL_MAX 8

/* ncclUniqueId, which calls pass by value. */
struct ng_nccl_unique_id {
    char bytes[128];
};

/* The head of ncclConfig_t up to shrinkShare (2.27), which is append-only; `size` says how much of
 * it the caller has. */
struct ng_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share;
};
#define NG_NCCL_CONFIG_MAGIC 0xcafebeefu

/* Does the caller's configuration say whether the communicator is to block? */
#define NG_NCCL_CONFIG_SAYS_BLOCKING(config)                                                       \
    ((config)->magic == NG_NCCL_CONFIG_MAGIC &&                                                    \
     (config)->size >= offsetof(struct ng_nccl_config, cga_cluster_size))

struct ng_nccl {
    uint32_t index;      /* of the instance in this process, from 0; below NG_NCCL_MAX */
    _Atomic int version; /* ncclGetVersion: 22809 is 2.28.9; 0 before the first call */
    const char *path;    /* of the shared object; "" unknown */
    bool foreign;        /* in another linker namespace: its CUDA is not the one that we use */

    /* ncclResult_t is int here; ncclComm_t is void *. */
    int (*get_unique_id)(struct ng_nccl_unique_id *ret_id);
    int (*comm_init_rank)(void **ret_comm, int nranks, struct ng_nccl_unique_id id, int rank);
    int (*comm_init_rank_config)(void **ret_comm, int nranks, struct ng_nccl_unique_id id, int rank,
                                 void *config);
    int (*comm_init_rank_scalable)(void **ret_comm, int nranks, int rank, int id_count,
                                   struct ng_nccl_unique_id *ids, void *config);
    int (*comm_split)(void *comm, int color, int key, void **ret_comm, void *config);
    int (*comm_shrink)(void *comm, int *excluded, int excluded_count, void **ret_comm, void *config,
                       int flags);
    int (*comm_grow)(void *comm, int nranks, const struct ng_nccl_unique_id *id, int rank,
                     void **ret_comm, void *config);
    int (*comm_abort)(void *comm);
    int (*comm_get_async_error)(void *comm, int *ret_error);
    int (*comm_count)(const void *comm, int *ret_count);
    int (*comm_user_rank)(const void *comm, int *ret_rank);
    int (*comm_cu_device)(const void *comm, int *ret_device);
    int (*comm_register)(void *comm, void *buffer, size_t bytes, void **ret_handle);
    int (*comm_deregister)(void *comm, void *handle);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*all_reduce)(const void *send, void *receive, size_t count, int dtype, int redop,
                      void *comm, void *stream);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(void *comm);
};

/* ncclResult_t values that core distinguishes (nccl.h; part of NCCL's ABI). */
#define NG_NCCL_SUCCESS              0
#define NG_NCCL_UNHANDLED_CUDA_ERROR 1
#define NG_NCCL_SYSTEM_ERROR         2
#define NG_NCCL_INTERNAL_ERROR       3
#define NG_NCCL_INVALID_ARGUMENT     4
#define NG_NCCL_INVALID_USAGE        5
#define NG_NCCL_REMOTE_ERROR         6
#define NG_NCCL_IN_PROGRESS          7

/* How long a program has to handle an error of NCCL or CUDA itself before the guard does. */
#define NG_ASYNC_GRACE_NS NG_S

#endif
