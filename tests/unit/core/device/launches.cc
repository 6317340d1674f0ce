/*
 * NCCL's own counters: what a launch adds to them, and what they say of a row of launches.
 */
#include "tests/unit/core/helpers/core.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

extern "C" {
#include "tests/unit/core/helpers/launches.h"
}

namespace
{

launches_kernel kernel(uint64_t channels, uint64_t seq)
{
    return {channels, 1, 1, seq, false, 0, 0, false, 0, 0, 0};
}

struct Launches : testing::Test {
    void SetUp() override
    {
        launches_begin();
    }
    void launch(const launches_kernel &kernel)
    {
        ASSERT_TRUE(launches_add(&kernel));
    }
    /* What the log says once these channels have counted so far. */
    std::string progress(std::initializer_list<std::pair<size_t, uint64_t>> channels = {})
    {
        for (auto [channel, counted] : channels)
            counters_[channel] = counted;
        return launches_progress(counters_);
    }

    static std::string progress_of(const uint64_t *counters)
    {
        return launches_progress(counters);
    }

    uint64_t counters_[64] = {};
};

} // namespace

TEST_F(Launches, NothingWasLaunched)
{
    EXPECT_EQ(progress(), "counted 0, 0 left");
}

TEST_F(Launches, OfThreeQueuedCallsTheCountersTellWhichAreLeft)
{
    for (uint64_t seq = 1; seq <= 3; seq++)
        launch(kernel(1, seq));
    EXPECT_EQ(progress(), "counted 0, 3 left");
    EXPECT_EQ(progress({{0, 1}}), "counted 1, 2 left");
    EXPECT_EQ(progress({{0, 2}}), "counted 2, 1 left");
    EXPECT_EQ(progress({{0, 3}}), "counted 3, 0 left");
}

TEST_F(Launches, ALaunchHasCountedOnceAllItsChannelsHave)
{
    launch(kernel(UINT64_C(1) << 63 | 6, 1));
    EXPECT_EQ(progress({{1, 1}, {63, 1}}), "counted 0, 1 left");
    EXPECT_EQ(progress({{2, 1}}), "counted 1, 0 left");
}

TEST_F(Launches, AllWorksOfAllBatchesOfAChannelCount)
{
    launches_kernel several = kernel(3, 5);

    several.batches = 3;
    several.works = 4;
    launch(several);
    EXPECT_EQ(progress({{0, 12}, {1, 11}}), "counted 0, 1 left");
    EXPECT_EQ(progress({{1, 12}}), "counted 5, 0 left");
}

TEST_F(Launches, AGroupOfSeveralLaunchesHasCountedWithItsLast)
{
    launch(kernel(1, 3));
    for (int i = 0; i < 3; i++)
        launch(kernel(1, 9));
    EXPECT_EQ(progress({{0, 3}}), "counted 3, 1 left");
    EXPECT_EQ(progress({{0, 4}}), "counted 9, 0 left");
}

TEST_F(Launches, BehindSendsAndReceivesTheCollectiveBeforeThemIsTold)
{
    launches_kernel exchange = kernel(1, 3);

    exchange.p2p = true;
    launch(kernel(1, 3));
    launch(exchange);
    EXPECT_EQ(progress({{0, 1}}), "counted 3, 1 left");
}

TEST_F(Launches, CountersThatContradictTheLogSayNothing)
{
    launch(kernel(1, 1));
    launch(kernel(2, 2));
    EXPECT_EQ(progress({{0, 2}}), "unknown") << "more than was launched";
    EXPECT_EQ(progress({{0, 0}, {1, 1}}), "unknown") << "the second before the first";
    EXPECT_EQ(progress({{1, 0}, {5, 1}}), "unknown") << "on a channel without a launch";
}

TEST_F(Launches, ALaunchThatTheLogHasForgottenIsNotTold)
{
    for (uint64_t seq = 1; seq <= 300; seq++)
        launch(kernel(1, seq));
    EXPECT_EQ(progress({{0, 45}}), "unknown");
    EXPECT_EQ(progress({{0, 46}}), "counted 46, 254 left");
}

TEST_F(Launches, KernelsOfManyKindsInTurnAreToldApart)
{
    uint64_t launched[64] = {};
    std::vector<std::array<uint64_t, 64>> after(1);

    for (uint64_t seq = 1; seq <= 700; seq++) {
        launches_kernel one = kernel(seq % 7 < 4 ? 1 : UINT64_MAX >> (seq % 5 * 11), seq);
        one.works = 1 + seq / 3 % 2;
        one.uneven = seq % 11 == 0;
        if (one.uneven)
            one.channels &= 0xffff;
        launch(one);
        unsigned block = 0;
        for (unsigned channel = 0; channel < 64; channel++)
            if (one.channels >> channel & 1)
                launched[channel] += one.works + block++ * one.uneven;
        after.emplace_back();
        std::copy_n(launched, 64, after.back().begin());
    }
    for (uint64_t done : {446u, 447u, 500u, 611u, 698u, 699u, 700u})
        EXPECT_EQ(std::string(launches_progress(after[done].data())),
                  "counted " + std::to_string(done) + ", " + std::to_string(700 - done) + " left");
    EXPECT_STREQ(launches_progress(after[445].data()), "unknown") << "forgotten";
    after[600][0]++;
    EXPECT_STREQ(launches_progress(after[600].data()), "counted 600, 100 left")
        << "the next one has counted on one of its channels";
    after[700][63]++;
    EXPECT_STREQ(launches_progress(after[700].data()), "unknown") << "more than was launched";
}

TEST_F(Launches, AKernelThatDiffersOnOneChannelIsNotTakenForTheOneBefore)
{
    for (unsigned channels : {2, 8, 9, 31, 64}) {
        launches_kernel one = kernel(UINT64_MAX >> (64 - channels), 1);
        std::vector<uint64_t> counted(64, 0);

        launches_begin();
        launch(one);
        one.last_works = 5;
        one.seq = 2;
        launch(one);
        one.last_works = 0;
        one.seq = 3;
        launch(one);
        std::fill_n(counted.begin(), channels, 3);
        EXPECT_STREQ(launches_progress(counted.data()), "counted 1, 2 left") << channels;
        counted[channels - 1] = 6;
        EXPECT_STREQ(launches_progress(counted.data()), "counted 2, 1 left") << channels;
        counted[channels - 1] = 7;
        EXPECT_STREQ(launches_progress(counted.data()), "counted 3, 0 left") << channels;
    }
}

/* A thread launches what is finished at once, and works of one and of two in turn. */
TEST_F(Launches, AReadingWhileAnotherThreadLaunchesIsRightOrNone)
{
    constexpr uint64_t ALL = 20000;
    std::atomic<uint64_t> done{0};
    uint64_t right = 0;

    std::thread launcher([&] {
        for (uint64_t seq = 1; seq <= ALL; seq++) {
            launches_kernel one = kernel(1, seq);
            one.works = 1 + seq / 4 % 2;
            launches_add(&one);
            done = seq;
        }
    });
    for (uint64_t seq = 0; seq < ALL;) {
        seq = done;
        uint64_t counters[64] = {};
        for (uint64_t one = 1; one <= seq % 8; one++)
            counters[0] += 1 + one / 4 % 2;
        counters[0] += seq / 8 * 12;
        std::string told = launches_progress(counters);
        if (told == "unknown")
            continue;
        right++;
        ASSERT_EQ(told.substr(0, told.find(',')), "counted " + std::to_string(seq));
    }
    launcher.join();
    EXPECT_GT(right, 0u);
}

/* A thread launches several times while the log is read once. */
TEST_F(Launches, ALogIsReadBesideAThreadThatLaunchesAllTheTime)
{
    using clock = std::chrono::steady_clock;
    constexpr int READS = 200;
    std::atomic<uint64_t> done{0};
    std::atomic<bool> over{false};
    int answers = 0;

    for (uint64_t seq = 1; seq <= 300; seq++)
        launch(kernel(UINT64_MAX, seq));
    uint64_t counters[64] = {};
    std::fill_n(counters, 64, 300);
    auto before = clock::now();
    for (int i = 0; i < READS; i++)
        EXPECT_EQ(progress_of(counters), "counted 300, 0 left");
    auto pause = (clock::now() - before) / READS / 4;
    done = 300;
    std::thread launcher([&] {
        for (auto next = clock::now(); !over; next = clock::now() + pause) {
            while (clock::now() < next && !over)
                ;
            launches_kernel one = kernel(UINT64_MAX, done + 1);
            launches_add(&one);
            done++;
        }
    });
    while (done < 400)
        std::this_thread::yield();
    for (int i = 0; i < READS; i++) {
        uint64_t seq = done;
        std::fill_n(counters, 64, seq);
        std::string told = progress_of(counters);
        if (told == "unknown")
            continue;
        answers++;
        EXPECT_EQ(told.substr(0, told.find(',')), "counted " + std::to_string(seq));
    }
    over = true;
    launcher.join();
    EXPECT_GT(answers, READS * 3 / 4);
}

TEST_F(Launches, OnlyTheKnownArgumentsAreTaken)
{
    launches_kernel wrong[5];

    std::fill_n(wrong, 5, kernel(3, 1));
    wrong[0].more_blocks = 1;
    wrong[1].fewer_bytes = 16; /* a batch is missing */
    wrong[2].works = 0;
    wrong[3].nowhere = true;
    wrong[4].storage = 3;
    for (int i = 0; i < 5; i++)
        EXPECT_FALSE(launches_add(&wrong[i])) << i;
}

/* ---- The structure on the device ---- */

constexpr uint64_t AT = 0x7f1234567000;

static std::vector<unsigned char> structure(int rank, int nranks, size_t channels_at,
                                            size_t counter_at, uint64_t channels = AT + 96)
{
    std::vector<unsigned char> bytes(LAUNCHES_COMM_BYTES, 0);

    memcpy(&bytes[0], &rank, sizeof(rank));
    memcpy(&bytes[4], &nranks, sizeof(nranks));
    memcpy(&bytes[channels_at], &channels, sizeof(channels));
    for (uint64_t channel = 0; channel < 64; channel++) {
        uint64_t counter = 100 + channel;
        memcpy(&bytes[96 + channel * 368 + counter_at], &counter, sizeof(counter));
    }
    return bytes;
}

TEST(LaunchCounters, ThoseOfAKnownReleaseAreRead)
{
    static const struct {
        int version;
        size_t channels_at, counter_at;
    } rows[] = {
        {22605, 64, 352}, {22707, 56, 352}, {22809, 56, 352}, {22902, 56, 360}, {23203, 56, 360}};
    uint64_t counters[64];

    for (const auto &row : rows) {
        auto bytes = structure(3, 8, row.channels_at, row.counter_at);
        ASSERT_TRUE(launches_parse(bytes.data(), AT, row.version, 3, 8, counters)) << row.version;
        EXPECT_EQ(counters[0], 100u);
        EXPECT_EQ(counters[63], 163u);
    }
}

TEST(LaunchCounters, AnotherLayoutIsNotRead)
{
    auto bytes = structure(3, 8, 56, 352);
    uint64_t counters[64];

    EXPECT_FALSE(launches_parse(bytes.data(), AT, 22809, 2, 8, counters)) << "another rank";
    EXPECT_FALSE(launches_parse(bytes.data(), AT, 22809, 3, 4, counters)) << "another size";
    EXPECT_FALSE(launches_parse(bytes.data(), AT + 8, 22809, 3, 8, counters)) << "elsewhere";
    for (int version : {0, 22602, 22812, 22901, 23204})
        EXPECT_FALSE(launches_parse(bytes.data(), AT, version, 3, 8, counters)) << version;
    bytes = structure(3, 8, 64, 360, AT + 104);
    EXPECT_FALSE(launches_parse(bytes.data(), AT, 22809, 3, 8, counters)) << "8 bytes longer";
}

TEST(LaunchCounters, WhatContradictsTheEventsIsNotSaid)
{
    EXPECT_TRUE(launches_agree(6, 3, 6, 7));
    EXPECT_TRUE(launches_agree(6, 3, 5, 7)) << "the watchdog lags behind";
    EXPECT_TRUE(launches_agree(6, 1, 6, 0)) << "sends and receives are in flight";
    EXPECT_TRUE(launches_agree(0, 1, 0, 1)) << "the first";
    EXPECT_FALSE(launches_agree(7, 1, 6, 7)) << "it has counted, and runs on";
    EXPECT_FALSE(launches_agree(6, 1, 7, 8)) << "more has finished than has counted";
    EXPECT_FALSE(launches_agree(6, 0, 6, 7)) << "all has counted";
}

/* As read with 2.32.3 on two GPUs: of an all-reduce in 24 channels, and of a rank whose stream has
 * not come to it. */
TEST(LaunchCounters, AKernelRunsWhereAnyChannelHasACollective)
{
    uint64_t words[16 + 16 + 64] = {};

    words[4] = 19; /* all-reduces so far */
    words[16 + 4] = 0x18ec1064bae23e20;
    EXPECT_EQ(launches_kernel_state(words), LAUNCHES_KERNEL_NOT_BEGUN);
    words[32 + 23] = 0x10;
    EXPECT_EQ(launches_kernel_state(words), LAUNCHES_KERNEL_RUNS);
    words[32 + 23] = 0;
    words[32 + 63] = 0x10;
    EXPECT_EQ(launches_kernel_state(words), LAUNCHES_KERNEL_RUNS);
}

/* It holds as long as the same work is the oldest. */
TEST(LaunchCounters, TheBlackBoxHasThemWithTheWorkThatWasTheOldest)
{
    constexpr uint64_t FAR = UINT64_C(5) << 32;

    EXPECT_STREQ(launches_in_box(77, 6, 3, 77, 9, 0), "finished 6, 3 left");
    EXPECT_STREQ(launches_in_box(77, 6, 3, 78, 9, 0), "unknown");
    EXPECT_STREQ(launches_in_box(77, 6, 100000, 77, 9, LAUNCHES_KERNEL_RUNS),
                 "finished 6, 8191 left, runs");
    EXPECT_STREQ(launches_in_box(77, 6, 1, 77, 9, LAUNCHES_KERNEL_NOT_BEGUN),
                 "finished 6, 1 left, not begun");
    EXPECT_STREQ(launches_in_box(1 << 16, 0, 1, 1 << 16, 0, 0), "finished 0, 1 left");
    EXPECT_STREQ(launches_in_box(77, 6, 100000, 77, 9, 0), "finished 6, 8191 left");
    EXPECT_STREQ(launches_in_box(77, FAR - 1, 3, 77, FAR + 1, 0), "finished 21474836479, 3 left");
    EXPECT_STREQ(launches_in_box(77, FAR + 1, 3, 77, FAR + 1, 0), "finished 21474836481, 3 left");
}
