/*
 * Frames of calls: the walk of a thread up its own stack, against what the compiler's unwinder says
 * of the same stack.
 */
#include "tests/unit/core/helpers/core.h"

#include <dlfcn.h>
#include <pthread.h>

#include "tests/gtest/build_folder.h"
#include "tests/unit/core/helpers/walked.h"

namespace
{

/* Of core/recorder/box.h, as a number. */
constexpr int WHOLE = NG_FRAMES_WHOLE, CUT = NG_FRAMES_CUT;
constexpr uint32_t RECORDS = 4096;
constexpr uint64_t WALKERS = 3; /* slots of the first records are theirs */

struct CallStack : testing::Test {
    static void SetUpTestSuite()
    {
        ASSERT_EQ(walked_start(RECORDS), 0);
    }
    static void TearDownTestSuite()
    {
        walked_stop();
    }
    /* Ids are never used twice. */
    static uint64_t next_id()
    {
        static uint64_t last = WALKERS;
        return ++last;
    }
};

struct taken {
    uint64_t id;
    walked_oracle oracle;
};

void take(void *context)
{
    auto *taken = static_cast<struct taken *>(context);
    walked_take(taken->id, &taken->oracle);
    asm volatile("" ::: "memory");
}

struct frames {
    int state;
    std::vector<uint64_t> addresses;
};

frames read(uint64_t id)
{
    uint64_t addresses[WALKED_FRAMES];
    uint32_t count = 0;
    int state = walked_frames(id, addresses, &count);

    return {state, std::vector<uint64_t>(addresses, addresses + count)};
}

frames await(uint64_t id)
{
    uint64_t addresses[WALKED_FRAMES];
    uint32_t count = 0;
    int state = walked_await(id, addresses, &count);

    return {state, std::vector<uint64_t>(addresses, addresses + count)};
}

/* Names come later, those from files last. */
bool gets_name(uint64_t address, const std::string &wanted)
{
    int64_t until = ng_clock_mono_ns() + 20 * NG_S;
    char name[256] = "";

    while (ng_clock_mono_ns() < until) {
        if (walked_name(address, name, sizeof(name)) && name == wanted)
            return true;
        usleep(1000);
    }
    ADD_FAILURE() << "named " << name << ", not " << wanted;
    return false;
}

/* As many as the record has room for. */
std::vector<uint64_t> innermost(const walked_oracle &oracle)
{
    return {oracle.addresses, oracle.addresses + std::min<uint32_t>(oracle.count, WALKED_FRAMES)};
}

/* The first call is completed by the guard, the second finds all rules. */
void expect_like_oracle(const std::function<void(walked_body *, void *)> &through,
                        uint64_t first_id, uint64_t second_id)
{
    for (uint64_t id : {first_id, second_id}) {
        struct taken taken = {id, {}};
        through(take, &taken);
        frames frames = id == first_id ? await(id) : read(id);
        EXPECT_EQ(frames.addresses, innermost(taken.oracle));
        EXPECT_EQ(frames.state, taken.oracle.count > WALKED_FRAMES ? CUT : WHOLE);
    }
}

TEST_F(CallStack, IsWhatTheCompilersUnwinderSaysWithoutFramePointers)
{
    /* On a thread of its own: the test's own frames are more than there is room for. */
    uint64_t one = next_id(), two = next_id();
    std::thread([=] {
        expect_like_oracle(
            [](walked_body *body, void *context) { walked_plainly(body, context, 3); }, one, two);
    }).join();
    frames frames = read(two);
    ASSERT_GT(frames.addresses.size(), 5u);
    for (size_t i = 1; i <= 4; i++)
        EXPECT_TRUE(gets_name(frames.addresses[i], "walked_plainly"));
}

TEST_F(CallStack, KeepsTheInnermostOfManyFrames)
{
    expect_like_oracle([](walked_body *body, void *context) { walked_plainly(body, context, 40); },
                       next_id(), next_id());
}

TEST_F(CallStack, GoesThroughFramesThatHaveNoConstantSizeOrAreAligned)
{
    uint64_t ids[] = {next_id(), next_id(), next_id(), next_id()};
    std::thread([=] {
        expect_like_oracle(
            [](walked_body *body, void *context) { walked_with_pointer(body, context, 1000); },
            ids[0], ids[1]);
        expect_like_oracle([](walked_body *body, void *context) { walked_aligned(body, context); },
                           ids[2], ids[3]);
    }).join();
    EXPECT_TRUE(gets_name(read(ids[1]).addresses.at(1), "walked_with_pointer"));
    EXPECT_TRUE(gets_name(read(ids[3]).addresses.at(1), "walked_aligned"));
}

TEST_F(CallStack, GoesThroughASignalHandlersFrame)
{
    uint64_t one = next_id(), two = next_id();
    std::thread([=] {
        expect_like_oracle(
            [](walked_body *body, void *context) { walked_in_handler(body, context); }, one, two);
    }).join();
    /* Who handles it, the C library's way back, and then, in whatever way that raises it: */
    EXPECT_TRUE(gets_name(read(two).addresses.at(1), "handle"));
    std::set<std::string> names;
    for (uint64_t address : read(two).addresses) {
        char name[256] = "";
        walked_name(address, name, sizeof(name));
        names.insert(name);
    }
    EXPECT_TRUE(names.count("walked_in_handler"));
}

TEST_F(CallStack, OfABurstOfFirstCallsTheNewestIsCompleted)
{
    uint64_t id = 0;

    /* More than there are copies of stacks, and faster than the guard looks. */
    for (int i = 0; i < 100; i++) {
        id = next_id();
        walked_take(id, nullptr);
    }
    EXPECT_GT(await(id).addresses.size(), 1u);
}

TEST_F(CallStack, HasTheCallerWhereTheStacksBoundsAreNotKnown)
{
    uint64_t id = next_id();

    walked_take_elsewhere(id);
    EXPECT_EQ(read(id).state, CUT);
    EXPECT_EQ(read(id).addresses.size(), 1u);
}

void *take_on_tiny_stack(void *argument)
{
    auto *taken = static_cast<struct taken *>(argument);
    walked_take(taken->id, nullptr);
    asm volatile("" ::: "memory");
    return nullptr;
}

TEST_F(CallStack, IsWholeOnTheSmallestStackThatThereIs)
{
    /* With little room beside it for the thread-local storage of this program. */
    pthread_attr_t attributes;
    struct taken taken = {next_id(), {}};
    pthread_t thread;
    pthread_attr_init(&attributes);
    int error = EINVAL;
    for (size_t bytes = PTHREAD_STACK_MIN; error == EINVAL; bytes += 16384) {
        ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
        error = pthread_create(&thread, &attributes, take_on_tiny_stack, &taken);
    }
    ASSERT_EQ(error, 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    frames frames = await(taken.id);
    EXPECT_EQ(frames.state, WHOLE);
    EXPECT_GE(frames.addresses.size(), 2u);
}

TEST_F(CallStack, NeverReadsOutsideADamagedStack)
{
    /* The copy ends where memory does: what reads on crashes. */
    std::vector<uint8_t> stack(8192);
    uint64_t place, pointer;
    size_t bytes = walked_copy(stack.data(), stack.size(), &place, &pointer);
    ASSERT_GT(bytes, 256u);
    uint64_t frames = 0;
    for (uint32_t seed = 0; seed < 3000; seed++)
        frames += walked_damaged(stack.data(), bytes, place, pointer, seed, seed % 64);
    EXPECT_GT(frames, 3000u);
}

void take_alone(void *context)
{
    walked_take(*static_cast<uint64_t *>(context), nullptr);
    asm volatile("" ::: "memory");
}

/* Not in part any more, or a second is over: of many walks at a time that nobody has completed the
 * newer ones are kept. */
frames await_shortly(uint64_t id)
{
    int64_t until = ng_clock_mono_ns() + NG_S;

    while (read(id).state <= NG_FRAMES_PART && ng_clock_mono_ns() < until)
        usleep(1000);
    return read(id);
}

/* A call through a library that is there only meanwhile. */
void go_through(const char *library, const char *function, uint64_t (*next_id)())
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    auto through =
        reinterpret_cast<void (*)(walked_body *, void *)>(dlsym(handle, "walked_library"));
    ASSERT_NE(through, nullptr);
    struct taken taken;
    frames frames;
    for (int tries = 0; tries < 20 && (tries == 0 || frames.state <= NG_FRAMES_PART); tries++) {
        taken = {next_id(), {}};
        through(take, &taken);
        frames = await_shortly(taken.id);
    }
    ASSERT_EQ(frames.addresses, innermost(taken.oracle));
    EXPECT_TRUE(gets_name(frames.addresses.at(1), function));
    EXPECT_TRUE(gets_name(frames.addresses.at(2), "walked_library"));
    dlclose(handle);
}

TEST_F(CallStack, ManyThreadsWalkWhileALibraryComesAndGoes)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> walkers;
    std::atomic<uint64_t> walks{0}, whole{0};

    for (uint64_t walker = 0; walker < WALKERS; walker++)
        walkers.emplace_back([&, walker] {
            /* Always the same slot: the others' are not overwritten. */
            for (uint64_t id = RECORDS + walker; !stop; id += RECORDS) {
                walked_plainly(take_alone, &id, 4);
                walks++;
                whole += read(id).state == WHOLE;
            }
        });
    while (whole < 1000) /* copies of stacks are few: now they need none any more */
        std::this_thread::yield();
    const std::string folder = build_folder() + "/tests/unit/core";
    const std::string libraries[] = {folder + "/libwalked_first.so",
                                     folder + "/libwalked_second.so"};
    for (int round = 0; round < 40 && !HasFailure(); round++)
        go_through(libraries[round % 2].c_str(), round % 2 ? "walked_by_second" : "walked_by_first",
                   next_id);
    stop = true;
    for (auto &walker : walkers)
        walker.join();
    EXPECT_GT(whole, walks / 2);
}

} // namespace
