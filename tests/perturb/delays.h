/*
 * What the delaying library tells of itself; looked up by name, since it is preloaded or not there.
 */
#ifndef NCCLGUARD_TESTS_PERTURB_DELAYS_H
#define NCCLGUARD_TESTS_PERTURB_DELAYS_H

#include <stdint.h>

/* How often this process has been held up so far, and for how long in sum. Any thread, any time. */
uint64_t delays_made(void);
uint64_t delays_asked_ns(void);

#endif
