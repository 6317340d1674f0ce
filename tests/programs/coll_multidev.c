/* One process and one thread drive several devices: ncclCommInitAll, every collective a group. */
#include "tests/programs/common.h"

int main(int argc, char **argv)
{
    options_parse(&options, TAKES_OP | TAKES_DEVICES, "world", argc, argv);
    place_init(&place, &options);
    int n = options.devices ? options.devices : device_count();
    for (int rank = 0; rank < n; rank++)
        fault_no_init(&options, rank);
    ncclComm_t *comms = calloc((size_t)n, sizeof(*comms));
    struct member *members = calloc((size_t)n, sizeof(*members));
    WRONG_IF(!comms || !members, "calloc", "out of memory");
    NCCL(ncclCommInitAll(comms, n, NULL));
    size_t calls = iteration_calls(&options);
    for (int rank = 0; rank < n; rank++) {
        device_use(rank);
        member_init(&members[rank], &options, "world", rank, comms[rank],
                    slots_needed(&options, calls));
    }
    for (unsigned long i = 0; i < options.iters; i++) {
        for (size_t j = 0; j < calls; j++) {
            for (int rank = 0; rank < n; rank++) {
                device_use(rank);
                member_prepare(&members[rank], iteration_op(&members[rank], j));
            }
            NCCL(ncclGroupStart());
            for (int rank = 0; rank < n; rank++)
                member_issue(&members[rank]);
            NCCL(ncclGroupEnd());
            for (int rank = 0; rank < n; rank++) {
                device_use(rank);
                member_collect(&members[rank]);
            }
        }
        if (drain_due(&options, i))
            for (int rank = 0; rank < n; rank++) {
                device_use(rank);
                member_drain(&members[rank]);
            }
        pause_between(&options);
    }
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < n; rank++)
        comm_destroy(comms[rank], &options);
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < n; rank++) {
        device_use(rank);
        report(rank, (const struct member *const[]){&members[rank]}, 1);
        member_fini(&members[rank]);
    }
    free(members);
    free(comms);
    return 0;
}
