/*
 * What a driver would make of the PTX of these kernels, compiled from the source that they share
 * with it.
 */
#include "tests/fake/cuda/kernels.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "core/check/nan_kernel.h"
#include "tests/fake/cuda/cuda_state.h"

static bool run_nan_scan(void *globals, unsigned int blocks, unsigned int threads,
                         const void *argument)
{
    const struct ng_nan_scan *scan = argument;
    struct ng_nan_state *state = (struct ng_nan_state *)globals + scan->slot;
    ng_nan_word count = (ng_nan_word)blocks * threads;

    for (ng_nan_word thread = 0; thread < count; thread++)
        ng_nan_scan_part(scan, state, thread, count);
    ng_nan_scan_answer(scan, state);
    return true;
}

/* Of tests/programs/device_kernels.c. */
static bool run_store_word(void *globals, unsigned int blocks, unsigned int threads,
                           const void *argument)
{
    uint32_t *address;

    (void)globals, (void)blocks, (void)threads;
    memcpy(&address, argument, sizeof(address));
    fake_lock();
    bool known = fake_memory_known(address, sizeof(*address));
    fake_unlock();
    if (known)
        *address = 1;
    return known;
}

/* It does not keep the kernels of other streams from running: a device here has room for any. */
static bool run_take_time(void *globals, unsigned int blocks, unsigned int threads,
                          const void *argument)
{
    uint64_t ns;

    (void)globals, (void)blocks, (void)threads;
    memcpy(&ns, argument, sizeof(ns));
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
    return true;
}

static const struct kernel kernels[] = {
    {"ng_nan_scan", sizeof(struct ng_nan_scan), NG_NAN_SLOTS * sizeof(struct ng_nan_state),
     run_nan_scan},
    {"store_word", sizeof(uint32_t *), 0, run_store_word},
    {"take_time", sizeof(uint64_t), 0, run_take_time},
};

const struct kernel *fake_kernel_find(const char *entry, size_t length)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strlen(kernels[i].entry) == length && !memcmp(kernels[i].entry, entry, length))
            return &kernels[i];
    return NULL;
}
