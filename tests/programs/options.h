/* Command line of the test programs: what to run, how often, and which rank misbehaves how. */
#ifndef TESTS_PROGRAMS_OPTIONS_H
#define TESTS_PROGRAMS_OPTIONS_H

#include <limits.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op {
    OP_ALLREDUCE,
    OP_BROADCAST,
    OP_BCAST,
    OP_REDUCE,
    OP_ALLGATHER,
    OP_REDUCESCATTER,
    OP_ALLTOALL,
    OP_GATHER,
    OP_SCATTER,
    OP_COLLECTIVES, /* how many collectives there are */
    OP_SEND = OP_COLLECTIVES,
    OP_RECV,
    OP_ALL, /* each collective in turn, every iteration */
    OP_MIX, /* one collective an iteration, in an order drawn from the seed */
};

enum fault_kind {
    FAULT_HANG,
    FAULT_SKIP,
    FAULT_SLEEP,
    FAULT_EXIT,
    FAULT_KILL,
    FAULT_SEGV,
    FAULT_TERM,
    FAULT_ABORT,
    FAULT_STOP,
    FAULT_STALL,
    FAULT_DEVICE,
    FAULT_CROWD,
    FAULT_COUNT_DELTA,
    FAULT_WITH,
    FAULT_NO_INIT,
    FAULT_NO_GROUP_END,
    FAULT_SPIN,
    FAULT_LATE,
    FAULT_LATE_DEVICE,
};

enum field { FIELD_OP, FIELD_DTYPE, FIELD_ROOT, FIELD_REDOP, FIELD_PEER };

struct fault {
    enum fault_kind kind;
    int rank;
    unsigned long nth; /* the rank's n-th call, from 1; 0 for FAULT_NO_INIT; or NTH_GO */
    long long argument;
    enum field field;
};

#define MAX_FAULTS 16

/* The first call for which the folder SPAWN_DIR has a file "go": whoever makes it knows that all
 * ranks have got as far as he wants. */
#define NTH_GO ULONG_MAX

/* Argument of FAULT_SLEEP: until that file is there. What is done to the program meanwhile may take
 * as long as it likes. */
#define UNTIL_GO (-1)

/* Options that only some programs take; the others refuse them. */
#define TAKES_OP      0x01u
#define TAKES_COMM    0x02u
#define TAKES_DEVICES 0x04u
#define TAKES_BATCH   0x08u
#define TAKES_DEPTH   0x10u
#define TAKES_TIMES   0x20u

struct options {
    const char *program;
    enum op op;
    ncclDataType_t dtype;
    ncclRedOp_t redop;
    size_t count;
    unsigned long iters;
    int root;
    bool inplace;
    uint64_t seed;
    unsigned long sync_every; /* 0: only at the end */
    unsigned long pause_ms;
    bool check;
    unsigned timeout_s;
    int give_up; /* exit status at SIGUSR1; 0: it is not waited for */
    bool finalize;
    const char *comm; /* whose calls the faults count */
    int devices;      /* 0: all that there are */
    unsigned long batch;
    unsigned long depth;
    unsigned long times;
    struct fault faults[MAX_FAULTS];
    int nfaults;
};

/* Parses the command line, or ends the process with exit status 2 and a line that names the
 * mistake. `takes` is a set of TAKES_ bits; `comms` lists the communicators of the program for
 * --comm, separated by '|', the first being the default. */
void options_parse(struct options *ret_options, unsigned takes, const char *comms, int argc,
                   char **argv);

const char *op_name(enum op op);
enum op op_named(const char *name); /* OP_MIX where there is none */
const char *fault_name(enum fault_kind kind);

#endif
