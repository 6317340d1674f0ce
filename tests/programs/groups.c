/*
 * Communicators that come and go as programs do it: `groups MODE OPTIONS…`. Nothing is wrong in any
 * mode, and every rank ends with the line of report().
 *
 * - orders: three of all ranks and one of half of them, used in turn; even ranks end them in the
 * order in which they were made, odd ones in reverse; one of the four is never used
 * - left-out: two splits in turn, each of which leaves out every other rank; whoever is left out
 * works on in the world
 * - kept: as orders, but nobody ends any
 * - abort-idle: each iteration a communicator is made, used, and aborted by everybody instead of
 * destroyed
 * - abort-blocked: the last rank leaves out a collective; on all others a second thread aborts the
 * communicator under the first one, which waits for its stream; then all go on with a new one
 * - abort-cold: the same while the first thread is inside its first call on the communicator
 * - abort-waiting: as abort-blocked; the guard may have the call wait before it is made, and then
 *   return an error
 */
#include "tests/programs/common.h"

#include <stdatomic.h>

enum { FIRST, SECOND, UNUSED, PART, COMMUNICATORS };

static const struct mode *mode;

static bool is(const char *name)
{
    return strcmp(mode->name, name) == 0;
}

static void use(struct member *member)
{
    run_iterations(member, 1, call_by_call);
}

static void join(struct member *ret_member, const char *name, ncclComm_t comm)
{
    member_init(ret_member, &options, name, place.rank, comm,
                slots_needed(&options, iteration_calls(&options)));
}

static void orders(void)
{
    bool end = is("orders");
    ncclComm_t comms[COMMUNICATORS];
    struct member members[COMMUNICATORS];
    const struct member *told[COMMUNICATORS];
    for (int i = 0; i < PART; i++)
        comms[i] = world_init(&place, &options, (unsigned)i);
    NCCL(ncclCommSplit(comms[FIRST], place.rank % 2, place.rank, &comms[PART], NULL));
    for (int i = 0; i < COMMUNICATORS; i++) {
        join(&members[i], "world", comms[i]);
        told[i] = &members[i];
        if (i != UNUSED)
            use(&members[i]);
    }
    for (int i = 0; end && i < COMMUNICATORS; i++)
        comm_destroy(comms[place.rank % 2 ? COMMUNICATORS - 1 - i : i], &options);
    report(place.rank, told, COMMUNICATORS);
    for (int i = 0; i < COMMUNICATORS; i++)
        member_fini(&members[i]);
}

static void left_out(void)
{
    ncclComm_t comm = world_init(&place, &options, 0), part[2];
    struct member world, half;
    for (int i = 0; i < 2; i++)
        NCCL(ncclCommSplit(comm, place.rank % 2 == i ? i : NCCL_SPLIT_NOCOLOR, place.rank, &part[i],
                           NULL));
    WRONG_IF(part[1 - place.rank % 2], "ncclCommSplit", "who has no color has a communicator");
    join(&half, "half", part[place.rank % 2]);
    join(&world, "world", comm);
    use(&half);
    use(&world);
    comm_destroy(part[place.rank % 2], &options);
    comm_destroy(comm, &options);
    report(place.rank, (const struct member *const[]){&half, &world}, 2);
    member_fini(&world);
    member_fini(&half);
}

static void abort_idle(void)
{
    struct member member;
    for (unsigned i = 0; i < 5; i++) {
        join(&member, "world", world_init(&place, &options, i));
        use(&member);
        NCCL(ncclCommAbort(member.comm));
        if (i < 4)
            member_fini(&member);
    }
    report(place.rank, (const struct member *const[]){&member}, 1);
    member_fini(&member);
}

static atomic_bool calling; /* the first thread comes to its call now, or makes none */

/* The second thread gives the first one the time to get stuck: without it the abort is only
 * earlier. But not before the call: that would be one on a communicator that is gone. */
static void *abort_later(void *comm)
{
    while (!calling)
        sleep_ms(1);
    sleep_ms(300);
    NCCL(ncclCommAbort(comm));
    return NULL;
}

/* `waiting`: with NCCLGUARD_CHECK=strict the call may be aborted before it is made. */
static void abort_under_way(void)
{
    bool cold = is("abort-cold"), waiting = is("abort-waiting");
    ncclComm_t comm = world_init(&place, &options, 0);
    cudaStream_t stream = device_stream_create();
    float *buffer = device_alloc(1024 * sizeof(*buffer));
    struct member member;
    if (!cold) {
        NCCL(ncclAllReduce(buffer, buffer, 1024, ncclFloat32, ncclSum, comm, stream));
        device_stream_sync(stream);
    }
    calling = false;
    pthread_t other = thread_start(abort_later, comm);
    calling = true;
    if (place.rank != place.nranks - 1) {
        /* Cold, the call returns an error; warm, it is the stream that is given free. */
        ncclResult_t result =
            ncclAllReduce(buffer, buffer, 1024, ncclFloat32, ncclSum, comm, stream);
        bool right = cold || result == ncclSuccess || (waiting && result == ncclInternalError);
        WRONG_IF(!right, "ncclAllReduce", ncclGetErrorString(result));
        device_stream_sync(stream);
    }
    pthread_join(other, NULL);
    join(&member, "world", world_init(&place, &options, 1));
    use(&member);
    member_end(&member);
    device_free(buffer);
    device_stream_destroy(stream);
}

static const struct mode modes[] = {
    {"orders", orders},
    {"left-out", left_out},
    {"kept", orders},
    {"abort-idle", abort_idle},
    {"abort-blocked", abort_under_way},
    {"abort-cold", abort_under_way},
    {"abort-waiting", abort_under_way},
    {NULL},
};

int main(int argc, char **argv)
{
    mode = mode_begin(modes, TAKES_OP, argc, argv);
    mode->run();
    return 0;
}
