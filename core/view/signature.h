/*
 * Comparing what ranks passed to one collective, and finding the first call in which they differ.
 */
#ifndef NCCLGUARD_CORE_VIEW_SIGNATURE_H
#define NCCLGUARD_CORE_VIEW_SIGNATURE_H

#include "core/view/view.h"

/* The NG_F_* bits in which two calls of one sequence number differ, or NG_F_OP; 0 alike. Fields
 * that NCCL allows to differ for the operation, or that are unknown in one of the calls, are not
 * compared. */
#define NG_F_OP 0x100u
uint32_t ng_signature_differ(const struct ng_signature *a, const struct ng_signature *b);

/* What member `member` passed to collective `seq`; false if no longer known. */
bool ng_signature_at(const struct ng_view_member *member, uint64_t seq,
                     struct ng_signature *ret_signature);

/* "AllReduce(count 1024, float32, sum)", only the fields that matter for the operation. */
void ng_signature_text(const struct ng_signature *signature, char *ret_text, size_t bytes);

struct ng_mismatch {
    uint64_t seq;
    struct ng_signature expected; /* what the others passed; meaningless if `undecided` */
    bool undecided;     /* no majority and no history: it is not known which side is wrong */
    bool by_history;    /* the sides are equal in number; earlier calls decided */
    uint32_t differing; /* members that passed something other than `expected` */
    uint32_t known;     /* members whose call is known */
    bool is_open;       /* ranks whose call is not known could reverse the result */
};

/*
 * The first collective of the group, from the oldest still recorded up to `last`, in which members
 * differ. False: there is none. Linear in the records.
 */
bool ng_mismatch_find(const struct ng_view *view, uint32_t group, uint64_t last,
                      struct ng_mismatch *ret_mismatch);

/* Do members differ in collective `seq` of the group? */
bool ng_mismatch_at(const struct ng_view *view, uint32_t group, uint64_t seq,
                    struct ng_mismatch *ret_mismatch);

/* The call of a member that a mismatch at `seq` is judged by: what it passed to that collective, or
 * what the guard refused (NCCLGUARD_CHECK=strict) and the rank ended for, since it did not come to
 * another one. False: none is known. */
bool ng_mismatch_call_at(const struct ng_view *view, const struct ng_view_member *member,
                         uint64_t seq, struct ng_signature *ret_signature);

#endif
