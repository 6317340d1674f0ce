/*
 * How fast the guard's kernel looks through a buffer, beside the device's own copy: `nan_scan
 * KERNEL.ptx [MIB]`.
 *
 * On bfloat16, of which none is NaN, and once more with one in the last place. One line of JSON:
 * GB/s of a copy on the device as bytes copied, and as bytes read and written; of the scan, as
 * bytes read; the scan's share of both.
 */
#include <stdint.h>
#include <stdio.h>

#include "tests/bench/figures.h"
#include "tests/bench/kernel.h"

#define ROUNDS 20
#define BLOCKS 8u /* of a processor, as core/check/nan.c has it */

static CUstream stream;
static struct bench_kernel kernel;
static CUdeviceptr from, to;
static size_t bytes;

static void copy_once(void)
{
    CUDA(cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
}

static void scan_once(void)
{
    bench_kernel_launch(&kernel, stream);
}

/* Bytes a second, of the fastest of three runs. */
static double rate_of(void (*once)(void))
{
    double best = 0;

    once();
    CUDA(cuStreamSynchronize, stream);
    for (int run = 0; run < 3; run++) {
        double begun = bench_now_us();
        for (int i = 0; i < ROUNDS; i++)
            once();
        CUDA(cuStreamSynchronize, stream);
        double rate = (double)bytes * ROUNDS / (bench_now_us() - begun) * 1e6;
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 256;

    if (argc < 2 || argc > 3 || !mib) {
        fprintf(stderr, "usage: nan_scan KERNEL.ptx [MIB]\n");
        return 2;
    }
    bytes = mib << 20;
    bench_begin("nan_scan");
    CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    kernel = bench_kernel_load(argv[1], bytes, BLOCKS, stream);
    from = (CUdeviceptr)(uintptr_t)kernel.scan.buffer;
    CUDA(cuMemAlloc_v2, &to, bytes);
    const struct ng_nan_answer *answer = kernel.answer;
    double copy = rate_of(copy_once), look = rate_of(scan_once);
    if (answer->bad || answer->ticket != kernel.scan.ticket || answer->gate != kernel.scan.ticket) {
        fprintf(stderr, "nan_scan: found %llu in numbers\n", answer->bad);
        return 1;
    }
    CUDA(cuMemsetD8Async, from + bytes - 2, 0xff, 2, stream);
    scan_once();
    CUDA(cuStreamSynchronize, stream);
    if (answer->bad != 1 || answer->first != bytes / 2 - 1 || answer->bits != 0xffff ||
        answer->gate == kernel.scan.ticket) {
        fprintf(stderr, "nan_scan: the NaN in the last place is not found\n");
        return 1;
    }
    printf(
        "{\"bytes\": %zu, \"copied_gb_s\": %.1f, \"copy_traffic_gb_s\": %.1f, \"scan_gb_s\": %.1f, "
        "\"scan_of_copied\": %.3f, \"scan_of_traffic\": %.3f}\n",
        bytes, copy / 1e9, 2 * copy / 1e9, look / 1e9, look / copy, look / (2 * copy));
    return 0;
}
