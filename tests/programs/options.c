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

#define BIG                  (1LL << 40)
#define FIELD(field)         offsetof(struct options, field), sizeof(((struct options *)0)->field)
#define IS_FAULT(fault)      .is_fault = true, .kind = FAULT_##fault
#define BETWEEN(least, most) .low = (least), .high = (most)

/* A flag, a number from `low` to `high`, one of `names`, a fault, or else --comm. */
static const struct row {
    const char *name;
    const char *argument; /* NULL: none */
    unsigned takes;       /* 0: every program */
    const char *help;
    size_t offset, size; /* of the field of struct options that it sets */
    long long low, high;
    const struct name *names;
    bool is_fault;
    enum fault_kind kind;
} rows[] = {
    {"op", "OP", TAKES_OP,
     "allreduce broadcast bcast reduce allgather reducescatter alltoall gather scatter, all (each "
     "in turn every iteration), mix (seeded order)",
     FIELD(op), .names = ops},
    {"dtype", "TYPE", 0, "int8 … float64, bfloat16, float8e4m3, float8e5m2", FIELD(dtype),
     .names = dtypes},
    {"redop", "OP", TAKES_OP, "sum prod max min avg", FIELD(redop), .names = redops},
    {"count", "N", 0, "elements of a call (default 1024)", FIELD(count), BETWEEN(0, BIG)},
    {"iters", "N", 0, "iterations (default 10)", FIELD(iters), BETWEEN(0, BIG)},
    {"root", "R", TAKES_OP, "root of rooted collectives (default 0)", FIELD(root),
     BETWEEN(-(1 << 20), 1 << 20)},
    {"inplace", NULL, TAKES_OP, "in place where the collective allows it", FIELD(inplace)},
    {"seed", "S", 0, "seed of the data and of mix (default 1)", FIELD(seed), BETWEEN(0, INT64_MAX)},
    {"sync-every", "K", 0,
     "synchronise the stream every K iterations (default 1; 0: only at the end)", FIELD(sync_every),
     BETWEEN(0, BIG)},
    {"pause-ms", "M", 0, "pause between iterations", FIELD(pause_ms), BETWEEN(0, BIG)},
    {"check", NULL, 0, "compare what arrives with what should; exit status 4 if wrong",
     FIELD(check)},
    {"timeout", "S", 0, "alarm() that ends the process (default 120; 0: none)", FIELD(timeout_s),
     BETWEEN(0, 1 << 30)},
    {"give-up", "CODE", 0,
     "calls exit(CODE) at SIGUSR1, as a program does that has waited for too long", FIELD(give_up),
     BETWEEN(1, 255)},
    {"finalize", NULL, 0, "ncclCommFinalize before ncclCommDestroy", FIELD(finalize)},
    {"comm", "NAME", TAKES_COMM, "communicator whose calls the faults count", FIELD(comm)},
    {"devices", "N", TAKES_DEVICES, "devices of this process (default: all)", FIELD(devices),
     BETWEEN(1, 1024)},
    {"batch", "B", TAKES_BATCH, "calls in one group", FIELD(batch), BETWEEN(1, 1 << 20)},
    {"depth", "D", TAKES_DEPTH, "iterations queued without a synchronisation", FIELD(depth),
     BETWEEN(1, 1 << 20)},
    {"times", "N", TAKES_TIMES, "how often to create and destroy (default 3)", FIELD(times),
     BETWEEN(1, BIG)},
    {"hang", "R:N", 0, "rank R blocks for ever before its N-th call", IS_FAULT(HANG)},
    {"skip", "R:N", 0, "leaves its N-th call out and goes on", IS_FAULT(SKIP)},
    {"sleep", "R:N:MS", 0, "sleeps before its N-th call; MS may be go, too", IS_FAULT(SLEEP)},
    {"exit", "R:N[:CODE]", 0, "calls exit() before its N-th call", IS_FAULT(EXIT)},
    {"kill", "R:N", 0, "sends itself SIGKILL", IS_FAULT(KILL)},
    {"segv", "R:N", 0, "writes to address 0", IS_FAULT(SEGV)},
    {"term", "R:N", 0, "sends itself SIGTERM", IS_FAULT(TERM)},
    {"abort", "R:N", 0, "calls abort()", IS_FAULT(ABORT)},
    {"stop", "R:N", 0, "sends itself SIGSTOP", IS_FAULT(STOP)},
    {"stall", "R:N", 0, "enqueues a host function that never returns before its N-th call",
     IS_FAULT(STALL)},
    {"device-fault", "R:N[:CODE]", 0,
     "enqueues a kernel that writes where no memory is before its N-th call; on seeing the error "
     "it blocks for ever, or calls exit(CODE)",
     IS_FAULT(DEVICE)},
    {"crowd", "R:N:MS", 0, "another kernel takes its device for MS before its N-th call",
     IS_FAULT(CROWD)},
    {"count-delta", "R:N:D", 0, "passes a count greater by D", IS_FAULT(COUNT_DELTA)},
    {"with", "R:N:FIELD=VALUE", 0, "passes another op, dtype, root, redop or peer", IS_FAULT(WITH)},
    {"no-init", "R", 0, "never creates its communicator", IS_FAULT(NO_INIT)},
    {"no-group-end", "R:N", 0, "one ncclGroupEnd too few from its N-th call on",
     IS_FAULT(NO_GROUP_END)},
    {"late", "R:N:MS", 0, "sleeps before each call from its N-th on", IS_FAULT(LATE)},
    {"late-device", "R:N:MS", 0,
     "enqueues a host function that sleeps before each of its calls whose number N divides",
     IS_FAULT(LATE_DEVICE)},
    {"spin", "R:N", 0, "computes for ever before its N-th call", IS_FAULT(SPIN)},
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

static void parse_fault(struct options *options, const struct row *row, char *text)
{
    static const struct name *const values[] = {
        [FIELD_OP] = ops, [FIELD_DTYPE] = dtypes, [FIELD_REDOP] = redops, [FIELD_PEER] = NULL};
    const char *option = row->name;
    if (options->nfaults == MAX_FAULTS)
        usage_error(options, "--%s: more than %d faults", option, MAX_FAULTS);
    struct fault *fault = &options->faults[options->nfaults++];
    *fault = (struct fault){.kind = row->kind};

    char *rest = text;
    char *parts[3] = {NULL, NULL, NULL};
    int nparts = 0, least = 1, most = 1;
    while (nparts < 3 && (parts[nparts] = strsep(&rest, ":")))
        nparts++;
    for (const char *colon = row->argument; (colon = strchr(colon, ':')); colon++) {
        most++;
        least += colon[-1] != '[';
    }
    if (rest || nparts < least || nparts > most)
        usage_error(options, "--%s takes %s", option, row->argument);
    fault->rank = (int)number(options, option, parts[0], 0, 1 << 20);
    if (nparts > 1)
        fault->nth = !strcmp(parts[1], "go")
                         ? NTH_GO
                         : (unsigned long)number(options, option, parts[1], 1, BIG);
    if (row->kind == FAULT_WITH) {
        char *value = parts[2];
        char *field = strsep(&value, "=");
        if (!value)
            usage_error(options, "--%s takes %s", option, row->argument);
        fault->field = (enum field)lookup(options, option, fields, field);
        fault->argument = values[fault->field]
                              ? lookup(options, option, values[fault->field], value)
                              : number(options, option, value, -(1 << 20), 1 << 20);
        if (fault->field == FIELD_OP && fault->argument >= OP_COLLECTIVES)
            usage_error(options, "--%s: op=%s is not a collective", option, value);
    } else if (row->kind == FAULT_SLEEP && !strcmp(parts[2], "go")) {
        fault->argument = UNTIL_GO;
    } else if (nparts > 2) {
        fault->argument = number(options, option, parts[2], -BIG, BIG);
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
        if (row->is_fault) {
            parse_fault(&options, row, value);
            continue;
        }
        long long set = true;
        if (row->names)
            set = lookup(&options, name, row->names, value);
        else if (row->high)
            set = number(&options, name, value, row->low, row->high);
        else if (row->argument && !listed(comms, value))
            usage_error(&options, "--comm: '%s' is not one of %s", value, comms);
        else if (row->argument)
            set = (intptr_t)value;
        /* Little-endian, as every host of a GPU is. */
        memcpy((char *)&options + row->offset, &set, row->size);
        if (options.op == OP_SEND || options.op == OP_RECV)
            usage_error(&options, "--op: %s is not a collective", value);
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

enum op op_named(const char *text)
{
    const struct name *name = ops;
    while (name->name && strcmp(name->name, text) != 0)
        name++;
    return name->name ? (enum op)name->value : OP_MIX;
}

const char *fault_name(enum fault_kind kind)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (rows[i].is_fault && rows[i].kind == kind)
            return rows[i].name;
    return "?";
}
