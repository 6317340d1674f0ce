/*
 * Whether policy `teardown` is about to end the process, and the wait for that end.
 */
#ifndef NCCLGUARD_CORE_POLICY_TEARDOWN_H
#define NCCLGUARD_CORE_POLICY_TEARDOWN_H

#include <stdbool.h>

/* From now on the process ends as soon as the abort has returned. Incident thread. */
void ng_teardown_begin(void);
bool ng_teardown_has_begun(void);

/* If `teardown` is about to end the process, does not return before it does, so that the exit
 * status does not depend on a race. Else returns at once. Program threads. */
void ng_teardown_await_end(void);

#endif
