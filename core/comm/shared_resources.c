/*
 * Communicators that share NCCL resources: the family of each record, and its turn.
 *
 * Entered by the program's threads. Must never wait.
 */
#include "core/comm/shared_resources.h"

#include <stddef.h>
#include <stdlib.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"
#include "core/util/memory.h"

/* One for each record, since a record is in one family only, plus some for records that are
 * changing theirs. */
#define FAMILIES (NG_COMM_CAPACITY + 256u)
static struct ng_shared_resources sharings[FAMILIES] NG_LARGE;
static _Atomic(struct ng_shared_resources *)
    family_of[NG_COMM_CAPACITY] NG_LARGE; /* by slot; NULL not known yet */

/* What the children of a communicator will share with it. */
#define SHARES_SPLIT  1u
#define SHARES_SHRINK 2u
static _Atomic uint8_t shares_of[NG_COMM_CAPACITY] NG_LARGE; /* by slot */

static atomic_bool any; /* in use at all */

#define SHRINK_ABORT 1 /* NCCL_SHRINK_ABORT: a parent that is aborted shares nothing */

static __thread char this_thread __attribute__((tls_model("initial-exec")));

/* ---- Which communicators share ---- */

/* NCCL's variable overrides a configuration; -1: it is not set. */
static int asked_for(const char *variable)
{
    const char *value = getenv(variable);
    char *end;

    if (!value || !*value)
        return -1;
    long number = strtol(value, &end, 0);
    return *end ? -1 : number == 1;
}

static bool has_field(const struct ng_nccl_config *config, size_t offset)
{
    return config->magic == NG_NCCL_CONFIG_MAGIC && config->size >= offset + sizeof(int);
}

/* By the communicator's own configuration; without one, by its parent's. */
static unsigned shares_by(const struct ng_call *call, const struct ng_comm *parent)
{
    const struct ng_nccl_config *config = call->creation->config;
    unsigned shares = 0;

    if (!config && parent)
        shares = atomic_load(&shares_of[parent->slot]);
    if (config && has_field(config, offsetof(struct ng_nccl_config, split_share)) &&
        config->split_share == 1)
        shares |= SHARES_SPLIT;
    if (config && has_field(config, offsetof(struct ng_nccl_config, shrink_share)) &&
        config->shrink_share == 1)
        shares |= SHARES_SHRINK;
    int split = asked_for("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    int shrink = asked_for("NCCL_COMM_SHRINK_SHARE_RESOURCES");
    if (split >= 0)
        shares = (shares & ~SHARES_SPLIT) | (split ? SHARES_SPLIT : 0);
    if (shrink >= 0)
        shares = (shares & ~SHARES_SHRINK) | (shrink ? SHARES_SHRINK : 0);
    return shares;
}

static bool is_shared(const struct ng_comm *parent, const struct ng_call *call)
{
    unsigned shares = atomic_load(&shares_of[parent->slot]);

    switch (call->op) {
    case NG_OP_CommSplit:
        return shares & SHARES_SPLIT;
    case NG_OP_CommShrink:
        return (shares & SHARES_SHRINK) && !(call->creation->flags & SHRINK_ABORT);
    default:
        return false;
    }
}

/* ---- Families ---- */

static struct ng_shared_resources *take_free(uint32_t slot)
{
    for (uint32_t i = 0;; i++) {
        struct ng_shared_resources *sharing = &sharings[(slot + i) % FAMILIES];
        uint32_t nobody = 0;
        if (atomic_load(&sharing->holder) ||
            !atomic_compare_exchange_strong(&sharing->members, &nobody, 1))
            continue;
        atomic_store(&sharing->shared, false);
        atomic_store_explicit(&any, true, memory_order_relaxed);
        return sharing;
    }
}

struct ng_shared_resources *ng_shared_resources_of(const struct ng_comm *comm)
{
    struct ng_shared_resources *sharing =
        atomic_load_explicit(&family_of[comm->slot], memory_order_acquire);
    struct ng_shared_resources *expected = NULL;

    if (__builtin_expect(sharing != NULL, 1))
        return sharing;
    sharing = take_free(comm->slot);
    if (atomic_compare_exchange_strong(&family_of[comm->slot], &expected, sharing))
        return sharing;
    atomic_fetch_sub(&sharing->members, 1);
    return expected;
}

void ng_shared_resources_make(const struct ng_comm *comm, const struct ng_comm *parent,
                              const struct ng_call *call)
{
    struct ng_shared_resources *before = atomic_load(&family_of[comm->slot]), *sharing;

    atomic_store(&shares_of[comm->slot], (uint8_t)shares_by(call, parent));
    if (parent && is_shared(parent, call)) {
        sharing = ng_shared_resources_of(parent);
        atomic_fetch_add(&sharing->members, 1);
        atomic_store(&sharing->shared, true);
    } else if (before && !atomic_load(&before->shared)) {
        /* Held for the previous communicator of this record: a thread that was inside when it was
         * aborted has yet to release it. */
        return;
    } else {
        sharing = take_free(comm->slot);
    }
    before = atomic_exchange(&family_of[comm->slot], sharing);
    if (before)
        atomic_fetch_sub(&before->members, 1);
}

/* ---- Turns ---- */

bool ng_shared_resources_is_mine(const struct ng_shared_resources *sharing)
{
    return atomic_load_explicit(&sharing->holder, memory_order_relaxed) == &this_thread;
}

bool ng_shared_resources_try_hold(struct ng_shared_resources *sharing)
{
    const void *nobody = NULL;

    if (!ng_shared_resources_is_mine(sharing) &&
        !atomic_compare_exchange_strong_explicit(&sharing->holder, &nobody, &this_thread,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    sharing->depth++;
    return true;
}

void ng_shared_resources_let_go(struct ng_shared_resources *sharing)
{
    if (--sharing->depth == 0)
        atomic_store_explicit(&sharing->holder, NULL, memory_order_release);
}

void ng_shared_resources_after_fork(void)
{
    if (!atomic_exchange(&any, false))
        return;
    for (uint32_t i = 0; i < FAMILIES; i++) {
        atomic_store(&sharings[i].holder, NULL);
        sharings[i].depth = 0;
        atomic_store(&sharings[i].members, 0);
    }
    for (uint32_t i = 0; i < NG_COMM_CAPACITY; i++) {
        atomic_store(&family_of[i], NULL);
        atomic_store(&shares_of[i], 0);
    }
}
