/* What the host benchmarks call: the three workloads, on communicators and handles that mean
 * nothing, since the libraries beneath do nothing. */
#ifndef TESTS_BENCH_WORKLOAD_H
#define TESTS_BENCH_WORKLOAD_H

#include <nccl.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

enum workload {
    WORKLOAD_ALLREDUCE, /* one communicator */
    WORKLOAD_SENDRECV,  /* a group of one send and one receive: four calls */
    WORKLOAD_ROTATE,    /* an all-reduce on each communicator in turn */
    WORKLOADS,
};

extern const char *const workload_names[WORKLOADS];

/* NULL-terminated name to number; -1 if there is none. */
int workload_find(const char *name);

/* Loads the driver (the null one, where LD_LIBRARY_PATH says so) as a CUDA program would have done
 * before its first NCCL call, and checks that it has all that core asks of one. 0, or -1 with a
 * line on stderr. */
int workload_load_driver(void);

/* `count` communicators of two ranks, this process being rank 0. Ends the process on failure. */
void workload_create(ncclComm_t *ret_comms, int count);
void workload_destroy(ncclComm_t *comms, int count);

/* `calls` times the workload: an all-reduce, or one group. ROTATE goes round the `ncomms`
 * communicators, the others use the first. Out of line, so that a profiler can name it. */
__attribute__((noinline)) void workload_run(enum workload workload, const ncclComm_t *comms,
                                            int ncomms, unsigned calls);

__END_DECLS

#endif
