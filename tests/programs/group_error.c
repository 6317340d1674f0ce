/*
 * Three NCCL groups of two all-reduces each. `group_error` prints what each call and each
 * ncclGroupEnd returned, and whether the group was launched ("rank 0: group 2: 0 2, end 2, not
 * launched": NCCL's numbers), and goes on after an error. The guard injects the fault
 * (`--fault op=AllReduce,nth=4:error=…`), the same on every rank.
 */
#include "tests/programs/common.h"

#include <stdio.h>

#define COUNT 1024

int main(void)
{
    static const float one[COUNT] = {1};
    float after[COUNT];

    place_begin();
    cudaStream_t stream = device_stream_create();
    float *first = device_alloc(sizeof(one)), *second = device_alloc(sizeof(one));
    ncclComm_t comm = world_init(&place, &options, 0);

    for (int i = 1; i <= 3; i++) {
        device_copy_in(first, one, sizeof(one), stream);
        NCCL(ncclGroupStart());
        ncclResult_t one_call =
            ncclAllReduce(first, first, COUNT, ncclFloat32, ncclSum, comm, stream);
        ncclResult_t other_call =
            ncclAllReduce(second, second, COUNT, ncclFloat32, ncclSum, comm, stream);
        ncclResult_t end = ncclGroupEnd();
        device_copy_out(after, first, sizeof(after), stream);
        device_stream_sync(stream);
        printf("rank %d: group %d: %d %d, end %d, %s\n", place.rank, i, (int)one_call,
               (int)other_call, (int)end,
               !memcmp(one, after, sizeof(one)) ? "not launched" : "launched");
    }
    NCCL(ncclCommDestroy(comm));
    return 0;
}
