/*
 * A program whose calls have one invalid argument each: `invalid` makes them on every rank,
 * says on stdout what each returned ("null 4": NCCL's number), and works on. They are never to
 * reach the device, so it runs only under a guard that refuses them (NCCLGUARD_CHECK=…+args and the
 * rule
 * `* : check=refuse`).
 *
 * Exit status 0 if each was refused with ncclInvalidArgument and a valid call works after all, 5 if
 * not.
 */
#include "tests/programs/common.h"

#include <stdio.h>

#define COUNT 1024

static int wrong;

static void refused(const char *what, ncclResult_t result)
{
    printf("rank %d: %s %d\n", place.rank, what, (int)result);
    wrong += result != ncclInvalidArgument;
}

int main(void)
{
    static char pageable[COUNT * sizeof(float)];

    place_begin();
    cudaStream_t stream = device_stream_create();
    float *buffer = device_alloc(COUNT * sizeof(float));
    float *other = device_alloc(COUNT * sizeof(float));
    ncclComm_t comm = world_init(&place, &options, 0);

#define REDUCE(send, receive, count, type, op)                                                     \
    ncclAllReduce((send), (receive), (count), (type), (op), comm, stream)
    refused("null", REDUCE(NULL, buffer, COUNT, ncclFloat32, ncclSum));
    refused("pageable", REDUCE(pageable, buffer, COUNT, ncclFloat32, ncclSum));
    refused("beyond", REDUCE(buffer, other, (size_t)1 << 34, ncclFloat32, ncclSum));
    refused("aligned", REDUCE((char *)buffer + 2, other, 16, ncclFloat32, ncclSum));
    refused("overlap", REDUCE(buffer, buffer + 8, 16, ncclFloat32, ncclSum));
    refused("datatype", REDUCE(buffer, buffer, COUNT, (ncclDataType_t)77, ncclSum));
    refused("operator", REDUCE(buffer, buffer, COUNT, ncclFloat32, (ncclRedOp_t)-2));
    refused("count", REDUCE(buffer, buffer, SIZE_MAX / 2, ncclFloat32, ncclSum));
    refused("root", ncclBroadcast(buffer, buffer, COUNT, ncclFloat32, place.nranks, comm, stream));
    refused("peer", ncclSend(buffer, COUNT, ncclFloat32, -1, comm, stream));
    /* Programs look at the end of a group alone: it says so, once, and nothing of the group is
     * launched. */
    static const float one[COUNT] = {1};
    float after[COUNT];
    device_copy_in(buffer, one, sizeof(one), stream);
    NCCL(ncclGroupStart());
    NCCL(REDUCE(buffer, buffer, COUNT, ncclFloat32, ncclSum));
    NCCL(ncclGroupStart());
    refused("grouped", REDUCE(NULL, buffer, COUNT, ncclFloat32, ncclSum));
    NCCL(ncclGroupEnd());
    NCCL(REDUCE(buffer, buffer, COUNT, ncclFloat32, ncclSum));
    refused("group end", ncclGroupEnd());
    device_copy_out(after, buffer, sizeof(after), stream);
    device_stream_sync(stream);
    wrong += memcmp(one, after, sizeof(one)) != 0;
    NCCL(ncclGroupStart());
    NCCL(REDUCE(buffer, buffer, COUNT, ncclFloat32, ncclSum));
    NCCL(ncclGroupEnd());
    device_copy_out(after, buffer, sizeof(after), stream);
    device_stream_sync(stream);
    wrong += after[0] != (float)place.nranks;
    /* What is allowed, however odd it looks. */
    NCCL(REDUCE(buffer, buffer, COUNT, ncclFloat32, ncclSum));
    NCCL(REDUCE(buffer, buffer + COUNT / 2, COUNT / 2, ncclFloat32, ncclSum));
    NCCL(REDUCE(NULL, NULL, 0, ncclFloat32, ncclSum));
    NCCL(ncclReduce(buffer, place.rank ? NULL : other, COUNT, ncclFloat32, ncclSum, 0, comm,
                    stream));
    NCCL(ncclBroadcast(place.rank ? NULL : buffer, other, COUNT, ncclFloat32, 0, comm, stream));
    device_stream_sync(stream);
    NCCL(ncclCommDestroy(comm));
    printf("rank %d: works on\n", place.rank);
    return wrong ? 5 : 0;
}
