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
                       const struct ng_absentee *absentee, struct ng_culprit *culprit);

/* A rank that `wait` needs and of which only NCCL's RAS says anything. */
void ng_explain_outside(const struct ng_wait *wait, const struct ng_absentee *absentee,
                        struct ng_culprit *culprit);

/* A rank whose process, which drives several devices, is that of culprit `rank`; -1 not known. */
void ng_explain_same_process(const struct ng_view_index *processes,
                             const struct ng_view_member *member, int rank,
                             struct ng_culprit *culprit);

/* A rank of process `process` has not joined the creation of a communicator: there is no evidence
 * of it in the group, but its process is known; `by_number`: as that of this run by nothing but
 * its rank. */
void ng_explain_not_in_making(const struct ng_view_index *processes, uint32_t process,
                              enum ng_op op, bool by_number, struct ng_culprit *culprit);

/* A difference that only the rolling hashes of two ranks show; `other_group_rank` is the other of
 * the two. */
void ng_explain_disagreement(const struct ng_disagreement *disagreement, int other_group_rank,
                             struct ng_culprit *culprit);
/* A rank that called `theirs`; `mismatch` has the call of the rest of the group. */
void ng_explain_mismatch(const struct ng_mismatch *mismatch, const struct ng_signature *theirs,
                         char *ret_why, size_t bytes);

/* A rank whose calls diverged from those of the others; `op` is that of the group's collective
 * `divergence->seq`. */
void ng_explain_parted(const struct ng_divergence *divergence, enum ng_op op,
                       struct ng_culprit *culprit);

/*
 * A rank of an order deadlock that is in step `at` of the cycle: describes this step first, and
 * then the other steps round the cycle, as many as there is room for.
 */
void ng_explain_order(const struct ng_verdict *verdict, uint32_t at, struct ng_culprit *culprit);

/* Adds that it is the only one of them that made a different call in earlier rounds. */
void ng_explain_departs(struct ng_culprit *culprit);

/* A rank that is in `wait`, while others are in a different call, `other`, on the same
 * communicator. */
void ng_explain_stray(const struct ng_wait *wait, const struct ng_wait *other, bool undecided,
                      struct ng_culprit *culprit);

/* The one rank that is in `wait`, a call that the others finished their work without making;
 * `of_two`: there is only one other, and the rank made a different call in earlier rounds. */
void ng_explain_surplus(const struct ng_wait *wait, bool of_two, struct ng_culprit *culprit);

/* Adds that the waiting rank may be the one that is wrong. */
void ng_explain_of_two(int waiting, struct ng_culprit *culprit);

/* A rank with NaN in what it sends. */
void ng_explain_nan(const struct ng_view_nan *nan, struct ng_culprit *culprit);

/* A rank for whose communicator NCCL reports `error`; `text` is NCCL's own message, "" none. */
void ng_explain_error(int error, const char *text, struct ng_culprit *culprit);

/* A rank whose device CUDA can no longer use. */
void ng_explain_cuda_error(int error, struct ng_culprit *culprit);

/* A rank of a group that is gone, as NCCL reports to the other ranks. */
void ng_explain_gone(const struct ng_view_process *process, int error, struct ng_culprit *culprit);

/* A rank that died, whoever waited for it; `member` is one of its groups. */
void ng_explain_crash(const struct ng_view_process *process, const struct ng_view_member *member,
                      struct ng_culprit *culprit);

/* Adds that the watchdog of rank `unwatched` (the culprit itself, or another) hangs, and what that
 * means: `alone`, by nothing but its last look is that rank, or any, known to wait. */
void ng_explain_unwatched(int unwatched, bool alone, struct ng_culprit *culprit);

/* Adds that everything in the sentence is as old as its last answer. */
void ng_explain_quiet(struct ng_culprit *culprit);

#endif
