/*
 * A communicator that cannot be made, or used: `init_wrong WHAT CALL RANK [ERROR [REASON]]`. Rank
 * RANK (R) is the one that does it wrong, WHAT:
 *
 *   missing   it does not come
 *   kill      it kills itself instead
 *   rank      it calls itself by the number of the rank before it (rank 0: of rank 1)
 *   size      it says that there is one rank more
 *   id        it has a unique id of its own
 *   device    it uses the device of the rank before it
 *   version   it has another release of NCCL (the stand-ins know FAKE_NCCL_VERSION)
 *   variable  it has NCCL_RUNTIME_CONNECT=0: it connects the ranks where the others do not yet
 *   none      nothing
 *
 * CALL, in which the others wait for it: init, config, scalable, group (init inside a NCCL group),
 * split, shrink, grow (it is to join the others), finalize, destroy, cold (the first all-reduce),
 * cold-group.
 *
 * What each call returned and how long it took stands on stdout: "rank R: CommInitRank 6 after 2003
 * ms". It must be an error, ERROR where that is given ("-" any), and ncclGetLastError must hold
 * REASON ("-" anything), with the handle and without one. Then all ranks, those that live, make a
 * good communicator and use it: "rank R: works on".
 *
 * Exit status 0 if all is as it should be, 5 if not.
 */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#pragma weak ncclCommInitRankScalable
#pragma weak ncclCommShrink
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config);
#endif
#pragma weak ncclCommGetUniqueId
#pragma weak ncclCommGrow

enum { MISSING, KILL, RANK, SIZE, ID, DEVICE, VERSION, VARIABLE, NONE, WHAT_COUNT };
static const char *const whats[WHAT_COUNT] = {"missing", "kill",    "rank",     "size", "id",
                                              "device",  "version", "variable", "none"};

#define CALLS(CALL)                                                                                \
    CALL(INIT, "init"), CALL(CONFIG, "config"), CALL(SCALABLE, "scalable"), CALL(GROUP, "group"),  \
        CALL(SPLIT, "split"), CALL(SHRINK, "shrink"), CALL(GROW, "grow"),                          \
        CALL(FINALIZE, "finalize"), CALL(DESTROY, "destroy"), CALL(COLD, "cold"),                  \
        CALL(COLD_GROUP, "cold-group")
enum { CALLS(WORD_NUMBER), CALL_COUNT };
static const char *const wheres[CALL_COUNT] = {CALLS(WORD_TEXT)};

static unsigned what, where;
static int odd_rank, wanted_error = -1;
static const char *wanted_reason;
static cudaStream_t stream;
static float *buffer;

static bool is_odd(void)
{
    return place.rank == odd_rank && what != NONE;
}

/* Waits until all ranks that live have come to point `name`: files, as nothing else is sure to
 * work. */
static void meet(const char *name)
{
    const char *folder = getenv("SPAWN_DIR");
    char path[4000];
    long long until = now_ms() + 60000;
    WRONG_IF(!folder, "SPAWN_DIR", "not set");
    snprintf(path, sizeof(path), "%s/%s.%d", folder, name, place.rank);
    FILE *file = fopen(path, "w");
    WRONG_IF(!file || fclose(file), path, "cannot be made");
    for (int rank = 0; rank < place.nranks; rank++) {
        if (what == KILL && rank == odd_rank)
            continue;
        snprintf(path, sizeof(path), "%s/%s.%d", folder, name, rank);
        while (access(path, F_OK)) {
            WRONG_IF(now_ms() > until, path, "has not come");
            sleep_ms(10);
        }
    }
}

/* The call that was to fail has come back. */
static void judge(const char *name, ncclResult_t result, long long begun_ms, ncclComm_t comm)
{
    bool good = what == NONE
                    ? result == ncclSuccess
                    : result != ncclSuccess && (wanted_error < 0 || (int)result == wanted_error);
    printf("rank %d: %s %d after %lld ms\n", place.rank, name, result, now_ms() - begun_ms);
    fflush(stdout);
    if (!good) {
        fprintf(stderr, "rank %d: %s returned %d\n", place.rank, name, result);
        exit(5);
    }
    if (what != NONE && comm)
        expect_reason(comm, wanted_reason);
    if (what != NONE && where <= GROW)
        expect_reason(NULL, wanted_reason);
}

static ncclComm_t good_init(unsigned ordinal)
{
    struct place living = place;
    bool without = ordinal > 1 ? what == KILL : where == GROW;
    if (without && is_odd() && ordinal == 0)
        return NULL;
    if (without) {
        living.nranks--;
        living.rank -= place.rank > odd_rank;
    }
    ncclUniqueId id = exchange_id(&living, &options, ordinal);
    ncclComm_t comm;
    NCCL(ncclCommInitRank(&comm, living.nranks, id, living.rank));
    return comm;
}

static void use(ncclComm_t comm)
{
    int nranks;

    NCCL(ncclCommCount(comm, &nranks));
    sum_up(comm, 1, (float)nranks, buffer, stream);
}

static ncclResult_t all_reduce(ncclComm_t comm)
{
    return ncclAllReduce(buffer, buffer, SUM_COUNT, ncclFloat32, ncclSum, comm, stream);
}

static void do_wrong(void)
{
    fprintf(stderr, "rank %d (pid %d): %s in %s\n", place.rank, getpid(), whats[what],
            wheres[where]);
    if (what == KILL)
        kill(getpid(), SIGKILL);
}

/* The rank that is missing, and all others of a call on `comm`. */
static void wait_in(ncclComm_t comm)
{
    ncclComm_t child = NULL;
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    int left_out = odd_rank == 0 ? 1 : 0;

    if (where == FINALIZE || where == DESTROY) {
        use(comm); /* warm */
        if (!is_odd())
            NCCL(all_reduce(comm));
    }
    if (where == GROW && place.rank == (odd_rank == 0))
        NCCL(ncclCommGetUniqueId(comm, &id));
    if (is_odd()) {
        do_wrong();
        return;
    }
    long long begun = now_ms();
    switch (where) {
    case SPLIT:
        result = ncclCommSplit(comm, 0, place.rank, &child, NULL);
        break;
    case SHRINK:
        if (place.rank != left_out)
            result = ncclCommShrink(comm, &left_out, 1, &child, NULL, 0);
        else
            return;
        break;
    case GROW:
        result = ncclCommGrow(comm, place.nranks, NULL, -1, &child, NULL);
        break;
    case FINALIZE:
        result = ncclCommFinalize(comm);
        break;
    case DESTROY:
        result = ncclCommDestroy(comm);
        break;
    case COLD:
        result = all_reduce(comm);
        break;
    default:
        NCCL(ncclGroupStart());
        NCCL(all_reduce(comm));
        result = ncclGroupEnd();
    }
    judge(wheres[where], result, begun, where == DESTROY ? NULL : comm);
}

/* The wrong init itself. */
static void init_wrongly(void)
{
    int nranks = place.nranks, rank = place.rank, neighbour = rank ? rank - 1 : 1;
    ncclUniqueId id = exchange_id(&place, &options, 1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;

    if (is_odd()) {
        do_wrong();
        switch (what) {
        case MISSING:
            return;
        case RANK:
            rank = neighbour;
            break;
        case SIZE:
            nranks++;
            break;
        case ID:
            NCCL(ncclGetUniqueId(&id));
            break;
        case DEVICE:
            device_use(neighbour);
            break;
        default:
            break;
        }
    }
    long long begun = now_ms();
    switch (where) {
    case CONFIG:
        result = ncclCommInitRankConfig(&comm, nranks, id, rank, &config);
        break;
    case SCALABLE:
        result = ncclCommInitRankScalable(&comm, nranks, rank, 1, &id, &config);
        break;
    case GROUP:
        NCCL(ncclGroupStart());
        NCCL(ncclCommInitRank(&comm, nranks, id, rank));
        result = ncclGroupEnd();
        break;
    default:
        result = ncclCommInitRank(&comm, nranks, id, rank);
    }
    judge(wheres[where], result, begun, comm);
    if (what == DEVICE)
        device_use(place.local_rank);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 6 || (what = word_index(argv[1], whats, WHAT_COUNT)) == WHAT_COUNT ||
        (where = word_index(argv[2], wheres, CALL_COUNT)) == CALL_COUNT) {
        fprintf(stderr, "usage: init_wrong WHAT CALL RANK [ERROR [REASON]]\n");
        return 2;
    }
    odd_rank = atoi(argv[3]);
    if (argc > 4 && strcmp(argv[4], "-"))
        wanted_error = atoi(argv[4]);
    if (argc > 5 && strcmp(argv[5], "-"))
        wanted_reason = argv[5];
    place_init(&place, &options);
    if (is_odd() && what == VERSION)
        setenv("FAKE_NCCL_VERSION", "22605", 1);
    if (is_odd() && what == VARIABLE)
        setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    device_use(place.local_rank);
    stream = device_stream_create();
    buffer = device_alloc(SUM_COUNT * sizeof(*buffer));
    if (where <= GROUP) {
        init_wrongly();
    } else {
        ncclComm_t comm = good_init(0);
        wait_in(comm);
    }
    meet("failed");
    unsetenv("FAKE_NCCL_VERSION");
    unsetenv("NCCL_RUNTIME_CONNECT"); /* the stand-ins look again; NCCL has read it for good */
    ncclComm_t comm = good_init(2);
    use(comm);
    NCCL(ncclCommDestroy(comm));
    printf("rank %d: works on\n", place.rank);
    return 0;
}
