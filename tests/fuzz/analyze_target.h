/*
 * One damaged input of `ncclguard analyze`, from its bytes to what is printed.
 */
#ifndef NCCLGUARD_TESTS_FUZZ_ANALYZE_TARGET_H
#define NCCLGUARD_TESTS_FUZZ_ANALYZE_TARGET_H

#include <stddef.h>
#include <stdint.h>

/*
 * Analyze the files at these paths, of one folder, together, as the command does, by as many
 * threads as `paths` calls for, and throw away what it prints. How many of them were usable; it is
 * an error, and ends the process, if memory is short.
 */
size_t analyze_files(const char *const *paths, size_t count);

/* The entry of libFuzzer: one file, of the kind that its first byte says. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
