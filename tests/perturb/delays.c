/*
 * A preloaded library that now and then holds a thread up where threads and processes hand things
 * to each other, so that orders of events come up that a machine left to itself shows once in a
 * week.
 *
 *     LD_PRELOAD=libdelays.so DELAYS=SEED PROGRAM …
 *
 * Without DELAYS it does nothing. With DELAYS_ENTRIES=N besides, threads are also held up at one in
 * N entries of functions, in code that was built with -finstrument-functions: between any two lines
 * of a test, for example, while the guard's own threads go on.
 *
 * Each thread draws from a sequence of its own, made of the seed,
 * the program's name, RANK and its place among its creator's threads: what a thread draws does not
 * depend on what the others do, and a run is as repeatable as its system calls are.
 *
 * Entered by any thread at any time: before constructors, in signal handlers, in forked children,
 * inside a malloc. So it takes no lock, allocates nothing, sleeps by the system call alone, and
 * keeps errno. It holds nobody up before its own constructor, where nothing is known of the
 * environment yet.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/dlsym.h"
#include "tests/perturb/delays.h"

#define SEEN __attribute__((visibility("default")))

/* Held up once in `one_in` times (0: never), by up to so many microseconds. */
struct chance {
    unsigned one_in, most_us;
};

#define NEVER                                                                                      \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define IN(n, us)                                                                                  \
    {                                                                                              \
        n, us                                                                                      \
    }

/*
 * Where, and how often: result, function, parameters, arguments, the chances before the call and
 * after it. What the guard's threads and processes do to each other goes through these; a lock that
 * is held up after it was taken is held for longer, one that is held up after it was given back has
 * been taken by others meanwhile.
 */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex), NEVER, IN(400, 5000))    \
    FUNCTION(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex), NEVER, IN(200, 20000)) \
    FUNCTION(int, pthread_cond_signal, (pthread_cond_t * cond), (cond), NEVER, IN(50, 20000))      \
    FUNCTION(int, pthread_cond_broadcast, (pthread_cond_t * cond), (cond), NEVER, IN(50, 20000))   \
    FUNCTION(int, pthread_cond_timedwait,                                                          \
             (pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,                      \
              const struct timespec *restrict until),                                              \
             (cond, mutex, until), NEVER, IN(100, 20000))                                          \
    FUNCTION(int, pthread_join, (pthread_t thread, void **ret_value), (thread, ret_value), NEVER,  \
             IN(5, 20000))                                                                         \
    FUNCTION(ssize_t, read, (int fd, void *buffer, size_t size), (fd, buffer, size), NEVER,        \
             IN(60, 20000))                                                                        \
    FUNCTION(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size),            \
             IN(60, 20000), IN(60, 20000))                                                         \
    FUNCTION(ssize_t, send, (int fd, const void *data, size_t size, int flags),                    \
             (fd, data, size, flags), NEVER, IN(60, 20000))                                        \
    FUNCTION(ssize_t, recv, (int fd, void *buffer, size_t size, int flags),                        \
             (fd, buffer, size, flags), NEVER, IN(60, 20000))                                      \
    FUNCTION(int, poll, (struct pollfd * fds, nfds_t count, int wait_ms), (fds, count, wait_ms),   \
             NEVER, IN(100, 20000))                                                                \
    FUNCTION(int, rename, (const char *from, const char *to), (from, to), IN(10, 20000),           \
             IN(10, 20000))                                                                        \
    FUNCTION(int, link, (const char *from, const char *to), (from, to), IN(10, 20000),             \
             IN(10, 20000))                                                                        \
    FUNCTION(int, unlink, (const char *path), (path), IN(10, 20000), IN(10, 20000))                \
    FUNCTION(int, kill, (pid_t pid, int number), (pid, number), IN(10, 20000), NEVER)              \
    FUNCTION(pid_t, waitpid, (pid_t pid, int *ret_status, int options),                            \
             (pid, ret_status, options), NEVER, IN(10, 20000))

/* The same of what has a wrapper of its own below: in the new thread or process, and in the one
 * that made it. */
static const struct chance thread_begins = IN(3, 60000), thread_made = IN(4, 40000),
                           process_made = IN(2, 50000);

/* One in so many entries of functions: DELAYS_ENTRIES. Long enough for a watchdog to make a round.
 */
static struct chance at_entry = {0, 250000};

/* Programs that are no part of what is tested, whoever starts them. */
static const char *const left_alone[] = {"redis-server", "redis-sentinel", "redis-cli"};

/* ---- What comes next: the C library, or a sanitizer's runtime ---- */

typedef int create_function(pthread_t *ret_thread, const pthread_attr_t *attributes,
                            void *(*run)(void *), void *argument);
typedef pid_t fork_function(void);

#define FIELD(result, name, parameters, ...) result(*name) parameters;

/* Written by whoever comes first, perhaps by several with the same values; `found` last. */
static struct {
    FUNCTIONS(FIELD)
    create_function *pthread_create;
    fork_function *fork;
    bool found;
} next;

static void find(void *field, const char *name)
{
    /* The guard has a dlsym of its own; this is the C library's. */
    void *function = ng_real_dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    memcpy(field, &function, sizeof(function));
}

static void find_next(void)
{
    int kept = errno;

    if (__atomic_load_n(&next.found, __ATOMIC_ACQUIRE))
        return;
#define FIND(result, name, ...) find(&next.name, #name);
    FUNCTIONS(FIND)
    find(&next.pthread_create, "pthread_create");
    find(&next.fork, "fork");
    __atomic_store_n(&next.found, true, __ATOMIC_RELEASE);
    errno = kept;
}

/* ---- Numbers ---- */

static bool on;            /* written by the constructor, before there is another thread */
static uint64_t process;   /* what all sequences of this process are made of */
static uint64_t strangers; /* threads that were not made here */
static uint64_t made, asked_ns;

/* A thread's own. In a signal handler, too: what the interrupted draw loses is a number. */
static __thread __attribute__((tls_model("initial-exec"))) struct {
    uint64_t state;    /* 0: it has not drawn yet */
    uint64_t children; /* threads and processes that it made */
} self;

/* The finalizer of splitmix64: every bit of the result depends on every bit. */
static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

static uint64_t mix_text(uint64_t value, const char *text)
{
    for (; text && *text; text++)
        value = mix(value ^ (unsigned char)*text);
    return mix(value);
}

static uint64_t draw(void)
{
    if (!self.state)
        self.state = mix(process ^ mix(__atomic_add_fetch(&strangers, 1, __ATOMIC_RELAXED)));
    self.state += 0x9e3779b97f4a7c15;
    return mix(self.state);
}

/* The state with which the next thread or process that this thread creates begins. */
static uint64_t draw_child(void)
{
    return mix(draw() ^ ++self.children) | 1;
}

static void hold(const struct chance *chance)
{
    struct timespec time;
    uint64_t number, us;
    int kept;

    if (!on || chance->one_in == 0)
        return;
    number = draw();
    if (number % chance->one_in != 0)
        return;
    us = (number >> 32) % chance->most_us;
    time = (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    kept = errno;
    syscall(SYS_nanosleep, &time, NULL); /* a signal ends it early, as it may */
    errno = kept;
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&asked_ns, us * 1000, __ATOMIC_RELAXED);
}

static bool is_left_alone(const char *program)
{
    for (size_t i = 0; i < sizeof(left_alone) / sizeof(left_alone[0]); i++)
        if (strcmp(program, left_alone[i]) == 0)
            return true;
    return false;
}

static unsigned long long number_of(const char *name, const char *text)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    if (end == text || *end) {
        dprintf(STDERR_FILENO, "delays: %s=%s is no number\n", name, text);
        abort();
    }
    return number;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("DELAYS"), *entries = getenv("DELAYS_ENTRIES");
    unsigned long long seed;

    find_next();
    if (!text || is_left_alone(program_invocation_short_name))
        return;
    seed = number_of("DELAYS", text);
    if (entries)
        at_entry.one_in = (unsigned)number_of("DELAYS_ENTRIES", entries);
    process = mix_text(mix_text(mix(seed), program_invocation_short_name), getenv("RANK"));
    self.state = process | 1;
    on = true;
}

SEEN uint64_t delays_made(void)
{
    return __atomic_load_n(&made, __ATOMIC_RELAXED);
}

SEEN uint64_t delays_asked_ns(void)
{
    return __atomic_load_n(&asked_ns, __ATOMIC_RELAXED);
}

/* ---- The functions ---- */

#define WRAPPER(result, name, parameters, arguments, before, after)                                \
    SEEN result name parameters                                                                    \
    {                                                                                              \
        static const struct chance first = before, last = after;                                   \
        result value;                                                                              \
                                                                                                   \
        find_next();                                                                               \
        hold(&first);                                                                              \
        value = next.name arguments;                                                               \
        hold(&last);                                                                               \
        return value;                                                                              \
    }

FUNCTIONS(WRAPPER)

/* Called where functions begin in code built with -finstrument-functions; that of the C library
 * does nothing. */
SEEN void __cyg_profile_func_enter(void *function, void *caller)
{
    hold(&at_entry);
}

/*
 * What a new thread begins with. Not of malloc: a thread that gives memory back has a heap of 64
 * MiB of address space from then on, which a program with little of it cannot spare.
 */
struct start {
    bool taken;
    void *(*run)(void *);
    void *argument;
    uint64_t state;
};

static struct start starts[256];

static struct start *take_start(void)
{
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        if (!__atomic_exchange_n(&starts[i].taken, true, __ATOMIC_ACQUIRE))
            return &starts[i];
    return NULL;
}

static void give_back(struct start *start)
{
    __atomic_store_n(&start->taken, false, __ATOMIC_RELEASE);
}

static void *start_thread(void *argument)
{
    struct start start = *(struct start *)argument;

    give_back(argument);
    self.state = start.state;
    hold(&thread_begins);
    return start.run(start.argument);
}

SEEN int pthread_create(pthread_t *restrict ret_thread, const pthread_attr_t *restrict attributes,
                        void *(*run)(void *), void *restrict argument)
{
    struct start *start;
    int error;

    find_next();
    start = on ? take_start() : NULL;
    if (!start) /* enough threads have not begun yet, so this one need not wait */
        return next.pthread_create(ret_thread, attributes, run, argument);
    start->run = run;
    start->argument = argument;
    start->state = draw_child();
    error = next.pthread_create(ret_thread, attributes, start_thread, start);
    if (error)
        give_back(start);
    hold(&thread_made);
    return error;
}

SEEN pid_t fork(void)
{
    uint64_t child;
    pid_t pid;

    find_next();
    if (!on)
        return next.fork();
    child = draw_child();
    pid = next.fork();
    if (pid == 0) {
        self.state = process = child;
        self.children = strangers = 0;
    }
    hold(&process_made);
    return pid;
}
