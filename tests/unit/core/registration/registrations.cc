/*
 * Registrations over an NCCL that is as strict as the real one is fragile: it ends the test where
 * that one would corrupt memory.
 *
 * NG_TEST_OPERATIONS: how many operations the random test makes; NG_TEST_SEED: which.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

#include <array>
#include <chrono>
#include <mutex>

extern "C" {
#include "core/registration/registrations.h"
#include "core/registration/segments.h"
}

namespace
{

constexpr size_t SEGMENT = 1 << 21;
constexpr unsigned SLOTS = 64;
constexpr uintptr_t MEMORY = 0x7f0000000000;
constexpr int DEVICE = 1; /* of all communicators of this NCCL */

/* ---- Memory of the program ---- */

std::array<std::atomic<uint64_t>, SLOTS> lives; /* odd: allocated; grows with each step */
std::atomic<uint64_t> ticks{1};
std::array<std::atomic<uint64_t>, SLOTS> freed_at; /* the last time */

uintptr_t address(unsigned slot)
{
    return MEMORY + slot * 2 * SEGMENT;
}

unsigned slot_of(uintptr_t base)
{
    return (unsigned)((base - MEMORY) / (2 * SEGMENT));
}

void *buffer(unsigned slot, size_t at = 0)
{
    return reinterpret_cast<void *>(address(slot) + at);
}

void allocate(unsigned slot, enum ng_segment_kind kind = NG_SEGMENT_NCCL, int device = DEVICE)
{
    lives[slot]++;
    ng_segments_allocated(kind, address(slot), SEGMENT, device);
}

/* As a hook does it whose driver answers success. */
void release(unsigned slot)
{
    struct ng_segment segment;
    ASSERT_TRUE(ng_segments_freeing(address(slot), &segment));
    freed_at[slot] = ++ticks;
    lives[slot]++;
}

/* ---- NCCL ---- */

struct Registration {
    uintptr_t base;
    size_t bytes;
    uint64_t life; /* of the memory */
};

struct Comm {
    /* Threads inside NCCL with it, or with one that it shares resources with. */
    std::shared_ptr<std::atomic<int>> inside = std::make_shared<std::atomic<int>>(0);
    std::atomic<bool> alive{true};
    std::map<uintptr_t, Registration> registrations;
    std::atomic<unsigned> registers{0}, deregisters{0};
    bool had_collective = false;
};

std::mutex comms_lock; /* protects the map; innermost */
std::map<void *, std::unique_ptr<Comm>> comms;
std::atomic<uintptr_t> next_handle{1};
std::atomic<int> register_answer{ncclSuccess};
std::atomic<bool> handles_are_null{false};
std::atomic<bool> peer_is_stopped{false}; /* it does not answer who deregisters, before an abort */
std::atomic<bool> device_is_busy{false};
std::atomic<unsigned> waiting{0};    /* for an answer */
void (*during_register)(void *comm); /* NULL nothing */

Comm &model(void *comm)
{
    std::lock_guard<std::mutex> guard(comms_lock);
    return *comms.at(comm);
}

/* NCCL has no lock: two threads at once are the end, with a child that shares resources too. */
struct Inside {
    explicit Inside(Comm &comm) : comm_(comm)
    {
        if ((*comm_.inside)++)
            abort_test("two threads are inside NCCL with one communicator, or one and its child");
        if (!comm_.alive)
            abort_test("NCCL is called with a communicator that has ended");
    }
    ~Inside()
    {
        (*comm_.inside)--;
    }
    [[noreturn]] static void abort_test(const char *text)
    {
        fprintf(stderr, "%s\n", text);
        std::abort();
    }

  private:
    Comm &comm_;
};

int comm_register(void *handle, void *base, size_t bytes, void **ret_handle)
{
    Comm &comm = model(handle);
    Inside inside(comm);
    uint64_t life = lives[slot_of((uintptr_t)base)];

    if (during_register)
        during_register(handle);
    if (lives[slot_of((uintptr_t)base)] != life)
        Inside::abort_test("memory is freed while it is registered");
    if (*ret_handle)
        Inside::abort_test("the handle was not cleared");
    if (life % 2 == 0)
        Inside::abort_test("memory is registered that does not exist");
    if (register_answer != ncclSuccess || handles_are_null)
        return register_answer;
    uintptr_t number = next_handle++;
    comm.registrations[number] = {(uintptr_t)base, bytes, life};
    comm.registers++;
    *ret_handle = reinterpret_cast<void *>(number);
    return ncclSuccess;
}

int comm_deregister(void *handle, void *registration)
{
    Comm &comm = model(handle);
    Inside inside(comm);

    if (!comm.registrations.erase((uintptr_t)registration))
        Inside::abort_test("what is deregistered is not registered");
    if (device_is_busy)
        Inside::abort_test("what the device may be using is deregistered");
    comm.deregisters++;
    if (peer_is_stopped) {
        waiting++;
        while (comm.alive)
            std::this_thread::yield();
        return ncclInternalError;
    }
    return ncclSuccess;
}

/* A send of this buffer, or a collective (then nothing may be registered). */
struct Use {
    Comm *comm;
    uintptr_t base;
    bool collective;
    bool registered;
    uint64_t begun; /* what was freed before */
};

int use(void *argument)
{
    Use *what = static_cast<Use *>(argument);
    Inside inside(*what->comm);

    for (auto &one : what->comm->registrations) {
        const Registration &registration = one.second;
        if (what->collective ? what->base - registration.base < registration.bytes
                             : what->comm->had_collective)
            Inside::abort_test("a collective, or what comes after one, meets a registration");
        unsigned slot = slot_of(registration.base);
        /* What another thread frees during the call, NCCL does not look at in it. */
        if (registration.life != lives[slot] && freed_at[slot] <= what->begun)
            Inside::abort_test("NCCL meets a registration of memory that was freed");
        what->registered |= what->base - registration.base < registration.bytes;
    }
    what->comm->had_collective |= what->collective;
    return ncclSuccess;
}

int end(void *argument)
{
    Comm *comm = static_cast<Comm *>(argument);
    Inside inside(*comm);

    comm->alive = false;
    return ncclSuccess;
}

/* Others may be inside: this is what brings them out. */
void cut_off(void *comm)
{
    model(comm).alive = false;
}

int end_by_abort(void *argument)
{
    static_cast<Comm *>(argument)->alive = false;
    return ncclSuccess;
}

/* By the guard's thread. */
void await_given_back(void *comm)
{
    while (model(comm).deregisters == 0)
        std::this_thread::yield();
}

struct Registrations : testing::Test {
    static void SetUpTestSuite()
    {
        static bool begun;
        if (begun) /* for another suite of this fixture */
            return;
        begun = true;
        made_begin(2000);
        made_registrations(1, comm_register, comm_deregister);
    }
    void TearDown() override
    {
        register_answer = ncclSuccess;
        handles_are_null = false;
        peer_is_stopped = false;
        device_is_busy = false;
        waiting = 0;
        during_register = nullptr;
        made_calls.on_abort = nullptr;
        for (auto &[handle, comm] : comms)
            if (comm->alive)
                finish(handle, false);
        for (unsigned slot = 0; slot < SLOTS; slot++)
            if (lives[slot] % 2)
                release(slot);
    }
    static void *new_handle()
    {
        static std::atomic<uintptr_t> next{100};
        void *comm = reinterpret_cast<void *>(next++ << 12);
        std::lock_guard<std::mutex> guard(comms_lock);
        comms[comm] = std::make_unique<Comm>();
        return comm;
    }
    static void *make_comm()
    {
        void *comm = new_handle();
        made_init(0, comm, 2, 0, nullptr, ncclSuccess);
        return comm;
    }
    /* A child that shares its parent's resources. */
    static void *split(void *parent)
    {
        void *comm = new_handle();
        model(comm).inside = model(parent).inside;
        made_split(0, parent, comm);
        return comm;
    }
    /* Was it registered when NCCL saw it? */
    bool send(void *comm, const void *from, uint64_t bytes = 4096)
    {
        Use what = {&model(comm), (uintptr_t)from, false, false, ticks};
        EXPECT_EQ(made_transfer(comm, made_stream(0), 1, from, bytes, use, &what), ncclSuccess);
        return what.registered;
    }
    void reduce(void *comm, const void *from)
    {
        Use what = {&model(comm), (uintptr_t)from, true, false, ticks};
        EXPECT_EQ(made_reduce(comm, made_stream(0), from, 4096, use, &what), ncclSuccess);
    }
    /* A communicator over which the first of so many buffers was sent, which is registered. */
    void *make_sender(unsigned buffers = 1)
    {
        void *comm = make_comm();
        for (unsigned slot = 0; slot < buffers; slot++)
            allocate(slot);
        EXPECT_TRUE(send(comm, buffer(0)));
        return comm;
    }
    static void finish(void *comm, bool aborts)
    {
        struct made_call call = {};
        call.op = aborts ? NG_OP_CommAbort : NG_OP_CommDestroy;
        call.comm = comm;
        call.inside = aborts ? end_by_abort : end;
        call.argument = &model(comm);
        EXPECT_EQ(made_call(0, &call), ncclSuccess);
    }
};

TEST_F(Registrations, ASegmentIsRegisteredOnceWhereItIsFirstSent)
{
    void *comm = make_comm();
    allocate(0);
    EXPECT_TRUE(send(comm, buffer(0)));
    EXPECT_TRUE(send(comm, buffer(0, SEGMENT / 2)));
    EXPECT_EQ(model(comm).registers, 1u);
    struct ng_registration_count count;
    ASSERT_TRUE(made_registration_count(comm, &count));
    EXPECT_EQ(count.bytes, 8192u);
    EXPECT_EQ(count.registered_bytes, 8192u);
    EXPECT_EQ(count.held, 1u);
}

TEST_F(Registrations, AFreeGivesBackFirst)
{
    void *comm = make_sender();
    release(0);
    allocate(0);
    EXPECT_TRUE(send(comm, buffer(0))); /* and NCCL has met nothing of the freed memory */
    EXPECT_EQ(model(comm).registers, 2u);
}

TEST_F(Registrations, AFreeDuringACallThatDoesNotReturnGivesBackBeforeTheNextCall)
{
    void *comm = make_sender(2);
    auto frees = [](void *) {
        std::thread([] { release(0); }).join();
        return 0;
    };
    EXPECT_EQ(made_transfer(comm, made_stream(0), 1, buffer(1), 64, frees, nullptr), ncclSuccess);
    EXPECT_EQ(model(comm).registrations.size(), 2u);
    EXPECT_TRUE(send(comm, buffer(1)));
    EXPECT_EQ(model(comm).registrations.size(), 1u);
}

TEST_F(Registrations, TheFirstCollectiveMeetsNoRegistrationAndEndsThemForGood)
{
    void *comm = make_sender();
    reduce(comm, buffer(0));
    EXPECT_TRUE(model(comm).registrations.empty());
    EXPECT_FALSE(send(comm, buffer(0)));
    void *other = make_comm();
    reduce(other, buffer(0));
    EXPECT_FALSE(send(other, buffer(0)));
}

TEST_F(Registrations, PlainMemoryIsLeftAloneAndSoIsEverythingElseOnItsCommunicator)
{
    void *comm = make_comm();
    allocate(0);
    allocate(1, NG_SEGMENT_PLAIN);
    ASSERT_TRUE(send(comm, buffer(0)));
    EXPECT_FALSE(send(comm, buffer(1)));
    EXPECT_TRUE(model(comm).registrations.empty());
    EXPECT_FALSE(send(comm, buffer(0)));
}

TEST_F(Registrations, AMappingThatMayGrowIsLeftAlone)
{
    void *comm = make_comm();
    lives[3]++;
    ng_segments_reserved(address(3), SEGMENT * 2);
    ng_segments_mapped(address(3), SEGMENT, DEVICE, true);
    EXPECT_FALSE(send(comm, buffer(3)));
    ng_segments_unmapping(address(3), SEGMENT);
    ng_segments_unmapped(address(3), SEGMENT);
    lives[3]++;
    lives[4]++;
    ng_segments_reserved(address(4), SEGMENT);
    ng_segments_mapped(address(4), SEGMENT, DEVICE, true);
    void *other = make_comm();
    EXPECT_TRUE(send(other, buffer(4)));
    ng_segments_unmapping(address(4), SEGMENT);
    EXPECT_TRUE(model(other).registrations.empty());
    ng_segments_unmapped(address(4), SEGMENT);
    lives[4]++;
}

TEST_F(Registrations, ADestroyGivesAllBackAndAnAbortNothing)
{
    for (bool aborts : {false, true}) {
        void *comm = make_comm();
        allocate(0);
        ASSERT_TRUE(send(comm, buffer(0)));
        made_await_completed(comm, 0);
        finish(comm, aborts);
        EXPECT_EQ(model(comm).deregisters, aborts ? 0u : 1u);
        release(0); /* must not reach NCCL any more */
    }
}

/* What was made is given back, has ended with the communicator, or is held: of each communicator
 * for itself. */
TEST_F(Registrations, EveryOneThatWasMadeIsAccountedFor)
{
    for (bool aborts : {false, true}) {
        struct ng_registration_count count;
        void *comm = make_comm();
        for (unsigned slot = 0; slot < 3; slot++) {
            allocate(slot);
            ASSERT_TRUE(send(comm, buffer(slot)));
        }
        made_await_completed(comm, 0);
        struct made_group group = group_of(comm);
        release(0);
        await_given_back(comm);
        do
            ASSERT_TRUE(made_registration_count_at(group.slot, &count));
        while (count.ended == 0);
        EXPECT_EQ(count.made, 3u);
        EXPECT_EQ(count.ended, 1u);
        EXPECT_EQ(count.ended_with_group, 0u);
        EXPECT_EQ(count.held, 2u);
        finish(comm, aborts);
        ASSERT_TRUE(made_registration_count_at(group.slot, &count));
        EXPECT_EQ(count.made, 3u);
        EXPECT_EQ(count.ended, aborts ? 1u : 3u);
        EXPECT_EQ(count.ended_with_group, aborts ? 2u : 0u);
        EXPECT_EQ(count.held, 0u);
        for (unsigned slot = 1; slot < 3; slot++)
            release(slot);
    }
}

/* NCCL waits for the device in a destroy anyway. */
TEST_F(Registrations, ADestroyGivesBackWhatTheDeviceIsNotSoonThroughWith)
{
    void *comm = make_comm();
    allocate(0);
    made_calls.held = true;
    auto begun = std::chrono::steady_clock::now();
    ASSERT_TRUE(send(comm, buffer(0)));
    device_is_busy = true;
    std::thread destroyer([comm] { finish(comm, false); });
    std::this_thread::sleep_for(std::chrono::milliseconds(400)); /* longer than a free would wait */
    device_is_busy = false;
    made_calls.held = false;
    auto held = std::chrono::steady_clock::now() - begun;
    destroyer.join();
    /* After a second it counts as one that never ends. */
    if (model(comm).deregisters == 0 && held > std::chrono::milliseconds(900)) {
        EXPECT_IN_TIME(held.count(), 900000000);
    } else {
        EXPECT_EQ(model(comm).deregisters, 1u);
    }
}

/* And not what never ends. */
TEST_F(Registrations, ADestroyLeavesToNcclWhatAPeerDoesNotEnd)
{
    void *comm = make_comm();
    allocate(0);
    made_calls.held = true;
    ASSERT_TRUE(send(comm, buffer(0)));
    finish(comm, false);
    EXPECT_EQ(model(comm).deregisters, 0u);
    made_calls.held = false;
}

TEST_F(Registrations, NeitherAFailureNorAMissingHandleIsGivenBack)
{
    void *comm = make_comm(), *other = make_comm();
    allocate(0);
    handles_are_null = true;
    EXPECT_FALSE(send(comm, buffer(0)));
    handles_are_null = false;
    register_answer = ncclInternalError;
    EXPECT_FALSE(send(other, buffer(0)));
    release(0);
}

/* A collective that gives two back, of which the peer does not answer for the first. */
void reduce_until_aborted(void *comm, const std::function<void()> &abort)
{
    std::atomic<bool> reached{false};
    auto reach = [](void *argument) {
        *static_cast<std::atomic<bool> *>(argument) = true;
        return 0;
    };
    peer_is_stopped = true;
    std::thread reducer([&] {
        EXPECT_NE(made_reduce(comm, made_stream(0), buffer(0), 4096, reach, &reached), ncclSuccess);
    });
    while (!waiting)
        std::this_thread::yield();
    abort();
    reducer.join();
    EXPECT_EQ(waiting, 1u);
    EXPECT_FALSE(reached); /* NCCL, with a communicator that is gone */
}

TEST_F(Registrations, AnAbortByTheProgramEndsAGivingBackThatDoesNotReturn)
{
    void *comm = make_sender(2);
    ASSERT_TRUE(send(comm, buffer(1)));
    made_await_completed(comm, 0);
    reduce_until_aborted(comm, [comm] { finish(comm, true); });
}

TEST_F(Registrations, AnAbortByTheGuardEndsAGivingBackThatDoesNotReturn)
{
    void *comm = make_comm();
    allocate(0);
    allocate(1);
    ASSERT_TRUE(send(comm, buffer(0)));
    ASSERT_TRUE(send(comm, buffer(1)));
    made_await_completed(comm, 0);
    made_calls.on_abort = cut_off;
    struct made_group group = group_of(comm);
    reduce_until_aborted(comm, [&group] { EXPECT_EQ(made_abort(group.id, "test", 5000), 0); });
    while (made_abort_state() == 2)
        std::this_thread::yield();
}

TEST_F(Registrations, AFreeDoesNotWaitForAPeerThatIsStopped)
{
    void *comm = make_comm(), *other = make_comm();
    for (unsigned slot = 0; slot < 3; slot++)
        allocate(slot);
    ASSERT_TRUE(send(comm, buffer(0)));
    ASSERT_TRUE(send(comm, buffer(1)));
    ASSERT_TRUE(send(other, buffer(2)));
    made_await_completed(comm, 0);
    made_await_completed(other, 0);
    peer_is_stopped = true;
    release(0); /* comes back; the guard's thread does not */
    while (!waiting)
        std::this_thread::yield();
    EXPECT_EQ(model(comm).deregisters, 1u);
    release(1);
    release(2);
    EXPECT_EQ(waiting, 1u);
    struct ng_registration_count count;
    ASSERT_TRUE(made_registration_count(comm, &count));
    EXPECT_EQ(count.deferred, 2u);
    peer_is_stopped = false;
    finish(comm, true); /* which brings the thread out */
    await_given_back(other);
    EXPECT_EQ(model(comm).deregisters, 1u);
}

/* Else it would wait its whole time for a thread that has nothing to do there any more. */
TEST_F(Registrations, AFreeGoesOnWhenTheCommunicatorEndsMeanwhile)
{
    void *stuck = make_comm(), *comm = make_comm();
    for (unsigned slot = 0; slot < 2; slot++)
        allocate(slot);
    ASSERT_TRUE(send(stuck, buffer(0)));
    ASSERT_TRUE(send(comm, buffer(1)));
    made_await_completed(stuck, 0);
    made_await_completed(comm, 0);
    struct ng_registration_table *table = made_registration_table(comm);
    ASSERT_NE(table, nullptr);
    peer_is_stopped = true;
    std::thread first([] { release(0); }), second;
    while (!waiting) /* the guard's thread, which is at no other from here on */
        std::this_thread::yield();
    std::atomic<bool> freed{false};
    auto begun = std::chrono::steady_clock::now();
    second = std::thread([&freed] {
        release(1);
        freed = true;
    });
    while (!made_free_asks(table) && !freed)
        std::this_thread::yield();
    finish(comm, true);
    auto took = std::chrono::steady_clock::now() - begun;
    second.join();
    /* Half a second is its whole time. */
    if (made_frees_unanswered(table) && took > std::chrono::milliseconds(450)) {
        EXPECT_IN_TIME(took.count(), 450000000);
    } else {
        EXPECT_EQ(made_frees_unanswered(table), 0u);
    }
    EXPECT_EQ(model(comm).deregisters, 0u) << "an abort leaves it to NCCL";
    finish(stuck, true);
    first.join();
}

TEST_F(Registrations, AFreeThatCouldNotWaitIsMadeUpForWithoutAnotherCall)
{
    void *comm = make_sender();
    auto frees = [](void *) {
        std::thread([] { release(0); }).join();
        return 0;
    };
    EXPECT_EQ(made_transfer(comm, made_stream(0), 1, nullptr, 0, frees, nullptr), ncclSuccess);
    await_given_back(comm);
}

TEST_F(Registrations, AFreeMeetsNoCallOnAChildThatSharesResources)
{
    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
    void *parent = make_comm(), *child = split(parent), *grandchild = split(child);
    unsetenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    allocate(0);
    ASSERT_TRUE(send(parent, buffer(0)));
    struct Seen {
        Comm *parent, *child;
    } seen = {&model(parent), &model(grandchild)};
    auto frees = [](void *argument) {
        Seen *both = static_cast<Seen *>(argument);
        Inside inside(*both->child);
        std::thread([] { release(0); }).join();
        EXPECT_EQ(both->parent->deregisters, 0u);
        return 0;
    };
    EXPECT_EQ(made_reduce(grandchild, made_stream(0), nullptr, 64, frees, &seen), ncclSuccess);
    await_given_back(parent);
}

TEST_F(Registrations, AChildThatSharesNothingHasATurnOfItsOwn)
{
    void *parent = make_comm(), *child = new_handle();
    made_split(0, parent, child);
    allocate(0);
    ASSERT_TRUE(send(parent, buffer(0)));
    made_await_completed(parent, 0);
    auto frees = [](void *argument) {
        std::thread([] { release(0); }).join();
        while (static_cast<Comm *>(argument)->deregisters == 0) /* during the call */
            std::this_thread::yield();
        return 0;
    };
    EXPECT_EQ(made_reduce(child, made_stream(0), nullptr, 64, frees, &model(parent)), ncclSuccess);
}

TEST_F(Registrations, ACollectiveOnOtherBuffersDoesNotWaitForSends)
{
    void *comm = make_sender(2);
    made_await_completed(comm, 0);
    made_calls.held = true;
    ASSERT_TRUE(send(comm, buffer(0)));
    reduce(comm, buffer(1)); /* returns, though the device is held */
    EXPECT_EQ(model(comm).deregisters, 0u);
    made_calls.held = false;
    await_given_back(comm); /* once it is through */
    EXPECT_FALSE(send(comm, buffer(0)));
}

TEST_F(Registrations, AfterACollectiveOnOtherBuffersTheNextSendMeetsNoRegistration)
{
    void *comm = make_sender(2);
    reduce(comm, buffer(1));
    EXPECT_FALSE(send(comm, buffer(1)));
    EXPECT_EQ(model(comm).deregisters, 1u);
}

TEST_F(Registrations, ACollectiveAfterSendsOfItsNCCLGroupMeetsNothing)
{
    void *comm = make_comm();
    allocate(0);
    allocate(1);
    made_group_start(0);
    send(comm, buffer(0));
    reduce(comm, buffer(1));
    EXPECT_EQ(model(comm).deregisters, 1u);
    made_group_end(0, ncclSuccess);
}

TEST_F(Registrations, MemoryOfAnotherDeviceIsLeftAlone)
{
    void *comm = make_comm();
    allocate(0, NG_SEGMENT_NCCL, DEVICE + 1);
    EXPECT_FALSE(send(comm, buffer(0)));
    EXPECT_EQ(model(comm).registers, 0u);
}

TEST_F(Registrations, MemoryThatWasFreedUnseenIsGivenBackWhenItsAddressComesAgain)
{
    void *comm = make_sender();
    made_await_completed(comm, 0);
    lives[0]++;  /* with its context, for one */
    allocate(0); /* elsewhere at the same address */
    await_given_back(comm);
    EXPECT_TRUE(send(comm, buffer(0)));
    EXPECT_EQ(model(comm).registers, 2u);
}

TEST_F(Registrations, ADeviceThatIsResetGivesBackFirst)
{
    void *comm = make_sender();
    made_await_completed(comm, 0);
    ng_segments_device_resetting(DEVICE + 1);
    EXPECT_EQ(model(comm).deregisters, 0u);
    ng_segments_device_resetting(DEVICE);
    await_given_back(comm);
}

TEST_F(Registrations, AnAbortWaitsForWhatIsRegisteredWhenACommunicatorIsMade)
{
    made_registrations(2, comm_register, comm_deregister);
    during_register = [](void *comm) {
        struct made_group group = group_of(comm);
        ASSERT_EQ(made_abort(group.id, "test", 5000), 0);
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < until)
            ASSERT_EQ(made_aborts(comm), 0u);
    };
    allocate(0);
    void *comm = make_comm();
    EXPECT_EQ(model(comm).registers, 1u);
    while (made_abort_state() == 2)
        std::this_thread::yield();
    made_registrations(1, comm_register, comm_deregister);
}

/* Else NCCL would look at memory that is gone. */
TEST_F(Registrations, AFreeWaitsForARegistrationThatIsUnderWay)
{
    static std::thread freeing;
    made_registrations(2, comm_register, comm_deregister);
    allocate(0);
    uint64_t life = lives[0];
    during_register = [](void *) {
        freeing = std::thread([] { release(0); });
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < until)
            ASSERT_EQ(lives[0] % 2, 1u) << "it is freed while NCCL registers it";
    };
    void *comm = make_comm();
    during_register = nullptr;
    freeing.join();
    EXPECT_EQ(lives[0], life + 1);
    await_given_back(comm);
    made_registrations(1, comm_register, comm_deregister);
}

TEST_F(Registrations, FreesOfOtherMemoryDuringACallChangeNothing)
{
    void *comm = make_comm();
    for (unsigned slot = 0; slot < 40; slot++)
        allocate(slot, slot ? NG_SEGMENT_POOL : NG_SEGMENT_NCCL);
    ASSERT_TRUE(send(comm, buffer(0)));
    auto frees = [](void *) {
        std::thread([] {
            for (unsigned slot = 1; slot < 40; slot++)
                release(slot);
        }).join();
        return 0;
    };
    EXPECT_EQ(made_transfer(comm, made_stream(0), 1, buffer(0), 64, frees, nullptr), ncclSuccess);
    EXPECT_TRUE(send(comm, buffer(0)));
    EXPECT_EQ(model(comm).deregisters, 0u);
    struct ng_registration_count count;
    ASSERT_TRUE(made_registration_count(comm, &count));
    EXPECT_EQ(count.deferred, 0u);
}

TEST_F(Registrations, AFreeDoesNotAskAPeerThatLetsWorkWait)
{
    void *comm = make_sender(2);
    made_await_completed(comm, 0);
    made_calls.held = true;
    ASSERT_TRUE(send(comm, buffer(1)));
    while (!group_of(comm).pending_record || group_of(comm).pending_age_ns < 1200000000)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    release(0);
    EXPECT_EQ(model(comm).deregisters, 0u); /* it would not have returned */
    made_calls.held = false;
    EXPECT_TRUE(send(comm, buffer(1)));
    EXPECT_EQ(model(comm).deregisters, 1u);
}

TEST_F(Registrations, SoManyFreesDuringACallThatAllIsGivenBackWaitForTheDevice)
{
    void *comm = make_comm();
    for (unsigned slot = 0; slot < 20; slot++) {
        allocate(slot);
        ASSERT_TRUE(send(comm, buffer(slot)));
    }
    made_await_completed(comm, 0);
    auto frees = [](void *) {
        std::thread([] {
            for (unsigned slot = 1; slot < 20; slot++)
                release(slot);
        }).join();
        return 0;
    };
    device_is_busy = true;
    made_calls.held = true;
    EXPECT_EQ(made_transfer(comm, made_stream(0), 1, buffer(0), 64, frees, nullptr), ncclSuccess);
    std::thread sender([&] { EXPECT_TRUE(send(comm, buffer(0))); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); /* for a mistake to be made */
    device_is_busy = false;
    made_calls.held = false;
    sender.join();
    EXPECT_EQ(model(comm).registrations.size(), 1u);
}

TEST_F(Registrations, OfOneGroupAllOrNoneIsRegisteredAtItsEnd)
{
    void *comm = make_comm();
    for (unsigned slot = 0; slot < 3; slot++)
        lives[slot]++;
    made_group_start(0);
    for (unsigned i = 0; i < 300; i++) {
        uintptr_t base = MEMORY + i * SEGMENT / 64;
        ng_segments_allocated(NG_SEGMENT_NCCL, base, SEGMENT / 64, DEVICE);
        send(comm, reinterpret_cast<void *>(base));
    }
    EXPECT_TRUE(model(comm).registrations.empty());
    made_group_end(0, ncclSuccess);
    struct ng_segment segment;
    for (unsigned i = 0; i < 300; i++)
        EXPECT_TRUE(ng_segments_freeing(MEMORY + i * SEGMENT / 64, &segment));
    for (unsigned slot = 0; slot < 3; slot++)
        lives[slot]++;
}

TEST_F(Registrations, OfMoreThanThereIsRoomForTheOldestGoes)
{
    void *comm = make_comm();
    std::vector<uintptr_t> bases;
    for (unsigned slot = 0; slot < 3; slot++)
        lives[slot]++;
    for (unsigned i = 0; i < 300; i++) {
        uintptr_t base = MEMORY + i * SEGMENT / 64;
        ng_segments_allocated(NG_SEGMENT_NCCL, base, SEGMENT / 64, DEVICE);
        EXPECT_TRUE(send(comm, reinterpret_cast<void *>(base)));
        bases.push_back(base);
    }
    EXPECT_EQ(model(comm).registrations.size(), 300u - 64u);
    EXPECT_EQ(model(comm).deregisters, 64u);
    struct ng_segment segment;
    for (uintptr_t base : bases)
        EXPECT_TRUE(ng_segments_freeing(base, &segment));
    EXPECT_TRUE(model(comm).registrations.empty());
    for (unsigned slot = 0; slot < 3; slot++)
        lives[slot]++;
}

/* What is freed meanwhile is given back with a child, which shares the parent's resources. */
TEST_F(Registrations, ADestroyOfAParentIsAloneInNcclWithItsChildren)
{
    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
    void *parent = make_comm(), *child = split(parent);
    unsetenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    allocate(0);
    ASSERT_TRUE(send(child, buffer(0)));
    struct made_call call = {};
    call.op = NG_OP_CommDestroy;
    call.comm = parent;
    call.argument = &model(parent);
    call.inside = [](void *comm) {
        Inside inside(*static_cast<Comm *>(comm));
        std::thread([] { release(0); }).join();
        usleep(50000); /* whoever would give it back now has the time to */
        static_cast<Comm *>(comm)->alive = false;
        return static_cast<int>(ncclSuccess);
    };
    EXPECT_EQ(made_call(0, &call), ncclSuccess);
    allocate(0);
    EXPECT_TRUE(send(child, buffer(0)));
    EXPECT_EQ(model(child).deregisters, 1u);
    finish(child, false);
    EXPECT_EQ(model(child).deregisters, 2u);
}

/* 1 lazy, 2 eager. */
struct RandomRegistrations : Registrations, testing::WithParamInterface<int> {
};

INSTANTIATE_TEST_SUITE_P(Modes, RandomRegistrations, testing::Values(1, 2));

TEST_P(RandomRegistrations, ThreadsThatSendFreeAndEndMeetNoStaleRegistration)
{
    made_registrations(GetParam(), comm_register, comm_deregister);
    during_register = [](void *) { /* now and then longer than a free waits for a call */
                                   static std::atomic<unsigned> times{0};
                                   if (times++ % 50 == 49)
                                       std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    const char *wanted = getenv("NG_TEST_OPERATIONS"), *chosen = getenv("NG_TEST_SEED");
    unsigned operations = wanted ? (unsigned)atoi(wanted) : 20000;
    uint64_t seed = chosen ? strtoull(chosen, nullptr, 0) : 1;
    constexpr unsigned THREADS = 3;
    std::array<std::atomic<int>, SLOTS> pins{}; /* senders; -1: being allocated or freed */
    std::atomic<uint64_t> registered{0}, sent{0}, collectives{0}, frees{0}, ends{0}, splits{0};
    std::vector<std::thread> threads;

    setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", "1", 1);
    for (unsigned t = 0; t < THREADS; t++)
        threads.emplace_back([&, t] {
            std::mt19937_64 random(seed * THREADS + t);
            std::vector<void *> own;
            auto use_pinned = [&](unsigned slot, auto uses) {
                int pinned = pins[slot];
                while (pinned >= 0 && !pins[slot].compare_exchange_weak(pinned, pinned + 1))
                    ;
                if (pinned < 0)
                    return;
                if (lives[slot] % 2)
                    uses(buffer(slot, random() % 2 ? 0 : SEGMENT / 2));
                pins[slot]--;
            };
            for (unsigned i = 0; i < operations / THREADS; i++) {
                unsigned slot = (unsigned)(random() % SLOTS), what = (unsigned)(random() % 1000);
                while (own.size() < 3)
                    own.push_back(make_comm());
                void *&comm = own[random() % own.size()];
                if (what < 900) {
                    use_pinned(slot, [&](void *from) {
                        registered += send(comm, from);
                        sent++;
                    });
                } else if (what < 984) {
                    int nobody = 0;
                    if (!pins[slot].compare_exchange_strong(nobody, -1))
                        continue;
                    if (lives[slot] % 2)
                        release(slot);
                    else
                        allocate(slot);
                    frees++;
                    pins[slot] = 0;
                } else if (what < 988) {
                    use_pinned(slot, [&](void *from) {
                        reduce(comm, from);
                        collectives++;
                    });
                } else if (what < 992 && own.size() < 6) {
                    own.push_back(split(comm));
                    splits++;
                } else {
                    finish(comm, what % 2);
                    comm = own.back();
                    own.pop_back();
                    ends++;
                }
            }
            for (void *comm : own)
                finish(comm, false);
        });
    for (auto &thread : threads)
        thread.join();
    unsetenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    made_registrations(1, comm_register, comm_deregister);
    fprintf(stderr,
            "seed %llu: %llu sent, %llu registered, %llu collectives, %llu freed or allocated, "
            "%llu split, %llu ended\n",
            (unsigned long long)seed, (unsigned long long)sent, (unsigned long long)registered,
            (unsigned long long)collectives, (unsigned long long)frees, (unsigned long long)splits,
            (unsigned long long)ends);
    EXPECT_GT(registered, sent / 4);
}

} // namespace
