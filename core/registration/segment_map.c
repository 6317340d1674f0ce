/*
 * The known device memory of this process.
 *
 * Any thread. Must never call the driver.
 */
#include "core/registration/segment_map.h"

struct ng_memory_map ng_segment_map = NG_MEMORY_MAP_EMPTY;

bool ng_segment_map_find(const void *address, struct ng_segment *ret_segment)
{
    return ng_memory_map_find(&ng_segment_map, (uintptr_t)address, ret_segment);
}

bool ng_segment_map_next(uintptr_t from, struct ng_segment *ret_segment)
{
    return ng_memory_map_next(&ng_segment_map, from, ret_segment);
}
