/* One process, one thread a device, ncclCommInitRank in each. Several such processes make one
 * world: rank = process rank x devices + thread. */
#include "tests/programs/common.h"

struct thread {
    const struct options *options;
    ncclUniqueId id;
    pthread_barrier_t *ready;
    int rank, nranks, device;
    struct member world;
    pthread_t handle;
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    const struct options *options = thread->options;
    fail_rank = thread->rank;
    fault_no_init(options, thread->rank);
    device_use(thread->device);
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, thread->nranks, thread->id, thread->rank));
    member_init(&thread->world, options, "world", thread->rank, comm,
                slots_needed(options, iteration_calls(options)));
    /* An allocation may wait for kernels of other devices: none starts before all have theirs. */
    pthread_barrier_wait(thread->ready);
    run_iterations(&thread->world, 1, call_by_call);
    comm_destroy(comm, options);
    return NULL;
}

int main(int argc, char **argv)
{
    options_parse(&options, TAKES_OP | TAKES_DEVICES, "world", argc, argv);
    place_init(&place, &options);
    int n = options.devices ? options.devices : device_count();
    struct thread *threads = calloc((size_t)n, sizeof(*threads));
    WRONG_IF(!threads, "calloc", "out of memory");
    ncclUniqueId id = exchange_id(&place, &options, 0);
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        threads[i].options = &options;
        threads[i].id = id;
        threads[i].ready = &ready;
        threads[i].rank = place.rank * n + i;
        threads[i].nranks = place.nranks * n;
        threads[i].device = place.local_rank * n + i;
        threads[i].handle = thread_start(run, &threads[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i].handle, NULL);
    for (int i = 0; i < n; i++) {
        device_use(threads[i].device);
        report(threads[i].rank, (const struct member *const[]){&threads[i].world}, 1);
        member_fini(&threads[i].world);
    }
    pthread_barrier_destroy(&ready);
    free(threads);
    return 0;
}
