/* Two communicators on two streams, --depth iterations queued on both without a
 * synchronisation: the deep queue of a training step. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct member members[2];
    rank_begin(TAKES_OP | TAKES_COMM | TAKES_DEPTH, "world|second", argc, argv);
    options.sync_every = options.depth;
    size_t slots = slots_needed(&options, iteration_calls(&options));
    member_join(&members[0], &options, &place, 0, "world", slots);
    member_join(&members[1], &options, &place, 1, "second", slots);
    run_to_end(members, 2, call_by_call);
    return 0;
}
