/* Ranks in pairs, ungrouped: the lower one sends and then receives, the higher one the other way
 * round. The partner changes from iteration to iteration; a rank without one sits it out. Each
 * send and each receive counts as a call. */
#include "tests/programs/common.h"

static void exchange(struct member *world, int nmembers, unsigned long i)
{
    int distances = 1;
    while (1 << distances < world->nranks)
        distances++;
    int partner = world->rank ^ 1 << i % (unsigned)distances;
    if (partner >= world->nranks)
        return;
    bool first = world->rank < partner;
    member_call_p2p(world, first ? OP_SEND : OP_RECV, partner, 2 * i);
    member_call_p2p(world, first ? OP_RECV : OP_SEND, partner, 2 * i + 1);
}

int main(int argc, char **argv)
{
    struct member world;
    rank_begin(0, "world", argc, argv);
    member_join(&world, &options, &place, 0, "world", slots_needed(&options, 2));
    run_to_end(&world, 1, exchange);
    return 0;
}
