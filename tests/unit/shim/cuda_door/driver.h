/*
 * A CUDA driver that does nothing but remember: what the tests ask of it beside its own functions.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_DRIVER_H
#define NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_DRIVER_H

#include <sys/cdefs.h>

__BEGIN_DECLS

/* Every function of it returns this, those for questions excepted. */
#define DRIVER_RESULT 100 /* CUDA_ERROR_NO_DEVICE */

/* Its own function with this symbol, whoever asks; NULL: it has none. */
void *driver_address(const char *symbol);

/* Calls of the function with this symbol, and the last first argument. */
unsigned driver_calls(const char *symbol);
unsigned long long driver_argument(const char *symbol);

/* Questions to cuGetProcAddress, in either form, from an object whose file name begins so. */
unsigned driver_questions_from(const char *file_name);

/* All questions as lines "form name version flags", up to a limit. */
const char *driver_questions(void);

__END_DECLS

#endif
