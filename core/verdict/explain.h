/*
 * The one sentence that says why a rank is a culprit. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_EXPLAIN_H
#define NCCLGUARD_CORE_VERDICT_EXPLAIN_H

#include "core/verdict/divergence.h"
#include "core/verdict/verdict.h"
#include "core/verdict/wait_graph.h"
#include "core/view/signature.h"
#include "core/view/view_index.h"

/* A rank that `wait` needs. */
void ng_explain_absent(const struct ng_view_index *processes, const struct ng_wait *wait,
                       const struct ng_absentee *absentee, char *ret_why, size_t bytes);

/* A rank of process `process` has not come to the making of a communicator: nobody has seen it
 * there, but its process is known. */
void ng_explain_not_in_making(const struct ng_view_index *processes, uint32_t process,
                              enum ng_op op, char *ret_why, size_t bytes);

/* A rank that called `theirs`, where `mismatch` is what the group called. */
/* Of a difference that only the rolling hashes of two ranks tell of; the other is this one. */
void ng_explain_disagreement(const struct ng_disagreement *disagreement, int other_group_rank,
                             char *ret_why, size_t bytes);
void ng_explain_mismatch(const struct ng_mismatch *mismatch, const struct ng_signature *theirs,
                         char *ret_why, size_t bytes);

/* A rank whose calls parted from those of the others; `op` is the group's collective
 * `parting->seq`. */
void ng_explain_parted(const struct ng_divergence *divergence, enum ng_op op, char *ret_why,
                       size_t bytes);

/*
 * A rank of a deadlock by order that is where step `at` of the cycle is: first it, and then the
 * other steps round the cycle, as many as there is room for.
 */
void ng_explain_order(const struct ng_verdict *verdict, uint32_t at, char *ret_why, size_t bytes);

/* Add that it is the only one of them that called something else in earlier rounds. */
void ng_explain_departs(char *why, size_t bytes);

/* A rank that is in `wait`, a call of one communicator on which others are in another, `other`. */
void ng_explain_stray(const struct ng_wait *wait, const struct ng_wait *other, bool undecided,
                      char *ret_why, size_t bytes);

/* The one rank that is in `wait`, a call that the others have come to their end without; `of_two`:
 * the only other, and it called something else in earlier rounds. */
void ng_explain_surplus(const struct ng_wait *wait, bool of_two, char *ret_why, size_t bytes);

/* Add that the rank that waits may be the one that is wrong. */
void ng_explain_of_two(int waiting, char *why, size_t bytes);

/* A rank with NaN in what it sends. */
void ng_explain_nan(const struct ng_view_nan *nan, char *ret_why, size_t bytes);

/* A rank whose communicator NCCL reports `error` of; `text` is NCCL's own, "" none. */
void ng_explain_error(int error, const char *text, char *ret_why, size_t bytes);

/* A rank of a group that is gone, as its others hear from NCCL. */
void ng_explain_gone(const struct ng_view_process *process, int error, char *ret_why, size_t bytes);

/* Add to a sentence that all of it is as old as that. */
void ng_explain_quiet(int64_t quiet_ns, char *why, size_t bytes);

#endif
