/* Launches for the tests of core/device/launch_log.h and launch_counters.h. */
#include "tests/unit/core/helpers/launches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/device/launch_counters.h"
#include "core/device/launch_log.h"
#include "core/recorder/box.h"

_Static_assert(LAUNCHES_COMM_BYTES == NG_LAUNCH_COMM_BYTES, "the same");

static struct ng_launch_log *log_;

void launches_begin(void)
{
    free(log_);
    log_ = calloc(1, sizeof(*log_));
    ng_launch_log_clear(log_);
}

/* As src/include/device.h of NCCL 2.28.9 has them. */
struct arguments {
    uint64_t comm, channels;
    uint8_t storage;
    uint32_t mask;
    uint64_t works;
};

struct batch {
    uint32_t jump : 14, extends : 1, type : 2, func : 15;
    uint32_t base;
    uint64_t bits;
};

bool launches_add(const struct launches_kernel *kernel)
{
    unsigned channels = (unsigned)__builtin_popcountll(kernel->channels);
    size_t bytes = sizeof(struct arguments) + sizeof(struct batch) * channels * kernel->batches;
    struct arguments *arguments = calloc(1, bytes);
    struct batch *batches = (struct batch *)(arguments + 1);

    *arguments = (struct arguments){kernel->nowhere ? 0 : 0x7f0000000000, kernel->channels,
                                    kernel->storage, 0, 0};
    for (unsigned i = 0; i < channels * kernel->batches; i++)
        batches[i] = (struct batch){
            .jump = i + channels < channels * kernel->batches ? channels : 0,
            .bits = (UINT64_C(1) << (kernel->works + i % channels * kernel->uneven)) - 1};
    if (kernel->last_works)
        batches[channels - 1].bits = (UINT64_C(1) << kernel->last_works) - 1;
    struct ng_kernel_launch launch = {.blocks = channels + kernel->more_blocks,
                                      .arguments = (const void *)arguments,
                                      .bytes = bytes - kernel->fewer_bytes};
    bool added = ng_launch_log_add(log_, &launch, kernel->seq, !kernel->p2p);
    free(arguments);
    return added;
}

const char *launches_progress(const uint64_t *counters)
{
    static char text[100];
    struct ng_launch_progress progress;

    if (!ng_launch_log_compare(log_, counters, &progress))
        return "unknown";
    snprintf(text, sizeof(text), "counted %" PRIu64 ", %" PRIu64 " left", progress.counted,
             progress.left);
    return text;
}

bool launches_parse(const void *copy, uint64_t device_comm, int nccl_version, int rank, int nranks,
                    uint64_t *ret_counters)
{
    return ng_launch_counters_parse(copy, device_comm, nccl_version, rank, nranks, ret_counters);
}

bool launches_agree(uint64_t counted, uint64_t left, uint64_t completed, uint64_t pending_seq)
{
    struct ng_launch_progress progress = {.counted = counted, .left = left};

    return ng_launch_counters_agree(&progress, completed, pending_seq);
}

int launches_kernel_state(const void *copy)
{
    return (int)ng_launch_counters_kernel(copy);
}

const char *launches_in_box(uint64_t pending, uint64_t finished, uint64_t left,
                            uint64_t pending_then, uint64_t entered, int kernel)
{
    static char text[100];
    uint64_t read_finished;
    static const char *const names[] = {"", ", not begun", ", runs"};
    uint32_t read_left;
    uint8_t read_kernel;

    if (!ng_box_read_counted(ng_box_counted(pending, finished, left, (enum ng_kernel)kernel),
                             pending_then, entered, &read_finished, &read_left, &read_kernel))
        return "unknown";
    snprintf(text, sizeof(text), "finished %" PRIu64 ", %" PRIu32 " left%s", read_finished,
             read_left, names[read_kernel]);
    return text;
}
