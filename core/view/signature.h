/*
 * Comparing what ranks passed to one collective, and finding the first call in which they differ.
 */
#ifndef NCCLGUARD_CORE_VIEW_SIGNATURE_H
#define NCCLGUARD_CORE_VIEW_SIGNATURE_H

#include "core/view/view.h"

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

#endif
