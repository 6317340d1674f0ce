/*
 * Damages evidence and analyzes it, again and again: the same inputs for the same seed.
 *
 *     fuzz_analyze CORPUS [--inputs N] [--seed S] [--first I] [--keep FOLDER]
 *
 * CORPUS is a folder of good evidence. Each input is one file of it, damaged in one to eight
 * places, often together with one that is whole. A fault ends the process with the sanitizer's
 * report and the number of the input; `--first I --inputs 1` makes that one again, and `--keep`
 * leaves it in a folder. An input that takes too long ends it likewise.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/analyze_target.h"

#define FILES_MAX   512
#define SECONDS_MAX 30 /* of one input, under a sanitizer on a busy machine */
#define GROWTH_MAX  4096
#define BLOCK       64

struct sample {
    char name[128];
    uint8_t *bytes;
    size_t count;
    size_t *blocks; /* that have something in them: where damage matters */
    size_t block_count;
};

static struct sample samples[FILES_MAX];
static size_t sample_count;
static uint64_t state;
static char doing[256] = "nothing yet";

/* xorshift64*: good enough, and the same everywhere. */
static uint64_t any(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    uint64_t number = state * UINT64_C(0x2545f4914f6cdd1d);
    return limit ? number % limit : number;
}

static void seed(uint64_t seed, uint64_t input)
{
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (input + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    for (int i = 0; i < 4; i++)
        any(0);
}

/* A signal's handler: only what is safe there. */
static void tell_and_die(int number)
{
    static const char what[] = "fuzz_analyze: took too long, or died, in ";

    if (write(STDERR_FILENO, what, sizeof(what) - 1) > 0 &&
        write(STDERR_FILENO, doing, strlen(doing)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        _exit(number == SIGALRM ? 4 : 5);
    _exit(6);
}

static bool load(const char *folder, const char *name, struct sample *ret_sample)
{
    char path[512];
    struct stat status;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    size_t count = (size_t)status.st_size, used = 0;
    uint8_t *bytes = malloc(count + GROWTH_MAX * 8);
    size_t *blocks = malloc((count / BLOCK + 1) * sizeof(*blocks));
    if (!bytes || !blocks || read(fd, bytes, count) != (ssize_t)count) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    close(fd);
    for (size_t at = 0; at < count; at += BLOCK)
        for (size_t i = at; i < at + BLOCK && i < count; i++)
            if (bytes[i]) {
                blocks[used++] = at;
                break;
            }
    *ret_sample =
        (struct sample){.bytes = bytes, .count = count, .blocks = blocks, .block_count = used};
    snprintf(ret_sample->name, sizeof(ret_sample->name), "%s", name);
    return used > 0;
}

static int compare_samples(const void *left, const void *right)
{
    return strcmp(((const struct sample *)left)->name, ((const struct sample *)right)->name);
}

static void load_all(const char *folder)
{
    DIR *open_folder = opendir(folder);
    const struct dirent *entry;

    while (open_folder && sample_count < FILES_MAX && (entry = readdir(open_folder)) != NULL)
        sample_count +=
            entry->d_name[0] != '.' && load(folder, entry->d_name, &samples[sample_count]);
    if (open_folder)
        closedir(open_folder);
    /* The order of a folder is nobody's promise. */
    qsort(samples, sample_count, sizeof(samples[0]), compare_samples);
}

/* Somewhere in what the sample holds, rarely anywhere. */
static size_t any_place(const struct sample *sample, size_t count)
{
    if (any(16) == 0)
        return any(count);
    size_t place = sample->blocks[any(sample->block_count)] + any(BLOCK);
    return place < count ? place : any(count);
}

static const char *const words[] = {
    "0",
    "-1",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\\u0000",
    "\"records\"",
    "\"members\"",
    "4294967296",
    "16777216",
};

static void put_number(uint8_t *at, size_t room)
{
    static const uint64_t numbers[] = {0,         1,          0x7f,       0x80,       0xff,
                                       0x7fff,    0xffff,     0x7fffffff, 0x80000000, 0xffffffff,
                                       INT64_MAX, UINT64_MAX, 1u << 24,   4096};
    uint64_t number = numbers[any(sizeof(numbers) / sizeof(numbers[0]))];
    size_t width = (size_t)1 << any(4);

    memcpy(at, &number, width < room ? width : room);
}

/* One place of damage; the new size. */
static size_t damage(const struct sample *sample, uint8_t *bytes, size_t count)
{
    static const char opcodes[] = "(.012FIJKLMNPQRSTUVXabcd}eghijl]opqrst)uG\x80\x81\x85\x86\x87"
                                  "\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x93\x94\x95\x96";
    size_t place = any_place(sample, count), length = 1 + any(any(8) ? 16 : GROWTH_MAX);

    switch (any(9)) {
    case 0:
        bytes[place] ^= (uint8_t)(1 << any(8));
        return count;
    case 1:
        bytes[place] = (uint8_t)any(256);
        return count;
    case 2:
        put_number(bytes + place, count - place);
        return count;
    case 3:
        bytes[place] = (uint8_t)opcodes[any(sizeof(opcodes) - 1)];
        return count;
    case 4: { /* something twice */
        length = length < count - place ? length : count - place;
        memmove(bytes + place + length, bytes + place, count - place);
        return count + length;
    }
    case 5: /* something not at all */
        length = length < count - place ? length : count - place;
        memmove(bytes + place, bytes + place + length, count - place - length);
        return count - length;
    case 6: /* cut off */
        return any(4) ? count : place;
    case 7: { /* a part of another file */
        const struct sample *other = &samples[any(sample_count)];
        size_t from = any_place(other, other->count);
        length = length < count - place ? length : count - place;
        length = length < other->count - from ? length : other->count - from;
        memcpy(bytes + place, other->bytes + from, length);
        return count;
    }
    default: {
        const char *word = words[any(sizeof(words) / sizeof(words[0]))];
        length = strlen(word) < count - place ? strlen(word) : count - place;
        memcpy(bytes + place, word, length);
        return count;
    }
    }
}

/* Pages of nothing but zeros stay holes: black boxes are mostly that. */
static void write_file(const char *path, const uint8_t *bytes, size_t count)
{
    static const uint8_t zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0;

    for (size_t at = 0; good && at < count; at += sizeof(zeros)) {
        size_t part = count - at < sizeof(zeros) ? count - at : sizeof(zeros);
        good = memcmp(bytes + at, zeros, part) == 0 ||
               pwrite(fd, bytes + at, part, (off_t)at) == (ssize_t)part;
    }
    if (!good || ftruncate(fd, (off_t)count) != 0 || close(fd) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
}

/* One input; whether all of its files were usable. */
static bool fuzz(const char *folder, uint64_t number, uint64_t input)
{
    static uint8_t *scratch;
    static size_t room;
    char damaged[512], whole[512];
    const char *paths[] = {damaged, whole};

    seed(number, input);
    const struct sample *sample = &samples[any(sample_count)];
    const struct sample *beside = &samples[any(sample_count)];
    bool together = any(2) && strcmp(sample->name, beside->name) != 0;
    size_t count = sample->count;
    if (count + GROWTH_MAX * 9 > room) {
        room = count + GROWTH_MAX * 9;
        scratch = realloc(scratch, room);
        if (!scratch)
            exit(1);
    }
    memcpy(scratch, sample->bytes, count);
    for (uint64_t times = 1 + any(any(2) ? 2 : 8); times > 0 && count > 0; times--)
        count = damage(sample, scratch, count);
    snprintf(damaged, sizeof(damaged), "%s/%s", folder, strchr(sample->name, '.') + 1);
    snprintf(whole, sizeof(whole), "%s/%s", folder, strchr(beside->name, '.') + 1);
    together &= strcmp(damaged, whole) != 0;
    snprintf(doing, sizeof(doing), "input %" PRIu64 " of seed %" PRIu64 ": %s%s%s", input, number,
             sample->name, together ? " and " : "", together ? beside->name : "");
    write_file(damaged, scratch, count);
    if (together)
        write_file(whole, beside->bytes, beside->count);
    alarm(SECONDS_MAX);
    size_t usable = analyze_files(paths, together ? 2 : 1);
    alarm(0);
    return usable == (together ? 2 : 1);
}

static void remove_inputs(const char *folder)
{
    DIR *open_folder = opendir(folder);
    const struct dirent *entry;
    char path[768];

    while (open_folder && (entry = readdir(open_folder)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (open_folder)
        closedir(open_folder);
}

int main(int argc, char **argv)
{
    uint64_t inputs = 1000, number = 1, first = 0, usable = 0;
    char folder[] = "/tmp/ncclguard-fuzz.XXXXXX";
    const char *keep = NULL;

    for (int i = 2; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--inputs") == 0)
            inputs = value;
        else if (strcmp(argv[i], "--seed") == 0)
            number = value;
        else if (strcmp(argv[i], "--first") == 0)
            first = value;
        else if (strcmp(argv[i], "--keep") == 0)
            keep = argv[i + 1];
    }
    if (argc < 2 || argc % 2) {
        fprintf(stderr, "usage: %s CORPUS [--inputs N] [--seed S] [--first I] [--keep FOLDER]\n",
                argv[0]);
        return 2;
    }
    load_all(argv[1]);
    if (sample_count < 2 || (!keep && !mkdtemp(folder))) {
        fprintf(stderr, "%s: no evidence\n", argv[1]);
        return 1;
    }
    signal(SIGALRM, tell_and_die);
    signal(SIGABRT, tell_and_die);
    for (uint64_t i = first; i < first + inputs; i++) {
        usable += fuzz(keep ? keep : folder, number, i);
        if (!keep)
            remove_inputs(folder);
    }
    if (!keep)
        rmdir(folder);
    printf("%" PRIu64 " inputs from %zu files, %" PRIu64
           " of them usable in spite of the damage, no fault\n",
           inputs, sample_count, usable);
    return 0;
}
