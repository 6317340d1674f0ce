/* Reaches NCCL in every way that a program can, one way for each copy, and makes the same calls
 * through each: linked, through plugins of any scope, by dlsym in any form.
 *
 *   entry_points [--late] [--bcast] WAY:PATH[,PATH]…
 *
 * Prints a line of JSON for each communicator: what was called, and what came of it. Then "holds",
 * and goes on to its end when stdin is closed, so that somebody can look at the process meanwhile.
 * Run by spawn, with two or more ranks. */
#include "tests/programs/entry_points.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT      256 /* elements of each rank in a call */
#define MAX_SIDES  10
#define ITERATIONS 3

/* What a record would call them. */
enum kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV, KINDS };
static const char *const kind_names[KINDS] = {"AllReduce",     "Broadcast", "Reduce", "AllGather",
                                              "ReduceScatter", "Send",      "Recv"};

/* One communicator of one copy. */
struct member {
    ncclComm_t comm;
    int rank, nranks;
    unsigned calls[KINDS], grouped[KINDS];
    unsigned long long checksum;
};

/* One copy of NCCL, as one way leads to it. */
struct side {
    const char *way; /* up to the colon */
    char *path;      /* after it, up to a comma */
    char *second;    /* after that, or NULL */
    unsigned number;
    bool open;
    struct entry_points_nccl nccl;
    struct entry_points_cuda cuda;
    int version;
    struct member world, child;
    cudaStream_t stream;
    int *send, *recv; /* on the device: COUNT for each rank */
};

static int world_rank, world_size;
static bool with_bcast;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char line[600];
    va_list arguments;
    int length = snprintf(line, sizeof(line), "rank %d: ", world_rank);
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) != length)
        _exit(5);
    exit(3);
}

#define FAIL_IF(condition, ...)                                                                    \
    do {                                                                                           \
        if (condition)                                                                             \
            fail(__VA_ARGS__);                                                                     \
    } while (0)

#define CUDA(side, name, ...)                                                                      \
    do {                                                                                           \
        cudaError_t error_ = (side)->cuda.name(__VA_ARGS__);                                       \
        if (error_ != cudaSuccess)                                                                 \
            fail("side %u: " #name ": error %d", (side)->number, (int)error_);                     \
    } while (0)

#define NCCL(side, name, ...)                                                                      \
    do {                                                                                           \
        ncclResult_t result_ = (side)->nccl.name(__VA_ARGS__);                                     \
        if (result_ != ncclSuccess)                                                                \
            fail("side %u: nccl" #name ": %s", (side)->number,                                     \
                 (side)->nccl.GetErrorString(result_));                                            \
    } while (0)

/* ---- Ways to NCCL ---- */

static void *open_library(const char *path, int mode)
{
    void *handle = dlopen(path, RTLD_NOW | mode);
    FAIL_IF(!handle, "dlopen: %s", dlerror());
    return handle;
}

static void *symbol(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    FAIL_IF(!found, "dlsym: %s", dlerror());
    return found;
}

static void fetch(struct entry_points_nccl *ret_nccl, void *handle)
{
#define ENTRY_POINT(type, name, parameters, arguments)                                             \
    ret_nccl->name = (type(*) parameters)symbol(handle, "nccl" #name);
    ENTRY_POINTS_NCCL(ENTRY_POINT)
#undef ENTRY_POINT
}

/* How a way leads to NCCL; each opens the side's library first. */
static void by_plugin(struct side *side, void *handle, const char *unused)
{
    void (*linked)(struct entry_points_nccl *);
    linked = (void (*)(struct entry_points_nccl *))symbol(handle, "entry_points_linked");
    linked(&side->nccl);
}

static void by_handle(struct side *side, void *handle, const char *unused)
{
    fetch(&side->nccl, handle);
}

static void by_default(struct side *side, void *handle, const char *unused)
{
    fetch(&side->nccl, RTLD_DEFAULT);
}

/* The handle of the program itself stands for the global scope. */
static void by_main(struct side *side, void *handle, const char *unused)
{
    fetch(&side->nccl, open_library(NULL, RTLD_LOCAL));
}

/* The library is that of the program: it opens none. */
static void by_next(struct side *side, void *handle, const char *unused)
{
    fetch(&side->nccl, RTLD_NEXT);
}

static void by_seek(struct side *side, void *handle, const char *how)
{
    const char *(*find)(const char *, const char *, struct entry_points_nccl *);
    find = (const char *(*)(const char *, const char *, struct entry_points_nccl *))symbol(
        handle, "entry_points_seek");
    const char *why = find(how, side->second, &side->nccl);
    FAIL_IF(why, "side %u: %s", side->number, why);
}

/* A link namespace of its own has a CUDA of its own: streams of another mean nothing there. */
static void by_namespace(struct side *side, void *handle, const char *unused)
{
    Lmid_t namespace;
    FAIL_IF(!side->second, "namespace: no CUDA runtime is named");
    handle = dlmopen(LM_ID_NEWLM, side->path, RTLD_NOW);
    FAIL_IF(!handle, "dlmopen: %s", dlerror());
    FAIL_IF(dlinfo(handle, RTLD_DI_LMID, &namespace) != 0, "dlinfo: %s", dlerror());
    fetch(&side->nccl, handle);
    handle = dlmopen(namespace, side->second, RTLD_NOW);
    FAIL_IF(!handle, "dlmopen: %s", dlerror());
#define ENTRY_POINT(name, parameters)                                                              \
    side->cuda.name = (cudaError_t(*) parameters)symbol(handle, #name);
    ENTRY_POINTS_CUDA(ENTRY_POINT)
#undef ENTRY_POINT
}

static void run_before(struct side *side);

/* Used, closed, and opened anew. */
static void by_reopening(struct side *side, void *handle, const char *unused)
{
    fetch(&side->nccl, handle);
    run_before(side);
    FAIL_IF(dlclose(handle) != 0, "dlclose: %s", dlerror());
    memset(&side->nccl, 0, sizeof(side->nccl));
    fetch(&side->nccl, open_library(side->path, RTLD_LOCAL));
}

#ifdef ENTRY_POINTS_LINKED
static void by_link(struct side *side, void *handle, const char *unused)
{
    entry_points_linked(&side->nccl);
}
#endif

#define OPENS_NONE (-1)

static const struct {
    const char *name;
    void (*reach)(struct side *side, void *handle, const char *how);
    int mode; /* in which the library is opened before */
    const char *how;
} ways[] = {
#ifdef ENTRY_POINTS_LINKED
    {"linked", by_link, OPENS_NONE, NULL},
#endif
    {"local", by_plugin, RTLD_LOCAL, NULL},
    {"global", by_plugin, RTLD_GLOBAL, NULL},
    {"deepbind", by_plugin, RTLD_LOCAL | RTLD_DEEPBIND, NULL},
    {"handle", by_handle, RTLD_LOCAL, NULL},
    {"handle-global", by_handle, RTLD_GLOBAL, NULL},
    {"handle-deepbind", by_handle, RTLD_LOCAL | RTLD_DEEPBIND, NULL},
    {"default", by_default, RTLD_GLOBAL, NULL},
    {"main", by_main, RTLD_GLOBAL, NULL},
    {"next", by_next, OPENS_NONE, NULL},
    {"seek-handle", by_seek, RTLD_LOCAL, "handle"},
    {"seek-deepbind", by_seek, RTLD_LOCAL | RTLD_DEEPBIND, "handle"},
    {"seek-next", by_seek, RTLD_LOCAL, "next"},
    {"seek-default", by_seek, RTLD_GLOBAL, "default"},
    {"namespace", by_namespace, OPENS_NONE, NULL},
    {"reopen", by_reopening, RTLD_LOCAL, NULL},
};

/* ---- Data ---- */

/* What a rank sends in a call at an index; small, so that sums stay exact. */
static int value(int rank, unsigned tag, unsigned index)
{
    return (int)((rank + 1) * 1000 + (int)(tag % 50) * 7 + (int)(index % 11));
}

static unsigned tag_of(const struct side *side, const struct member *member)
{
    unsigned tag = side->number * 1000;
    for (unsigned i = 0; i < KINDS; i++)
        tag += member->calls[i];
    return tag + (member == &side->child) * 100;
}

static void count(struct member *member, enum kind kind, bool grouped)
{
    member->calls[kind]++;
    member->grouped[kind] += grouped;
}

static void fill(struct side *side, const struct member *member, unsigned tag)
{
    int data[COUNT * 8];
    unsigned n = COUNT * (unsigned)member->nranks;
    for (unsigned i = 0; i < n; i++)
        data[i] = value(member->rank, tag, i);
    CUDA(side, cudaMemcpy, side->send, data, n * sizeof(int), cudaMemcpyDefault);
    memset(data, 0, sizeof(data));
    CUDA(side, cudaMemcpy, side->recv, data, n * sizeof(int), cudaMemcpyDefault);
}

/* What arrived, against what had to. */
static void judge(struct side *side, struct member *member, enum kind kind, unsigned tag)
{
    int data[COUNT * 8];
    unsigned n = COUNT * (unsigned)member->nranks;
    int next = (member->rank + 1) % member->nranks;
    bool root = member->rank == 0;
    CUDA(side, cudaStreamSynchronize, side->stream);
    CUDA(side, cudaMemcpy, data, side->recv, n * sizeof(int), cudaMemcpyDefault);
    for (unsigned i = 0; i < n; i++) {
        int sum = 0, want = 0;
        unsigned at = kind == REDUCE_SCATTER ? i + (unsigned)member->rank * COUNT : i;
        for (int rank = 0; rank < member->nranks; rank++)
            sum += value(rank, tag, at);
        if (kind == ALL_GATHER)
            want = value((int)(i / COUNT), tag, i % COUNT);
        else if (i >= COUNT)
            want = 0;
        else if (kind == ALL_REDUCE || kind == REDUCE_SCATTER || (kind == REDUCE && root))
            want = sum;
        else if (kind == BROADCAST)
            want = value(0, tag, i);
        else if (kind == RECV)
            want = value(next, tag, i);
        FAIL_IF(data[i] != want, "side %u: %s: element %u is %d, not %d", side->number,
                kind_names[kind], i, data[i], want);
        member->checksum = (member->checksum ^ (unsigned)data[i]) * 1099511628211ull;
    }
}

/* ---- Calls ---- */

/* A collective by itself, whose data is known by the tag. */
#define COLLECTIVE(KIND, tag, name, ...)                                                           \
    do {                                                                                           \
        fill(side, member, tag);                                                                   \
        NCCL(side, name, __VA_ARGS__, member->comm, side->stream);                                 \
        count(member, KIND, false);                                                                \
        judge(side, member, KIND, tag);                                                            \
    } while (0)

static void all_reduce(struct side *side, struct member *member)
{
    unsigned tag = tag_of(side, member);
    COLLECTIVE(ALL_REDUCE, tag, AllReduce, side->send, side->recv, COUNT, ncclInt32, ncclSum);
}

static void each_collective(struct side *side, struct member *member)
{
    unsigned tag = tag_of(side, member);
    int *send = side->send, *recv = side->recv;
    all_reduce(side, member);
    COLLECTIVE(BROADCAST, tag, Broadcast, send, recv, COUNT, ncclInt32, 0);
    if (with_bcast) {
        fill(side, member, tag);
        CUDA(side, cudaMemcpy, recv, send, COUNT * sizeof(int), cudaMemcpyDefault);
        NCCL(side, Bcast, recv, COUNT, ncclInt32, 0, member->comm, side->stream);
        count(member, BROADCAST, false);
        judge(side, member, BROADCAST, tag);
    }
    COLLECTIVE(REDUCE, tag, Reduce, send, recv, COUNT, ncclInt32, ncclSum, 0);
    COLLECTIVE(ALL_GATHER, tag, AllGather, send, recv, COUNT, ncclInt32);
    COLLECTIVE(REDUCE_SCATTER, tag, ReduceScatter, send, recv, COUNT, ncclInt32, ncclSum);
}

static void send_around(struct side *side, struct member *member, const struct side *between)
{
    unsigned tag = tag_of(side, member);
    int next = (member->rank + 1) % member->nranks;
    int previous = (member->rank + member->nranks - 1) % member->nranks;
    fill(side, member, tag);
    NCCL(side, GroupStart);
    NCCL(side, Send, side->send, COUNT, ncclInt32, previous, member->comm, side->stream);
    count(member, SEND, true);
    /* A group is open in one copy: the other knows nothing of it, and launches at once. */
    if (between)
        all_reduce((struct side *)between, (struct member *)&between->world);
    NCCL(side, GroupStart);
    NCCL(side, Recv, side->recv, COUNT, ncclInt32, next, member->comm, side->stream);
    count(member, RECV, true);
    NCCL(side, GroupEnd);
    NCCL(side, GroupEnd);
    judge(side, member, RECV, tag);
}

static void grouped_all_reduces(struct side *side, struct member *member)
{
    unsigned tag = tag_of(side, member);
    fill(side, member, tag);
    NCCL(side, GroupStart);
    for (int i = 0; i < 2; i++) {
        NCCL(side, AllReduce, side->send, side->recv, COUNT, ncclInt32, ncclSum, member->comm,
             side->stream);
        count(member, ALL_REDUCE, true);
    }
    NCCL(side, GroupEnd);
    judge(side, member, ALL_REDUCE, tag);
}

/* ---- A side's life ---- */

/* Rank 0 tells the others, each through a pipe with a name. */
static void exchange(ncclUniqueId *id, unsigned number)
{
    const char *folder = getenv("SPAWN_DIR");
    char path[4096];
    for (int rank = 1; rank < world_size; rank++) {
        if (world_rank != 0 && world_rank != rank)
            continue;
        snprintf(path, sizeof(path), "%s/id.%u.%d", folder ? folder : ".", number, rank);
        mkfifo(path, 0600); /* whoever comes first */
        int fd = open(path, (world_rank ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
        ssize_t done = world_rank ? read(fd, id, sizeof(*id)) : write(fd, id, sizeof(*id));
        FAIL_IF(done != (ssize_t)sizeof(*id), "the unique id did not come through %s", path);
        close(fd);
    }
}

static void use_linked_cuda(struct entry_points_cuda *ret_cuda)
{
#define ENTRY_POINT(name, parameters) ret_cuda->name = name;
    ENTRY_POINTS_CUDA(ENTRY_POINT)
#undef ENTRY_POINT
}

static void learn(struct side *side, struct member *member)
{
    NCCL(side, CommCount, member->comm, &member->nranks);
    NCCL(side, CommUserRank, member->comm, &member->rank);
}

static unsigned communicators;

static void create(struct side *side)
{
    const char *local = getenv("LOCAL_RANK");
    ncclUniqueId id;
    CUDA(side, cudaSetDevice, local && !getenv("SHARE_DEVICES") ? atoi(local) : 0);
    CUDA(side, cudaStreamCreateWithFlags, &side->stream, cudaStreamNonBlocking);
    CUDA(side, cudaMalloc, (void **)&side->send, 8 * COUNT * sizeof(int));
    CUDA(side, cudaMalloc, (void **)&side->recv, 8 * COUNT * sizeof(int));
    NCCL(side, GetVersion, &side->version);
    if (world_rank == 0)
        NCCL(side, GetUniqueId, &id);
    exchange(&id, communicators++);
    memset(&side->world, 0, sizeof(side->world));
    memset(&side->child, 0, sizeof(side->child));
    NCCL(side, CommInitRank, &side->world.comm, world_size, id, world_rank);
    learn(side, &side->world);
}

static void split(struct side *side)
{
    NCCL(side, CommSplit, side->world.comm, 0, -world_rank, &side->child.comm, NULL);
    learn(side, &side->child);
}

static void print(const char *line, int length)
{
    FAIL_IF(write(STDOUT_FILENO, line, (size_t)length) != length, "stdout is gone");
}

static void print_member(const struct side *side, const char *which, const struct member *member)
{
    char line[1200];
    int n = snprintf(line, sizeof(line),
                     "{\"rank\": %d, \"side\": %u, \"way\": \"%s\", \"comm\": \"%s\", "
                     "\"version\": %d, \"nranks\": %d, \"group_rank\": %d, "
                     "\"checksum\": \"%016llx\", \"calls\": {",
                     world_rank, side->number, side->way, which, side->version, member->nranks,
                     member->rank, member->checksum);
    for (int grouped = 0; grouped < 2; grouped++) {
        const unsigned *counts = grouped ? member->grouped : member->calls;
        const char *comma = "";
        for (int i = 0; i < KINDS; i++) {
            if (!counts[i])
                continue;
            n += snprintf(line + n, sizeof(line) - (size_t)n, "%s\"%s\": %u", comma, kind_names[i],
                          counts[i]);
            comma = ", ";
        }
        n += snprintf(line + n, sizeof(line) - (size_t)n, grouped ? "}}\n" : "}, \"grouped\": {");
    }
    print(line, n);
}

static void destroy(struct side *side)
{
    ncclResult_t state;
    NCCL(side, CommGetAsyncError, side->world.comm, &state);
    FAIL_IF(state != ncclSuccess, "side %u: asynchronous error %d", side->number, (int)state);
    if (side->child.comm)
        NCCL(side, CommDestroy, side->child.comm);
    NCCL(side, CommFinalize, side->world.comm);
    NCCL(side, CommDestroy, side->world.comm);
    CUDA(side, cudaFree, side->send);
    CUDA(side, cudaFree, side->recv);
    CUDA(side, cudaStreamDestroy, side->stream);
}

/* Errors must be those of the library that was called. */
static void be_refused(struct side *side)
{
    ncclResult_t result = side->nccl.CommInitRank(NULL, 1, (ncclUniqueId){{0}}, 0);
    char line[900];
    int n = snprintf(line, sizeof(line),
                     "{\"rank\": %d, \"side\": %u, \"refused\": %d, \"text\": \"%.200s\", "
                     "\"last\": \"%.200s\"}\n",
                     world_rank, side->number, (int)result, side->nccl.GetErrorString(result),
                     side->nccl.GetLastError(NULL));
    print(line, n);
}

static void run_before(struct side *side)
{
    create(side);
    all_reduce(side, &side->world);
    print_member(side, "before", &side->world);
    destroy(side);
}

static void reach(struct side *side)
{
    use_linked_cuda(&side->cuda);
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strcmp(side->way, ways[i].name) != 0)
            continue;
        bool opens = ways[i].mode != OPENS_NONE;
        ways[i].reach(side, opens ? open_library(side->path, ways[i].mode) : NULL, ways[i].how);
        return;
    }
    fail("%s is no way to NCCL", side->way);
}

int main(int argc, char **argv)
{
    static struct side sides[MAX_SIDES];
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    unsigned n = 0;
    bool late = false;
    world_rank = rank ? atoi(rank) : 0;
    world_size = size ? atoi(size) : 1;
    alarm(120);
    for (int i = 1; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (strcmp(argv[i], "--late") == 0)
            late = true;
        else if (strcmp(argv[i], "--bcast") == 0)
            with_bcast = true;
        else if (!colon || n == MAX_SIDES)
            fail("%s: not WAY:PATH, or too many", argv[i]);
        else {
            *colon = '\0';
            sides[n] = (struct side){.way = argv[i], .path = colon + 1, .number = n};
            sides[n].second = strchr(sides[n].path, ',');
            if (sides[n].second)
                *sides[n].second++ = '\0';
            n++;
        }
    }
    FAIL_IF(n == 0, "no way to NCCL is given");

    /* Late: the next copy comes when the one before is in use. */
    for (unsigned i = 0; i < n && !late; i++)
        reach(&sides[i]);
    for (unsigned i = 0; i < n; i++) {
        if (late)
            reach(&sides[i]);
        create(&sides[i]);
        all_reduce(&sides[i], &sides[i].world);
    }
    for (unsigned i = 0; i < n; i++)
        be_refused(&sides[i]);
    for (unsigned i = 0; i < n; i++)
        split(&sides[i]);
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        for (unsigned i = 0; i < n; i++)
            each_collective(&sides[i], &sides[i].world);
        for (unsigned i = 0; i < n; i++)
            each_collective(&sides[i], &sides[i].child);
        for (unsigned i = 0; i < n; i++) {
            /* Two ways may lead to one copy: then there is one group for both. */
            const struct side *other = &sides[(i + 1) % n];
            bool apart = other->version != sides[i].version;
            send_around(&sides[i], &sides[i].world, apart ? other : NULL);
            grouped_all_reduces(&sides[i], &sides[i].child);
        }
    }
    /* No two sides make the same number of calls, so that none can be taken for another. */
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < i; j++)
            all_reduce(&sides[i], &sides[i].world);
    for (unsigned i = 0; i < n; i++) {
        print_member(&sides[i], "world", &sides[i].world);
        print_member(&sides[i], "child", &sides[i].child);
        destroy(&sides[i]);
    }

    char line[80], byte;
    int length = snprintf(line, sizeof(line), "{\"rank\": %d, \"holds\": true}\n", world_rank);
    print(line, length);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
