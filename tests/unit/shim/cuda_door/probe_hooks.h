/*
 * The shim with hooks of the test's own on every function that can be hooked.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_PROBE_HOOKS_H
#define NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_PROBE_HOOKS_H

#include <stdbool.h>
#include <sys/cdefs.h>

__BEGIN_DECLS
#pragma GCC visibility push(default)

/*
 * CUDA_PROBE_HOOKS, read when the library is loaded: symbols of the driver with commas between, or
 * "all" that the program may get. Without it nothing is hooked.
 */

/* The hook for a symbol, enabled or not; what enabling it (again) returns. */
void *cuda_probe_hook(const char *symbol);
int cuda_probe_enable(const char *symbol);

/* What the program gets for the two forms of cuGetProcAddress while a hook is enabled. */
void *cuda_probe_door(bool second_form);

/* Calls of a hook so far, and the driver's function behind it once it was handed out. */
unsigned cuda_probe_calls(const char *symbol);
void *cuda_probe_real(const char *symbol);

#pragma GCC visibility pop
__END_DECLS

#endif
