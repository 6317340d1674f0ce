/*
 * Device memory as the hooks on the driver report it, in C: C++ does not know the black box's
 * atomics.
 */
#ifndef NCCLGUARD_TESTS_BENCH_FOLLOWED_H
#define NCCLGUARD_TESTS_BENCH_FOLLOWED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

void followed_allocate(uintptr_t base, size_t bytes);
bool followed_free(uintptr_t base);              /* false: it is not known */
void followed_map(uintptr_t base, size_t bytes); /* in a reservation of its own */
void followed_unmap(uintptr_t base, size_t bytes);
bool followed_find(uintptr_t address);
void followed_forget(void); /* all of it */

__END_DECLS

#endif
