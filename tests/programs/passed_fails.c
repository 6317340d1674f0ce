/*
 * A program that asks NCCL for something that it refuses, in a call that the guard only forwards,
 * and goes on.
 *
 * Exit status 0 if it was refused with ncclInvalidArgument each time, 5 if not.
 */
#include "tests/programs/common.h"

int main(void)
{
    int wrong = 0;

    place_begin();
    ncclComm_t comm = world_init(&place, &options, 0);
    for (int i = 0; i < 3; i++)
        wrong += ncclCommCount(comm, NULL) != ncclInvalidArgument;
    NCCL(ncclCommDestroy(comm));
    return wrong ? 5 : 0;
}
