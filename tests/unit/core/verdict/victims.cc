/*
 * Ranks that ended because their own work was stuck: what they waited for is the cause.
 */

#include "tests/unit/core/verdict/verdict_jobs.h"

constexpr int ABORTED = NG_EXIT_STATUS_SIGNAL + SIGABRT, CRASHED = NG_EXIT_STATUS_SIGNAL + SIGSEGV,
              KILLED = NG_EXIT_STATUS_SIGNAL + SIGKILL, NOT_KNOWN = 0;
constexpr int NCCL_REMOTE_ERROR = 6;
constexpr int64_t LONG = 5 * NG_S, SHORT = 300 * NG_MS;
/* What is suspect, less what watchdogs differ by: so long ranks must have shared a wait. */
constexpr int64_t SHARED = 5 * NG_S - 200 * NG_MS, COLD_SHARED = 30 * NG_S - 200 * NG_MS;

/* The last rank has not come to call 7, in which the others wait; rank 0, which had waited for so
 * long, died a second ago. */
static Job gave_up(int ranks, int exit_status, int64_t waited_ns = LONG)
{
    Job job = waiting_for(ranks, {0, ranks - 1});
    job.at(WORLD, 0).waits(all_reduce(), waited_ns);
    job.process(0).is(NG_LIFE_DEAD, NG_S, exit_status);
    return job;
}

TEST(Victims, ARankThatGaveUpIsNotToBlameForTheOneThatItWaitedFor)
{
    for (int ranks : {3, 4, 64}) {
        for (bool frozen : {false, true}) {
            Job job = gave_up(ranks, ABORTED);
            job.process(ranks - 1).life = frozen ? NG_LIFE_STOPPED : NG_LIFE_RUNNING;
            Judgement judgement =
                expect_verdict(job, frozen ? NG_KIND_STOPPED_RANK : NG_KIND_MISSING_RANK,
                               {ranks - 1}, NG_CONFIDENCE_CERTAIN, all_but(ranks, {ranks - 1}));
            EXPECT_EQ(judgement.seq, 7u);
            EXPECT_TRUE(judgement.end_is_certain) << "the call can never end";
            EXPECT_EQ(judgement.gave_up_ns, NG_S);
        }
    }
}

TEST(Victims, AnEndThatNeedNotBeBecauseOfTheWaitLeavesADoubt)
{
    for (int exit_status : {NOT_KNOWN, KILLED, CRASHED}) {
        Judgement judgement = expect_verdict(gave_up(4, exit_status), NG_KIND_MISSING_RANK, {3},
                                             NG_CONFIDENCE_LIKELY, {0, 1, 2});
        EXPECT_EQ(judgement.missing,
                  std::vector<std::string>{"why rank 0, which had waited for long, ended"});
        EXPECT_TRUE(judgement.end_is_certain);
    }
    Job job = gave_up(4, NOT_KNOWN);
    job.process(1) = job.process(0);
    job.process(1).rank = 1;
    job.process(1).pid++;
    EXPECT_EQ(judge(job).missing.at(0), "why ranks 0,1, which had waited for long, ended");
}

TEST(Victims, WhatIsLongIsHalfOfWhatIsSuspectForTheJob)
{
    for (int64_t suspect_ns : {(int64_t)0, NG_S, 60 * NG_S}) {
        int64_t half_ns = (suspect_ns ? suspect_ns : 5 * NG_S) / 2;
        for (bool is_long : {false, true}) {
            Job job = gave_up(4, ABORTED, is_long ? half_ns : half_ns - 1);
            job.suspect_ns = suspect_ns;
            expect_kind(judge(job), is_long ? NG_KIND_MISSING_RANK : NG_KIND_DEAD_RANK);
        }
    }
}

/* A call of the host may be what it was stuck in, too; that takes long without any reason. */
TEST(Victims, ARankMayGiveUpTheMakingOfACommunicator)
{
    constexpr int64_t HALF = 15 * NG_S;
    for (int64_t waited_ns : {SHORT, LONG, HALF - 1, HALF}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++) {
            job.at(WORLD, rank).state = NG_GROUP_CREATING;
            if (rank < 3)
                job.inside(rank, NG_OP_CommInitRank, WORLD, 0, rank ? LONG_AGO : waited_ns);
        }
        job.forget(WORLD, 3);
        job.process(0).is(NG_LIFE_DEAD, NG_S);
        expect_verdict(job, waited_ns == HALF ? NG_KIND_INIT_MISSING_RANK : NG_KIND_DEAD_RANK,
                       {waited_ns == HALF ? 3 : 0});
    }
}

/* As the job had it set: the default is for evidence that does not tell. */
TEST(Victims, WhatIsLongInAColdCallIsHalfOfNcclguardColdSuspect)
{
    for (int64_t cold_ns : {(int64_t)0, 2 * NG_S, 60 * NG_S}) {
        int64_t half_ns = (cold_ns ? cold_ns : 30 * NG_S) / 2;
        for (bool is_long : {false, true}) {
            for (bool making : {false, true}) {
                Job job(4, WORLD, "dp");
                int64_t waited_ns = is_long ? half_ns : half_ns - 1;
                job.cold_suspect_ns = cold_ns;
                for (int rank = 0; rank < 4 && making; rank++) {
                    job.at(WORLD, rank).state = NG_GROUP_CREATING;
                    if (rank < 3)
                        job.inside(rank, NG_OP_CommInitRank, WORLD, 0, rank ? LONG_AGO : waited_ns);
                }
                if (making) {
                    job.forget(WORLD, 3);
                } else {
                    job.wait(WORLD, {1, 2});
                    job.at(WORLD, 0).waits(all_reduce(), waited_ns);
                }
                job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
                expect_verdict(job,
                               !is_long ? NG_KIND_DEAD_RANK
                               : making ? NG_KIND_INIT_MISSING_RANK
                                        : NG_KIND_MISSING_RANK,
                               {is_long ? 3 : 0});
            }
        }
    }
}

/* NCCL connects the ranks in the first collective. */
TEST(Victims, TheFirstCollectiveIsLongLater)
{
    for (bool is_long : {false, true}) {
        Job job(4, WORLD, "dp");
        job.wait(WORLD, {1, 2});
        job.at(WORLD, 0).waits(all_reduce(), is_long ? 15 * NG_S : LONG);
        job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
        expect_verdict(job, is_long ? NG_KIND_MISSING_RANK : NG_KIND_DEAD_RANK, {is_long ? 3 : 0});
    }
}

/* It died in the call before it had waited for long, and another one is not there either: that is
 * said, and neither is certain. */
TEST(Victims, ADeathInACallToWhichALiveRankHasNotComeEitherLeavesADoubt)
{
    for (int ranks : {3, 4}) {
        for (int exit_status : {NOT_KNOWN, ABORTED, KILLED, CRASHED}) {
            bool crashed = exit_status == CRASHED;
            Judgement judgement =
                expect_verdict(gave_up(ranks, exit_status, SHORT), NG_KIND_DEAD_RANK, {0},
                               crashed ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY);
            EXPECT_EQ(judgement.gave_up_ns, 0);
            EXPECT_EQ(judgement.end_is_certain, !crashed);
            ASSERT_EQ(judgement.missing.size(), crashed ? 0u : 1u);
            if (!crashed) {
                EXPECT_EQ(judgement.missing[0], "whether rank " + std::to_string(ranks - 1) +
                                                    ", which has not made the call either, would "
                                                    "have come");
            }
        }
    }
}

TEST(Victims, ADeathBeforeTheCallIsCertainWhoeverElseIsMissing)
{
    for (int ranks : {3, 4}) {
        Job job = waiting_for(ranks, {0, ranks - 1});
        job.process(0).is(NG_LIFE_DEAD, NG_S);
        expect_verdict(job, NG_KIND_DEAD_RANK, {0}, NG_CONFIDENCE_CERTAIN);
    }
}

/* The awaited rank has come since: if the dead one lived, the call would end. And a crash is a
 * reason of its own. */
TEST(Victims, ADeathIsCertainOnceAllHaveCome)
{
    for (int ranks : {2, 3, 4}) {
        for (bool crashed : {false, true}) {
            Job job = gave_up(ranks, crashed ? CRASHED : ABORTED);
            job.at(WORLD, ranks - 1).waits(all_reduce(), NG_S + SHARED - !crashed);
            Judgement judgement = judge(job, SHORT);
            expect_verdict(judgement, NG_KIND_DEAD_RANK, {0}, NG_CONFIDENCE_CERTAIN);
        }
    }
}

/* All had been in the call for long when one gave up: their devices do not finish it. */
TEST(Victims, ARankThatGaveUpWhereAllHadComeIsNotWhyDevicesStall)
{
    for (int ranks : {2, 3, 4}) {
        for (int exit_status : {ABORTED, NOT_KNOWN, 1}) {
            Job job = gave_up(ranks, exit_status);
            if (exit_status == 1)
                job.process(0).life = NG_LIFE_EXITED;
            job.at(WORLD, ranks - 1).waits(all_reduce(), NG_S + SHARED);
            Judgement judgement = judge(job, SHORT);
            expect_verdict(judgement, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN,
                           all_but(ranks, {}));
            EXPECT_TRUE(judgement.end_is_certain);
            EXPECT_EQ(judgement.gave_up_ns, NG_S);
            EXPECT_EQ(judgement.missing.size(), exit_status == ABORTED ? 0u : 1u);
        }
    }
}

/* Work that is queued behind seconds of computation is pending as long, each time. */
TEST(Victims, WhoEndsInAWaitThatIsNotSuspectForItsGroupIsTheCause)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED}) {
        for (int64_t waited_ns : {3 * NG_S, 9 * NG_S, 10 * NG_S}) {
            for (int64_t usual_ns : {NG_S, NG_MS}) {
                Job job(4, WORLD, "dp");
                for (int rank = 0; rank < 4; rank++) {
                    Member &member = job.at(WORLD, rank).did(6);
                    for (size_t i = 0; i < member.records.size(); i++) {
                        /* Enqueued long before; the first one took longer. */
                        member.records[i].entered_age_ns = 200 * NG_S;
                        member.records[i].completed_age_ns =
                            50 * NG_S + (int64_t)(6 - i) * usual_ns;
                    }
                    member.waits(all_reduce(), waited_ns + (rank ? NG_S : 0));
                }
                job.process(0).is(life, NG_S, life == NG_LIFE_DEAD ? ABORTED : 1);
                Judgement judgement = judge(job, SHORT);
                bool suspect = waited_ns >= 5 * NG_S && waited_ns >= 10 * usual_ns;
                expect_verdict(judgement,
                               suspect                ? NG_KIND_GPU_STALL
                               : life == NG_LIFE_DEAD ? NG_KIND_DEAD_RANK
                                                      : NG_KIND_LEFT_EARLY,
                               suspect ? std::vector<int>{} : std::vector<int>{0},
                               suspect ? NG_CONFIDENCE_UNKNOWN : NG_CONFIDENCE_CERTAIN);
            }
        }
    }
}

/* One in a hundred may have taken longer, as in the watchdog. */
TEST(Victims, AnOutlierIsNotUsual)
{
    for (int before : {50, 150}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++) {
            Member &member = job.at(WORLD, rank).did(before);
            for (struct ng_view_record &record : member.records) {
                record.entered_age_ns = 90 * NG_S;
                record.completed_age_ns = 90 * NG_S - NG_MS;
            }
            member.records.back().completed_age_ns -= 60 * NG_S;
            member.waits(all_reduce(), LONG + (rank ? NG_S : 0));
        }
        job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
        expect_kind(judge(job, SHORT), before < 100 ? NG_KIND_DEAD_RANK : NG_KIND_GPU_STALL);
    }
}

/* No program gives up so. */
TEST(Victims, ARankThatWasKilledInASharedWaitIsTheCause)
{
    for (int signal : {SIGKILL, SIGTERM, SIGINT}) {
        for (bool creates : {false, true}) {
            Job job(4, WORLD, "dp", creates ? 0 : 6);
            for (int rank = 0; rank < 4; rank++) {
                if (creates) {
                    job.at(WORLD, rank).state = NG_GROUP_CREATING;
                    job.inside(rank, NG_OP_CommInitRank, WORLD, 0, LONG_AGO + NG_S);
                } else {
                    job.at(WORLD, rank).waits();
                }
            }
            job.process(2).is(NG_LIFE_DEAD, NG_S, NG_EXIT_STATUS_SIGNAL + signal);
            expect_verdict(judge(job, SHORT), NG_KIND_DEAD_RANK, {2}, NG_CONFIDENCE_CERTAIN);
        }
    }
}

/* Calls of the host may hang on all ranks, too, where nothing is known of the reason. NCCL may need
 * time in them: what is suspect elsewhere is usual there. */
TEST(Victims, ARankThatGaveUpACallOfTheHostThatHangsOnAllRanksIsNotWhy)
{
    for (enum ng_op op : {NG_OP_CommInitRank, NG_OP_AllReduce}) {
        /* Rank 3 came so much later: it waits for long, or has only just come. */
        for (int64_t late_ns : {(int64_t)0, (int64_t)1, NG_S + COLD_SHARED - SHORT / 2}) {
            Job job(4, WORLD, "dp");
            for (int rank = 0; rank < 4; rank++) {
                Member &member = job.at(WORLD, rank);
                if (op == NG_OP_AllReduce) {
                    member.opened();
                    member.records.back().flags = NG_RECORD_BLOCKED;
                } else {
                    member.state = NG_GROUP_CREATING;
                }
                job.inside(rank, op, WORLD, op == NG_OP_AllReduce,
                           rank == 0 ? COLD_SHARED
                                     : NG_S + COLD_SHARED - (rank == 3 ? late_ns : 0));
            }
            job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
            Judgement judgement = judge(job, SHORT);
            if (late_ns) {
                expect_verdict(judgement, NG_KIND_DEAD_RANK, {0}, NG_CONFIDENCE_CERTAIN);
            } else {
                expect_verdict(judgement, NG_KIND_UNKNOWN, {}, NG_CONFIDENCE_UNKNOWN,
                               all_but(4, {}));
                EXPECT_TRUE(judgement.end_is_certain);
                EXPECT_EQ(judgement.op, op);
            }
        }
    }
}

/* Programs give up by an exit status, too, though nothing says that it was because of the wait. */
TEST(Victims, ARankThatLeftAfterALongWaitIsNotToBlameForTheOneThatItWaitedFor)
{
    for (int ranks : {3, 4, 64}) {
        for (int64_t waited_ns : {SHORT, LONG}) {
            bool is_long = waited_ns == LONG;
            Job job = gave_up(ranks, 1, waited_ns);
            job.process(0).life = NG_LIFE_EXITED;
            Judgement judgement = expect_verdict(
                job, is_long ? NG_KIND_MISSING_RANK : NG_KIND_LEFT_EARLY, {is_long ? ranks - 1 : 0},
                is_long ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.gave_up_ns, is_long ? NG_S : 0);
            if (is_long) {
                EXPECT_TRUE(judgement.end_is_certain);
                EXPECT_EQ(judgement.missing,
                          std::vector<std::string>{"why rank 0, which had waited for long, ended"});
            }
        }
    }
}

/* It left because NCCL reported the end of a rank that does not answer: which, is not known yet. */
TEST(Victims, ARankThatLeftBecauseOfAnEndThatIsNotKnownYetDidNotGiveUp)
{
    Job job = gave_up(4, 1);
    job.process(0).life = NG_LIFE_EXITED;
    job.at(WORLD, 0).async_error = NCCL_REMOTE_ERROR;
    job.process(3).quiet_ns = 2 * NG_S;
    Judgement judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, ANYBODY);
    EXPECT_TRUE(judgement.may_be_gone);
    EXPECT_EQ(judgement.gave_up_ns, 0);
}

TEST(Victims, ARankThatHadLeftBeforeIsTheCause)
{
    for (int ranks : {3, 4}) {
        Job job = gave_up(ranks, ABORTED);
        job.process(ranks - 1).is(NG_LIFE_EXITED, LONG_AGO);
        job.process(0).alive_age_ns = NG_S;
        expect_verdict(job, NG_KIND_LEFT_EARLY, {ranks - 1}, NG_CONFIDENCE_CERTAIN);
    }
}

/* A launcher ends the others when the first rank has ended, and the one that was missing may be the
 * next. */
TEST(Victims, WhoEndedAfterTheRankThatGaveUpWasMissingBefore)
{
    Job job = gave_up(4, ABORTED);
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED}) {
        job.process(3).is(life, NG_S - NG_MS);
        expect_verdict(job, NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_CERTAIN);
    }
    job.process(3).is(NG_LIFE_DEAD, NG_S + NG_MS);
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

/* Rank 0 gave up a wait in its row, and rank 4 waits for it in the column. */
TEST(Victims, WhoWaitsElsewhereForARankThatGaveUpWaitsForTheSame)
{
    Job job(5);
    job.group(2, "row", {0, 1, 2}, 6);
    job.group(3, "column", {0, 4});
    job.at(2, 0).waits(all_reduce(), LONG);
    job.at(3, 1).waits();
    job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
    EXPECT_EQ(
        expect_verdict(job, NG_KIND_MISSING_RANK, {1, 2}, NG_CONFIDENCE_CERTAIN, {0, 4}).group, 2u);
    job.at(2, 1).waits();
    expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_CERTAIN, {0, 1, 4});
}

TEST(Victims, ARankThatGaveUpMayHaveAbortedItsCommunicatorBefore)
{
    for (int64_t waited_ns : {SHORT, LONG}) {
        Job job = gave_up(4, ABORTED, waited_ns);
        job.at(WORLD, 0).aborts();
        expect_verdict(job, waited_ns == LONG ? NG_KIND_MISSING_RANK : NG_KIND_DEAD_RANK,
                       {waited_ns == LONG ? 3 : 0});
    }
}

/* Over a network NCCL tells the others of its end at once. */
TEST(Victims, ARemoteErrorIsTheEndOfTheRankThatGaveUp)
{
    Job job = gave_up(4, ABORTED);
    for (int rank : {1, 2})
        job.at(WORLD, rank).async_error = NCCL_REMOTE_ERROR;
    expect_verdict(job, NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_CERTAIN);
    job.at(WORLD, 1).async_error = NCCL_REMOTE_ERROR - 1;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
}

TEST(Victims, WhoGaveUpACallThatOthersMadeDifferentlyIsNoCause)
{
    Job job(4, WORLD, "dp", 6);
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).waits(all_reduce(rank == 2 ? 77 : 1024), LONG);
    job.process(0).is(NG_LIFE_DEAD, NG_S, ABORTED);
    expect_verdict(job, NG_KIND_MISMATCH, {2});
}
