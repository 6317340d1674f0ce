/* A sequence of operations on buffers that are registered with the communicator, or not, each
 * followed by a wait for the device; for what registration brings, and for sequences that hang
 * because of it.
 *
 *   registered [OPTION]… OPERATION:SIZE…
 *
 * Operations: exchange (grouped send and receive with both neighbours in the ring of ranks),
 * alltoall (grouped, with all), allgather, reducescatter, allreduce, broadcast; `deregister` and
 * `register` (without a size) change the state of the buffers in between, and with `free` rank 0
 * frees its buffers, and allocates new ones, while all other ranks are stopped (SIGSTOP). Sizes
 * with K, M or G; the bytes that a rank sends, in total for alltoall, of its part for allgather, of
 * the whole for the others. Data is checked. The last line of a rank: `rank R: all done`; where an
 * operation hangs, the alarm ends the rank, and its last line names the operation. */
#include "tests/programs/common.h"

#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct plan {
    bool vmm, registered, apart;
    unsigned rounds, comms;
};

struct buffers {
    char *in, *out;
    size_t size;
    void *in_handle[2], *out_handle[2];
};

struct rank {
    struct plan plan;
    struct place place;
    ncclComm_t comms[2];
    cudaStream_t stream;
    struct buffers buffers[2];
    float *host;
};

static char now_at[128];

static void on_alarm(int signal)
{
    ssize_t written = write(STDOUT_FILENO, now_at, strlen(now_at));
    (void)written;
    _exit(5);
}

static size_t parse_size(const char *text)
{
    char *end;
    size_t size = strtoul(text, &end, 10);
    size_t unit = *end == 'K' ? 1u << 10 : *end == 'M' ? 1u << 20 : *end == 'G' ? 1u << 30 : 1;
    if (!size || (*end && (unit == 1 || end[1]))) {
        fprintf(stderr, "registered: %s is no size: write 4K, 16M or 1G\n", text);
        exit(2);
    }
    return size * unit;
}

static void set_registered(struct rank *rank, bool wanted)
{
    for (unsigned b = 0; b < 2; b++) {
        struct buffers *buffers = &rank->buffers[b];
        for (unsigned c = 0; c < rank->plan.comms; c++) {
            if (wanted && !buffers->in_handle[c]) {
                NCCL(ncclCommRegister(rank->comms[c], buffers->in, buffers->size,
                                      &buffers->in_handle[c]));
                NCCL(ncclCommRegister(rank->comms[c], buffers->out, buffers->size,
                                      &buffers->out_handle[c]));
            } else if (!wanted && buffers->in_handle[c]) {
                NCCL(ncclCommDeregister(rank->comms[c], buffers->in_handle[c]));
                NCCL(ncclCommDeregister(rank->comms[c], buffers->out_handle[c]));
                buffers->in_handle[c] = buffers->out_handle[c] = NULL;
            }
        }
    }
}

static char *memory_alloc(const struct rank *rank, size_t size)
{
    if (!rank->plan.vmm)
        return device_alloc(size);
    void *memory;
    NCCL(ncclMemAlloc(&memory, size));
    return memory;
}

static void memory_free(const struct rank *rank, char *memory)
{
    if (rank->plan.vmm)
        NCCL(ncclMemFree(memory));
    else
        device_free(memory);
}

static bool is_p2p(const char *op)
{
    return strcmp(op, "exchange") == 0 || strcmp(op, "alltoall") == 0;
}

static void issue(const struct rank *rank, const char *op, size_t size)
{
    /* Of two communicators the first is for sends and receives, the second for collectives. */
    ncclComm_t comm = rank->comms[!is_p2p(op) && rank->plan.comms > 1];
    const struct buffers *buffers = &rank->buffers[!is_p2p(op) && rank->plan.apart];
    const char *in = buffers->in;
    char *out = buffers->out;
    int n = rank->place.nranks, me = rank->place.rank;
    size_t count = size / sizeof(float), part = count / (size_t)n;
    if (strcmp(op, "exchange") == 0) {
        NCCL(ncclGroupStart());
        NCCL(ncclSend(in, count, ncclFloat, (me + 1) % n, comm, rank->stream));
        NCCL(ncclRecv(out, count, ncclFloat, (me + n - 1) % n, comm, rank->stream));
        NCCL(ncclGroupEnd());
    } else if (strcmp(op, "alltoall") == 0) {
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < n; peer++) {
            size_t at = (size_t)peer * part * sizeof(float);
            NCCL(ncclSend(in + at, part, ncclFloat, peer, comm, rank->stream));
            NCCL(ncclRecv(out + at, part, ncclFloat, peer, comm, rank->stream));
        }
        NCCL(ncclGroupEnd());
    } else if (strcmp(op, "allgather") == 0) {
        NCCL(ncclAllGather(in, out, count, ncclFloat, comm, rank->stream));
    } else if (strcmp(op, "reducescatter") == 0) {
        NCCL(ncclReduceScatter(in, out, part, ncclFloat, ncclSum, comm, rank->stream));
    } else if (strcmp(op, "allreduce") == 0) {
        NCCL(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, rank->stream));
    } else if (strcmp(op, "broadcast") == 0) {
        NCCL(ncclBroadcast(in, out, count, ncclFloat, 0, comm, rank->stream));
    } else {
        fprintf(stderr, "registered: %s is no operation\n", op);
        exit(2);
    }
}

/* Every rank sends its number plus one, everywhere. */
static void check(const struct rank *rank, const char *op)
{
    int n = rank->place.nranks, me = rank->place.rank;
    float first = 0;
    const struct buffers *buffers = &rank->buffers[!is_p2p(op) && rank->plan.apart];
    device_copy_out(rank->host, buffers->out, sizeof(float), rank->stream);
    device_stream_sync(rank->stream);
    first = rank->host[0];
    float wanted = strcmp(op, "exchange") == 0 ? (float)((me + n - 1) % n + 1)
                   : strcmp(op, "allreduce") == 0 || strcmp(op, "reducescatter") == 0
                       ? (float)(n * (n + 1)) / 2
                       : 1;
    if (first != wanted) {
        fprintf(stderr, "rank %d: %s: %g instead of %g\n", me, op, (double)first, (double)wanted);
        exit(4);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The state of a process that has the same parent; '\0': it has not, or is this one. */
static char state_of_sibling(const char *pid)
{
    char path[64], text[512] = "", state = '\0';
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    FILE *file = atoi(pid) > 0 && atoi(pid) != getpid() ? fopen(path, "re") : NULL;
    if (!file)
        return '\0';
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c %d", &state, &parent) != 2 || parent != getppid())
        return '\0';
    return state;
}

/* How many of the other ranks are stopped; with `wake`, they go on. */
static int stopped_ranks(bool wake)
{
    DIR *processes = opendir("/proc");
    int stopped = 0;
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        if (state_of_sibling(entry->d_name) != 'T')
            continue;
        stopped++;
        if (wake)
            kill(atoi(entry->d_name), SIGCONT);
    }
    if (processes)
        closedir(processes);
    return stopped;
}

static void renew_buffers(struct rank *rank);

static void free_while_stopped(struct rank *rank)
{
    snprintf(now_at, sizeof(now_at), "rank %d: hangs in free\n", rank->place.rank);
    if (rank->place.rank != 0) {
        raise(SIGSTOP);
        return;
    }
    while (stopped_ranks(false) < rank->place.nranks - 1)
        usleep(1000);
    double begin = seconds();
    renew_buffers(rank);
    printf("freed while others were stopped: %.3f s\n", seconds() - begin);
    fflush(stdout);
    stopped_ranks(true);
}

static void perform(struct rank *rank, const char *word)
{
    if (strcmp(word, "free") == 0) {
        free_while_stopped(rank);
        return;
    }
    if (strcmp(word, "register") == 0 || strcmp(word, "deregister") == 0) {
        set_registered(rank, *word == 'r');
        return;
    }
    char op[32];
    const char *colon = strchr(word, ':');
    if (!colon || (size_t)(colon - word) >= sizeof(op)) {
        fprintf(stderr, "registered: %s: write OPERATION:SIZE\n", word);
        exit(2);
    }
    snprintf(op, sizeof(op), "%.*s", (int)(colon - word), word);
    size_t size = parse_size(colon + 1);
    snprintf(now_at, sizeof(now_at), "rank %d: hangs in %s\n", rank->place.rank, word);
    issue(rank, op, size);
    device_stream_sync(rank->stream);
    check(rank, op);
    double begin = seconds();
    for (unsigned i = 0; i < rank->plan.rounds; i++)
        issue(rank, op, size);
    device_stream_sync(rank->stream);
    double each = (seconds() - begin) / rank->plan.rounds;
    if (rank->place.rank == 0)
        printf("%s %.1f us %.1f GB/s\n", word, 1e6 * each, (double)size / each / 1e9);
    fflush(stdout);
}

static size_t largest(char **words, int nwords, int nranks)
{
    size_t most = 4;
    for (int i = 0; i < nwords; i++) {
        const char *colon = strchr(words[i], ':');
        size_t size = colon ? parse_size(colon + 1) : 0;
        if (strncmp(words[i], "allgather", 9) == 0)
            size *= (size_t)nranks;
        most = size > most ? size : most;
    }
    return most;
}

static void fill(const struct rank *rank, char *device, size_t size)
{
    size_t chunk = 1u << 20;
    for (size_t i = 0; i < chunk / sizeof(float); i++)
        rank->host[i] = (float)(rank->place.rank + 1);
    for (size_t at = 0; at < size; at += chunk)
        device_copy_in(device + at, rank->host, size - at < chunk ? size - at : chunk,
                       rank->stream);
    device_stream_sync(rank->stream);
}

static void renew_buffers(struct rank *rank)
{
    for (unsigned b = 0; b < 2; b++) {
        struct buffers *buffers = &rank->buffers[b];
        memory_free(rank, buffers->in);
        memory_free(rank, buffers->out);
        buffers->in = memory_alloc(rank, buffers->size);
        buffers->out = memory_alloc(rank, buffers->size);
        fill(rank, buffers->in, buffers->size);
    }
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"vmm", no_argument, NULL, 'v'},
        {"registered", no_argument, NULL, 'r'},
        {"apart", no_argument, NULL, 'a'},
        {"two-comms", no_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'n'},
        {"alarm", required_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    struct rank rank = {.plan = {.rounds = 5, .comms = 1}};
    unsigned limit = 50; /* within the minute of run-on-gpus */
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (option) {
        case 'v':
            rank.plan.vmm = true;
            break;
        case 'r':
            rank.plan.registered = true;
            break;
        case 'a':
            rank.plan.apart = true;
            break;
        case 't':
            rank.plan.comms = 2;
            break;
        case 'n':
            rank.plan.rounds = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'l':
            limit = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    }
    if (optind == argc || !rank.plan.rounds) {
        fprintf(stderr, "usage: registered [--vmm] [--registered] [--apart] [--two-comms] "
                        "[--rounds N] [--alarm S] "
                        "OPERATION:SIZE…\n");
        return 2;
    }
    struct options options;
    options_parse(&options, 0, "world", 1, argv);
    place_init(&rank.place, &options);
    device_use(rank.place.local_rank);
    for (unsigned c = 0; c < rank.plan.comms; c++)
        rank.comms[c] = world_init(&rank.place, &options, c);
    signal(SIGALRM, on_alarm);
    alarm(limit);
    rank.stream = device_stream_create();
    rank.host = device_host_alloc(1u << 20);
    for (unsigned b = 0; b < 2; b++) {
        struct buffers *buffers = &rank.buffers[b];
        buffers->size = largest(argv + optind, argc - optind, rank.place.nranks);
        buffers->in = memory_alloc(&rank, buffers->size);
        buffers->out = memory_alloc(&rank, buffers->size);
        fill(&rank, buffers->in, buffers->size);
    }
    set_registered(&rank, rank.plan.registered);
    for (int i = optind; i < argc; i++)
        perform(&rank, argv[i]);
    printf("rank %d: all done\n", rank.place.rank);
    fflush(stdout);
    set_registered(&rank, false);
    for (unsigned c = 0; c < rank.plan.comms; c++)
        NCCL(ncclCommDestroy(rank.comms[c]));
    return 0;
}
