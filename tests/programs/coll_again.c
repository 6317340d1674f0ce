/* As coll, in --times communicators, one after the other: the faults count the calls of each. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    rank_begin(TAKES_OP | TAKES_TIMES, "world", argc, argv);
    for (unsigned long i = 0; i < options.times; i++) {
        struct member world;
        member_join(&world, &options, &place, (unsigned)i, "world",
                    slots_needed(&options, iteration_calls(&options)));
        run_to_end(&world, 1, call_by_call);
    }
    return 0;
}
