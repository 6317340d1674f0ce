/*
 * Measured durations in the black box.
 *
 * Written by the watchdog. No lock, no allocation, a bounded search. Must never trust a box that it
 * reads: it may belong to another process, and be damaged.
 */
#include "core/recorder/durations.h"

#include "core/util/clock.h"
#include "core/util/macros.h"

/* Longer works were suspect and are reported elsewhere; greater values in a damaged box are not
 * durations. */
#define DURATION_MAX_NS (INT64_C(1000000) * NG_S)

uint32_t ng_duration_size_class(uint64_t bytes)
{
    return bytes > 1 ? 64 - (uint32_t)__builtin_clzll(bytes - 1) : 0;
}

unsigned ng_duration_bucket(int64_t duration_ns)
{
    uint64_t us = duration_ns > 0 ? (uint64_t)duration_ns / 1000 : 0;
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    return bucket < NG_DURATION_BUCKETS ? bucket : NG_DURATION_BUCKETS - 1;
}

int64_t ng_duration_bucket_end_ns(unsigned bucket)
{
    return bucket < NG_DURATION_BUCKETS - 1 ? (INT64_C(1) << bucket) * 1000 : INT64_MAX;
}

/* Does this process still have a communicator of that group? */
static bool is_alive(const struct ng_box *box, uint64_t group_id)
{
    uint32_t used = NG_LOAD(box->header->group_used);

    return NG_ANY(group, box->groups, NG_MIN(used, box->group_capacity),
                  ng_group_state_is_alive(NG_LOAD(group->state)) &&
                      (NG_LOAD(group->id) == group_id || NG_LOAD(group->former_id) == group_id));
}

/* Among the rows of ended groups, the least recently written one, emptied; NULL: none. */
static struct ng_box_duration *reclaim(struct ng_box *box)
{
    struct ng_box_duration *oldest = NULL;

    NG_EACH (row, box->durations, box->duration_capacity)
        if ((!oldest || NG_LOAD(row->newest_mono_ns) < NG_LOAD(oldest->newest_mono_ns)) &&
            !is_alive(box, NG_LOAD(row->group_id)))
            oldest = row;
    if (!oldest)
        return NULL;
    NG_STORE(oldest->group_id, 0);
    atomic_thread_fence(memory_order_release);
    NG_STORE(oldest->count, 0);
    NG_STORE(oldest->sum_ns, 0);
    NG_STORE(oldest->min_ns, 0);
    NG_STORE(oldest->max_ns, 0);
    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++)
        NG_STORE(oldest->histogram[i], 0);
    return oldest;
}

static struct ng_box_duration *begin_row(struct ng_box_duration *row, uint64_t group_id,
                                         uint32_t op, uint32_t size_class)
{
    NG_STORE(row->op, op);
    NG_STORE(row->size_class, size_class);
    atomic_store_explicit(&row->group_id, group_id, memory_order_release);
    return row;
}

/* The row of a kind, added if there is none; NULL: the table is full of live groups. */
static struct ng_box_duration *row_of(struct ng_box *box, uint64_t group_id, uint32_t op,
                                      uint32_t size_class)
{
    uint64_t hash = (group_id ^ op << 8 ^ size_class) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t capacity = box->duration_capacity;

    for (uint32_t tries = 0; tries < capacity; tries++) {
        struct ng_box_duration *row = &box->durations[((hash >> 32) + tries) % capacity];
        uint64_t there = NG_LOAD(row->group_id);
        if (there == group_id && NG_LOAD(row->op) == op && NG_LOAD(row->size_class) == size_class)
            return row;
        if (!there)
            return begin_row(row, group_id, op, size_class);
    }
    /* The table is full from now on, so that the search finds a kind wherever its row is. */
    struct ng_box_duration *row = reclaim(box);
    return row ? begin_row(row, group_id, op, size_class) : NULL;
}

void ng_durations_add(struct ng_box *box, uint64_t group_id, enum ng_op op, uint64_t bytes,
                      int64_t duration_ns)
{
    struct ng_box_duration *row =
        group_id ? row_of(box, group_id, op, ng_duration_size_class(bytes)) : NULL;

    if (!row) {
        NG_STORE(box->header->durations_lost, NG_LOAD(box->header->durations_lost) + 1);
        return;
    }
    uint64_t duration = (uint64_t)duration_ns, count = NG_LOAD(row->count);
    unsigned bucket = ng_duration_bucket(duration_ns);
    if (!count || duration < NG_LOAD(row->min_ns))
        NG_STORE(row->min_ns, duration);
    if (duration > NG_LOAD(row->max_ns))
        NG_STORE(row->max_ns, duration);
    atomic_store_explicit(&row->count, count + 1, memory_order_release);
    NG_STORE(row->sum_ns, NG_LOAD(row->sum_ns) + duration);
    NG_STORE(row->histogram[bucket], NG_LOAD(row->histogram[bucket]) + 1);
    NG_STORE(row->newest_mono_ns, ng_clock_mono_ns());
}

bool ng_durations_read(const struct ng_box *box, uint32_t index, struct ng_duration *ret_duration)
{
    if (index >= box->duration_capacity)
        return false;
    const struct ng_box_duration *row = &box->durations[index];
    struct ng_duration duration = {
        .group_id = atomic_load_explicit(&row->group_id, memory_order_acquire),
        .op = (enum ng_op)NG_LOAD(row->op),
        .size_class = NG_LOAD(row->size_class),
        .sum_ns = NG_LOAD(row->sum_ns),
    };
    uint64_t seen = 0;
    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++)
        seen += duration.histogram[i] = NG_LOAD(row->histogram[i]);
    /* Read last, so that it is not smaller than what it counts. */
    duration.count = atomic_load_explicit(&row->count, memory_order_acquire);
    duration.min_ns = NG_LOAD(row->min_ns);
    duration.max_ns = NG_LOAD(row->max_ns);
    /* The row may have been reused for another group meanwhile. */
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(row->group_id) != duration.group_id)
        return false;
    if (!duration.group_id || duration.op >= NG_OP_LIMIT || duration.size_class > 64 ||
        !duration.count || seen > duration.count || duration.min_ns > duration.max_ns ||
        duration.max_ns > DURATION_MAX_NS)
        return false;
    *ret_duration = duration;
    return true;
}

void ng_duration_sample_add(struct ng_box *box, const struct ng_duration_sample *sample)
{
    if (!box->sample_capacity)
        return;
    uint64_t number = NG_LOAD(box->header->sample_next);
    struct ng_box_sample *slot = &box->samples[number % box->sample_capacity];

    NG_STORE(slot->number, 0);
    atomic_thread_fence(memory_order_release);
    NG_STORE(slot->group_id, sample->group_id);
    NG_STORE(slot->seq, sample->seq);
    NG_STORE(slot->calls, sample->calls);
    NG_STORE(slot->group_slot, sample->group_slot);
    NG_STORE(slot->duration_ns, sample->duration_ns);
    atomic_store_explicit(&slot->number, number, memory_order_release);
    atomic_store_explicit(&box->header->sample_next, number + 1, memory_order_release);
}

void ng_duration_samples(const struct ng_box *box, uint64_t *ret_first, uint64_t *ret_end)
{
    uint64_t end = box->sample_capacity
                       ? atomic_load_explicit(&box->header->sample_next, memory_order_acquire)
                       : 0;

    *ret_end = end;
    *ret_first = end > box->sample_capacity ? end - box->sample_capacity : 1;
    *ret_first = NG_MIN(*ret_first, end);
}

bool ng_duration_sample_read(const struct ng_box *box, uint64_t number,
                             struct ng_duration_sample *ret_sample)
{
    if (!number || !box->sample_capacity)
        return false;
    const struct ng_box_sample *slot = &box->samples[number % box->sample_capacity];
    if (atomic_load_explicit(&slot->number, memory_order_acquire) != number)
        return false;
    struct ng_duration_sample sample = {.group_id = NG_LOAD(slot->group_id),
                                        .seq = NG_LOAD(slot->seq),
                                        .calls = NG_LOAD(slot->calls),
                                        .group_slot = NG_LOAD(slot->group_slot),
                                        .duration_ns = NG_LOAD(slot->duration_ns)};
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(slot->number) != number || !sample.seq || sample.duration_ns <= 0 ||
        sample.duration_ns > DURATION_MAX_NS)
        return false;
    *ret_sample = sample;
    return true;
}
