/*
 * What a dump of PyTorch's flight recorder says, as it says it: entries and process groups.
 *
 * Read from the pickle by tools/ingest/flight_pickle.c, understood by tools/ingest/read_flight.c.
 * Texts point into the bytes of the pickle, which must stay as long as this is used.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_FLIGHT_H
#define NCCLGUARD_TOOLS_INGEST_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/op.h"
#include "tools/ingest/read_pickle.h"

struct ng_flight_text {
    const char *text; /* NULL: none */
    uint32_t length;
};

/* Which side of an operation has the count that NCCL was called with. */
enum ng_flight_side { NG_FLIGHT_NEITHER, NG_FLIGHT_INPUT, NG_FLIGHT_OUTPUT, NG_FLIGHT_EITHER };

/* A profiling name that is known. */
struct ng_flight_op {
    const char *name; /* "nccl:all_reduce" */
    enum ng_op op;
    enum ng_flight_side side;
    bool closes; /* may be the closing entry of operations in one NCCL group, which stand before */
};

enum ng_flight_state {
    NG_FLIGHT_NO_STATE,
    NG_FLIGHT_SCHEDULED,
    NG_FLIGHT_STARTED,
    NG_FLIGHT_COMPLETED,
};

struct ng_flight_entry {
    int64_t record_id, coll_seq, p2p_seq;         /* -1 not told */
    int64_t created_ns, started_ns, completed_ns; /* Unix time; 0 not told, or not yet */
    int64_t timeout_ms;                           /* 0 not told */
    int64_t duration_ns;                          /* 0 not measured */
    struct ng_flight_text profiling_name;
    const struct ng_flight_op *op; /* NULL: a name that is not known, or one with ranks in it */
    uint64_t input_count, output_count; /* elements */
    int16_t input_dtype, output_dtype;  /* NCCL's number; -1 not told */
    uint32_t group;                     /* index in ng_flight.names; UINT32_MAX not told */
    bool is_p2p;
    enum ng_flight_state state;
};

/* An entry of pg_config. */
struct ng_flight_group {
    struct ng_flight_text key, desc;
    struct ng_flight_text ranks; /* "[0, 1]" */
};

struct ng_flight {
    struct ng_flight_entry *entries;
    struct ng_flight_group *groups;
    struct ng_flight_text *names; /* of process groups that entries have */
    size_t entry_count, group_count, name_count;
    struct ng_flight_text version;
    bool is_flight;    /* it has a list of entries: no other pickle */
    bool on_request;   /* ncclguard wrote it because somebody asked for it */
    int64_t dumped_ns; /* Unix time at which it was so; 0 not told */

    /* The reader's own, kept from one file to the next. */
    size_t entry_room, group_room, name_room;
    size_t last_name; /* that was looked up */
    uint32_t *places; /* name index + 1 by hash of the name; a power of two of them */
    size_t place_count;
    struct ng_unpickle pickle;
};

/* Nothing to fail. One thread at a time uses it. */
void ng_flight_init(struct ng_flight *flight);
void ng_flight_fini(struct ng_flight *flight);

/*
 * Read the pickle in `bytes`, which is changed. What was read before is forgotten. 0; -EBADMSG
 * damaged or another pickle, and the other errors of ng_unpickle_read, with the reason in `why`.
 */
int ng_flight_parse(struct ng_flight *flight, uint8_t *bytes, size_t count, char *why,
                    size_t why_bytes);

/* Index of a name among those that entries have; SIZE_MAX it is not there. */
size_t ng_flight_find_name(const struct ng_flight *flight, const struct ng_flight_text *name);

#endif
