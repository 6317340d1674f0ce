/*
 * The device memory of this process, as the hooks on the driver and on NCCL's allocator report it.
 *
 * Not in the path of a call. Program threads report what they have allocated, and what they are
 * about to free, for every caller except NCCL itself. Kept only if a configured feature needs it:
 * otherwise no hook is enabled, and nothing is known.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_SEGMENTS_H
#define NCCLGUARD_CORE_REGISTRATION_SEGMENTS_H

#include "core/recorder/box.h"
#include "core/util/memory_map.h"

/* After the driver succeeded. `device` -1: not known. */
void ng_segments_allocated(enum ng_segment_kind kind, uintptr_t base, size_t bytes, int device);
void ng_segments_reserved(uintptr_t base, size_t bytes);
void ng_segments_unreserved(uintptr_t base);
/* One mapping; `shareable`: its memory was made with a handle type for other processes. */
void ng_segments_mapped(uintptr_t base, size_t bytes, int device, bool shareable);
void ng_segments_unmapped(uintptr_t base, size_t bytes);

/*
 * Before the driver frees it, since afterwards another thread may get the address: deregisters it,
 * as far as core/registration/registrations.h guarantees. False: not known, or not the beginning of
 * a segment. If the driver then fails: ng_segments_restore.
 */
bool ng_segments_freeing(uintptr_t base, struct ng_segment *ret_segment);
void ng_segments_restore(const struct ng_segment *segment);
void ng_segments_unmapping(uintptr_t base, size_t bytes);

/* Everything on a device except its mappings is about to be freed: deregister what is registered
 * there. It has been freed; -1: on all devices whose context is not known. */
void ng_segments_device_resetting(int device);
void ng_segments_device_reset(int device);

/* Write the totals into the black box. Watchdog. */
void ng_segments_tell(struct ng_box_header *header);

/* In a forked child. */
void ng_segments_after_fork(void);

#endif
