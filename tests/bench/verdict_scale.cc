/*
 * How long a verdict over a large job takes: views of 4,096 processes with ten groups each, stuck
 * for each reason, built as a reader of the board builds them and then judged.
 *
 * verdict_scale [google-benchmark's own options]
 */
#include "tests/bench/big_view.h"

#include <benchmark/benchmark.h>

static void build(benchmark::State &state)
{
    struct big_shape shape = {(int)state.range(0), (int)state.range(1), BIG_MISSING_RANK};

    for (auto _ : state)
        big_view_free(big_view_make(&shape));
}

static void judge(benchmark::State &state, enum big_trouble trouble)
{
    struct big_shape shape = {(int)state.range(0), (int)state.range(1), trouble};
    struct ng_view *view = big_view_make(&shape);
    char what[128];

    for (auto _ : state)
        if (!big_view_judge(view, what, sizeof(what)))
            state.SkipWithError("no memory");
    state.SetLabel(what);
    big_view_free(view);
}

static void sizes(benchmark::internal::Benchmark *benchmark)
{
    benchmark->Args({64, 16})->Args({4096, 16})->Args({4096, 51})->Unit(benchmark::kMillisecond);
}

BENCHMARK(build)->Apply(sizes);
BENCHMARK_CAPTURE(judge, nothing, BIG_NOTHING)->Apply(sizes);
BENCHMARK_CAPTURE(judge, missing_rank, BIG_MISSING_RANK)->Apply(sizes);
BENCHMARK_CAPTURE(judge, lost_host, BIG_LOST_HOST)->Apply(sizes);
BENCHMARK_CAPTURE(judge, order, BIG_ORDER)->Apply(sizes);
BENCHMARK_CAPTURE(judge, ring, BIG_RING)->Apply(sizes);
BENCHMARK_CAPTURE(judge, device, BIG_DEVICE)->Apply(sizes);
BENCHMARK_CAPTURE(judge, parted, BIG_PARTED)->Apply(sizes);
BENCHMARK_CAPTURE(judge, every_send, BIG_EVERY_SEND)->Apply(sizes);

BENCHMARK_MAIN();
