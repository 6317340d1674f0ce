/*
 * The device memory of this process: allocations, mappings, and the reservations that contain them.
 *
 * Not in the path of a call. Entered by any thread of the program. Must never call the driver.
 */
#include "core/registration/segments.h"

#include "core/registration/registrations.h"
#include "core/registration/segment_map.h"

static struct ng_memory_map reservations = NG_MEMORY_MAP_EMPTY;

static void add(const struct ng_segment *segment)
{
    bool replaced;

    int error = ng_memory_map_put(&ng_segment_map, segment, &replaced);
    /* The previous range was freed unseen, and may still be registered. */
    if (replaced)
        ng_registrations_forget(segment->base, segment->bytes, false);
    if (!error)
        ng_registrations_added(segment);
}

void ng_segments_allocated(enum ng_segment_kind kind, uintptr_t base, size_t bytes, int device)
{
    struct ng_segment segment = {
        .base = base, .bytes = bytes, .device = (int16_t)device, .kind = (uint8_t)kind};

    /* Created by NCCL as shareable, in its own reservation. */
    if (kind == NG_SEGMENT_NCCL)
        segment.flags = NG_SEGMENT_SHAREABLE | NG_SEGMENT_WHOLE;
    add(&segment);
}

void ng_segments_reserved(uintptr_t base, size_t bytes)
{
    struct ng_segment reservation = {.base = base, .bytes = bytes, .device = -1};

    ng_memory_map_add(&reservations, &reservation);
}

void ng_segments_unreserved(uintptr_t base)
{
    struct ng_segment reservation;

    ng_memory_map_remove(&reservations, base, &reservation);
}

void ng_segments_mapped(uintptr_t base, size_t bytes, int device, bool shareable)
{
    struct ng_segment segment = {.base = base,
                                 .bytes = bytes,
                                 .device = (int16_t)device,
                                 .kind = NG_SEGMENT_MAPPED,
                                 .flags = shareable ? NG_SEGMENT_SHAREABLE : 0};
    struct ng_segment reservation;

    if (ng_memory_map_find(&reservations, base, &reservation) && reservation.base == base &&
        reservation.bytes == bytes)
        segment.flags |= NG_SEGMENT_WHOLE;
    add(&segment);
}

void ng_segments_unmapped(uintptr_t base, size_t bytes)
{
    struct ng_segment segment;

    while (ng_memory_map_next(&ng_segment_map, base, &segment) && segment.base - base < bytes)
        ng_memory_map_remove(&ng_segment_map, segment.base, &segment);
    /* Until now it was in the map, where a thread that creates a communicator could register it. */
    ng_registrations_forget(base, bytes, false);
}

bool ng_segments_freeing(uintptr_t base, struct ng_segment *ret_segment)
{
    if (!ng_memory_map_remove(&ng_segment_map, base, ret_segment))
        return false;
    ng_registrations_forget(ret_segment->base, ret_segment->bytes,
                            ret_segment->kind != NG_SEGMENT_NCCL);
    return true;
}

void ng_segments_restore(const struct ng_segment *segment)
{
    ng_memory_map_add(&ng_segment_map, segment);
}

void ng_segments_unmapping(uintptr_t base, size_t bytes)
{
    ng_registrations_forget(base, bytes, false);
}

static bool dies_with_device(const struct ng_segment *segment, int device)
{
    /* Memory created by handle lives until it is unmapped and released. */
    return segment->device == device && segment->kind != NG_SEGMENT_MAPPED &&
           segment->kind != NG_SEGMENT_NCCL;
}

void ng_segments_device_resetting(int device)
{
    struct ng_segment segment = {0};

    for (uintptr_t from = 0; ng_memory_map_next(&ng_segment_map, from, &segment);
         from = segment.base + 1)
        if (segment.device == device)
            ng_registrations_forget(segment.base, segment.bytes, true);
}

void ng_segments_device_reset(int device)
{
    ng_memory_map_remove_all(&ng_segment_map, dies_with_device, device);
}

_Static_assert(NG_SEGMENT_KINDS <= NG_BOX_MEMORY_KINDS, "each kind has room in the black box");

void ng_segments_tell(struct ng_box_header *header)
{
    struct ng_memory_sum sums[NG_SEGMENT_KINDS];

    ng_memory_map_sum(&ng_segment_map, sums);
    for (unsigned i = 0; i < NG_SEGMENT_KINDS; i++) {
        NG_STORE(header->memory[i].segments, sums[i].segments);
        NG_STORE(header->memory[i].bytes, sums[i].bytes);
    }
    atomic_store_explicit(&header->memory_kinds, NG_SEGMENT_KINDS, memory_order_release);
}

void ng_segments_after_fork(void)
{
    ng_memory_map_reset(&ng_segment_map);
    ng_memory_map_reset(&reservations);
}
