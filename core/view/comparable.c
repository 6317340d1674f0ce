/*
 * The parts of a black box that can be compared with other boxes.
 *
 * Not on the path of a call. Called by the incident thread and the store's thread. Must never
 * attribute another communicator's calls to a rank: core/check/signature_compare.c says how.
 */
#include "core/view/comparable.h"

#include "core/util/clock.h"
#include "core/util/macros.h"

#define BLOCKED_NS NG_S /* a host call that takes this long is waiting for its peers */

/* Has a thread of the process been waiting in NCCL for this communicator for long? */
static bool is_blocked(const struct ng_box *box, uint32_t slot, uint64_t entered, int64_t now)
{
    ng_box_read(box, NG_BOX_THREADS);
    uint32_t used = NG_LOAD(box->header->thread_used);

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++) {
        const struct ng_box_thread *thread = &box->threads[i];
        uint32_t op = atomic_load_explicit(&thread->op, memory_order_acquire);
        int64_t since = NG_LOAD(thread->since_mono_ns);
        if (!op || op >= NG_OP_LIMIT || NG_LOAD(thread->group_slot) != slot || !since ||
            now - since < BLOCKED_NS)
            continue;
        bool collective =
            ng_op_table[op].op_class == NG_CLASS_COLLECTIVE && NG_LOAD(thread->seq) == entered;
        atomic_thread_fence(memory_order_acquire);
        ng_box_read(box, NG_BOX_THREADS);
        if ((collective || op == NG_OP_GroupEnd) &&
            atomic_load_explicit(&thread->op, memory_order_acquire) == op &&
            NG_LOAD(thread->since_mono_ns) == since)
            return true;
    }
    return false;
}

bool ng_comparable_hash_log(const struct ng_box *box, uint32_t slot, int64_t now_mono_ns,
                            struct ng_hash_log *ret_hash_log)
{
    const struct ng_box_group *group = &box->groups[slot];

    if (slot >= box->hash_log_capacity || !NG_LOAD(group->created_by))
        return false;
    uint64_t taken = atomic_load_explicit(&group->scheduled, memory_order_acquire);
    uint64_t entered = atomic_load_explicit(&group->entered, memory_order_acquire);
    taken = NG_MIN(taken, entered);
    if (taken < entered && is_blocked(box, slot, entered, now_mono_ns))
        taken = entered;
    ng_hash_log_copy(&box->hash_logs[slot], taken, entered, ret_hash_log);
    return true;
}

bool ng_comparable_is_there(const struct ng_box_group *group, uint64_t id)
{
    uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);

    return NG_LOAD(group->id) == id && NG_LOAD(group->group_rank) >= 0 &&
           ng_group_state_is_alive(state);
}

bool ng_comparable_is_ready(const struct ng_box_group *group)
{
    uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);

    return (state == NG_GROUP_READY || state == NG_GROUP_FINALIZED) && NG_LOAD(group->id) &&
           NG_LOAD(group->nranks) > 1 && NG_LOAD(group->group_rank) >= 0;
}

bool ng_comparable_is_clear(const struct ng_box *own_box, uint32_t slot)
{
    const struct ng_box_group *mine = &own_box->groups[slot];
    uint32_t used = NG_LOAD(own_box->header->group_used);
    uint64_t id = NG_LOAD(mine->id);

    for (uint32_t i = 0; i < used && i < own_box->group_capacity; i++) {
        const struct ng_box_group *group = &own_box->groups[i];
        if (i != slot && ng_comparable_is_there(group, id) &&
            (NG_LOAD(group->group_rank) == NG_LOAD(mine->group_rank) ||
             NG_LOAD(group->nranks) != NG_LOAD(mine->nranks)))
            return false;
    }
    return ng_comparable_is_ready(mine) &&
           !(slot < own_box->hash_log_capacity && NG_LOAD(own_box->hash_logs[slot].shared));
}

bool ng_comparable_is_news(const struct ng_box *own_box, uint32_t slot, uint64_t turn)
{
    struct ng_box_hash_log *hash_log = &own_box->hash_logs[slot];

    if (!NG_LOAD(hash_log->heard))
        NG_STORE(hash_log->heard, turn);
    return NG_LOAD(hash_log->heard) != turn;
}
