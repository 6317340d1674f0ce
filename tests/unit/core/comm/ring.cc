/*
 * The ring as its writers use it: readers see whole records, overwritten ones are left alone.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/core/helpers/box.h"

extern "C" {
#include "core/unwind/frame_table.h"
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
        Writer(&box_).group(4, 0x78, 2, 0, "pp");
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
        EXPECT_EQ(view.member_count, 2u);
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
    /* The sequence numbers that a neighbour, and the process itself, see of a group; negative: not
     * done. */
    std::vector<int> seen_of(uint64_t group)
    {
        std::vector<int> seen[2];
        for (int i : {0, 1}) {
            OwnView view;
            EXPECT_EQ(ng_box_read(&reader_, NG_BOX_ALL), 0);
            EXPECT_EQ(ng_view_add_box(&view, i ? &box_ : &reader_, NG_LIFE_RUNNING, 1, "box"), 0);
            ng_view_seal(&view);
            for (uint32_t m = 0; m < view.member_count; m++)
                for (uint32_t k = 0; k < view.members[m].record_count; k++) {
                    const struct ng_view_record *record = &view.members[m].records[k];
                    if (view.groups[view.members[m].group].id != group)
                        continue;
                    EXPECT_EQ(record->signature.count, record->coll_seq * 3);
                    EXPECT_EQ(record->caller, record->coll_seq * 7);
                    seen[i].push_back(ng_view_record_is_retired(record) ? (int)record->coll_seq
                                                                        : -(int)record->coll_seq);
                }
        }
        EXPECT_EQ(seen[0], seen[1]);
        return seen[0];
    }
    /* `n` calls of one group, which are done, if so. */
    uint64_t calls(uint32_t slot, int n, bool done)
    {
        uint64_t id = 0;
        ring_use(&box_, slot);
        for (int i = 0; i < n; i++) {
            id = ring_call();
            if (done)
                ring_complete(id);
        }
        return id;
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

/* A thread is stuck in a communicator while another one goes on in its own. */
TEST_F(Ring, WhatIsStuckOutlastsTheCallsOfOthers)
{
    calls(3, 5, true);
    uint64_t stuck = calls(3, 2, false);
    calls(4, 1000, true);
    EXPECT_EQ(seen_of(0x77), (std::vector<int>{1, 2, 3, 4, 5, -6, -7}));
    EXPECT_TRUE(ring_complete(stuck)) << "where it is kept";
    EXPECT_EQ(seen_of(0x77), (std::vector<int>{1, 2, 3, 4, 5, -6, 7}));
    box_.groups[3].completed = 7;
    EXPECT_EQ(seen_of(0x77), (std::vector<int>{1, 2, 3, 4, 5, 6, 7})) << "its counter says so";
}

TEST_F(Ring, WhatIsStuckKeepsWhereItWasMade)
{
    uint64_t addresses[NG_BOX_FRAMES];
    enum ng_frames_state state;
    uint32_t count = 0;
    struct ng_box_identity who = {};
    struct ng_box box;

    who.job = "by-hand";
    who.with_frames = true;
    ASSERT_EQ(ng_box_create(nullptr, &who, CAPACITY, &box), 0);
    Writer(&box).group(0, 0x79, 2, 0, "tp");
    Writer(&box).group(1, 0x7a, 2, 0, "dp");
    ring_use(&box, 0);
    uint64_t id = ring_call();
    box.frames[id].address[0] = 0x1234;
    box.frames[id].id_state = id << 8 | NG_FRAMES_WHOLE;
    ring_use(&box, 1);
    for (uint32_t i = 0; i < 2 * CAPACITY; i++)
        ring_call();
    EXPECT_TRUE(ng_frame_table_read_frames(&box, id, addresses, &count, &state));
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(addresses[0], 0x1234u);
    ng_box_close(&box, nullptr);
}

/* Where shared memory is full, later communicators have no slot in the black box: its pages are not
 * there, and to touch them would end the program. */
TEST_F(Ring, ForACommunicatorWithoutASlotNothingIsTouched)
{
    constexpr uint32_t slot = 2000;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), group = (uintptr_t)&box_.groups[slot];
    void *pages = (void *)(group & ~(page - 1));
    for (int i = 0; i < 3; i++)
        box_.records[calls(4, 1, true)].group_slot = slot;
    ASSERT_EQ(mprotect(pages, 2 * page, PROT_NONE), 0);
    calls(4, 1000, true);
    ASSERT_EQ(mprotect(pages, 2 * page, PROT_READ | PROT_WRITE), 0);
    EXPECT_EQ(seen_of(0x78).size(), CAPACITY);
}

/* Of what is done only the newest calls are kept; once they go on, those make room. */
TEST_F(Ring, WhatIsKeptMakesRoomWhenItsCommunicatorGoesOn)
{
    calls(3, 100, true);
    calls(4, 1000, true);
    ASSERT_EQ(seen_of(0x77).size(), 16u);
    EXPECT_EQ(seen_of(0x77).back(), 100);
    EXPECT_EQ(seen_of(0x78).size(), CAPACITY) << "the one in use needs no more than the ring";
    for (int i = 0; i < 50; i++) {
        calls(3, 20, true);
        calls(4, 100, true);
    }
    ASSERT_EQ(seen_of(0x77).size(), 16u);
    EXPECT_EQ(seen_of(0x77).back(), 1100);
    calls(3, 70, true);
    ASSERT_FALSE(seen_of(0x77).empty());
    EXPECT_EQ(seen_of(0x77).front(), 1107) << "the ring has nothing but these";
}

/* Work that is not done counts for more than the last calls of communicators that rest. */
TEST_F(Ring, WhatIsStuckTakesThePlacesOfWhatRests)
{
    for (uint32_t slot = 5; slot < 25; slot++) {
        Writer(&box_).group(slot, 0x100 + slot, 2, 0, "rests");
        calls(slot, 16, true);
    }
    calls(3, 3, false);
    calls(4, 1000, true);
    EXPECT_EQ(seen_of(0x77), (std::vector<int>{-1, -2, -3}));
}

/* That a call has no record must not look as if it had not been made. */
TEST_F(Ring, NothingIsShownFromBeforeAGap)
{
    calls(3, 5, false);
    calls(4, 1000, true);
    for (uint32_t i = 0; i < box_.kept_capacity; i++) {
        struct ng_box_record *record = &box_.records[CAPACITY + i];
        if (record->group_slot == 3 && record->coll_seq == 3)
            record->id_state &= ~(uint64_t)0xff; /* as if its writer had been killed */
    }
    EXPECT_EQ(seen_of(0x77), (std::vector<int>{-4, -5}));
    box_.groups[3].entered = 6; /* and of the newest there is none */
    EXPECT_EQ(seen_of(0x77), std::vector<int>{});
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
