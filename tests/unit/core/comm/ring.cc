/*
 * The ring as its writers use it: readers see whole records, overwritten ones are left alone.
 */
#include "tests/unit/core/helpers/box.h"

extern "C" {
#include "tests/unit/core/comm/ring_writer.h"
}

namespace
{

struct Ring : testing::Test {
    void SetUp() override
    {
        struct ng_box_identity who = {.rank = 0, .job = "by-hand"};
        ASSERT_EQ(ng_box_create(folder_.path().c_str(), &who, CAPACITY, &box_), 0);
        ASSERT_EQ(ng_box_open((folder_ / folder_.names().at(0)).c_str(), &reader_), 0);
        Writer(&box_).group(3, 0x77, 2, 0, "dp");
        ring_use(&box_, 3);
    }
    void TearDown() override
    {
        ng_box_close(&reader_, nullptr);
        ng_box_close(&box_, nullptr);
    }
    /* What a neighbour sees: checks every record, returns how many there were. */
    uint32_t read()
    {
        OwnView view;
        EXPECT_EQ(ng_view_add_box(&view, &reader_, NG_LIFE_RUNNING, 1, "box"), 0);
        ng_view_seal(&view);
        EXPECT_EQ(view.member_count, 1u);
        uint32_t count = view.member_count ? view.members[0].record_count : 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct ng_view_record *record = &view.members[0].records[i];
            if (record->coll_seq != record->id || record->signature.count != record->id * 3 ||
                record->caller != record->id * 7)
                mixed_++;
            last_state_ = record->state;
        }
        return count;
    }
    static constexpr uint32_t CAPACITY = 64;
    Folder folder_;
    struct ng_box box_, reader_;
    unsigned mixed_ = 0;
    enum ng_record_state last_state_ = NG_RECORD_WRITING;
};

} // namespace

TEST_F(Ring, IdsCountFromOneAndStatesAreSeen)
{
    EXPECT_EQ(ring_add(1), 1u);
    EXPECT_EQ(read(), 1u);
    EXPECT_EQ(last_state_, NG_RECORD_SCHEDULED);
    EXPECT_TRUE(ring_complete(1));
    EXPECT_EQ(read(), 1u);
    EXPECT_EQ(last_state_, NG_RECORD_COMPLETED);
}

TEST_F(Ring, AnOverwrittenRecordIsNotTouched)
{
    for (uint64_t id = 1; id <= CAPACITY + 1; id++)
        ASSERT_EQ(ring_add(id), id);
    EXPECT_FALSE(ring_complete(1)) << "its slot belongs to another record now";
    EXPECT_TRUE(ring_complete(2));
    EXPECT_FALSE(ring_complete(0));
    EXPECT_FALSE(ring_complete(CAPACITY + 2)) << "not yet made";
    EXPECT_EQ(read(), CAPACITY);
    EXPECT_EQ(mixed_, 0u);
}

/* The program adds, the watchdog completes, a neighbour reads, all at once. */
TEST_F(Ring, ReadersSeeWholeRecordsWhileOthersWrite)
{
    bool stop = false;
    uint64_t newest = 0, seen = 0;
    std::thread program([&] {
        for (uint64_t id = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); id++) {
            ring_add(id);
            __atomic_store_n(&newest, id, __ATOMIC_RELAXED);
        }
    });
    std::thread watchdog([&] {
        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
            ring_complete(__atomic_load_n(&newest, __ATOMIC_RELAXED));
    });
    for (int64_t until = ng_clock_mono_ns() + 10 * NG_S;
         seen < 20000 && ng_clock_mono_ns() < until;)
        seen += read();
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    program.join();
    watchdog.join();
    EXPECT_GE(seen, 20000u);
    EXPECT_EQ(mixed_, 0u);
}
