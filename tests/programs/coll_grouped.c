/* Several collectives in one group: --batch on the world communicator and one on a second
 * communicator of the same ranks, each communicator with its own stream. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct options options;
    struct place place;
    struct member world, second;
    options_parse(&options, TAKES_OP | TAKES_COMM | TAKES_BATCH, "world|second", argc, argv);
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t first_comm = world_init(&place, &options, 0);
    ncclComm_t second_comm = world_init(&place, &options, 1);
    size_t calls = iteration_calls(&options);
    member_init(&world, &options, "world", place.rank, first_comm,
                slots_needed(&options, calls * options.batch));
    member_init(&second, &options, "second", place.rank, second_comm,
                slots_needed(&options, calls));
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < calls; j++) {
            for (unsigned long k = 0; k < options.batch; k++)
                member_prepare(&world, iteration_op(&world, j));
            member_prepare(&second, iteration_op(&second, j));
            NCCL(ncclGroupStart());
            for (unsigned long k = 0; k < options.batch; k++)
                member_issue(&world);
            member_issue(&second);
            NCCL(ncclGroupEnd());
            member_collect(&world);
            member_collect(&second);
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
