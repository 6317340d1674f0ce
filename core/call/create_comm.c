/*
 * Translates the description of a creating call back to NCCL's arguments.
 *
 * Entered by the program's threads.
 */
#include "core/call/create_comm.h"

#include <string.h>

#include "core/fault/inject.h"
#include "core/nccl/nccl.h"

static int call_nccl(const struct ng_call *call, void *config)
{
    const struct ng_creation *creation = call->creation;
    const struct ng_nccl *nccl = call->nccl;
    struct ng_nccl_unique_id id;
    void **new_comm = creation->new_comm;

    memset(&id, 0, sizeof(id));
    if (creation->unique_ids)
        memcpy(&id, creation->unique_ids, sizeof(id));
    switch (call->op) {
    case NG_OP_CommInitRankScalable:
        /* NCCL's prototypes lack const. NCCL does not modify these arguments; it only reorders the
         * ranks of a shrink, as for any caller. */
        return nccl->comm_init_rank_scalable(
            new_comm, creation->nranks, creation->rank, creation->unique_id_count,
            (struct ng_nccl_unique_id *)(uintptr_t)creation->unique_ids, config);
    case NG_OP_CommSplit:
        return nccl->comm_split(call->comm, creation->color, creation->key, new_comm, config);
    case NG_OP_CommShrink:
        return nccl->comm_shrink(call->comm, (int *)(uintptr_t)creation->list, creation->list_count,
                                 new_comm, config, creation->flags);
    case NG_OP_CommGrow:
        return nccl->comm_grow(call->comm, creation->nranks, creation->unique_ids ? &id : NULL,
                               creation->rank, new_comm, config);
    default:
        return config ? nccl->comm_init_rank_config(new_comm, creation->nranks, id, creation->rank,
                                                    config)
                      : nccl->comm_init_rank(new_comm, creation->nranks, id, creation->rank);
    }
}

int ng_create_comm(const struct ng_call *call, void *config)
{
    struct ng_injection *injection = call->creation->injection;

    if (__builtin_expect(!injection, 1))
        return call_nccl(call, config);
    int result = ng_inject_replaces(injection) ? injection->result : call_nccl(call, config);
    return ng_inject_result(call, injection, result);
}
