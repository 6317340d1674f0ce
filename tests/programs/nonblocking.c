/*
 * A program whose communicators are nonblocking by its own wish: `nonblocking MODE OPTIONS…`. It
 * asks for the state after each call until that is no longer in progress, and tells on stdout what
 * every call returned and what came of it, so that a run can be compared with another.
 *
 * - each: one after the other init, a group of two inits, split, collectives, a group of
 * collectives on two communicators, shrink, finalize, destroy
 * - missing: collectives alone, for the faults
 * - abort-init: the last rank does not come to init; the others ask for half a second and abort;
 * then all make another one
 */
#include "tests/programs/common.h"

#include <stdio.h>

/* The state after the call, once it is none of being in progress, or `bound_ms` are over. */
static ncclResult_t settle(ncclComm_t comm, long bound_ms)
{
    ncclResult_t state = ncclInProgress;
    for (long waited_ms = 0; state == ncclInProgress && waited_ms < bound_ms; waited_ms++) {
        ncclResult_t result = ncclCommGetAsyncError(comm, &state);
        if (result != ncclSuccess)
            return result;
        if (state == ncclInProgress)
            sleep_ms(1);
    }
    return state;
}

static void tell(const char *what, ncclResult_t result, ncclComm_t comm)
{
    ncclResult_t state = settle(comm, 600000);
    printf("rank %d: %s %d then %d\n", place.rank, what, result, state);
    fflush(stdout);
    WRONG_IF(state != ncclSuccess, what, ncclGetErrorString(state));
}

static ncclConfig_t nonblocking_config(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

static ncclResult_t begin_init(ncclComm_t *ret_comm, unsigned ordinal)
{
    ncclConfig_t config = nonblocking_config();
    ncclUniqueId id = exchange_id(&place, &options, ordinal);
    fault_no_init(&options, place.rank);
    return ncclCommInitRankConfig(ret_comm, place.nranks, id, place.rank, &config);
}

static ncclComm_t init(unsigned ordinal)
{
    ncclComm_t comm = NULL;
    ncclResult_t result = begin_init(&comm, ordinal);
    tell("CommInitRankConfig", result, comm);
    return comm;
}

/* What a member does in one call, with the program's own waiting in between. */
static void collective(struct member *member, const char *what)
{
    ncclComm_t comm = member->comm;
    member_prepare(member, OP_ALLREDUCE);
    struct slot *slot = &member->slots[member->issued];
    struct call call = slot->call;
    bool wanted =
        face_faults(&options, place.rank, member->name, ++member->calls, &call, member->stream);
    ncclResult_t result = wanted ? ncclAllReduce(slot->device_in, slot->device_out, call.count,
                                                 call.dtype, call.redop, comm, member->stream)
                                 : ncclSuccess;
    slot->issued = slot->honest = wanted;
    member->issued++;
    member->made++;
    tell(what, result, comm);
    member_collect(member);
    member_drain(member);
}

static void join(struct member *ret_member, const char *name, ncclComm_t comm)
{
    member_init(ret_member, &options, name, place.rank, comm, 1);
}

static void end(ncclComm_t comm)
{
    tell("CommFinalize", ncclCommFinalize(comm), comm);
    printf("rank %d: CommDestroy %d\n", place.rank, ncclCommDestroy(comm));
}

static void two_in_a_group(struct member *one, struct member *other)
{
    struct member *members[] = {one, other};
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        struct member *member = members[i];
        member_prepare(member, OP_ALLREDUCE);
        struct slot *slot = &member->slots[member->issued++];
        printf("rank %d: in the group %d\n", place.rank,
               ncclAllReduce(slot->device_in, slot->device_out, slot->call.count, slot->call.dtype,
                             slot->call.redop, member->comm, member->stream));
        slot->issued = slot->honest = true;
        member->calls++;
        member->made++;
    }
    ncclResult_t result = ncclGroupEnd();
    for (int i = 0; i < 2; i++) {
        tell("GroupEnd", result, members[i]->comm);
        member_collect(members[i]);
        member_drain(members[i]);
    }
}

static void each(void)
{
    ncclComm_t world = init(0), second = NULL, half = NULL, fewer = NULL;
    struct member members[4];
    NCCL(ncclGroupStart());
    printf("rank %d: in the group %d\n", place.rank, begin_init(&second, 1));
    ncclResult_t result = ncclGroupEnd();
    tell("GroupEnd of an init", result, second);
    tell("CommSplit", ncclCommSplit(world, place.rank % 2, place.rank, &half, NULL), world);
    join(&members[0], "world", world);
    join(&members[1], "second", second);
    join(&members[2], "half", half);
    for (unsigned long i = 0; i < options.iters; i++) {
        collective(&members[0], "AllReduce");
        collective(&members[1], "AllReduce of another");
        collective(&members[2], "AllReduce of a half");
        two_in_a_group(&members[0], &members[1]);
    }
    const struct member *told[4] = {&members[0], &members[1], &members[2], &members[3]};
    int count = 3, last = place.nranks - 1;
    if (place.rank != last && place.nranks > 1) {
        tell("CommShrink", ncclCommShrink(world, &last, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT),
             world);
        join(&members[count++], "fewer", fewer);
        collective(&members[3], "AllReduce of fewer");
    }
    if (fewer)
        end(fewer);
    end(half);
    end(second);
    end(world);
    report(place.rank, told, count);
    for (int i = 0; i < count; i++)
        member_fini(&members[i]);
}

static void missing(void)
{
    ncclComm_t world = init(0);
    struct member member;
    join(&member, "world", world);
    for (unsigned long i = 0; i < options.iters; i++)
        collective(&member, "AllReduce");
    end(world);
    report(place.rank, (const struct member *const[]){&member}, 1);
    member_fini(&member);
}

static void abort_init(void)
{
    ncclComm_t comm = NULL;
    if (place.rank != place.nranks - 1) {
        ncclResult_t result = begin_init(&comm, 0);
        ncclResult_t state = settle(comm, 500);
        printf("rank %d: CommInitRankConfig %d then %d\n", place.rank, result, state);
        printf("rank %d: CommAbort %d\n", place.rank, ncclCommAbort(comm));
    }
    comm = init(1);
    end(comm);
    report(place.rank, NULL, 0);
}

static const struct mode modes[] = {
    {"each", each}, {"missing", missing}, {"abort-init", abort_init}, {NULL}};

int main(int argc, char **argv)
{
    mode_begin(modes, 0, argc, argv)->run();
    return 0;
}
