/*
 * Verdicts over all records of a made-up job, and over those that a digest keeps: they must be the
 * same. In C, since views are C's.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_DIGESTED_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_DIGESTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct digested {
    char verdict[65536]; /* JSON, with findings */
    uint64_t records;    /* in the view at the end */
    uint32_t findings;
};

/*
 * A job by chance, from `seed`: groups, ranks that stop, differ, skip or repeat a call, records
 * that reach back more or less far, with and without rolling hashes. Judged with as many records as
 * `records_whole` lets the digest keep whole. 0 or -errno.
 */
int digested_random(unsigned seed, uint64_t records_whole, struct digested *ret_digested);

/* Likewise the files of a folder. */
int digested_folder(const char *folder, uint64_t records_whole, struct digested *ret_digested);

/* How far apart the ends of `count` processes are, as their black boxes in `folder` are read, which
 * all ended at the same moment. 0 or -errno. */
int digested_ends(const char *folder, int count, uint32_t *ret_processes, int64_t *ret_apart_ns);

/* What a view is after it went through a digest, as dumps in `to`; it was the dump at `from`. */
int digested_dump(const char *from, const char *to, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
