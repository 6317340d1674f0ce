/* ncclCommSplit into the rows and columns of a grid; every iteration a collective on the world,
 * on the row and on the column. */
#include "tests/programs/common.h"

/* The widest grid that is not wider than high times four: 2 = 1x2, 4 = 2x2, 8 = 2x4. */
static int columns_of(int nranks)
{
    int columns = nranks;
    for (int rows = 2; rows * rows <= nranks; rows++)
        if (nranks % rows == 0)
            columns = nranks / rows;
    return columns;
}

int main(int argc, char **argv)
{
    struct member members[3];
    rank_begin(TAKES_OP | TAKES_COMM, "world|row|column", argc, argv);
    ncclComm_t world_comm = world_init(&place, &options, 0);
    ncclComm_t row_comm, column_comm;
    int columns = columns_of(place.nranks);
    NCCL(ncclCommSplit(world_comm, place.rank / columns, place.rank, &row_comm, NULL));
    NCCL(ncclCommSplit(world_comm, place.rank % columns, place.rank, &column_comm, NULL));
    size_t slots = slots_needed(&options, iteration_calls(&options));
    member_init(&members[0], &options, "world", place.rank, world_comm, slots);
    member_init(&members[1], &options, "row", place.rank, row_comm, slots);
    member_init(&members[2], &options, "column", place.rank, column_comm, slots);
    run_to_end(members, 3, call_by_call);
    return 0;
}
