/*
 * What is known here of ends of other processes: which of them a verdict has reported, and how long
 * others have waited since.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_KNOWN_DEATHS_H
#define NCCLGUARD_CORE_INCIDENT_KNOWN_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"
#include "core/util/clock.h"
#include "core/verdict/verdict.h"

#define NG_KNOWN_DEATHS_STALL_NS                                                                   \
    (200 * NG_MS) /* work pending this long, with a needed rank gone                               \
                   */

/* Is a verdict of this kind about the end of a process? */
static inline bool ng_known_deaths_is_end(unsigned kind)
{
    return kind == NG_KIND_DEAD_RANK || kind == NG_KIND_LEFT_EARLY;
}

/* Kind of a claim for this verdict: NG_KIND_DEAD_RANK if it is about a death for certain, so that
 * it can outdo an earlier verdict on the same call (ng_incident_is_outdone); else NG_KIND_HEALTHY.
 */
static inline uint8_t ng_known_deaths_outdoing(const struct ng_verdict *verdict)
{
    return verdict->kind == NG_KIND_DEAD_RANK && verdict->confidence == NG_CONFIDENCE_CERTAIN &&
                   !verdict->may_be_gone
               ? NG_KIND_DEAD_RANK
               : NG_KIND_HEALTHY;
}

/* So many processes of the job have ended. True: the number differs from that of the last call. */
bool ng_known_deaths_see(uint32_t ended);

/* A verdict on the whole job has been reached: it covers all ends so far. */
void ng_known_deaths_cover(void);

/* Is there an end that no such verdict covers? */
bool ng_known_deaths_are_open(void);

/* Note a verdict of this or another process: the end that it reports is not reported again, even if
 * the reporting process is gone by now. A suspicion starts the NCCLGUARD_DEATH_TIMEOUT clock. */
void ng_known_deaths_note(const struct ng_incident *incident);

/* The newest verdict on an end: it is on this call, and is reported now. Is it on this call? And
 * when was it reported (0 never)? */
void ng_known_deaths_report(uint64_t group, uint64_t seq);
bool ng_known_deaths_reported(uint64_t group, uint64_t seq);
int64_t ng_known_deaths_reported_mono_ns(void);

/* ---- The NCCLGUARD_DEATH_TIMEOUT clock ---- */

/* An end that others wait for in this call is known. A clock that is already running for an earlier
 * end is kept. */
void ng_known_deaths_start_clock(uint64_t group, uint64_t seq, uint32_t op);

/* Read the clock. True: it is due, and the whole job must be judged as at a deadline, by this alarm
 * (ng_known_deaths_may_act). The clock keeps running meanwhile, in case the policy does not act. */
bool ng_known_deaths_tend_clock(struct ng_alarm *ret_alarm);

/*
 * NCCLGUARD_DEATH_TIMEOUT has passed since the first report of an end that others wait for, and
 * this is the current verdict. May the policy act? Only if the end is certain and both the end and
 * the wait are at least that old. If not, the clock runs for the remaining time; it stops when no
 * rank waits for an ended rank any more. Never if the clock does not run.
 */
bool ng_known_deaths_may_act(const struct ng_verdict *verdict);

/* The deadline of the call in which they wait was reported: the clock has nothing to add. */
void ng_known_deaths_stop_clock(void);

/* When the clock is due; INT64_MAX: it does not run. */
int64_t ng_known_deaths_clock_due_ns(void);

#endif
