/* Command line of the test programs. */
#include "tests/programs/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
    const char *name;
    long long value;
};

static const struct name ops[] = {
    {"allreduce", OP_ALLREDUCE},
    {"broadcast", OP_BROADCAST},
    {"bcast", OP_BCAST},
    {"reduce", OP_REDUCE},
    {"allgather", OP_ALLGATHER},
    {"reducescatter", OP_REDUCESCATTER},
    {"alltoall", OP_ALLTOALL},
    {"gather", OP_GATHER},
    {"scatter", OP_SCATTER},
    {"send", OP_SEND},
    {"recv", OP_RECV},
    {"all", OP_ALL},
    {"mix", OP_MIX},
    {NULL, 0},
};

static const struct name dtypes[] = {
    {"int8", ncclInt8},
    {"uint8", ncclUint8},
    {"int32", ncclInt32},
    {"uint32", ncclUint32},
    {"int64", ncclInt64},
    {"uint64", ncclUint64},
    {"float16", ncclFloat16},
    {"float32", ncclFloat32},
    {"float64", ncclFloat64},
    {"bfloat16", ncclBfloat16},
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    {"float8e4m3", ncclFloat8e4m3},
    {"float8e5m2", ncclFloat8e5m2},
#endif
    {"half", ncclFloat16},
    {"float", ncclFloat32},
    {"double", ncclFloat64},
    {NULL, 0},
};

static const struct name redops[] = {
    {"sum", ncclSum}, {"prod", ncclProd}, {"max", ncclMax},
    {"min", ncclMin}, {"avg", ncclAvg},   {NULL, 0},
};

static const struct name fields[] = {
    {"op", FIELD_OP},       {"dtype", FIELD_DTYPE}, {"root", FIELD_ROOT},
    {"redop", FIELD_REDOP}, {"peer", FIELD_PEER},   {NULL, 0},
};

enum option {
    O_OP,
    O_DTYPE,
    O_REDOP,
    O_COUNT,
    O_ITERS,
    O_ROOT,
    O_INPLACE,
    O_SEED,
    O_SYNC_EVERY,
    O_PAUSE_MS,
    O_CHECK,
    O_TIMEOUT,
    O_GIVE_UP,
    O_FINALIZE,
    O_COMM,
    O_DEVICES,
    O_BATCH,
    O_DEPTH,
    O_TIMES,
    O_FAULT, /* + enum fault_kind */
};

static const struct row {
    const char *name;
    const char *argument; /* NULL: none */
    int option;
    unsigned takes; /* 0: every program */
    const char *help;
} rows[] = {
    {"op", "OP", O_OP, TAKES_OP,
     "allreduce broadcast bcast reduce allgather reducescatter alltoall gather scatter, all (each "
     "in turn every iteration), mix (seeded order)"},
    {"dtype", "TYPE", O_DTYPE, 0, "int8 … float64, bfloat16, float8e4m3, float8e5m2"},
    {"redop", "OP", O_REDOP, TAKES_OP, "sum prod max min avg"},
    {"count", "N", O_COUNT, 0, "elements of a call (default 1024)"},
    {"iters", "N", O_ITERS, 0, "iterations (default 10)"},
    {"root", "R", O_ROOT, TAKES_OP, "root of rooted collectives (default 0)"},
    {"inplace", NULL, O_INPLACE, TAKES_OP, "in place where the collective allows it"},
    {"seed", "S", O_SEED, 0, "seed of the data and of mix (default 1)"},
    {"sync-every", "K", O_SYNC_EVERY, 0,
     "synchronise the stream every K iterations (default 1; 0: only at the end)"},
    {"pause-ms", "M", O_PAUSE_MS, 0, "pause between iterations"},
    {"check", NULL, O_CHECK, 0, "compare what arrives with what should; exit status 4 if wrong"},
    {"timeout", "S", O_TIMEOUT, 0, "alarm() that ends the process (default 120; 0: none)"},
    {"give-up", "CODE", O_GIVE_UP, 0,
     "calls exit(CODE) at SIGUSR1, as a program does that has waited for too long"},
    {"finalize", NULL, O_FINALIZE, 0, "ncclCommFinalize before ncclCommDestroy"},
    {"comm", "NAME", O_COMM, TAKES_COMM, "communicator whose calls the faults count"},
    {"devices", "N", O_DEVICES, TAKES_DEVICES, "devices of this process (default: all)"},
    {"batch", "B", O_BATCH, TAKES_BATCH, "calls in one group"},
    {"depth", "D", O_DEPTH, TAKES_DEPTH, "iterations queued without a synchronisation"},
    {"times", "N", O_TIMES, TAKES_TIMES, "how often to create and destroy (default 3)"},
    {"hang", "R:N", O_FAULT + FAULT_HANG, 0, "rank R blocks for ever before its N-th call"},
    {"skip", "R:N", O_FAULT + FAULT_SKIP, 0, "leaves its N-th call out and goes on"},
    {"sleep", "R:N:MS", O_FAULT + FAULT_SLEEP, 0, "sleeps before its N-th call"},
    {"exit", "R:N[:CODE]", O_FAULT + FAULT_EXIT, 0, "calls exit() before its N-th call"},
    {"kill", "R:N", O_FAULT + FAULT_KILL, 0, "sends itself SIGKILL"},
    {"segv", "R:N", O_FAULT + FAULT_SEGV, 0, "writes to address 0"},
    {"term", "R:N", O_FAULT + FAULT_TERM, 0, "sends itself SIGTERM"},
    {"abort", "R:N", O_FAULT + FAULT_ABORT, 0, "calls abort()"},
    {"stop", "R:N", O_FAULT + FAULT_STOP, 0, "sends itself SIGSTOP"},
    {"stall", "R:N", O_FAULT + FAULT_STALL, 0,
     "enqueues a host function that never returns before its N-th call"},
    {"count-delta", "R:N:D", O_FAULT + FAULT_COUNT_DELTA, 0, "passes a count greater by D"},
    {"with", "R:N:FIELD=VALUE", O_FAULT + FAULT_WITH, 0,
     "passes another op, dtype, root, redop or peer"},
    {"no-init", "R", O_FAULT + FAULT_NO_INIT, 0, "never creates its communicator"},
    {"no-group-end", "R:N", O_FAULT + FAULT_NO_GROUP_END, 0,
     "one ncclGroupEnd too few from its N-th call on"},
    {"late", "R:N:MS", O_FAULT + FAULT_LATE, 0, "sleeps before each call from its N-th on"},
    {"spin", "R:N", O_FAULT + FAULT_SPIN, 0, "computes for ever before its N-th call"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

__attribute__((noreturn, format(printf, 2, 3))) static void
usage_error(const struct options *options, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", options->program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\ntry: %s --help\n", options->program);
    exit(2);
}

static void help(const struct options *options, unsigned takes, const char *comms)
{
    printf("usage: %s [OPTIONS]\n", options->program);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *row = &rows[i];
        if (row->takes && !(row->takes & takes))
            continue;
        char left[40];
        snprintf(left, sizeof(left), "--%s %s", row->name, row->argument ? row->argument : "");
        printf("  %-24s %s\n", left, row->help);
    }
    printf("N: a number from 1, or go: once there is a file go in the folder SPAWN_DIR\n");
    if (takes & TAKES_COMM)
        printf("communicators: %s\n", comms);
}

static long long number(const struct options *options, const char *option, const char *text,
                        long long low, long long high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno || end == text || *end || value < low || value > high)
        usage_error(options, "--%s: '%s' is not a number from %lld to %lld", option, text, low,
                    high);
    return value;
}

static long long lookup(const struct options *options, const char *option, const struct name *names,
                        const char *text)
{
    for (; names->name; names++)
        if (!strcmp(names->name, text))
            return names->value;
    usage_error(options, "--%s: unknown value '%s'", option, text);
}

static void parse_fault(struct options *options, const char *option, enum fault_kind kind,
                        char *text)
{
    if (options->nfaults == MAX_FAULTS)
        usage_error(options, "--%s: more than %d faults", option, MAX_FAULTS);
    struct fault *fault = &options->faults[options->nfaults++];
    *fault = (struct fault){.kind = kind};

    char *rest = text;
    char *parts[3] = {NULL, NULL, NULL};
    int nparts = 0;
    while (nparts < 3 && (parts[nparts] = strsep(&rest, ":")))
        nparts++;
    bool has_argument = kind == FAULT_SLEEP || kind == FAULT_LATE || kind == FAULT_COUNT_DELTA ||
                        kind == FAULT_WITH;
    int least = kind == FAULT_NO_INIT ? 1 : has_argument ? 3 : 2;
    int most = kind == FAULT_EXIT ? 3 : least;
    if (rest || nparts < least || nparts > most)
        usage_error(options, "--%s takes %s", option,
                    kind == FAULT_NO_INIT       ? "R"
                    : kind == FAULT_SLEEP       ? "R:N:MS"
                    : kind == FAULT_LATE        ? "R:N:MS"
                    : kind == FAULT_COUNT_DELTA ? "R:N:D"
                    : kind == FAULT_WITH        ? "R:N:FIELD=VALUE"
                    : kind == FAULT_EXIT        ? "R:N[:CODE]"
                                                : "R:N");
    fault->rank = (int)number(options, option, parts[0], 0, 1 << 20);
    if (nparts > 1)
        fault->nth = !strcmp(parts[1], "go")
                         ? NTH_GO
                         : (unsigned long)number(options, option, parts[1], 1, 1LL << 40);
    if (kind == FAULT_WITH) {
        char *value = parts[2];
        char *field = strsep(&value, "=");
        if (!value)
            usage_error(options, "--%s takes R:N:FIELD=VALUE", option);
        fault->field = (enum field)lookup(options, option, fields, field);
        switch (fault->field) {
        case FIELD_OP:
            fault->argument = lookup(options, option, ops, value);
            break;
        case FIELD_DTYPE:
            fault->argument = lookup(options, option, dtypes, value);
            break;
        case FIELD_REDOP:
            fault->argument = lookup(options, option, redops, value);
            break;
        case FIELD_ROOT:
        case FIELD_PEER:
            fault->argument = number(options, option, value, -(1 << 20), 1 << 20);
            break;
        }
        if (fault->field == FIELD_OP && fault->argument >= OP_COLLECTIVES)
            usage_error(options, "--%s: op=%s is not a collective", option, value);
    } else if (nparts > 2) {
        fault->argument = number(options, option, parts[2], -(1LL << 40), 1LL << 40);
    }
}

static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *item = list; item; item = strchr(item, '|')) {
        item += *item == '|';
        if (length && !strncmp(item, name, length) && (item[length] == '|' || !item[length]))
            return true;
    }
    return false;
}

void options_parse(struct options *ret_options, unsigned takes, const char *comms, int argc,
                   char **argv)
{
    static char first_comm[32];
    const char *slash = strrchr(argv[0], '/');
    snprintf(first_comm, sizeof(first_comm), "%.*s", (int)strcspn(comms, "|"), comms);
    struct options options = {
        .program = slash ? slash + 1 : argv[0],
        .op = OP_ALLREDUCE,
        .dtype = ncclFloat32,
        .redop = ncclSum,
        .count = 1024,
        .iters = 10,
        .seed = 1,
        .sync_every = 1,
        .timeout_s = 120,
        .comm = first_comm,
        .batch = 3,
        .depth = 64,
        .times = 3,
    };
    for (int i = 1; i < argc; i++) {
        char *name = argv[i];
        if (!strcmp(name, "--help")) {
            help(&options, takes, comms);
            exit(0);
        }
        if (strncmp(name, "--", 2))
            usage_error(&options, "unexpected argument '%s'", name);
        name += 2;
        /* Both --name value and --name=value, as getopt_long has it. */
        char *value = strchr(name, '=');
        if (value)
            *value++ = 0;
        const struct row *row = NULL;
        for (size_t j = 0; j < COUNT(rows); j++)
            if (!strcmp(rows[j].name, name) && (!rows[j].takes || (rows[j].takes & takes)))
                row = &rows[j];
        if (!row)
            usage_error(&options, "unknown option --%s", name);
        if (!row->argument && value)
            usage_error(&options, "--%s takes no value", name);
        if (row->argument && !value) {
            if (i + 1 == argc)
                usage_error(&options, "--%s needs a value", name);
            value = argv[++i];
        }
        const long long big = 1LL << 40;
        switch (row->option) {
        case O_OP:
            options.op = (enum op)lookup(&options, name, ops, value);
            if (options.op == OP_SEND || options.op == OP_RECV)
                usage_error(&options, "--op: %s is not a collective", value);
            break;
        case O_DTYPE:
            options.dtype = (ncclDataType_t)lookup(&options, name, dtypes, value);
            break;
        case O_REDOP:
            options.redop = (ncclRedOp_t)lookup(&options, name, redops, value);
            break;
        case O_COUNT:
            options.count = (size_t)number(&options, name, value, 0, big);
            break;
        case O_ITERS:
            options.iters = (unsigned long)number(&options, name, value, 0, big);
            break;
        case O_ROOT:
            options.root = (int)number(&options, name, value, -(1 << 20), 1 << 20);
            break;
        case O_INPLACE:
            options.inplace = true;
            break;
        case O_SEED:
            options.seed = (uint64_t)number(&options, name, value, 0, INT64_MAX);
            break;
        case O_SYNC_EVERY:
            options.sync_every = (unsigned long)number(&options, name, value, 0, big);
            break;
        case O_PAUSE_MS:
            options.pause_ms = (unsigned long)number(&options, name, value, 0, big);
            break;
        case O_CHECK:
            options.check = true;
            break;
        case O_TIMEOUT:
            options.timeout_s = (unsigned)number(&options, name, value, 0, 1 << 30);
            break;
        case O_GIVE_UP:
            options.give_up = (int)number(&options, name, value, 1, 255);
            break;
        case O_FINALIZE:
            options.finalize = true;
            break;
        case O_COMM:
            if (!listed(comms, value))
                usage_error(&options, "--comm: '%s' is not one of %s", value, comms);
            options.comm = value;
            break;
        case O_DEVICES:
            options.devices = (int)number(&options, name, value, 1, 1024);
            break;
        case O_BATCH:
            options.batch = (unsigned long)number(&options, name, value, 1, 1 << 20);
            break;
        case O_DEPTH:
            options.depth = (unsigned long)number(&options, name, value, 1, 1 << 20);
            break;
        case O_TIMES:
            options.times = (unsigned long)number(&options, name, value, 1, big);
            break;
        default:
            parse_fault(&options, name, (enum fault_kind)(row->option - O_FAULT), value);
        }
    }
    *ret_options = options;
}

const char *op_name(enum op op)
{
    for (const struct name *name = ops; name->name; name++)
        if (name->value == (long long)op)
            return name->name;
    return "?";
}

const char *fault_name(enum fault_kind kind)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].option == O_FAULT + (int)kind)
            return rows[i].name;
    return "?";
}
