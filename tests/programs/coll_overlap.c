/* Two communicators on two streams, --depth iterations queued on both without a
 * synchronisation: the deep queue of a training step. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct options options;
    struct place place;
    struct member world, second;
    options_parse(&options, TAKES_OP | TAKES_COMM | TAKES_DEPTH, "world|second", argc, argv);
    options.sync_every = options.depth;
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t first_comm = world_init(&place, &options, 0);
    ncclComm_t second_comm = world_init(&place, &options, 1);
    size_t calls = iteration_calls(&options);
    member_init(&world, &options, "world", place.rank, first_comm, slots_needed(&options, calls));
    member_init(&second, &options, "second", place.rank, second_comm,
                slots_needed(&options, calls));
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < calls; j++) {
            member_call(&world, iteration_op(&world, j));
            member_call(&second, iteration_op(&second, j));
        }
        if (drain_due(&options, i)) {
            member_drain(&world);
            member_drain(&second);
        }
        pause_between(&options);
    }
    comm_destroy(second_comm, &options);
    comm_destroy(first_comm, &options);
    report(place.rank, (const struct member *const[]){&world, &second}, 2);
    member_fini(&second);
    member_fini(&world);
    return 0;
}
