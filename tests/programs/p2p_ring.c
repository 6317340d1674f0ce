/* Every rank sends to the next and receives from the one before, --batch times in one group.
 * Each send and each receive counts as a call. */
#include "tests/programs/common.h"

static void pass_on(struct member *world, int nmembers, unsigned long i)
{
    int next = (world->rank + 1) % world->nranks;
    int previous = (world->rank + world->nranks - 1) % world->nranks;
    unsigned long batch = world->options->batch;
    for (unsigned long j = 0; j < batch; j++) {
        uint64_t tag = i * batch + j;
        member_prepare_p2p(world, OP_SEND, next, tag);
        member_prepare_p2p(world, OP_RECV, previous, tag);
    }
    NCCL(ncclGroupStart());
    for (unsigned long j = 0; j < 2 * batch; j++)
        member_issue(world);
    NCCL(ncclGroupEnd());
    member_collect(world);
}

int main(int argc, char **argv)
{
    struct member world;
    rank_begin(TAKES_BATCH, "world", argc, argv);
    member_join(&world, &options, &place, 0, "world", slots_needed(&options, 2 * options.batch));
    run_to_end(&world, 1, pass_on);
    return 0;
}
