/*
 * What the programs of tests/programs do not do: `odd MODE OPTIONS…`, each mode a few lines. Faults
 * count the steps that a mode names.
 *
 * - late: every rank starts whenever it likes (step 1: communicator init), then collectives
 * - split: step 1: ncclCommSplit into halves, then collectives on the half
 * - stray: --iters collectives, then ncclCommSplit into halves, but rank --root makes a collective
 * more instead
 * - finalize: --iters collectives (the steps) queued, then ncclCommFinalize without synchronising
 * - opposite: two communicators; rank --root uses them in the other order than everybody else
 * - lanes: two communicators with a thread each; those of rank --root take turns, and hold a mutex
 * in their calls. The steps are the calls of the second one
 * - ring: a communicator of each rank with the next, those of a rank in one NCCL group on one
 * stream: in the last of
 *   --iters iterations each rank begins with the one that it has with the next. An even number of
 * ranks
 * - hub: rank 0 has a communicator with each other rank, and receives from all in one NCCL group,
 * --iters times; the steps are the messages of each
 * - cross: of two communicators of both ranks each rank sends over one and receives over the other,
 * in one NCCL group, but rank --root leaves out its send
 * - apart: each rank makes a communicator of its own; step 1 comes before that of all
 * - init-all: one process: ncclCommInitAll and destroy, --times times, on --devices devices
 * - slow-queue: --iters collectives queued at once, each behind a host function that takes 300 ms
 * - fork: forks children that end in different ways between collectives
 * - raw-fork: a child of rank --root, made without fork handlers, calls exit(); step 1 follows
 * - exec: after its collectives it becomes another program, without ending its communicator
 * - chain: 0 waits for 1 in one communicator, and 1 for 2 in another; step 1 comes before each
 * - aside: 0 waits for 1 in its --times-th collective of one communicator, while 1 and the others
 * make --iters of them (the steps) in another, without synchronising: a call that NCCL fails ends
 * them
 * - null-streams: default streams of --devices devices; the first is held up for ever after --iters
 *   collectives, while the last device is the current one
 * - close-all: closes all descriptors and takes their numbers, then --iters collectives (the steps)
 * - small-files: under a limit on file sizes that no black box fits
 * - full-memory: --times communicators; after the first, the folder of the black boxes gets full
 * - few-descriptors: a second communicator, for which rank --root has --times descriptors left,
 * until half a second after its init began; then --iters collectives on it; step 2 is its init
 * - hung-memory: a thread of rank --root has pages in its stack that never come, as those of a file
 *   on a dead server; then --iters collectives (the steps)
 */
#include "tests/programs/common.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* True: go on with this step. */
static bool step(unsigned long nth)
{
    struct call unused = {OP_ALLREDUCE, options.dtype, options.redop, 0, 0};
    return face_faults(&options, place.rank, "world", nth, &unused, NULL);
}

/* A member whose name is not "world", so that the faults do not count its calls. */
static void init_other(struct member *member, ncclComm_t comm, size_t slots)
{
    member_init(member, &options, "other", place.rank, comm, slots);
}

/* The same, of all ranks. */
static void join_other(struct member *member, size_t slots)
{
    member_join(member, &options, &place, 0, "other", slots);
}

static void late(void)
{
    struct member world;
    if (!step(1))
        return;
    join_other(&world, 1);
    all_reduces(&world, options.iters);
    member_end(&world);
}

static void split(void)
{
    struct member world, half;
    ncclComm_t comm = world_init(&place, &options, 0), half_comm = NULL;
    init_other(&world, comm, 1);
    all_reduces(&world, options.iters);
    if (step(1)) {
        NCCL(ncclCommSplit(comm, place.rank % 2, place.rank, &half_comm, NULL));
        init_other(&half, half_comm, 1);
        all_reduces(&half, options.iters);
        comm_destroy(half_comm, &options);
        member_fini(&half);
    }
    member_end(&world);
}

static void stray(void)
{
    struct member world;
    ncclComm_t comm = world_init(&place, &options, 0), half_comm = NULL;
    init_other(&world, comm, 1);
    all_reduces(&world, options.iters);
    if (place.rank == options.root) {
        fprintf(stderr, "rank %d (pid %d): stray at call %lu\n", place.rank, getpid(),
                options.iters + 1);
        all_reduces(&world, 1);
    } else {
        NCCL(ncclCommSplit(comm, place.rank % 2, place.rank, &half_comm, NULL));
    }
    comm_destroy(comm, &options);
    member_fini(&world);
}

static void finalize(void)
{
    struct member world;
    member_join(&world, &options, &place, 0, "world", options.iters);
    for (unsigned long i = 0; i < options.iters; i++)
        member_call(&world, OP_ALLREDUCE);
    NCCL(ncclCommFinalize(world.comm));
    member_drain(&world);
    NCCL(ncclCommDestroy(world.comm));
    report(place.rank, (const struct member *const[]){&world}, 1);
    member_fini(&world);
}

static void opposite(void)
{
    struct member members[2];
    ncclComm_t comms[2];
    for (unsigned i = 0; i < 2; i++) {
        comms[i] = world_init(&place, &options, i);
        init_other(&members[i], comms[i], 1);
    }
    for (unsigned long i = 0; i < options.iters; i++) {
        if (i + 1 == options.iters && place.rank == options.root)
            fprintf(stderr, "rank %d (pid %d): opposite at call %lu of both\n", place.rank,
                    getpid(), i + 1);
        for (int j = 0; j < 2; j++) {
            bool other_way = i + 1 == options.iters && place.rank == options.root;
            all_reduces(&members[other_way ? 1 - j : j], 1);
        }
    }
    for (unsigned i = 0; i < 2; i++)
        comm_destroy(comms[i], &options);
}

struct lane {
    struct member member;
    unsigned index;
};

static void *use_lane(void *argument)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
    static unsigned turn;
    struct lane *lane = argument;

    device_use(place.local_rank);
    for (unsigned long i = 0; i < options.iters; i++) {
        bool takes_turns = place.rank == options.root;
        if (takes_turns) {
            pthread_mutex_lock(&lock);
            while (turn != lane->index)
                pthread_cond_wait(&passed, &lock);
        }
        all_reduces(&lane->member, 1);
        if (takes_turns) {
            turn = 1 - lane->index;
            pthread_cond_broadcast(&passed);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

static void lanes(void)
{
    struct lane lanes[2] = {{.index = 0}, {.index = 1}};
    for (unsigned i = 0; i < 2; i++)
        member_join(&lanes[i].member, &options, &place, i, i ? "world" : "other", 1);
    pthread_t thread = thread_start(use_lane, &lanes[1]);
    use_lane(&lanes[0]);
    pthread_join(thread, NULL);
    members_end((const struct member *const[]){&lanes[0].member, &lanes[1].member}, 2);
}

static void ring(void)
{
    ncclComm_t world = world_init(&place, &options, 0), pairs[2];
    int color = (place.rank + 1) % place.nranks / 2;
    float *buffer = device_alloc(1024 * sizeof(*buffer));
    cudaStream_t stream = device_stream_create();
    NCCL(ncclCommSplit(world, place.rank / 2, place.rank, &pairs[0], NULL));
    NCCL(ncclCommSplit(world, color, place.rank, &pairs[1], NULL));
    for (unsigned long i = 0; i < options.iters; i++) {
        bool last = i + 1 == options.iters;
        if (last && place.rank == 0)
            fprintf(stderr, "rank %d (pid %d): ring at call %lu of both\n", place.rank, getpid(),
                    i + 1);
        NCCL(ncclGroupStart());
        for (int j = 0; j < 2; j++) {
            ncclComm_t pair = pairs[last && place.rank % 2 ? 1 - j : j];
            NCCL(ncclAllReduce(buffer, buffer, 1024, ncclFloat32, ncclSum, pair, stream));
        }
        NCCL(ncclGroupEnd());
        device_stream_sync(stream);
    }
    for (int j = 0; j < 2; j++)
        comm_destroy(pairs[j], &options);
    comm_destroy(world, &options);
    device_free(buffer);
    device_stream_destroy(stream);
}

static void hub(void)
{
    struct call unused = {OP_SEND, options.dtype, options.redop, 0, 0};
    ncclComm_t world = world_init(&place, &options, 0);
    ncclComm_t *pairs = calloc((size_t)place.nranks, sizeof(*pairs));
    float *buffer = device_alloc(sizeof(*buffer));
    cudaStream_t stream = device_stream_create();
    FAIL_IF(!pairs, "calloc");
    for (int i = 1; i < place.nranks; i++)
        NCCL(ncclCommSplit(world, place.rank == 0 || place.rank == i ? 0 : NCCL_SPLIT_NOCOLOR,
                           place.rank, &pairs[i], NULL));
    for (unsigned long n = 1; n <= options.iters; n++) {
        face_faults(&options, place.rank, "world", n, &unused, stream);
        NCCL(ncclGroupStart());
        for (int i = 1; i < place.nranks; i++)
            if (place.rank == 0)
                NCCL(ncclRecv(buffer, 1, ncclFloat32, 1, pairs[i], stream));
            else if (place.rank == i)
                NCCL(ncclSend(buffer, 1, ncclFloat32, 0, pairs[i], stream));
        NCCL(ncclGroupEnd());
        device_stream_sync(stream);
    }
    for (int i = 1; i < place.nranks; i++)
        if (pairs[i])
            comm_destroy(pairs[i], &options);
    comm_destroy(world, &options);
    device_free(buffer);
    device_stream_destroy(stream);
    free(pairs);
}

static void cross(void)
{
    ncclComm_t comms[2];
    float *buffer = device_alloc(2 * sizeof(*buffer));
    cudaStream_t stream = device_stream_create();
    for (unsigned i = 0; i < 2; i++)
        comms[i] = world_init(&place, &options, i);
    fprintf(stderr, "rank %d (pid %d): cross at call 1 of both\n", place.rank, getpid());
    NCCL(ncclGroupStart());
    if (place.rank != options.root)
        NCCL(ncclSend(buffer, 1, ncclFloat32, 1 - place.rank, comms[place.rank], stream));
    NCCL(ncclRecv(buffer + 1, 1, ncclFloat32, 1 - place.rank, comms[1 - place.rank], stream));
    NCCL(ncclGroupEnd());
    device_stream_sync(stream);
    for (int i = 0; i < 2; i++)
        comm_destroy(comms[i], &options);
    device_free(buffer);
    device_stream_destroy(stream);
}

static void apart(void)
{
    ncclUniqueId id;
    ncclComm_t own;
    NCCL(ncclGetUniqueId(&id));
    NCCL(ncclCommInitRank(&own, 1, id, 0));
    if (step(1))
        comm_destroy(world_init(&place, &options, 0), &options);
    comm_destroy(own, &options);
}

static struct rlimit enough;
static atomic_bool init_begins;

static void *give_back_descriptors(void *unused)
{
    while (!atomic_load(&init_begins))
        sleep_ms(1);
    sleep_ms(500);
    setrlimit(RLIMIT_NOFILE, &enough);
    return unused;
}

static void few_descriptors(void)
{
    struct member member;
    pthread_t thread = 0;
    ncclComm_t first = world_init(&place, &options, 0);
    ncclUniqueId id = exchange_id(&place, &options, 1);
    if (place.rank == options.root) {
        int lowest = dup(0);
        close(lowest);
        getrlimit(RLIMIT_NOFILE, &enough);
        struct rlimit few = {.rlim_cur = (rlim_t)lowest + options.times,
                             .rlim_max = enough.rlim_max};
        thread = thread_start(give_back_descriptors, NULL);
        FAIL_IF(setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
        fprintf(stderr, "rank %d (pid %d): few descriptors\n", place.rank, getpid());
    }
    if (!step(2))
        return;
    ncclComm_t comm;
    atomic_store(&init_begins, true);
    NCCL(ncclCommInitRank(&comm, place.nranks, id, place.rank));
    if (place.rank == options.root)
        pthread_join(thread, NULL);
    init_other(&member, comm, 1);
    all_reduces(&member, options.iters);
    comm_destroy(comm, &options);
    comm_destroy(first, &options);
    report(place.rank, (const struct member *const[]){&member}, 1);
    member_fini(&member);
}

static void init_all(void)
{
    int n = options.devices ? options.devices : device_count();
    ncclComm_t *comms = calloc((size_t)n, sizeof(ncclComm_t));
    FAIL_IF(!comms, "calloc");
    for (unsigned long i = 0; i < options.times; i++) {
        NCCL(ncclCommInitAll(comms, n, NULL));
        for (int k = 0; k < n; k++)
            NCCL(ncclCommDestroy(comms[k]));
    }
    free(comms);
    report(place.rank, NULL, 0);
}

static void take_long(void *unused)
{
    sleep_ms(300);
}

static void slow_queue(void)
{
    struct member world;
    join_other(&world, options.iters);
    for (unsigned long i = 0; i < options.iters; i++) {
        device_host_function(world.stream, take_long, NULL);
        member_call(&world, OP_ALLREDUCE);
    }
    member_drain(&world);
    member_end(&world);
}

/* One child leaves through exit(), one through _exit(), one becomes another program, one is killed.
 */
static void fork_one(unsigned long i)
{
    pid_t child = fork();
    if (child == 0) {
        switch (i % 4) {
        case 0:
            exit(5);
        case 1:
            _exit(5);
        case 2:
            execlp("sh", "sh", "-c", "exit 5", (char *)NULL);
            _exit(6);
        default:
            abort();
        }
    }
    int status;
    FAIL_IF(child < 0 || waitpid(child, &status, 0) != child, "fork");
    WRONG_IF(i % 4 < 3 ? WEXITSTATUS(status) != 5 : !WIFSIGNALED(status), "fork",
             "the child ended in another way");
}

static void fork_children(void)
{
    struct member world;
    join_other(&world, 1);
    for (unsigned long i = 0; i < options.iters; i++) {
        fork_one(i);
        all_reduces(&world, 1);
    }
    member_end(&world);
}

static void become_another(void)
{
    struct member world;
    join_other(&world, 1);
    all_reduces(&world, options.iters);
    execlp("sh", "sh", "-c", "echo another program", (char *)NULL);
    FAIL("execlp");
}

static void raw_fork(void)
{
    struct member world;
    join_other(&world, 1);
    all_reduces(&world, options.iters);
    if (place.rank == options.root) {
        pid_t child = _Fork();
        if (child == 0)
            exit(0);
        FAIL_IF(child < 0 || waitpid(child, NULL, 0) != child, "_Fork");
    }
    step(1);
    all_reduces(&world, options.iters);
    member_end(&world);
}

static ncclComm_t split_off(ncclComm_t comm, bool in)
{
    ncclComm_t part = NULL;
    NCCL(ncclCommSplit(comm, in ? 0 : NCCL_SPLIT_NOCOLOR, place.rank, &part, NULL));
    return part;
}

static void chain(void)
{
    struct member member;
    ncclComm_t comm = world_init(&place, &options, 0);
    ncclComm_t parts[2] = {split_off(comm, place.rank < 2), split_off(comm, place.rank > 0)};
    step(1);
    /* Rank 1 is in both, and uses the second first. */
    for (int i = 1; i >= 0; i--) {
        if (!parts[i])
            continue;
        init_other(&member, parts[i], 1);
        all_reduces(&member, 1);
        member_fini(&member);
    }
}

static void aside(void)
{
    struct member world, pair;
    ncclComm_t comm = world_init(&place, &options, 0);
    ncclComm_t pair_comm = split_off(comm, place.rank < 2),
               others = split_off(comm, place.rank > 0);
    if (pair_comm) {
        init_other(&pair, pair_comm, 1);
        all_reduces(&pair, options.times - 1);
    }
    if (others) {
        member_init(&world, &options, "world", place.rank, others, options.iters);
        for (unsigned long i = 0; i < options.iters; i++) {
            member_call(&world, OP_ALLREDUCE);
            pause_between(&options);
        }
        member_drain(&world);
        member_fini(&world);
    }
    if (pair_comm) {
        all_reduces(&pair, 1);
        member_fini(&pair);
    }
}

static void never_return(void *unused)
{
    block_for_ever();
}

static void null_streams(void)
{
    enum { LIMIT = 16 };
    ncclComm_t comms[LIMIT];
    void *buffers[LIMIT];
    int n = options.devices;
    WRONG_IF(n < 2 || n > LIMIT, "--devices", "from 2 to 16");
    NCCL(ncclCommInitAll(comms, n, NULL));
    for (int k = 0; k < n; k++) {
        device_use(k);
        buffers[k] = device_alloc(4096);
    }
    for (unsigned long i = 0; i <= options.iters; i++) {
        if (i == options.iters) {
            fprintf(stderr, "rank %d (pid %d): stall at call %lu\n", place.rank, getpid(), i + 1);
            device_use(0);
            device_host_function(NULL, never_return, NULL);
        }
        device_use(n - 1);
        NCCL(ncclGroupStart());
        for (int k = 0; k < n; k++)
            NCCL(ncclBroadcast(buffers[k], buffers[k], 16, ncclFloat, n - 1, comms[k], NULL));
        NCCL(ncclGroupEnd());
        for (int k = 0; k < n; k++) {
            device_use(k);
            device_stream_sync(NULL);
        }
    }
}

static void close_all(void)
{
    struct member world;
    int pairs[200][2]; /* others may be the guard's, which opens what it has lost again */
    member_join(&world, &options, &place, 0, "world", 1);
    /* The guard has looked around by then. */
    sleep_ms(1500);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    for (int i = 0; i < 200; i++)
        FAIL_IF(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]) != 0, "socketpair");
    all_reduces(&world, options.iters);
    for (int i = 0; i < 400; i++) {
        int fd = pairs[i / 2][i % 2];
        char byte;
        FAIL_IF(fcntl(fd, F_SETFL, O_NONBLOCK) != 0, "a socket of ours");
        WRONG_IF(read(fd, &byte, 1) > 0, "read", "somebody wrote into a socket of ours");
    }
    member_end(&world);
}

static void small_files(void)
{
    struct rlimit limit = {1500000, 1500000};
    FAIL_IF(setrlimit(RLIMIT_FSIZE, &limit) != 0, "setrlimit");
    late();
}

static void fill(const char *folder)
{
    static const char zeros[4096];
    char path[4096];
    snprintf(path, sizeof(path), "%s/filler", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    FAIL_IF(fd < 0, path);
    while (write(fd, zeros, sizeof(zeros)) > 0)
        ;
    close(fd);
}

static void full_memory(void)
{
    const char *folder = getenv("NCCLGUARD_DIR");
    ncclComm_t *comms = calloc(options.times, sizeof(*comms));
    FAIL_IF(!comms, "calloc");
    for (unsigned long i = 0; i < options.times; i++) {
        comms[i] = init_alone();
        if (i == 0 && folder)
            fill(folder);
    }
    for (unsigned long i = 0; i < options.times; i++)
        NCCL(ncclCommDestroy(comms[i]));
    free(comms);
    report(place.rank, NULL, 0);
}

#define FAR_BYTES (64u << 10) /* of stack between one function and the next */

static _Atomic(char *) lost_frame;

__attribute__((noinline)) static void stay(volatile char *room)
{
    atomic_store(&lost_frame, __builtin_frame_address(0));
    for (;;) {
        room[0] = 0;
        pause();
    }
}

__attribute__((noinline)) static void go_far(volatile char *before)
{
    volatile char room[FAR_BYTES];
    before[0] = 0;
    stay(room);
}

static void *lose_stack(void *unused)
{
    volatile char room[FAR_BYTES];
    go_far(room);
    return unused;
}

/* A walk of that thread's stack reaches the frame of go_far and blocks there for ever. */
static void hung_memory(void)
{
    struct member world;
    member_join(&world, &options, &place, 0, "world", 1);
    if (place.rank == options.root) {
        long page = sysconf(_SC_PAGESIZE);
        thread_start(lose_stack, NULL);
        while (!atomic_load(&lost_frame))
            sleep_ms(1);
        uintptr_t first = (uintptr_t)atomic_load(&lost_frame) + FAR_BYTES / 2;
        first -= first % (uintptr_t)page;
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register lost = {.range = {first, FAR_BYTES},
                                       .mode = UFFDIO_REGISTER_MODE_MISSING};
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        FAIL_IF(fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 ||
                    ioctl(fd, UFFDIO_REGISTER, &lost) != 0 ||
                    madvise((void *)first, FAR_BYTES, MADV_DONTNEED) != 0,
                "userfaultfd");
    }
    all_reduces(&world, options.iters);
    member_end(&world);
}

static const struct mode modes[] = {
    {"late", late},
    {"split", split},
    {"stray", stray},
    {"finalize", finalize},
    {"opposite", opposite},
    {"lanes", lanes},
    {"ring", ring},
    {"hub", hub},
    {"cross", cross},
    {"apart", apart},
    {"init-all", init_all},
    {"slow-queue", slow_queue},
    {"fork", fork_children},
    {"raw-fork", raw_fork},
    {"exec", become_another},
    {"chain", chain},
    {"aside", aside},
    {"null-streams", null_streams},
    {"close-all", close_all},
    {"small-files", small_files},
    {"full-memory", full_memory},
    {"few-descriptors", few_descriptors},
    {"hung-memory", hung_memory},
    {NULL},
};

int main(int argc, char **argv)
{
    mode_begin(modes, TAKES_OP | TAKES_DEVICES | TAKES_TIMES, argc, argv)->run();
    return 0;
}
