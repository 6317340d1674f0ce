/*
 * Ends of other processes: which are news, and whose turn it is to look.
 */
#include "tests/unit/core/helpers/job.h"
#include "tests/unit/core/helpers/made_deaths.h"

extern "C" {
#include "core/nccl/board.h"
}

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
    Job job(2, WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).did((int)seq - 1);
    job.at(WORLD, 0).waits();
    job.process(1).life = NG_LIFE_EXITED;
    return job;
}

/* It ended when it was to make a communicator with rank 0, which is still at it. */
Job left_a_making()
{
    Job job(2, WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
    job.inside(0, NG_OP_CommInitRank, WORLD);
    job.process(1).life = NG_LIFE_EXITED;
    return job;
}

/* Rank 0 has work pending that waits for nobody that is gone. */
Job at_work()
{
    Job job(2, WORLD, "dp", 6);
    return job;
}

/* Rank 1 of three died after it had waited for rank 2, as rank 0 still does. */
Job gave_up(int exit_status = 0)
{
    Job job(3, WORLD, "dp", 6);
    job.at(WORLD, 0).waits();
    job.at(WORLD, 1).waits(all_reduce(), 5 * NG_S);
    job.process(1).is(NG_LIFE_DEAD, 100 * NG_MS, exit_status);
    return job;
}

/* So many processes have ended by now; then rounds of the incident thread. */
void rounds_after_ends(uint32_t ended, unsigned rounds)
{
    made_deaths.ended = ended;
    made_deaths_rounds(rounds);
}

/* What is logged meanwhile. */
std::string said_by(const std::function<void()> &what)
{
    testing::internal::CaptureStderr();
    what();
    return testing::internal::GetCapturedStderr();
}

struct Deaths : testing::Test {
    void SetUp() override
    {
        made_deaths.fill = fill;
        made_deaths_begin(LONG_AGO);
        made_deaths_set_policy(NG_ON_TIMEOUT_LOG);
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
    rounds_after_ends(1, 1);
    ASSERT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    EXPECT_EQ(made_deaths.seq, 7u);
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.opened, 1u) << "once";
    EXPECT_GT(made_deaths.looks, 1u);
}

/* Rank 1 was killed after a long wait for rank 2, which was only late. */
TEST_F(Deaths, TheEndOfOneThatWaitedForALateRankIsToldOnceThatOneHasCome)
{
    everywhere = Job(3, WORLD, "dp", 6);
    everywhere.wait(WORLD, {0, 1});
    everywhere.process(1).is(NG_LIFE_DEAD, NG_S, NG_EXIT_STATUS_SIGNAL + SIGKILL);
    rounds_after_ends(1, 1000);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.opened, 0u) << "rank 2 is missing";
    everywhere.at(WORLD, 2).waits(all_reduce(), NG_S / 2);
    made_deaths_rounds(2000);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_DEAD_RANK);
}

/* Under policy log all go on, or end, each in its time: who is not yet back from the call that the
 * verdict was about has nothing to add. */
TEST_F(Deaths, WhoGoesBecauseOfADeadlinesVerdictIsNoNewsToOneInTheSameCall)
{
    everywhere = left_before(7);
    made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
    rounds_after_ends(1, 5000);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.looks, made_deaths.in_vain);
    EXPECT_EQ(made_deaths.opened, 0u);

    made_deaths_begin(LONG_AGO);
    everywhere = left_a_making();
    rounds_after_ends(1, 1);
    ASSERT_EQ(made_deaths.opened, 1u) << "without that verdict";
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);

    made_deaths_begin(LONG_AGO);
    made_deaths_deadline(WORLD, 0, NG_OP_CommInitRank);
    rounds_after_ends(1, 5000);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.opened, 0u);
}

/* That the rank is missing was said; that it is dead is worse, and known for certain. */
TEST_F(Deaths, AMissingRankThatDiesAfterADeadlineThatIsOnlyLoggedIsTold)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_LOST}) {
        for (int64_t suspect_ns : {(int64_t)0, 5 * NG_S}) {
            made_deaths_begin(LONG_AGO);
            made_deaths_configure(suspect_ns, 10 * NG_S);
            everywhere = left_before(7);
            everywhere.process(1).life = life;
            made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
            rounds_after_ends(1, 1);
            ASSERT_EQ(made_deaths.opened, life == NG_LIFE_DEAD ? 1u : 0u);
            if (life == NG_LIFE_DEAD) {
                EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
                EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_DEAD_RANK);
                EXPECT_EQ(made_deaths.seq, 7u);
            }
        }
    }
}

TEST_F(Deaths, WhoGoesAfterADeadlinesVerdictIsNewsToOneInALaterCall)
{
    made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
    everywhere = left_before(8);
    rounds_after_ends(1, 1);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.seq, 8u);
}

/* Where processors are scarce, the work that a watchdog saw last may be over. */
TEST_F(Deaths, AnEndIsJudgedOnceTheWatchdogsHaveLookedSince)
{
    everywhere = left_before(7);
    made_deaths.ended = 1;
    made_deaths.watchdog_waits = true;
    made_deaths_rounds(900);
    EXPECT_EQ(made_deaths.looks, 0u) << "its own";
    made_deaths.watchdog_waits = false;
    made_deaths_rounds(20);
    EXPECT_EQ(made_deaths.opened, 1u);

    made_deaths_begin(LONG_AGO);
    everywhere = Job(3, WORLD, "dp", 6);
    everywhere.wait(WORLD, {0, 2});
    everywhere.process(1).life = NG_LIFE_EXITED;
    everywhere.process(2).watched_age_ns = 600 * NG_MS;
    rounds_after_ends(1, 500);
    EXPECT_GT(made_deaths.looks, 0u);
    EXPECT_EQ(made_deaths.opened, 0u) << "another's";
    everywhere.process(2).watched_age_ns = 50 * NG_MS;
    made_deaths_rounds(400);
    EXPECT_EQ(made_deaths.opened, 1u);
}

/* It may be stuck. */
TEST_F(Deaths, AnEndIsJudgedThoughAWatchdogDoesNotLookForLong)
{
    everywhere = left_before(7);
    made_deaths.ended = 1;
    made_deaths.watchdog_waits = true;
    made_deaths_rounds(1100);
    EXPECT_EQ(made_deaths.opened, 1u);
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
    EXPECT_LE(made_deaths.asked_count, 4000u / (NG_CLAIM_PAUSE_NS / NG_MS));
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
    rounds_after_ends(2, 3000);
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

/* ---- NCCLGUARD_DEATH_TIMEOUT ---- */

constexpr unsigned TIMEOUT_MS = 3000;

/* Rank 1 has ended before collective 7, which rank 0 is in, and that is known now. */
void begin_timeout(int64_t suspect_ns = 5 * NG_S, enum ng_life life = NG_LIFE_EXITED)
{
    made_deaths_begin(LONG_AGO);
    made_deaths_configure(suspect_ns, TIMEOUT_MS * NG_MS);
    everywhere = left_before(7);
    everywhere.process(1).life = life;
    everywhere.process(1).life_age_ns = LONG_AGO;
    rounds_after_ends(1, 1);
}

/* Does the policy act in so many rounds, at the last of them and not before? */
void expect_act_at(unsigned rounds)
{
    unsigned opened = made_deaths.opened;

    made_deaths_rounds(rounds - 100);
    EXPECT_EQ(made_deaths.opened, opened);
    made_deaths_rounds(200);
    EXPECT_EQ(made_deaths.opened, opened + 1);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
    made_deaths.asked_levels = 0;
    made_deaths_rounds(2 * TIMEOUT_MS);
    EXPECT_EQ(made_deaths.opened, opened + 1) << "once";
    EXPECT_EQ(made_deaths.asked_levels & 1u << NG_INCIDENT_TIMEOUT, 0u) << "the clock ended";
}

TEST_F(Deaths, AnEndThatOthersWaitForIsActedOnAfterItsTimeout)
{
    for (enum ng_life life : {NG_LIFE_EXITED, NG_LIFE_DEAD}) {
        begin_timeout(5 * NG_S, life);
        EXPECT_EQ(made_deaths.opened, 1u);
        EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
        expect_act_at(TIMEOUT_MS);
        EXPECT_EQ(made_deaths.seq, 7u);
    }
}

TEST_F(Deaths, AnEndIsActedOnWhoeverReportedIt)
{
    made_deaths_configure(5 * NG_S, TIMEOUT_MS * NG_MS);
    made_deaths_told(WORLD, 7);
    everywhere = left_before(7);
    expect_act_at(TIMEOUT_MS);
}

TEST_F(Deaths, AnEndIsActedOnThoughSuspicionsAreOff)
{
    begin_timeout(0);
    EXPECT_EQ(made_deaths.opened, 0u);
    expect_act_at(TIMEOUT_MS);
}

TEST_F(Deaths, WithoutATimeoutAnEndIsNotActedOn)
{
    everywhere = left_before(7);
    rounds_after_ends(1, 1);
    EXPECT_EQ(made_deaths.opened, 1u);
    made_deaths_rounds(4 * TIMEOUT_MS);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.asked_levels, 1u << NG_INCIDENT_SUSPECT);
}

/* A host that is not heard of may come back. */
TEST_F(Deaths, AnEndThatIsNotCertainIsActedOnOnceItIs)
{
    begin_timeout(5 * NG_S, NG_LIFE_LOST);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_DEAD_RANK);
    made_deaths_rounds(3 * TIMEOUT_MS - 100);
    EXPECT_EQ(made_deaths.opened, 1u);
    everywhere.process(1).life = NG_LIFE_DEAD;
    made_deaths_rounds(TIMEOUT_MS);
    EXPECT_EQ(made_deaths.opened, 2u);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
}

TEST_F(Deaths, TheEndOfARankThatGaveUpIsNoNewsAndActedOnAllTheSame)
{
    for (int exit_status : {NG_EXIT_STATUS_SIGNAL + SIGABRT, 0}) {
        made_deaths_begin(LONG_AGO);
        made_deaths_configure(5 * NG_S, TIMEOUT_MS * NG_MS);
        everywhere = gave_up(exit_status);
        rounds_after_ends(1, 1);
        EXPECT_EQ(made_deaths.opened, 0u);
        made_deaths_rounds(TIMEOUT_MS - 1000);
        EXPECT_EQ(made_deaths.opened, 0u);
        everywhere.process(1).life_age_ns = TIMEOUT_MS * NG_MS;
        made_deaths_rounds(1100);
        ASSERT_EQ(made_deaths.opened, 1u) << exit_status;
        EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
        EXPECT_EQ(made_deaths.seq, 7u);
    }
}

/* The deadline of the call passes while the time of an end runs, under policy log: the end adds
 * nothing to that verdict, and a later call has its own time. */
TEST_F(Deaths, AfterADeadlineThatIsOnlyLoggedTheTimeOfAnEndIsNothingToOtherVerdicts)
{
    for (bool later : {false, true}) {
        made_deaths_begin(LONG_AGO);
        made_deaths_configure(5 * NG_S, TIMEOUT_MS * NG_MS);
        everywhere = gave_up(NG_EXIT_STATUS_SIGNAL + SIGABRT);
        rounds_after_ends(1, 1000);
        made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        made_deaths_rounds(TIMEOUT_MS - 1100);
        ASSERT_EQ(made_deaths.opened, 0u);
        if (later) {
            everywhere = Job(3, WORLD, "dp", 7);
            everywhere.at(WORLD, 0).waits(all_reduce(), 2 * NG_S);
        }
        made_deaths_rounds(1000);
        EXPECT_EQ(made_deaths.opened, 0u) << later;
    }
}

TEST_F(Deaths, TheEndOfARankThatGaveUpHasItsOwnTime)
{
    begin_timeout();
    everywhere = Job(3, WORLD, "dp", 6);
    everywhere.at(WORLD, 0).waits();
    everywhere.at(WORLD, 1).waits();
    everywhere.process(1).is(NG_LIFE_DEAD, 500 * NG_MS);
    made_deaths_rounds(TIMEOUT_MS + 100);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
    everywhere.process(1).life_age_ns = LONG_AGO;
    made_deaths_rounds(TIMEOUT_MS - 500 - 200);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
    made_deaths_rounds(200);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
}

/* Rank 2, for which rank 1 had waited, comes: then it is rank 1 that is missed. */
TEST_F(Deaths, OfARankThatGaveUpTooEarlyTheEndIsNews)
{
    everywhere = gave_up();
    rounds_after_ends(1, 1000);
    EXPECT_EQ(made_deaths.opened, 0u);
    everywhere.at(WORLD, 2).waits(all_reduce(), 200 * NG_MS);
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_DEAD_RANK);
}

TEST_F(Deaths, TimeInWhichDeadlinesRestIsNotCounted)
{
    begin_timeout();
    made_deaths_rounds(1000);
    made_deaths_rest(true);
    made_deaths_rounds(10 * TIMEOUT_MS);
    EXPECT_EQ(made_deaths.opened, 1u);
    made_deaths_rest(false);
    expect_act_at(TIMEOUT_MS - 1000);
}

/* Of the step in which the rest ends nobody knows how much was rest. */
TEST_F(Deaths, ALongStepInWhichARestEndsIsNotCounted)
{
    begin_timeout();
    made_deaths_rest(true);
    made_deaths_rounds(1);
    made_deaths_stop(NG_S);
    made_deaths_rest(false);
    made_deaths_rounds(1);
    expect_act_at(TIMEOUT_MS);
}

TEST_F(Deaths, RestBeforeTheEndIsNothingToIt)
{
    made_deaths_rest(true);
    made_deaths_rounds(1000);
    made_deaths_rest(false);
    begin_timeout();
    expect_act_at(TIMEOUT_MS);
}

TEST_F(Deaths, TimeInWhichTheProcessWasStoppedIsNotCounted)
{
    begin_timeout();
    made_deaths_stop(1000 * NG_S);
    made_deaths_rounds(1); /* of a stop, two seconds at most */
    EXPECT_EQ(made_deaths.opened, 1u);
    expect_act_at(TIMEOUT_MS - 2000);
}

TEST_F(Deaths, WhereNobodyWaitsAnyMoreNothingIsActedOn)
{
    begin_timeout();
    everywhere = at_work();
    made_deaths_rounds(TIMEOUT_MS + 100);
    EXPECT_EQ(made_deaths.opened, 1u);
    made_deaths.asked_levels = 0;
    made_deaths_rounds(2 * TIMEOUT_MS);
    EXPECT_EQ(made_deaths.asked_levels, 1u << NG_INCIDENT_SUSPECT) << "the clock ended";
}

/* A communicator without the rank that ended; and then another rank of it ends. */
TEST_F(Deaths, ALaterEndHasItsOwnTime)
{
    for (bool waits_long : {false, true}) {
        begin_timeout();
        everywhere = left_before(8);
        everywhere.at(WORLD, 0).pending_age_ns = waits_long ? LONG_AGO : 500 * NG_MS;
        everywhere.process(1).life_age_ns = waits_long ? 500 * NG_MS : LONG_AGO;
        made_deaths_rounds(TIMEOUT_MS + 100);
        EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
        everywhere.at(WORLD, 0).pending_age_ns = everywhere.process(1).life_age_ns = LONG_AGO;
        made_deaths_rounds(TIMEOUT_MS - 500 - 200);
        EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
        made_deaths_rounds(200);
        EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT) << waits_long;
        EXPECT_EQ(made_deaths.seq, 8u);
    }
}

/* Others tidy up, for as long as they like. */
TEST_F(Deaths, AnEndInTheEndingOfACommunicatorIsNotActedOn)
{
    begin_timeout();
    everywhere = Job(2);
    everywhere.group(WORLD, "dp");
    everywhere.inside(0, NG_OP_CommDestroy, WORLD);
    everywhere.process(1).life = NG_LIFE_DEAD;
    made_deaths_rounds(3 * TIMEOUT_MS);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_SUSPECT);
}

TEST_F(Deaths, WhereAnotherJudgesAtTheDeathTimeoutItIsTriedAgain)
{
    begin_timeout();
    made_deaths.answers_busy = 1u << END;
    made_deaths_rounds(TIMEOUT_MS + 500);
    EXPECT_EQ(made_deaths.opened, 1u);
    made_deaths.answers_busy = 0;
    made_deaths_alarms();
    EXPECT_EQ(made_deaths.opened, 2u);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
}

TEST_F(Deaths, TheIncidentThreadSleepsUntilADeathTimeout)
{
    begin_timeout();
    made_deaths_answered_for_job();
    EXPECT_EQ(made_deaths_due_ns(), TIMEOUT_MS * NG_MS);
    made_deaths_rounds(1000);
    EXPECT_EQ(made_deaths_due_ns(), (TIMEOUT_MS - 1000) * NG_MS);

    made_deaths_begin(LONG_AGO);
    rounds_after_ends(1, 1);
    EXPECT_LE(made_deaths_due_ns(), NG_S);
    made_deaths_answered_for_job();
    EXPECT_EQ(made_deaths_due_ns(), INT64_MAX) << "nothing is looked for any more";
}

/* ---- NCCL says itself that a peer is gone ---- */

/* So long a call is held up where nobody is found. */
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
    rounds_after_ends(1, 100);
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

/* A program that ends itself then has something to tell the store, which a look would hold up. */
TEST_F(Deaths, NoLookIsBegunThatMayLastBeyondTheTimeThatACallIsHeldUp)
{
    const struct {
        int64_t look_ms;
        unsigned looks;
    } cases[] = {{160, 1}, {140, 2}, {400, 1}};
    for (const auto &one : cases) {
        made_deaths_begin(0);
        made_deaths.look_ns = one.look_ms * NG_MS;
        made_deaths_hear(nullptr);
        EXPECT_EQ(made_deaths.looks, one.looks) << one.look_ms;
    }
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

constexpr uint64_t ROW = 0x600, PAIR = 0x700, COL = 0x800;

/* Rank 2 has died, rank 1 left since NCCL told it of that in the row, and rank 0, this process,
 * waits for rank 1 alone. `another`: and for rank 3, which left, too, and was told of nothing. */
Job left_since_told(bool told, bool another)
{
    Job job(4);
    job.group(ROW, "row", {1, 2});
    job.group(PAIR, "pair", {0, 1});
    job.group(COL, "col", {0, 3});
    job.at(ROW, 0).did(3).waits(all_reduce(), 300 * NG_MS).async_error = told ? 6 : 0;
    job.at(ROW, 1).did(3);
    job.at(PAIR, 0).did(5).waits();
    job.at(PAIR, 1).did(5);
    job.at(COL, 0).did(6);
    job.at(COL, 1).did(6);
    if (another)
        job.at(COL, 0).waits();
    job.process(1).life = NG_LIFE_EXITED;
    job.process(2).life = NG_LIFE_DEAD;
    job.process(3).life = another ? NG_LIFE_EXITED : NG_LIFE_RUNNING;
    job.process(1).life_age_ns = NG_S;
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 2 * NG_S;
    job.process(3).life_age_ns = another ? NG_S / 2 : 0;
    return job;
}

TEST_F(Deaths, WhoLeavesForAnEndThatWasToldIsNoNewsToOneThatWaitsForItAlone)
{
    for (bool told : {true, false}) {
        made_deaths_begin(LONG_AGO);
        everywhere = here = left_since_told(told, false);
        made_deaths_told(ROW, 4);
        rounds_after_ends(2, 3000);
        EXPECT_GT(made_deaths.looks, 0u);
        EXPECT_EQ(made_deaths.opened, told ? 0u : 1u)
            << "it is where NCCL has not told it anything";
        EXPECT_EQ(made_deaths.group_id, told ? 0 : PAIR);
    }
    /* Where nobody has told that end, it is told now. */
    made_deaths_begin(LONG_AGO);
    everywhere = here = left_since_told(true, false);
    rounds_after_ends(2, 3000);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_DEAD_RANK);
    EXPECT_EQ(made_deaths.group_id, ROW);
    EXPECT_EQ(made_deaths.seq, 4u);
}

TEST_F(Deaths, WhoLeftForOneThatDoesNotAnswerIsNoNewsUntilItIsKnownWhetherThatOneIsGone)
{
    made_deaths_begin(LONG_AGO);
    Job job = left_since_told(true, false);
    job.process(2).life = NG_LIFE_RUNNING;
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 0;
    job.process(2).quiet_ns = 2 * NG_S;
    everywhere = here = job;
    rounds_after_ends(1, 3000);
    EXPECT_GT(made_deaths.looks, 1u);
    EXPECT_EQ(made_deaths.opened, 0u);
    job.process(2).quiet_ns = 0; /* it lives, so that was not it */
    everywhere = here = job;
    made_deaths_rounds(1500);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    EXPECT_EQ(made_deaths.group_id, PAIR);
}

TEST_F(Deaths, AnotherEndIsNewsThoughTheOneForWhichOthersLeftWasToldJustBefore)
{
    made_deaths_begin(LONG_AGO);
    everywhere = here = left_since_told(true, true);
    made_deaths_told(ROW, 4);
    rounds_after_ends(3, 1);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    EXPECT_EQ(made_deaths.group_id, COL);
    EXPECT_EQ(made_deaths.seq, 7u);
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.opened, 1u) << "once";
}

/* The files stay those of the deadline. And a process that works out its verdict does not read
 * suspicions of others meanwhile. */
TEST_F(Deaths, ASuspicionOfOthersChangesNothingAfterADeadlineButTheLogIfItIsNew)
{
    const struct {
        uint64_t epoch;
        bool differs;
        unsigned read;
        const char *line;
    } cases[] = {
        {MADE_DEADLINE_EPOCH - 1, false, 0, ""},
        {MADE_DEADLINE_EPOCH - 1, true, 0, "calls differ: "},
        {MADE_DEADLINE_EPOCH + 1, false, 1, "suspect: "},
    };
    for (const auto &one : cases) {
        made_deaths_begin(0);
        made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        unsigned before = made_deaths.verdicts_read;
        std::string said = said_by([&] { made_deaths_suspicion(one.epoch, one.differs); });
        EXPECT_EQ(made_deaths.verdicts_read - before, one.read) << one.epoch;
        if (*one.line)
            EXPECT_NE(said.find(one.line), std::string::npos) << said;
        else
            EXPECT_EQ(said, "");
    }
    made_deaths_begin(0);
    made_deaths_suspicion(1, false);
    EXPECT_EQ(made_deaths.verdicts_read, 1u) << "no deadline before";
}

/* ---- Ends of communicators ---- */

/* How often a suspicion, or a deadline, of a call of rank 0 is opened. */
unsigned opened_for(enum ng_op op, bool deadline = false, bool has_deadline = true)
{
    made_deaths_begin(0);
    if (!has_deadline)
        made_deaths_no_deadline();
    made_deaths_stuck(WORLD, op, deadline);
    made_deaths_alarms();
    return made_deaths.opened;
}

TEST_F(Deaths, NobodyIsSuspectedWhereAllRanksAreInTheEndOfACommunicator)
{
    for (enum ng_op op : {NG_OP_CommDestroy, NG_OP_CommAbort, NG_OP_CommFinalize}) {
        everywhere = Job(2, WORLD, "dp");
        everywhere.inside(0, op, WORLD);
        EXPECT_EQ(opened_for(op), 1u) << "rank 1 has not come";
        everywhere.inside(1, op, WORLD);
        EXPECT_EQ(opened_for(op), 0u);
        EXPECT_EQ(opened_for(op, true), 1u) << "at the deadline";
    }
}

/* Where no deadline follows, it would never be reported. */
TEST_F(Deaths, ACallThatAllRanksAreInsideIsSuspectedWhereItHasNoDeadline)
{
    everywhere = Job(2, WORLD, "dp");
    for (int rank = 0; rank < 2; rank++) {
        everywhere.at(WORLD, rank).opened().records.back().flags = NG_RECORD_BLOCKED;
        everywhere.inside(rank, NG_OP_AllReduce, WORLD, 1);
    }
    EXPECT_EQ(opened_for(NG_OP_AllReduce), 0u);
    EXPECT_EQ(opened_for(NG_OP_AllReduce, false, false), 1u);
}

TEST_F(Deaths, AnErrorThatTheProgramAnswersWithItsAbortIsNotSuspected)
{
    for (bool other_waits : {false, true}) {
        everywhere = Job(2, WORLD, "dp");
        everywhere.inside(0, NG_OP_CommAbort, WORLD);
        everywhere.at(WORLD, 0).did(6).async_error = 2;
        everywhere.at(WORLD, 1).did(6);
        if (other_waits)
            everywhere.at(WORLD, 1).waits();
        else
            everywhere.inside(1, NG_OP_CommAbort, WORLD);
        EXPECT_EQ(opened_for(NG_OP_CommAbort), other_waits);
        EXPECT_EQ(opened_for(NG_OP_CommAbort, true), 1u) << "at the deadline";
    }
}

/* A verdict tells of the devices of all ranks, also of one that was not late yet. */
TEST_F(Deaths, ARankThatHearsOfASuspicionAsksItsDriver)
{
    unsigned asked = 0;

    made_deaths_put(1, nullptr);
    made_deaths_news();
    EXPECT_EQ(made_deaths.driver_asked, ++asked) << "not judged yet";
    made_deaths_news();
    EXPECT_EQ(made_deaths.driver_asked, asked) << "no news";
    made_deaths_put(2, "missing_rank: of a test");
    made_deaths_news();
    EXPECT_EQ(made_deaths.driver_asked, ++asked) << "judged";
    made_deaths_claimed(3, NG_ON_TIMEOUT_LOG);
    made_deaths_news();
    EXPECT_EQ(made_deaths.driver_asked, ++asked) << "a deadline";
    made_deaths_order(4);
    made_deaths_news();
    EXPECT_EQ(made_deaths.driver_asked, asked) << "a command";
}

/* They leave it one after the other, and are missed elsewhere meanwhile. */
TEST_F(Deaths, WhileOthersMayBeInTheAbortOfADeadlineTheyAreNotSuspected)
{
    for (unsigned policy : {NG_ON_TIMEOUT_LOG, NG_ON_TIMEOUT_ABORT}) {
        everywhere = Job(2, WORLD, "dp", 6);
        everywhere.at(WORLD, 0).waits();
        made_deaths_begin(0);
        made_deaths_set_policy(policy);
        made_deaths_claimed(1, policy);
        made_deaths_news();
        ASSERT_EQ(made_deaths.acted, 1u);
        made_deaths_stuck(WORLD + 1, NG_OP_AllReduce, false);
        made_deaths_alarms();
        EXPECT_EQ(made_deaths.opened, policy == NG_ON_TIMEOUT_LOG);
        made_deaths_stuck(WORLD + 1, NG_OP_AllReduce, true);
        made_deaths_alarms();
        EXPECT_EQ(made_deaths.opened, policy == NG_ON_TIMEOUT_LOG ? 2u : 1u) << "a deadline";
        made_deaths_stuck(WORLD + 1, NG_OP_AllReduce, false);
        made_deaths_alarms();
        made_deaths_stop(MADE_ABORT_WAIT_MS * NG_MS);
        made_deaths_alarms();
        EXPECT_EQ(made_deaths.opened, policy == NG_ON_TIMEOUT_LOG ? 3u : 2u) << "later";
    }
}

/* Its alarm is examined again and again meanwhile, in the same rounds. */
TEST_F(Deaths, WhileALateAlarmIsPutOffAfterAnAbortEndsAreToldAndTheirClockRuns)
{
    made_deaths_configure(5 * NG_S, 3 * NG_S);
    made_deaths_set_policy(NG_ON_TIMEOUT_ABORT);
    made_deaths_claimed(1, NG_ON_TIMEOUT_ABORT);
    made_deaths_news();
    ASSERT_EQ(made_deaths.acted, 1u);
    made_deaths_stuck(WORLD + 1, NG_OP_AllReduce, false);
    made_deaths_alarms();
    ASSERT_EQ(made_deaths.opened, 0u) << "it is put off";
    everywhere = left_before(7);
    made_deaths.ended = 1;
    for (int second = 0; second < 2; second++) {
        made_deaths_alarms();
        made_deaths_rounds(1);
        EXPECT_EQ(made_deaths.opened, 1u) << second;
    }
    EXPECT_EQ(made_deaths.kind, (unsigned)NG_KIND_LEFT_EARLY);
    made_deaths_rounds(3000);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
}

/* It may be frozen, which only the others of its host can see. */
TEST_F(Deaths, ASuspicionOfOneThatHasJustFallenSilentWaitsForItsNeighboursAndADeadlineDoesNot)
{
    for (int64_t quiet_ms : {0, 2000, 4000})
        for (bool deadline : {false, true}) {
            everywhere = left_before(7);
            everywhere.process(1).life = NG_LIFE_RUNNING;
            everywhere.process(1).quiet_ns = quiet_ms * NG_MS;
            EXPECT_EQ(made_deaths_waits_for_more(WORLD, 7, deadline), quiet_ms == 2000 && !deadline)
                << quiet_ms;
        }
}

/* Two ranks in a stall that names nobody, of which these have looked at their connections: both
 * together may name one (core/verdict/culprits_edges.c). */
static Job stalled(bool own, bool other, int64_t other_age_ns = 0, int done = 6)
{
    const struct ng_edge silent = {1, NG_EDGE_SENDS | NG_EDGE_RING, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    Job job(2, WORLD, "dp");

    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).did(done).waits();
    if (own)
        job.at(WORLD, 0).edges = {silent};
    if (other)
        job.at(WORLD, 1).edges = {silent};
    job.at(WORLD, 1).edges_age_ns = other_age_ns;
    return job;
}

TEST_F(Deaths, AStallThatNamesNobodyWaitsTwiceForARankThatHasNotLookedLately)
{
    for (int64_t age_ns : {(int64_t)0, NG_EDGES_TOGETHER_NS})
        for (bool deadline : {false, true}) {
            SetUp();
            everywhere = stalled(true, age_ns, age_ns);
            EXPECT_TRUE(made_deaths_waits_for_more(WORLD, 7, deadline));
            EXPECT_TRUE(made_deaths_waits_for_more(WORLD, 7, deadline));
            EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, deadline)) << "long enough";
        }
}

/* Or each of two stalls would keep the other's deadline waiting. */
TEST_F(Deaths, StallsThatWaitForLooksShareThoseTwoTimes)
{
    for (int time = 0; time < 3; time++) {
        everywhere = stalled(true, false, 0, time % 2 ? 8 : 6);
        EXPECT_EQ(made_deaths_waits_for_more(WORLD, time % 2 ? 9 : 7, true), time < 2) << time;
    }
}

TEST_F(Deaths, AStallDoesNotWaitForLooksThatWillNotComeOrAreThere)
{
    everywhere = stalled(false, false);
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "this rank has not looked, either";
    everywhere = stalled(true, true, NG_EDGES_TOGETHER_NS - 1);
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "it has";
    everywhere = stalled(true, false);
    everywhere.process(1).life = NG_LIFE_UNKNOWN;
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "it may never";
}

/* What its driver knows may name a rank (core/verdict/verdict_devices.c). */
TEST_F(Deaths, AStallThatNamesNobodyWaitsTwiceForARankThatHasNotAskedItsDriver)
{
    for (bool deadline : {false, true}) {
        SetUp();
        everywhere = stalled(false, false);
        everywhere.process(1).devices_age_ns = LONG_AGO + 1; /* before it waited */
        EXPECT_TRUE(made_deaths_waits_for_more(WORLD, 7, deadline));
        EXPECT_TRUE(made_deaths_waits_for_more(WORLD, 7, deadline));
        EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, deadline)) << "long enough";
    }
    SetUp();
    everywhere = stalled(false, false);
    everywhere.process(1).devices_age_ns = LONG_AGO;
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "it has";
    everywhere.process(1).devices_age_ns = 0;
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "it has none";
    everywhere.process(1).devices_age_ns = LONG_AGO + 1;
    everywhere.process(1).life = NG_LIFE_STOPPED;
    EXPECT_FALSE(made_deaths_waits_for_more(WORLD, 7, false)) << "it cannot";
}

/* ---- More alarms than there is room for ---- */

constexpr uint64_t MANY = 100;

TEST_F(Deaths, ADeadlineIsNotDroppedForSuspicionsThatWaitForTheIncidentThread)
{
    for (uint64_t group = 1; group <= MANY; group++)
        made_deaths_differ(group, false);
    made_deaths_differ(MANY + 1, true);
    for (uint64_t group = 1; group <= MANY; group++)
        made_deaths_differ(group, false);
    made_deaths_alarms();
    EXPECT_TRUE(made_deaths.asked_levels >> NG_INCIDENT_TIMEOUT & 1);
}

TEST_F(Deaths, ADeadlineIsNotDroppedForSuspicionsThatWaitForTheirTurn)
{
    made_deaths.answers_busy = 1u << OWN;
    for (uint64_t group = 1; group <= MANY; group++) {
        made_deaths_differ(group, false);
        made_deaths_alarms();
    }
    made_deaths_differ(MANY + 1, true);
    made_deaths_alarms();
    made_deaths.asked_levels = 0;
    made_deaths_alarms();
    EXPECT_TRUE(made_deaths.asked_levels >> NG_INCIDENT_TIMEOUT & 1);
    EXPECT_TRUE(made_deaths.asked_levels >> NG_INCIDENT_SUSPECT & 1);
}

TEST_F(Deaths, AllOfAProcessesCommunicatorsMayWaitForTheirTurnAtOnce)
{
    made_deaths.answers_busy = 1u << OWN;
    for (uint64_t group = 1; group <= 40; group++)
        made_deaths_differ(group, false);
    made_deaths_alarms();
    unsigned before = made_deaths.asked_count;
    made_deaths_alarms();
    EXPECT_EQ(made_deaths.asked_count - before, 40u);
}

/* ---- News of other hosts ---- */

/* What the log has of one look at the news: lines that are looked for, in any order. */
std::string said_of_news()
{
    return said_by(made_deaths_news);
}

int count(const std::string &text, const std::string &part)
{
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        found++;
    return found;
}

/* Whoever claims a deadline says what is to be done, and no rank does more than it is set to
 * itself. */
TEST_F(Deaths, WhatAnotherClaimsLetsARankDoLessThanItIsSetToAndNeverMore)
{
    const unsigned by_gravity[] = {NG_ON_TIMEOUT_LOG, NG_ON_TIMEOUT_ABORT, NG_ON_TIMEOUT_TEARDOWN,
                                   NG_ON_TIMEOUT_KILL};
    for (unsigned own = 0; own < 4; own++)
        for (unsigned theirs = 0; theirs < 4; theirs++) {
            made_deaths_begin(0);
            made_deaths_set_policy(by_gravity[own]);
            made_deaths_claimed(1, by_gravity[theirs]);
            made_deaths_news();
            EXPECT_EQ(made_deaths.acted, 1u);
            EXPECT_EQ(made_deaths.policy, by_gravity[own < theirs ? own : theirs])
                << own << ", " << theirs;
        }
}

TEST_F(Deaths, APersonsAbortThroughTheStoreDoesNotTouchARankThatIsSetToLog)
{
    made_deaths_set_policy(NG_ON_TIMEOUT_LOG);
    EXPECT_FALSE(made_deaths_aborts(true));
    EXPECT_TRUE(made_deaths_aborts(false)) << "the files of this host's board are the user's own";
    made_deaths_set_policy(NG_ON_TIMEOUT_ABORT);
    EXPECT_TRUE(made_deaths_aborts(true));
}

/* An order that turns the log off is logged. */
TEST_F(Deaths, WhatAPersonSetsHoldsAndIsInTheLogAndInTheBlackBox)
{
    unsigned set = 0;
    EXPECT_EQ(count(said_by([&] { set = made_deaths_set(0, 3); }), "an order of a test"), 1);
    EXPECT_EQ(set, 0x300u);
    EXPECT_EQ(made_deaths_timing(), 2);
    EXPECT_EQ(count(said_by([&] { set = made_deaths_set(1, 0); }), "an order of a test"), 1);
    EXPECT_EQ(set, 0x301u);
    EXPECT_EQ(count(said_by([&] { set = made_deaths_set(0, 1); }), "an order of a test"), 0);
    EXPECT_EQ(set, 0x101u);
    EXPECT_EQ(made_deaths_timing(), 0);
    EXPECT_EQ(count(said_by([&] { set = made_deaths_set(3, 2); }), "an order of a test"), 1);
    EXPECT_EQ(set, 0x203u);
    EXPECT_EQ(made_deaths_timing(), 1);
}

/* A rank that exits because others act on a deadline keeps their verdict on the disk of its host.
 */
TEST_F(Deaths, WhoExitsKeepsTheVerdictOnADeadlineThatItHasNotReadYet)
{
    made_deaths_claimed(3, NG_ON_TIMEOUT_KILL);
    EXPECT_EQ(count(said_by([&] { made_deaths_exits(); }), "deadline passed: missing_rank"), 1);
    EXPECT_EQ(made_deaths.verdicts_read, 1u);
    EXPECT_EQ(made_deaths.acted, 0u) << "it ends by itself";
    made_deaths_exits();
    EXPECT_EQ(made_deaths.verdicts_read, 1u) << "once";
}

TEST_F(Deaths, WhoExitsWhileItsIncidentThreadSleepsKeepsTheVerdictToo)
{
    EXPECT_TRUE(made_deaths_exits_asleep(3));
    EXPECT_EQ(made_deaths.verdicts_read, 1u);
    EXPECT_EQ(made_deaths.acted, 0u);
}

TEST_F(Deaths, WhoExitsWaitsForTheVerdictOnADeadlineButNotForLong)
{
    made_deaths_claimed(3, NG_ON_TIMEOUT_KILL);
    made_deaths_unjudged(3);
    made_deaths.judged_after = 10;
    made_deaths.writes_nothing = true;
    EXPECT_LT(made_deaths_exits(), NG_S);
    EXPECT_EQ(made_deaths.verdicts_read, 1u);

    made_deaths_claimed(4, NG_ON_TIMEOUT_KILL);
    made_deaths_unjudged(4);
    EXPECT_LT(made_deaths_exits(), 6 * NG_S);
    EXPECT_EQ(made_deaths.verdicts_read, 1u);

    made_deaths_claimant_ends(4);
    EXPECT_LT(made_deaths_exits(), NG_S);
    EXPECT_EQ(made_deaths.verdicts_read, 1u);
}

TEST_F(Deaths, WhoExitsWaitsForNoSuspicion)
{
    made_deaths_put(3, nullptr);
    EXPECT_EQ(made_deaths_exits(), 0);
}

/* It may be slow just then, and whoever does not ask again leaves this host without a verdict. */
TEST_F(Deaths, AVerdictThatTheStoreDoesNotHandOutAtOnceIsAskedForAgain)
{
    made_deaths.unanswered = 2;
    made_deaths_deadline(1, 7, NG_OP_AllReduce);
    EXPECT_EQ(made_deaths.verdicts_read, 3u);
    made_deaths.unanswered = 1000;
    made_deaths_deadline(1, 8, NG_OP_AllReduce);
    EXPECT_LT(made_deaths.verdicts_read, 100u) << "the policy is carried out all the same";
    EXPECT_EQ(made_deaths.acted, 2u);
}

TEST_F(Deaths, WhereNobodyComesToAVerdictTheFolderHasOneThatSaysSo)
{
    Folder folder;
    made_deaths_act_unjudged(folder.path().c_str());
    std::string verdict = read_whole_file(folder / "verdict.json");
    EXPECT_NE(verdict.find("\"kind\": \"unknown\""), std::string::npos) << verdict;
    EXPECT_EQ(made_deaths.acted, 1u);
    write_whole_file(folder / "verdict.json", "of somebody who knew more");
    made_deaths_act_unjudged(folder.path().c_str());
    EXPECT_EQ(read_whole_file(folder / "verdict.json"), "of somebody who knew more");
}

TEST_F(Deaths, ASuspicionOfItsOwnLeavesTheFilesOfADeadline)
{
    for (bool deadline : {false, true}) {
        Folder folder;
        made_deaths_begin(0);
        write_whole_file(folder / "verdict.json", "before");
        if (deadline)
            made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        std::string said =
            said_by([&] { made_deaths_lead_suspicion(folder.path().c_str(), true); });
        EXPECT_EQ(read_whole_file(folder / "verdict.json") == "before", deadline);
        EXPECT_EQ(std::filesystem::exists(folder / "verdict.txt"), !deadline);
        EXPECT_EQ(count(said, "calls differ: mismatch"), 1) << said;
        EXPECT_EQ(count(said, "; evidence in"), !deadline) << said;
    }
}

/* What this host could not get of the deadline, no file says. */
TEST_F(Deaths, ASuspicionOfOthersLeavesTheFilesOfADeadlineWhereThereAreAny)
{
    for (bool there : {false, true}) {
        Folder folder;
        made_deaths_begin(0);
        made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        if (there)
            write_whole_file(folder / "verdict.json", "of the deadline");
        made_deaths.document = "of a suspicion";
        made_deaths_suspicion_of(folder.path().c_str(), WORLD + 1);
        EXPECT_EQ(read_whole_file(folder / "verdict.json"),
                  there ? "of the deadline" : "of a suspicion");
        EXPECT_EQ(std::filesystem::exists(folder / "verdict.txt"), !there);
    }
}

/* The program has recovered, or policy log let it go on. */
TEST_F(Deaths, LongAfterADeadlineSuspicionsOfOtherCallsAreWrittenAgain)
{
    constexpr int64_t bound_ns = MADE_ABORT_WAIT_MS * NG_MS + 5 * NG_S + 7 * NG_S;
    for (int64_t later_ns : {bound_ns - NG_MS, bound_ns, 5 * 3600 * NG_S}) {
        Folder folder;
        made_deaths_begin(0);
        made_deaths_configure(5 * NG_S, 7 * NG_S);
        made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        made_deaths_stop(later_ns);
        made_deaths.document = "of another host";
        write_whole_file(folder / "verdict.json", "of the deadline");
        made_deaths_suspicion_of(folder.path().c_str(), WORLD);
        EXPECT_EQ(read_whole_file(folder / "verdict.json"), "of the deadline") << "the same call";
        made_deaths_suspicion_of(folder.path().c_str(), WORLD + 1);
        EXPECT_EQ(read_whole_file(folder / "verdict.json") == "of another host",
                  later_ns >= bound_ns);
        write_whole_file(folder / "verdict.json", "of the deadline");
        EXPECT_EQ(count(said_by([&] { made_deaths_lead_suspicion(folder.path().c_str(), true); }),
                        "; evidence in"),
                  later_ns >= bound_ns);
        EXPECT_EQ(read_whole_file(folder / "verdict.json") == "of the deadline",
                  later_ns < bound_ns);
    }
}

/* The disk was slow, and the deadline passed meanwhile. */
TEST_F(Deaths, ASuspicionThatIsWrittenLateLeavesTheFilesOfALaterDeadline)
{
    for (bool deadline : {false, true}) {
        Folder folder;
        made_deaths_begin(0);
        write_whole_file(folder / "verdict.json", "before");
        made_deaths_block(folder.path().c_str());
        made_deaths_lead_suspicion(folder.path().c_str(), true);
        EXPECT_EQ(read_whole_file(folder / "verdict.json"), "before");
        if (deadline)
            made_deaths_deadline(WORLD, 7, NG_OP_AllReduce);
        made_deaths_unblock(folder.path().c_str());
        EXPECT_EQ(read_whole_file(folder / "verdict.json") == "before", deadline);
    }
}

/* Calls may return the error and the program go on while neighbours are still being ended. */
TEST_F(Deaths, ACallThatBeginsWhileKillIsCarriedOutIsNotOneThatWasGivenUp)
{
    for (bool meanwhile : {false, true}) {
        everywhere = Job(2, WORLD, "dp", 6);
        everywhere.at(WORLD, 0).waits();
        made_deaths_begin(0);
        made_deaths_set_policy(NG_ON_TIMEOUT_KILL);
        made_deaths_claimed(1, NG_ON_TIMEOUT_KILL);
        made_deaths.act_ns = meanwhile ? 6 * NG_S : 0;
        made_deaths_news();
        ASSERT_EQ(made_deaths.acted, 1u);
        made_deaths_stuck(WORLD + 1, NG_OP_AllReduce, true); /* since 4 s */
        made_deaths_alarms();
        EXPECT_EQ(made_deaths.opened, meanwhile ? 1u : 0u);
    }
}

/* Its own abort takes longer than theirs. */
TEST_F(Deaths, ARankThatEndsByAVerdictDoesNotFollowNeighboursThatHaveEnded)
{
    Folder folder;
    made_deaths_set_policy(NG_ON_TIMEOUT_KILL);
    made_deaths_claimed(1, NG_ON_TIMEOUT_TEARDOWN);
    said_of_news();
    ASSERT_EQ(made_deaths.acted, 1u);
    std::string said = said_by(
        [&] { made_deaths_neighbours_ended(NG_ON_TIMEOUT_TEARDOWN, folder.path().c_str()); });
    EXPECT_EQ(said, "");
    EXPECT_EQ(made_deaths.acted, 1u);
    EXPECT_FALSE(std::filesystem::exists(folder / "verdict.json"));
}

TEST_F(Deaths, ARankFollowsNeighboursThatHaveEndedByAVerdictThatItCannotRead)
{
    for (bool heard : {false, true}) {
        Folder folder;
        made_deaths_begin(LONG_AGO);
        made_deaths_set_policy(NG_ON_TIMEOUT_KILL);
        if (heard) {
            made_deaths_claimed(1, NG_ON_TIMEOUT_LOG);
            said_of_news();
        }
        unsigned before = made_deaths.acted;
        std::string said = said_by(
            [&] { made_deaths_neighbours_ended(NG_ON_TIMEOUT_TEARDOWN, folder.path().c_str()); });
        EXPECT_EQ(count(said, "unknown: other ranks of this host were ended by a verdict"), 1);
        EXPECT_EQ(made_deaths.acted, before + 1) << heard;
        EXPECT_EQ(made_deaths.policy, (unsigned)NG_ON_TIMEOUT_TEARDOWN);
        EXPECT_TRUE(std::filesystem::exists(folder / "verdict.json"));
    }
}

/* Deadlines of this process are served between two looks at the news. */
TEST_F(Deaths, ABoardThatTellsWithoutEndKeepsNobody)
{
    unsigned asked = 0;
    said_by([&] { asked = made_deaths_flood(true); });
    EXPECT_GT(asked, 10u);
    EXPECT_LT(asked, 100u);
}

TEST_F(Deaths, ABoardThatTellsTheSameAgainIsNotFollowed)
{
    unsigned asked = 0;
    said_by([&] { asked = made_deaths_flood(false); });
    EXPECT_LE(asked, 4u);
}

TEST_F(Deaths, AfterADeadlineOfOthersTheAlarmsOfThisProcessHaveTheirTurn)
{
    made_deaths_claimed(1, NG_ON_TIMEOUT_LOG);
    made_deaths_claimed(2, NG_ON_TIMEOUT_LOG);
    said_of_news();
    EXPECT_EQ(made_deaths.acted, 1u);
    said_of_news();
    EXPECT_EQ(made_deaths.acted, 2u);
}

/* A claimant may be slow to judge, as where evidence is written to a slow file server. */
TEST_F(Deaths, TheVerdictOnASuspicionIsHeardThoughLaterNewsCameBeforeIt)
{
    made_deaths_put(1, nullptr);
    EXPECT_EQ(said_of_news(), "");
    made_deaths_put(2, "missing_rank: rank 2 does not come");
    made_deaths_order(3);
    std::string said = said_of_news();
    EXPECT_EQ(count(said, "suspect: missing_rank: rank 2; in full in the log of "), 1) << said;
    EXPECT_EQ(count(said, "an order of a test"), 1) << said << "nothing waits for the first";
    EXPECT_EQ(said_of_news(), "");
    made_deaths_put(1, "missing_rank: ranks 3,4 do not come");
    said = said_of_news();
    EXPECT_EQ(count(said, "suspect: missing_rank: ranks 3,4; in full in the log of "), 1) << said;
    EXPECT_EQ(said_of_news(), "") << "once";
    EXPECT_EQ(made_deaths.verdicts_read, 2u);
}

TEST_F(Deaths, OfManySuspicionsThatWereNotJudgedYetEachIsHeardOnce)
{
    for (uint64_t epoch = 1; epoch <= 16; epoch++)
        made_deaths_put(epoch, nullptr);
    made_deaths_put(17, "missing_rank: number 17");
    EXPECT_EQ(count(said_of_news(), "suspect: "), 1);
    for (uint64_t epoch = 16; epoch >= 1; epoch--) {
        made_deaths_put(epoch, "missing_rank: one more");
        EXPECT_EQ(count(said_of_news(), "suspect: "), 1) << epoch;
    }
    EXPECT_EQ(said_of_news(), "");
}

TEST_F(Deaths, ASuspicionWhoseClaimantEndedIsLookedAtNoMore)
{
    made_deaths_put(1, nullptr);
    made_deaths_put(2, "missing_rank: rank 2 does not come");
    EXPECT_EQ(count(said_of_news(), "suspect: "), 1);
    made_deaths_claimant_ends(1);
    EXPECT_EQ(said_of_news(), "");
    unsigned asked = made_deaths.asked_for_life;
    EXPECT_EQ(said_of_news(), "");
    EXPECT_EQ(made_deaths.asked_for_life, asked);
}

} // namespace

TEST_F(Deaths, TheClocksOfAWatchdogThatHangsInACallGoOn)
{
    made_deaths_begin(NG_S);
    EXPECT_EQ(made_deaths_silence(false, 4), NG_S) << "it may still come round";
    EXPECT_GE(made_deaths_silence(false, 20), 15 * NG_S);
}

/* Rank 0's watchdog hangs, and saw it in collective 7 last; rank 1 has made so many calls. */
static Job unwatched(int done)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).did(6).waits(all_reduce(), 700 * NG_S);
    job.at(WORLD, 1).did(done);
    made_deaths_saw_last(WORLD, 7);
    return job;
}

TEST_F(Deaths, ADeadlineOfARankWhoseWatchdogHangsPassesIfAnotherHasNotMadeTheCall)
{
    everywhere = unwatched(6);
    made_deaths_silence(false, 590);
    EXPECT_EQ(made_deaths.opened, 0u) << "not yet";
    made_deaths_silence(false, 20);
    EXPECT_EQ(made_deaths.opened, 1u);
    EXPECT_EQ(made_deaths.level, (unsigned)NG_INCIDENT_TIMEOUT);
    EXPECT_EQ(made_deaths.seq, 7u);
}

/* Its device may have finished the call, too. */
TEST_F(Deaths, NoDeadlineOfACallThatAllHaveMadePassesWhileTheWatchdogHangs)
{
    everywhere = unwatched(9);
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u);
    everywhere.at(WORLD, 1) = unwatched(6).at(WORLD, 1).queued();
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u);
    everywhere = unwatched(6);
    everywhere.forget(WORLD, 1);
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u) << "nothing is known of the other rank";
}

/* Calls that differ may end all the same; and of one that came, and then ended, the call is over.
 */
TEST_F(Deaths, NoDeadlineOfACallThatDiffersOrWhoseRankHasEndedSincePassesWhileTheWatchdogHangs)
{
    everywhere = unwatched(9);
    everywhere.at(WORLD, 1) =
        Job(2, WORLD, "dp").at(WORLD, 1).did(6).queued({NG_OP_AllReduce, 0, 0, -1, 1024});
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u);
    everywhere = unwatched(6);
    everywhere.at(WORLD, 1).queued();
    everywhere.process(1).life = NG_LIFE_EXITED;
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u);
}

/* A rank that has received from the root need not wait for the others. */
TEST_F(Deaths, NoDeadlineOfACallWithARootPassesWhileTheWatchdogHangs)
{
    everywhere = unwatched(6);
    everywhere.at(WORLD, 0) = Job(2, WORLD, "dp")
                                  .at(WORLD, 0)
                                  .did(6)
                                  .waits({NG_OP_Broadcast, 7, -1, 0, 1024}, 700 * NG_S);
    made_deaths_silence(false, 2000);
    EXPECT_EQ(made_deaths.opened, 0u);
}

TEST_F(Deaths, ADeadlineOfARankWhoseWatchdogHangsPassesOnceOthersShowIt)
{
    everywhere = unwatched(6);
    Job silent = everywhere;
    silent.forget(WORLD, 1);
    std::swap(everywhere, silent);
    made_deaths_silence(false, 1000);
    EXPECT_EQ(made_deaths.opened, 0u);
    everywhere = silent;
    made_deaths_silence(false, 700);
    EXPECT_GT(made_deaths.opened, 0u);
}

/* Also one that the program makes in another thread while the watchdog hangs. */
TEST_F(Deaths, AnExtensionHoldsWhileTheWatchdogHangs)
{
    everywhere = unwatched(6);
    made_deaths_silence(false, 100);
    made_deaths_extend(1000 * NG_S);
    made_deaths_silence(false, 1480);
    EXPECT_EQ(made_deaths.opened, 0u);
    made_deaths_silence(false, 50);
    EXPECT_GT(made_deaths.opened, 0u);
}

TEST_F(Deaths, AWatchdogThatGetsNoProcessorIsCreditedAndNotSaidToHang)
{
    made_deaths_begin(NG_S);
    testing::internal::CaptureStderr();
    EXPECT_EQ(made_deaths_silence(true, 20), NG_S);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}
