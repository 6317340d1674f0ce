/*
 * Good bytes, damaged by chance: the same damage for the same seed and number, on every machine.
 *
 * One thread.
 */
#ifndef NCCLGUARD_TESTS_FUZZ_DAMAGE_H
#define NCCLGUARD_TESTS_FUZZ_DAMAGE_H

#include <stddef.h>
#include <stdint.h>

#define DAMAGE_GROWTH_MAX 4096 /* bytes that one place of damage may add */

/* Something good. */
struct damage_sample {
    char name[128];
    uint8_t *bytes;
    size_t count;
    size_t *blocks; /* that have something in them: where damage matters */
    size_t block_count;
};

/* From here on, chance is that of this input. */
void damage_seed(uint64_t seed, uint64_t input);

/* A number below `limit`, or any where that is 0. */
uint64_t damage_any(uint64_t limit);

/* A sample of these bytes, which it takes: they are malloc's. Where memory is short, or there are
 * none, the process ends. */
struct damage_sample damage_sample_make(const char *name, uint8_t *bytes, size_t count);

void damage_sample_free(struct damage_sample *sample);

/* Sample `index` with one to eight places of damage, some of it parts of the others. The bytes
 * stay the same until the next call; *ret_count of them. */
const uint8_t *damage_do(const struct damage_sample *samples, size_t sample_count, size_t index,
                         size_t *ret_count);

/* What it needed goes back. */
void damage_end(void);

#endif
