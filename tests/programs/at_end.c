/* A library that calls NCCL when Python has taken itself down: at the exit of the process, and from
 * threads that never come back to Python. Loaded by ended_python.py with ctypes. */
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define COUNT 256
#define INT32 2
#define SUM   0

typedef int all_reduce(const void *, void *, size_t, int, int, void *, void *);

static all_reduce *call;
static void *buffer, *comm, *stream;

static void at_end(void)
{
    if (call(buffer, buffer, COUNT, INT32, SUM, comm, stream) != 0)
        _exit(1);
}

__attribute__((visibility("default"))) int at_end_register(all_reduce *function, void *memory,
                                                           void *communicator, void *cuda_stream)
{
    call = function;
    buffer = memory;
    comm = communicator;
    stream = cuda_stream;
    return atexit(at_end);
}

static sem_t turns;

static void await_threads(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    while (sem_trywait(&turns) == 0)
        ;
    for (int i = 0; i < 8 && sem_timedwait(&turns, &until) == 0; i++)
        ;
}

/* The process's exit waits until other threads have made some more calls, if they can. */
__attribute__((visibility("default"))) int at_end_await(void)
{
    return sem_init(&turns, 0, 0) == 0 ? atexit(await_threads) : -1;
}

/* Synchronises now and then, as no queue is endless. */
__attribute__((visibility("default"))) int at_end_loop(all_reduce *function,
                                                       int (*synchronize)(void *), void *memory,
                                                       void *communicator, void *cuda_stream)
{
    for (unsigned i = 0;; i++) {
        if (function(memory, memory, COUNT, INT32, SUM, communicator, cuda_stream) != 0 ||
            (i % 64 == 0 && synchronize(cuda_stream) != 0))
            return 1;
        sem_post(&turns);
    }
}
