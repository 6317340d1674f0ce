/*
 * What the incident thread does in the watchdog's place when that does not come round.
 *
 * Step 7. Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H
#define NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H

/* From the start of the thread, then once a round. */
void ng_stand_in_begin(void);
void ng_stand_in_tend(void);

/* In a forked child. */
void ng_stand_in_after_fork(void);

#endif
