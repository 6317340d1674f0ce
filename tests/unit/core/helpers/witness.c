/* A RAS that answers at once. */
#include "tests/unit/core/helpers/witness.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/incident/ras_witness.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/memory.h"

struct witness witness;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_usleep(useconds_t time_us);
int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    *ret_time = (struct timespec){witness.now_ns / NG_S, witness.now_ns % NG_S};
    return 0;
}

int __wrap_usleep(useconds_t time_us)
{
    witness.now_ns += time_us * NG_US;
    return 0;
}

int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context)
{
    run(context);
    return 0;
}

static int answer(const char *address, int64_t deadline_mono_ns, struct ng_ras_answer *ret_answer)
{
    static struct ng_ras_rank rank;
    static struct ng_ras_communicator communicator = {.size = 1, .ranks = &rank, .rank_count = 1};

    rank.pid = witness.pid;
    *ret_answer = (struct ng_ras_answer){.communicators = &communicator, .count = 1};
    witness.questions++;
    return witness.error;
}

void witness_begin(void)
{
    witness = (struct witness){.now_ns = 1000 * NG_S, .pid = getpid()};
    ng_memory_forget();
    ng_guard.ask_ras = answer;
    snprintf(ng_guard.ras_address, sizeof(ng_guard.ras_address), "localhost:28028");
}
