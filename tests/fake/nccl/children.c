/* Communicators made from others: split, shrink, grow. */
#include "tests/fake/nccl/fake.h"

#include <stdlib.h>
#include <string.h>

/* Creates the child with its rank and meets the other children. */
static ncclResult_t child_join(struct fake_job *job, const ncclUniqueId *id, int nranks, int rank)
{
    struct ncclComm *parent = job->parent, *child;
    ncclResult_t result;
    TRY(fake_comm_alloc(nranks, rank, parent->device, parent->ctx, &job->config, &child));
    /* An abort of the parent reaches the child while it is being made. */
    pthread_mutex_lock(&parent->lock);
    parent->child = child;
    pthread_mutex_unlock(&parent->lock);
    if (fake_comm_aborted(parent))
        fake_comm_set_abort(child);
    result = fake_boot_join(child, id);
    if (result == ncclSuccess)
        fake_comm_linger(parent);
    pthread_mutex_lock(&parent->lock);
    parent->child = NULL;
    pthread_mutex_unlock(&parent->lock);
    if (result == ncclSuccess && fake_comm_aborted(parent))
        result = ncclInternalError;
    if (result == ncclSuccess) {
        atomic_store(&child->state, ncclSuccess);
        fake_comm_register(child);
        __atomic_store_n(job->ret_comm, child, __ATOMIC_RELEASE);
    }
    fake_comm_put(child);
    return result;
}

struct split_entry {
    int32_t color, key, rank;
};

static int by_key(const void *a, const void *b)
{
    const struct split_entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static ncclResult_t split_job(struct fake_job *job)
{
    struct ncclComm *parent = job->parent;
    struct split_entry mine = {job->color, job->key, parent->rank};
    struct split_entry *all = fake_new((size_t)parent->nranks * sizeof(*all));
    ncclUniqueId id, *ids = fake_new((size_t)parent->nranks * sizeof(*ids));
    int nranks = 0, rank = -1, leader;
    ncclResult_t result = fake_boot_all_gather(parent, FAKE_BOOT_SPLIT, &mine, all, sizeof(mine));
    if (result != ncclSuccess)
        goto done;
    for (int r = 0; r < parent->nranks; r++)
        if (mine.color >= 0 && all[r].color == mine.color)
            all[nranks++] = all[r];
    qsort(all, (size_t)nranks, sizeof(*all), by_key);
    for (int r = 0; r < nranks; r++)
        if (all[r].rank == parent->rank)
            rank = r;
    leader = nranks ? all[0].rank : -1;
    memset(&id, 0, sizeof(id));
    if (leader == parent->rank)
        result = fake_boot_new_id(&id);
    if (result == ncclSuccess)
        result = fake_boot_all_gather(parent, FAKE_BOOT_SPLIT, &id, ids, sizeof(id));
    if (result != ncclSuccess)
        goto done;
    if (nranks == 0) {
        fake_trace("Rank %d has color with NCCL_SPLIT_NOCOLOR, not creating a new communicator",
                   parent->rank);
        fake_comm_linger(parent);
        goto done;
    }
    result = child_join(job, &ids[leader], nranks, rank);
done:
    free(all);
    free(ids);
    return result;
}

static ncclResult_t shrink_job(struct fake_job *job)
{
    struct ncclComm *parent = job->parent;
    int nranks = 0, rank = -1, leader = -1, at = 0;
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    if (job->flags & NCCL_SHRINK_ABORT)
        fake_comm_stop_kernels(parent);
    for (int r = 0; r < parent->nranks; r++) {
        if (at < job->nexclude && job->exclude[at] == r) {
            at++;
            continue;
        }
        if (leader < 0)
            leader = r;
        if (r == parent->rank)
            rank = nranks;
        nranks++;
    }
    if (parent->rank == leader) {
        result = fake_boot_new_id(&id);
        at = 0;
        for (int r = 0; r < parent->nranks && result == ncclSuccess; r++) {
            if (at < job->nexclude && job->exclude[at] == r)
                at++;
            else if (r != leader)
                result = fake_boot_send(parent, FAKE_BOOT_SHRINK, r, &id, sizeof(id));
        }
    } else {
        result = fake_boot_recv(parent, FAKE_BOOT_SHRINK, leader, &id, sizeof(id));
    }
    return result == ncclSuccess ? child_join(job, &id, nranks, rank) : result;
}

/* What is under way on a nonblocking communicator is told as success: the real library returns its
 * own result, and not that of its group's end (2.28.9). */
static ncclResult_t leave(ncclResult_t result)
{
    ncclResult_t ended;
    fake_group_error(result);
    ended = fake_group_end();
    return result != ncclSuccess || ended == ncclInProgress ? result : ended;
}

static ncclResult_t child_start(const char *func, ncclResult_t (*run)(struct fake_job *),
                                ncclComm_t handle, int color, int key, const int *exclude,
                                int nexclude, int flags, ncclComm_t *newcomm, ncclConfig_t *config)
{
    struct ncclComm *parent = NULL;
    ncclConfig_t mine;
    ncclResult_t result;
    fake_group_start();
    result = fake_comm_enter(handle, func, true, &parent);
    if (result == ncclSuccess && !newcomm)
        result = fake_null_argument(func, "newcomm");
    if (result == ncclSuccess) {
        __atomic_store_n(newcomm, NULL, __ATOMIC_RELEASE);
        result = fake_config_read(config, &parent->config, &mine);
    }
    if (result == ncclSuccess) {
        struct fake_job *job = fake_job_new(run, NULL, parent);
        job->config = mine;
        job->color = color;
        job->key = key;
        job->flags = flags;
        job->ret_comm = newcomm;
        job->nexclude = nexclude;
        if (nexclude)
            job->exclude = memcpy(fake_new((size_t)nexclude * sizeof(*exclude)), exclude,
                                  (size_t)nexclude * sizeof(*exclude));
        result = fake_group_add_job(job);
    }
    fake_comm_put(parent);
    return leave(result);
}

FAKE_FORM(ncclResult_t, ncclCommSplit,
          (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config),
          child_start("CommSplit", split_job, comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                      NULL, 0, 0, newcomm, config))

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static ncclResult_t check_excluded(ncclComm_t handle, int *exclude, int nexclude)
{
    FAKE_ENTER(comm, handle, "CommShrink", false);
    NEED_ARGUMENT(exclude, "CommShrink", "excludeRanksList");
    REFUSE_IF(nexclude <= 0 || nexclude >= comm->nranks, ncclInvalidArgument,
              "CommShrink : invalid number of excluded ranks %d", nexclude);
    /* In place, as the real library does with the caller's list. */
    qsort(exclude, (size_t)nexclude, sizeof(*exclude), by_value);
    for (int i = 0; i < nexclude; i++)
        REFUSE_IF(exclude[i] < 0 || exclude[i] >= comm->nranks ||
                      (i && exclude[i] == exclude[i - 1]) || exclude[i] == comm->rank,
                  ncclInvalidArgument, "CommShrink : invalid excluded rank %d", exclude[i]);
    return ncclSuccess;
}

FAKE_API(ncclResult_t, ncclCommShrink,
         (ncclComm_t handle, int *exclude, int nexclude, ncclComm_t *newcomm, ncclConfig_t *config,
          int flags))
{
    ncclResult_t result = check_excluded(handle, exclude, nexclude);
    if (result != ncclSuccess)
        return fake_group_error(result);
    return child_start("CommShrink", shrink_job, handle, 0, 0, exclude, nexclude, flags, newcomm,
                       config);
}

/* ---- grow: whatever release the stand-in calls itself, for the headers are older than the API
 * ---- */

/* The ranks of the parent that NCCL itself sends the id to; they need it before they can start. */
static bool is_boundary(const struct ncclComm *comm)
{
    return comm->rank == 0 || comm->rank == comm->nranks - 1;
}

static ncclResult_t grow_job(struct fake_job *job)
{
    if (job->parent && job->parent->nranks > 1 && !is_boundary(job->parent))
        TRY(fake_boot_recv_any(job->parent, FAKE_BOOT_GROW, &job->id, sizeof(job->id)));
    return fake_init_job(job);
}

/* A rank of the parent keeps its number, and hears of the id through the parent. */
static ncclResult_t grow_from(struct ncclComm *parent, int nranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config, ncclComm_t *newcomm)
{
    ncclUniqueId received;
    ncclConfig_t mine;
    REFUSE_IF(nranks <= parent->nranks, ncclInvalidArgument,
              "CommGrow : total ranks %d is not more than current ranks %d", nranks,
              parent->nranks);
    REFUSE_IF(rank != -1, ncclInvalidArgument,
              "CommGrow : existing ranks must pass rank -1, got %d", rank);
    memset(&received, 0, sizeof(received));
    if (parent->nranks == 1) {
        /* Nobody sends itself anything. */
        NEED_ARGUMENT(id, "CommGrow", "uniqueId");
        received = *id;
    } else if (is_boundary(parent)) {
        TRY(fake_boot_recv_any(parent, FAKE_BOOT_GROW, &received, sizeof(received)));
    }
    TRY(fake_config_read(config, &parent->config, &mine));
    return fake_init_start(grow_job, parent, newcomm, nranks, parent->rank, &received, &mine,
                           parent->device, parent->ctx);
}

static ncclResult_t grow_into(int nranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config, ncclComm_t *newcomm)
{
    CUdevice device = 0;
    CUcontext ctx = NULL;
    ncclConfig_t mine;
    REFUSE_IF(rank < 0 || rank >= nranks, ncclInvalidArgument,
              "CommGrow : new ranks must pass a rank below %d, got %d", nranks, rank);
    NEED_ARGUMENT(id, "CommGrow", "uniqueId");
    TRY(fake_current_device(&device, &ctx));
    TRY(fake_config_read(config, NULL, &mine));
    return fake_init_start(grow_job, NULL, newcomm, nranks, rank, id, &mine, device, ctx);
}

FAKE_API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t handle, ncclUniqueId *id))
{
    ncclUniqueId made;
    FAKE_ENTER(comm, handle, "CommGetUniqueId", true);
    TRY(id ? fake_boot_new_id(&made) : fake_null_argument("CommGetUniqueId", "uniqueId"));
    /* To itself, too: so that all ranks of the parent do the same. */
    for (int r = 0; r < comm->nranks && comm->nranks > 1; r++)
        TRY(fake_boot_send(comm, FAKE_BOOT_GROW, r, &made, sizeof(made)));
    *id = made;
    return ncclSuccess;
}

FAKE_API(ncclResult_t, ncclCommGrow,
         (ncclComm_t handle, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
          ncclConfig_t *config))
{
    struct ncclComm *parent = NULL;
    ncclResult_t result = ncclSuccess;
    NEED_ARGUMENT(newcomm, "CommGrow", "newcomm");
    REFUSE_IF(nranks <= 0, ncclInvalidArgument, "CommGrow : total ranks must be positive, got %d",
              nranks);
    __atomic_store_n(newcomm, NULL, __ATOMIC_RELEASE);
    fake_group_start();
    if (handle)
        result = fake_comm_enter(handle, "CommGrow", true, &parent);
    if (result == ncclSuccess)
        result = parent ? grow_from(parent, nranks, id, rank, config, newcomm)
                        : grow_into(nranks, id, rank, config, newcomm);
    fake_comm_put(parent);
    return leave(result);
}
