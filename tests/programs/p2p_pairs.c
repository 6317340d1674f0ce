/* Ranks in pairs, ungrouped: the lower one sends and then receives, the higher one the other way
 * round. The partner changes from iteration to iteration; a rank without one sits it out. Each
 * send and each receive counts as a call. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct options options;
    struct place place;
    struct member world;
    options_parse(&options, 0, "world", argc, argv);
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t comm = world_init(&place, &options, 0);
    member_init(&world, &options, "world", place.rank, comm, slots_needed(&options, 2));
    int distances = 1;
    while (1 << distances < place.nranks)
        distances++;
    for (unsigned long i = 0; i < options.iters; i++) {
        int partner = place.rank ^ 1 << i % (unsigned)distances;
        if (partner < place.nranks) {
            bool first = place.rank < partner;
            member_call_p2p(&world, first ? OP_SEND : OP_RECV, partner, 2 * i);
            member_call_p2p(&world, first ? OP_RECV : OP_SEND, partner, 2 * i + 1);
        }
        if (drain_due(&options, i))
            member_drain(&world);
        pause_between(&options);
    }
    comm_destroy(comm, &options);
    report(place.rank, (const struct member *const[]){&world}, 1);
    member_fini(&world);
    return 0;
}
