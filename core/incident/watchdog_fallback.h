/*
 * What the incident thread does in the watchdog's place when that does not come round.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H
#define NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H

/* From the start of the thread, then once a round. */
void ng_watchdog_fallback_begin(void);
void ng_watchdog_fallback_tend(void);

/* In a forked child. */
void ng_watchdog_fallback_after_fork(void);

#endif
