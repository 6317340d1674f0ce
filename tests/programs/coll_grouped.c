/* Several collectives in one group: --batch on the world communicator and one on a second
 * communicator of the same ranks, each communicator with its own stream. */
#include "tests/programs/common.h"

static void grouped(struct member *members, int nmembers, unsigned long i)
{
    struct member *world = &members[0], *second = &members[1];
    unsigned long batch = world->options->batch;
    for (size_t j = 0; j < iteration_calls(world->options); j++) {
        for (unsigned long k = 0; k < batch; k++)
            member_prepare(world, iteration_op(world, j));
        member_prepare(second, iteration_op(second, j));
        NCCL(ncclGroupStart());
        for (unsigned long k = 0; k < batch; k++)
            member_issue(world);
        member_issue(second);
        NCCL(ncclGroupEnd());
        member_collect(world);
        member_collect(second);
    }
}

int main(int argc, char **argv)
{
    struct member members[2];
    rank_begin(TAKES_OP | TAKES_COMM | TAKES_BATCH, "world|second", argc, argv);
    size_t calls = iteration_calls(&options);
    member_join(&members[0], &options, &place, 0, "world",
                slots_needed(&options, calls * options.batch));
    member_join(&members[1], &options, &place, 1, "second", slots_needed(&options, calls));
    run_to_end(members, 2, grouped);
    return 0;
}
