/*
 * The errors that a program gets for results that an abort of the guard has cut off: `poisoned
 * WANTED`, where WANTED is `errors`, or `garbage` if such errors are disabled. The last rank leaves
 * out the second all-reduce; the others wait for it in four ways: with the stream itself, with an
 * event behind it, with a stream that waits for that event, and with the whole device. An unrelated
 * stream works on. With a new communicator everything works again. Lines on stderr: "rank R: WHAT
 * NUMBER", with CUDA's numbers. Exit status 0 if the numbers are the wanted ones.
 */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#define COUNT 1024
static cudaStream_t stream, behind, apart;
static cudaEvent_t event;
static float *buffer;

static void expect(const char *what, cudaError_t got, bool error, bool failure_wanted)
{
    fprintf(stderr, "rank %d: %s %d\n", place.rank, what, (int)got);
    WRONG_IF(got != (error && failure_wanted ? cudaErrorLaunchFailure : cudaSuccess), what,
             cudaGetErrorString(got));
    cudaGetLastError();
}

static void all_reduce(ncclComm_t comm)
{
    NCCL(ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, comm, stream));
}

static void look(bool poisoned, bool wanted)
{
    expect("stream", cudaStreamSynchronize(stream), poisoned, wanted);
    expect("stream again", cudaStreamQuery(stream), poisoned, wanted);
    expect("event", cudaEventSynchronize(event), poisoned, wanted);
    expect("event again", cudaEventQuery(event), poisoned, wanted);
    expect("stream behind the event", cudaStreamSynchronize(behind), poisoned, wanted);
    expect("device", cudaDeviceSynchronize(), poisoned, wanted);
    expect("stream apart", cudaStreamSynchronize(apart), false, wanted);
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "errors") != 0 && strcmp(argv[1], "garbage") != 0)) {
        fprintf(stderr, "usage: poisoned errors|garbage\n");
        return 2;
    }
    bool wanted = strcmp(argv[1], "errors") == 0;
    place_begin();
    bool last = place.rank == place.nranks - 1;
    stream = device_stream_create();
    behind = device_stream_create();
    apart = device_stream_create();
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    buffer = device_alloc(COUNT * sizeof(*buffer));
    CUDA(cudaMemsetAsync(buffer, 0, COUNT * sizeof(*buffer), stream));
    CUDA(cudaMemsetAsync(buffer, 0, COUNT * sizeof(*buffer), apart));

    ncclComm_t comm = world_init(&place, &options, 0);
    all_reduce(comm);
    CUDA(cudaEventRecord(event, stream));
    CUDA(cudaStreamWaitEvent(behind, event, 0));
    look(false, wanted);
    if (!last) {
        fprintf(stderr, "rank %d: waiting\n", place.rank);
        all_reduce(comm);
        CUDA(cudaEventRecord(event, stream));
        CUDA(cudaStreamWaitEvent(behind, event, 0));
        look(true, wanted);
    }
    await_error(comm);
    NCCL(ncclCommDestroy(comm));
    comm = world_init(&place, &options, 1);
    look(false, wanted);
    all_reduce(comm);
    look(false, wanted);
    NCCL(ncclCommDestroy(comm));
    device_free(buffer);
    printf("rank %d: done\n", place.rank);
    return 0;
}
