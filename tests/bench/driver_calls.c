/*
 * Counts and times a program's calls of the CUDA driver, thread by thread, by CUPTI: what the guard
 * adds to those of NCCL and the program.
 *
 *   CUDA_INJECTION64_PATH=BUILD/tests/bench/driver_calls.so DRIVER_CALLS=FILE PROGRAM …
 *
 * bare, and again under the guard. At its end the process appends to FILE, for each thread: how
 * often each function was called, and the mean time of a call in microseconds. Functions that a
 * thread has called less than DRIVER_CALLS_LEAST times (default 100) are left out. CUPTI itself
 * takes some 0.1 µs a call, so gaps between calls are longer than without it.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTIONS   1024u
#define THREADS_MAX 128u
#define DEPTH_MAX   8u /* functions of the driver that call others through the public table */

static struct thread {
    char name[16];
    uint64_t calls[FUNCTIONS], ns[FUNCTIONS];
} * threads[THREADS_MAX];
static atomic_uint thread_count;
static const char *_Atomic names[FUNCTIONS];

static _Thread_local struct thread *own;
static _Thread_local uint64_t entered_ns[DEPTH_MAX];
static _Thread_local unsigned depth;

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* NULL: too many threads, or no memory. */
static struct thread *this_thread(void)
{
    if (own)
        return own;
    unsigned at = atomic_fetch_add(&thread_count, 1);
    if (at >= THREADS_MAX || !(own = calloc(1, sizeof(*own))))
        return NULL;
    pthread_getname_np(pthread_self(), own->name, sizeof(own->name));
    threads[at] = own;
    return own;
}

static void CUPTIAPI on_call(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId function,
                             const void *data)
{
    const CUpti_CallbackData *call = data;
    struct thread *thread = this_thread();

    (void)unused;
    (void)domain;
    if (!thread || function >= FUNCTIONS)
        return;
    if (call->callbackSite == CUPTI_API_ENTER) {
        atomic_store_explicit(&names[function], call->functionName, memory_order_relaxed);
        if (depth++ < DEPTH_MAX)
            entered_ns[depth - 1] = clock_ns();
    } else if (depth && --depth < DEPTH_MAX) {
        thread->calls[function]++;
        thread->ns[function] += clock_ns() - entered_ns[depth];
    }
}

static void report(void)
{
    const char *path = getenv("DRIVER_CALLS"), *text = getenv("DRIVER_CALLS_LEAST");
    uint64_t least = text ? strtoull(text, NULL, 10) : 100;
    FILE *file = path ? fopen(path, "a") : NULL;

    for (unsigned i = 0; i < THREADS_MAX; i++) {
        if (!threads[i])
            continue;
        fprintf(file ? file : stderr, "thread %u %s\n", i, threads[i]->name);
        for (unsigned k = 0; k < FUNCTIONS; k++)
            if (threads[i]->calls[k] && threads[i]->calls[k] >= least)
                fprintf(file ? file : stderr, "  %9" PRIu64 " %9.2f  %s\n", threads[i]->calls[k],
                        (double)threads[i]->ns[k] / 1e3 / (double)threads[i]->calls[k], names[k]);
    }
    if (file)
        fclose(file);
}

/* CUDA calls it when it starts. */
int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static const char *const libraries[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    CUpti_SubscriberHandle subscriber;
    void *cupti = NULL;

    for (size_t i = 0; !cupti && i < sizeof(libraries) / sizeof(libraries[0]); i++)
        cupti = dlopen(libraries[i], RTLD_NOW);
    if (!cupti) {
        fprintf(stderr, "driver_calls: no libcupti.so in LD_LIBRARY_PATH: %s\n", dlerror());
        return 0;
    }
    __typeof__(&cuptiSubscribe) subscribe = (__typeof__(subscribe))dlsym(cupti, "cuptiSubscribe");
    __typeof__(&cuptiEnableDomain) enable = (__typeof__(enable))dlsym(cupti, "cuptiEnableDomain");
    if (!subscribe || !enable ||
        subscribe(&subscriber, (CUpti_CallbackFunc)on_call, NULL) != CUPTI_SUCCESS ||
        enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS) {
        fprintf(stderr, "driver_calls: CUPTI does not let the driver's calls be followed\n");
        return 0;
    }
    atexit(report);
    return 1;
}
