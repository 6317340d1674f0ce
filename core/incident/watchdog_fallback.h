/*
 * What the incident thread does in place of the watchdog while the watchdog is stuck.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H
#define NCCLGUARD_CORE_INCIDENT_WATCHDOG_FALLBACK_H

/* At the start of the thread, then once per round. */
void ng_watchdog_fallback_begin(void);
void ng_watchdog_fallback_check(void);

#endif
