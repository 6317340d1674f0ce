/*
 * One process of a view in a few bytes: what it reports to the ranks of other hosts.
 *
 * Pure, without malloc. Layout, version 1. A number is a varint: 7 bits a byte, lowest first; the
 * top bit says that more follow. A signed number is zigzag-encoded first (0, -1, 1, -2 … become 0,
 * 1, 2, 3 …). "Fixed" is 8 bytes, lowest first. A text is a number n and then: n 0: ""; n even: n /
 * 2 bytes follow; n odd: the same as text (n - 1) / 2 of these bytes, counted from 0 among those
 * whose bytes followed, the first NG_PROGRESS_TEXTS of them. A plain text has an even n and is not
 * counted: fields added to a block use only plain texts, since not every reader knows them. A block
 * is its length, a number, and then so many bytes. An id of a group is 0 none; 1 and then fixed;
 * else 2 + its index.
 *
 *   "NGPR", version (a number)
 *   block     struct ng_progress_head
 *   text      struct ng_view_process.source
 *   number    how many groups, then their ids fixed, then as many blocks
 *   number    how many members, then for each a block, and how many records and as many blocks
 *   number    how many calls, then as many blocks
 *   number    if the head says so: how many communicators could not be created, the newest, then
 *             as many blocks
 *
 * store/wire/progress_fields.c has the fields of each block, in their order, and the meaning of
 * their bits (store/wire/progress_wire.h). Bytes after the known fields of a block, or after these
 * parts, are from a later writer and are skipped; any other change is a new version.
 */
#ifndef NCCLGUARD_STORE_WIRE_PROGRESS_H
#define NCCLGUARD_STORE_WIRE_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"

#define NG_PROGRESS_VERSION   1
#define NG_PROGRESS_TEXTS     64u
#define NG_PROGRESS_BYTES_MAX (4u << 20) /* longer ones are not ours */

/* Measured durations of a member that are reported: the newest. */
#define NG_PROGRESS_SAMPLES 16u

/* Number of records that suffices while the job is healthy, and for a verdict. */
#define NG_PROGRESS_RECORDS_PEACE   16u
#define NG_PROGRESS_RECORDS_SUSPECT 512u

enum ng_progress_reason {
    NG_PROGRESS_BY_ITSELF = 0,
    NG_PROGRESS_BY_NEIGHBOUR = 1, /* by a process of its host, since it cannot report itself */
};

/* How much to write, and what only the caller knows. */
struct ng_progress_limits {
    uint32_t records;        /* per process: all unfinished ones, oldest first, then the newest */
    uint64_t label;          /* incarnation of the job; 0 not known */
    int64_t written_unix_ns; /* now */
    enum ng_progress_reason reason;
    uint64_t launch_run; /* what the launcher says of its run: struct ng_box_header; 0 nothing */
};

/* Readable without the rest. */
struct ng_progress_head {
    uint64_t label;
    int64_t written_unix_ns; /* ages are as of then */
    enum ng_progress_reason reason;
    uint64_t launch_run;
    struct ng_view_process process; /* what is written of it; not its `source` */
};

/*
 * Encode process `process` (its index) of a view, sealed or not, with members, calls and records.
 * The bytes belong to `arena`. 0; -EINVAL: no such process; -EMSGSIZE: more than
 * NG_PROGRESS_BYTES_MAX; -ENOMEM. `self`, and the results of ng_view_seal, are not encoded.
 */
int ng_progress_encode(const struct ng_view *view, uint32_t process,
                       const struct ng_progress_limits *limits, struct ng_arena *arena,
                       const void **ret_data, size_t *ret_bytes);

/*
 * Append the process to a view that is not sealed yet; returns its index there. Ages are as of the
 * time of writing: see ng_progress_age; none is negative, or so large that a sum of two would
 * overflow. Calls and records of operations that this version does not know are left out. -EBADMSG:
 * not such a blob, truncated or damaged, -EPROTO: of a newer version: nothing is appended. -ENOMEM:
 * a part may have been appended.
 */
int ng_progress_decode(struct ng_view *view, const void *data, size_t bytes, uint32_t *ret_process);

/* The head only: 0, -EBADMSG or -EPROTO as above. The rest is not examined. */
int ng_progress_peek(const void *data, size_t bytes, struct ng_progress_head *ret_head);

/*
 * Add the time since it was written: age a process of a view that is not sealed yet, with its
 * calls, members and records, by `by_ns`. State of a process that has ended keeps the age that it
 * had at its end.
 */
void ng_progress_age(struct ng_view *view, uint32_t process, int64_t by_ns);

#endif
