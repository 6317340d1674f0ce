/*
 * Injected faults in the black box.
 *
 * Written by the thread that the fault happens to, before it happens: the fault may end the
 * process. No lock, no allocation. Must never trust a box that it reads: it may belong to another
 * process, and be damaged.
 */
#include "core/recorder/fault_log.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void ng_fault_log_arm(struct ng_box *box, uint32_t index, const char *text)
{
    if (index < box->fault_capacity)
        snprintf(box->faults[index].text, sizeof(box->faults[index].text), "%s", text);
}

void ng_fault_log_add(struct ng_box *box, uint32_t index, const struct ng_logged_fault *now,
                      int64_t now_mono_ns)
{
    if (index >= box->fault_capacity)
        return;
    struct ng_box_fault *row = &box->faults[index];
    int64_t never = 0;
    atomic_compare_exchange_strong(&row->first_mono_ns, &never, now_mono_ns);
    NG_STORE(row->last_mono_ns, now_mono_ns);
    NG_STORE(row->group_id, now->group_id);
    NG_STORE(row->seq, now->seq);
    NG_STORE(row->op, now->op);
    NG_STORE(row->rank, now->rank);
    atomic_fetch_add_explicit(&row->times, 1, memory_order_release);
}

bool ng_fault_log_read(const struct ng_box *box, uint32_t index, struct ng_logged_fault *ret_fault)
{
    if (index >= box->fault_capacity)
        return false;
    const struct ng_box_fault *row = &box->faults[index];
    struct ng_logged_fault fault = {
        .times = atomic_load_explicit(&row->times, memory_order_acquire),
        .rank = NG_LOAD(row->rank),
        .op = (enum ng_op)NG_LOAD(row->op),
        .group_id = NG_LOAD(row->group_id),
        .seq = NG_LOAD(row->seq),
        .first_mono_ns = NG_LOAD(row->first_mono_ns),
        .last_mono_ns = NG_LOAD(row->last_mono_ns),
    };
    memcpy(fault.text, row->text, sizeof(fault.text));
    fault.text[sizeof(fault.text) - 1] = '\0';
    if (!fault.times || !fault.text[0] || (uint32_t)fault.op >= NG_OP_LIMIT || fault.rank < -1)
        return false;
    for (char *at = fault.text; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    *ret_fault = fault;
    return true;
}
