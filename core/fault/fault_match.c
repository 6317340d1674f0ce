/*
 * Matching and counting of calls for faults.
 *
 * Must depend only on the calls themselves: not on the clock, nor on anything that differs from run
 * to run, such as unique ids and process ids.
 */
#include "core/fault/fault_match.h"

#include "core/comm/rules.h"
#include "core/nccl/group_id.h"

uint64_t ng_fault_counts_add(struct ng_fault_counts *counts, uint64_t key)
{
    uint32_t first = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40);

    for (uint32_t probe = 0;; probe++) {
        uint32_t slot = (first + probe) & (NG_FAULT_COUNTS - 1);
        uint64_t there = 0;
        if (probe == NG_FAULT_COUNTS ||
            atomic_compare_exchange_strong(&counts->slots[slot].key, &there, key) || there == key)
            return atomic_fetch_add(&counts->slots[slot].calls, 1) + 1;
    }
}

static uint64_t key_of(uint32_t index, int rank, uint32_t group_number)
{
    return (uint64_t)(index + 1) << 56 | (uint64_t)((unsigned)(rank + 1) & 0xffffff) << 32 |
           group_number;
}

bool ng_fault_concerns(const struct ng_fault *fault, const struct ng_fault_call *call)
{
    return (fault->rank < 0 || fault->rank == call->rank) &&
           (!fault->group[0] || ng_rules_is_called(fault->group, call->group_name, call->group_id));
}

static bool is_nth(const struct ng_fault *fault, uint64_t number)
{
    if (fault->nth && fault->every)
        return number >= fault->nth && (number - fault->nth) % fault->every == 0;
    return fault->nth ? number == fault->nth : number % fault->every == 0;
}

/* Decides by a hash of everything that identifies the call. */
static bool is_drawn(const struct ng_fault *fault, const struct ng_fault_call *call,
                     uint64_t number)
{
    uint64_t words[] = {(uint64_t)call->rank, call->group_number, number};

    return ng_hash(fault->seed, words, sizeof(words)) <= fault->chance;
}

bool ng_fault_match(const struct ng_fault *fault, uint32_t index, const struct ng_fault_call *call,
                    struct ng_fault_counts *counts)
{
    if (!fault->ops[call->op] || !ng_fault_concerns(fault, call))
        return false;
    if (fault->nth || fault->every)
        return is_nth(fault, ng_fault_counts_add(counts, key_of(index, call->rank, 0)));
    if (fault->chance)
        return is_drawn(fault, call,
                        ng_fault_counts_add(counts, key_of(index, call->rank, call->group_number)));
    return true;
}
