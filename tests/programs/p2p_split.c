/* Sends and receives on subgroups: in each half of the ranks the last one sends to every other one,
 * which answers; then all ranks make a collective. Each send and each receive counts as a call. */
#include "tests/programs/common.h"

enum { WORLD, HALF, MEMBERS };

static void exchange(struct member *members, int nmembers, unsigned long i)
{
    struct member *half = &members[HALF];
    int root = half->nranks - 1;

    if (half->rank != root) {
        member_call_p2p(half, OP_RECV, root, 2 * i);
        member_call_p2p(half, OP_SEND, root, 2 * i + 1);
    }
    for (int peer = 0; peer < root && half->rank == root; peer++) {
        member_call_p2p(half, OP_SEND, peer, 2 * i);
        member_call_p2p(half, OP_RECV, peer, 2 * i + 1);
    }
    member_call(&members[WORLD], OP_ALLREDUCE);
}

int main(int argc, char **argv)
{
    struct member members[MEMBERS];
    ncclComm_t half;

    rank_begin(TAKES_COMM, "world|half", argc, argv);
    ncclComm_t world = world_init(&place, &options, 0);
    NCCL(ncclCommSplit(world, place.rank / ((place.nranks + 1) / 2), place.rank, &half, NULL));
    size_t slots = slots_needed(&options, 2 * (size_t)place.nranks);
    member_init(&members[WORLD], &options, "world", place.rank, world, slots);
    member_init(&members[HALF], &options, "half", place.rank, half, slots);
    run_to_end(members, MEMBERS, exchange);
    return 0;
}
