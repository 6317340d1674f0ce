/*
 * One damaged input of `ncclguard analyze`, from its bytes to what is printed.
 */
#ifndef NCCLGUARD_TESTS_FUZZ_ANALYZE_TARGET_H
#define NCCLGUARD_TESTS_FUZZ_ANALYZE_TARGET_H

#include <stddef.h>
#include <stdint.h>

/*
 * Analyze the files at these paths, all of one folder, as the command does, with as many threads as
 * `paths` needs, and discard the output. Returns how many files were usable. Without memory it ends
 * the process, as a failure.
 */
size_t analyze_files(const char *const *paths, size_t count);

/* The entry of libFuzzer: one file, of the kind that its first byte says. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#endif
