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
#include "tests/fuzz/damage.h"

#define FILES_MAX   512
#define SECONDS_MAX 30 /* of one input, under a sanitizer on a busy machine */

static struct damage_sample samples[FILES_MAX];
static size_t sample_count;
static char doing[256] = "nothing yet";

/* A signal's handler: only what is safe there. */
static void tell_and_die(int number)
{
    static const char what[] = "fuzz_analyze: took too long, or died, in ";

    if (write(STDERR_FILENO, what, sizeof(what) - 1) > 0 &&
        write(STDERR_FILENO, doing, strlen(doing)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        _exit(number == SIGALRM ? 4 : 5);
    _exit(6);
}

static bool load(const char *folder, const char *name, struct damage_sample *ret_sample)
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
    size_t count = (size_t)status.st_size;
    uint8_t *bytes = malloc(count);
    if (!bytes || read(fd, bytes, count) != (ssize_t)count) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    close(fd);
    *ret_sample = damage_sample_make(name, bytes, count);
    return true;
}

static int compare_samples(const void *left, const void *right)
{
    const struct damage_sample *one = left, *other = right;

    return strcmp(one->name, other->name);
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
    char damaged[512], whole[512];
    const char *paths[] = {damaged, whole};
    size_t count;

    damage_seed(number, input);
    size_t index = damage_any(sample_count);
    const struct damage_sample *sample = &samples[index];
    const struct damage_sample *beside = &samples[damage_any(sample_count)];
    bool together = damage_any(2) && strcmp(sample->name, beside->name) != 0;
    const uint8_t *bytes = damage_do(samples, sample_count, index, &count);
    snprintf(damaged, sizeof(damaged), "%s/%s", folder, strchr(sample->name, '.') + 1);
    snprintf(whole, sizeof(whole), "%s/%s", folder, strchr(beside->name, '.') + 1);
    together &= strcmp(damaged, whole) != 0;
    snprintf(doing, sizeof(doing), "input %" PRIu64 " of seed %" PRIu64 ": %s%s%s", input, number,
             sample->name, together ? " and " : "", together ? beside->name : "");
    write_file(damaged, bytes, count);
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
