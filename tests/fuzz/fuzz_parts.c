/*
 * Damages what the guard's readers read, again and again: the same inputs for the same seed.
 *
 *     fuzz_parts PART [--inputs N] [--seed S] [--first I]
 *
 * Each input is a good sample of that part (parts.h), damaged in one to eight places, in memory
 * that ends with it. A fault ends the process with the sanitizer's report and the number of the
 * input; `--first I --inputs 1` makes that one again. One that takes too long ends it likewise.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/parts.h"

#define SECONDS_MAX 30 /* of one input, under a sanitizer on a busy machine */

static char doing[160] = "nothing yet";

/* A signal's handler: only what is safe there. */
static void tell_and_die(int number)
{
    static const char what[] = "fuzz_parts: took too long, or died, in ";

    if (write(STDERR_FILENO, what, sizeof(what) - 1) > 0 &&
        write(STDERR_FILENO, doing, strlen(doing)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        _exit(number == SIGALRM ? 4 : 5);
    _exit(6);
}

static bool fuzz(const struct part *part, const struct damage_sample *samples, size_t sample_count,
                 uint64_t number, uint64_t input)
{
    size_t count;

    snprintf(doing, sizeof(doing), "input %" PRIu64 " of seed %" PRIu64 " of %s", input, number,
             part->name);
    damage_seed(number, input);
    const uint8_t *damaged = damage_do(samples, sample_count, damage_any(sample_count), &count);
    /* Of its own, so that a sanitizer sees what is read behind its end. */
    uint8_t *bytes = malloc(count ? count : 1);
    if (!bytes)
        exit(1);
    memcpy(bytes, damaged, count);
    alarm(SECONDS_MAX);
    bool taken = part->take(bytes, count);
    alarm(0);
    free(bytes);
    return taken;
}

int main(int argc, char **argv)
{
    static struct damage_sample samples[PART_SAMPLES_MAX];
    const struct part *part = argc > 1 ? part_find(argv[1]) : NULL;
    uint64_t inputs = 1000, number = 1, first = 0, taken = 0;

    for (int i = 2; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--inputs") == 0)
            inputs = value;
        else if (strcmp(argv[i], "--seed") == 0)
            number = value;
        else if (strcmp(argv[i], "--first") == 0)
            first = value;
    }
    if (!part || argc % 2) {
        fprintf(stderr, "usage: %s PART [--inputs N] [--seed S] [--first I]; PART is one of",
                argv[0]);
        for (size_t i = 0; parts[i]; i++)
            fprintf(stderr, " %s", parts[i]->name);
        fprintf(stderr, "\n");
        return 2;
    }
    size_t sample_count = part->make(samples);
    signal(SIGALRM, tell_and_die);
    signal(SIGABRT, tell_and_die);
    for (size_t i = 0; i < sample_count; i++)
        part_promise(part->take(samples[i].bytes, samples[i].count), "a good sample is refused");
    for (uint64_t i = first; i < first + inputs; i++)
        taken += fuzz(part, samples, sample_count, number, i);
    printf("%s: %" PRIu64 " inputs from %zu samples, %" PRIu64
           " of them taken in spite of the damage, no fault\n",
           part->name, inputs, sample_count, taken);
    for (size_t i = 0; i < sample_count; i++)
        damage_sample_free(&samples[i]);
    damage_end();
    return 0;
}
