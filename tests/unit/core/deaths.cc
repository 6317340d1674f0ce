/*
 * Ends of other processes: which are news, and whose turn it is to look.
 */
#include "tests/unit/core/job.h"
#include "tests/unit/core/made_deaths.h"

#if !defined(__clang__)
#define _Static_assert static_assert
#define _Atomic
#define atomic_bool bool
#endif
extern "C" {
#include "core/board.h"
}
#if !defined(__clang__)
#undef _Static_assert
#undef _Atomic
#undef atomic_bool
#endif

namespace
{

constexpr uint64_t WORLD = 0x500;
constexpr unsigned END = NG_CAUSE_END, OWN = NG_CAUSE_OWN;

/* What there is to be seen: of the whole job, and of this host. */
Job everywhere(2), here(2);

void fill(struct ng_view *view, bool host)
{
    (host ? here : everywhere).fill(view);
    view->processes[0].self = true;
    ng_view_seal(view);
}

/* Rank 1 has ended, before collective 7 of all. */
Job left_before(uint64_t seq)
{
    Job job(2);
    job.group(WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).did((int)seq - 1);
    job.at(WORLD, 0).waits();
    job.process(1).life = NG_LIFE_EXITED;
    return job;
}

/* It ended when it was to make a communicator with rank 0, which is still at it. */
Job left_a_making()
{
    Job job(2);
    job.group(WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
    job.inside(0, NG_OP_CommInitRank, WORLD);
    job.process(1).life = NG_LIFE_EXITED;
    return job;
}

/* Rank 0 has work pending that waits for nobody that is gone. */
Job at_work()
{
    Job job(2);
    job.group(WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).did(6);
    return job;
}

class Deaths : public testing::Test
{
  protected:
    void SetUp() override
    {
        made_deaths.fill = fill;
        made_deaths_begin(LONG_AGO);
        everywhere = here = at_work();
    }
    static std::vector<unsigned> asked()
    {
        return {made_deaths.asked, made_deaths.asked + made_deaths.asked_count};
    }
};

TEST_F(Deaths, WorkThatNeedsWhoIsGoneIsTold)
{
    everywhere = left_before(7);
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths.looks, 0u) << "nobody has ended";
    made_deaths.ended = 1;
    made_deaths_rounds(1);
    ASSERT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    EXPECT_EQ(made_deaths.seq, 7u);
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.opened, 1u) << "once";
    EXPECT_GT(made_deaths.looks, 1u);
}

/* Under policy log all go on, or end, each in its time: who is not yet back from the call that the
 * verdict was about has nothing to add. */
TEST_F(Deaths, WhoGoesBecauseOfADeadlinesVerdictIsNoNewsToOneInTheSameCall)
{
    everywhere = left_before(7);
    made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
    made_deaths.ended = 1;
    made_deaths_rounds(5000);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.looks, made_deaths.in_vain);
    EXPECT_EQ(made_deaths.opened, 0u);

    made_deaths_begin(LONG_AGO);
    everywhere = left_a_making();
    made_deaths.ended = 1;
    made_deaths_rounds(1);
    ASSERT_EQ(made_deaths.opened, 1u) << "without that verdict";
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);

    made_deaths_begin(LONG_AGO);
    made_deaths_deadline(WORLD, 0, NG_OP_CommInitRank);
    made_deaths.ended = 1;
    made_deaths_rounds(5000);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.opened, 0u);
}

TEST_F(Deaths, WhoGoesAfterADeadlinesVerdictIsNewsToOneInALaterCall)
{
    made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
    everywhere = left_before(8);
    made_deaths.ended = 1;
    made_deaths_rounds(1);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.seq, 8u);
}

TEST_F(Deaths, WhoSeesTheReasonOnItsHostGoesBeforeThoseThatOnlyLook)
{
    everywhere = here = left_before(7);
    made_deaths.ended = 1;
    made_deaths.answers_busy = 1u << END; /* somebody has just found nothing */
    made_deaths_rounds(1);
    EXPECT_EQ(asked(), (std::vector<unsigned>{END, OWN}));
    EXPECT_EQ(made_deaths.looks, 1u);
    EXPECT_EQ(made_deaths.opened, 1u);
}

TEST_F(Deaths, WhoSeesNoReasonOnItsHostWaitsWithTheOthers)
{
    everywhere = left_before(7);
    made_deaths.ended = 1;
    made_deaths.answers_busy = 1u << END;
    made_deaths_rounds(4000);
    EXPECT_EQ(made_deaths.looks, 0u);
    for (unsigned cause : asked())
        EXPECT_EQ(cause, END);
    EXPECT_GE(made_deaths.asked_count, 4000u / 1000);
    EXPECT_LE(made_deaths.asked_count, 4000u / (NG_LOOK_PAUSE_NS / NG_MS));
    made_deaths.answers_busy = 0;
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths.opened, 1u);
}

TEST_F(Deaths, WhatIsSeenOnOneHostGoesBeforeOthersOnceForEachEnd)
{
    here = left_before(7); /* the whole job does not show it so */
    made_deaths.ended = 1;
    made_deaths.answers_busy = 1u << END | 1u << OWN; /* somebody is at it */
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths.looks, 0u);
    made_deaths.answers_busy = 1u << END;
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.looks, 1u);
    EXPECT_EQ(made_deaths.in_vain, 1u);
    made_deaths.ended = 2;
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.looks, 2u);
}

/* Where there are thousands, each of which looks, too. */
TEST_F(Deaths, LookingTakesASmallPartOfTheTimeThoughItTakesLong)
{
    made_deaths.ended = 1;
    made_deaths.look_ns = NG_MS;
    made_deaths_rounds(1000);
    EXPECT_GE(made_deaths.looks, 9u) << "where it takes no time, ten times a second at first";

    made_deaths_begin(LONG_AGO);
    made_deaths.ended = 1;
    made_deaths.look_ns = 50 * NG_MS;
    made_deaths_rounds(2000);
    EXPECT_LE(made_deaths.looks, 5u);
    EXPECT_GE(made_deaths.looks, 4u);

    made_deaths_begin(LONG_AGO);
    made_deaths.ended = 1;
    made_deaths.look_ns = 700 * NG_MS;
    made_deaths_rounds(4000);
    EXPECT_GE(made_deaths.looks, 4u) << "but once a second in any case";
}

/* ---- NCCL says itself that a peer is gone ---- */

/* So long a call is held up where nobody is found; a thread may take some rounds to begin. */
constexpr unsigned HEARD_MS = 300;

/* Rank 1 has ended; rank 0 has waited for a moment only. */
Job just_left(uint64_t seq)
{
    Job job = left_before(seq);
    job.at(WORLD, 0).pending_age_ns = 3 * NG_MS;
    return job;
}

TEST_F(Deaths, WhoIsGoneAsNcclSaysIsToldBeforeTheCallReturns)
{
    made_deaths_begin(0);
    everywhere = just_left(7);
    made_deaths.ended = 1;
    made_deaths_rounds(100);
    EXPECT_EQ(made_deaths.looks, 0u) << "nobody has waited for long";
    EXPECT_LT(made_deaths_hear(nullptr), HEARD_MS);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    EXPECT_EQ(made_deaths.seq, 7u);
    EXPECT_EQ(asked(), (std::vector<unsigned>{OWN}));
    /* The next call fails, too, and is not held up for it. */
    EXPECT_LT(made_deaths_hear(nullptr), HEARD_MS);
    EXPECT_EQ(made_deaths.looks, 1u);
}

/* Connections are closed before a process is seen to be gone. */
TEST_F(Deaths, WhoIsAboutToBeGoneAsNcclSaysIsAwaited)
{
    made_deaths_begin(0);
    unsigned rounds = made_deaths_hear([](unsigned round) {
        if (round == 100) {
            everywhere = just_left(7);
            made_deaths.ended = 1;
        }
    });
    EXPECT_GE(rounds, 100u);
    EXPECT_LT(rounds, 100 + HEARD_MS);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.in_vain, 0u) << "which would hold others back";
    EXPECT_LE(made_deaths.looks, 8u);
}

TEST_F(Deaths, WhereNobodyIsGoneACallThatFailedIsHeldUpForALittle)
{
    made_deaths_begin(0);
    unsigned rounds = made_deaths_hear(nullptr);
    EXPECT_GE(rounds, HEARD_MS - 10);
    EXPECT_EQ(made_deaths.opened, 0u);
    unsigned looks = made_deaths.looks;
    EXPECT_LE(looks, 20u);
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths.looks, looks);
}

/* Where one rank of thousands is gone, the calls of all others fail. */
TEST_F(Deaths, WhoeverTellsWhoIsGoneAnswersAllThatAsk)
{
    made_deaths_begin(0);
    everywhere = just_left(7);
    made_deaths.ended = 1;
    made_deaths.answers_busy = 1u << END | 1u << OWN; /* another is at it */
    unsigned rounds = made_deaths_hear([](unsigned round) {
        if (round == 100)
            made_deaths_told(WORLD, 7);
    });
    EXPECT_GE(rounds, 100u);
    EXPECT_LT(rounds, HEARD_MS);
    EXPECT_EQ(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.opened, 0u);
}

TEST_F(Deaths, WhatAnotherHasToldIsNoNewsThoughItIsGone)
{
    for (uint64_t seq : {7, 8}) {
        made_deaths_begin(0);
        everywhere = just_left(seq);
        made_deaths.ended = 2;
        made_deaths_told(WORLD, 7);
        EXPECT_LT(made_deaths_hear(nullptr), HEARD_MS);
        EXPECT_EQ(made_deaths.looks, 0u) << "just now: whoever leaves now leaves because of that";
        made_deaths_begin(0);
        made_deaths_told(WORLD, 7);
        made_deaths_rounds(6000);
        everywhere = just_left(seq);
        made_deaths.ended = 2;
        EXPECT_LT(made_deaths_hear(nullptr), HEARD_MS);
        EXPECT_EQ(made_deaths.looks, 1u);
        EXPECT_EQ(made_deaths.opened, seq == 7 ? 0u : 1u) << "of another call it is news then";
    }
}

} // namespace
