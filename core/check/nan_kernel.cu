/*
 * The kernel that scans for NaN.
 *
 * Runs on the device, before the NCCL call is made. Compiled to PTX, which the driver compiles for
 * the actual device; core/check/nan.c launches it. A thread that finds nothing, like nearly all,
 * touches only the buffer.
 */
#include "core/check/nan_kernel.h"

__device__ struct ng_nan_state ng_nan_states[NG_NAN_SLOTS];

extern "C" __global__ void __launch_bounds__(NG_NAN_THREADS) ng_nan_scan(struct ng_nan_scan scan)
{
    struct ng_nan_state *state = &ng_nan_states[scan.slot];
    ng_nan_word threads = (ng_nan_word)gridDim.x * NG_NAN_THREADS;

    ng_nan_scan_part(&scan, state, (ng_nan_word)blockIdx.x * NG_NAN_THREADS + threadIdx.x, threads);
    __threadfence();
    __syncthreads();
    /* The last block sees the results of all others. */
    if (threadIdx.x == 0 && atomicAdd(&state->blocks, 1u) == gridDim.x - 1) {
        __threadfence();
        ng_nan_scan_answer(&scan, state);
    }
}
