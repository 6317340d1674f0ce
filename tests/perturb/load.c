/*
 * A program for the test of the delaying library: does what its argument says, and tells what it
 * was held up.
 *
 *     load alone | threads | fork | signals
 *
 * Prints `made N asked NS took NS`, after `fork` a second such line, of the child. Exit status 1: a
 * call did not do what it must, or errno was not kept. Linked to nothing: the library is looked up
 * by name.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/perturb/delays.h"

#define ROUNDS  1000
#define THREADS 4
#define KEPT    EXDEV

static int pipe_ends[2];

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "load: %s\n", what);
    _exit(1);
}

/* Before the constructor of any library. */
static void lock_early(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

    if (pthread_mutex_lock(&mutex) != 0 || pthread_mutex_trylock(&mutex) != EBUSY ||
        pthread_mutex_unlock(&mutex) != 0)
        _exit(1);
}

__attribute__((section(".preinit_array"), used)) static void (*early)(void) = lock_early;

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long told(const char *name)
{
    uint64_t (*function)(void);
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found)
        return -1;
    memcpy(&function, &found, sizeof(function));
    return (long long)function();
}

static void tell(long long began_ns)
{
    long long took_ns = now_ns() - began_ns;

    printf("made %lld asked %lld took %lld\n", told("delays_made"), told("delays_asked_ns"),
           took_ns);
    fflush(stdout);
}

/* Each thread has locks of its own, so that none waits for another. */
static void *lock_and_write(void *argument)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    int ends[2];
    char letter = 0;

    check(pipe(ends) == 0, "no pipe");
    for (int i = 0; i < ROUNDS; i++) {
        errno = KEPT;
        check(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_trylock(&mutex) == EBUSY,
              "not locked");
        check(pthread_cond_signal(&cond) == 0 && pthread_cond_broadcast(&cond) == 0,
              "not signalled");
        check(pthread_mutex_unlock(&mutex) == 0, "not unlocked");
        check(errno == KEPT, "errno is another after a lock");
        if (i % 10)
            continue;
        check(write(ends[1], "x", 1) == 1 && read(ends[0], &letter, 1) == 1 && letter == 'x',
              "not written");
        check(errno == KEPT, "errno is another after a write");
        check(write(-1, "x", 1) == -1 && errno == EBADF, "no error, or another");
    }
    close(ends[0]);
    close(ends[1]);
    return argument;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    void *result;

    for (size_t i = 0; i < THREADS; i++)
        check(pthread_create(&threads[i], NULL, lock_and_write, (void *)(i + 1)) == 0, "no thread");
    for (size_t i = 0; i < THREADS; i++)
        check(pthread_join(threads[i], &result) == 0 && result == (void *)(i + 1),
              "another result of a thread");
}

static void write_in_handler(int number)
{
    check(write(pipe_ends[1], "s", 1) == 1, "not written in a handler");
}

/* Handlers write while the thread that they interrupt is in the same functions, or held up. */
static void run_signals(void)
{
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = write_in_handler, .sa_flags = SA_RESTART};
    char letters[64];
    ssize_t count = 0, all = 0;

    check(pipe(pipe_ends) == 0 && sigaction(SIGALRM, &action, NULL) == 0, "no handler");
    check(setitimer(ITIMER_REAL, &every, NULL) == 0, "no timer");
    lock_and_write(NULL);
    while (all < 100 && (count = read(pipe_ends[0], letters, sizeof(letters))) > 0)
        all += count;
    setitimer(ITIMER_REAL, &never, NULL);
    check(count > 0, "not read");
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    long long began_ns = now_ns();
    int status = 1;
    pid_t pid;

    if (strcmp(what, "alone") == 0)
        lock_and_write(NULL);
    else if (strcmp(what, "threads") == 0)
        run_threads();
    else if (strcmp(what, "signals") == 0)
        run_signals();
    else if (strcmp(what, "fork") != 0)
        check(0, "write load alone | threads | fork | signals");
    else {
        pid = fork();
        if (pid == 0)
            run_threads();
        else
            check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
    }
    tell(began_ns);
    return 0;
}
