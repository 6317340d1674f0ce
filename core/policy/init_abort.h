/*
 * May a blocking init be aborted from another thread in this release of NCCL?
 *
 * Asked before an abort is ordered. Pure: one row of core/policy/init_abort.def for each range of
 * releases where it may not.
 */
#ifndef NCCLGUARD_CORE_POLICY_INIT_ABORT_H
#define NCCLGUARD_CORE_POLICY_INIT_ABORT_H

/* Why not, in a sentence without end; NULL it may. `version`: as ncclGetVersion tells it; 0, which
 * is not known, may. */
const char *ng_init_abort_unsafe(int version);

#endif
