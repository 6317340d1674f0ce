/*
 * Collectives, at least --iters of them, and on for as long as a file is there: so a test of what
 * happens meanwhile needs no luck with time.
 *
 * STORE_LOAD_HOLD names that file, which rank 0 looks for after each thousand of collectives and
 * tells the others in one more. --pause-ms is a pause after each --sync-every. STORE_LOAD_COUNT
 * names a file of two numbers of 64 bits, which rank 0 keeps up to date: collectives so far, and
 * when (CLOCK_MONOTONIC, nanoseconds).
 */
#include "tests/programs/common.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 1000

struct counted {
    _Atomic uint64_t count, mono_ns;
};

static struct counted *open_count(const struct place *place)
{
    const char *path = getenv("STORE_LOAD_COUNT");
    if (place->rank != 0 || !path)
        return NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    WRONG_IF(fd < 0 || ftruncate(fd, sizeof(struct counted)) != 0, path, strerror(errno));
    struct counted *counted =
        mmap(NULL, sizeof(*counted), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    WRONG_IF(counted == MAP_FAILED, path, strerror(errno));
    close(fd);
    return counted;
}

static void tell_count(struct counted *counted, uint64_t count)
{
    struct timespec now;
    if (!counted)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&counted->mono_ns, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    atomic_store(&counted->count, count);
}

/* What rank 0 found, on every rank. */
static bool goes_on(const struct member *world, void *device_word)
{
    const char *path = getenv("STORE_LOAD_HOLD");
    int32_t word = path && access(path, F_OK) == 0;
    if (world->rank == 0)
        device_copy_in(device_word, &word, sizeof(word), world->stream);
    NCCL(ncclBroadcast(device_word, device_word, 1, ncclInt32, 0, world->comm, world->stream));
    device_copy_out(&word, device_word, sizeof(word), world->stream);
    device_stream_sync(world->stream);
    return word != 0;
}

int main(int argc, char **argv)
{
    struct member world;
    rank_begin(TAKES_OP, "world", argc, argv);
    member_join(&world, &options, &place, 0, "world",
                slots_needed(&options, iteration_calls(&options)));
    struct counted *counted = open_count(&place);
    void *word = device_alloc(sizeof(int32_t));
    uint64_t count = 0;
    do {
        for (unsigned long i = 0; i < BLOCK; i++) {
            for (size_t j = 0; j < iteration_calls(&options); j++)
                member_call(&world, iteration_op(&world, j));
            if (drain_due(&options, i)) {
                member_drain(&world);
                if (options.pause_ms)
                    sleep_ms((long long)options.pause_ms);
            }
        }
        member_drain(&world);
        tell_count(counted, count += BLOCK);
    } while (goes_on(&world, word) || count < options.iters);
    device_free(word);
    member_end(&world);
    return 0;
}
