/*
 * The effect of injected faults on calls in core. Each test is a process of its own, since a
 * process arms its faults only once.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

static char handles[8][64];
static void *const COMM = handles[0];

/* Exit statuses of the children: 0 all was as expected; gtest's failures are lost with them, so
 * that what is expected is checked by hand. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* A process in which these faults are armed, with a communicator of four ranks, rank 0 of it. */
static int with(const char *faults, const std::function<int()> &body)
{
    return in_child([&] {
        made_arm(faults);
        made_begin(64);
        made_init(0, COMM, 4, 0, nullptr, ncclSuccess);
        CHECK(!made_is_usual());
        return body();
    });
}

/* A test whose body runs in a child, and gives back 0: in one like that, or in a fresh one. */
#define CHILD_TEST(name, status)                                                                   \
    int in_child_##name();                                                                         \
    TEST(Inject, name)                                                                             \
    {                                                                                              \
        EXPECT_EQ(status, 0);                                                                      \
    }                                                                                              \
    int in_child_##name()
#define WITH_FAULTS(name, faults) CHILD_TEST(name, with(faults, in_child_##name))
#define IN_A_CHILD(name)          CHILD_TEST(name, in_child(in_child_##name))

static void reduce(int times = 1)
{
    for (int i = 0; i < times; i++)
        made_all_reduce(0, COMM, made_stream(0), ncclSuccess);
}

static int call(unsigned op, void *comm = COMM)
{
    struct made_call what = {.op = op, .comm = comm, .stream = made_stream(0)};
    return made_call(0, &what);
}

static uint64_t entered()
{
    return group_of(COMM).entered;
}

WITH_FAULTS(SkipsACallThatNobodyHasSeen, "op=AllReduce,nth=3:skip")
{
    uint64_t seq;
    unsigned before = made_calls.reached;
    reduce(5);
    CHECK(made_calls.reached - before == 4);
    CHECK(entered() == 4);
    CHECK(made_happened(0, &seq) == 1 && seq == 3);
    return 0;
}

WITH_FAULTS(AnotherRanksFaultsAreNotOurs, "rank=1,op=AllReduce:skip")
{
    reduce(5);
    CHECK(entered() == 5 && made_happened(0, nullptr) == 0);
    return 0;
}

WITH_FAULTS(AnErrorIsNcclsAndIsRecorded, "op=AllReduce,nth=2:error=ncclSystemError")
{
    unsigned before = made_calls.reached;
    CHECK(call(NG_OP_AllReduce) == ncclSuccess);
    CHECK(call(NG_OP_AllReduce) == ncclSystemError);
    CHECK(made_calls.reached - before == 1);
    CHECK(made_newest_record().state == NG_RECORD_FAILED);
    CHECK(made_newest_record().result == ncclSystemError);
    CHECK(entered() == 1);
    return 0;
}

WITH_FAULTS(AnErrorInABatchIsWhatItsEndReturns,
            "op=AllReduce,nth=2:error=ncclSystemError;op=GroupEnd,nth=2:error=ncclInternalError")
{
    made_group_start(0);
    CHECK(call(NG_OP_AllReduce) == ncclSuccess);
    CHECK(call(NG_OP_AllReduce) == ncclSystemError);
    CHECK(call(NG_OP_GroupEnd) == ncclSystemError);
    CHECK(made_calls.spoiled == 1 && entered() == 0);
    unsigned before = made_calls.reached;
    made_group_start(0);
    CHECK(call(NG_OP_AllReduce) == ncclSuccess);
    CHECK(call(NG_OP_GroupEnd) == ncclInternalError);
    CHECK(made_calls.reached - before == 3); /* NCCL's group is closed, too */
    CHECK(made_calls.spoiled == 2 && entered() == 0);
    CHECK(call(NG_OP_AllReduce) == ncclSuccess && entered() == 1);
    return 0;
}

WITH_FAULTS(ArgumentsAreThoseThatNcclGets,
            "op=AllReduce,nth=1:count=+1;op=AllReduce,nth=2:dtype=float16;"
            "op=AllReduce,nth=3:redop=max;op=Broadcast,nth=1:root=3;op=Send:root=+5;"
            "op=Broadcast,nth=2:count=-99")
{
    CHECK(call(NG_OP_AllReduce) == 0 && made_seen().count == 5 && made_seen().dtype == 7);
    CHECK(call(NG_OP_AllReduce) == 0 && made_seen().count == 4 && made_seen().dtype == 6);
    CHECK(call(NG_OP_AllReduce) == 0 && made_seen().redop == 2);
    CHECK(call(NG_OP_AllReduce) == 0 && made_seen().redop == 0);
    CHECK(call(NG_OP_Broadcast) == 0 && made_seen().root == 3);
    CHECK(call(NG_OP_Send) == 0 && made_seen().root == (1 + 5) % 4);
    CHECK(call(NG_OP_Broadcast) == 0 && made_seen().count == 0);
    return 0;
}

WITH_FAULTS(SwappedCallsExchangeTheirPlaces, "op=AllReduce,nth=2:swap")
{
    reduce();
    unsigned before = made_calls.reached;
    CHECK(call(NG_OP_AllReduce) == ncclSuccess);
    CHECK(made_calls.reached == before && entered() == 1);
    CHECK(call(NG_OP_Send) == ncclSuccess); /* no collective: it does not wait for it */
    CHECK(made_calls.reached == before + 1);
    CHECK(call(NG_OP_Broadcast) == ncclSuccess);
    CHECK(made_calls.reached == before + 3 && entered() == 3);
    CHECK(made_seen().op == NG_OP_AllReduce);
    return 0;
}

WITH_FAULTS(WhatIsSwappedWithNothingIsLeftOut, "op=AllReduce,nth=2:swap")
{
    reduce(2);
    CHECK(entered() == 1);
    made_destroy(0, COMM, ncclSuccess);
    unsigned before = made_calls.reached;
    made_init(0, COMM, 4, 0, nullptr, ncclSuccess);
    reduce();
    CHECK(made_calls.reached == before + 2);
    return 0;
}

static int answer_of(void *comm)
{
    int answer = -1;
    struct made_call what = {.op = NG_OP_CommGetAsyncError, .comm = comm, .answer = &answer};
    what.inside = [](void *argument) { return *(int *)argument = 0; };
    what.argument = &answer;
    return made_call(0, &what) ? -2 : answer;
}

WITH_FAULTS(AnAsynchronousErrorStaysWithItsCommunicator,
            "op=AllReduce,nth=2:async-error=ncclRemoteError")
{
    reduce();
    CHECK(answer_of(COMM) == ncclSuccess);
    reduce();
    CHECK(answer_of(COMM) == ncclRemoteError);
    CHECK(answer_of(COMM) == ncclRemoteError);
    CHECK(group_of(COMM).async_error == ncclRemoteError);
    made_init(0, handles[1], 4, 0, nullptr, ncclSuccess);
    CHECK(answer_of(handles[1]) == ncclSuccess);
    made_destroy(0, COMM, ncclSuccess);
    made_init(0, COMM, 4, 0, nullptr, ncclSuccess); /* the same handle, another one */
    CHECK(answer_of(COMM) == ncclSuccess);
    return 0;
}

WITH_FAULTS(OnlyANonblockingCommunicatorIsInProgress, "op=AllReduce:in-progress=300ms")
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(call(NG_OP_AllReduce) == ncclSuccess);
    CHECK(made_happened(0, nullptr) == 0);
    made_init(0, handles[1], 4, 0, &config, ncclSuccess);
    int64_t begun = ng_clock_mono_ns();
    CHECK(call(NG_OP_AllReduce, handles[1]) == ncclInProgress);
    CHECK(answer_of(handles[1]) == ncclInProgress || ng_clock_mono_ns() - begun >= 300 * NG_MS);
    CHECK(answer_of(COMM) == ncclSuccess);
    while (answer_of(handles[1]) == ncclInProgress)
        CHECK(ng_clock_mono_ns() - begun < 20 * NG_S);
    CHECK(ng_clock_mono_ns() - begun >= 300 * NG_MS);
    CHECK(answer_of(handles[1]) == ncclSuccess);
    return 0;
}

WITH_FAULTS(ACommunicatorIsMadeWithAnotherIdOrSize,
            "op=CommInitRankConfig,nth=2:bad-id;op=CommInitRankConfig,nth=3:bad-nranks")
{
    CHECK(made_seen().unique_id[127] == 0 && made_seen().nranks == 4);
    made_init(0, handles[1], 4, 0, nullptr, ncclSuccess);
    CHECK(made_seen().unique_id[127] == 0x5a && made_seen().nranks == 4);
    made_init(0, handles[2], 4, 0, nullptr, ncclSuccess);
    CHECK(made_seen().unique_id[127] == 0 && made_seen().nranks == 5);
    CHECK(made_group_of(handles[1], nullptr) && group_of(handles[2]).nranks == 5);
    return 0;
}

WITH_FAULTS(DelaysACall, "op=AllReduce,nth=1:delay=200ms")
{
    int64_t begun = ng_clock_mono_ns();
    reduce();
    CHECK(ng_clock_mono_ns() - begun >= 200 * NG_MS);
    CHECK(entered() == 1);
    return 0;
}

TEST(Inject, EndsTheProcess)
{
    auto die = [] {
        reduce(2);
        return 0;
    };
    EXPECT_EQ(with("op=AllReduce,nth=2:exit=7", die), 7);
    EXPECT_EQ(with("op=AllReduce,nth=2:kill", die), -SIGKILL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_EQ(with("op=AllReduce,nth=2:segv", die), -SIGSEGV);
#endif
    EXPECT_EQ(with("op=AllReduce,nth=3:kill", die), 0);
}

/* Neither a signal's handler nor a cancellation frees it. */
WITH_FAULTS(HangsForGood, "op=AllReduce,nth=2:hang")
{
    static std::atomic<bool> back;
    signal(SIGUSR1, [](int) {});
    reduce();
    pthread_t thread;
    auto body = [](void *) -> void * {
        reduce();
        back = true;
        return nullptr;
    };
    pthread_create(&thread, nullptr, body, nullptr);
    for (int64_t begun = ng_clock_mono_ns(); !made_happened(0, nullptr);)
        CHECK(ng_clock_mono_ns() - begun < 20 * NG_S);
    pthread_kill(thread, SIGUSR1);
    pthread_cancel(thread);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    CHECK(pthread_timedjoin_np(thread, nullptr, &until) == ETIMEDOUT);
    CHECK(!back && entered() == 1);
    return 0;
}

WITH_FAULTS(AnAbortThatHangsIsStuck, "rank=0:abort-hang")
{
    char why[320];
    reduce();
    uint64_t id = group_of(COMM).id;
    CHECK(made_policy_abort(&id, 1, "a test", 300) == 0);
    /* Its thread may have come to nothing when the time is over. */
    for (int64_t begun = ng_clock_mono_ns();
         !made_stuck(why, sizeof(why)) || !made_happened(0, nullptr);)
        CHECK(ng_clock_mono_ns() - begun < 20 * NG_S);
    CHECK(made_aborts(COMM) == 0);
    CHECK(made_happened(0, nullptr) == 1);
    return 0;
}

/* A child of a process with threads that starts its own: not under the sanitizers, whose allocators
 * keep for ever a lock that another thread had at the fork. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
WITH_FAULTS(AForkedChildCountsForItself, "op=AllReduce,nth=3:skip")
{
    reduce(2);
    return in_child([] {
        made_fork_child();
        made_init(0, handles[1], 4, 0, nullptr, ncclSuccess);
        unsigned before = made_calls.reached;
        for (int i = 0; i < 4; i++)
            call(NG_OP_AllReduce, handles[1]);
        uint64_t seq;
        CHECK(made_calls.reached - before == 3);
        CHECK(made_happened(0, &seq) == 1 && seq == 3);
        return 0;
    });
}
#endif

static IN_A_CHILD(AMistakeInjectsNothingAndIsTold)
{
    Folder folder;
    ng_log_init(NG_LOG_DEBUG, (folder / "log").c_str(), 0);
    made_arm("op=AllReduce:skp");
    made_begin(64);
    made_init(0, COMM, 4, 0, nullptr, ncclSuccess);
    reduce(3);
    CHECK(entered() == 3);
    CHECK(read_whole_file(folder / "log")
              .find("NCCLGUARD_FAULT: column 14: skp is no fault; possible: hang") !=
          std::string::npos);
    return 0;
}

static IN_A_CHILD(RanksThatDoNotExistAreTold)
{
    Folder folder;
    ng_log_init(NG_LOG_DEBUG, (folder / "log").c_str(), 0);
    made_arm("rank=2:hang;rank=1:hang");
    made_begin(64);
    made_init(0, COMM, 2, 0, nullptr, ncclSuccess);
    std::string log = read_whole_file(folder / "log");
    CHECK(log.find("there is no rank 2 among 2: rank=2:hang cannot happen") != std::string::npos);
    CHECK(log.find("there is no rank 1") == std::string::npos);
    return 0;
}

/* Else nothing would show that the device does not get to the call. */
TEST(Inject, AStallOfTheDeviceEndsABurst)
{
    EXPECT_EQ(with("op=AllReduce,every=1:gpu-stall",
                   [] {
                       for (int i = 0; i < 1000; i++) {
                           unsigned before = made_calls.recorded_events;
                           reduce();
                           CHECK(made_calls.recorded_events - before == 2);
                       }
                       return 0;
                   }),
              0);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    /* Without one, some call follows the one before it at once. */
    EXPECT_EQ(with("op=AllReduce,nth=1:gpu-stall",
                   [] {
                       unsigned before = made_calls.recorded_events;
                       reduce(1000);
                       CHECK(made_calls.recorded_events - before < 2000);
                       return 0;
                   }),
              0);
#endif
}

/* One process that drives several devices: ranks are those of the largest group. */
static IN_A_CHILD(RanksOfSeveralDevicesAreThoseOfTheLargestGroup)
{
    made_arm("rank=3,op=AllReduce:skip;rank=0,op=Broadcast:skip");
    made_begin(64);
    void *all[4] = {handles[0], handles[1], handles[2], handles[3]};
    made_init_all(0, all, 4);
    unsigned before = made_calls.reached;
    for (void *comm : all)
        call(NG_OP_AllReduce, comm);
    CHECK(made_calls.reached - before == 3);
    CHECK(made_group_of(handles[3], nullptr) && group_of(handles[3]).entered == 0);
    /* Also in a smaller one, in which it has another rank. */
    made_init(0, handles[4], 2, 1, nullptr, ncclSuccess);
    before = made_calls.reached;
    call(NG_OP_Broadcast, handles[4]);
    CHECK(made_calls.reached == before);
    return 0;
}
