/*
 * The known device memory of this process, to look up: core/registration/segments.h keeps it up to
 * date.
 *
 * Any thread.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_SEGMENT_MAP_H
#define NCCLGUARD_CORE_REGISTRATION_SEGMENT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/memory_map.h"

/* Changed by core/registration/segments.c alone. */
extern struct ng_memory_map ng_segment_map;

/* The segment that contains an address; or the next one from there on. False: there is none. */
bool ng_segment_map_find(const void *address, struct ng_segment *ret_segment);
bool ng_segment_map_next(uintptr_t from, struct ng_segment *ret_segment);

#endif
