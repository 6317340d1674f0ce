/*
 * Calls on their way through core: groups of several copies of NCCL, calls that fail,
 * configurations of every age, devices that fail or are reset.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <cmath>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>
#include <nccl.h>

extern "C" {
#include "core/comm/in_flight_calls.h"
#include "core/recorder/signature.h"
/* core/config/timing.h, which C++ cannot read. */
uint64_t ng_timing_next(int mode, uint64_t number);
}
#define _Atomic
extern "C" {
#include "core/comm/deadline.h"
}
#undef _Atomic

namespace
{

constexpr int OK = ncclSuccess, REFUSED = ncclInvalidArgument;

struct CallPath : testing::Test {
    CallPath()
    {
        [[maybe_unused]] static const bool begun = (made_begin(64), true);
    }
    void TearDown() override
    {
        made_calls.held = false;
        for (auto &[comm, library] : comms_)
            made_destroy(library, comm, OK);
    }

    /* A handle of its own for each; `at` to give one again. */
    void *init(unsigned library, int nranks = 2, const void *config = nullptr, void *at = nullptr)
    {
        void *comm = at ? at : made_handle();
        made_init(library, comm, nranks, 0, config, OK);
        comms_[comm] = library;
        return comm;
    }
    void destroy(void *comm, int result = OK)
    {
        made_destroy(comms_.at(comm), comm, result);
        comms_.erase(comm);
    }
    void forget(void *comm)
    {
        comms_.erase(comm);
    }

    void *const stream_ = made_stream(0);

    std::map<void *, unsigned> comms_;
};

bool in_group(const struct made_record &record)
{
    return (record.flags & NG_RECORD_IN_GROUP) != 0;
}

/* The rolling hash of a communicator after this many all-reduces. */
uint64_t hash_after(int calls)
{
    struct ng_signature signature = {NG_OP_AllReduce, 7, 0, -1, 4};
    uint64_t hash = 0;
    for (int i = 0; i < calls; i++)
        hash = ng_signature_roll(hash, &signature);
    return hash;
}

} // namespace

TEST_F(CallPath, TheDeviceOfACommunicatorIsKnownByItsPciId)
{
    EXPECT_STREQ(group_of(init(0)).pci_id, "0000:1b:00.0");
}

TEST_F(CallPath, ACollectiveIsCountedRecordedAndSeenToFinish)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    struct made_record record = made_newest_record();
    EXPECT_EQ(record.coll_seq, 1u);
    EXPECT_EQ(record.tid, (uint32_t)gettid());
    EXPECT_FALSE(in_group(record));
    EXPECT_EQ(group_of(comm).creator_tid, (uint32_t)gettid());
    EXPECT_TRUE(made_await_completed(comm, 1));
}

TEST_F(CallPath, NothingIsUnusualAboutAGuardAsItIsByDefault)
{
    init(0);
    EXPECT_TRUE(made_is_usual());
}

TEST_F(CallPath, CommunicatorsWhoseHandlesMeetInTheTableAreToldApart)
{
    /* Handles are hashed by 32 of their bits. */
    void *handles[3];
    for (uintptr_t i = 0; i < 3; i++)
        handles[i] = (void *)(0x500000040 + (i << 36));
    for (void *handle : handles)
        init(0, 2, nullptr, handle);
    for (int i = 0; i < 3; i++)
        for (int calls = 0; calls <= i; calls++)
            made_all_reduce(0, handles[i], stream_, OK);
    for (uint64_t i = 0; i < 3; i++)
        EXPECT_EQ(group_of(handles[i]).entered, i + 1);

    destroy(handles[0]);
    EXPECT_FALSE(made_group_of(handles[0], nullptr));
    made_all_reduce(0, handles[2], stream_, OK);
    EXPECT_EQ(group_of(handles[1]).entered, 2u);
    EXPECT_EQ(group_of(handles[2]).entered, 4u);
    init(0, 2, nullptr, handles[0]);
    EXPECT_EQ(group_of(handles[0]).entered, 0u) << "another communicator at the same address";
}

TEST_F(CallPath, AThreadTakesNoCommunicatorForAnotherThatHadItsHandle)
{
    void *comm = init(0), *beside = init(0);
    made_all_reduce(0, comm, stream_, OK);
    uint64_t id = group_of(comm).id;
    destroy(comm);
    /* By another thread, and with the same handle. */
    std::thread([&] {
        init(0, 2, nullptr, comm);
        made_all_reduce(0, comm, stream_, OK);
        made_all_reduce(0, comm, stream_, OK);
    }).join();
    EXPECT_NE(group_of(comm).id, id);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).entered, 3u);
    EXPECT_EQ(group_of(beside).entered, 0u);
    made_all_reduce(0, beside, stream_, OK);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).entered, 4u);
    EXPECT_EQ(group_of(beside).entered, 1u);

    /* In another library, whose calls do not take the short way; and back. */
    destroy(comm);
    init(1, 2, nullptr, comm);
    made_all_reduce(1, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).nccl, 1u);
    EXPECT_EQ(group_of(comm).entered, 1u);
    destroy(comm);
    init(0, 2, nullptr, comm);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).nccl, 0u);
    EXPECT_EQ(group_of(comm).entered, 1u);

    /* A call without a communicator is none on one that has ended. */
    destroy(comm);
    made_all_reduce(0, nullptr, stream_, REFUSED);
    EXPECT_FALSE(made_group_of(nullptr, nullptr));
}

TEST_F(CallPath, ErrnoIsWhatTheProgramAndNcclLeftInIt)
{
    void *comm = init(0);
    /* The first call of a communicator, whose context is not known yet, and those of a burst. */
    for (int i = 0; i < 4; i++) {
        int seen = 0;
        errno = ENOTTY;
        made_reduce(
            comm, stream_, nullptr, 4,
            [](void *seen) {
                *static_cast<int *>(seen) = errno;
                errno = EILSEQ;
                return OK;
            },
            &seen);
        EXPECT_EQ(seen, ENOTTY) << "call " << i;
        EXPECT_EQ(errno, EILSEQ) << "call " << i;
    }
}

/* A child of a process with threads that starts its own: not under the sanitizers, whose allocators
 * keep for ever a lock that another thread had at the fork. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(CallPath, AForkedChildTakesNoCommunicatorForItsParentsOfTheSameHandle)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(in_child([&] {
                  made_fork_child();
                  std::thread([&] { made_init(0, comm, 2, 0, nullptr, OK); }).join();
                  made_all_reduce(0, comm, stream_, OK);
                  return (int)group_of(comm).entered;
              }),
              1);
    EXPECT_EQ(group_of(comm).entered, 2u);
}
#endif

TEST_F(CallPath, ARefusedCollectiveLeavesTheRollingHashAsItWas)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    made_all_reduce(0, comm, stream_, REFUSED);
    EXPECT_EQ(group_of(comm).entered, 1u);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(1));
    EXPECT_EQ(made_newest_record().rolling_hash, 0u);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(2));
}

TEST_F(CallPath, AGroupOfOneLibraryIsNoneOfAnother)
{
    void *first = init(0), *second = init(1), *third = init(2);
    for (auto [opened, inside, outside] :
         {std::tuple{0u, first, second}, {1u, second, first}, {2u, third, second}}) {
        unsigned other = (unsigned)made_library_of(outside);
        uint64_t seq = group_of(outside).entered + 1;
        made_group_start(opened);
        made_all_reduce(opened, inside, stream_, OK);
        EXPECT_TRUE(in_group(made_newest_record()));
        EXPECT_EQ(group_of(inside).scheduled, group_of(inside).entered - 1);
        /* A plain call, which needs no end of any group. */
        made_all_reduce(other, outside, stream_, OK);
        EXPECT_FALSE(in_group(made_newest_record()));
        EXPECT_EQ(group_of(outside).scheduled, seq);
        EXPECT_TRUE(made_await_completed(outside, seq));
        /* Nor does the end of a group that the other never opened close this one. */
        made_group_end(other, ncclInvalidUsage);
        made_group_end(other, OK);
        EXPECT_EQ(group_of(inside).scheduled, group_of(inside).entered - 1);
        made_group_end(opened, OK);
        EXPECT_EQ(group_of(inside).scheduled, group_of(inside).entered);
        EXPECT_TRUE(made_await_completed(inside, group_of(inside).entered));
    }
}

TEST_F(CallPath, GroupsOfTwoLibrariesMayBeOpenAtOnce)
{
    void *first = init(0), *second = init(1);
    made_group_start(0);
    made_group_start(1);
    made_group_start(1);
    made_all_reduce(0, first, stream_, OK);
    made_all_reduce(1, second, stream_, OK);
    made_group_end(1, OK);
    made_group_end(0, OK);
    EXPECT_EQ(group_of(first).scheduled, 1u);
    EXPECT_EQ(group_of(second).scheduled, 0u) << "one of its groups is still open";
    EXPECT_TRUE(made_await_completed(first, 1));
    made_all_reduce(1, second, stream_, OK);
    made_group_end(1, OK);
    EXPECT_EQ(group_of(second).scheduled, 2u);
    EXPECT_TRUE(made_await_completed(second, 2));
}

TEST_F(CallPath, ACommunicatorIsMadeOutsideOfAnotherLibrarysGroup)
{
    made_group_start(1);
    void *plain = init(0);
    EXPECT_EQ(group_of(plain).state, NG_GROUP_READY) << "with the return of the call";
    void *comm = nullptr;
    char handle;
    made_init_later(1, &comm, &handle, 2);
    EXPECT_EQ(made_library_of(&handle), -1) << "the handle comes with the end of the group";
    made_group_end(0, OK);
    EXPECT_EQ(made_library_of(&handle), -1);
    made_group_end(1, OK);
    EXPECT_EQ(made_library_of(&handle), 1);
    made_destroy(1, &handle, OK);
}

TEST_F(CallPath, ThreadsHaveGroupsOfTheirOwn)
{
    void *first = init(1), *second = init(1);
    made_group_start(1);
    made_all_reduce(1, first, stream_, OK);
    std::thread([&] {
        made_all_reduce(1, second, stream_, OK);
        EXPECT_FALSE(in_group(made_newest_record()));
        made_group_end(1, ncclInvalidUsage);
    }).join();
    EXPECT_EQ(group_of(first).scheduled, 0u);
    EXPECT_EQ(group_of(second).scheduled, 1u);
    made_group_end(1, OK);
    EXPECT_EQ(group_of(first).scheduled, 1u);
}

TEST_F(CallPath, ManyThreadsInSeveralLibrariesDisturbNobody)
{
    constexpr int THREADS = 4, ROUNDS = 50;
    std::vector<std::thread> threads;
    void *comms[THREADS];
    for (int t = 0; t < THREADS; t++)
        comms[t] = init(t % 3);
    /* Events for all of them: a pool that grows under them may leave a call unobserved. */
    void *before = init(0);
    made_calls.held = true;
    for (unsigned context : {0u, 1u})
        for (int i = 0; i < THREADS * ROUNDS * 2; i++)
            made_all_reduce(0, before, made_stream(context), OK);
    made_calls.held = false;
    ASSERT_TRUE(made_await_completed(before, THREADS * ROUNDS * 4));
    for (int t = 0; t < THREADS; t++)
        threads.emplace_back([&, t] {
            unsigned library = t % 3;
            void *stream = made_stream(t % 2);
            for (int round = 0; round < ROUNDS; round++) {
                made_group_start(library);
                made_group_start((library + 1) % 3); /* has nothing to do with it */
                made_all_reduce(library, comms[t], stream, OK);
                made_all_reduce(library, comms[t], stream, OK);
                made_group_end(library, round % 5 ? OK : REFUSED);
                made_all_reduce(library, comms[t], stream, OK);
                made_group_end((library + 1) % 3, OK);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (int t = 0; t < THREADS; t++) {
        uint64_t made = ROUNDS + ROUNDS / 5 * 4 * 2;
        EXPECT_EQ(group_of(comms[t]).entered, made);
        EXPECT_EQ(group_of(comms[t]).scheduled, made);
        EXPECT_TRUE(made_await_completed(comms[t], made));
    }
}

TEST_F(CallPath, ACommunicatorRemembersItsLibrary)
{
    EXPECT_EQ(made_library_of(nullptr), -1);
    EXPECT_EQ(made_library_of(this), -1);
    for (unsigned library : {0u, 1u, 2u})
        EXPECT_EQ(made_library_of(init(library)), (int)library);
    /* One that was made behind our back belongs to the library that it is first used with. */
    char handle;
    made_all_reduce(2, &handle, stream_, OK);
    EXPECT_EQ(made_library_of(&handle), 2);
    made_destroy(2, &handle, OK);
    EXPECT_EQ(made_library_of(&handle), -1);
}

TEST_F(CallPath, AHandleThatComesAgainBelongsToItsNewLibrary)
{
    void *comm = init(0);
    for (unsigned library : {1u, 2u, 0u, 1u}) {
        made_all_reduce((unsigned)made_library_of(comm), comm, stream_, OK);
        destroy(comm);
        EXPECT_EQ(made_library_of(comm), -1);
        init(library, 2, nullptr, comm);
        EXPECT_EQ(made_library_of(comm), (int)library);
        EXPECT_EQ(group_of(comm).entered, 0u);
    }
}

TEST_F(CallPath, AHandleThatComesAgainEndsTheOneThatNobodySawEnd)
{
    void *comm = init(0);
    uint32_t slot = group_of(comm).slot;
    struct made_group before;
    destroy(comm, ncclInternalError);
    EXPECT_EQ(made_library_of(comm), 0);
    init(1, 2, nullptr, comm);
    EXPECT_EQ(made_library_of(comm), 1);
    made_group_at(slot, &before);
    EXPECT_EQ(before.state, NG_GROUP_DESTROYED);
    destroy(comm);
    EXPECT_EQ(made_library_of(comm), -1) << "the old one does not come back";
}

TEST_F(CallPath, ACallThatNcclRefusesDidNotHappen)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    made_all_reduce(0, comm, stream_, REFUSED);
    EXPECT_EQ(made_newest_record().state, NG_RECORD_FAILED);
    EXPECT_EQ(made_newest_record().result, REFUSED);
    EXPECT_EQ(made_newest_record().rolling_hash, 0u);
    EXPECT_EQ(group_of(comm).entered, 1u);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(1));
    made_send(0, comm, stream_, 1, 8 /* ncclTimeout */);
    EXPECT_EQ(made_newest_record().result, 8);
    EXPECT_EQ(made_newest_record().state, NG_RECORD_FAILED);
    EXPECT_EQ(group_of(comm).p2p_entered, 0u);
    made_send(0, comm, stream_, 1, OK);
    EXPECT_EQ(made_newest_record().peer_ordinal, 1u);
    EXPECT_EQ(made_newest_record().rolling_hash, 0u);
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(made_newest_record().coll_seq, 2u);
    EXPECT_EQ(made_newest_record().rolling_hash, hash_after(2));
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(2));
    EXPECT_TRUE(made_await_completed(comm, 2));
}

/* So that launches can be numbered when the records are gone. */
TEST_F(CallPath, WhatAGroupJoinsIsCountedWhenItIsClosed)
{
    void *comm = init(0);
    auto joined = [&] {
        struct made_group group = group_of(comm);
        return std::vector<uint64_t>{group.coll_joined, group.p2p_joined, group.groups_closed};
    };
    made_all_reduce(0, comm, stream_, OK);
    made_send(0, comm, stream_, 1, OK);
    made_group_start(0);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    EXPECT_EQ(joined(), (std::vector<uint64_t>{0, 0, 0})) << "nothing is joined to anything";
    made_group_start(0);
    for (int i = 0; i < 3; i++)
        made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(joined(), (std::vector<uint64_t>{0, 0, 0})) << "it may still fail";
    made_group_end(0, OK);
    EXPECT_EQ(joined(), (std::vector<uint64_t>{2, 0, 1}));
    made_group_start(0);
    made_send(0, comm, stream_, 1, OK);
    made_send(0, comm, stream_, 1, OK);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    EXPECT_EQ(joined(), (std::vector<uint64_t>{2, 1, 2}));
    made_group_start(0);
    made_all_reduce(0, comm, stream_, OK);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, ncclRemoteError);
    EXPECT_EQ(joined(), (std::vector<uint64_t>{2, 1, 2})) << "it did not happen";
    EXPECT_TRUE(made_await_completed(comm, 6));
}

TEST_F(CallPath, AGroupThatFailsDidNotHappen)
{
    for (unsigned library : {0u, 1u}) {
        void *comm = init(library), *other = init(library);
        void *streams[] = {stream_, made_stream(0), nullptr};
        made_all_reduce(library, comm, stream_, OK);
        made_send(library, comm, stream_, 1, OK);
        made_group_start(library);
        for (int i = 0; i < 9; i++) {
            made_all_reduce(library, comm, streams[i % 3], OK);
            made_send(library, comm, streams[i % 2 * 2], 1, OK);
        }
        made_all_reduce(library, other, stream_, OK);
        EXPECT_EQ(group_of(comm).entered, 10u);
        EXPECT_EQ(group_of(comm).rolling_hash, hash_after(10));
        made_group_end(library, ncclRemoteError);
        EXPECT_EQ(group_of(comm).entered, 1u);
        EXPECT_EQ(group_of(comm).scheduled, 1u);
        EXPECT_EQ(group_of(comm).p2p_entered, 1u);
        EXPECT_EQ(group_of(comm).rolling_hash, hash_after(1));
        EXPECT_EQ(group_of(other).entered, 0u);
        EXPECT_EQ(group_of(other).rolling_hash, 0u);
        EXPECT_EQ(made_newest_record().state, NG_RECORD_FAILED);
        EXPECT_EQ(made_newest_record().result, ncclRemoteError);
        made_send(library, comm, stream_, 1, OK);
        EXPECT_EQ(made_newest_record().peer_ordinal, 2u);
        made_all_reduce(library, comm, stream_, OK);
        EXPECT_EQ(made_newest_record().coll_seq, 2u);
        EXPECT_TRUE(made_await_completed(comm, 2));
    }
}

TEST_F(CallPath, AGroupThatFailsLeavesTheHashFromBeforeItsFirstCollectiveWhicheverStreamThatWasOn)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    made_group_start(0);
    made_send(0, comm, stream_, 1, OK);
    made_all_reduce(0, comm, nullptr, OK);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, ncclRemoteError);
    EXPECT_EQ(group_of(comm).entered, 1u);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(1));
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(2));
    EXPECT_TRUE(made_await_completed(comm, 2));
}

TEST_F(CallPath, ACommunicatorThatHasEndedIsKnownUntilItsHandleIsGivenAgain)
{
    void *comm = init(0);
    EXPECT_FALSE(made_has_ended(comm));
    EXPECT_FALSE(made_has_ended(nullptr));
    destroy(comm);
    EXPECT_TRUE(made_has_ended(comm));
    init(0, 2, nullptr, comm);
    EXPECT_FALSE(made_has_ended(comm));
    static char never_made;
    EXPECT_FALSE(made_has_ended(&never_made));
}

/* 64 records, and 100 calls of another thread while this one is in NCCL. */
TEST_F(CallPath, ACallThatFailsWhenItsRecordIsOverwrittenMarksNoOther)
{
    struct {
        void *comm, *stream;
    } other = {init(0), stream_};
    struct made_call call = {};
    call.op = NG_OP_AllReduce;
    call.comm = init(0);
    call.stream = stream_;
    call.argument = &other;
    call.inside = [](void *argument) {
        auto *busy = (decltype(other) *)argument;
        std::thread([busy] {
            for (int i = 0; i < 100; i++)
                made_all_reduce(0, busy->comm, busy->stream, OK);
        }).join();
        return REFUSED;
    };
    EXPECT_EQ(made_call(0, &call), REFUSED);
    EXPECT_EQ(group_of(call.comm).entered, 0u);
    for (unsigned back = 0; back < 64; back++) {
        EXPECT_EQ(made_record_before(back).result, OK);
        EXPECT_NE(made_record_before(back).rolling_hash, 0u);
    }
}

/* 64 records, and 100 calls in the group. */
TEST_F(CallPath, AGroupThatFailsIsUndoneThoughItsRecordsAreOverwritten)
{
    void *comm = init(0);
    made_all_reduce(0, comm, stream_, OK);
    made_group_start(0);
    for (int i = 0; i < 100; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, REFUSED);
    EXPECT_EQ(group_of(comm).entered, 1u);
    EXPECT_EQ(group_of(comm).rolling_hash, hash_after(1));
    made_all_reduce(0, comm, stream_, OK);
    EXPECT_EQ(made_newest_record().coll_seq, 2u);
    EXPECT_TRUE(made_await_completed(comm, 2));

    /* Which sends are counted depends on their peers, and of some nobody knows those any more. */
    made_send(0, comm, stream_, 1, OK);
    EXPECT_EQ(made_newest_record().peer_ordinal, 1u);
    made_group_start(0);
    for (int i = 0; i < 100; i++)
        made_send(0, comm, stream_, 1, OK);
    made_group_end(0, REFUSED);
    EXPECT_EQ(group_of(comm).p2p_entered, 1u);
    made_send(0, comm, stream_, 1, OK);
    EXPECT_EQ(made_newest_record().peer_ordinal, 0u);
    destroy(comm);
    init(0, 2, nullptr, comm);
    made_send(0, comm, stream_, 1, OK);
    EXPECT_EQ(made_newest_record().peer_ordinal, 1u);
}

/* ncclConfig_t of 2.14: size, magic, version, blocking. Behind it lies memory that nobody may read.
 */
TEST_F(CallPath, AConfigurationIsReadAsFarAsItsSizeSays)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages =
        (char *)mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
    whole.commName = "tensor";
    for (size_t size : {(size_t)24, offsetof(ncclConfig_t, commName)}) {
        char *config = pages + page - size;
        memcpy(config, &whole, size);
        memcpy(config, &size, sizeof(size));
        EXPECT_STREQ(group_of(init(0, 2, config)).name, "") << size;
    }
    size_t size = offsetof(ncclConfig_t, commName) + sizeof(whole.commName);
    char *config = pages + page - size;
    memcpy(config, &whole, size);
    memcpy(config, &size, sizeof(size));
    EXPECT_STREQ(group_of(init(0, 2, config)).name, "tensor");
    munmap(pages, 2 * page);
}

TEST_F(CallPath, AConfigurationOfALaterNcclIsUnderstood)
{
    struct {
        ncclConfig_t known;
        char later[512];
    } config = {NCCL_CONFIG_INITIALIZER, {}};
    memset(config.later, 0xff, sizeof(config.later));
    config.known.size = sizeof(config);
    config.known.version = 99 * 10000;
    config.known.commName = "expert";
    EXPECT_STREQ(group_of(init(0, 2, &config)).name, "expert");
    std::string name(200, 'n');
    config.known.commName = name.c_str();
    EXPECT_STREQ(group_of(init(0, 2, &config)).name, name.substr(0, 63).c_str());
    config.known.commName = nullptr;
    EXPECT_STREQ(group_of(init(0, 2, &config)).name, "");
    config.known.commName = (const char *)1;
    config.known.magic = 1;
    EXPECT_STREQ(group_of(init(0, 2, &config)).name, "") << "no configuration at all";
}

/* ---- Devices ---- */

TEST_F(CallPath, ACommunicatorMayBeUsedOnStreamsOfSeveralContexts)
{
    void *comm = init(0);
    for (uint64_t seq = 1; seq <= 8; seq++) {
        made_all_reduce(0, comm, made_stream(seq % 2), OK);
        EXPECT_TRUE(made_await_completed(comm, seq)) << seq;
    }
}

constexpr int FIRST_WORKS = 320; /* more than a usual program has in flight */

TEST_F(CallPath, TheFirstWorksAreMadeWithTheCommunicatorAndDisturbNoCapture)
{
    destroy(init(0)); /* the driver is known */
    made_reset(1);    /* the device of all communicators here, with a context without works */
    unsigned plain = made_calls.plain_events, relaxed = made_calls.relaxed_events;
    void *comm = init(0);
    EXPECT_EQ(made_calls.plain_events, plain + 2 * FIRST_WORKS);
    EXPECT_EQ(made_calls.relaxed_events, relaxed + 2 * FIRST_WORKS);
    init(0);
    made_calls.held = true;
    for (int i = 0; i < FIRST_WORKS; i++)
        made_all_reduce(0, comm, made_stream(1), OK);
    EXPECT_EQ(made_calls.plain_events, plain + 2 * FIRST_WORKS)
        << "enough for all communicators there";
    made_all_reduce(0, comm, made_stream(1), OK);
    EXPECT_EQ(made_calls.plain_events, plain + 2 * (FIRST_WORKS + 64));
    made_calls.held = false;
    EXPECT_TRUE(made_await_completed(comm, FIRST_WORKS + 1));
}

/* As many works as there can be are in flight, and nobody has seen yet that the device has finished
 * them. The thread of the call looks. */
TEST_F(CallPath, ACallIsObservedThoughTheWatchdogHasNotLookedForLong)
{
    constexpr uint64_t WORKS = 2048;
    void *comm = init(0);
    uint64_t calls = 0;
    for (int round = 0; round < 5; round++) {
        made_calls.held = true;
        for (uint64_t i = 0; i < WORKS; i++)
            made_all_reduce(0, comm, stream_, OK);
        made_calls.held = false;
        made_all_reduce(0, comm, stream_, OK);
        EXPECT_NE(made_newest_record().state, NG_RECORD_UNWATCHED);
        calls += WORKS + 1;
        ASSERT_TRUE(made_await_completed(comm, calls));
    }
}

/* They look in vain, and seldom, since that takes time. */
TEST_F(CallPath, CallsBeyondTheWorksThatThereCanBeSeldomLook)
{
    constexpr uint64_t WORKS = 2048, MORE = 2000;
    void *comm = init(0);
    made_calls.held = true;
    for (uint64_t i = 0; i < WORKS; i++)
        made_all_reduce(0, comm, stream_, OK);
    unsigned before = made_calls.mode_exchanges;
    made_calls.query_us = 1000;
    for (uint64_t i = 0; i < MORE; i++) {
        made_all_reduce(0, comm, stream_, OK);
        usleep(10);
    }
    made_calls.query_us = 0;
    unsigned looks = (made_calls.mode_exchanges - before) / 2;
    EXPECT_GT(looks, 0u);
    EXPECT_LT(looks, MORE / 10);
    EXPECT_EQ(made_newest_record().state, NG_RECORD_UNWATCHED);
    made_calls.held = false;
    EXPECT_TRUE(made_await_completed(comm, WORKS));
}

TEST_F(CallPath, ACommunicatorThatIsNotFinishedGetsNoWorks)
{
    destroy(init(0));
    made_reset(1);
    unsigned plain = made_calls.plain_events;
    char never;
    made_init(0, &never, 2, 0, nullptr, ncclInProgress);
    made_init(0, &never, 2, 0, nullptr, REFUSED);
    EXPECT_EQ(made_calls.plain_events, plain);
}

TEST_F(CallPath, WorksThatCannotBeMadeAheadAreMadeByTheFirstCall)
{
    destroy(init(0));
    made_reset(1);
    made_fail(1, CUDA_ERROR_OUT_OF_MEMORY);
    Folder folder;
    ng_log_init(NG_LOG_DEBUG, (folder / "log").c_str(), 0);
    void *comm = init(0);
    made_fail(1, 0);
    made_all_reduce(0, comm, made_stream(1), OK);
    EXPECT_TRUE(made_await_completed(comm, 1));
    EXPECT_EQ(read_whole_file(folder / "log").find("no longer watched"), std::string::npos);
    ng_log_init(NG_LOG_DEBUG, nullptr, 0);
}

/* ---- Bursts ---- */

namespace
{

/* A burst is a matter of microseconds, in which sanitizers get nowhere. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool QUICK = false;
#else
constexpr bool QUICK = true;
#endif

struct Bursts : CallPath {
    /* Events that are recorded for what `calls` does. */
    template <class Do> static unsigned events_of(Do calls)
    {
        unsigned before = made_calls.recorded_events;
        calls();
        return made_calls.recorded_events - before;
    }
    /* Until that is so once: another process may run between two calls. */
    template <class Do> static bool once(Do holds)
    {
        for (int i = 0; i < (QUICK ? 10000 : 100); i++)
            if (holds())
                return true;
        return false;
    }
    /* A burst ends when the thread is elsewhere for longer than this. */
    static void be_elsewhere()
    {
        for (int64_t begun = now_ns(); now_ns() - begun < 20000;)
            ;
    }
    static int64_t now_ns()
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }
    void call(void *comm, void *stream = nullptr)
    {
        made_all_reduce(0, comm, stream ? stream : stream_, OK);
    }
    /* One call of a burst, whatever is done between it and the call before. */
    template <class Do> bool goes_on(void *comm, Do between)
    {
        return once([&] {
            call(comm);
            between();
            return events_of([&] { call(comm); }) == 1;
        });
    }
    template <class Do> bool never_goes_on(void *comm, Do between)
    {
        for (int i = 0; i < 100; i++) {
            call(comm);
            between();
            if (events_of([&] { call(comm); }) != 2)
                return false;
        }
        /* Otherwise works may run out. */
        return made_await_completed(comm, group_of(comm).entered);
    }
};

} // namespace

TEST_F(Bursts, AWorkThatFollowsAnotherAtOnceHasNoStartEvent)
{
    void *comm = init(0);
    EXPECT_TRUE(goes_on(comm, [] {}) || !QUICK);
    EXPECT_TRUE(never_goes_on(comm, [] { be_elsewhere(); }));
}

TEST_F(Bursts, AnythingElseThatTheThreadDoesEndsThem)
{
    void *comm = init(0), *other = init(0);
    EXPECT_TRUE(never_goes_on(comm, [&] { call(other); })) << "another communicator";
    EXPECT_TRUE(never_goes_on(other, [&] { call(other, made_stream(1)); })) << "another stream";
    EXPECT_TRUE(never_goes_on(comm, [&] { made_all_reduce(0, comm, stream_, REFUSED); }));
    EXPECT_TRUE(never_goes_on(comm, [&] {
        made_calls.captures = true;
        call(comm);
        made_calls.captures = false;
    }));
    made_set_timing(NG_TIMING_ALL);
    EXPECT_TRUE(never_goes_on(init(0), [] {})) << "all works are measured";
    made_set_timing(NG_TIMING_OFF);
}

TEST_F(Bursts, AWorkOnADefaultStreamHasItsStartEvent)
{
    void *comm = init(0);
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(events_of([&] { made_all_reduce(0, comm, nullptr, OK); }), 2u);
}

TEST_F(Bursts, NcclGroupsMayBeInOne)
{
    void *one = init(0), *two = init(0);
    auto group = [&] {
        made_group_start(0);
        for (void *comm : {one, two})
            for (int i = 0; i < 2; i++)
                made_all_reduce(0, comm, stream_, OK);
        made_group_end(0, OK);
    };
    bool in_one = once([&] {
        group();
        return events_of(group) == 2;
    });
    EXPECT_TRUE(in_one || !QUICK);
    for (int i = 0; i < 100; i++) {
        group();
        be_elsewhere();
        ASSERT_EQ(events_of(group), 4u);
    }
    EXPECT_EQ(group_of(one).scheduled, group_of(one).entered);
}

/* The device is where the work before it has ended; what is not seen is said. */
TEST_F(Bursts, AWorkWithoutStartEventCountsAsReachedWhenTheOneBeforeItHasEnded)
{
    void *comm = init(0);
    for (bool in_burst : {true, false}) {
        bool is_so = once([&] {
            made_release_recorded();
            call(comm);
            if (!in_burst)
                be_elsewhere();
            made_calls.holds_recorded = true;
            return events_of([&] { call(comm); }) == (in_burst ? 1u : 2u);
        });
        if (!is_so && !QUICK)
            continue;
        EXPECT_TRUE(is_so);
        uint64_t held = group_of(comm).entered;
        ASSERT_TRUE(made_await_completed(comm, held - 1));
        ASSERT_TRUE(made_await_pending(comm, held));
        EXPECT_EQ(group_of(comm).pending_started,
                  (uint32_t)(in_burst ? NG_START_INFERRED : NG_START_NONE));
        EXPECT_EQ(made_newest_record().state,
                  (uint32_t)(in_burst ? NG_RECORD_STARTED : NG_RECORD_SCHEDULED));
        made_release_recorded();
        ASSERT_TRUE(made_await_completed(comm, held));
    }
}

struct ResetDevices : CallPath, testing::WithParamInterface<bool> {
    void SetUp() override
    {
        destroy(init(0)); /* the driver is known */
        made_number_contexts(GetParam());
    }
    void TearDown() override
    {
        CallPath::TearDown();
        made_number_contexts(true);
    }
};

TEST_P(ResetDevices, ADeviceThatWasResetIsWatchedAgain)
{
    for (int round = 0; round < 200; round++) {
        void *comm = init(0);
        made_all_reduce(0, comm, stream_, OK);
        ASSERT_TRUE(made_await_completed(comm, 1)) << round;
        destroy(comm);
        made_reset(0);
    }
}

TEST_P(ResetDevices, TheErrorThatEndsADeviceIsInTheBlackBoxOfEveryCommunicatorThere)
{
    void *first = init(0), *second = init(1), *elsewhere = init(0), *idle = init(0);
    made_all_reduce(0, first, stream_, OK);
    made_all_reduce(1, second, stream_, OK);
    made_all_reduce(0, elsewhere, made_stream(1), OK);
    ASSERT_TRUE(made_await_completed(first, 1));
    ASSERT_TRUE(made_await_completed(second, 1));
    ASSERT_TRUE(made_await_completed(elsewhere, 1));
    made_calls.held = true;
    made_all_reduce(0, first, stream_, OK);
    made_fail(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_TRUE(made_await_cuda_error(first, CUDA_ERROR_ILLEGAL_ADDRESS));
    EXPECT_TRUE(made_await_cuda_error(second, CUDA_ERROR_ILLEGAL_ADDRESS));
    EXPECT_EQ(group_of(elsewhere).cuda_error, 0);
    EXPECT_EQ(group_of(idle).cuda_error, 0) << "it has worked nowhere yet";
    EXPECT_EQ(group_of(first).completed, 1u);

    /* Nothing can be watched there; elsewhere all goes on. */
    made_all_reduce(0, first, stream_, OK);
    made_all_reduce(0, idle, stream_, OK);
    EXPECT_EQ(made_newest_record().state, NG_RECORD_UNWATCHED);
    EXPECT_TRUE(made_await_cuda_error(idle, CUDA_ERROR_ILLEGAL_ADDRESS));
    made_calls.held = false;
    made_all_reduce(0, elsewhere, made_stream(1), OK);
    EXPECT_TRUE(made_await_completed(elsewhere, 2));

    made_reset(0);
    void *again = init(0);
    EXPECT_EQ(group_of(again).cuda_error, 0);
    made_all_reduce(0, again, stream_, OK);
    EXPECT_TRUE(made_await_completed(again, 1));
}

TEST_P(ResetDevices, EachOperationThatNobodyCanSeeEndIsCountedAsNotTold)
{
    void *comm = init(0);
    ASSERT_TRUE(made_tell());
    made_all_reduce(0, comm, stream_, OK);
    made_all_reduce(0, comm, stream_, OK);
    ASSERT_TRUE(made_await_completed(comm, 2));
    made_calls.held = true;
    for (int i = 0; i < 3; i++)
        made_all_reduce(0, comm, stream_, OK); /* their events are lost with their context */
    made_fail(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_TRUE(made_await_cuda_error(comm, CUDA_ERROR_ILLEGAL_ADDRESS));
    made_all_reduce(0, comm, stream_, OK); /* there is no event for it, nor for what follows */
    made_group_start(0);
    for (int i = 0; i < 5; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_send(0, comm, stream_, 1, OK);
    made_group_end(0, OK);
    uint64_t told = 0, dropped = 0;
    ASSERT_TRUE(made_told(&told, &dropped));
    EXPECT_EQ(told, 2u);
    EXPECT_EQ(dropped, 3u + 1u + 6u);
    made_calls.held = false;
    made_reset(0);
}

TEST_P(ResetDevices, CallsWhoseEndIsNeverSeenAreNotInFlight)
{
    void *comm = init(0);
    struct ng_comm *record = made_comm(comm);

    made_calls.held = true;
    for (unsigned i = 0; i < NG_DEADLINE_NEXT; i++) {
        EXPECT_EQ(ng_deadline_set_next(record, 100 * NG_S), 0) << i;
        if (i % 2)
            made_all_reduce(0, comm, stream_, OK);
        else
            made_send(0, comm, stream_, 1, OK);
    }
    EXPECT_EQ(ng_deadline_set_next(record, 100 * NG_S), -ENOSPC);
    made_fail(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_TRUE(made_await_cuda_error(comm, CUDA_ERROR_ILLEGAL_ADDRESS));
    /* The watchdog tells of the error first, and then gives the works up. */
    for (int ms = 0; ms < 20000 && ng_deadline_calls_over(record) < NG_DEADLINE_NEXT; ms++)
        usleep(1000);
    EXPECT_EQ(ng_deadline_calls_over(record), NG_DEADLINE_NEXT);
    EXPECT_EQ(ng_deadline_set_next(record, 100 * NG_S), 0);
    made_calls.held = false;
    made_reset(0);
}

TEST_P(ResetDevices, AResetWithWorkInFlightLosesThatWorkAlone)
{
    void *comm = init(0);
    made_calls.held = true;
    for (int i = 0; i < 100; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_reset(0);
    ASSERT_TRUE(made_await_cuda_error(comm, CUDA_ERROR_CONTEXT_IS_DESTROYED));
    made_calls.held = false;
    destroy(comm);
    void *again = init(0);
    for (uint64_t seq = 1; seq <= 100; seq++)
        made_all_reduce(0, again, stream_, OK);
    EXPECT_TRUE(made_await_completed(again, 100));
    EXPECT_EQ(group_of(again).cuda_error, 0);
}

INSTANTIATE_TEST_SUITE_P(Drivers, ResetDevices, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &info) {
                             return info.param ? "ThatNumberContexts" : "ThatDoNot";
                         });

/* ---- Measured works ---- */

namespace
{

struct Measured : CallPath {
    Measured()
    {
        made_elapsed(0, 0.041f);
        made_set_timing(NG_TIMING_ALL);
    }
    void TearDown() override
    {
        made_calls.timing_refused = false;
        made_set_timing(NG_TIMING_OFF);
        made_elapsed(0, 1);
        CallPath::TearDown();
    }
    void all_reduces(void *comm, int count)
    {
        for (int i = 0; i < count; i++) {
            made_all_reduce(0, comm, stream_, OK);
            ASSERT_TRUE(made_await_completed(comm, group_of(comm).entered));
        }
    }
    static std::vector<uint64_t> samples(const void *comm)
    {
        uint64_t seqs[1000];
        return {seqs, seqs + made_samples(comm, seqs, 1000)};
    }
    static uint64_t measured(const void *comm, unsigned op)
    {
        uint64_t bytes;
        return made_measured(comm, op, &bytes);
    }
};

} // namespace

TEST_F(Measured, WithAllEachCallHasItsDuration)
{
    void *comm = init(0);
    all_reduces(comm, 3);
    EXPECT_EQ(made_newest_record().duration_ns, 41000);
    EXPECT_EQ(made_record_before(2).duration_ns, 41000);
    uint64_t bytes;
    EXPECT_EQ(made_measured(comm, NG_OP_AllReduce, &bytes), 3u);
    EXPECT_EQ(bytes, 16u) << "four numbers of four bytes";
    EXPECT_EQ(samples(comm), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(Measured, WithOffThereAreNoEventsWithTiming)
{
    made_set_timing(NG_TIMING_OFF);
    unsigned before = made_calls.timing_events;
    void *comm = init(0);
    all_reduces(comm, 10);
    EXPECT_EQ(made_calls.timing_events, before);
    EXPECT_EQ(made_newest_record().duration_ns, 0);
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 0u);
}

TEST_F(Measured, WhatIsSetWhileACommunicatorIsUsedHoldsFromItsNextCallOn)
{
    made_set_timing(NG_TIMING_OFF);
    void *comm = init(0);
    all_reduces(comm, 10);
    made_set_timing(NG_TIMING_ALL);
    all_reduces(comm, 2);
    made_group_start(0);
    for (int i = 0; i < 2; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    made_send(0, comm, stream_, 1, OK);
    ASSERT_TRUE(made_await_completed(comm, 14));
    EXPECT_EQ(measured(comm, NG_OP_GroupEnd), 1u);
    made_set_timing(NG_TIMING_OFF);
    all_reduces(comm, 3);
    made_set_timing(NG_TIMING_SAMPLED);
    all_reduces(comm, 15);
    EXPECT_EQ(samples(comm), (std::vector<uint64_t>{11, 12, 14, 32}));
    EXPECT_EQ(measured(comm, NG_OP_Send), 1u);
}

TEST_F(Measured, FewWorksWithTimingAreMadeAtATime)
{
    destroy(init(0));
    made_reset(1);
    unsigned timing = made_calls.timing_events, plain = made_calls.plain_events;
    void *comm = init(0);
    EXPECT_EQ(made_calls.timing_events, timing + 2 * 8);
    made_calls.held = true;
    for (int i = 0; i < 9; i++)
        made_all_reduce(0, comm, made_stream(1), OK);
    EXPECT_EQ(made_calls.timing_events, timing + 4 * 8);
    EXPECT_EQ(made_calls.plain_events, plain + 2 * FIRST_WORKS);
    made_calls.held = false;
    EXPECT_TRUE(made_await_completed(comm, 9));
}

TEST_F(Measured, WithSampledEachCommunicatorMeasuresTheSameCalls)
{
    made_set_timing(NG_TIMING_SAMPLED);
    std::vector<uint64_t> expected;
    for (uint64_t next = 1; (next = ng_timing_next(NG_TIMING_SAMPLED, next)) <= 600; next++)
        expected.push_back(next);
    for (int rank = 0; rank < 2; rank++) {
        void *comm = init(0);
        for (int i = 0; i < 600; i++) {
            /* Not alike on both: what NCCL refuses, and sends and receives between. */
            if (rank && i % 7 == 0)
                made_all_reduce(0, comm, stream_, REFUSED);
            if (rank && i % 5 == 0)
                made_send(0, comm, stream_, 1, OK);
            made_all_reduce(0, comm, stream_, OK);
        }
        ASSERT_TRUE(made_await_completed(comm, 600));
        EXPECT_EQ(samples(comm), expected) << rank;
        EXPECT_EQ(measured(comm, NG_OP_AllReduce), expected.size());
    }
}

TEST_F(Measured, WhatCudaDoesNotTellIsNoDuration)
{
    void *comm = init(0);
    for (auto [error, ms] : {std::pair{(int)CUDA_ERROR_INVALID_HANDLE, 1.f},
                             {(int)CUDA_ERROR_NOT_READY, 1.f},
                             {(int)CUDA_ERROR_UNKNOWN, 1.f},
                             {0, -1.f},
                             {0, NAN},
                             {0, INFINITY}}) {
        made_elapsed(error, ms);
        all_reduces(comm, 1);
        EXPECT_EQ(made_newest_record().state, NG_RECORD_COMPLETED);
        EXPECT_EQ(made_newest_record().duration_ns, 0) << error << " " << ms;
    }
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 0u);
    made_elapsed(0, 0);
    all_reduces(comm, 1);
    EXPECT_EQ(made_newest_record().duration_ns, 1) << "too short for its clock, but measured";
    EXPECT_EQ(group_of(comm).cuda_error, 0);
}

TEST_F(Measured, WithoutEventsWithTimingTheOthersServe)
{
    /* On the second device: the pool of the first one may hold timed events from earlier tests. */
    void *comm = init(0), *stream = made_stream(1);
    made_reset(1);
    made_calls.timing_refused = true;
    uint64_t lost = made_box()->header->records_lost;
    unsigned before = made_calls.timing_events;
    for (uint64_t seq = 1; seq <= 20; seq++) {
        made_all_reduce(0, comm, stream, OK);
        ASSERT_TRUE(made_await_completed(comm, seq));
        EXPECT_EQ(made_newest_record().duration_ns, 0);
    }
    EXPECT_EQ(made_calls.timing_events, before + 1) << "not asked for again with each call";
    EXPECT_EQ(made_box()->header->records_lost, lost);
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 0u);
    made_reset(1);
}

TEST_F(Measured, WhenAllEventsWithTimingAreInFlightTheOthersServe)
{
    constexpr int MORE = 300;
    void *comm = init(0);
    uint64_t lost = made_box()->header->records_lost;
    made_calls.held = true;
    for (int i = 0; i < 2048 + MORE; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_calls.held = false;
    ASSERT_TRUE(made_await_completed(comm, 2048 + MORE));
    EXPECT_EQ(made_box()->header->records_lost, lost);
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 2048u);
    all_reduces(comm, 1);
    EXPECT_EQ(made_newest_record().duration_ns, 41000) << "they came back";
}

TEST_F(Measured, TheDurationOfANcclGroupIsThatOfItsLastCall)
{
    void *comm = init(0);
    made_group_start(0);
    for (int i = 0; i < 3; i++)
        made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    ASSERT_TRUE(made_await_completed(comm, 3));
    EXPECT_EQ(made_record_before(0).duration_ns, 41000);
    EXPECT_EQ(made_record_before(1).duration_ns, 0);
    EXPECT_EQ(made_record_before(2).duration_ns, 0);
    uint64_t bytes;
    EXPECT_EQ(made_measured(comm, NG_OP_GroupEnd, &bytes), 1u);
    EXPECT_EQ(bytes, 64u) << "48";
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 0u);
    EXPECT_EQ(samples(comm), (std::vector<uint64_t>{3}));
    /* A group of one call is a plain call. */
    made_group_start(0);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    ASSERT_TRUE(made_await_completed(comm, 4));
    EXPECT_EQ(measured(comm, NG_OP_AllReduce), 1u);
    EXPECT_EQ(samples(comm), (std::vector<uint64_t>{3, 4}));
}

/* Not everybody waits for everybody there: one side may have done its part before the other comes.
 */
TEST_F(Measured, SendsAndRootedCollectivesAreNotComparedBetweenRanks)
{
    void *comm = init(0);
    struct made_call broadcast = {.op = NG_OP_Broadcast, .comm = comm, .stream = stream_};
    EXPECT_EQ(made_call(0, &broadcast), OK);
    made_send(0, comm, stream_, 1, OK);
    made_group_start(0);
    made_send(0, comm, stream_, 1, OK);
    made_all_reduce(0, comm, stream_, OK);
    made_group_end(0, OK);
    ASSERT_TRUE(made_await_completed(comm, 2));
    EXPECT_EQ(measured(comm, NG_OP_Broadcast), 1u);
    EXPECT_EQ(measured(comm, NG_OP_Send), 1u);
    EXPECT_EQ(measured(comm, NG_OP_GroupEnd), 1u);
    EXPECT_TRUE(samples(comm).empty());
}

/* So that a group of many calls is not measured more often than one of few. */
TEST_F(Measured, WithSampledGroupsAreCountedAsSuch)
{
    made_set_timing(NG_TIMING_SAMPLED);
    void *comm = init(0);
    for (int i = 0; i < 100; i++) {
        made_group_start(0);
        for (int k = 0; k < 16; k++)
            made_all_reduce(0, comm, stream_, OK);
        made_group_end(0, i % 3 ? OK : ncclRemoteError);
    }
    ASSERT_TRUE(made_await_completed(comm, 66 * 16));
    EXPECT_EQ(samples(comm),
              (std::vector<uint64_t>{2 * 16, 4 * 16, 8 * 16, 16 * 16, 32 * 16, 64 * 16}));
}

TEST_F(Measured, AResetDeviceIsMeasuredAgain)
{
    for (bool numbered : {true, false}) {
        made_number_contexts(numbered);
        made_reset(1);
        void *comm = init(0), *stream = made_stream(1);
        for (uint64_t seq = 1; seq <= 3; seq++) {
            made_all_reduce(0, comm, stream, OK);
            EXPECT_TRUE(made_await_completed(comm, seq));
            EXPECT_EQ(made_newest_record().duration_ns, 41000) << seq << " " << numbered;
            made_reset(1);
        }
    }
    made_number_contexts(true);
}

/* ---- Host calls of a group ---- */

namespace
{

int host_call(void *comm, enum ng_op op, int (*inside)(void *) = nullptr, void *argument = nullptr)
{
    struct made_call call = {.op = op, .comm = comm, .inside = inside, .argument = argument};
    return made_call(0, &call);
}

/* The program asks how a communicator is. */
void expect_asked(void *comm)
{
    int state = ncclSuccess;
    struct made_call ask = {.op = NG_OP_CommGetAsyncError, .comm = comm, .answer = &state};
    EXPECT_EQ(made_call(0, &ask), OK);
}

} // namespace

TEST_F(CallPath, HostCallsAreCountedEachAlone)
{
    void *comm = init(0);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    EXPECT_EQ(host_call(comm, NG_OP_CommResume), OK);
    EXPECT_EQ(host_call(comm, NG_OP_CommDeregister), OK); /* ranks differ in it */
    const uint32_t counts[] = {2, 0, 0, 0, 0, 1};
    for (int i = 0; i < 6; i++)
        EXPECT_EQ(group_of(comm).host_entered[i], counts[i]) << i;
    EXPECT_EQ(group_of(comm).entered, 0u) << "they are no collectives";
}

TEST_F(CallPath, AHostCallThatFailsIsNotCounted)
{
    void *comm = init(0);
    auto refuse = [](void *) { return REFUSED; };
    EXPECT_EQ(host_call(comm, NG_OP_DevCommCreate, refuse), REFUSED);
    EXPECT_EQ(group_of(comm).host_entered[2], 0u);
}

TEST_F(CallPath, InsideAHostCallTheThreadsSlotNamesIt)
{
    void *comm = init(0);
    auto look = [](void *handle) {
        return (int)ng_in_flight_call(made_comm(handle)) == NG_OP_CommSuspend &&
                       group_of(handle).host_entered[4] == 1
                   ? OK
                   : REFUSED;
    };
    EXPECT_EQ(host_call(comm, NG_OP_CommSuspend, look, comm), OK);
    EXPECT_EQ(ng_in_flight_call(made_comm(comm)), (uint32_t)NG_OP_NONE);
}

TEST_F(CallPath, AHostCallInAGroupIsOpenUntilItCloses)
{
    void *comm = init(0);
    made_group_start(0);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    EXPECT_EQ(group_of(comm).host_op, (uint32_t)NG_OP_CommWindowRegister);
    EXPECT_EQ(group_of(comm).host_tid, (uint32_t)gettid());
    EXPECT_EQ(group_of(comm).host_open, 1u);
    auto look = [](void *handle) {
        struct made_group group = group_of(handle);
        return group.host_op == NG_OP_CommWindowRegister && !group.host_open ? OK : REFUSED;
    };
    struct made_call end = {.op = NG_OP_GroupEnd, .inside = look, .argument = comm};
    EXPECT_EQ(made_call(0, &end), OK);
    EXPECT_EQ(group_of(comm).host_op, 0u);
    EXPECT_EQ(group_of(comm).host_entered[0], 1u);
    EXPECT_EQ(group_of(comm).groups_closed, 0u) << "there was no work in it";
}

/* In nonblocking mode it goes on after the group was closed, until the program hears that. */
TEST_F(CallPath, AHostCallInAGroupLastsWhileItIsInProgress)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    void *comm = init(0, 2, &config);
    made_group_start(0);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    made_group_end(0, ncclInProgress);
    EXPECT_EQ(group_of(comm).host_op, (uint32_t)NG_OP_CommWindowRegister);
    expect_asked(comm);
    EXPECT_EQ(group_of(comm).host_op, 0u);
}

/* NCCL 2.28.9 reports success for a window of a nonblocking communicator that is in progress. */
TEST_F(CallPath, AHostCallLastsWhileItIsInProgressThoughItReturnedSuccess)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    void *comm = init(0, 2, &config);
    made_set_async_error(comm, ncclInProgress);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    EXPECT_TRUE(made_question_was_counted());
    EXPECT_EQ(ng_in_flight_call(made_comm(comm)), (uint32_t)NG_OP_CommWindowRegister);
    made_set_async_error(comm, OK);
    expect_asked(comm);
    EXPECT_EQ(ng_in_flight_call(made_comm(comm)), (uint32_t)NG_OP_NONE);
    EXPECT_EQ(host_call(comm, NG_OP_CommWindowRegister), OK);
    EXPECT_EQ(ng_in_flight_call(made_comm(comm)), (uint32_t)NG_OP_NONE) << "it was over at once";
}
