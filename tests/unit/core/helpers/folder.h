/*
 * The folder tests/unit/core of the sources, of which helpers/core.h makes a string.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_FOLDER_H
#define NCCLGUARD_TESTS_UNIT_CORE_FOLDER_H

#ifdef __cplusplus
extern "C" {
#endif

extern const char ng_test_folder[];

#ifdef __cplusplus
}
#endif

#endif
