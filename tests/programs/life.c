/* The life of processes around NCCL: `life MODE OPTIONS…`, each mode a few lines. Healthy modes
 * must look the same with and without the guard, exit status included; --times says how often
 * children are made. Each rank makes --iters collectives.
 *
 * Children:
 * - forks: three threads fork --times children altogether, which end in every way there is, while
 *   the main thread runs collectives and two threads make communicators
 * - spawns: vfork, posix_spawn, clone and _Fork with and without exec, between collectives
 * - fork-first: a child that is forked before anything of CUDA is used does all the work
 * - fork-later, raw-fork-later: the same after a first call of NCCL; by fork, and without fork
 * handlers
 * - daemon: leaves its launcher's view by forking twice, and then does the work; its
 *   parent ends before
 * - exec-again: half of the work, then the same program anew does the other half
 * - exec-other: half of the work, then rank --root becomes `sleep` and the others go on
 * Ends:
 * - end-exit-now, end-quick, end-abort: after the work, with a communicator alive
 * - end-thread: a thread other than the first calls exit(7) while collectives run
 * - end-return: main returns 5 while collectives run in other threads
 * - end-main-thread: the first thread ends, another does the work
 * - end-handlers: exit handlers from before CUDA was used, and from after, use NCCL
 * - end-pending: exit with collectives still on their way
 * - end-inside: exit with a thread inside ncclCommInitRank, which nobody else comes to
 * - end-quick-early, end-exit-now-early: rank --root ends like that after half of the work
 * Surroundings:
 * - close-before, close-after: every descriptor closed, before NCCL is used or in the middle
 * - clear-before, clear-after: no environment any more; -before also writes over the old one
 * - elsewhere: chdir and an umask that forbids everything before, chroot in the middle (as root)
 * - limits-before, limits-after: hardly any open files, small files, no locked memory, small stacks
 * - drop-user: another user's rights in the middle (as root); drop-one: of rank --root alone
 * - no-memory: not a page more of address space in the middle, of rank --root
 * - filter-before: system calls that the guard likes fail with EPERM
 * - filter-after: the same and more kill the thread that makes the calls, once it has a
 * communicator
 * - small-stack: communicator and collectives on a thread with the smallest stack there is
 * - stack-use: how much stack a collective and a group of sends and receives need; prints that
 * alone
 * - signals: handlers, masks and the alternative stack stay as they were, and no signal comes
 * - stopped: the whole process is stopped in the middle, for four seconds
 * - cancel: threads are cancelled in the middle of making communicators
 * - secure: as root; another user runs a copy of the program that has root's rights, in which no
 *   guard may show
 * - counted: compares the black box, where there is one, with the calls that were made
 */
#include "core/recorder/box.h"
#include "tests/programs/common.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
/* What is alive at the end is no leak here. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#endif

static char **arguments; /* of the program: mode and options */

/* The common frame: a communicator, half of the work, something in the middle, the other half. */
static void work_around(unsigned ordinal, void (*middle)(void))
{
    struct member world;
    member_join(&world, &options, &place, ordinal, "world", 1);
    all_reduces(&world, options.iters / 2);
    if (middle)
        middle();
    all_reduces(&world, options.iters - options.iters / 2);
    member_end(&world);
}

/* As a shell tells it. */
static int end_of(pid_t child)
{
    int status;
    FAIL_IF(child < 0 || waitpid(child, &status, 0) != child, "waitpid");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void reap(pid_t child, int wanted)
{
    int got = end_of(child);
    if (got != wanted) {
        fprintf(stderr, "a child ended with %d instead of %d\n", got, wanted);
        _exit(3);
    }
}

/* The black box of this process, found in its own memory; NULL: there is none. */
static const struct ng_box_header *own_box(void)
{
    char mark[64], line[4096];
    const struct ng_box_header *header = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    snprintf(mark, sizeof(mark), "/" NG_BOX_PREFIX "%d-", getpid());
    while (maps && !header && fgets(line, sizeof(line), maps)) {
        uintptr_t start, end, offset;
        if (strstr(line, mark) &&
            sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNxPTR, &start, &end, &offset) == 3 &&
            offset == 0)
            header = (const struct ng_box_header *)start;
    }
    if (maps)
        fclose(maps);
    return header;
}

static void own_box_is_this_process(void)
{
    const struct ng_box_header *box = own_box();
    WRONG_IF(getenv("LIFE_GUARDED") && (!box || box->pid != getpid()), "the black box",
             "there is none of this process");
}

/* ---- Forks ---- */

static bool inherited[1024]; /* descriptors that the program had at its start */

/* This process has no thread and no descriptor of the guard, which keeps its descriptors at numbers
 * higher than a program's own. */
static bool is_inert(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int threads = 0, high = 0;
    while (tasks && (entry = readdir(tasks)))
        threads += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    for (int fd = 200; fd < 1024; fd++)
        high += fcntl(fd, F_GETFD) >= 0 && !inherited[fd];
    if (threads != 1 || high)
        fprintf(stderr, "a child has %d threads and %d high descriptors\n", threads, high);
    return threads == 1 && !high;
}

static void child_life(unsigned long i)
{
    char line[64];
    alarm(60); /* a deadlock shows as another end */
    switch (i % 6) {
    case 0:
        _exit(40);
    case 1:
        exit(41);
    case 2:
        quick_exit(42);
    case 3: {
        void *memory = malloc(100000);
        bool good = memory && snprintf(line, sizeof(line), "%p %.3f", memory, 1.5) > 0 &&
                    dlsym(RTLD_DEFAULT, "ncclAllReduce") && dlsym(RTLD_DEFAULT, "memcpy");
        free(memory);
        _exit(good ? 43 : 9);
    }
    case 4:
        execl("/bin/sh", "sh", "-c", "exit 44", (char *)NULL);
        _exit(9);
    default:
        _exit(is_inert() ? 45 : 9);
    }
}

/* Threads that work at the same time. */
static struct {
    atomic_ulong made;
    atomic_int working; /* those that have all that they need */
    atomic_bool done;
} crowd;

static void *fork_children(void *unused)
{
    unsigned long i;
    while ((i = atomic_fetch_add(&crowd.made, 1)) < options.times) {
        pid_t child = fork();
        if (child == 0)
            child_life(i);
        reap(child, 40 + (int)(i % 6));
    }
    return unused;
}

static void *make_communicators(void *unused)
{
    device_use(place.local_rank);
    while (!atomic_load(&crowd.done))
        NCCL(ncclCommDestroy(init_alone()));
    return unused;
}

static void forks(void)
{
    enum { FORKERS = 3, MAKERS = 2 };
    pthread_t threads[FORKERS + MAKERS];
    struct member world;
    member_join(&world, &options, &place, 0, "world", 1);
    all_reduces(&world, options.iters);
    for (int i = 0; i < FORKERS + MAKERS; i++)
        threads[i] = thread_start(i < FORKERS ? fork_children : make_communicators, NULL);
    all_reduces(&world, options.iters);
    for (int i = 0; i < FORKERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&crowd.done, true);
    for (int i = FORKERS; i < FORKERS + MAKERS; i++)
        pthread_join(threads[i], NULL);
    member_end(&world);
}

static int become_sh(void *unused)
{
    execl("/bin/sh", "sh", "-c", "exit 44", (char *)NULL);
    _exit(9);
}

static void spawn_each_way(void)
{
    static _Alignas(16) char stack[65536];
    char *const words[] = {"sh", "-c", "exit 44", NULL};
    pid_t child = vfork();
    if (child == 0)
        become_sh(NULL);
    reap(child, 44);
    child = vfork();
    if (child == 0)
        _exit(46);
    reap(child, 46);
    FAIL_IF(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) != 0, "posix_spawn");
    reap(child, 44);
    reap(clone(become_sh, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), 44);
    child = _Fork();
    if (child == 0)
        become_sh(NULL);
    reap(child, 44);
    child = _Fork();
    if (child == 0)
        _exit(47);
    reap(child, 47);
    FAIL_IF(system("exit 48") != 48 << 8, "system");
}

static void work(void)
{
    device_use(place.local_rank);
    work_around(0, NULL);
}

static void work_in_child(pid_t child)
{
    if (child == 0) {
        device_use(place.local_rank);
        work_around(0, own_box_is_this_process);
        exit(0);
    }
    exit(end_of(child));
}

static void fork_first(void)
{
    work_in_child(fork());
}

static void call_nccl(void)
{
    NCCL(ncclGroupStart());
    NCCL(ncclGroupEnd());
    own_box_is_this_process();
}

static void fork_later(void)
{
    call_nccl();
    work_in_child(fork());
}

static void raw_fork_later(void)
{
    call_nccl();
    work_in_child(_Fork());
}

static void become_daemon(void)
{
    int status, worst = 0;
    /* Like a supervisor of the machine: whoever loses its parent is this process's. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t launcher = getpid(), first = fork();
    if (first == 0) {
        setsid();
        if (fork() != 0)
            _exit(0);
        /* Its parent has ended once it is somebody else's. */
        while (getppid() != launcher)
            sched_yield();
        FAIL_IF(chdir("/") != 0, "chdir");
        work();
        exit(0);
    }
    while (wait(&status) > 0 || errno == EINTR)
        if (WIFSIGNALED(status) || WEXITSTATUS(status) > worst)
            worst = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    exit(worst);
}

static void exec_again(void)
{
    if (getenv("LIFE_SECOND")) {
        work_around(1, NULL);
        return;
    }
    struct member first;
    member_join(&first, &options, &place, 0, "first", 1);
    all_reduces(&first, options.iters);
    setenv("LIFE_SECOND", "1", 1);
    execv("/proc/self/exe", arguments);
    FAIL("execv");
}

static void become_sleep(void)
{
    fprintf(stderr, "rank %d (pid %d): exec\n", place.rank, getpid());
    execlp("sleep", "sleep", "600", (char *)NULL);
    FAIL("execlp");
}

/* ---- Ends ---- */

static void work_and_stay(void)
{
    struct member world;
    member_join(&world, &options, &place, 0, "world", 1);
    all_reduces(&world, options.iters);
    report(place.rank, (const struct member *const[]){&world}, 1);
}

static void end_exit_now(void)
{
    work_and_stay();
    _exit(6);
}

static void end_quick(void)
{
    work_and_stay();
    quick_exit(6);
}

static void end_abort(void)
{
    work_and_stay();
    abort();
}

static void leave_now(void)
{
    fprintf(stderr, "rank %d (pid %d): _exit\n", place.rank, getpid());
    _exit(0);
}

static void leave_quickly(void)
{
    fprintf(stderr, "rank %d (pid %d): quick_exit\n", place.rank, getpid());
    quick_exit(0);
}

/* A communicator of this process alone, with what a collective needs. */
struct alone {
    ncclComm_t comm;
    cudaStream_t stream;
    void *memory;
};

static void make_alone(struct alone *ret_alone)
{
    *ret_alone = (struct alone){init_alone(), device_stream_create(), device_alloc(4096)};
}

static ncclResult_t reduce_alone(const struct alone *alone)
{
    return ncclAllReduce(alone->memory, alone->memory, 1024, ncclFloat, ncclSum, alone->comm,
                         alone->stream);
}

#define WORKERS 3

/* Collectives on a communicator of this thread alone, until the process ends: then CUDA fails. */
static void *work_for_ever(void *unused)
{
    struct alone alone;
    device_use(place.local_rank);
    make_alone(&alone);
    atomic_fetch_add(&crowd.working, 1);
    while (reduce_alone(&alone) == ncclSuccess &&
           cudaStreamSynchronize(alone.stream) == cudaSuccess)
        atomic_fetch_add(&crowd.made, 1);
    block_for_ever();
}

static void start_workers(void)
{
    for (int i = 0; i < WORKERS; i++)
        thread_start(work_for_ever, NULL);
    /* Whoever still makes a stream when the process ends fails with that, and ends it in its own
     * way. */
    while (atomic_load(&crowd.made) < options.iters || atomic_load(&crowd.working) < WORKERS)
        sched_yield();
}

static void *exit_7(void *unused)
{
    exit(7);
}

static void end_thread(void)
{
    start_workers();
    thread_start(exit_7, NULL);
    block_for_ever();
}

static void end_return(void)
{
    start_workers();
    exit(5); /* as a return from main does */
}

static struct alone for_handlers;

/* CUDA still works. */
static void at_exit_early(void)
{
    NCCL(reduce_alone(&for_handlers));
    device_stream_sync(for_handlers.stream);
    printf("the early handler has worked\n");
}

/* CUDA is gone: whatever NCCL makes of that. */
static void at_exit_late(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    reduce_alone(&for_handlers);
    ncclCommDestroy(for_handlers.comm);
    if (ncclGetUniqueId(&id) == ncclSuccess)
        ncclCommInitRank(&comm, 1, id, 0);
    printf("the late handler has come through\n");
}

static void end_handlers(void)
{
    FAIL_IF(atexit(at_exit_late), "atexit");
    device_use(place.local_rank);
    make_alone(&for_handlers);
    work_around(0, NULL);
    FAIL_IF(atexit(at_exit_early), "atexit");
    exit(4);
}

static void take_a_while(void *unused)
{
    sleep_ms(100);
}

static void end_pending(void)
{
    struct alone alone;
    work_around(0, NULL);
    make_alone(&alone);
    device_host_function(alone.stream, take_a_while, NULL);
    for (int i = 0; i < 100; i++)
        NCCL(reduce_alone(&alone));
    exit(4);
}

static atomic_bool goes_inside;

static void *wait_in_init(void *unused)
{
    ncclUniqueId id;
    ncclComm_t comm;
    device_use(place.local_rank);
    NCCL(ncclGetUniqueId(&id));
    atomic_store(&goes_inside, true);
    ncclCommInitRank(&comm, 2, id, 0);
    block_for_ever();
}

static void end_inside(void)
{
    thread_start(wait_in_init, NULL);
    while (!atomic_load(&goes_inside))
        sched_yield();
    work_around(0, NULL);
    exit(4);
}

static void *work_in_thread(void *unused)
{
    work();
    return unused;
}

static void end_main_thread(void)
{
    thread_start(work_in_thread, NULL);
    pthread_exit(NULL);
}

/* ---- Surroundings ---- */

static void close_all(void)
{
    if (syscall(SYS_close_range, 3, UINT_MAX, 0) != 0)
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
    /* The numbers come to mean something else. */
    for (int i = 0; i < 300; i++)
        FAIL_IF(open("/dev/null", O_RDWR | O_CLOEXEC) < 0, "/dev/null");
}

static void clear_environment(void)
{
    clearenv();
    environ = NULL;
}

/* As setproctitle does it: what the environment was is something else now. */
static void spoil_environment(void)
{
    char folder[PATH_MAX];
    const char *there = getenv("SPAWN_DIR");
    snprintf(folder, sizeof(folder), "%s", there ? there : "");
    for (char **entry = environ; *entry; entry++)
        memset(*entry, 'x', strlen(*entry));
    clearenv();
    if (folder[0])
        setenv("SPAWN_DIR", folder, 1);
}

static void go_to_jail(void)
{
    const char *tmp = getenv("TMPDIR");
    char jail[PATH_MAX];
    snprintf(jail, sizeof(jail), "%s/life.XXXXXX", tmp ? tmp : "/tmp");
    FAIL_IF(!mkdtemp(jail) || chroot(jail) != 0 || chdir("/") != 0, "chroot");
    umask(0777);
}

static void elsewhere(void)
{
    ncclUniqueId unused;
    /* The stand-ins and the exchange of ids make files of their own. */
    NCCL(ncclGetUniqueId(&unused));
    FAIL_IF(chdir("/") != 0, "chdir");
    work_around(0, go_to_jail);
}

struct limit {
    int what;
    rlim_t limit;
};

static void set_limits(const struct limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rlimit limit = {limits[i].limit, limits[i].limit};
        FAIL_IF(setrlimit((__rlimit_resource_t)limits[i].what, &limit) != 0, "setrlimit");
    }
}

/* Few files, where NCCL itself still works. */
static void limit_before(void)
{
    static const struct limit limits[] = {
        {RLIMIT_NOFILE, 24}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_STACK, 65536}};
    set_limits(limits, sizeof(limits) / sizeof(limits[0]));
}

static void limit_after(void)
{
    static const struct limit limits[] = {
        {RLIMIT_NOFILE, 3}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_STACK, 65536}, {RLIMIT_FSIZE, 65536}};
    set_limits(limits, sizeof(limits) / sizeof(limits[0]));
}

static void become_nobody(void)
{
    FAIL_IF(setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0, "setuid");
}

static void take_memory(void)
{
    static const struct limit none = {RLIMIT_AS, 1};
    set_limits(&none, 1);
}

/* Calls of these numbers come to `action`, all others pass. */
static void filter_calls(const long *calls, size_t count, unsigned action)
{
    struct sock_filter program[64] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short length = 1;
    for (size_t i = 0; i < count; i++) {
        program[length++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {length, program};
    FAIL_IF(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0,
            "seccomp");
}

static void refuse_calls(void)
{
    static const long calls[] = {SYS_pidfd_open, SYS_inotify_init1, SYS_inotify_add_watch,
                                 SYS_linkat,     SYS_renameat2,     SYS_statx,
#ifdef SYS_link
                                 SYS_link,
#endif
                                 SYS_close_range};
    filter_calls(calls, sizeof(calls) / sizeof(calls[0]), SECCOMP_RET_ERRNO | EPERM);
}

static void forbid_calls(void)
{
    static const long calls[] = {SYS_pidfd_open, SYS_inotify_init1, SYS_inotify_add_watch,
                                 SYS_eventfd2,   SYS_fallocate,     SYS_memfd_create,
                                 SYS_openat,     SYS_getdents64,    SYS_socket,
                                 SYS_readlinkat, SYS_mkdirat,       SYS_renameat2};
    filter_calls(calls, sizeof(calls) / sizeof(calls[0]), SECCOMP_RET_KILL_PROCESS);
}

static void on_small_stack(void *(*body)(void *), void *argument, size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    errno = pthread_create(&thread, &attributes, body, argument);
    FAIL_IF(errno || pthread_join(thread, NULL), "pthread_create");
    pthread_attr_destroy(&attributes);
}

static void *small_stack_body(void *argument)
{
    static struct member world;
    device_use(place.local_rank);
    /* The exchange of ids holds paths. */
    member_init(&world, &options, "world", place.rank, init_alone(), 1);
    all_reduces(&world, options.iters);
    comm_destroy(world.comm, &options);
    report(place.rank, (const struct member *const[]){&world}, 1);
    member_fini(&world);
    return NULL;
}

static void small_stack(void)
{
    on_small_stack(small_stack_body, NULL, (size_t)PTHREAD_STACK_MIN);
}

/* The bytes of this thread's stack below here that are used once `body` has run. Nothing of it is
 * inlined: the frame must be the innermost. */
static __attribute__((noinline)) size_t stack_used_by(void (*body)(void *), void *argument,
                                                      const unsigned char *lowest)
{
    enum { OWN_FRAME = 512, PAINT = 0xa5 };
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    unsigned char *low = (unsigned char *)(uintptr_t)lowest;
    unsigned char *top = (unsigned char *)(here - OWN_FRAME);
    for (volatile unsigned char *byte = low; byte < top; byte++)
        *byte = PAINT;
    body(argument);
    while (low < top && *low == PAINT)
        low++;
    return (size_t)(here - (uintptr_t)low);
}

static void reduce_once(void *alone)
{
    NCCL(reduce_alone(alone));
}

static void exchange_once(void *argument)
{
    struct alone *alone = argument;
    char *memory = alone->memory;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(memory, 16, ncclFloat, 0, alone->comm, alone->stream));
    NCCL(ncclRecv(memory + 256, 16, ncclFloat, 0, alone->comm, alone->stream));
    NCCL(ncclGroupEnd());
}

static void *stack_use_body(void *lowest)
{
    static const struct {
        const char *name;
        void (*body)(void *argument);
    } calls[] = {{"all-reduce", reduce_once}, {"send and receive", exchange_once}};
    struct alone alone;
    device_use(0);
    make_alone(&alone);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        /* What only the first call needs is seen by small-stack. */
        for (int j = 0; j < 10; j++)
            calls[i].body(&alone);
        device_stream_sync(alone.stream);
        printf("%s: %zu bytes\n", calls[i].name, stack_used_by(calls[i].body, &alone, lowest));
        device_stream_sync(alone.stream);
    }
    NCCL(ncclCommDestroy(alone.comm));
    return NULL;
}

static void stack_use(void)
{
    enum { BYTES = 1 << 18 };
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    FAIL_IF(stack == MAP_FAILED || pthread_attr_setstack(&attributes, stack, BYTES) ||
                pthread_create(&thread, &attributes, stack_use_body, stack) ||
                pthread_join(thread, NULL),
            "pthread_create");
}

static int32_t handled[64];

static void count_signal(int number)
{
    atomic_fetch_add((_Atomic int32_t *)&handled[number], 1);
}

static void signals(void)
{
    static char alternative[65536];
    stack_t before = {.ss_sp = alternative, .ss_size = sizeof(alternative)}, after;
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_ONSTACK}, there;
    sigset_t mask, mask_after;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGTERM);
    FAIL_IF(sigaltstack(&before, NULL) != 0 || pthread_sigmask(SIG_SETMASK, &mask, NULL) != 0,
            "sigaltstack");
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP && number != SIGALRM)
            sigaction(number, &action, NULL);
    work();
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    sigaltstack(NULL, &after);
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == SIGALRM)
            continue;
        sigaction(number, NULL, &there);
        if (handled[number] || there.sa_handler != count_signal ||
            sigismember(&mask, number) != sigismember(&mask_after, number)) {
            fprintf(stderr, "signal %d: %d came, or its handler or mask changed\n", number,
                    handled[number]);
            exit(3);
        }
    }
    FAIL_IF(after.ss_sp != before.ss_sp || after.ss_size != before.ss_size,
            "the alternative stack");
}

static void *make_until_cancelled(void *argument)
{
    device_use(place.local_rank);
    atomic_fetch_add(&crowd.made, 1);
    for (;;) {
        ncclUniqueId id;
        NCCL(ncclGetUniqueId(&id));
        pthread_testcancel();
    }
    return NULL;
}

static void cancel(void)
{
    for (unsigned long i = 0; i < options.times; i++) {
        pthread_t thread = thread_start(make_until_cancelled, NULL);
        /* The first call starts the guard, and the request is pending then. */
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    work();
}

static void counted(void)
{
    struct member world;
    member_join(&world, &options, &place, 0, "world", 1);
    all_reduces(&world, options.iters);
    const struct ng_box_header *box = own_box();
    own_box_is_this_process();
    if (box) {
        const struct ng_box_group *group =
            (const struct ng_box_group *)((const char *)box + box->groups_offset);
        uint64_t entered = NG_LOAD(group->entered);
        uint64_t records = NG_LOAD(((struct ng_box_header *)(uintptr_t)box)->record_next) - 1;
        if (NG_LOAD(((struct ng_box_header *)(uintptr_t)box)->group_used) != 1 ||
            entered != options.iters || records != options.iters) {
            fprintf(stderr,
                    "the black box counts %" PRIu64 " collectives and %" PRIu64 " records\n",
                    entered, records);
            exit(3);
        }
    }
    member_end(&world);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    ssize_t got;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    while ((got = read(in, bytes, sizeof(bytes))) > 0)
        FAIL_IF(write(out, bytes, (size_t)got) != got, to);
    FAIL_IF(got < 0 || close(in) != 0 || close(out) != 0, from);
}

static void secure(void)
{
    char folder[] = "/tmp/life.XXXXXX", path[64];
    if (getauxval(AT_SECURE)) {
        /* As the owner of the program, whom the user of this process is not. */
        WRONG_IF(geteuid() != 0 || getuid() == 0, "geteuid", "not root's rights");
        work_around(0, NULL);
        WRONG_IF(own_box(), "the black box", "there is one in a program with other rights");
        return;
    }
    FAIL_IF(!mkdtemp(folder) || chmod(folder, 0755) != 0, "mkdtemp");
    snprintf(path, sizeof(path), "%s/life", folder);
    copy_file("/proc/self/exe", path);
    FAIL_IF(chmod(path, 04755) != 0, "chmod");
    pid_t child = fork();
    if (child == 0) {
        become_nobody();
        execv(path, arguments);
        FAIL("execv");
    }
    int end = end_of(child);
    unlink(path);
    rmdir(folder);
    exit(end);
}

/* ---- Stopped ---- */

static void be_stopped(void)
{
    pid_t child = fork();
    if (child == 0) {
        pid_t parent = getppid();
        kill(parent, SIGSTOP);
        sleep_ms(4000);
        kill(parent, SIGCONT);
        _exit(0);
    }
    reap(child, 0);
}

/* ---- */

static const struct mode modes[] = {
    {"forks", forks},
    {"spawns", .middle = spawn_each_way},
    {"fork-first", fork_first, .before_cuda = true},
    {"fork-later", fork_later, .before_cuda = true},
    {"raw-fork-later", raw_fork_later, .before_cuda = true},
    {"daemon", become_daemon, .before_cuda = true},
    {"exec-again", exec_again},
    {"exec-other", .middle = become_sleep, .of_root = true},
    {"end-exit-now", end_exit_now},
    {"end-quick", end_quick},
    {"end-abort", end_abort},
    {"end-exit-now-early", .middle = leave_now, .of_root = true},
    {"end-quick-early", .middle = leave_quickly, .of_root = true},
    {"end-thread", end_thread},
    {"end-return", end_return},
    {"end-main-thread", end_main_thread, .before_cuda = true},
    {"end-handlers", end_handlers, .before_cuda = true},
    {"end-pending", end_pending},
    {"end-inside", end_inside},
    {"close-before", .before = close_all},
    {"close-after", .middle = close_all},
    {"clear-before", .before = spoil_environment},
    {"clear-after", .middle = clear_environment},
    {"elsewhere", elsewhere},
    {"limits-before", .before = limit_before},
    {"limits-after", .middle = limit_after},
    {"drop-user", .middle = become_nobody},
    {"drop-one", .middle = become_nobody, .of_root = true},
    {"no-memory", .middle = take_memory, .of_root = true},
    {"filter-before", .before = refuse_calls},
    {"filter-after", .middle = forbid_calls},
    {"small-stack", small_stack, .before_cuda = true},
    {"stack-use", stack_use, .before_cuda = true},
    {"signals", signals, .before_cuda = true},
    {"stopped", .middle = be_stopped},
    {"cancel", cancel, .before_cuda = true},
    {"secure", secure, .before_cuda = true},
    {"counted", counted},
    {NULL},
};

int main(int argc, char **argv)
{
    /* Reading the options takes them apart. */
    arguments = calloc((size_t)argc + 1, sizeof(*arguments));
    for (int i = 0; arguments && i < argc; i++)
        arguments[i] = strdup(argv[i]);
    for (int fd = 0; fd < 1024; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    const struct mode *mode = mode_begin(modes, TAKES_OP | TAKES_TIMES, argc, argv);
    if (mode->run)
        mode->run();
    else
        work_around(0, !mode->of_root || place.rank == options.root ? mode->middle : NULL);
    return 0;
}
