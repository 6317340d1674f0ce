/* One process a rank, one communicator, one collective after the other. Built twice: coll_runtime
 * uses the CUDA runtime, coll_driver the driver API alone. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    struct member world;
    rank_begin(TAKES_OP, "world", argc, argv);
    member_join(&world, &options, &place, 0, "world",
                slots_needed(&options, iteration_calls(&options)));
    run_to_end(&world, 1, call_by_call);
    return 0;
}
