/*
 * What a driver would make of the PTX of these kernels, compiled from the source that they share
 * with it.
 */
#include "tests/fake/cuda/kernels.h"

#include <string.h>

#include "core/check/nan_kernel.h"

static void run_nan_scan(void *globals, unsigned int blocks, unsigned int threads,
                         const void *argument)
{
    const struct ng_nan_scan *scan = argument;
    struct ng_nan_state *state = (struct ng_nan_state *)globals + scan->slot;
    ng_nan_word count = (ng_nan_word)blocks * threads;

    for (ng_nan_word thread = 0; thread < count; thread++)
        ng_nan_scan_part(scan, state, thread, count);
    ng_nan_scan_answer(scan, state);
}

static const struct kernel kernels[] = {
    {"ng_nan_scan", sizeof(struct ng_nan_scan), NG_NAN_SLOTS * sizeof(struct ng_nan_state),
     run_nan_scan},
};

const struct kernel *fake_kernel_find(const char *entry, size_t length)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strlen(kernels[i].entry) == length && !memcmp(kernels[i].entry, entry, length))
            return &kernels[i];
    return NULL;
}
