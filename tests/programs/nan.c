/*
 * A rank that sends a NaN, once: `nan OP DTYPE [NAME=VALUE…]`. Calls are made one by one, all ranks
 * alike, on zeros; of integers, and of what a call does not send (receive buffers, buffers of ranks
 * that are not the root), all bits are set, which is a NaN in every floating type. Ranks look
 * through what they receive.
 *
 *   OP            allreduce broadcast bcast reduce allgather reducescatter alltoall gather scatter
 * sendrecv count=N       elements, as NCCL's argument (1000) calls=N       of each rank (40) rank=R
 * who sends it (-1: nobody), and in which call, from 1: call=N (20) element=N     of all elements
 * that the rank sends; "last" (0) bits=HEX      of the element (a NaN) shift=N       elements that
 * the buffers begin later than an allocation does (0) root=R        of the operations that have one
 * (0) stream=S      own, legacy, per-thread (own) grouped=N     each call N times, in one NCCL
 * group (0: outside of groups) inplace=1     where the operation has it pause_ms=N    after each
 * call (0)
 *
 * "rank R (pid P): nan at call N of world" on stderr before the call. Exit status 0; 5 who has
 * received what is no number, which it says: "rank R: received a NaN in call N".
 */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define BEFORE 64 /* bytes that a shift may take */

struct settings {
    const char *op, *dtype_name, *element, *bits, *stream;
    long count, calls, rank, call, shift, root, grouped, inplace, pause_ms;
};

static const struct {
    const char *name;
    int dtype;
    uint64_t nan; /* the smallest */
} types[] = {
    {"int8", 0, 0},
    {"int32", 2, 0},
    {"int64", 4, 0},
    {"float16", 6, 0x7c01},
    {"float32", 7, 0x7f800001},
    {"float64", 8, 0x7ff0000000000001},
    {"bfloat16", 9, 0x7f81},
    {"float8e4m3", 10, 0x7f},
    {"float8e5m2", 11, 0x7d},
};

static struct settings settings = {
    .element = "0", .stream = "own", .count = 1000, .calls = 40, .rank = -1, .call = 20};
static ncclDataType_t dtype;
static uint64_t nan_bits;
static size_t size;
static cudaStream_t stream;
static char *send, *receive, *host;
static size_t sent, received; /* elements that a call reads and writes here */
static ncclComm_t comm;

static bool is(const char *op)
{
    return strcmp(settings.op, op) == 0;
}

static bool is_root(void)
{
    return place.rank == (int)settings.root;
}

static void measure(void)
{
    size_t part = (size_t)settings.count, whole = part * (size_t)place.nranks;
    bool rooted = is("broadcast") || is("bcast") || is("scatter");

    sent = is("reducescatter") || is("alltoall") || is("scatter") ? whole : part;
    received = is("allgather") || is("alltoall") || is("gather") ? whole : part;
    if (rooted && !is_root())
        sent = 0;
    if ((is("reduce") || is("gather")) && !is_root())
        received = 0;
}

static void launch(void)
{
    struct call call = {op_named(settings.op), dtype, ncclSum, (size_t)settings.count,
                        (int)settings.root};

    if (!is("sendrecv")) {
        make_call(&call, send, is("bcast") && is_root() ? send : receive, comm, stream);
        return;
    }
    NCCL(ncclGroupStart());
    call.op = OP_SEND;
    call.root = (place.rank + 1) % place.nranks;
    make_call(&call, send, NULL, comm, stream);
    call.op = OP_RECV;
    call.root = (place.rank + place.nranks - 1) % place.nranks;
    make_call(&call, NULL, receive, comm, stream);
    NCCL(ncclGroupEnd());
}

static bool is_floating(void)
{
    return strncmp(settings.dtype_name, "int", 3) != 0;
}

static void put_nan(void)
{
    size_t element =
        strcmp(settings.element, "last") == 0 ? sent - 1 : strtoul(settings.element, NULL, 0);

    WRONG_IF(element >= sent, settings.element, "this rank does not send so many elements");
    device_copy_in(send + element * size, &nan_bits, size, stream);
    device_stream_sync(stream);
}

static void fill(void)
{
    size_t bytes = (size_t)settings.count * (size_t)place.nranks * size;

    memset(host, is_floating() && sent ? 0 : 0xff, bytes);
    device_copy_in(send, host, bytes, stream);
    device_stream_sync(stream);
    if (receive == send)
        return;
    memset(host, 0xff, bytes);
    device_copy_in(receive, host, bytes, stream);
    device_stream_sync(stream);
}

static void look(long call)
{
    const char *from = is("bcast") && is_root() ? send : receive;

    device_copy_out(host, from, received * size, stream);
    device_stream_sync(stream);
    for (size_t i = 0; i < received && is_floating(); i++)
        if (isnan(data_read(host, dtype, i))) {
            fprintf(stderr, "rank %d: received a NaN in call %ld\n", place.rank, call);
            exit(5);
        }
}

static void make(long call)
{
    fill();
    if (call == settings.call && place.rank == (int)settings.rank) {
        fprintf(stderr, "rank %d (pid %d): nan at call %ld of world\n", place.rank, getpid(), call);
        put_nan();
    }
    if (settings.grouped)
        NCCL(ncclGroupStart());
    for (long i = 0; i < (settings.grouped ? settings.grouped : 1); i++)
        launch();
    if (settings.grouped)
        NCCL(ncclGroupEnd());
    look(call);
    sleep_ms(settings.pause_ms);
}

static long number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 0);

    WRONG_IF(!*text || *end, text, "not a number");
    return value;
}

static void parse(int argc, char **argv)
{
    const struct {
        const char *name;
        long *value;
        const char **text;
    } names[] = {
        {"count", &settings.count, NULL},       {"calls", &settings.calls, NULL},
        {"rank", &settings.rank, NULL},         {"call", &settings.call, NULL},
        {"shift", &settings.shift, NULL},       {"root", &settings.root, NULL},
        {"grouped", &settings.grouped, NULL},   {"inplace", &settings.inplace, NULL},
        {"pause_ms", &settings.pause_ms, NULL}, {"element", NULL, &settings.element},
        {"bits", NULL, &settings.bits},         {"stream", NULL, &settings.stream},
    };
    bool known = argc >= 3;

    for (int i = 3; i < argc; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            size_t length = strlen(names[k].name);
            if (strncmp(argv[i], names[k].name, length) != 0 || argv[i][length] != '=')
                continue;
            found = true;
            if (names[k].text)
                *names[k].text = argv[i] + length + 1;
            else
                *names[k].value = number(argv[i] + length + 1);
        }
        known &= found;
    }
    if (!known) {
        fprintf(stderr, "usage: nan OP DTYPE [NAME=VALUE…]\n");
        exit(2);
    }
    settings.op = argv[1];
    settings.dtype_name = argv[2];
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, argv[2]) == 0) {
            dtype = (ncclDataType_t)types[i].dtype;
            nan_bits = types[i].nan;
            size = data_size(dtype);
        }
    WRONG_IF(!size, argv[2], "no such type");
    if (settings.bits)
        nan_bits = strtoull(settings.bits, NULL, 16);
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    place_begin();
    measure();
    size_t bytes = BEFORE + (size_t)settings.count * (size_t)place.nranks * size + size;
    stream = strcmp(settings.stream, "legacy") == 0       ? cudaStreamLegacy
             : strcmp(settings.stream, "per-thread") == 0 ? cudaStreamPerThread
                                                          : device_stream_create();
    char *send_memory = device_alloc(bytes), *receive_memory = device_alloc(bytes);
    host = device_host_alloc(bytes);
    send = send_memory + (size_t)settings.shift * size;
    receive = settings.inplace ? send : receive_memory + (size_t)settings.shift * size;
    comm = world_init(&place, &options, 0);
    for (long call = 1; call <= settings.calls; call++)
        make(call);
    NCCL(ncclCommDestroy(comm));
    device_free(send_memory);
    device_free(receive_memory);
    printf("rank %d done\n", place.rank);
    return 0;
}
