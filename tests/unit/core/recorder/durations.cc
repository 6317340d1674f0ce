/*
 * Which works are measured, and what is kept of their durations.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/recorder/durations.h"
/* core/config/timing.h, which C++ cannot read. */
uint64_t ng_timing_next(int mode, uint64_t number);
bool ng_timing_take(const int *mode, uint64_t *next, uint64_t number);
}

namespace
{

struct Durations : testing::Test {
    void SetUp() override
    {
        struct ng_box_identity who = {.job = "by-hand"};
        ASSERT_EQ(ng_box_create(nullptr, &who, 8, &box_), 0);
    }
    void TearDown() override
    {
        ng_box_close(&box_, nullptr);
    }
    std::vector<struct ng_duration> read() const
    {
        std::vector<struct ng_duration> rows;
        struct ng_duration row;
        for (uint32_t i = 0; i < box_.duration_capacity; i++)
            if (ng_durations_read(&box_, i, &row))
                rows.push_back(row);
        return rows;
    }
    std::vector<struct ng_duration_sample> samples() const
    {
        std::vector<struct ng_duration_sample> found;
        struct ng_duration_sample sample;
        uint64_t number, end;
        for (ng_duration_samples(&box_, &number, &end); number < end; number++)
            if (ng_duration_sample_read(&box_, number, &sample))
                found.push_back(sample);
        return found;
    }
    /* A communicator of that group. */
    void live(uint64_t group_id)
    {
        struct ng_box_group *group = &box_.groups[box_.header->group_used++];
        group->id = group_id;
        group->state = NG_GROUP_READY;
    }
    struct ng_box_duration *find_row(uint64_t group_id)
    {
        for (uint32_t i = 0; i < box_.duration_capacity; i++)
            if (box_.durations[i].group_id == group_id)
                return &box_.durations[i];
        return nullptr;
    }
    void sample(uint64_t group_id, uint64_t seq, int64_t duration_ns)
    {
        struct ng_duration_sample sample = {group_id, 0, seq, 1, duration_ns};
        ng_duration_sample_add(&box_, &sample);
    }
    struct ng_box box_ = {};
};

std::set<uint64_t> chosen(int mode, uint64_t count)
{
    std::set<uint64_t> numbers;
    uint64_t next = 0;
    for (uint64_t number = 1; number <= count; number++)
        if (number >= next && ng_timing_take(&mode, &next, number))
            numbers.insert(number);
    return numbers;
}

} // namespace

TEST(Timing, OffMeasuresNothingAndAllEverything)
{
    EXPECT_TRUE(chosen(NG_TIMING_OFF, 1000).empty());
    EXPECT_EQ(ng_timing_next(NG_TIMING_OFF, 1), UINT64_MAX);
    EXPECT_EQ(chosen(NG_TIMING_ALL, 1000).size(), 1000u);
}

TEST(Timing, SampledMeasuresOneOf128AndSomeEarlyOnes)
{
    std::set<uint64_t> numbers = chosen(NG_TIMING_SAMPLED, 128 * 1000 - 1);
    EXPECT_EQ(std::vector<uint64_t>(numbers.begin(), std::next(numbers.begin(), 6)),
              (std::vector<uint64_t>{2, 4, 8, 16, 32, 64}))
        << "the first call makes connections: its duration says nothing";
    EXPECT_EQ(numbers.size(), 6u + 999u);
    std::map<uint64_t, int> places;
    for (uint64_t number : numbers)
        places[number % 128]++;
    EXPECT_GT(places.size(), 100u) << "not always the same call of an iteration of 128";
}

/* Ranks see other works between, were started at other times, or had calls that failed. */
TEST(Timing, TheChoiceFollowsFromTheNumberAlone)
{
    const int sampled = NG_TIMING_SAMPLED;
    std::mt19937_64 random(7);
    std::set<uint64_t> all = chosen(NG_TIMING_SAMPLED, 5000);
    for (int rank = 0; rank < 50; rank++) {
        uint64_t next = 0;
        for (uint64_t number = 1; number <= 5000; number++) {
            /* A call that NCCL refused: the same number comes again. */
            if (random() % 50 == 0) {
                if (number >= next)
                    ng_timing_take(&sampled, &next, number);
                next = 0;
            }
            bool taken = number >= next && ng_timing_take(&sampled, &next, number);
            EXPECT_EQ(taken, all.count(number) == 1) << number;
            /* Some of its calls are in NCCL groups, which are counted apart. */
            if (!taken && random() % 20 == 0 && !all.count(number + 1))
                number++;
        }
    }
}

/* It may come at any moment of a call. */
TEST(Timing, AChangeOfModeIsNeverMissed)
{
    constexpr int rounds = 5000;
    int mode = NG_TIMING_OFF;
    uint64_t next = 0;
    std::atomic<int> changed = 0, seen = 0;
    auto change = [&](int to) {
        __atomic_store_n(&mode, to, __ATOMIC_SEQ_CST);
        __atomic_store_n(&next, 0, __ATOMIC_SEQ_CST);
    };
    std::thread person([&] {
        std::mt19937 random(1);
        for (int round = 1; round <= rounds; round++) {
            change(NG_TIMING_OFF);
            for (volatile unsigned left = random() % 64; left > 0; left = left - 1)
                ;
            change(NG_TIMING_ALL);
            changed = round;
            while (seen != round)
                std::this_thread::yield();
        }
    });
    unsigned missed = 0;
    for (uint64_t number = 1; seen < rounds; number++) {
        int before = changed;
        bool taken = number >= __atomic_load_n(&next, __ATOMIC_RELAXED) &&
                     ng_timing_take(&mode, &next, number);
        if (before == seen)
            continue;
        missed += !taken;
        seen = before;
    }
    person.join();
    EXPECT_EQ(missed, 0u);
}

TEST(Timing, NumbersNeedNotBeSmall)
{
    uint64_t far = UINT64_C(1) << 60;
    uint64_t next = ng_timing_next(NG_TIMING_SAMPLED, far);
    EXPECT_GE(next, far);
    EXPECT_LT(next, far + 256);
    EXPECT_EQ(ng_timing_next(NG_TIMING_SAMPLED, next), next);
}

TEST(DurationClasses, AreThePowersOfTwoThatHoldThem)
{
    for (auto [bytes, size_class] : {std::pair<uint64_t, uint32_t>{0, 0},
                                     {1, 0},
                                     {2, 1},
                                     {3, 2},
                                     {4, 2},
                                     {5, 3},
                                     {1024, 10},
                                     {1025, 11},
                                     {UINT64_C(1) << 63, 63},
                                     {UINT64_MAX, 64}})
        EXPECT_EQ(ng_duration_size_class(bytes), size_class) << bytes;
    for (auto [ns, bucket] : {std::pair<int64_t, unsigned>{1, 0},
                              {999, 0},
                              {1000, 1},
                              {1999, 1},
                              {2000, 2},
                              {NG_S, 20},
                              {INT64_MAX, NG_DURATION_BUCKETS - 1}}) {
        EXPECT_EQ(ng_duration_bucket(ns), bucket) << ns;
        EXPECT_TRUE(ns < ng_duration_bucket_end_ns(bucket) || ns == INT64_MAX) << ns;
        EXPECT_TRUE(bucket == 0 || ns >= ng_duration_bucket_end_ns(bucket - 1)) << ns;
    }
}

TEST_F(Durations, AreCountedByGroupOperationAndSize)
{
    EXPECT_TRUE(read().empty());
    for (int64_t us : {30, 10, 20})
        ng_durations_add(&box_, 0xabc, NG_OP_AllReduce, 4096, us * NG_US);
    ng_durations_add(&box_, 0xabc, NG_OP_AllReduce, 4097, NG_US);
    ng_durations_add(&box_, 0xabc, NG_OP_AllGather, 4096, NG_US);
    ng_durations_add(&box_, 0xabd, NG_OP_AllReduce, 4096, NG_US);
    ASSERT_EQ(read().size(), 4u);
    for (const struct ng_duration &row : read()) {
        if (row.group_id != 0xabc || row.op != NG_OP_AllReduce || row.size_class != 12) {
            EXPECT_EQ(row.count, 1u);
            continue;
        }
        EXPECT_EQ(row.count, 3u);
        EXPECT_EQ(row.sum_ns, 60000u);
        EXPECT_EQ(row.min_ns, 10000u);
        EXPECT_EQ(row.max_ns, 30000u);
        EXPECT_EQ(row.histogram[4], 1u) << "8 to 16 us";
        EXPECT_EQ(row.histogram[5], 2u) << "16 to 32 us";
    }
}

TEST_F(Durations, WhatFindsNoRoomIsCounted)
{
    for (uint64_t i = 0; i < box_.duration_capacity + 10u; i++) {
        live(1 + i);
        ng_durations_add(&box_, 1 + i, NG_OP_AllReduce, 4, NG_US);
    }
    EXPECT_EQ(read().size(), box_.duration_capacity);
    EXPECT_EQ(box_.header->durations_lost, 10u);
    ng_durations_add(&box_, 1, NG_OP_AllReduce, 4, NG_US);
    EXPECT_EQ(box_.header->durations_lost, 10u) << "what has a row goes on";
    ng_durations_add(&box_, 0, NG_OP_AllReduce, 4, NG_US);
    EXPECT_EQ(box_.header->durations_lost, 11u) << "a group whose id is not known yet";
}

TEST_F(Durations, ANewGroupGetsTheOldestRowOfOneThatHasEnded)
{
    uint32_t capacity = box_.duration_capacity;
    for (uint64_t i = 0; i < capacity; i++) {
        live(1 + i);
        ng_durations_add(&box_, 1 + i, NG_OP_AllReduce, 4, 3 * NG_US);
        __atomic_store_n(&find_row(1 + i)->newest_mono_ns, (int64_t)(1000 + i), __ATOMIC_RELAXED);
    }
    box_.groups[7].state = NG_GROUP_DESTROYED;
    box_.groups[5].state = NG_GROUP_ABORTED;
    live(9000);
    ng_durations_add(&box_, 9000, NG_OP_AllGather, 1024, NG_US);
    EXPECT_EQ(find_row(6), nullptr) << "the older one of the two";
    ASSERT_NE(find_row(8), nullptr);
    ASSERT_NE(find_row(9000), nullptr);
    struct ng_duration row;
    ASSERT_TRUE(ng_durations_read(&box_, (uint32_t)(find_row(9000) - box_.durations), &row));
    EXPECT_EQ(row.op, NG_OP_AllGather);
    EXPECT_EQ(row.size_class, 10u);
    EXPECT_EQ(row.count, 1u);
    EXPECT_EQ(row.max_ns, 1000u) << "nothing of the one before";
    EXPECT_EQ(row.histogram[2], 0u);
    ng_durations_add(&box_, 9000, NG_OP_AllGather, 1024, NG_US);
    ASSERT_TRUE(ng_durations_read(&box_, (uint32_t)(find_row(9000) - box_.durations), &row));
    EXPECT_EQ(row.count, 2u) << "it is found again";
    ng_durations_add(&box_, 9000, NG_OP_AllReduce, 1024, NG_US);
    EXPECT_EQ(find_row(8), nullptr);
    EXPECT_EQ(read().size(), capacity);
    EXPECT_EQ(box_.header->durations_lost, 0u);
    ng_durations_add(&box_, 9000, NG_OP_Reduce, 1024, NG_US);
    EXPECT_EQ(box_.header->durations_lost, 1u) << "all others live";
}

TEST_F(Durations, DamagedRowsAreNone)
{
    ng_durations_add(&box_, 0xabc, NG_OP_AllReduce, 4096, NG_US);
    struct ng_box_duration *row = nullptr;
    for (uint32_t i = 0; i < box_.duration_capacity; i++)
        if (box_.durations[i].group_id)
            row = &box_.durations[i];
    ASSERT_NE(row, nullptr);
    struct ng_box_duration good = *row;
    row->op = NG_OP_LIMIT;
    EXPECT_TRUE(read().empty());
    *row = good;
    row->size_class = 65;
    EXPECT_TRUE(read().empty());
    *row = good;
    row->histogram[3] = 2;
    EXPECT_TRUE(read().empty());
    *row = good;
    row->min_ns = UINT64_MAX;
    EXPECT_TRUE(read().empty());
    *row = good;
    EXPECT_EQ(read().size(), 1u);
}

TEST_F(Durations, TheNewestSamplesAreKept)
{
    EXPECT_TRUE(samples().empty());
    sample(0xabc, 7, 41000);
    ASSERT_EQ(samples().size(), 1u);
    EXPECT_EQ(samples()[0].group_id, 0xabcu);
    EXPECT_EQ(samples()[0].seq, 7u);
    EXPECT_EQ(samples()[0].calls, 1u);
    EXPECT_EQ(samples()[0].duration_ns, 41000);
    for (uint64_t seq = 1; seq <= 3 * box_.sample_capacity; seq++)
        sample(0xabc, seq, (int64_t)seq);
    ASSERT_EQ(samples().size(), box_.sample_capacity);
    for (size_t i = 0; i < samples().size(); i++)
        EXPECT_EQ(samples()[i].seq, 2 * box_.sample_capacity + i + 1);
}

TEST_F(Durations, DamagedSamplesAreNone)
{
    sample(0xabc, 7, 41000);
    box_.header->sample_next = UINT64_MAX;
    EXPECT_TRUE(samples().empty());
    box_.header->sample_next = 2;
    box_.samples[1].duration_ns = INT64_MAX;
    EXPECT_TRUE(samples().empty());
    box_.samples[1].duration_ns = -1;
    EXPECT_TRUE(samples().empty());
    box_.samples[1].duration_ns = 1;
    EXPECT_EQ(samples().size(), 1u);
}

/* The layout of writers before these tables: nothing of it is read. */
TEST(DurationsOfABox, OfAnOlderWriterOrDamagedThereAreNone)
{
    Folder folder;
    struct ng_box box, read;
    struct ng_box_identity who = {.job = "by-hand"};
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 8, &box), 0);
    ng_durations_add(&box, 0xabc, NG_OP_AllReduce, 4096, NG_US);
    struct ng_duration_sample sample = {0xabc, 0, 7, 1, 41000};
    ng_duration_sample_add(&box, &sample);
    struct ng_box_header good = *box.header;
    auto open = [&] {
        EXPECT_EQ(ng_box_open((folder / box.name).c_str(), &read), 0);
        EXPECT_EQ(ng_box_read(&read, NG_BOX_REST), 0);
        std::pair<uint32_t, uint32_t> capacities{read.duration_capacity, read.sample_capacity};
        struct ng_duration row;
        uint64_t first, end;
        for (uint32_t i = 0; i < read.duration_capacity; i++)
            ng_durations_read(&read, i, &row);
        ng_duration_samples(&read, &first, &end);
        EXPECT_LE(end - first, read.sample_capacity);
        ng_box_close(&read, nullptr);
        return capacities;
    };
    EXPECT_EQ(open(), (std::pair{good.duration_capacity, good.sample_capacity}));
    memset(&box.header->durations_offset, 0, sizeof(uint64_t));
    EXPECT_EQ(open().first, 0u);
    box.header->durations_offset = good.durations_offset;
    box.header->duration_capacity = 1u << 24;
    EXPECT_EQ(open().first, 0u);
    box.header->duration_capacity = good.duration_capacity;
    box.header->sample_bytes = 40;
    EXPECT_EQ(open(), (std::pair{good.duration_capacity, 0u}));
    box.header->sample_bytes = good.sample_bytes;
    box.header->samples_offset = good.total_bytes - 8;
    EXPECT_EQ(open().second, 0u);
    ng_box_close(&box, nullptr);
}
