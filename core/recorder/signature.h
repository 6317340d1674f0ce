/*
 * The signature of a call, and the rolling hash of a group's calls.
 *
 * Computed by the program's threads with each collective, and by readers of black boxes.
 */
#ifndef NCCLGUARD_CORE_RECORDER_SIGNATURE_H
#define NCCLGUARD_CORE_RECORDER_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"

/*
 * The rolling hash of a group: over the signatures of all its collectives so far, in order,
 * starting from 0. Ranks that passed the same arguments have the same hash, whatever numbers their
 * own reductions have (5 and above: "custom"); fields that an operation lacks are -1, and count 0.
 * Each step is invertible, so no difference is ever lost. It costs every collective ten
 * instructions, because fields combined here are adjacent in memory; a factor of 32 bits needs no
 * register.
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
        __asm__("" : "+r"(type)); /* keeps compilers from replacing the branch by a select */
    }
    return type;
}

static inline uint64_t ng_signature_roll(uint64_t hash, const struct ng_signature *signature)
{
    hash = (hash + ng_signature_type(signature)) * NG_SIGNATURE_FACTOR;
    hash += ng_signature_pair(signature->root, signature->op);
    return (hash << 25 | hash >> 39) + signature->count;
}

static inline bool ng_signature_is_equal(const struct ng_signature *a, const struct ng_signature *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->redop == b->redop && a->root == b->root &&
           a->count == b->count;
}

/* What the program passed, as a record has it. The record may be changing: readers check it before
 * and afterwards. */
struct ng_signature ng_signature_of_record(const struct ng_box_record *record);

/* The hash before that collective. */
static inline uint64_t ng_signature_unroll(uint64_t hash, const struct ng_signature *signature)
{
    hash -= signature->count;
    hash = (hash >> 25 | hash << 39) - ng_signature_pair(signature->root, signature->op);
    return hash * NG_SIGNATURE_INVERSE - ng_signature_type(signature);
}

#endif
