/* Creates and destroys a communicator --times times and makes no other call. Each creation counts
 * as a call. */
#include "tests/programs/common.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    rank_begin(TAKES_TIMES, "world", argc, argv);
    for (unsigned long i = 0; i < options.times; i++) {
        struct call unused = {OP_ALLREDUCE, options.dtype, options.redop, 0, 0};
        if (!face_faults(&options, place.rank, "world", i + 1, &unused, NULL))
            continue;
        ncclComm_t comm = world_init(&place, &options, (unsigned)i);
        int count, rank;
        NCCL(ncclCommCount(comm, &count));
        NCCL(ncclCommUserRank(comm, &rank));
        if (count != place.nranks || rank != place.rank) {
            fprintf(stderr, "rank %d: the communicator says rank %d of %d\n", place.rank, rank,
                    count);
            return 4;
        }
        comm_destroy(comm, &options);
        pause_between(&options);
    }
    report(place.rank, NULL, 0);
    return 0;
}
