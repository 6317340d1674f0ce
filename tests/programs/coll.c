/* One process a rank, one communicator, one collective after the other. Built twice: coll_runtime
 * uses the CUDA runtime, coll_driver the driver API alone. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct options options;
    struct place place;
    struct member world;
    options_parse(&options, TAKES_OP, "world", argc, argv);
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t comm = world_init(&place, &options, 0);
    member_init(&world, &options, "world", place.rank, comm,
                slots_needed(&options, iteration_calls(&options)));
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < iteration_calls(&options); j++)
            member_call(&world, iteration_op(&world, j));
        if (drain_due(&options, i))
            member_drain(&world);
        pause_between(&options);
    }
    comm_destroy(comm, &options);
    report(place.rank, (const struct member *const[]){&world}, 1);
    member_fini(&world);
    return 0;
}
