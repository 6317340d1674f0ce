/*
 * core/util/fast_clock.h as C++ tests can call it: it has atomics that C++17 cannot read.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_FAST_CLOCK_READER_H
#define NCCLGUARD_TESTS_UNIT_CORE_FAST_CLOCK_READER_H

#include <stdbool.h>
#include <stdint.h>

void fast_clock_keep(void);
void fast_clock_forget(void);
bool fast_clock_is_used(void);
/* Reads it often, and the kernel's clock around it: the most that it was behind and ahead; -1: it
 * went back. */
int64_t fast_clock_read(unsigned times, int64_t *ret_ahead_ns);

#endif
