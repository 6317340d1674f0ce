/*
 * Verdicts over all records of a made-up job, and over those that a merged view keeps: they must be
 * the same. In C, since views are C's.
 */
#ifndef NCCLGUARD_TESTS_UNIT_TOOLS_INGEST_MERGED_H
#define NCCLGUARD_TESTS_UNIT_TOOLS_INGEST_MERGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__BEGIN_DECLS

struct merged {
    char verdict[65536]; /* JSON, with findings */
    uint64_t records;    /* in the view at the end */
    uint32_t findings;
};

/*
 * A job by chance, from `seed`: groups, ranks that stop, differ, skip or repeat a call, records
 * that reach back more or less far, with and without rolling hashes. Judged with as many records as
 * `records_whole` lets the merged view keep whole. 0 or -errno.
 */
int merged_random(unsigned seed, uint64_t records_whole, struct merged *ret_merged);

/* Likewise the files of a folder. */
int merged_folder(const char *folder, uint64_t records_whole, struct merged *ret_merged);

/* How far apart the ends of `count` processes are, as their black boxes in `folder` are read, which
 * all ended at the same moment. 0 or -errno. */
int merged_ends(const char *folder, int count, uint32_t *ret_processes, int64_t *ret_apart_ns);

/* What a view is after it was merged, as dumps in `to`; it was the dump at `from`. */
int merged_dump(const char *from, const char *to, char *why, size_t why_bytes);

__END_DECLS

#endif
