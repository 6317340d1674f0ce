/*
 * A fixed number of NCCL calls in a library that does nothing, for tools that count instructions.
 *
 * call_count WORKLOAD CALLS [--driver] [--pace-ns N]
 *
 * Calls come in bursts with pauses between, so that the guard's watchdog keeps up; an instruction
 * counter that collects in workload_run alone does not see the pauses.
 */
#include "tests/bench/own_box.h"
#include "tests/bench/workload.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BURST 64

static int usage(void)
{
    fprintf(stderr, "usage: call_count allreduce|sendrecv|rotate CALLS [--driver] [--pace-ns N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    enum { COMMUNICATORS = 64 };
    ncclComm_t comms[COMMUNICATORS];

    int workload = argc > 2 ? workload_find(argv[1]) : -1;
    long calls = argc > 2 ? atol(argv[2]) : 0;
    long pace_ns = 100000;
    bool driver = false;
    if (workload < 0 || calls < 1)
        return usage();
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--driver"))
            driver = true;
        else if (!strcmp(argv[i], "--pace-ns") && i + 1 < argc)
            pace_ns = atol(argv[++i]);
        else
            return usage();
    }
    if (driver && workload_load_driver())
        return 3;

    workload_create(comms, COMMUNICATORS);
    /* As in any program that has run for a while: the guard's clock (core/util/fast_clock.h). */
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    for (long left = calls; left > 0; left -= BURST) {
        unsigned burst = left < BURST ? (unsigned)left : BURST;
        workload_run((enum workload)workload, comms, COMMUNICATORS, burst);
        long pause_ns = pace_ns * (long)burst;
        nanosleep(&(struct timespec){pause_ns / 1000000000, pause_ns % 1000000000}, NULL);
    }

    own_box_print();
    workload_destroy(comms, COMMUNICATORS);
    return 0;
}
