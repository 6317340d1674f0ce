/*
 * Resident memory of a process that uses NCCL: run bare and under the guard, the difference is what
 * the guard holds.
 *
 * memory [--comms N] [--calls N] [--settle-ms N]
 *
 * Prints one JSON object: kB of each kind of mapping, resident (rss), this process's share of it
 * (pss), and what only this process has (private: gone from the machine when it ends).
 */
#include "tests/bench/own_box.h"
#include "tests/bench/workload.h"

#include "core/recorder/box.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum part { PART_BOX, PART_GUARD, PART_HEAP, PART_STACK, PART_ANONYMOUS, PART_FILES, PARTS };

static const char *const part_names[PARTS] = {"box",   "guard_library", "heap",
                                              "stack", "anonymous",     "files"};

struct size {
    long size, rss, pss, private;
};

static enum part part_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (!strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)))
        return PART_BOX;
    if (strstr(name, "libncclguard"))
        return PART_GUARD;
    if (!strcmp(name, "[heap]"))
        return PART_HEAP;
    if (!strcmp(name, "[stack]"))
        return PART_STACK;
    if (!*name || !strncmp(name, "[anon", 5))
        return PART_ANONYMOUS;
    return PART_FILES;
}

static void read_parts(struct size ret_parts[PARTS])
{
    /* A static buffer: stdio's own would be part of what is measured. */
    static char buffer[1 << 16];
    char line[4096], path[4096] = "";
    enum part part = PART_FILES;
    memset(ret_parts, 0, sizeof(struct size[PARTS]));
    FILE *smaps = fopen("/proc/self/smaps", "re");
    if (!smaps) {
        perror("/proc/self/smaps");
        exit(3);
    }
    setvbuf(smaps, buffer, _IOFBF, sizeof(buffer));
    while (fgets(line, sizeof(line), smaps)) {
        unsigned long start, end;
        long kb;
        path[0] = '\0';
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &start, &end, path) >= 2)
            part = part_of(path);
        else if (sscanf(line, "Size: %ld kB", &kb) == 1)
            ret_parts[part].size += kb;
        else if (sscanf(line, "Rss: %ld kB", &kb) == 1)
            ret_parts[part].rss += kb;
        else if (sscanf(line, "Pss: %ld kB", &kb) == 1)
            ret_parts[part].pss += kb;
        else if (sscanf(line, "Private_Clean: %ld kB", &kb) == 1 ||
                 sscanf(line, "Private_Dirty: %ld kB", &kb) == 1)
            ret_parts[part].private += kb;
    }
    fclose(smaps);
}

static long read_rollup_rss(void)
{
    char line[256];
    long rss = -1;
    FILE *rollup = fopen("/proc/self/smaps_rollup", "re");
    if (!rollup)
        return -1;
    while (rss < 0 && fgets(line, sizeof(line), rollup))
        if (sscanf(line, "Rss: %ld kB", &rss) != 1)
            rss = -1;
    fclose(rollup);
    return rss;
}

int main(int argc, char **argv)
{
    enum { MOST = 1024, BURST = 100 };
    static ncclComm_t comms[MOST];
    static struct size parts[PARTS];
    long ncomms = 8, calls = 1000, settle_ms = 2500;

    for (int i = 1; i < argc; i++) {
        long *number = !strcmp(argv[i], "--comms")       ? &ncomms
                       : !strcmp(argv[i], "--calls")     ? &calls
                       : !strcmp(argv[i], "--settle-ms") ? &settle_ms
                                                         : NULL;
        if (!number || i + 1 == argc || (*number = atol(argv[++i])) < 1) {
            fprintf(stderr, "usage: memory [--comms N] [--calls N] [--settle-ms N]\n");
            return 2;
        }
    }
    if (ncomms > MOST || workload_load_driver())
        return 3;

    workload_create(comms, (int)ncomms);
    for (long left = calls; left > 0; left -= BURST) {
        workload_run(WORKLOAD_ROTATE, comms, (int)ncomms,
                     left < BURST ? (unsigned)left : (unsigned)BURST);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    /* What the guard touches once a second has been touched when this is over. */
    nanosleep(&(struct timespec){settle_ms / 1000, settle_ms % 1000 * 1000000}, NULL);

    read_parts(parts);
    struct own_box box = {0};
    bool guarded = own_box_read(&box) == 0;
    printf("{\"guarded\": %s, \"records\": %llu, \"rollup_rss_kb\": %ld, \"parts\": {",
           guarded ? "true" : "false", (unsigned long long)box.records, read_rollup_rss());
    for (int i = 0; i < PARTS; i++)
        printf("%s\"%s\": {\"size\": %ld, \"rss\": %ld, \"pss\": %ld, \"private\": %ld}",
               i ? ", " : "", part_names[i], parts[i].size, parts[i].rss, parts[i].pss,
               parts[i].private);
    printf("}}\n");
    workload_destroy(comms, (int)ncomms);
    return 0;
}
