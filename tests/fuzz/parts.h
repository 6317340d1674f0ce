/*
 * Readers of what others wrote, each with good samples of it: for fuzz_parts, and for clang's
 * fuzzer.
 */
#ifndef NCCLGUARD_TESTS_FUZZ_PARTS_H
#define NCCLGUARD_TESTS_FUZZ_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/damage.h"

#define PART_SAMPLES_MAX 512

struct part {
    const char *name;
    /* Good samples, at least one; how many. */
    size_t (*make)(struct damage_sample samples[PART_SAMPLES_MAX]);
    /* Read `count` bytes, damaged; behind them nothing may be read. True: they were taken for good.
     * A promise of the reader that does not hold ends the process. */
    bool (*take)(const uint8_t *bytes, size_t count);
};

extern const struct part part_progress, part_incident, part_faults, part_rules, part_frames,
    part_lines, part_ras;

extern const struct part *const parts[]; /* all of them; NULL ends it */

/* NULL: there is none of that name. */
const struct part *part_find(const char *name);

/* Ends the process, unless it holds. */
void part_promise(bool holds, const char *what);

#endif
