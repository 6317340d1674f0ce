/*
 * Says whether a blocking init may be aborted from another thread in a given NCCL release.
 *
 * Used before an abort is ordered. Pure: a row of the table in core/policy/init_abort.c is
 * a range of releases in which it may not.
 */
#ifndef NCCLGUARD_CORE_POLICY_INIT_ABORT_H
#define NCCLGUARD_CORE_POLICY_INIT_ABORT_H

/* Why not, as a sentence without a full stop; NULL it may. `version`: from ncclGetVersion; 0 (not
 * known) may. */
const char *ng_init_abort_unsafe(int version);

#endif
