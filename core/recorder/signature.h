/*
 * The rolling hash of what a group has called.
 *
 * Computed by the program's threads with each collective, and by readers of black boxes.
 */
#ifndef NCCLGUARD_CORE_RECORDER_SIGNATURE_H
#define NCCLGUARD_CORE_RECORDER_SIGNATURE_H

#include <stdint.h>

#include "core/recorder/box.h"

/*
 * The rolling hash of a group: of the signatures of all its collectives so far, in order, from 0.
 * Ranks that passed the same have the same, whatever their own reductions are numbered (5 and
 * above: "custom"); what an operation does not have is -1, and count 0. Each step can be undone, so
 * no difference is ever lost. Every collective pays for it: ten instructions, where fields that are
 * put together here lie side by side in memory; a factor of 32 bits needs no register.
 */
#define NG_SIGNATURE_FACTOR  UINT64_C(0xffffffff9e3779b1)
#define NG_SIGNATURE_INVERSE UINT64_C(0x16597d0c0e8b2f51) /* of the factor */

static inline uint64_t ng_signature_pair(int low, uint32_t high)
{
    return (uint64_t)high << 32 | (uint32_t)low;
}

static inline uint64_t ng_signature_type(const struct ng_signature *signature)
{
    uint64_t type = ng_signature_pair(signature->dtype, (uint32_t)signature->redop);

    if (__builtin_expect(signature->redop > 4, 0)) {
        type = ng_signature_pair(signature->dtype, 5);
        __asm__("" : "+r"(type)); /* or compilers choose between both instead of branching */
    }
    return type;
}

static inline uint64_t ng_signature_roll(uint64_t hash, const struct ng_signature *signature)
{
    hash = (hash + ng_signature_type(signature)) * NG_SIGNATURE_FACTOR;
    hash += ng_signature_pair(signature->root, signature->op);
    return (hash << 25 | hash >> 39) + signature->count;
}

/* What it was before that collective. */
static inline uint64_t ng_signature_unroll(uint64_t hash, const struct ng_signature *signature)
{
    hash -= signature->count;
    hash = (hash >> 25 | hash << 39) - ng_signature_pair(signature->root, signature->op);
    return hash * NG_SIGNATURE_INVERSE - ng_signature_type(signature);
}

#endif
