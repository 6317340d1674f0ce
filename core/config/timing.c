/*
 * Selects the works that are measured.
 *
 * Pure except for the communicator's own counter; entered by program threads, for few calls.
 */
#include "core/config/timing.h"

#include "core/config/config.h"

#define EARLY_MAX 64u  /* powers of two up to here, from 2: the first call makes connections */
#define BLOCK     128u /* then one of each such block */

/* Position of the measured work in block `block`. The finalizer of splitmix64: uniformly
 * distributed. */
static uint64_t place_in(uint64_t block)
{
    uint64_t mixed = block * UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) % BLOCK;
}

uint64_t ng_timing_next(int mode, uint64_t number)
{
    if (mode == NG_TIMING_OFF)
        return UINT64_MAX;
    if (mode == NG_TIMING_ALL)
        return number;
    for (uint64_t early = 2; early <= EARLY_MAX; early *= 2)
        if (number <= early)
            return early;
    uint64_t block = number / BLOCK;
    if (block == 0 || block * BLOCK + place_in(block) < number)
        block++;
    return block * BLOCK + place_in(block);
}

bool ng_timing_take(const _Atomic int *mode, _Atomic uint64_t *next, uint64_t number)
{
    int now = atomic_load(mode), used;
    bool taken = ng_timing_next(now, number) == number;

    /* A change sets the mode, then *next to 0. If the mode has changed meanwhile, that 0 may have
     * been overwritten here by what followed from the old mode, which may be never. */
    do {
        used = now;
        atomic_store(next, ng_timing_next(used, number + 1));
        now = atomic_load(mode);
    } while (now != used);
    return taken;
}
