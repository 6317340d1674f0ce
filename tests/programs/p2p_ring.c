/* Every rank sends to the next and receives from the one before, --batch times in one group.
 * Each send and each receive counts as a call. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct options options;
    struct place place;
    struct member world;
    options_parse(&options, TAKES_BATCH, "world", argc, argv);
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t comm = world_init(&place, &options, 0);
    member_init(&world, &options, "world", place.rank, comm,
                slots_needed(&options, 2 * options.batch));
    int next = (place.rank + 1) % place.nranks;
    int previous = (place.rank + place.nranks - 1) % place.nranks;
    for (unsigned long i = 0; i < options.iters; i++) {
        for (unsigned long j = 0; j < options.batch; j++) {
            uint64_t tag = i * options.batch + j;
            member_prepare_p2p(&world, OP_SEND, next, tag);
            member_prepare_p2p(&world, OP_RECV, previous, tag);
        }
        NCCL(ncclGroupStart());
        for (unsigned long j = 0; j < 2 * options.batch; j++)
            member_issue(&world);
        NCCL(ncclGroupEnd());
        member_collect(&world);
        if (drain_due(&options, i))
            member_drain(&world);
        pause_between(&options);
    }
    comm_destroy(comm, &options);
    report(place.rank, (const struct member *const[]){&world}, 1);
    member_fini(&world);
    return 0;
}
