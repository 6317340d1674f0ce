/*
 * Device memory as the hooks on the driver report it.
 */
#include "tests/bench/followed.h"

#include "core/registration/segment_map.h"
#include "core/registration/segments.h"

void followed_allocate(uintptr_t base, size_t bytes)
{
    ng_segments_allocated(NG_SEGMENT_PLAIN, base, bytes, 0);
}

bool followed_free(uintptr_t base)
{
    struct ng_segment segment;

    return ng_segments_freeing(base, &segment);
}

void followed_map(uintptr_t base, size_t bytes)
{
    ng_segments_reserved(base, bytes);
    ng_segments_mapped(base, bytes, 0, true);
}

void followed_unmap(uintptr_t base, size_t bytes)
{
    ng_segments_unmapping(base, bytes);
    ng_segments_unmapped(base, bytes);
    ng_segments_unreserved(base);
}

bool followed_find(uintptr_t address)
{
    struct ng_segment segment;

    return ng_segment_map_find((const void *)address, &segment);
}

void followed_forget(void)
{
    ng_segments_after_fork();
}
