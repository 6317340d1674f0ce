/* Hosts: ranks in a network namespace, or with an NCCL_HOSTID, of their own. Bytes between hosts go
 * through shared memory, too, but only while neither host is cut off; files in the folder
 * FAKE_NCCL_NETWORK say which hosts are. A cut is not reported: operations under way wait, as on a
 * network without any answer. The end of a process is reported to its peers, because the kernel
 * closes its connections: with NCCL 2.28.9 over sockets, ranks that exchange data with it get
 * ncclRemoteError within milliseconds. */
#include "tests/fake/nccl/fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CABLES 64

/* FAKE_NCCL_NETWORK/cables: CABLES of these; who runs the hosts writes it before any rank starts.
 */
struct cable {
    char host[60]; /* "" none */
    _Atomic uint32_t
        cut; /* bit 0: nothing passes; above it: how often its connections were reset */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *folder;
static struct cable *cables;
static bool tells = true; /* peers hear that connections were closed */

static void look(void)
{
    char path[4096];
    struct stat stat;
    int fd;
    /* InfiniBand has no such word: its adapters send again, for half a minute or more. */
    const char *net = getenv("NCCL_NET");
    tells = !net || strcasecmp(net, "IB") != 0;
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

static struct flock whole_of(int rank, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

int fake_network_connect(int shm_fd, int rank)
{
    char path[64];
    struct flock lock = whole_of(rank, F_WRLCK);
    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", shm_fd);
    /* A lock belongs to an open file, and the descriptor that was passed shares that of others.
     * (The first thread may have ended: nothing of /proc/self can be opened then.) */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool fake_network_closed(const struct ncclComm *comm, int peer)
{
    struct fake_shm *shm = atomic_load(&comm->shm);
    struct flock lock = whole_of(peer, F_WRLCK);
    pthread_once(&once, look);
    return tells && comm->connection >= 0 && fake_shm_rank(shm, comm->rank)->spans_hosts &&
           strcmp(fake_shm_rank(shm, peer)->host, fake_shm_rank(shm, comm->rank)->host) != 0 &&
           !fake_network_cut(comm, peer) && fcntl(comm->connection, F_OFD_GETLK, &lock) == 0 &&
           lock.l_type == F_UNLCK;
}

bool fake_network_ended(const struct ncclComm *comm, int peer)
{
    struct flock lock = whole_of(peer, F_WRLCK);
    return comm->connection >= 0 && fcntl(comm->connection, F_OFD_GETLK, &lock) == 0 &&
           lock.l_type == F_UNLCK;
}

void fake_network_fail(struct ncclComm *comm, int peer)
{
    int good = ncclSuccess;
    if (atomic_load(&comm->state) != good)
        return;
    fake_warn("socketProgress: Connection closed by remote peer %s",
              fake_shm_rank(atomic_load(&comm->shm), peer)->host);
    atomic_compare_exchange_strong(&comm->state, &good, (int)ncclRemoteError);
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
