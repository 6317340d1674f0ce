/* What the device has of a communicator: the structures of NCCL 2.28.9, as far as they show how
 * many works each channel has done and what the connections of the ring have moved, and the
 * arguments of its kernels (src/include/device.h there). All channels have the same connections,
 * which look as over shared memory with the protocol Simple; there is no tree.
 * FAKE_NCCL_LAYOUT=shifted: a release whose structures are not known. */
#include "tests/fake/nccl/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHANNELS      64
#define COMM_BYTES    96
#define CHANNEL_BYTES 368
#define PAGE_BYTES    4096
#define AT_PEERS      (6 * PAGE_BYTES) /* pointers by rank, then two peers */
#define RANKS         512              /* with more, nothing shows the connections */
#define PEER_BYTES    608
#define AT_RECEIVE    304
/* The counters of the two connections: the first pages of their channels in the memory that the
 * ranks share. */
#define AT_PAGES    (8 * PAGE_BYTES)
#define BLOCK_BYTES (10 * PAGE_BYTES)
#define AT_BUFFERS  16
#define AT_RING     8
#define AT_TREE     32
#define AT_TAIL     48
#define AT_HEAD     56
#define AT_SIZE     72
#define AT_STEP     104
#define STEP_BYTES  (512 << 10)
#define AT_CHANNELS 56
#define AT_COUNTER  352
#define LARGE_BYTES (64u << 10) /* from here on a call has several channels */
#define LARGE_MASK  UINT64_C(0xf)
#define BATCH_WORKS 8 /* works of one batch; more are chained */

struct arguments {
    void *comm;
    uint64_t channel_mask;
    uint8_t storage_type; /* 1: the works are elsewhere */
    uint32_t work_mask;
    void *work;
};

_Static_assert(COMM_BYTES + CHANNELS * CHANNEL_BYTES + 64 <= AT_PEERS &&
                   AT_PEERS + RANKS * 8 + 2 * PEER_BYTES <= AT_PAGES,
               "one behind the other");

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
    if (!block)
        block = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
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
    int buffers[] = {0, 0, STEP_BYTES * 8};
    memcpy(block + AT_BUFFERS, buffers, sizeof(buffers));
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

static struct fake_fifo *fifo_at(struct ncclComm *comm, int which)
{
    return (struct fake_fifo *)(void *)(comm->device_comm + AT_PAGES + which * PAGE_BYTES);
}

static unsigned char *peer_at(struct ncclComm *comm, int which)
{
    return comm->device_comm + AT_PEERS + RANKS * sizeof(void *) + which * PEER_BYTES;
}

/* What the other rank does is seen there at once. */
static bool share_page(struct fake_fifo *fifo, struct fake_fifo *to)
{
    return mremap(fifo, 0, PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

static void write_connection(unsigned char *info, const struct fake_fifo *fifo, uint64_t step)
{
    const void *tail = &fifo->tail, *head = &fifo->head;
    int size = STEP_BYTES;

    memcpy(info + AT_TAIL, &tail, sizeof(tail));
    memcpy(info + AT_HEAD, &head, sizeof(head));
    memcpy(info + AT_SIZE, &size, sizeof(size));
    memcpy(info + AT_STEP, &step, sizeof(step));
}

/* Where the next kernel begins. */
static void write_steps(struct ncclComm *comm)
{
    int next = (comm->rank + 1) % comm->nranks,
        prev = (comm->rank + comm->nranks - 1) % comm->nranks;
    struct fake_fifo *to = fifo_at(comm, 0), *from = fifo_at(comm, 1);

    write_connection(peer_at(comm, 0), to, atomic_load(&to->tail));
    write_connection(peer_at(comm, prev == next ? 0 : 1) + AT_RECEIVE, from,
                     atomic_load(&from->head));
}

static void connect_ring(struct ncclComm *comm)
{
    struct fake_shm *shm = atomic_load(&comm->shm);
    int ring[] = {(comm->rank + comm->nranks - 1) % comm->nranks, (comm->rank + 1) % comm->nranks};
    int tree[] = {0, -1, -1, -1, -1};
    unsigned char *peers = comm->device_comm + AT_PEERS;

    if (comm->shows_ring || !comm->ring_connected || !shm || comm->nranks < 2 ||
        comm->nranks > RANKS || !share_page(fake_shm_ring(shm, comm->rank), fifo_at(comm, 0)) ||
        !share_page(fake_shm_ring(shm, ring[0]), fifo_at(comm, 1)))
        return;
    for (int i = 0; i < 2; i++) {
        unsigned char *peer = peer_at(comm, i && ring[0] != ring[1]);
        memcpy(peers + (size_t)ring[1 - i] * sizeof(peer), &peer, sizeof(peer));
    }
    write_steps(comm);
    for (int channel = 0; channel < CHANNELS; channel++) {
        unsigned char *at = comm->device_comm + COMM_BYTES + shift() + channel * CHANNEL_BYTES;
        memcpy(at, &peers, sizeof(peers));
        memcpy(at + AT_RING, ring, sizeof(ring));
        memcpy(at + AT_TREE, tree, sizeof(tree));
    }
    comm->shows_ring = true;
}

void fake_device_comm_give(struct ncclComm *comm)
{
    if (!comm->device_comm)
        return;
    if (comm->shows_ring && mmap(fifo_at(comm, 0), 2 * PAGE_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
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

    connect_ring(plan->comm);
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
    if (plan->comm->shows_ring && plan->ncolls)
        write_steps(plan->comm);

    for (uint64_t mask = mask_of(plan); mask; mask >>= 1, channel += CHANNEL_BYTES)
        if (mask & 1)
            __atomic_fetch_add((uint64_t *)(void *)(channel + AT_COUNTER + shift()), works_of(plan),
                               __ATOMIC_RELEASE);
}
