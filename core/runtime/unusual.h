/*
 * Whether calls may take the short way: one word that nearly every call of the program reads.
 *
 * It is 0 while the guard runs and nothing is configured or loaded that a usual program does not
 * have. Any other value sends each call the long way, which checks everything by itself; so a bit
 * that is set needlessly costs time only. A reader that finds 0 sees all that was written before
 * the last bit was cleared. Any thread.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_UNUSUAL_H
#define NCCLGUARD_CORE_RUNTIME_UNUSUAL_H

#include <stdatomic.h>
#include <stdbool.h>

#define NG_UNUSUAL_STOPPED   1u /* the guard does not run */
#define NG_UNUSUAL_FORWARDED 2u /* the shim forwards calls untouched */
#define NG_UNUSUAL_LIBRARIES 4u /* not exactly one copy of NCCL is known */
#define NG_UNUSUAL_CONFIGURED                                                                      \
    8u /* faults, checks, registration, stacks, waiting; or no records                             \
        */

extern atomic_uint ng_unusual __attribute__((visibility("hidden")));

/* All bits that are set before anything is known. */
#define NG_UNUSUAL_FIRST                                                                           \
    (NG_UNUSUAL_STOPPED | NG_UNUSUAL_FORWARDED | NG_UNUSUAL_LIBRARIES | NG_UNUSUAL_CONFIGURED)

static inline void ng_unusual_set(unsigned bit, bool is_unusual)
{
    if (is_unusual)
        atomic_fetch_or(&ng_unusual, bit);
    else
        atomic_fetch_and(&ng_unusual, ~bit);
}

#endif
