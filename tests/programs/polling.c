/* A program with a nonblocking communicator, as NCCL's documentation has it: whatever is in
 * progress is asked for until it is not. All-reduces of ones; exit status 4 where a sum is wrong, 5
 * where no call was in progress for --pause-ms at the least (what a fault of the guard can bring
 * about). */
#include "tests/programs/common.h"

#include <stdio.h>

#define COUNT 256

/* Until it is over; the longest of all waits so far. */
static long long await(ncclComm_t comm, ncclResult_t result)
{
    static long long longest_ms;
    long long begun = now_ms();
    while (result == ncclInProgress) {
        ncclResult_t state;
        sleep_ms(1);
        NCCL(ncclCommGetAsyncError(comm, &state));
        result = state;
    }
    NCCL(result);
    long long took = now_ms() - begun;
    return longest_ms = took > longest_ms ? took : longest_ms;
}

int main(int argc, char **argv)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    float host[COUNT];
    long long longest_ms = 0;
    rank_begin(0, "world", argc, argv);
    config.blocking = 0;
    ncclUniqueId id = exchange_id(&place, &options, 0);
    ncclResult_t result = ncclCommInitRankConfig(&comm, place.nranks, id, place.rank, &config);
    longest_ms = await(comm, result);
    cudaStream_t stream = device_stream_create();
    void *device = device_alloc(sizeof(host));
    for (unsigned long i = 0; i < options.iters; i++) {
        for (int k = 0; k < COUNT; k++)
            host[k] = 1;
        device_copy_in(device, host, sizeof(host), stream);
        result = ncclAllReduce(device, device, COUNT, ncclFloat32, ncclSum, comm, stream);
        longest_ms = await(comm, result);
        device_copy_out(host, device, sizeof(host), stream);
        device_stream_sync(stream);
        for (int k = 0; k < COUNT; k++)
            if (host[k] != (float)place.nranks) {
                fprintf(stderr, "rank %d: call %lu: the sum is %f\n", place.rank, i + 1,
                        (double)host[k]);
                return 4;
            }
    }
    longest_ms = await(comm, ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
    device_free(device);
    device_stream_destroy(stream);
    if (longest_ms < (long long)options.pause_ms) {
        fprintf(stderr, "rank %d: the longest wait was %lld ms\n", place.rank, longest_ms);
        return 5;
    }
    printf("rank %d ok\n", place.rank);
    return 0;
}
