/*
 * Rules for core/unwind/fast_unwind.h, made from what compilers wrote down.
 */
#ifndef NCCLGUARD_CORE_UNWIND_UNWIND_TABLE_H
#define NCCLGUARD_CORE_UNWIND_UNWIND_TABLE_H

#include <stdint.h>

#include "core/unwind/fast_unwind.h"
#include "core/unwind/image.h"

/* How a walk goes on from `place`, in `images`. Always gives one. Guard threads; no allocation, no
 * lock; about 10 KiB of stack. */
struct ng_fast_unwind_rule ng_fast_unwind_rule_make(const struct ng_images *images, uint64_t place);

#endif
