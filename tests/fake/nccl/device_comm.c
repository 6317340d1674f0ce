/* What the device has of a communicator: the structures of NCCL 2.28.9, as far as they show how
 * many works each channel has done, and the arguments of its kernels (src/include/device.h there).
 * FAKE_NCCL_LAYOUT=shifted: a release whose structures are not known. */
#include "tests/fake/nccl/fake.h"

#include <stdlib.h>
#include <string.h>

#define CHANNELS      64
#define COMM_BYTES    96
#define CHANNEL_BYTES 368
#define BLOCK_BYTES   (COMM_BYTES + CHANNELS * CHANNEL_BYTES + 64)
#define AT_CHANNELS   56
#define AT_COUNTER    352
#define LARGE_BYTES   (64u << 10) /* from here on a call has several channels */
#define LARGE_MASK    UINT64_C(0xf)
#define BATCH_WORKS   8 /* works of one batch; more are chained */

struct arguments {
    void *comm;
    uint64_t channel_mask;
    uint8_t storage_type; /* 1: the works are elsewhere */
    uint32_t work_mask;
    void *work;
};

struct batch {
    uint32_t next_jump : 14, next_extends : 1, work_type : 2, func : 15;
    uint32_t offset_base;
    uint64_t offset_bits;
};

/* Blocks stay with the process: the driver would wait for all kernels before it frees memory.
 * Protects the list of those that are free. Innermost. */
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static void *blocks;

static size_t shift(void)
{
    const char *layout = getenv("FAKE_NCCL_LAYOUT");

    return layout && strcmp(layout, "shifted") == 0 ? 8 : 0;
}

static unsigned char *take_block(void)
{
    void *block;

    pthread_mutex_lock(&blocks_lock);
    block = blocks;
    if (block)
        memcpy(&blocks, block, sizeof(blocks));
    pthread_mutex_unlock(&blocks_lock);
    return block ? block : aligned_alloc(4096, (BLOCK_BYTES + 4095) / 4096 * 4096);
}

ncclResult_t fake_device_comm_make(struct ncclComm *comm)
{
    const struct fake_cuda *cuda = fake_cuda();
    CUcontext saved = NULL;
    CUresult result;
    unsigned char *block = take_block(), *channels;
    int ranks[] = {comm->rank, comm->nranks};

    if (!cuda || !block)
        return ncclSystemError;
    memset(block, 0, BLOCK_BYTES);
    memcpy(block, ranks, sizeof(ranks));
    channels = block + COMM_BYTES + shift();
    memcpy(block + AT_CHANNELS + shift(), &channels, sizeof(channels));
    comm->device_comm = block;
    cuda->ctx_get_current(&saved);
    cuda->ctx_set_current(comm->ctx);
    result = cuda->mem_host_register(block, BLOCK_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    cuda->ctx_set_current(saved);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
               ? ncclSuccess
               : fake_cuda_failed(result, "cuMemHostRegister");
}

void fake_device_comm_give(struct ncclComm *comm)
{
    if (!comm->device_comm)
        return;
    FAKE_HOLD(&blocks_lock);
    memcpy(comm->device_comm, &blocks, sizeof(blocks));
    blocks = comm->device_comm;
}

static uint64_t mask_of(const struct fake_plan *plan)
{
    size_t bytes = 0;

    for (int i = 0; i < plan->ncolls; i++)
        bytes += plan->colls[i].count * fake_type_bytes(plan->colls[i].type);
    for (int i = 0; i < plan->np2ps; i++)
        bytes += plan->p2ps[i].bytes;
    return bytes < LARGE_BYTES ? 1 : LARGE_MASK;
}

/* On each channel; a work of sends and receives has one of each. */
static unsigned works_of(const struct fake_plan *plan)
{
    return (unsigned)plan->ncolls + ((unsigned)plan->np2ps + 1) / 2;
}

CUresult fake_device_comm_launch(const struct fake_plan *plan, CUstream stream, CUhostFn run)
{
    uint64_t mask = mask_of(plan);
    unsigned channels = (unsigned)__builtin_popcountll(mask), left = works_of(plan);
    unsigned rows = (left + BATCH_WORKS - 1) / BATCH_WORKS;
    size_t bytes = sizeof(struct arguments) + (size_t)rows * channels * sizeof(struct batch);
    CUlaunchConfig config = {.gridDimX = channels,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 96,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    struct arguments *arguments = fake_new(bytes);
    struct batch *batches = (struct batch *)(arguments + 1);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};

    *arguments = (struct arguments){plan->comm->device_comm, mask, 1, 0, (void *)plan};
    for (unsigned row = 0; row < rows; row++, left -= left < BATCH_WORKS ? left : BATCH_WORKS)
        for (unsigned channel = 0; channel < channels; channel++)
            batches[row * channels + channel] = (struct batch){
                .next_jump = row + 1 < rows ? channels : 0,
                .offset_bits = (UINT64_C(1) << (left < BATCH_WORKS ? left : BATCH_WORKS)) - 1};
    CUresult result = fake_cuda()->launch_kernel_ex(&config, (CUfunction)(void *)run, NULL, extra);
    free(arguments);
    return result;
}

void fake_device_comm_count(struct fake_plan *plan)
{
    unsigned char *channel = plan->comm->device_comm + COMM_BYTES + shift();

    if (plan->counted)
        return;
    plan->counted = true;

    for (uint64_t mask = mask_of(plan); mask; mask >>= 1, channel += CHANNEL_BYTES)
        if (mask & 1)
            __atomic_fetch_add((uint64_t *)(void *)(channel + AT_COUNTER + shift()), works_of(plan),
                               __ATOMIC_RELEASE);
}
