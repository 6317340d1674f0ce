/*
 * Comparing what ranks passed to one collective, and finding the first call in which they differ.
 */
#ifndef NCCLGUARD_CORE_VIEW_SIGNATURE_H
#define NCCLGUARD_CORE_VIEW_SIGNATURE_H

#include "core/verdict/verdict.h"
#include "core/view/view.h"

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

/* NG_F_* bits in which two calls of one sequence number differ, or NG_F_OP; 0 alike. Fields that
 * NCCL lets differ for the operation, or that one of them does not tell, are not compared. */
#define NG_F_OP 0x100u
uint32_t ng_signature_differ(const struct ng_signature *a, const struct ng_signature *b);

/* What member `member` passed to collective `seq`; false where nobody knows any more. */
bool ng_signature_at(const struct ng_view_member *member, uint64_t seq,
                     struct ng_signature *ret_signature);

/* "AllReduce(count 1024, float32, sum)", only the fields that matter for the operation. */
void ng_signature_text(const struct ng_signature *signature, char *ret_text, size_t bytes);

struct ng_mismatch {
    uint64_t seq;
    struct ng_signature expected; /* of the others; meaningful unless `undecided` */
    bool undecided;               /* no majority and no history: nobody can tell who is wrong */
    bool by_history;              /* the sides are equal in number; earlier calls decided */
    uint32_t differing;           /* members that passed something else than `expected` */
    uint32_t known;               /* members whose call is known */
    bool is_open; /* the ranks of the group whose call is not known may turn that round */
};

/*
 * The first collective of the group, from the oldest that is still recorded up to `last`, in which
 * members differ. False: none. Linear in the records.
 */
bool ng_mismatch_find(const struct ng_view *view, uint32_t group, uint64_t last,
                      struct ng_mismatch *ret_mismatch);

/* Do members differ in collective `seq` of the group? */
bool ng_mismatch_at(const struct ng_view *view, uint32_t group, uint64_t seq,
                    struct ng_mismatch *ret_mismatch);

/* How sure it is that those are wrong who differ from `expected`. */
enum ng_confidence ng_mismatch_confidence(const struct ng_mismatch *mismatch);

#endif
