/*
 * What the wrappers tell core: the fields of a call, and which calls they keep to themselves.
 */
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>

#include "tests/unit/shim/probe.h"
#include "tests/unit/shim/recording_nccl.h"

static ncclComm_t const comm = (ncclComm_t)0x1230;
static cudaStream_t const stream = (cudaStream_t)0x4560;
static char send_memory[8], recv_memory[8];

static void call_all_reduce()
{
    ncclAllReduce(send_memory, recv_memory, 5, ncclFloat32, ncclMax, comm, stream);
}

struct Record : testing::Test {
    void SetUp() override
    {
        probe_set_active(true);
        probe_clear();
        before_ = recording_of(RECORDING_AllReduce).calls;
    }

    void TearDown() override
    {
        probe_set_hook(nullptr);
        probe_set_answer(NG_CALL_PROCEED);
        for (int id = 0; id < RECORDING_COUNT; id++)
            recording_set_hook((recording_id)id, nullptr);
        probe_set_active(false);
    }

    /* The only call recorded. */
    static struct ng_call only()
    {
        EXPECT_EQ(probe_call_count(), 1u);
        return probe_call_at(0).call;
    }
    /* All-reduces that have reached the library in this test. */
    uint64_t reached() const
    {
        return recording_of(RECORDING_AllReduce).calls - before_;
    }

    uint64_t before_ = 0;
};

static void expect_call(const struct ng_call &call, ng_op op, ncclComm_t of, cudaStream_t on,
                        const void *send, const void *recv, size_t count, int dtype, int redop,
                        int root)
{
    EXPECT_EQ(call.op, op);
    EXPECT_EQ(call.comm, of);
    EXPECT_EQ(call.stream, on);
    EXPECT_EQ(call.send_buffer, send);
    EXPECT_EQ(call.recv_buffer, recv);
    EXPECT_EQ(call.count, count);
    EXPECT_EQ(call.dtype, dtype);
    EXPECT_EQ(call.redop, redop);
    EXPECT_EQ(call.root, root);
}

TEST_F(Record, FieldsThatAnApiHasNotAreNone)
{
    ncclGroupStart();
    expect_call(only(), NG_OP_GroupStart, nullptr, nullptr, nullptr, nullptr, 0, -1, -1, -1);
    EXPECT_EQ(only().creation, nullptr);
}

TEST_F(Record, TheShimKnowsWhatIsUnusualAboutIt)
{
    /* As core/runtime/unusual.h has them. */
    const unsigned forwarded = 2, libraries = 4;

    call_all_reduce();
    EXPECT_FALSE(probe_unusual() & (forwarded | libraries)) << "one library, and calls reach core";
    probe_set_active(false);
    EXPECT_TRUE(probe_unusual() & forwarded);
}

TEST_F(Record, AllReduce)
{
    call_all_reduce();
    expect_call(only(), NG_OP_AllReduce, comm, stream, send_memory, recv_memory, 5, ncclFloat32,
                ncclMax, -1);
}

TEST_F(Record, BcastIsABroadcastInPlace)
{
    ncclBcast(send_memory, 6, ncclInt8, 3, comm, stream);
    expect_call(only(), NG_OP_Broadcast, comm, stream, send_memory, send_memory, 6, ncclInt8, -1,
                3);
}

TEST_F(Record, SendAndRecvNameTheirPeer)
{
    ncclSend(send_memory, 4, ncclInt32, 2, comm, stream);
    ncclRecv(recv_memory, 9, ncclInt64, 1, comm, stream);
    ASSERT_EQ(probe_call_count(), 2u);
    expect_call(probe_call_at(0).call, NG_OP_Send, comm, stream, send_memory, nullptr, 4, ncclInt32,
                -1, 2);
    expect_call(probe_call_at(1).call, NG_OP_Recv, comm, stream, nullptr, recv_memory, 9, ncclInt64,
                -1, 1);
}

TEST_F(Record, InitRankShowsTheIdAndWhereTheHandleGoes)
{
    ncclUniqueId id;
    ncclComm_t made = nullptr;

    for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++)
        id.internal[i] = (char)i;
    ncclCommInitRank(&made, 8, id, 5);
    struct ng_call call = only();
    struct ng_creation creation = probe_call_at(0).creation;

    EXPECT_EQ(call.op, NG_OP_CommInitRank);
    EXPECT_EQ(call.comm, nullptr);
    EXPECT_EQ(creation.unique_id_count, 1);
    EXPECT_EQ(memcmp(probe_call_at(0).unique_id, &id, sizeof(id)), 0);
    EXPECT_EQ(creation.nranks, 8);
    EXPECT_EQ(creation.rank, 5);
    EXPECT_EQ(creation.new_comm, &made);
    EXPECT_EQ(creation.config, nullptr);
}

TEST_F(Record, InitAllShowsTheDevices)
{
    ncclComm_t made[3] = {};
    const int devices[3] = {2, 0, 1};

    ncclCommInitAll(made, 3, devices);
    ncclCommInitAll(made, 2, nullptr);
    struct ng_creation some = probe_call_at(0).creation;
    struct ng_creation all = probe_call_at(1).creation;

    EXPECT_EQ(some.nranks, 3);
    EXPECT_EQ(some.rank, -1);
    EXPECT_EQ(some.list, devices);
    EXPECT_EQ(some.list_count, 3);
    EXPECT_EQ(some.new_comm, made);
    EXPECT_EQ(all.nranks, 2);
    EXPECT_EQ(all.list, nullptr);
    EXPECT_EQ(all.list_count, 0);
}

TEST_F(Record, SplitShowsParentColorAndKey)
{
    ncclComm_t made = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    ncclCommSplit(comm, 7, -3, &made, &config);
    struct ng_call call = only();
    struct ng_creation creation = probe_call_at(0).creation;

    EXPECT_EQ(call.op, NG_OP_CommSplit);
    EXPECT_EQ(call.comm, comm);
    EXPECT_EQ(creation.color, 7);
    EXPECT_EQ(creation.key, -3);
    EXPECT_EQ(creation.new_comm, &made);
    EXPECT_EQ(creation.config, &config);
    EXPECT_EQ(creation.unique_ids, nullptr);
}

/* Arguments that no call of these tests has, of the types that they have. */
static void change_all(struct ng_call *call)
{
    static struct ng_creation changed;

    call->count = 77;
    call->dtype = ncclFloat64;
    call->redop = ncclMin;
    call->root = 6;
    if (!call->creation)
        return;
    changed = *call->creation;
    changed.nranks = 99;
    call->creation = &changed;
}

template <typename... Arguments> static uint64_t hash_of(Arguments... arguments)
{
    return recording_hash(std::tuple<Arguments...>(arguments...));
}

#define EXPECT_ARRIVED(name, ...)                                                                  \
    EXPECT_EQ(recording_of(RECORDING_##name).hash, hash_of(__VA_ARGS__))

/* What an injected fault makes of a call is what NCCL gets, and what core is told. */
TEST_F(Record, InjectedFaultsChangeWhatNcclGets)
{
    const void *send = send_memory;
    void *recv = recv_memory;
    const size_t count = 77;
    auto dtype = ncclFloat64;
    auto redop = ncclMin;
    ncclUniqueId id = {};
    ncclComm_t made = nullptr;

    probe_inject(change_all);
    call_all_reduce();
    EXPECT_EQ(only().count, 77u);
    EXPECT_ARRIVED(AllReduce, send, recv, count, dtype, redop, comm, stream);
    ncclBcast(recv_memory, 6, ncclInt8, 3, comm, stream);
    EXPECT_ARRIVED(Bcast, recv, count, dtype, 6, comm, stream);
    ncclBroadcast(send_memory, recv_memory, 6, ncclInt8, 3, comm, stream);
    EXPECT_ARRIVED(Broadcast, send, recv, count, dtype, 6, comm, stream);
    ncclReduce(send_memory, recv_memory, 6, ncclInt8, ncclSum, 3, comm, stream);
    EXPECT_ARRIVED(Reduce, send, recv, count, dtype, redop, 6, comm, stream);
    ncclAllGather(send_memory, recv_memory, 6, ncclInt8, comm, stream);
    EXPECT_ARRIVED(AllGather, send, recv, count, dtype, comm, stream);
    ncclReduceScatter(send_memory, recv_memory, 6, ncclInt8, ncclSum, comm, stream);
    EXPECT_ARRIVED(ReduceScatter, send, recv, count, dtype, redop, comm, stream);
    ncclSend(send_memory, 4, ncclInt32, 2, comm, stream);
    EXPECT_ARRIVED(Send, send, count, dtype, 6, comm, stream);
    ncclRecv(recv_memory, 4, ncclInt32, 2, comm, stream);
    EXPECT_ARRIVED(Recv, recv, count, dtype, 6, comm, stream);
    ncclCommInitRank(&made, 8, id, 5);
    EXPECT_ARRIVED(CommInitRank, &made, 99, id, 5);
    probe_inject(nullptr);
    call_all_reduce();
    EXPECT_ARRIVED(AllReduce, send, recv, (size_t)5, ncclFloat32, ncclMax, comm, stream);
}

TEST_F(Record, PassedFunctionsAreNot)
{
    int count = 0;

    ncclCommCount(comm, &count);
    ncclGetErrorString(ncclSuccess);
    EXPECT_EQ(probe_call_count(), 0u);
    EXPECT_EQ(recording_of(RECORDING_CommCount).calls, 1u);
}

TEST_F(Record, PassedFunctionsThatFailAreTold)
{
    int count = 0;
    const int failed = (int)recording_value<ncclResult_t>(RECORDING_CommCount);

    ncclCommCount(comm, &count);
    EXPECT_STREQ(probe_log(), "") << "it succeeded";
    recording_set_distinct(true, 0);
    errno = 0;
    ncclCommCount(comm, &count);
    ncclGetErrorString(ncclSuccess); /* no result, whatever it returns */
    EXPECT_EQ(errno, 0) << "as NCCL left it";
    std::string log = probe_log();
    EXPECT_EQ(log.find("failed: ncclCommCount of "), 0u) << log;
    EXPECT_NE(log.find(": " + std::to_string(failed) + "\n"), std::string::npos) << log;
    EXPECT_EQ(log.find("failed:", 1), std::string::npos) << log;
    /* One that NCCL makes itself, inside a call of the program, is its own affair. */
    probe_clear();
    recording_set_hook(RECORDING_MemAlloc, [] {
        int inner;
        ncclCommCount(comm, &inner);
    });
    void *pointer = nullptr;
    ncclMemAlloc(&pointer, 8);
    log = probe_log();
    EXPECT_EQ(log.find("CommCount"), std::string::npos) << log;
    recording_set_distinct(false, 0);
}

TEST_F(Record, NcclCallingItselfInsideACallIsNot)
{
    recording_set_hook(RECORDING_Bcast, [] { recording_call_from_inside(); });
    ncclBcast(send_memory, 6, ncclInt8, 3, comm, stream);
    EXPECT_EQ(only().op, NG_OP_Broadcast);
    EXPECT_EQ(reached(), 1u);
}

TEST_F(Record, NcclCallingItselfFromItsOwnThreadIsNot)
{
    std::thread(recording_call_from_inside).join();
    EXPECT_EQ(probe_call_count(), 0u);
    EXPECT_EQ(reached(), 1u);
}

/* The return address here is the program's, as it is when NCCL jumps instead of calling. */
TEST_F(Record, ACallInsideACallIsNot)
{
    recording_set_hook(RECORDING_Bcast, call_all_reduce);
    ncclBcast(send_memory, 6, ncclInt8, 3, comm, stream);
    EXPECT_EQ(only().op, NG_OP_Broadcast);
    EXPECT_EQ(reached(), 1u);
}

TEST_F(Record, ACallInsideAPassedCallIsNot)
{
    void *pointer = nullptr;

    recording_set_hook(RECORDING_MemAlloc, call_all_reduce);
    ncclMemAlloc(&pointer, 8);
    EXPECT_EQ(probe_call_count(), 0u);
    EXPECT_EQ(reached(), 1u);
    call_all_reduce();
    EXPECT_EQ(probe_call_count(), 1u) << "the depth stayed up";
}

TEST_F(Record, CallsThatCoreMakesAreNot)
{
    probe_set_hook(call_all_reduce);
    ncclBcast(send_memory, 6, ncclInt8, 3, comm, stream);
    probe_set_hook(nullptr);
    EXPECT_EQ(only().op, NG_OP_Broadcast);
    EXPECT_EQ(reached(), 2u);
}

TEST_F(Record, CallsOfTheGuardsOwnThreadsAreNot)
{
    std::thread([] {
        probe_adopt_thread();
        call_all_reduce();
        call_all_reduce();
    }).join();
    EXPECT_EQ(probe_call_count(), 0u);
    EXPECT_EQ(reached(), 2u);
}

TEST_F(Record, ACallUnderWayKeepsItsLeaveWhenTheGuardStops)
{
    recording_set_hook(RECORDING_AllReduce, [] { probe_set_active(false); });
    call_all_reduce();
    EXPECT_EQ(probe_call_count(), 1u);
    EXPECT_TRUE(probe_call_at(0).left);
    recording_set_hook(RECORDING_AllReduce, nullptr);
    call_all_reduce();
    EXPECT_EQ(probe_call_count(), 1u);
}

TEST_F(Record, TheInstanceIsDescribed)
{
    call_all_reduce();
    ASSERT_EQ(probe_nccl_count(), 1u);
    const struct ng_nccl *nccl = probe_nccl(0);

    EXPECT_EQ(nccl->index, 0u);
    EXPECT_EQ(nccl->version, RECORDING_VERSION);
    EXPECT_NE(strstr(nccl->path, "libnccl.so.2"), nullptr) << nccl->path;
    EXPECT_EQ(probe_nccl(1), nullptr);

    uint64_t before = recording_of(RECORDING_CommAbort).calls;
    recording_set_distinct(true, 0);
    EXPECT_EQ(nccl->comm_abort(comm), recording_value<ncclResult_t>(RECORDING_CommAbort));
    recording_set_distinct(false, 0);
    EXPECT_EQ(recording_of(RECORDING_CommAbort).calls, before + 1);
    EXPECT_EQ(probe_call_count(), 1u) << "core's own calls pass by the wrappers";
}

TEST_F(Record, CallsThatCoreAnswersDoNotReachTheLibrary)
{
    uint64_t before[RECORDING_COUNT];
    int count = 7;
    ncclResult_t state;

    for (int id = 0; id < RECORDING_COUNT; id++)
        before[id] = recording_of((recording_id)id).calls;
    probe_set_answer(ncclRemoteError);
    errno = ENOTTY;
    EXPECT_EQ(ncclAllReduce(send_memory, recv_memory, 5, ncclFloat32, ncclMax, comm, stream),
              ncclRemoteError);
    EXPECT_EQ(ncclSend(send_memory, 4, ncclInt32, 2, comm, stream), ncclRemoteError);
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclRemoteError);
    EXPECT_EQ(ncclCommDestroy(comm), ncclRemoteError);
    EXPECT_EQ(ncclCommCount(comm, &count), ncclRemoteError);
    EXPECT_EQ(ncclCommRegister(comm, send_memory, 8, nullptr), ncclRemoteError);
    EXPECT_STREQ(ncclGetLastError(comm), PROBE_REASON);
    EXPECT_EQ(errno, ENOTTY);
    EXPECT_EQ(count, 7);
    for (int id = 0; id < RECORDING_COUNT; id++)
        EXPECT_EQ(recording_of((recording_id)id).calls, before[id]) << id;

    /* What names no communicator, and what comes from NCCL itself, goes on. */
    int version;
    ncclGetVersion(&version);
    EXPECT_EQ(recording_of(RECORDING_GetVersion).calls, before[RECORDING_GetVersion] + 1);
    recording_call_from_inside();
    EXPECT_EQ(recording_of(RECORDING_AllReduce).calls, before[RECORDING_AllReduce] + 1);
    probe_set_answer(NG_CALL_PROCEED);
    call_all_reduce();
    EXPECT_EQ(recording_of(RECORDING_AllReduce).calls, before[RECORDING_AllReduce] + 2);
}

TEST_F(Record, WhereTheAnswerGoesIsTold)
{
    ncclResult_t state;

    ncclCommGetAsyncError(comm, &state);
    EXPECT_EQ(only().recv_buffer, &state);
}
