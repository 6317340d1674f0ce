/*
 * Looks up and asks in the name of the library that it is built into.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_ASKER_H
#define NCCLGUARD_TESTS_UNIT_SHIM_CUDA_DOOR_ASKER_H

#include <stdint.h>

__BEGIN_DECLS

typedef int ask_function(const char *name, void **pfn, int version, uint64_t flags);
typedef int ask_v2_function(const char *name, void **pfn, int version, uint64_t flags, int *status);

/* dlsym; `question` in either form, which answers with a function. */
typedef void *asker_look_up_function(void *handle, const char *name);
typedef void *asker_ask_function(ask_function *question, const char *name, int version,
                                 uint64_t flags);
typedef void *asker_ask_v2_function(ask_v2_function *question, const char *name, int version,
                                    uint64_t flags);
asker_look_up_function asker_look_up;
asker_ask_function asker_ask;
asker_ask_v2_function asker_ask_v2;

__END_DECLS

#endif
