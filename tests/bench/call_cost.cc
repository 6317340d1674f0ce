/*
 * Host time of a NCCL call in a library that does nothing: run bare and under the guard, the
 * difference is what the guard costs.
 *
 * Calls come in bursts, each timed as a whole, with pauses between (not timed) that give the stream
 * of calls the pace of a real NCCL: a loop without them would issue calls a hundred times faster
 * than any program can, and measure how the guard behaves when its watchdog is left behind. The
 * counters give the median over the bursts, which other load on the machine moves least.
 *
 * call_cost [--driver] [--bursts=N] [--calls=N] [--pace-ns=N] [google-benchmark's own options]
 */
#include "tests/bench/own_box.h"
#include "tests/bench/workload.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace
{

constexpr int max_threads = 4;
constexpr int communicators = 64;

struct Settings {
    bool driver = false;
    long bursts = 200;
    long calls = 256;
    long pace_ns = 5000;
};

Settings settings;
ncclComm_t comms[communicators];

double percentile(std::vector<double> &sorted, double fraction)
{
    return sorted[static_cast<size_t>(fraction * static_cast<double>(sorted.size() - 1))];
}

void run(benchmark::State &state, enum workload workload)
{
    /* Each thread has communicators of its own, as NCCL demands. */
    const int share = communicators / state.threads();
    const ncclComm_t *own = comms + state.thread_index() * share;
    const auto calls = static_cast<unsigned>(settings.calls);
    /* The pace is that of the process, however many its threads. */
    const auto pause =
        std::chrono::nanoseconds(settings.calls * settings.pace_ns * state.threads());

    /* A thread's and a communicator's first calls do more than the rest. */
    for (int i = 0; i < 4; i++) {
        workload_run(workload, own, share, calls);
        std::this_thread::sleep_for(pause);
    }

    std::vector<double> each;
    each.reserve(static_cast<size_t>(settings.bursts));
    for (auto _ : state) {
        const auto start = std::chrono::steady_clock::now();
        workload_run(workload, own, share, calls);
        const auto end = std::chrono::steady_clock::now();
        const std::chrono::duration<double> seconds = end - start;
        state.SetIterationTime(seconds.count());
        each.push_back(seconds.count() * 1e9 / static_cast<double>(calls));
        std::this_thread::sleep_for(pause);
    }
    std::sort(each.begin(), each.end());
    state.counters["ns_median"] =
        benchmark::Counter(percentile(each, 0.5), benchmark::Counter::kAvgThreads);
    state.counters["ns_p10"] =
        benchmark::Counter(percentile(each, 0.1), benchmark::Counter::kAvgThreads);
}

bool take_number(const char *argument, const char *name, long *ret_value)
{
    const size_t length = std::strlen(name);
    if (std::strncmp(argument, name, length) != 0)
        return false;
    char *end;
    const long value = std::strtol(argument + length, &end, 10);
    if (*end != '\0' || value < 1) {
        std::fprintf(stderr, "call_cost: %s wants a positive number\n", argument);
        std::exit(2);
    }
    *ret_value = value;
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    benchmark::Initialize(&argc, argv);
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--driver") == 0) {
            settings.driver = true;
        } else if (!take_number(argv[i], "--bursts=", &settings.bursts) &&
                   !take_number(argv[i], "--calls=", &settings.calls) &&
                   !take_number(argv[i], "--pace-ns=", &settings.pace_ns)) {
            std::fprintf(stderr, "call_cost: unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (settings.driver && workload_load_driver() != 0)
        return 3;
    workload_create(comms, communicators);
    /* As in any program that has run for a while: the guard's clock (core/util/fast_clock.h). */
    std::this_thread::sleep_for(std::chrono::milliseconds(500));

    for (int w = 0; w < WORKLOADS; w++) {
        for (int threads : {1, max_threads}) {
            const auto workload = static_cast<enum workload>(w);
            benchmark::RegisterBenchmark(
                workload_names[w], [workload](benchmark::State &state) { run(state, workload); })
                ->Threads(threads)
                ->Iterations(settings.bursts)
                ->UseManualTime();
        }
    }

    struct own_box box;
    const int before = own_box_read(&box);
    benchmark::AddCustomContext("driver", settings.driver ? "yes" : "no");
    benchmark::AddCustomContext("guarded", before == 0 ? "yes" : "no");
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();

    /* One line for the script that compares: what the guard recorded meanwhile. */
    own_box_print();
    workload_destroy(comms, communicators);
    return 0;
}
