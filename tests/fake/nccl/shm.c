/* The memory that the ranks of one communicator share: flags, small messages and bounded channels.
 * It is an anonymous memory file, handed from process to process: the kernel frees it with the last
 * rank, however that rank ends. A rank waits on its bell, a futex that every change which may
 * concern it rises; nothing here spins, and no lock lies in shared memory, so a killed rank leaves
 * none held. */
#include "tests/fake/nccl/fake.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHM_MAGIC 0x6e63636cu

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

size_t fake_shm_layout(struct fake_shm *shm, int nranks, size_t buffer_bytes, uint32_t slots)
{
    uint64_t n = (uint64_t)nranks, off;
    shm->magic = SHM_MAGIC;
    shm->nranks = (uint32_t)nranks;
    shm->slots = slots;
    shm->slot_bytes = round_up(buffer_bytes / slots, 64);
    shm->fifo_bytes = round_up(sizeof(struct fake_fifo) + slots * shm->slot_bytes, 4096);
    off = round_up(sizeof(*shm), 64);
    shm->off_ranks = off;
    off += n * sizeof(struct fake_rank);
    shm->off_links = off;
    off += round_up(n * n * 2 * sizeof(uint32_t), 64);
    shm->off_boot = off;
    off = round_up(off + FAKE_BOOT_KINDS * n * n * sizeof(struct fake_boot), 4096);
    shm->off_ring = off;
    off += n * shm->fifo_bytes;
    shm->off_p2p = off;
    off += n * n * shm->fifo_bytes;
    shm->total_bytes = off;
    return off;
}

int fake_shm_create(int nranks, int *ret_fd)
{
    struct fake_shm header = {0};
    long slots = fake_env_long("FAKE_NCCL_SLOTS", 8, 1, FAKE_SLOTS_MAX);
    size_t buffer = (size_t)fake_env_long("FAKE_NCCL_BUFFER", 512 << 10, slots * 64, 64 << 20);
    size_t total = fake_shm_layout(&header, nranks, buffer, (uint32_t)slots);
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)total) < 0 ||
        pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header)) {
        int err = errno;
        close(fd);
        return -err;
    }
    *ret_fd = fd;
    return 0;
}

int fake_shm_map(int fd, struct fake_shm **ret_shm)
{
    struct fake_shm header;
    struct fake_shm *shm;
    if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        header.magic != SHM_MAGIC)
        return -EPROTO;
    shm = mmap(NULL, header.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (shm == MAP_FAILED)
        return -errno;
    *ret_shm = shm;
    return 0;
}

void fake_shm_unmap(struct fake_shm *shm)
{
    if (shm)
        munmap(shm, shm->total_bytes);
}

struct fake_rank *fake_shm_rank(struct fake_shm *shm, int rank)
{
    return (struct fake_rank *)((char *)shm + shm->off_ranks) + rank;
}

_Atomic uint32_t *fake_shm_link(struct fake_shm *shm, int src, int dst, int end)
{
    size_t index = ((size_t)src * shm->nranks + (size_t)dst) * 2 + (size_t)end;
    return (_Atomic uint32_t *)((char *)shm + shm->off_links) + index;
}

struct fake_boot *fake_shm_boot(struct fake_shm *shm, int kind, int src, int dst)
{
    size_t index = ((size_t)kind * shm->nranks + (size_t)src) * shm->nranks + (size_t)dst;
    return (struct fake_boot *)((char *)shm + shm->off_boot) + index;
}

struct fake_fifo *fake_shm_ring(struct fake_shm *shm, int src)
{
    return (struct fake_fifo *)((char *)shm + shm->off_ring + (size_t)src * shm->fifo_bytes);
}

struct fake_fifo *fake_shm_p2p(struct fake_shm *shm, int src, int dst)
{
    size_t index = (size_t)src * shm->nranks + (size_t)dst;
    return (struct fake_fifo *)((char *)shm + shm->off_p2p + index * shm->fifo_bytes);
}

uint32_t fake_bell_read(struct fake_shm *shm, int rank)
{
    return atomic_load(&fake_shm_rank(shm, rank)->bell);
}

void fake_bell_wait(struct fake_shm *shm, int rank, uint32_t seen)
{
    struct fake_rank *r = fake_shm_rank(shm, rank);
    /* No bell tells that a cable is whole again, or that a connection was closed. */
    const struct timespec look_again = {.tv_nsec = 50000000};
    atomic_fetch_add(&r->waiters, 1);
    if (atomic_load(&r->bell) == seen)
        syscall(SYS_futex, &r->bell, FUTEX_WAIT, seen,
                fake_network_folder() || r->spans_hosts ? &look_again : NULL, NULL, 0);
    atomic_fetch_sub(&r->waiters, 1);
}

void fake_bell_ring(struct fake_shm *shm, int rank)
{
    struct fake_rank *r = fake_shm_rank(shm, rank);
    atomic_fetch_add(&r->bell, 1);
    if (atomic_load(&r->waiters))
        syscall(SYS_futex, &r->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
