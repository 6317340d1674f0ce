/*
 * The guard of this process, as far as its threads need it: there is no library to tell them from
 * the program's.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_PLAIN_THREADS_H
#define NCCLGUARD_TESTS_UNIT_CORE_PLAIN_THREADS_H

#ifdef __cplusplus
extern "C" {
#endif

void allow_plain_threads(void);

#ifdef __cplusplus
}
#endif

#endif
