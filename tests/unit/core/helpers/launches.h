/* A log of launches as core/device/launch_log.h has it, and launches with NCCL's arguments. C, for
 * core's headers with atomics. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_LAUNCHES_H
#define NCCLGUARD_TESTS_UNIT_CORE_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void launches_begin(void); /* an empty log */

/* A launch of collective `seq` (of sends and receives behind it: `p2p`) on these channels, each of
 * which has so many batches of so many works; false: the log refuses it. */
struct launches_kernel {
    uint64_t channels;
    unsigned batches, works;
    uint64_t seq;
    bool p2p;
    /* Wrong ones: so many blocks more than channels, so many bytes less, no structure, storage. */
    unsigned more_blocks;
    size_t fewer_bytes;
    bool nowhere;
    uint8_t storage;
    unsigned last_works; /* of the last channel; 0: as the others */
    unsigned uneven;     /* so many works more on each channel than on the one before it */
};
bool launches_add(const struct launches_kernel *kernel);

/* "counted 3, 2 left", or "unknown". */
const char *launches_progress(const uint64_t *counters);

/* core/device/launch_counters.h. */
bool launches_agree(uint64_t counted, uint64_t left, uint64_t completed, uint64_t pending_seq);

enum { LAUNCHES_KERNEL_NOT_BEGUN = 1, LAUNCHES_KERNEL_RUNS };
int launches_kernel_state(const void *copy);

/* core/recorder/box.h: written, and read when `pending_then` is the oldest record, as
 * "finished 6, 3 left, runs" or "unknown". */
const char *launches_in_box(uint64_t pending, uint64_t finished, uint64_t left,
                            uint64_t pending_then, uint64_t entered, int kernel);
#define LAUNCHES_COMM_BYTES (96u + 64 * 368u)
bool launches_parse(const void *copy, uint64_t device_comm, int nccl_version, int rank, int nranks,
                    uint64_t *ret_counters);

#endif
