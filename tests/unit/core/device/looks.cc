/*
 * When NCCL's connections are looked at, of which communicators, and how long nothing of them may
 * be freed.
 */
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "tests/unit/core/helpers/looks.h"
}

class Looks : public testing::Test
{
  protected:
    void SetUp() override
    {
        looks_begin();
    }
    /* Those looked at since the last time. */
    static std::vector<unsigned> seen()
    {
        std::vector<unsigned> all(looks.seen, looks.seen + looks.count);
        looks.count = 0;
        return all;
    }
    static std::vector<unsigned> look_after(long ms)
    {
        looks.now_ms += ms;
        looks_look();
        return seen();
    }
    static std::vector<unsigned> tend_after(long ms)
    {
        looks.now_ms += ms;
        looks_look_again();
        return seen();
    }
};

using Comms = std::vector<unsigned>;

TEST_F(Looks, AreAtAllCommunicatorsWithWorkInFlight)
{
    EXPECT_EQ(look_after(0), (Comms{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(look_after(100), Comms{}) << "one serves all alarms of this moment";
    EXPECT_EQ(look_after(100).size(), (size_t)LOOKS_COMMS);
}

/* And none of them takes that for a device that does not answer. */
TEST_F(Looks, HaveTurnsWhereThereIsNoTimeForAllCommunicators)
{
    looks.reading_ms = 20;
    EXPECT_EQ(look_after(0), (Comms{0, 1, 2}));
    EXPECT_EQ(look_after(1000), (Comms{3, 4, 5}));
    EXPECT_EQ(look_after(1000), (Comms{6, 7, 8}));
    EXPECT_EQ(look_after(1000), (Comms{9, 10, 11}));
    EXPECT_EQ(look_after(1000), (Comms{0, 1, 2}));
}

/* The first four copies show how long one takes. */
TEST_F(Looks, AreAtTheChannelsForWhichThereIsTime)
{
    const std::pair<long, uint64_t> rows[] = {{0, 0xff00}, {2, 0xf00}, {4, 0x300}, {40, 0x100}};

    for (auto [ms, channels] : rows) {
        looks_begin();
        looks.copying_ms = ms;
        looks_look();
        EXPECT_EQ(looks.channels, channels) << ms;
    }
}

TEST_F(Looks, AreRepeatedEveryTenSecondsWhileTheSameWorkIsTheOldest)
{
    EXPECT_EQ(tend_after(100000), Comms{}) << "nothing was suspected";
    EXPECT_EQ(look_after(0).size(), (size_t)LOOKS_COMMS);
    EXPECT_EQ(tend_after(9000), Comms{});
    EXPECT_EQ(tend_after(1000).size(), (size_t)LOOKS_COMMS);
    EXPECT_EQ(tend_after(9000), Comms{});
    looks_go_on();
    EXPECT_EQ(tend_after(100000), Comms{});
}

TEST_F(Looks, KeepACommunicatorUntilCopiesThatAreLateHaveComeBack)
{
    looks.hangs = true;
    int64_t begun = looks.now_ms;
    looks_look();
    EXPECT_NEAR((double)(looks.now_ms - begun), 100, 2);
    EXPECT_TRUE(looks_copies(0));
    EXPECT_FALSE(looks_copies(1));
    looks.hangs = false;
    EXPECT_FALSE(looks_copies(0));
    EXPECT_TRUE(looks_are_late());
    EXPECT_EQ(look_after(1000).size(), (size_t)LOOKS_COMMS)
        << "once may be for want of a processor";
    EXPECT_FALSE(looks_are_late());
}

/* Nothing is read after it, and it goes on reading. */
TEST_F(Looks, OfCountersKeepACommunicatorUntilTheCopyThatIsLateHasComeBack)
{
    looks.hangs = true;
    looks_count();
    EXPECT_TRUE(looks_counts(0));
    EXPECT_FALSE(looks_counts(1));
    looks.hangs = false;
    EXPECT_FALSE(looks_counts(0));
}

TEST_F(Looks, EndWithTheSecondWhoseCopiesDoNotComeBack)
{
    looks.hangs = true;
    look_after(0);
    int64_t begun = looks.now_ms;
    looks_look();
    EXPECT_EQ(looks.now_ms, begun) << "one serves all alarms of this moment";
    looks.now_ms += 1000;
    begun = looks.now_ms;
    looks_look();
    EXPECT_LE(looks.now_ms, begun + 2) << "nothing is copied while copies are under way";
    EXPECT_FALSE(looks_are_late()) << "there are no more";
    looks.hangs = false;
    EXPECT_EQ(look_after(1000), Comms{});
}

TEST_F(Looks, WaitForTheCopiesThatHadBegunWhenOneCannotBe)
{
    looks.unread = true;
    EXPECT_EQ(look_after(0).size(), (size_t)LOOKS_COMMS);
    EXPECT_EQ(looks.waits, 2u * LOOKS_COMMS) << "of its structure, and of the first of two items";
    EXPECT_FALSE(looks_copies(0));
}
