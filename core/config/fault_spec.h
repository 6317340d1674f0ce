/*
 * The specification in NCCLGUARD_FAULT: its grammar, and the known faults.
 *
 *   faults     = fault { ";" fault }
 *   fault      = condition { "," condition } ":" name [ "=" argument ]
 *   condition  = "*" | key "=" value
 *
 *   rank=N         the rank as in verdicts: that of the launcher; if there is none or the process
 *                  drives several devices, that of the device in the largest group
 *   op=PATTERN     NCCL's name without "nccl"; * ? [a-z] as in a shell
 *   group=PATTERN  the communicator's name, or its id of 16 hex digits; for calls that create one
 *                  from another, the parent; may be in double quotes
 *   nth=N          the N-th matching call, from 1; each rank counts its own calls
 *   every=N        every N-th matching call; with nth=, from that one on
 *   prob=P         with this probability, 0 to 1; the same outcome for the same seed=N, rank,
 *                  communicator and number of the call
 *
 * Without nth=, every= and prob=, the fault applies to each matching call. The rows of fault.def
 * are the faults. Pure: no clock, no lock, no allocation; any thread.
 */
#ifndef NCCLGUARD_CORE_CONFIG_FAULT_SPEC_H
#define NCCLGUARD_CORE_CONFIG_FAULT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/op.h"

#define NG_FAULTS_MAX 16u
#define NG_FAULT_TEXT_BYTES                                                                        \
    128u /* of one fault as it is written, with its NUL; longer ones are cut */

enum ng_fault_kind {
#define NG_FAULT(id, name, argument, place, help) NG_FAULT_##id,
#include "core/config/fault.def"
#undef NG_FAULT
    NG_FAULT_KINDS
};

/* What follows its name. */
enum ng_fault_argument {
    NG_FAULT_TAKES_NONE,
    NG_FAULT_TAKES_DURATION,
    NG_FAULT_TAKES_STATUS,
    NG_FAULT_TAKES_RESULT,
    NG_FAULT_TAKES_COUNT,
    NG_FAULT_TAKES_DTYPE,
    NG_FAULT_TAKES_ROOT,
    NG_FAULT_TAKES_REDOP,
};

/* The calls that it can apply to: fault.def. */
enum ng_fault_place {
    NG_FAULT_AT_CALL,
    NG_FAULT_AT_WORK,
    NG_FAULT_AT_COUNT,
    NG_FAULT_AT_DTYPE,
    NG_FAULT_AT_ROOT,
    NG_FAULT_AT_REDOP,
    NG_FAULT_AT_BUFFER,
    NG_FAULT_AT_SWAP,
    NG_FAULT_AT_CREATE,
    NG_FAULT_AT_ID,
    NG_FAULT_AT_ABORT,
    NG_FAULT_AT_STORE,
};

struct ng_fault_info {
    const char *name;
    enum ng_fault_argument argument;
    enum ng_fault_place place;
    const char *help;
};

/* Indexed by enum ng_fault_kind. */
extern const struct ng_fault_info ng_fault_table[NG_FAULT_KINDS];

/* One condition, for people. */
struct ng_fault_condition {
    const char *name;
    const char *value; /* what it takes */
    const char *help;
};

extern const struct ng_fault_condition ng_fault_conditions[];
extern const size_t ng_fault_condition_count;

/* How an argument is written, for people; "" if it takes none. */
const char *ng_fault_argument_text(enum ng_fault_argument argument);

struct ng_fault {
    enum ng_fault_kind kind;
    /* The match. */
    int rank;              /* -1 any */
    char group[64];        /* pattern; "" any */
    bool ops[NG_OP_LIMIT]; /* calls that it can apply to; none for place ABORT */
    uint64_t nth, every;   /* 0 not given */
    uint64_t chance;       /* of 2^64 - 1; 0 not given */
    uint64_t seed;
    /* The argument. */
    int64_t duration_ns;
    int64_t number; /* status, result, data type or reduction; count or root, or their increment */
    bool relative;  /* count, root: `number` is an increment */
    char text[NG_FAULT_TEXT_BYTES]; /* as it was written */
};

struct ng_fault_spec {
    uint32_t count;
    struct ng_fault faults[NG_FAULTS_MAX];
};

struct ng_fault_mistake {
    unsigned column;    /* in the specification, from 1 */
    char what[160];     /* what is wrong */
    char possible[400]; /* what is allowed there */
};

/* 0; or -EINVAL, and *ret_mistake has the first one. Any text is safe. */
int ng_fault_spec_parse(const char *text, struct ng_fault_spec *ret_spec,
                        struct ng_fault_mistake *ret_mistake);

/* "column 8: no operation is called AllRduce; possible: AllReduce, …", cut to `bytes`. */
void ng_fault_mistake_text(const struct ng_fault_mistake *mistake, char *ret_text, size_t bytes);

#endif
