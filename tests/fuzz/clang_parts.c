/*
 * The readers of fuzz_parts, driven by clang's fuzzer, which sees what of them an input reaches.
 *
 *     FUZZ_PART=NAME clang_parts FOLDER [-max_total_time=SECONDS …]
 *
 * FOLDER is filled with the part's good samples first. tests/fuzz/run-clang builds and calls it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/parts.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static const struct part *part;

static void write_sample(const char *folder, size_t number, const struct damage_sample *sample)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/sample-%zu", folder, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    part_promise(fd >= 0 && write(fd, sample->bytes, sample->count) == (ssize_t)sample->count,
                 "a sample cannot be written");
    close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct damage_sample samples[PART_SAMPLES_MAX];
    const char *name = getenv("FUZZ_PART");

    part = name ? part_find(name) : NULL;
    part_promise(part != NULL, "FUZZ_PART names no part of tests/fuzz/parts.c");
    size_t count = part->make(samples);
    for (size_t i = 0; i < count; i++) {
        /* A file, to do one input again, or an option has no room for samples. */
        if (*argc > 1 && access((*argv)[1], X_OK) == 0)
            write_sample((*argv)[1], i, &samples[i]);
        damage_sample_free(&samples[i]);
    }
    damage_end();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    part->take(bytes, count);
    return 0;
}
