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
    struct options options;
    struct place place;
    struct member world, row, column;
    options_parse(&options, TAKES_OP | TAKES_COMM, "world|row|column", argc, argv);
    place_init(&place, &options);
    device_use(place.local_rank);
    ncclComm_t world_comm = world_init(&place, &options, 0);
    ncclComm_t row_comm, column_comm;
    int columns = columns_of(place.nranks);
    NCCL(ncclCommSplit(world_comm, place.rank / columns, place.rank, &row_comm, NULL));
    NCCL(ncclCommSplit(world_comm, place.rank % columns, place.rank, &column_comm, NULL));
    size_t calls = iteration_calls(&options);
    size_t slots = slots_needed(&options, calls);
    member_init(&world, &options, "world", place.rank, world_comm, slots);
    member_init(&row, &options, "row", place.rank, row_comm, slots);
    member_init(&column, &options, "column", place.rank, column_comm, slots);
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < calls; j++) {
            member_call(&world, iteration_op(&world, j));
            member_call(&row, iteration_op(&row, j));
            member_call(&column, iteration_op(&column, j));
        }
        if (drain_due(&options, i)) {
            member_drain(&world);
            member_drain(&row);
            member_drain(&column);
        }
        pause_between(&options);
    }
    comm_destroy(column_comm, &options);
    comm_destroy(row_comm, &options);
    comm_destroy(world_comm, &options);
    report(place.rank, (const struct member *const[]){&world, &row, &column}, 3);
    member_fini(&column);
    member_fini(&row);
    member_fini(&world);
    return 0;
}
