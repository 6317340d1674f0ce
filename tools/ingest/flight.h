/*
 * The content of a dump of PyTorch's flight recorder, uninterpreted: entries and process groups.
 *
 * Read from the pickle by tools/ingest/flight_pickle.c, interpreted by tools/ingest/read_flight.c.
 * Texts point into the bytes of the pickle, which must outlive this.
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

/* A frame of the program's stack at a call. */
struct ng_flight_frame {
    struct ng_flight_text name, file;
    int32_t line; /* 0 unknown */
};

/* Which side of an operation has the count that was passed to NCCL. */
enum ng_flight_side { NG_FLIGHT_NEITHER, NG_FLIGHT_INPUT, NG_FLIGHT_OUTPUT, NG_FLIGHT_EITHER };

/* A known profiling name. */
struct ng_flight_op {
    const char *name; /* "nccl:all_reduce" */
    enum ng_op op;
    enum ng_flight_side side;
    bool closes; /* may be the closing entry of operations in one NCCL group, which precede it */
};

enum ng_flight_state {
    NG_FLIGHT_NO_STATE,
    NG_FLIGHT_SCHEDULED,
    NG_FLIGHT_STARTED,
    NG_FLIGHT_COMPLETED,
};

struct ng_flight_entry {
    int64_t record_id, coll_seq, p2p_seq;         /* -1 unknown */
    int64_t created_ns, started_ns, completed_ns; /* Unix time; 0 unknown, or not yet */
    int64_t timeout_ms;                           /* 0 unknown */
    int64_t duration_ns;                          /* 0 not measured */
    struct ng_flight_text profiling_name;
    const struct ng_flight_op *op;      /* NULL: an unknown name, or one that contains ranks */
    uint64_t input_count, output_count; /* elements */
    int16_t input_dtype, output_dtype;  /* NCCL's number; -1 unknown */
    uint32_t group;                     /* index in ng_flight.names; UINT32_MAX unknown */
    bool is_p2p;
    enum ng_flight_state state;
    uint32_t first_frame, frame_count; /* in ng_flight.stacks, innermost first */
};

/* An entry of pg_config. */
struct ng_flight_group {
    struct ng_flight_text key, desc;
    struct ng_flight_text ranks; /* "[0, 1]" */
};

struct ng_flight {
    struct ng_flight_entry *entries;
    struct ng_flight_group *groups;
    struct ng_flight_text *names;   /* names of process groups used by entries */
    struct ng_flight_frame *frames; /* entries may share them */
    uint32_t *stacks;               /* indices in `frames` */
    size_t entry_count, group_count, name_count, frame_count, stack_count;
    struct ng_flight_text version;
    bool is_flight;    /* it has a list of entries, unlike any other pickle */
    bool on_request;   /* ncclguard wrote it on request */
    int64_t dumped_ns; /* Unix time of the state shown; 0 unknown */

    /* Private to the reader, kept from one file to the next. */
    size_t entry_room, group_room, name_room, frame_room, stack_room;
    size_t last_name; /* looked up last */
    uint32_t *slots;  /* name index + 1 by hash of the name; the size is a power of two */
    size_t slot_count;
    struct ng_unpickle pickle;
};

/* Cannot fail. Used by one thread at a time. */
void ng_flight_init(struct ng_flight *flight);
void ng_flight_fini(struct ng_flight *flight);

/*
 * Read the pickle in `bytes`, which is modified. The previous content is discarded. 0; -EBADMSG
 * damaged or another pickle, and the other errors of ng_unpickle_read, with the reason in `why`.
 */
int ng_flight_parse(struct ng_flight *flight, uint8_t *bytes, size_t count, char *why,
                    size_t why_bytes);

/* Index of a name among those used by entries; SIZE_MAX not found. */
size_t ng_flight_find_name(const struct ng_flight *flight, const struct ng_flight_text *name);

#endif
