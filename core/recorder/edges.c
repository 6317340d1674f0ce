/*
 * The table of edges in the black box: written, and read back.
 *
 * Entered by the thread that looks at connections, and by readers of any process. Must never wait.
 */
#include "core/recorder/edges.h"

#include "core/recorder/box.h"
#include "core/util/clock.h"

_Static_assert(NG_EDGES_MAX == NG_BOX_EDGES, "as in the black box");

/* Groups whose slots are the same modulo the capacity share one: the newest look is kept. */
static struct ng_box_edges *table_of(const struct ng_box *box, uint32_t group_slot,
                                     uint64_t *ret_guard)
{
    if (!box->edges_capacity || group_slot >= box->group_capacity)
        return NULL;
    *ret_guard = (uint64_t)(group_slot + 1) << 48 |
                 (uint64_t)(uint16_t)NG_LOAD(box->groups[group_slot].generation) << 32;
    return &box->edges[group_slot % box->edges_capacity];
}

void ng_edges_write(struct ng_box *box, uint32_t group_slot, uint64_t pending_record,
                    const struct ng_edge *edges, uint32_t count)
{
    uint64_t guard;
    struct ng_box_edges *table = table_of(box, group_slot, &guard);

    if (!table)
        return;
    uint64_t before = NG_LOAD(table->guard);
    NG_STORE(table->guard, 0);
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 0; i < count && i < NG_BOX_EDGES; i++) {
        const struct ng_edge *edge = &edges[i];
        NG_STORE(table->words[i][0], (uint64_t)(uint32_t)edge->peer << 32 | (uint64_t)edge->base);
        NG_STORE(table->words[i][1], (uint64_t)edge->posted << 48 | (uint64_t)edge->consumed << 32 |
                                         (uint64_t)edge->flags << 24 |
                                         (uint64_t)edge->channels << 16 |
                                         (uint64_t)edge->begun << 8 | edge->taken);
        NG_STORE(table->words[i][2],
                 (uint64_t)edge->held << 16 | (uint64_t)edge->channel << 8 | edge->queued);
    }
    NG_STORE(table->count, count < NG_BOX_EDGES ? count : NG_BOX_EDGES);
    NG_STORE(table->pending_record, pending_record);
    NG_STORE(table->looked_mono_ns, ng_clock_mono_ns());
    atomic_store_explicit(&table->guard, guard | (uint32_t)(before + 1), memory_order_release);
}

uint32_t ng_edges_read(const struct ng_box *box, uint32_t group_slot, uint64_t pending_record,
                       struct ng_edge ret_edges[NG_EDGES_MAX], int64_t *ret_looked_mono_ns)
{
    uint64_t guard;
    const struct ng_box_edges *table = table_of(box, group_slot, &guard);

    if (!table)
        return 0;
    uint64_t before = atomic_load_explicit(&table->guard, memory_order_acquire);
    if ((before ^ guard) >> 32 || NG_LOAD(table->pending_record) != pending_record)
        return 0;
    uint32_t count = NG_LOAD(table->count);
    if (count > NG_BOX_EDGES)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word[3];
        for (unsigned k = 0; k < 3; k++)
            word[k] = NG_LOAD(table->words[i][k]);
        ret_edges[i] = (struct ng_edge){.peer = (int32_t)(word[0] >> 32),
                                        .base = (uint32_t)word[0],
                                        .posted = (uint16_t)(word[1] >> 48),
                                        .consumed = (uint16_t)(word[1] >> 32),
                                        .flags = (uint8_t)(word[1] >> 24),
                                        .channels = (uint8_t)(word[1] >> 16),
                                        .begun = (uint8_t)(word[1] >> 8),
                                        .taken = (uint8_t)word[1],
                                        .held = (uint8_t)(word[2] >> 16),
                                        .channel = (uint8_t)(word[2] >> 8),
                                        .queued = (uint8_t)word[2]};
    }
    *ret_looked_mono_ns = NG_LOAD(table->looked_mono_ns);
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(table->guard) == before ? count : 0;
}
