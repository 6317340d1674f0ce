/*
 * Time of a collective among ranks of one host, in a NCCL that does nothing: each rank waits only
 * for what the guard makes it wait for.
 *
 * strict_cost RANKS CALLS
 *
 * Prints the median and the 99th percentile of rank 0's calls, in microseconds.
 */
#include "tests/bench/figures.h"
#include "tests/bench/own_box.h"

#include <nccl.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_UP 100u /* calls that are not timed */

static void call(ncclComm_t comm)
{
    ncclResult_t result =
        ncclAllReduce((void *)64, (void *)128, 1, ncclFloat, ncclSum, comm, (cudaStream_t)0);

    if (result != ncclSuccess) {
        fprintf(stderr, "ncclAllReduce: %s\n", ncclGetLastError(comm));
        exit(3);
    }
}

static int run_rank(int rank, int nranks, unsigned calls, pthread_barrier_t *barrier)
{
    ncclUniqueId id = {"strict_cost"};
    double *took = malloc(calls * sizeof(*took));
    ncclComm_t comm;
    char text[16];

    snprintf(text, sizeof(text), "%d", rank);
    setenv("NCCLGUARD_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", nranks);
    setenv("NCCLGUARD_WORLD_SIZE", text, 1);
    if (!took || ncclCommInitRank(&comm, nranks, id, rank) != ncclSuccess)
        return 3;
    pthread_barrier_wait(barrier);
    for (unsigned i = 0; i < WARM_UP; i++)
        call(comm);
    for (unsigned i = 0; i < calls; i++) {
        double before = bench_now_us();
        call(comm);
        took[i] = bench_now_us() - before;
    }
    pthread_barrier_wait(barrier);
    bench_sort(took, calls);
    if (rank == 0)
        printf("%.2f %.2f\n", took[calls / 2], took[(size_t)calls * 99 / 100]);
    if (rank == 0)
        own_box_print();
    free(took);
    return ncclCommDestroy(comm) == ncclSuccess ? 0 : 3;
}

int main(int argc, char **argv)
{
    int nranks = argc == 3 ? atoi(argv[1]) : 0, calls = argc == 3 ? atoi(argv[2]) : 0, status;
    pthread_barrierattr_t shared;

    if (nranks < 1 || calls < 1) {
        fprintf(stderr, "usage: strict_cost RANKS CALLS\n");
        return 2;
    }
    pthread_barrier_t *barrier =
        mmap(NULL, sizeof(*barrier), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (barrier == MAP_FAILED)
        return 3;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, (unsigned)nranks);
    for (int rank = 0; rank < nranks; rank++) {
        pid_t pid = fork();
        if (pid < 0)
            return 3;
        if (pid == 0)
            exit(run_rank(rank, nranks, (unsigned)calls, barrier));
    }
    int failed = 0;
    for (int rank = 0; rank < nranks; rank++)
        if (wait(&status) < 0 || status != 0)
            failed = 3;
    return failed;
}
