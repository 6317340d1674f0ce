/* Hosts, for ranks in network namespaces of their own. Bytes go through shared memory all the same:
 * what a cable would carry between hosts goes only while neither host is cut off, as a file in the
 * folder of FAKE_NCCL_NETWORK says. Nobody is told of a cut: whatever was under way waits, as on a
 * wire without a sign of the other end. */
#include "tests/fake/nccl/fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CABLES 64

/* FAKE_NCCL_NETWORK/cables: CABLES of these; who runs the hosts writes it before any rank starts. */
struct cable {
    char host[60];        /* "" none */
    _Atomic uint32_t cut; /* bit 0: nothing passes; above it: how often its connections were reset */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *folder;
static struct cable *cables;

static void look(void)
{
    char path[4096];
    struct stat stat;
    int fd;
    folder = getenv("FAKE_NCCL_NETWORK");
    if (!folder || !*folder) {
        folder = NULL;
        return;
    }
    if ((size_t)snprintf(path, sizeof(path), "%s/cables", folder) >= sizeof(path))
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && stat.st_size >= (off_t)(CABLES * sizeof(struct cable))) {
        void *map = mmap(NULL, CABLES * sizeof(struct cable), PROT_READ, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED)
            cables = map;
    }
    close(fd);
}

const char *fake_network_folder(void)
{
    pthread_once(&once, look);
    return folder;
}

int fake_network_cable(const char *host)
{
    if (!fake_network_folder() || !cables)
        return -1;
    for (int i = 0; i < CABLES; i++)
        if (cables[i].host[0] && strncmp(cables[i].host, host, sizeof(cables[i].host)) == 0)
            return i;
    return -1;
}

bool fake_network_cut(const struct ncclComm *comm, int peer)
{
    struct fake_shm *shm;
    int mine, other;
    if (!fake_network_folder() || !cables)
        return false;
    shm = atomic_load(&comm->shm);
    mine = fake_shm_rank(shm, comm->rank)->cable;
    other = fake_shm_rank(shm, peer)->cable;
    return mine != other && ((mine >= 0 && (atomic_load(&cables[mine].cut) & 1)) ||
                             (other >= 0 && (atomic_load(&cables[other].cut) & 1)));
}

int fake_network_here(void)
{
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    return fake_network_cable(host);
}

uint32_t fake_network_resets(int cable)
{
    return cable < 0 ? 0 : atomic_load(&cables[cable].cut) >> 1;
}
