/*
 * One intercepted NCCL call, as the shim passes it to core: the interface between the two.
 *
 * The shim fills a struct ng_call from its row in nccl_api.def and calls ng_call_enter, the real
 * function, and ng_call_leave. Entered by the program's threads, any number at once. Must never
 * block, allocate memory (except in a thread's or communicator's first call), change errno, or
 * change NCCL's result; except if core/device/device_wait.h is configured to wait for the device.
 */
#ifndef NCCLGUARD_CORE_NCCL_CALL_H
#define NCCLGUARD_CORE_NCCL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/nccl.h"
#include "core/nccl/op.h"

struct ng_comm;
struct ng_nccl;
struct ng_box_record;
struct ng_box_thread;
struct ng_group_calls;
struct ng_thread;
struct ng_async_op;

/*
 * The arguments of a call. The shim zeroes the struct and fills the fields that the API has; core
 * only reads it, and only between enter and leave. Handles are opaque here.
 */
struct ng_call {
    const struct ng_nccl *nccl; /* the library instance that serves the call */
    const void *caller;         /* return address in the program */

    void *comm; /* communicator of the call, or the parent of a split, shrink or grow; else NULL */
    void *stream;            /* of the work; meaningful for classes COLLECTIVE, P2P and ONESIDED */
    const void *send_buffer; /* NULL if the API has none */
    void *recv_buffer;       /* or the output, for class QUERY */
    uint64_t count;          /* elements, as the caller passed them */
    /* core/recorder/signature.h depends on this order: it reads them two at a time. */
    int dtype; /* ncclDataType_t; -1 none */
    int redop; /* ncclRedOp_t; -1 none */
    int root;  /* root, or peer of a point-to-point call; -1 none */
    enum ng_op op;

    const struct ng_creation *creation; /* class CREATE, else NULL */
};

struct ng_injection;

/* The further arguments of a creating call. */
struct ng_creation {
    const void
        *unique_ids; /* 128-byte ids: one, or `unique_id_count`; NULL for InitAll, Split, Shrink */
    int unique_id_count;
    int nranks;      /* ranks of the new communicator; InitAll: its devices; else 0 */
    int rank;        /* of the caller in it; -1 not known in advance (InitAll, Split, Shrink) */
    int color, key;  /* Split */
    int flags;       /* Shrink */
    const int *list; /* Shrink: excluded ranks; InitAll: devices (NULL: 0 to nranks - 1) */
    int list_count;
    const void *config; /* ncclConfig_t *, may be NULL */
    void *new_comm;     /* ncclComm_t *: where NCCL writes the new handle(s) */
    /* core/fault/inject.h: how an injected fault changes NCCL's result, for code that calls NCCL in
     * the program's place; NULL none. */
    struct ng_injection *injection;
};

/* The program's name for the communicator; "" none, or its header is older than names. */
static inline const char *ng_creation_name(const struct ng_creation *creation)
{
    const struct ng_nccl_config *config = (const struct ng_nccl_config *)creation->config;

    if (!config || config->magic != NG_NCCL_CONFIG_MAGIC ||
        config->size < offsetof(struct ng_nccl_config, collnet_enable) || !config->comm_name)
        return "";
    return config->comm_name;
}

/*
 * Core's context from enter to leave, on the caller's stack; opaque to the shim, which need not
 * clear it.
 */
struct ng_call_context {
    struct ng_thread *thread;   /* NULL: the call is not tracked */
    struct ng_comm *comm;       /* the communicator's record; NULL none */
    struct ng_box_thread *slot; /* of the thread, in the black box */
    struct ng_box_record *record;
    uint64_t record_id; /* in the black box; 0 none */
    uint64_t seq;       /* of a collective in its group, from 1 */
    int64_t entered_mono_ns;
    struct ng_async_op *work;           /* its events; NULL not observed */
    struct ng_group_calls *group_calls; /* those of the enclosing open NCCL group; NULL none */
    uint32_t created_before;            /* creating call: communicators already in the NCCL group */
    bool visits;                        /* counted in comm->guests */
    uintptr_t capture; /* the stream is being captured into a graph: NG_CALL_CAPTURED, or the struct
                          ng_captured * that the call has begun; else 0 */
    struct ng_shared_resources *turn; /* ending call: kept until it returns; NULL none */
};

#define NG_CALL_CAPTURED 1u

/*
 * Before the real function. NG_CALL_PROCEED: call it; exactly one leave follows on the same thread,
 * with the same context. Else the ncclResult_t to return to the program without the call, since the
 * guard has aborted the communicator (core/policy/abort.h); no leave follows.
 */
#define NG_CALL_PROCEED (-1)
int ng_call_enter(const struct ng_call *call, struct ng_call_context *ret_context);

/* After the real function, with its ncclResult_t. Returns the result for the program: the same,
 * unless core/device/device_wait.h has waited for the device. */
int ng_call_leave(const struct ng_call *call, struct ng_call_context *context, int result);

/* The same for the two classes of nearly all calls, which the shim knows at compile time. */
int ng_collective_enter(const struct ng_call *call, struct ng_call_context *ret_context);
int ng_collective_leave(const struct ng_call *call, struct ng_call_context *context, int result);
int ng_p2p_enter(const struct ng_call *call, struct ng_call_context *ret_context);
int ng_p2p_leave(const struct ng_call *call, struct ng_call_context *context, int result);

#endif
