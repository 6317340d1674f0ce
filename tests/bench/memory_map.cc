/*
 * What it costs to follow device memory: an allocation and its free, and a search, with so many
 * others alive, at random addresses; as the hooks on the driver report them, less the driver's own
 * time.
 *
 * memory_map [google-benchmark's own options]
 */
#include "tests/bench/followed.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace
{

constexpr size_t STEP = 2 << 20; /* between allocations: room for one more behind each */
constexpr uintptr_t MEMORY = 0x7f0000000000;

/* So many are alive, every second place; the others are free, in random order. */
class Alive
{
  public:
    explicit Alive(size_t count) : free_(count)
    {
        std::mt19937_64 random(count);
        for (size_t i = 0; i < count; i++) {
            followed_allocate(MEMORY + 2 * i * STEP, STEP);
            free_[i] = MEMORY + (2 * i + 1) * STEP;
        }
        std::shuffle(free_.begin(), free_.end(), random);
    }
    ~Alive()
    {
        followed_forget();
    }
    uintptr_t next()
    {
        return free_[at_++ % free_.size()];
    }

  private:
    std::vector<uintptr_t> free_;
    size_t at_ = 0;
};

void allocate_and_free(benchmark::State &state)
{
    Alive alive((size_t)state.range(0));

    for (auto _ : state) {
        uintptr_t base = alive.next();
        followed_allocate(base, STEP / 2);
        if (!followed_free(base))
            state.SkipWithError("it is not there");
    }
}

/* With a reservation of its own, as NCCLGUARD_ALLOC=vmm makes them. */
void map_and_unmap(benchmark::State &state)
{
    Alive alive((size_t)state.range(0));

    for (auto _ : state) {
        uintptr_t base = alive.next();
        followed_map(base, STEP / 2);
        followed_unmap(base, STEP / 2);
    }
}

/* All are allocated, then all are freed, in another order. */
void fill_and_empty(benchmark::State &state)
{
    const size_t count = (size_t)state.range(0);
    std::vector<uintptr_t> order(count);
    std::mt19937_64 random(count);

    for (size_t i = 0; i < count; i++)
        order[i] = MEMORY + i * STEP;
    std::shuffle(order.begin(), order.end(), random);
    for (auto _ : state) {
        for (uintptr_t base : order)
            followed_allocate(base, STEP);
        for (size_t i = 0; i < count; i++)
            followed_free(order[(i * 7919) % count]);
    }
    followed_forget();
    state.SetItemsProcessed((int64_t)(state.iterations() * count)); /* pairs */
}

void find(benchmark::State &state)
{
    Alive alive((size_t)state.range(0));

    for (auto _ : state)
        benchmark::DoNotOptimize(followed_find(alive.next() - STEP + 4096));
}

#define COUNTS ->Arg(100)->Arg(1000)->Arg(10000)->Arg(100000)

BENCHMARK(allocate_and_free) COUNTS;
BENCHMARK(map_and_unmap) COUNTS;
BENCHMARK(find) COUNTS;
BENCHMARK(fill_and_empty) COUNTS;

} // namespace

BENCHMARK_MAIN();
