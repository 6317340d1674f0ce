/* What the test programs share: unique ids, calls, faults, checks. */
#include "tests/programs/common.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

_Thread_local int fail_rank = -1;
int fail_status = 3;

struct options options = {.timeout_s = 120};
struct place place;

void fail(const char *file, int line, const char *call, const char *text)
{
    const char *slash = strrchr(file, '/');
    fprintf(stderr, "rank %d: %s:%d %s: %s\n", fail_rank, slash ? slash + 1 : file, line, call,
            text);
    if (fail_status < 0)
        block_for_ever();
    exit(fail_status);
}

static int launcher_number(const char *const *names, int fallback)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text)
            return atoi(text);
    }
    return fallback;
}

static void *give_up(void *options)
{
    sigset_t user;
    int number;

    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    sigwait(&user, &number);
    exit(((const struct options *)options)->give_up);
}

static void be_ready_to_give_up(const struct options *options)
{
    sigset_t user;

    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    sigprocmask(SIG_BLOCK, &user, NULL); /* before there are threads */
    thread_start(give_up, (void *)options);
}

void place_init(struct place *ret_place, const struct options *options)
{
    static const char *const rank[] = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK",
                                       NULL};
    static const char *const nranks[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS",
                                         "PMI_SIZE", NULL};
    static const char *const local_rank[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "SLURM_LOCALID", "MPI_LOCALRANKID", NULL};
    ret_place->rank = launcher_number(rank, 0);
    ret_place->nranks = launcher_number(nranks, 1);
    ret_place->local_rank = launcher_number(local_rank, ret_place->rank);
    fail_rank = ret_place->rank;
    if (options->timeout_s)
        alarm(options->timeout_s);
    if (options->give_up)
        be_ready_to_give_up(options);
}

long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void sleep_ms(long long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

pthread_t thread_start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    errno = pthread_create(&thread, NULL, body, argument);
    FAIL_IF(errno, "pthread_create");
    return thread;
}

void await_error(ncclComm_t comm)
{
    ncclResult_t answer = ncclSuccess;
    while (ncclCommGetAsyncError(comm, &answer) == ncclSuccess && answer == ncclSuccess)
        sleep_ms(2);
}

static void write_id(const char *path, const ncclUniqueId *id)
{
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "wxe");
    FAIL_IF(!file || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) ||
                rename(temporary, path),
            path);
}

static void read_id(const char *path, ncclUniqueId *ret_id, long long deadline_ms)
{
    FILE *file;
    while (!(file = fopen(path, "re"))) {
        FAIL_IF(errno != ENOENT, path);
        WRONG_IF(now_ms() > deadline_ms, path, "nobody left a unique id");
        sleep_ms(2);
    }
    WRONG_IF(fread(ret_id, sizeof(*ret_id), 1, file) != 1, path, "short unique id");
    fclose(file);
}

ncclUniqueId exchange_id(const struct place *place, const struct options *options, unsigned ordinal)
{
    ncclUniqueId id;
    if (place->rank == 0)
        NCCL(ncclGetUniqueId(&id));
    return share_id(place, options, ordinal, place->rank == 0 ? &id : NULL);
}

ncclUniqueId share_id(const struct place *place, const struct options *options, unsigned ordinal,
                      const ncclUniqueId *made)
{
    ncclUniqueId id;
    if (made && place->nranks == 1)
        return *made;
    const char *folder = getenv("SPAWN_DIR");
    WRONG_IF(!folder, "SPAWN_DIR", "not set: no folder to exchange the unique id in");
    char path[4000];
    snprintf(path, sizeof(path), "%s/id.%u", folder, ordinal);
    if (made) {
        write_id(path, made);
        return *made;
    }
    read_id(path, &id, now_ms() + (options->timeout_s ? options->timeout_s : 120) * 1000LL);
    return id;
}

void block_for_ever(void)
{
    for (;;)
        pause();
}

void fault_no_init(const struct options *options, int world_rank)
{
    for (int i = 0; i < options->nfaults; i++) {
        const struct fault *fault = &options->faults[i];
        if (fault->kind == FAULT_NO_INIT && fault->rank == world_rank) {
            fprintf(stderr, "rank %d (pid %d): no-init\n", world_rank, getpid());
            block_for_ever();
        }
    }
}

ncclComm_t world_init(const struct place *place, const struct options *options, unsigned ordinal)
{
    ncclUniqueId id = exchange_id(place, options, ordinal);
    fault_no_init(options, place->rank);
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, place->nranks, id, place->rank));
    return comm;
}

ncclComm_t init_alone(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&comm, 1, id, 0));
    return comm;
}

/* Elements that the largest call of this run needs in a buffer, and bytes of the largest type. */
static size_t slot_bytes(const struct options *options, int nranks)
{
    size_t count = options->count;
    size_t size = data_size(options->dtype);
    bool one_share = options->op == OP_ALLREDUCE || options->op == OP_BROADCAST ||
                     options->op == OP_BCAST || options->op == OP_REDUCE;
    long long most = 0;
    for (int i = 0; i < options->nfaults; i++) {
        const struct fault *fault = &options->faults[i];
        if (fault->kind == FAULT_COUNT_DELTA && fault->argument > most)
            most = fault->argument;
        if (fault->kind == FAULT_WITH && fault->field == FIELD_OP)
            one_share = false;
        if (fault->kind == FAULT_WITH && fault->field == FIELD_DTYPE)
            size = 8;
    }
    size_t bytes = (count + (size_t)most) * size * (size_t)(one_share ? 1 : nranks);
    return (bytes / 256 + 1) * 256;
}

void place_begin(void)
{
    place_init(&place, &options);
    device_use(place.local_rank);
}

void rank_begin(unsigned takes, const char *comms, int argc, char **argv)
{
    options_parse(&options, takes, comms, argc, argv);
    place_begin();
}

const struct mode *mode_begin(const struct mode *modes, unsigned takes, int argc, char **argv)
{
    const char *program = argv[0];
    const struct mode *mode = modes;
    while (argc > 1 && mode->name && strcmp(argv[1], mode->name) != 0)
        mode++;
    if (argc < 2 || !mode->name) {
        fprintf(stderr, "usage: %s MODE OPTIONS…; modes:", program);
        for (mode = modes; mode->name; mode++)
            fprintf(stderr, " %s", mode->name);
        fprintf(stderr, "\n");
        exit(2);
    }
    argv[1] = argv[0];
    options_parse(&options, takes, "world", argc - 1, argv + 1);
    place_init(&place, &options);
    if (mode->before)
        mode->before();
    if (!mode->before_cuda)
        device_use(place.local_rank);
    return mode;
}

unsigned word_index(const char *word, const char *const *words, unsigned count)
{
    unsigned i = 0;
    while (i < count && strcmp(word, words[i]) != 0)
        i++;
    return i;
}

void member_init(struct member *ret_member, const struct options *options, const char *name,
                 int world_rank, ncclComm_t comm, size_t nslots)
{
    struct member member = {
        .options = options,
        .name = name,
        .world_rank = world_rank,
        .comm = comm,
        .nslots = nslots,
        .mix_state = options->seed,
    };
    NCCL(ncclCommUserRank(comm, &member.rank));
    NCCL(ncclCommCount(comm, &member.nranks));
    NCCL(ncclCommCuDevice(comm, &member.device));
    member.stream = device_stream_create();
    member.slots = calloc(nslots, sizeof(*member.slots));
    WRONG_IF(!member.slots, "calloc", strerror(ENOMEM));
    size_t bytes = slot_bytes(options, member.nranks);
    member.host_in = device_host_alloc(nslots * bytes);
    member.host_out = device_host_alloc(nslots * bytes);
    member.device_in = device_alloc(nslots * bytes);
    member.device_out = device_alloc(nslots * bytes);
    for (size_t i = 0; i < nslots; i++) {
        member.slots[i].host_in = member.host_in + i * bytes;
        member.slots[i].host_out = member.host_out + i * bytes;
        member.slots[i].device_in = member.device_in + i * bytes;
        member.slots[i].device_out = member.device_out + i * bytes;
    }
    *ret_member = member;
}

void member_fini(const struct member *member)
{
    device_stream_destroy(member->stream);
    device_host_free(member->host_in);
    device_host_free(member->host_out);
    device_free(member->device_in);
    device_free(member->device_out);
    free(member->slots);
}

void member_join(struct member *ret_member, const struct options *options,
                 const struct place *place, unsigned ordinal, const char *name, size_t nslots)
{
    ncclComm_t comm = world_init(place, options, ordinal);
    member_init(ret_member, options, name, place->rank, comm, nslots);
}

void members_end(const struct member *const *members, int nmembers)
{
    for (int i = nmembers - 1; i >= 0; i--)
        comm_destroy(members[i]->comm, members[i]->options);
    report(members[0]->world_rank, members, nmembers);
    for (int i = nmembers - 1; i >= 0; i--)
        member_fini(members[i]);
}

void member_end(const struct member *member)
{
    members_end(&member, 1);
}

size_t iteration_calls(const struct options *options)
{
    return options->op == OP_ALL ? OP_COLLECTIVES : 1;
}

enum op iteration_op(struct member *member, size_t i)
{
    if (member->options->op == OP_ALL)
        return (enum op)(i % OP_COLLECTIVES);
    if (member->options->op != OP_MIX)
        return member->options->op;
    member->mix_state = data_checksum(member->mix_state, "mix", 3);
    return (enum op)((member->mix_state >> 32) % OP_COLLECTIVES);
}

/* Where a call's data lies: what NCCL gets, how much goes in, how much comes out. */
struct layout {
    char *send, *recv;
    size_t in, out;
};

static struct layout layout_of(const struct member *member, const struct slot *slot,
                               const struct call *call)
{
    struct layout layout = {slot->device_in, slot->device_out, call->count, call->count};
    size_t n = (size_t)member->nranks;
    size_t share = call->count * data_size(call->dtype);
    bool inplace = member->options->inplace;
    bool is_root = call->root == member->rank;
    switch (call->op) {
    case OP_BCAST:
        layout.send = layout.recv;
        break;
    case OP_ALLREDUCE:
    case OP_BROADCAST:
        if (inplace)
            layout.send = layout.recv;
        break;
    case OP_REDUCE:
        if (inplace)
            layout.send = layout.recv;
        layout.out = is_root ? call->count : 0;
        break;
    case OP_ALLGATHER:
        layout.out *= n;
        if (inplace)
            layout.send = layout.recv + (size_t)member->rank * share;
        break;
    case OP_REDUCESCATTER:
        layout.in *= n;
        if (inplace)
            layout.recv = layout.send + (size_t)member->rank * share;
        break;
    case OP_ALLTOALL:
        layout.in *= n;
        layout.out *= n;
        break;
    case OP_GATHER:
        layout.out = is_root ? call->count * n : 0;
        if (inplace && is_root)
            layout.send = layout.recv + (size_t)member->rank * share;
        break;
    case OP_SCATTER:
        layout.in = is_root ? call->count * n : 0;
        if (inplace && is_root)
            layout.recv = layout.send + (size_t)member->rank * share;
        break;
    case OP_SEND:
        layout.out = 0;
        break;
    case OP_RECV:
        layout.in = 0;
        break;
    default:
        break;
    }
    return layout;
}

static struct stream_of_values values_of(const struct member *member, const struct slot *slot)
{
    return (struct stream_of_values){member->options->seed, slot->tag, slot->call.dtype,
                                     slot->call.redop};
}

static void prepare(struct member *member, enum op op, int root, uint64_t tag)
{
    const struct options *options = member->options;
    WRONG_IF(member->prepared == member->nslots, "prepare", "no free slot");
    struct slot *slot = &member->slots[member->prepared++];
    slot->call = (struct call){op, options->dtype, options->redop, options->count, root};
    slot->tag = tag;
    slot->issued = slot->honest = false;
    struct layout layout = layout_of(member, slot, &slot->call);
    if (!layout.in)
        return;
    struct stream_of_values values = values_of(member, slot);
    data_fill(slot->host_in, &values, member->rank, layout.in);
    device_copy_in(layout.send, slot->host_in, layout.in * data_size(options->dtype),
                   member->stream);
}

void member_prepare(struct member *member, enum op op)
{
    prepare(member, op, member->options->root, ++member->tag);
}

void member_prepare_p2p(struct member *member, enum op op, int peer, uint64_t tag)
{
    prepare(member, op, peer, tag);
}

static void wait_for_ever(void *unused)
{
    block_for_ever();
}

__attribute__((noreturn)) static void compute_for_ever(void)
{
    volatile uint64_t value = 1;
    for (;;)
        value = value * 6364136223846793005ULL + 1442695040888963407ULL;
}

__attribute__((no_sanitize("undefined", "address"))) static void write_to_nowhere(void)
{
    volatile uintptr_t nowhere = 0;
    *(volatile int *)nowhere = 1;
}

static void change_field(struct call *call, const struct fault *fault)
{
    switch (fault->field) {
    case FIELD_OP:
        call->op = (enum op)fault->argument;
        break;
    case FIELD_DTYPE:
        call->dtype = (ncclDataType_t)fault->argument;
        break;
    case FIELD_REDOP:
        call->redop = (ncclRedOp_t)fault->argument;
        break;
    case FIELD_ROOT:
    case FIELD_PEER:
        call->root = (int)fault->argument;
        break;
    }
}

/* Is there the file "go"? */
static bool may_go(void)
{
    char path[4000];
    const char *folder = getenv("SPAWN_DIR");

    snprintf(path, sizeof(path), "%s/go", folder ? folder : ".");
    return access(path, F_OK) == 0;
}

/* Is fault `index` of the options due at the rank's `nth` call? Where it waits for a file, it is
 * due once. */
static bool is_due(const struct options *options, int index, unsigned long nth)
{
    static atomic_flag had[MAX_FAULTS];

    if (options->faults[index].nth != NTH_GO)
        return options->faults[index].nth == nth;
    return may_go() && !atomic_flag_test_and_set(&had[index]);
}

static void sleep_for(long long argument)
{
    while (argument == UNTIL_GO && !may_go())
        sleep_ms(10);
    if (argument != UNTIL_GO)
        sleep_ms(argument);
}

static void sleep_on_device(void *ms)
{
    sleep_ms((long long)(intptr_t)ms);
}

/* Who is late is so each time, and says so the first time only. */
static void every_call(const struct options *options, int world_rank, unsigned long nth,
                       cudaStream_t stream)
{
    for (int i = 0; i < options->nfaults; i++) {
        const struct fault *fault = &options->faults[i];
        if (fault->rank != world_rank || !fault->nth || nth < fault->nth)
            continue;
        if (fault->kind == FAULT_LATE)
            sleep_ms(fault->argument);
        else if (fault->kind == FAULT_LATE_DEVICE && stream && nth % fault->nth == 0)
            device_host_function(stream, sleep_on_device, (void *)(intptr_t)fault->argument);
    }
}

/* Before it is done, so that a test can wait for this line; with the time, since the line may be
 * read later. */
static void say_fault(const struct fault *fault, int world_rank, const char *comm_name,
                      unsigned long nth)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(stderr, "rank %d (pid %d): %s at call %lu of %s, at %lld.%06ld\n", world_rank, getpid(),
            fault_name(fault->kind), nth, comm_name, (long long)now.tv_sec, now.tv_nsec / 1000);
}

bool face_faults(const struct options *options, int world_rank, const char *comm_name,
                 unsigned long nth, struct call *call, cudaStream_t stream)
{
    bool wanted = true;
    if (strcmp(comm_name, options->comm))
        return true;
    every_call(options, world_rank, nth, stream);
    for (int i = 0; i < options->nfaults; i++) {
        const struct fault *fault = &options->faults[i];
        if (fault->kind == FAULT_NO_INIT || fault->rank != world_rank || !is_due(options, i, nth))
            continue;
        say_fault(fault, world_rank, comm_name, nth);
        switch (fault->kind) {
        case FAULT_HANG:
            block_for_ever();
        case FAULT_SPIN:
            compute_for_ever();
        case FAULT_SKIP:
            wanted = false;
            break;
        case FAULT_SLEEP:
            sleep_for(fault->argument);
            break;
        case FAULT_LATE: /* every_call() does it */
        case FAULT_LATE_DEVICE:
            break;
        case FAULT_EXIT:
            exit((int)fault->argument);
        case FAULT_KILL:
            kill(getpid(), SIGKILL);
            block_for_ever();
        case FAULT_SEGV:
            write_to_nowhere();
            break;
        case FAULT_TERM:
            kill(getpid(), SIGTERM);
            block_for_ever();
        case FAULT_ABORT:
            abort();
        case FAULT_STOP:
            kill(getpid(), SIGSTOP);
            break;
        case FAULT_STALL:
            if (stream)
                device_host_function(stream, wait_for_ever, NULL);
            break;
        case FAULT_DEVICE:
            fail_status = fault->argument ? (int)fault->argument : -1;
            if (stream)
                device_fault(stream);
            break;
        case FAULT_CROWD:
            if (stream)
                device_crowd(stream, fault->argument);
            break;
        case FAULT_COUNT_DELTA:
            call->count = fault->argument < 0 && (size_t)-fault->argument > call->count
                              ? 0
                              : call->count + (size_t)fault->argument;
            break;
        case FAULT_WITH:
            change_field(call, fault);
            break;
        case FAULT_NO_GROUP_END:
            /* One start more is one end too few, wherever the program's own groups are. */
            NCCL(ncclGroupStart());
            break;
        case FAULT_NO_INIT:
            break;
        }
    }
    return wanted;
}

void make_call(const struct call *call, void *send, void *recv, ncclComm_t comm,
               cudaStream_t stream)
{
    size_t count = call->count;
    ncclDataType_t dtype = call->dtype;
    ncclRedOp_t redop = call->redop;
    int root = call->root;
    switch (call->op) {
    case OP_ALLREDUCE:
        NCCL(ncclAllReduce(send, recv, count, dtype, redop, comm, stream));
        break;
    case OP_BROADCAST:
        NCCL(ncclBroadcast(send, recv, count, dtype, root, comm, stream));
        break;
    case OP_BCAST:
        NCCL(ncclBcast(recv, count, dtype, root, comm, stream));
        break;
    case OP_REDUCE:
        NCCL(ncclReduce(send, recv, count, dtype, redop, root, comm, stream));
        break;
    case OP_ALLGATHER:
        NCCL(ncclAllGather(send, recv, count, dtype, comm, stream));
        break;
    case OP_REDUCESCATTER:
        NCCL(ncclReduceScatter(send, recv, count, dtype, redop, comm, stream));
        break;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    case OP_ALLTOALL:
        NCCL(ncclAlltoAll(send, recv, count, dtype, comm, stream));
        break;
    case OP_GATHER:
        NCCL(ncclGather(send, recv, count, dtype, root, comm, stream));
        break;
    case OP_SCATTER:
        NCCL(ncclScatter(send, recv, count, dtype, root, comm, stream));
        break;
#endif
    case OP_SEND:
        NCCL(ncclSend(send, count, dtype, root, comm, stream));
        break;
    case OP_RECV:
        NCCL(ncclRecv(recv, count, dtype, root, comm, stream));
        break;
    default:
        fail(__FILE__, __LINE__, op_name(call->op), "not in the nccl.h of this build");
    }
}

/* A frame of its own in every build, as host-stacks wants it; so has member_call. */
__attribute__((noinline)) void member_issue(struct member *member)
{
    struct slot *slot = &member->slots[member->issued++];
    struct call call = slot->call;
    fail_rank = member->world_rank;
    if (!face_faults(member->options, member->world_rank, member->name, ++member->calls, &call,
                     member->stream))
        return;
    struct layout at = layout_of(member, slot, &call);
    make_call(&call, at.send, at.recv, member->comm, member->stream);
    member->made++;
    slot->issued = true;
    slot->honest = call.op == slot->call.op && call.dtype == slot->call.dtype &&
                   call.redop == slot->call.redop && call.count == slot->call.count &&
                   call.root == slot->call.root;
}

void member_collect(struct member *member)
{
    for (; member->collected < member->issued; member->collected++) {
        struct slot *slot = &member->slots[member->collected];
        struct layout layout = layout_of(member, slot, &slot->call);
        if (slot->issued && layout.out)
            device_copy_out(slot->host_out, layout.recv, layout.out * data_size(slot->call.dtype),
                            member->stream);
    }
}

__attribute__((noinline)) void member_call(struct member *member, enum op op)
{
    member_prepare(member, op);
    member_issue(member);
    member_collect(member);
}

void member_call_p2p(struct member *member, enum op op, int peer, uint64_t tag)
{
    member_prepare_p2p(member, op, peer, tag);
    member_issue(member);
    member_collect(member);
}

/* What element `index` of a call's output should be, before it is rounded to its type. */
static double expected(const struct member *member, const struct slot *slot, size_t index)
{
    struct stream_of_values values = values_of(member, slot);
    size_t count = slot->call.count;
    size_t mine = (size_t)member->rank * count;
    switch (slot->call.op) {
    case OP_ALLREDUCE:
    case OP_REDUCE:
        return data_reduce(&values, member->nranks, index);
    case OP_REDUCESCATTER:
        return data_reduce(&values, member->nranks, mine + index);
    case OP_ALLGATHER:
    case OP_GATHER:
        return data_value(&values, (int)(index / count), index % count);
    case OP_ALLTOALL:
        return data_value(&values, (int)(index / count), mine + index % count);
    case OP_SCATTER:
        return data_value(&values, slot->call.root, mine + index);
    default: /* broadcast, bcast, recv */
        return data_value(&values, slot->call.root, index);
    }
}

static void check(const struct member *member, const struct slot *slot, size_t count)
{
    enum op op = slot->call.op;
    bool reduced = op == OP_ALLREDUCE || op == OP_REDUCE || op == OP_REDUCESCATTER;
    for (size_t i = 0; i < count; i++) {
        double got = data_read(slot->host_out, slot->call.dtype, i);
        double want = expected(member, slot, i);
        if (data_equal(got, want, slot->call.dtype, reduced, slot->call.redop))
            continue;
        fprintf(stderr, "rank %d: %s on %s: element %zu is %g, should be %g\n", member->world_rank,
                op_name(op), member->name, i, got, want);
        exit(4);
    }
}

void member_drain(struct member *member)
{
    fail_rank = member->world_rank;
    device_stream_sync(member->stream);
    for (size_t i = 0; i < member->collected; i++) {
        struct slot *slot = &member->slots[i];
        size_t count = layout_of(member, slot, &slot->call).out;
        if (!slot->issued)
            continue;
        if (member->options->check && slot->honest)
            check(member, slot, count);
        member->checksum =
            data_checksum(member->checksum, slot->host_out, count * data_size(slot->call.dtype));
    }
    member->prepared = member->issued = member->collected = 0;
}

bool drain_due(const struct options *options, unsigned long i)
{
    return i + 1 == options->iters || (options->sync_every && (i + 1) % options->sync_every == 0);
}

size_t slots_needed(const struct options *options, size_t calls_per_iteration)
{
    unsigned long iterations = options->sync_every ? options->sync_every : options->iters;
    if (iterations > options->iters)
        iterations = options->iters;
    return (iterations ? iterations : 1) * calls_per_iteration;
}

void pause_between(const struct options *options)
{
    if (options->pause_ms)
        sleep_ms((long long)options->pause_ms);
}

void run_iterations(struct member *members, int nmembers, iteration *iterate)
{
    const struct options *options = members->options;
    for (unsigned long i = 0; i < options->iters; i++) {
        iterate(members, nmembers, i);
        for (int m = 0; m < nmembers && drain_due(options, i); m++)
            member_drain(&members[m]);
        pause_between(options);
    }
}

void run_to_end(struct member *members, int nmembers, iteration *iterate)
{
    const struct member *all[8];
    run_iterations(members, nmembers, iterate);
    for (int m = 0; m < nmembers; m++)
        all[m] = &members[m];
    members_end(all, nmembers);
}

void call_by_call(struct member *members, int nmembers, unsigned long i)
{
    for (size_t j = 0; j < iteration_calls(members->options); j++)
        for (int m = 0; m < nmembers; m++)
            member_call(&members[m], iteration_op(&members[m], j));
}

void sum_up(ncclComm_t comm, float mine, float sum, void *buffer, cudaStream_t stream)
{
    float all[SUM_COUNT];
    for (int i = 0; i < SUM_COUNT; i++)
        all[i] = mine;
    device_copy_in(buffer, all, sizeof(all), stream);
    NCCL(ncclAllReduce(buffer, buffer, SUM_COUNT, ncclFloat32, ncclSum, comm, stream));
    device_copy_out(all, buffer, sizeof(all), stream);
    device_stream_sync(stream);
    for (int i = 0; i < SUM_COUNT; i++) {
        if (all[i] == sum)
            continue;
        fprintf(stderr, "rank %d: element %d is %g, should be %g\n", place.rank, i, (double)all[i],
                (double)sum);
        fail(__FILE__, __LINE__, "all-reduce", "the communicator adds up wrongly");
    }
}

void expect_reason(ncclComm_t comm, const char *wanted)
{
    const char *reason = ncclGetLastError(comm);
    printf("rank %d: GetLastError: %s\n", place.rank, reason);
    if (wanted && !strstr(reason, wanted)) {
        fprintf(stderr, "rank %d: “%s” holds no “%s”\n", place.rank, reason, wanted);
        exit(5);
    }
}

void all_reduces(struct member *member, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        member_call(member, OP_ALLREDUCE);
        member_drain(member);
    }
}

void comm_destroy(ncclComm_t comm, const struct options *options)
{
    if (options->finalize) {
        ncclResult_t state = ncclCommFinalize(comm);
        while (state == ncclInProgress) {
            sleep_ms(1);
            NCCL(ncclCommGetAsyncError(comm, &state));
        }
        WRONG_IF(state != ncclSuccess, "ncclCommFinalize(comm)", ncclGetErrorString(state));
    }
    NCCL(ncclCommDestroy(comm));
}

void report(int world_rank, const struct member *const *members, int nmembers)
{
    unsigned long calls = 0;
    uint64_t checksum = 0;
    for (int i = 0; i < nmembers; i++) {
        calls += members[i]->made;
        checksum = data_checksum(checksum, &members[i]->checksum, sizeof(members[i]->checksum));
    }
    char line[128];
    int length = snprintf(line, sizeof(line), "rank %d ok calls=%lu checksum=%016llx\n", world_rank,
                          calls, (unsigned long long)checksum);
    /* One write, so that the lines of several ranks on one pipe stay whole. */
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(3);
}
