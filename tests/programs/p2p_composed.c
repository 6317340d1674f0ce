/* Collectives made of sends and receives, as before NCCL had them: an all-to-all in which every
 * rank takes part with itself, a gather to rank 0 and a scatter from it, each in one group. Each
 * send and each receive counts as a call. */
#include "tests/programs/common.h"

static void exchange(struct member *world, uint64_t tag)
{
    for (int peer = 0; peer < world->nranks; peer++) {
        member_prepare_p2p(world, OP_SEND, peer, tag);
        member_prepare_p2p(world, OP_RECV, peer, tag);
    }
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2 * world->nranks; i++)
        member_issue(world);
    NCCL(ncclGroupEnd());
    member_collect(world);
}

/* Between rank 0 and every other: `at_root` is what rank 0 does. */
static void fan(struct member *world, enum op at_root, uint64_t tag)
{
    enum op elsewhere = at_root == OP_SEND ? OP_RECV : OP_SEND;
    int calls = world->rank == 0 ? world->nranks - 1 : 1;
    for (int i = 0; i < calls; i++)
        member_prepare_p2p(world, world->rank == 0 ? at_root : elsewhere,
                           world->rank == 0 ? i + 1 : 0, tag);
    NCCL(ncclGroupStart());
    for (int i = 0; i < calls; i++)
        member_issue(world);
    NCCL(ncclGroupEnd());
    member_collect(world);
}

static void iterate(struct member *world, int nmembers, unsigned long i)
{
    exchange(world, 3 * i);
    fan(world, OP_RECV, 3 * i + 1);
    fan(world, OP_SEND, 3 * i + 2);
}

int main(int argc, char **argv)
{
    struct member world;
    rank_begin(0, "world", argc, argv);
    member_join(&world, &options, &place, 0, "world",
                slots_needed(&options, 4 * (size_t)place.nranks));
    run_to_end(&world, 1, iterate);
    return 0;
}
