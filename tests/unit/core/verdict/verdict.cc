/*
 * The verdict engine: ranks that are missing, dead, lost, stopped or gone, devices that stall,
 * inits, sends and receives.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

extern "C" {
#include "core/nccl/group_id.h"
}

/* It left a call out, and has come to the end: there it will stay, as the work of the others, whose
 * threads are there, too, does not finish. */
TEST(Verdict, WhoDestroysItsCommunicatorWithoutTheCallIsMissing)
{
    for (enum ng_op op : {NG_OP_CommDestroy, NG_OP_CommFinalize, NG_OP_CommAbort})
        for (bool others_destroy : {false, true}) {
            Job job(2, 0xd, "dp");
            job.at(0xd, 0).did(9).waits();
            job.at(0xd, 1).did(9);
            job.inside(1, op, 0xd);
            if (others_destroy)
                job.inside(0, op, 0xd);
            Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
            EXPECT_EQ(judgement.seq, 10u);
            judgement.because("without AllReduce #10");
        }
}

/* All others came to their end without it, alike: the one that waits has made a call too many. */
TEST(Verdict, WhoWaitsAloneInACallThatTheOthersEndedWithoutMadeOneTooMany)
{
    for (auto [ranks, odd] : sizes_and_culprits())
        for (enum ng_op op : {NG_OP_CommDestroy, NG_OP_NONE}) {
            Job job(ranks, WORLD, "dp");
            job.at(WORLD, odd).did(9).waits();
            for (int rank : all_but(ranks, {odd})) {
                job.at(WORLD, rank).did(9);
                if (op)
                    job.inside(rank, op, WORLD);
                else
                    job.process(rank).life = NG_LIFE_EXITED;
            }
            Judgement judgement = judge(job);
            if (ranks == 2) { /* which of both is wrong, nothing tells */
                expect_kind(judgement, op ? NG_KIND_MISSING_RANK : NG_KIND_LEFT_EARLY);
                EXPECT_EQ(judgement.culprits, std::vector<int>{1 - odd});
                EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_LIKELY) << judgement.line;
                EXPECT_TRUE(mentions(judgement.whys.at(0), "without AllReduce #10"));
                EXPECT_TRUE(mentions(judgement.whys[0],
                                     "; or rank " + std::to_string(odd) + " made a call too many"))
                    << judgement.whys[0];
                continue;
            }
            expect_kind(judgement, NG_KIND_MISMATCH);
            EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.culprits, std::vector<int>{odd}) << judgement.line;
            EXPECT_EQ(judgement.waiting, op ? all_but(ranks, {odd}) : std::vector<int>())
                << "in CommDestroy";
            EXPECT_EQ(judgement.seq, 10u);
            EXPECT_EQ(judgement.whys.at(0),
                      "called AllReduce #10, a call too many: " + std::to_string(ranks - 1) +
                          " others came to their end without it");
        }
}

/* A process makes the calls of its devices together: one call too many, or one that is left out, is
 * that of all of them. */
TEST(Verdict, AProcessWithSeveralDevicesThatWaitsAloneInACallMadeOneTooMany)
{
    for (int processes : {2, 3}) {
        std::vector<int> devices;
        for (int i = 0; i < 2 * processes; i++)
            devices.push_back(i / 2);
        Job job(processes, false);
        job.group(WORLD, "dp", devices, 9);
        job.wait(WORLD, {2, 3});
        for (int other : {0, 2})
            if (other < processes)
                job.process(other).life = NG_LIFE_EXITED;
        if (processes == 3) {
            expect_verdict(job, NG_KIND_MISMATCH, {2, 3}, NG_CONFIDENCE_CERTAIN);
            continue;
        }
        expect_verdict(job, NG_KIND_LEFT_EARLY, {0, 1}, NG_CONFIDENCE_LIKELY, {2, 3})
            .because("; or rank 2 made a call too many");
    }
}

/* A thread that has ended the communicator of its device is not another side than the others. */
TEST(Verdict, OfOneProcessTheDeviceThatDoesNotComeIsMissing)
{
    Job job(1, false);
    job.group(WORLD, "dp", {0, 0, 0, 0}, 9);
    job.wait(WORLD, {0, 1, 2});
    job.at(WORLD, 3).state = NG_GROUP_DESTROYED;
    expect_verdict(job, NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_CERTAIN);
}

/* Of one peer nothing tells which of both is wrong: it may have left a call out. */
TEST(Verdict, WhoWaitsAloneToExchangeDataWithRanksThatHaveEndedMadeACallTooMany)
{
    for (int peers : {1, 2}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++) {
            job.at(WORLD, rank)
                .p2p(NG_OP_Send, (rank + 1) % 4, true)
                .p2p(NG_OP_Recv, (rank + 3) % 4, true);
            if (rank != 2)
                job.process(rank).life = NG_LIFE_EXITED;
        }
        job.at(WORLD, 2).p2p(NG_OP_Recv, 1, false);
        if (peers == 2)
            job.at(WORLD, 2).p2p(NG_OP_Send, 3, false);
        job.at(WORLD, 2).pending_record = job.at(WORLD, 2).records.back().id;
        expect_verdict(job, peers == 2 ? NG_KIND_MISMATCH : NG_KIND_LEFT_EARLY,
                       {peers == 2 ? 2 : 1}, NG_CONFIDENCE_LIKELY);
    }
}

/* That one of both has ended is certain all the same, and enough to act on. */
TEST(Verdict, OfTwoRanksTheEndOfOneIsCertainThoughWhichOfBothIsWrongIsNot)
{
    for (int ranks : {2, 3}) {
        Job job(ranks, WORLD, "dp", 9);
        for (int rank = 0; rank < ranks - 1; rank++)
            job.at(WORLD, rank).waits();
        job.process(ranks - 1).life = NG_LIFE_EXITED;
        Judgement judgement =
            expect_verdict(job, NG_KIND_LEFT_EARLY, {ranks - 1},
                           ranks == 2 ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(judgement.end_is_certain, ranks == 2) << "of more the confidence says it";
    }
}

/* But earlier rounds do: there the one that waits called something else. */
TEST(Verdict, OfTwoRanksTheOneThatDepartsFromItsRoundsMadeOneTooMany)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200},
                              c = all_reduce(300);
    Job job(2, WORLD, "dp");
    for (int rank : {0, 1})
        for (int step = 0; step < 5; step++)
            job.at(WORLD, rank).did(1, a).did(1, b).did(1, c);
    job.at(WORLD, 0).waits(b);
    job.process(1).life = NG_LIFE_EXITED;
    Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, {0}, NG_CONFIDENCE_LIKELY);
    EXPECT_TRUE(mentions(judgement.whys.at(0), "called AllGather #16, a call too many"))
        << judgement.whys[0];
}

/* And an exit status that is none of success tells. */
TEST(Verdict, OfTwoRanksTheOneThatEndedWithAnErrorLeftEarly)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).did(9).waits();
    job.at(WORLD, 1).did(9);
    job.process(1).life = NG_LIFE_EXITED;
    job.process(1).exit_status = 7;
    expect_verdict(job, NG_KIND_LEFT_EARLY, {1}, NG_CONFIDENCE_CERTAIN);
}

/* One of the others is held up by it in another communicator, and has not come to its end. */
TEST(Verdict, WhoMadeOneCallTooManyMayHoldUpOneThatHasNotEnded)
{
    Job job(6, WORLD, "dp", 9);
    job.group(1, "pair", {4, 5});
    job.at(WORLD, 4).waits();
    job.at(1, 1).waits();
    for (int rank : {0, 1, 2, 3})
        job.process(rank).life = NG_LIFE_EXITED;
    expect_verdict(job, NG_KIND_MISMATCH, {4}, {}, {5});
}

/* Ranks that ended with an error, or not all at one call, or that live and are in no call, are what
 * is missing. */
TEST(Verdict, WhoWaitsAloneForRanksThatAreNotAtTheirEndIsNotToBlame)
{
    for (int how : {0, 1, 2, 3}) {
        Job job(4, WORLD, "dp");
        job.at(WORLD, 2).did(9).waits();
        for (int rank : {0, 1, 3}) {
            job.at(WORLD, rank).did(how == 1 && rank == 1 ? 8 : 9);
            job.process(rank).life = NG_LIFE_EXITED;
            job.process(rank).exit_status = how == 0 ? 1 : 0;
        }
        if (how == 2)
            job.process(3).life = NG_LIFE_RUNNING;
        if (how == 3)
            job.at(WORLD, 0).waits();
        Judgement judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, ANYBODY);
        for (int culprit : judgement.culprits)
            EXPECT_NE(culprit, 2) << judgement.line;
    }
}

TEST(Verdict, TellsWhatTheCallWasPassedAndItsDeadline)
{
    Job job = waiting_for(4, {2});
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).timeout_ns = rank == 1 ? 60 * NG_S : 600 * NG_S;
    Judgement judgement = judge(job);
    for (const char *part :
         {"\n  \"count\": 1024,\n  \"dtype\": \"float32\",\n", "\n  \"deadline_ms\": 60000,\n"})
        EXPECT_PRED2(mentions, judgement.json, part);
    EXPECT_PRED2(mentions, judgement.text, "; 1024 float32\n");
    EXPECT_PRED2(mentions, judgement.text, "stuck for   30.0 s; deadline: 60.0 s");
    EXPECT_PRED2(mentions, judgement.line, "never called AllReduce #7 of group");
    EXPECT_PRED2(mentions, judgement.line, " for 30.0 s; 1024 float32; deadline: 60.0 s; certain");
}

/* Of what ranks do not pass alike, no rank's word is that of the call. */
TEST(Verdict, TellsOfACallOnlyWhatRanksPassedAlike)
{
    Job job(3, WORLD, "dp");
    for (int rank = 0; rank < 3; rank++)
        job.at(WORLD, rank).did(2).waits(all_reduce(rank == 1 ? 512 : 1024));
    Judgement judgement = judge(job);
    EXPECT_FALSE(mentions(judgement.json, "\"count\"")) << judgement.json;
    EXPECT_PRED2(mentions, judgement.json, "\"dtype\": \"float32\"");
    EXPECT_FALSE(mentions(judgement.json, "\"deadline_ms\"")) << judgement.json;
    EXPECT_PRED2(mentions, judgement.text, "; float32\n");
}

/* Who made the call, and waits in the end for its device, has done its part. */
TEST(Verdict, WhoDestroysItsCommunicatorAfterTheCallIsNobodysReason)
{
    Job job(3, 0xd, "dp");
    for (int rank = 0; rank < 2; rank++) {
        job.at(0xd, rank).did(9).waits();
        job.inside(rank, NG_OP_CommDestroy, 0xd);
    }
    job.at(0xd, 2).did(9);
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

/* It has come to it as well, a moment ago. */
TEST(Verdict, WhoHasJustComeToTheEndIsNotMissedThere)
{
    Job job(2, 0xd, "dp");
    for (int rank = 0; rank < 2; rank++) {
        job.at(0xd, rank).did(9);
        job.inside(rank, NG_OP_CommDestroy, 0xd, 0, rank ? NG_S / 10 : LONG_AGO);
    }
    EXPECT_NE(judge(job).kind, NG_KIND_MISSING_RANK);
}

/* Their numbers are for ever, too: other releases read them. */
TEST(Verdict, NamesOfKindsAreThoseOfTheContract)
{
    static const char *const names[] = {
        "healthy",   "missing_rank",   "dead_rank", "stopped_rank",      "left_early",
        "mismatch",  "order_deadlock", "gpu_stall", "init_missing_rank", "init_mismatch",
        "straggler", "async_error",    "nan",       "abort_stuck",       "watchdog_stuck",
        "unknown",   "cuda_error"};
    ASSERT_EQ((size_t)NG_KIND_COUNT, sizeof(names) / sizeof(names[0]));
    for (int kind = 0; kind < NG_KIND_COUNT; kind++) {
        EXPECT_STREQ(ng_verdict_kind_name((enum ng_verdict_kind)kind), names[kind]);
        EXPECT_STRNE(ng_verdict_kind_text((enum ng_verdict_kind)kind), "");
    }
    EXPECT_STREQ(ng_verdict_kind_name((enum ng_verdict_kind)99), "unknown");
    EXPECT_STREQ(ng_confidence_name(NG_CONFIDENCE_CERTAIN), "certain");
    EXPECT_STREQ(ng_confidence_name(NG_CONFIDENCE_LIKELY), "likely");
    EXPECT_STREQ(ng_confidence_name(NG_CONFIDENCE_UNKNOWN), "unknown");
}

TEST(Verdict, NothingAtAllIsHealthy)
{
    expect_verdict(judge(Job(0)), NG_KIND_HEALTHY, {});
    expect_kind(judge(Job(8)), NG_KIND_HEALTHY);
}

TEST(Verdict, WorkInFlightForLessThanTheTimeIsHealthy)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(rank);
    job.at(WORLD, 3).waits(all_reduce(), STALLED - 1);
    job.inside(2, NG_OP_AllReduce, WORLD, 3, STALLED - 1);
    Judgement judgement = expect_verdict(job, NG_KIND_HEALTHY, {}, NG_CONFIDENCE_CERTAIN, {});
    EXPECT_EQ(judgement.group, 0u);
    /* The same job, asked with less patience. */
    EXPECT_NE(judge(job, STALLED - 1).kind, NG_KIND_HEALTHY);
}

TEST(Verdict, AJobThatEndedIsHealthy)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).did(5).state = NG_GROUP_DESTROYED;
        job.process(rank).is(NG_LIFE_EXITED, 1000 * NG_S);
    }
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, TheRankThatNeverCalledIsMissing)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Judgement judgement =
            expect_verdict(judge(waiting_for(ranks, {culprit})), NG_KIND_MISSING_RANK, {culprit},
                           NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
        EXPECT_EQ(judgement.group, WORLD);
        EXPECT_EQ(judgement.seq, 7u);
        EXPECT_EQ(judgement.op, NG_OP_AllReduce);
        EXPECT_EQ(judgement.stalled_ns, LONG_AGO);
        EXPECT_TRUE(judgement.missing.empty());
        judgement.because("never called AllReduce #7");
        judgement.because("AllReduce #6");
    }
}

TEST(Verdict, ARankThatDidNotAnswerIsNeverSurelyMissing)
{
    Job job = waiting_for(4, {2});
    job.process(2).quiet_ns = 2600 * NG_MS;
    expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_LIKELY)
        .because("2.6 s ago: it did not answer");
}

/* What a host said last before it was gone: it was still making the communicator. */
TEST(Verdict, ARankThatDidNotAnswerIsNotInAnInitThatOthersHaveBehindThem)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1})
        job.at(WORLD, rank).did(6).waits();
    for (int rank : {2, 3}) {
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
        job.inside(rank, NG_OP_CommInitRank, WORLD, 0, LONG_AGO + 300 * NG_MS);
        job.process(rank).quiet_ns = LONG_AGO + 200 * NG_MS;
    }
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2, 3}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    EXPECT_EQ(judgement.seq, 7u);

    /* Where it was stuck already when it was heard of last, it is still. */
    for (int rank : {2, 3})
        job.process(rank).quiet_ns = LONG_AGO - STALLED;
    EXPECT_EQ(judge(job).op, NG_OP_CommInitRank);
}

TEST(Verdict, ARankThatDidNotAnswerIsNotInACollectiveThatOthersHaveBehindThem)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).did(6).waits();
    job.at(WORLD, 2).did(2).waits();
    job.process(2).quiet_ns = LONG_AGO;
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.seq, 7u);

    job.process(2).quiet_ns = LONG_AGO - STALLED;
    EXPECT_EQ(judge(job).seq, 3u);
}

TEST(Verdict, ARankThatCameAMomentAgoWaitsAndAStallIsAsOldAsItsLongestWait)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 1).pending_age_ns = LONG_AGO - NG_S;
    job.at(WORLD, 3).pending_age_ns = STALLED / 2;
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, ANYBODY, {}, {0, 1, 3});
    EXPECT_EQ(judgement.stalled_ns, LONG_AGO);
}

/* One rank misses a collective, another misses a split: either may be the cause. */
TEST(Verdict, ARankMissedInAnotherKindOfCallIsNoFurtherCulprit)
{
    Job job(4);
    job.group(1, "dp", {0, 1}, 3);
    job.group(2, "parent", {2, 3}, 3);
    job.at(1, 0).waits();
    job.at(2, 0).derived = 1;
    job.inside(2, NG_OP_CommSplit, 2);
    EXPECT_EQ(judge(job).culprits.size(), 1u);
}

TEST(Verdict, TheVeryFirstCollectiveCanMissARankToo)
{
    Job job(4, WORLD, "dp");
    job.wait(WORLD, {0, 1, 3});
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    EXPECT_EQ(judgement.seq, 1u);
}

/* A cold communicator: the first collective blocks inside the host call, and nothing is on a
 * stream. */
TEST(Verdict, RanksInsideTheHostCallWaitAsWell)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1, 3}) {
        Member &member = job.at(WORLD, rank);
        member.opened();
        member.records.back().flags = NG_RECORD_BLOCKED;
        job.inside(rank, NG_OP_AllReduce, WORLD, 1);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2}, {}, {0, 1, 3});
    EXPECT_EQ(judgement.seq, 1u);
}

/* What no device has begun, none stalls: NCCL takes its time. */
TEST(Verdict, WhereAllAreInsideTheHostCallNoDeviceIsBlamed)
{
    for (int on_device : {0, 1, 3}) {
        for (bool makes : {false, true}) {
            Job job(4, WORLD, "dp");
            for (int rank = 0; rank < 4; rank++) {
                Member &member = job.at(WORLD, rank);
                if (makes)
                    member.state = NG_GROUP_CREATING;
                if (!makes && rank < on_device) {
                    member.waits();
                    continue;
                }
                if (!makes) {
                    member.opened();
                    member.records.back().flags = NG_RECORD_BLOCKED;
                }
                job.inside(rank, makes ? NG_OP_CommInitRank : NG_OP_AllReduce, WORLD,
                           makes ? 0 : 1);
            }
            Judgement judgement = judge(job);
            EXPECT_EQ(judgement.kind, NG_KIND_UNKNOWN) << on_device << makes;
            EXPECT_TRUE(judgement.all_came);
            EXPECT_EQ(judgement.culprits.size(), 0u);
        }
    }
}

TEST(Verdict, TwoRanksCanBeMissing)
{
    expect_verdict(judge(waiting_for(8, {2, 5})), NG_KIND_MISSING_RANK, {2, 5}, {},
                   all_but(8, {2, 5}));
}

TEST(Verdict, ADeadRankIsToBlameBeforeAndInsideTheCall)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        for (bool came : {false, true}) {
            Job job = waiting_for(ranks, {culprit});
            if (came)
                job.at(WORLD, culprit).waits(all_reduce(), NG_S);
            job.process(culprit).is(NG_LIFE_DEAD, LONG_AGO - NG_S);
            Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {culprit},
                                                 NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
            EXPECT_EQ(judgement.seq, 7u);
        }
    }
}

TEST(Verdict, AFrozenRankIsToBlame)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        for (bool came : {false, true}) {
            Job job = waiting_for(ranks, {culprit});
            if (came)
                job.at(WORLD, culprit).waits();
            job.process(culprit).life = NG_LIFE_STOPPED;
            Judgement judgement = expect_verdict(job, NG_KIND_STOPPED_RANK, ANYBODY);
            /* Frozen inside the call: its device may still do its part. */
            EXPECT_EQ(judgement.confidence, came ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.culprits, std::vector<int>{culprit});
            EXPECT_EQ(judgement.waiting, all_but(ranks, {culprit}));
        }
    }
}

TEST(Verdict, ARankThatEndedNormallyLeftEarly)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        for (int status : {0, 1}) {
            Job job = waiting_for(ranks, {culprit});
            job.process(culprit).life = NG_LIFE_EXITED;
            job.process(culprit).exit_status = status;
            expect_verdict(job, NG_KIND_LEFT_EARLY, {culprit},
                           ranks == 2 && status == 0 ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN,
                           all_but(ranks, {culprit}))
                .because("exit status " + std::to_string(status));
        }
    }
}

/* Two devices each: the ranks of a process end together, whether or not another waits for all. */
TEST(Verdict, AllRanksOfAProcessThatEndedOrIsFrozenAreNamed)
{
    const struct {
        enum ng_life life;
        enum ng_verdict_kind kind;
    } cases[] = {{NG_LIFE_EXITED, NG_KIND_LEFT_EARLY},
                 {NG_LIFE_DEAD, NG_KIND_DEAD_RANK},
                 {NG_LIFE_STOPPED, NG_KIND_STOPPED_RANK}};
    for (const auto &one : cases) {
        Job job(6, WORLD, "world", 5);
        job.group(1, "even", {0, 2, 4});
        job.group(2, "odd", {1, 3, 5}, 1);
        for (int rank : {0, 1, 2, 3, 4, 5}) {
            job.at(WORLD, rank).process = rank / 2 * 2;
            job.at(1 + rank % 2, rank / 2).process = rank / 2 * 2;
        }
        job.process(2).is(one.life, 20 * NG_S);
        job.wait(1, {0, 2});
        Judgement judgement = expect_verdict(job, one.kind, {2, 3}, NG_CONFIDENCE_CERTAIN, {0, 4});
        EXPECT_PRED2(mentions, judgement.whys.back(), "it is of the same process as rank 2");
    }
}

TEST(Verdict, WhoAbortedItsCommunicatorWaitsForNobody)
{
    for (enum ng_group_state end : {NG_GROUP_ABORTED, NG_GROUP_DESTROYED}) {
        Job job = waiting_for(2, {1});
        job.process(1).life = NG_LIFE_EXITED;
        job.at(WORLD, 1).state = NG_GROUP_ABORTED;
        expect_kind(judge(job), NG_KIND_LEFT_EARLY);
        /* Its watchdog has not checked since, so the work still appears to be in flight. */
        job.at(WORLD, 0).state = end;
        expect_kind(judge(job), NG_KIND_HEALTHY);
    }
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    job.process(1).life = NG_LIFE_EXITED;
    EXPECT_NE(judge(job).kind, NG_KIND_HEALTHY);
    job.at(WORLD, 0).state = NG_GROUP_ABORTED;
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, ARankThatEndedSaysWhatItHadNotEnded)
{
    Job job = waiting_for(4, {2});
    job.process(2).life = NG_LIFE_EXITED;
    EXPECT_PRED2(mentions, judge(job).whys.at(0),
                 "it had no work pending, but 1 communicator open");
    job.at(WORLD, 2).state = NG_GROUP_DESTROYED;
    EXPECT_PRED2(mentions, judge(job).whys.at(0),
                 "it had no work pending and no communicator open");

    job = waiting_for(4, {2});
    job.group(2, "other", {1, 2});
    job.at(WORLD, 2).waits();
    job.process(2).life = NG_LIFE_EXITED;
    Judgement judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, ANYBODY);
    judgement.because("inside AllReduce #7; its last was AllReduce #7");
    judgement.because("it had work pending in 1 of its communicators, 2 open");
}

/* Its parent may know how it died; then that is said. */
TEST(Verdict, ADeathIsToldAsFarAsItIsKnown)
{
    static const struct {
        int exit_status;
        const char *why;
    } rows[] = {{0, "ended without reporting it (killed, crashed or _exit) before AllReduce #7"},
                {NG_EXIT_STATUS_SIGNAL + 9, "was killed (signal 9) before AllReduce #7"},
                {NG_EXIT_STATUS_SIGNAL + 15, "was killed (signal 15) before AllReduce #7"},
                {NG_EXIT_STATUS_SILENT + 0,
                 "ended without reporting it (_exit with status 0) before AllReduce #7"},
                {NG_EXIT_STATUS_SIGNAL + 11, "crashed (signal 11) before AllReduce #7"}};
    for (const auto &row : rows) {
        Job job = waiting_for(4, {2});
        job.process(2).life = NG_LIFE_DEAD;
        job.process(2).exit_status = row.exit_status;
        EXPECT_EQ(judge(job).whys.at(0).find(row.why), 0u) << judge(job).whys[0];
    }
}

TEST(Verdict, AnExitWithoutACommunicatorInUseIsNoReason)
{
    /* Rank 2 has received all that it waited for, has sent all that it had to, and ended. Rank 1 is
     * slow to take it. */
    for (enum ng_life life : {NG_LIFE_EXITED, NG_LIFE_STOPPED, NG_LIFE_LOST}) {
        Job job(3, WORLD, "pp");
        job.at(WORLD, 2).p2p(NG_OP_Send, 1, true);
        job.at(WORLD, 1).p2p(NG_OP_Recv, 2, false);
        job.process(2).life = life;
        expect_verdict(job, NG_KIND_GPU_STALL, {});
    }
}

/* Hosts of two ranks each, "n0", "n1", …; those of `lost` are lost. */
static void put_on_hosts(Job &job, const std::vector<int> &lost, int64_t silent_ns)
{
    for (size_t rank = 0; rank < job.processes.size(); rank++)
        job.process((int)rank).host = "n" + std::to_string(rank / 2);
    for (int rank : lost) {
        job.process(rank).is(NG_LIFE_LOST, silent_ns);
    }
}

TEST(Verdict, RanksOfALostHostAreLikelyDead)
{
    for (bool came : {false, true}) {
        Job job = waiting_for(8, {4, 5});
        for (int rank : {4, 5})
            if (came)
                job.at(WORLD, rank).waits();
        put_on_hosts(job, {4, 5}, 5400 * NG_MS);
        Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {4, 5}, NG_CONFIDENCE_LIKELY,
                                             all_but(8, {4, 5}));
        for (const std::string &why : judgement.whys)
            EXPECT_EQ(why.find("host n2 with ranks 4,5 has sent no message for 5.4 s: it may be "
                               "down or cut off, or its processes frozen or gone; it "),
                      0u)
                << why;
        EXPECT_PRED2(mentions, judgement.whys[0],
                     came ? "was inside AllReduce #7" : "had not told of AllReduce #7");
        EXPECT_PRED2(mentions, judgement.line,
                     "dead_rank: ranks 4,5 went silent without finishing "
                     "AllReduce #7 of group \"dp\" (8 ranks) (host n2 with "
                     "ranks 4,5 has sent no message for 5.4 s");
    }
}

TEST(Verdict, OneOfAHostThatIsLostAloneIsNotTheWholeHost)
{
    Job job = waiting_for(8, {4});
    put_on_hosts(job, {4}, 7 * NG_S);
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {4}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.whys.at(0).find("has sent no message for 7.0 s, though others on its host "
                                        "n2 have"),
              0u)
        << judgement.whys[0];
    EXPECT_FALSE(judgement.more_may_be_lost);

    /* Each has a sign of life of its own: the other may be gone, too. */
    job.process(5).quiet_ns = NG_S;
    judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {4}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.whys.at(0).find("has sent no message for 7.0 s, and others on its host n2 "
                                        "do not answer: it may be down or cut off"),
              0u)
        << judgement.whys[0];
    EXPECT_TRUE(judgement.more_may_be_lost);
    job.process(5).quiet_ns = 0;

    /* Where there was only one, nobody can tell it from its host. */
    job.process(4).host = "alone";
    EXPECT_EQ(judge(job).whys.at(0).find("host alone with rank 4 has sent no message for 7.0 s"),
              0u)
        << judge(job).whys[0];
}

TEST(Verdict, ALostRankThatHasDoneItsPartIsNoCulprit)
{
    Job job = waiting_for(8, {2});
    job.at(WORLD, 6).pending_record = 0;
    job.at(WORLD, 6).completed = 7;
    job.group(2, "other", {6, 7});
    put_on_hosts(job, {6}, 20 * NG_S);
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

/* Three groups are stuck since different times, each for a rank that is lost. */
TEST(Verdict, EveryLostRankThatAStuckGroupNeedsIsNamed)
{
    Job job(8);
    job.group(1, "a", {0, 4, 2});
    job.group(2, "b", {1, 5});
    job.group(3, "c", {3, 6});
    job.at(1, 0).waits(all_reduce(), 40 * NG_S);
    job.at(1, 2).waits(all_reduce(), 40 * NG_S);
    job.at(2, 0).waits(all_reduce(), 20 * NG_S);
    job.at(3, 0).waits(all_reduce(), 6 * NG_S);
    put_on_hosts(job, {4, 5, 6, 7}, 45 * NG_S);
    job.process(6).life_age_ns = 8 * NG_S;
    Judgement judgement =
        expect_verdict(job, NG_KIND_DEAD_RANK, ANYBODY, NG_CONFIDENCE_LIKELY, {0, 1, 2, 3});
    EXPECT_EQ(judgement.culprits, (std::vector<int>{4, 5, 6})) << "nobody needs rank 7";
}

TEST(Verdict, ADeathAndALossThatAreNoConsequenceOfEachOtherAreBothNamed)
{
    Job job = waiting_for(8, {2, 4, 5});
    put_on_hosts(job, {4, 5}, 6 * NG_S);
    job.process(2).is(NG_LIFE_DEAD, 5 * NG_S);
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {2, 4, 5}, NG_CONFIDENCE_LIKELY);
    EXPECT_PRED2(mentions, judgement.line, "died or went silent");

    /* The others were heard of long after it died. */
    job.process(2).life_age_ns = 60 * NG_S;
    judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2});
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_CERTAIN);

    /* It died long after the others were lost. */
    job.process(2).life_age_ns = 5 * NG_S;
    for (int rank : {4, 5})
        job.process(rank).life_age_ns = 60 * NG_S;
    judgement = judge(job);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{4, 5}));
}

/* Rank 2 was killed; its launcher then told rank 3 to end. */
TEST(Verdict, WhatALauncherEndedBecauseOfADeathIsNoCulprit)
{
    Job job = waiting_for(8, {2, 3});
    for (int rank : {2, 3})
        job.process(rank).is(NG_LIFE_DEAD, 5 * NG_S);
    job.process(2).exit_status = NG_EXIT_STATUS_SIGNAL + SIGKILL;
    job.process(3).exit_status = NG_EXIT_STATUS_SIGNAL + SIGTERM;
    job.process(3).life_age_ns--;
    expect_verdict(job, NG_KIND_DEAD_RANK, {2}, NG_CONFIDENCE_CERTAIN);

    /* On another host the clock may say that it was before. */
    job.process(3).life_age_ns = 6 * NG_S;
    job.process(3).host = "n2";
    EXPECT_EQ(judge(job).culprits, std::vector<int>{2});
    job.process(3).exit_status = NG_EXIT_STATUS_SILENT + 128 + SIGTERM;
    EXPECT_EQ(judge(job).culprits, std::vector<int>{2});
    job.process(3).exit_status = NG_EXIT_STATUS_SIGNAL + SIGTERM;

    /* Long before: rank 2 did not end when it was told to, and was killed. */
    job.process(3).life_age_ns = 8 * NG_S;
    EXPECT_EQ(judge(job).culprits, std::vector<int>{3});
    job.process(3).life_age_ns = 6 * NG_S;

    /* On the same it was before, or at the same moment as far as is known. */
    job.process(3).host = job.process(2).host;
    EXPECT_EQ(judge(job).culprits, (std::vector<int>{2, 3}));
    job.process(3).life_age_ns = 5 * NG_S;
    EXPECT_EQ(judge(job).culprits, (std::vector<int>{2, 3}));

    /* Not by a signal that launchers send, or both by it. */
    job.process(3).life_age_ns = 5 * NG_S - 1;
    job.process(3).exit_status = NG_EXIT_STATUS_SIGNAL + SIGKILL;
    EXPECT_EQ(judge(job).culprits, (std::vector<int>{2, 3}));
    for (int rank : {2, 3})
        job.process(rank).exit_status = NG_EXIT_STATUS_SIGNAL + SIGTERM;
    EXPECT_EQ(judge(job).culprits, (std::vector<int>{2, 3}));
}

/* Rank 5 of six was killed before its first communicator, and is needed in two. */
TEST(Verdict, WhoDiedBeforeItsFirstCommunicatorIsNamedWhereNobodyElseCanBeMissing)
{
    Job job(6);
    job.group(1, "five", {0, 1, 2, 3, 5});
    job.group(2, "two", {4, 5});
    job.making(1, {0, 1, 2, 3});
    job.at(2, 0).state = NG_GROUP_CREATING;
    job.inside(4, NG_OP_CommInitRank, 2);
    job.forget(1, 4);
    job.forget(2, 1);
    job.process(5).is(NG_LIFE_DEAD, 30 * NG_S, NG_EXIT_STATUS_SIGNAL + SIGKILL);
    expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {5}, NG_CONFIDENCE_LIKELY)
        .because("was killed (signal 9) before its first communicator");

    job.process(5).exit_status = NG_EXIT_STATUS_SILENT + 7;
    EXPECT_EQ(judge(job).whys.at(0), "ended with exit status 7 before its first communicator");

    /* Rank 4 is free to come; or there is one more, of which nobody knows. */
    std::vector<Call> calls = job.calls;
    job.calls.pop_back();
    job.at(2, 0).state = NG_GROUP_DESTROYED;
    EXPECT_EQ(judge(job).culprits, std::vector<int>{-1});
    job.calls = calls;
    job.at(2, 0).state = NG_GROUP_CREATING;
    for (auto &process : job.processes)
        process.world_size = 7;
    EXPECT_EQ(judge(job).culprits, std::vector<int>{-1});
}

/* With NCCLGUARD_CHECK=strict. The guard has refused the call of the others, which end for that; a
 * call in an NCCL group it lets through. */
TEST(Verdict, RanksThatEndSinceTheirCallWasRefusedAreNotToBlame)
{
    enum { REFUSED, OF_NCCL, ALIVE, ALIKE };
    for (int how : {REFUSED, OF_NCCL, ALIVE, ALIKE}) {
        Job job(5, WORLD, "dp", 3);
        job.at(WORLD, 2).waits(all_reduce(128));
        for (int rank : {0, 1, 3, 4}) {
            job.at(WORLD, rank)
                .failed(all_reduce(how == ALIKE ? 128 : 4096))
                .records.back()
                .result = how == OF_NCCL ? 4 /* ncclInvalidArgument */ : 5 /* ncclInvalidUsage */;
            if (how != ALIVE) {
                job.process(rank).is(NG_LIFE_EXITED, LONG_AGO, 5);
            }
        }
        Judgement judgement = judge(job);
        EXPECT_EQ(judgement.kind, how == REFUSED ? NG_KIND_MISMATCH
                                  : how == ALIVE ? NG_KIND_MISSING_RANK
                                                 : NG_KIND_LEFT_EARLY)
            << judgement.line;
        EXPECT_EQ(judgement.culprits,
                  how == REFUSED ? std::vector<int>{2} : (std::vector<int>{0, 1, 3, 4}));
    }
}

/* The refused call is known, so its rank is named like one whose call NCCL has. */
TEST(Verdict, TheRankWhoseRefusedCallDiffersFromTheOthersIsNamed)
{
    for (int nranks : {2, 5}) {
        int odd = nranks - 1;
        Job job(nranks, WORLD, "dp", 3);
        for (int rank = 0; rank < odd; rank++)
            job.at(WORLD, rank).waits(all_reduce(128));
        job.at(WORLD, odd).failed(all_reduce(4096)).records.back().result = 5;
        job.process(odd).is(NG_LIFE_EXITED, LONG_AGO, 5);
        Judgement judgement = judge(job);
        expect_verdict(judgement, NG_KIND_MISMATCH,
                       nranks == 2 ? std::vector<int>{0, 1} : std::vector<int>{odd},
                       nranks == 2 ? NG_CONFIDENCE_UNKNOWN : NG_CONFIDENCE_CERTAIN);
        ASSERT_FALSE(judgement.whys.empty());
        EXPECT_PRED2(mentions, judgement.whys.back(), "called AllReduce(count 4096");
    }
}

/* Rank 2 has not come yet, and what is known of rank 3 is more than that. */
TEST(Verdict, OfRanksThatDidNotComeToTheMakingOfAGroupTheOneThatEndedIsNamed)
{
    for (auto [life, kind] : {std::pair{NG_LIFE_DEAD, NG_KIND_DEAD_RANK},
                              {NG_LIFE_EXITED, NG_KIND_LEFT_EARLY},
                              {NG_LIFE_STOPPED, NG_KIND_STOPPED_RANK}}) {
        Job job(5, WORLD, "dp");
        job.making(WORLD, {0, 1, 4});
        for (int rank : {2, 3})
            job.forget(WORLD, rank);
        job.process(3).is(life, life == NG_LIFE_STOPPED ? 0 : 5 * NG_S);
        Judgement judgement = expect_verdict(job, kind, {3}, NG_CONFIDENCE_CERTAIN, {0, 1, 4});
        EXPECT_TRUE(judgement.missing.empty()) << judgement.missing[0];

        /* Whether rank 4 was started is not known, nor whether that is why rank 3 ended. */
        job.forget(WORLD, 4);
        job.calls.pop_back();
        job.processes.pop_back();
        judgement = expect_verdict(job, kind, {3}, NG_CONFIDENCE_LIKELY, {0, 1});
        EXPECT_PRED2(mentions, judgement.missing.at(0), "group rank 4");
    }
}

/* Of two that died before their first communicator the launcher ended one because of the other. */
TEST(Verdict, WhatALauncherEndedBeforeItsFirstCommunicatorIsNoCulprit)
{
    Job job(4, WORLD, "dp");
    job.making(WORLD, {0, 1});
    for (int rank : {2, 3}) {
        job.forget(WORLD, rank);
        job.process(rank).is(NG_LIFE_DEAD, 5 * NG_S - rank);
    }
    job.process(2).exit_status = NG_EXIT_STATUS_SIGNAL + SIGKILL;
    job.process(3).exit_status = NG_EXIT_STATUS_SIGNAL + SIGTERM;
    expect_verdict(job, NG_KIND_DEAD_RANK, {2}, NG_CONFIDENCE_CERTAIN, {0, 1});
}

TEST(Verdict, ALostRankDoesNotComeToTheMakingOfAGroup)
{
    Job job(4, WORLD, "dp");
    job.making(WORLD, {0, 1, 3});
    job.forget(WORLD, 2);
    put_on_hosts(job, {2}, 9 * NG_S);
    job.process(2).host = "n9";
    expect_verdict(job, NG_KIND_DEAD_RANK, {2}, NG_CONFIDENCE_LIKELY)
        .because("host n9 with rank 2 has sent no message for 9.0 s");
}

TEST(Verdict, ALostRankIsNotSaidToWait)
{
    Job job = waiting_for(4, {1});
    job.process(1).is(NG_LIFE_DEAD, 30 * NG_S);
    put_on_hosts(job, {3}, 9 * NG_S);
    Judgement judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{1}) << "the silence came 20 s after the death";
    EXPECT_EQ(judgement.waiting, (std::vector<int>{0, 2}));
}

/* Evidence looked at after the policy ended everyone: those who were ended are victims, and the
 * reason is the same. */
TEST(Verdict, WhatTheGuardEndedIsJudgedAsItWasBefore)
{
    Job job = waiting_for(4, {2});
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).life = NG_LIFE_ENDED_BY_GUARD;
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});

    job.process(1).life = NG_LIFE_DEAD;
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, ANYBODY);
    EXPECT_EQ(judgement.culprits, std::vector<int>{1}) << "its death explains the rest";
}

TEST(Verdict, TheFirstOfSeveralDeathsIsToBlame)
{
    Job job = waiting_for(8, {1, 4, 6});
    for (int rank : {1, 4, 6})
        job.process(rank).life = NG_LIFE_DEAD;
    job.process(4).life_age_ns = 60 * NG_S;
    job.process(6).life_age_ns = 59 * NG_S;
    job.process(1).life_age_ns = 20 * NG_S;
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, ANYBODY);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{4, 6})) << "rank 1 followed 40 s later";
}

/* Who waits in vain is ended by its launcher, an operator, or itself. */
TEST(Verdict, ADeathAfterAnotherHadLeftIsNoCause)
{
    for (bool same_host : {true, false}) {
        Job job(4, WORLD, "world", 6);
        job.group(2, "row", {0, 1});
        job.group(3, "column", {1, 3});
        /* Who left without waiting for the device had made the call, too, or had not. */
        for (int rank = same_host ? 1 : 0; rank < 4; rank++)
            job.at(WORLD, rank).waits(all_reduce(), rank ? LONG_AGO : 300 * NG_MS);
        job.at(2, 1).waits();
        job.at(3, 1).waits();
        job.process(0).is(NG_LIFE_EXITED, 25 * NG_S);
        job.process(0).host = "first";
        for (int rank = 1; rank < 4; rank++)
            job.process(rank).host = same_host ? "first" : "second";
        job.process(1).life = NG_LIFE_DEAD;
        /* It was alive after that, by more than the clocks of two hosts differ. */
        job.process(1).life_age_ns = 23 * NG_S;
        job.process(1).alive_age_ns = 25 * NG_S - (same_host ? NG_MS : 1001 * NG_MS);
        expect_verdict(job, NG_KIND_LEFT_EARLY, {0});

        /* It may have died before: nobody knows. */
        for (int64_t alive_ns :
             {(int64_t)0, 25 * NG_S - (same_host ? 0 : 999 * NG_MS), 26 * NG_S}) {
            job.process(1).alive_age_ns = alive_ns;
            expect_verdict(job, NG_KIND_DEAD_RANK, {1});
        }
        /* A host that is lost was heard of after it, or not. */
        job.process(1).life = NG_LIFE_LOST;
        job.process(1).alive_age_ns = 0;
        expect_kind(judge(job), NG_KIND_LEFT_EARLY);
        job.process(1).life_age_ns = 26 * NG_S;
        expect_kind(judge(job), NG_KIND_DEAD_RANK);
    }
}

/* The first that left is the reason, although another left after the death. */
TEST(Verdict, OfSeveralThatLeftTheFirstIsTheReasonOfADeath)
{
    Job job = waiting_for(4, {0});
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).host = "one";
    job.process(0).life = job.process(1).life = NG_LIFE_EXITED;
    job.process(0).life_age_ns = 25 * NG_S;
    job.process(1).life_age_ns = 10 * NG_S;
    job.process(2).is(NG_LIFE_DEAD, 19 * NG_S);
    job.process(2).alive_age_ns = 20 * NG_S;
    expect_verdict(job, NG_KIND_LEFT_EARLY, {0});
}

/* The culprit should have made that call next. Ages within a second count as equal. */
TEST(Verdict, OfWaitsOfAboutOneAgeTheOneWhoseCallWasMadeFirstIsTold)
{
    for (uint64_t first : {1, 2}) {
        Job job(3);
        job.group(1, "a", {0, 1}, 3);
        job.group(2, "b", {2, 1}, 3);
        for (uint64_t group : {1, 2}) {
            job.at(group, 0).waits(all_reduce(),
                                   group == first ? LONG_AGO + 200 * NG_MS : LONG_AGO);
            job.at(group, 0).pending_age_ns = group == first ? LONG_AGO - 200 * NG_MS : LONG_AGO;
        }
        Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
        EXPECT_EQ(judgement.group, first);
    }
}

/* Who ended after its last call is missed by nobody. */
TEST(Verdict, ADeathAfterAnotherHadFinishedIsOne)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(rank ? 6 : 7);
    job.wait(WORLD, {1, 3});
    job.process(0).is(NG_LIFE_EXITED, 25 * NG_S);
    job.process(2).life = NG_LIFE_DEAD;
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 20 * NG_S;
    expect_verdict(job, NG_KIND_DEAD_RANK, {2});
}

TEST(Verdict, ADeathGoesBeforeAMissingCall)
{
    Job job = waiting_for(8, {2, 5});
    job.process(5).is(NG_LIFE_DEAD, 20 * NG_S);
    expect_verdict(job, NG_KIND_DEAD_RANK, {5});
}

TEST(Verdict, ADeathElsewhereInNobodysWayIsNoReason)
{
    Job job(4);
    job.group(1, "a", {0, 1}, 3);
    job.group(2, "b", {2, 3}, 3);
    job.at(1, 0).waits();
    job.process(3).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_MISSING_RANK, {1});
}

TEST(Verdict, AllCameAndTheDeviceDoesNotFinish)
{
    for (int ranks : {2, 4, 8, 64}) {
        Judgement judgement = expect_verdict(judge(waiting_for(ranks, {})), NG_KIND_GPU_STALL,
                                             ANYBODY, {}, all_but(ranks, {}));
        EXPECT_TRUE(judgement.culprits.empty()) << "no rank stands out";
        EXPECT_NE(judgement.confidence, NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(judgement.seq, 7u);
    }
}

TEST(Verdict, ADeviceThatIsHeldUpByEarlierWorkIsNamed)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Job job = waiting_for(ranks, {});
        job.at(WORLD, culprit).pending_started = false;
        expect_verdict(job, NG_KIND_GPU_STALL, {culprit}, NG_CONFIDENCE_LIKELY,
                       all_but(ranks, {culprit}));
    }
}

/* A work without start event: its device is no worse than the others, but not held up either. */
TEST(Verdict, ADeviceWhoseStartIsInferredIsNotNamed)
{
    Job job = waiting_for(4, {});
    job.at(WORLD, 1).pending_inferred = true;
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
    job.at(WORLD, 2).pending_started = false;
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).pending_inferred = true;
    expect_verdict(job, NG_KIND_GPU_STALL, {2}, NG_CONFIDENCE_LIKELY, all_but(4, {2}));
}

/* Something outside of NCCL may hold up all devices. */
TEST(Verdict, WhereNoDeviceHasReachedTheWorkNobodyIsNamed)
{
    Job job = waiting_for(4, {});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pending_started = false;
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
}

/* The root of a broadcast, or who sends a small message, is done without the others. */
TEST(Verdict, ADeviceIsNamedThoughTheOthersAreDoneWithTheCall)
{
    for (const std::vector<int> &held_up : std::vector<std::vector<int>>{{2}, {1, 2, 3}}) {
        Job job(4, WORLD, "dp", 6);
        for (int rank : all_but(4, held_up))
            job.at(WORLD, rank).did(1);
        for (int rank : held_up)
            job.at(WORLD, rank).waits().pending_started = false;
        expect_verdict(job, NG_KIND_GPU_STALL, held_up, NG_CONFIDENCE_LIKELY);
    }
    for (bool done : {true, false}) {
        Job job(2, WORLD, "pp");
        job.at(WORLD, 0).p2p(NG_OP_Send, 1, done);
        job.at(WORLD, 1).p2p(NG_OP_Recv, 0, false).pending_started = false;
        if (!done)
            job.at(WORLD, 0).pending_started = false;
        expect_verdict(job, NG_KIND_GPU_STALL, done ? std::vector<int>{1} : std::vector<int>{},
                       done ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN);
    }
}

/* A hub receives from each rank. In one NCCL group its calls seem to end together, so that the
 * first one says nothing. */
TEST(Verdict, ADeviceIsNamedThoughAnotherCallOfTheNcclGroupIsDone)
{
    for (bool grouped : {true, false}) {
        Job job(3, 1, "all");
        for (int rank : {1, 2})
            job.group((uint64_t)rank + 1, "pair", {0, rank});
        job.number_by_process();
        for (int rank : {1, 2}) {
            uint64_t pair = (uint64_t)rank + 1;
            job.at(pair, 0).p2p(NG_OP_Recv, 1, false);
            job.at(pair, 1).p2p(NG_OP_Send, 0, rank == 1);
            if (grouped)
                job.at(pair, 0).grouped(1);
        }
        job.at(3, 1).pending_started = false;
        Judgement judgement = expect_verdict(
            job, NG_KIND_GPU_STALL, grouped ? std::vector<int>{2} : std::vector<int>{},
            grouped ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN);
        EXPECT_EQ(judgement.group, grouped ? 3u : 2u);
    }
}

/* Of two devices that have not reached the work, one is in other work of NCCL, the other is not. */
TEST(Verdict, ADeviceInOtherWorkOfNcclDoesNotHideOneThatIsNot)
{
    Job job = waiting_for(4, {});
    job.group(2, "pair", {1, 3});
    for (int rank : {0, 1})
        job.at(2, rank).waits(all_reduce(), LONG_AGO - 5 * NG_S);
    for (int rank : {1, 2})
        job.at(WORLD, rank).pending_started = false;
    Judgement judgement = expect_verdict(job, NG_KIND_GPU_STALL, {2});
    EXPECT_EQ(judgement.group, WORLD);
}

TEST(Verdict, ARankThatDidNotComeToInitIsNamed)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Job job(ranks, WORLD, "dp");
        for (int rank : all_but(ranks, {culprit})) {
            job.at(WORLD, rank).state = NG_GROUP_CREATING;
            job.inside(rank, NG_OP_CommInitRank, WORLD);
        }
        job.forget(WORLD, culprit);
        Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {culprit},
                                             NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
        EXPECT_EQ(judgement.op, NG_OP_CommInitRank);
        EXPECT_EQ(judgement.seq, 0u);
        EXPECT_TRUE(judgement.missing.empty()) << "its process is there: " << judgement.missing[0];

        job.process(culprit).life = NG_LIFE_DEAD;
        expect_verdict(job, NG_KIND_DEAD_RANK, {culprit});
    }
}

/* A launcher's numbers are those of pods or tasks, below which several ranks run: two of one
 * communicator share one, whether or not both live. */
TEST(Verdict, NumbersOfALauncherThatRanksOfOneGroupShareNameNobody)
{
    for (enum ng_life life :
         {NG_LIFE_RUNNING, NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_LOST, NG_LIFE_UNKNOWN}) {
        Job job = waiting_for(4, {3});
        for (int rank = 0; rank < 4; rank++) {
            job.process(rank).rank = rank == 3 ? 1 : rank;
            job.process(rank).world_size = 0;
        }
        job.process(3).life = life;
        Judgement judgement = judge(job);
        EXPECT_EQ(judgement.culprits, std::vector<int>{3}) << judgement.line;
        EXPECT_EQ(judgement.waiting, (std::vector<int>{0, 1, 2})) << judgement.line;
    }
}

/* Nor do those of the other ranks of that group, which would be other ranks' by group. */
TEST(Verdict, WhereNumbersOfALauncherCollideAllOfTheGroupAreNamedByTheGroup)
{
    Job job = waiting_for(4, {2});
    int numbers[] = {0, 0, 1, 2};
    for (int rank = 0; rank < 4; rank++) {
        job.process(rank).rank = numbers[rank];
        job.process(rank).world_size = 0;
    }
    Judgement judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2}) << judgement.line;
    EXPECT_EQ(judgement.waiting, (std::vector<int>{0, 1, 3})) << judgement.line;
}

/* A rank that was started anew has the number of the one before it, and its place in the group. */
TEST(Verdict, ARankThatWasStartedAnewKeepsItsNumber)
{
    Job job = waiting_for(3, {2});
    for (int rank = 0; rank < 3; rank++)
        job.process(rank).rank = rank + 10;
    job.processes.push_back(job.process(2)); /* of an earlier run: in no group any more */
    job.processes.back().life = NG_LIFE_DEAD;
    EXPECT_EQ(judge(job).culprits, std::vector<int>{12});
}

/* Without numbers from a launcher, ranks have the numbers of the largest group, even if that is
 * still being created. */
TEST(Verdict, ARankThatIsNotOnTheBoardIsNamedByItsPlaceInTheNewGroup)
{
    Job job(4, false);
    job.group(WORLD, "dp");
    job.making(WORLD, {0, 1, 2}, NG_OP_CommInitRankConfig);
    job.forget(WORLD, 3);
    job.processes.pop_back();
    Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {3});
    EXPECT_NE(judgement.confidence, NG_CONFIDENCE_CERTAIN);
    EXPECT_FALSE(judgement.missing.empty());
}

/* Started by hand, it may be of another run of that name, of which that rank is the first to come.
 */
TEST(Verdict, ARankThatOnlyItsNumberTellsToBeOfTheRunIsOnlyLikely)
{
    enum { NUMBER, LAUNCHER, WORD, GROUP };
    for (int tells : {NUMBER, LAUNCHER, WORD, GROUP})
        for (bool dead : {false, true}) {
            Job job(3, WORLD, "dp");
            job.making(WORLD, {0, 1});
            job.forget(WORLD, 2);
            for (int rank = 0; rank < 3; rank++)
                job.process(rank).run_word = tells == LAUNCHER ? 0 : 7 + (uint64_t)rank;
            if (tells == WORD)
                job.process(2).run_word = 8;
            if (tells == GROUP)
                job.group(2, "pp", {1, 2});
            if (dead)
                job.process(2).is(NG_LIFE_DEAD, LONG_AGO);
            Judgement judgement = expect_verdict(
                job, dead ? NG_KIND_DEAD_RANK : NG_KIND_INIT_MISSING_RANK, {2},
                tells == NUMBER ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN, {0, 1});
            EXPECT_EQ(mentions(judgement.whys.at(0),
                               "; nothing but its rank says that it is of this run"),
                      tells == NUMBER);
        }
}

/* The group is to have as many ranks as the job has processes, so the one that is left is the one
 * that has not come. */
TEST(Verdict, TheOneProcessThatIsNotInTheNewGroupOfAllIsTheRankThatHasNotCome)
{
    Job job(4, false);
    job.group(WORLD, "dp");
    job.making(WORLD, {0, 1, 3}, NG_OP_CommInitRankConfig);
    job.forget(WORLD, 2);
    Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {2}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.whys.at(0), "is alive but has not called CommInitRankConfig");
    EXPECT_TRUE(judgement.missing.empty()) << judgement.missing[0];

    /* Of two that are left nobody can tell which is which, but they are there. */
    job.forget(WORLD, 3);
    judgement = judge(job);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{2, 3}));
    EXPECT_EQ(judgement.whys.at(0), "has not come to CommInitRankConfig");
    EXPECT_TRUE(judgement.missing.empty()) << judgement.missing[0];

    /* Neither is a process of another size of job. */
    job.processes.pop_back();
    EXPECT_FALSE(judge(job).missing.empty());
}

TEST(Verdict, ARankOfASmallerNewGroupThatIsNotOnTheBoardHasNoGlobalRank)
{
    constexpr uint64_t SMALL = 0x5;
    Job job(4, false);
    job.group(WORLD, "dp");
    job.group(SMALL, "tp", {3, 2, 1});
    for (int group_rank : {0, 1}) {
        job.at(SMALL, group_rank).state = NG_GROUP_CREATING;
        job.inside(3 - group_rank, NG_OP_CommInitRankConfig, SMALL);
    }
    job.forget(SMALL, 2);
    Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, ANYBODY, {}, {2, 3});
    EXPECT_EQ(judgement.culprits, std::vector<int>{-1}) << "nobody can tell which process it is";
    EXPECT_PRED2(mentions, judgement.line, "group rank 2 ");
}

TEST(Verdict, ARankThatDidNotComeToASplitIsNamed)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3).derived = 1;
    for (int rank : {0, 1, 3}) {
        job.at(WORLD, rank).derived = 2;
        job.inside(rank, NG_OP_CommSplit, WORLD);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {2});
    EXPECT_EQ(judgement.op, NG_OP_CommSplit);
}

/* All calls on one communicator come in one order: where most are in a split, a collective is the
 * wrong call, and the other way round. */
TEST(Verdict, OfASplitAndACollectiveOfOneCommunicatorTheRarerCallIsWrong)
{
    for (enum ng_op op : {NG_OP_CommSplit, NG_OP_CommGrow})
        for (auto [ranks, odd] : sizes_and_culprits())
            for (bool odd_splits : {false, true}) {
                Job job(ranks, WORLD, "dp");
                for (int rank = 0; rank < ranks; rank++) {
                    job.at(WORLD, rank).did(5);
                    if ((rank == odd) != odd_splits) {
                        job.at(WORLD, rank).waits();
                        continue;
                    }
                    job.at(WORLD, rank).derived = 1;
                    job.inside(rank, op, WORLD);
                }
                Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, ANYBODY);
                std::string other = ng_op_name(op);
                if (ranks == 2) {
                    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_UNKNOWN);
                    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1}));
                    judgement.because("it is not known which are wrong");
                    continue;
                }
                EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_CERTAIN);
                EXPECT_EQ(judgement.culprits, std::vector<int>{odd});
                EXPECT_EQ(judgement.waiting, all_but(ranks, {odd}));
                EXPECT_EQ(judgement.group, WORLD);
                EXPECT_EQ(judgement.op, odd_splits ? NG_OP_AllReduce : op);
                EXPECT_EQ(judgement.seq, odd_splits ? 6u : 0u);
                EXPECT_EQ(judgement.stalled_ns, LONG_AGO);
                EXPECT_TRUE(judgement.cycle.empty());
                EXPECT_EQ(judgement.whys.at(0),
                          odd_splits ? "called " + other + " where the others called AllReduce #6"
                                     : "called AllReduce #6 where the others called " + other);
            }
}

/* Ranks that are held up elsewhere may come to either call. */
TEST(Verdict, OfASplitAndACollectiveTheRarerCallIsOnlyLikelyWrongWhileOthersMayCome)
{
    Job job(6, WORLD, "dp", 5);
    job.group(0xff, "other", {0, 4, 5});
    job.at(WORLD, 0).waits();
    for (int rank : {1, 2, 3}) {
        job.at(WORLD, rank).derived = 1;
        job.inside(rank, NG_OP_CommSplit, WORLD);
    }
    job.wait(0xff, {1, 2});
    expect_verdict(job, NG_KIND_MISMATCH, {0}, NG_CONFIDENCE_LIKELY, all_but(6, {0}));
}

/* The ranks of the new communicator publish a hash of the ranks that it leaves out. */
TEST(Verdict, ARankThatAShrinkLeavesOutIsNotMissedThere)
{
    constexpr uint64_t CHILD = 0xe;
    for (int left_out : {0, 2}) {
        int missing = 3 - left_out;
        Job job(4, WORLD, "world", 3);
        job.group(CHILD, "rest", all_but(4, {left_out}));
        job.derive(CHILD, WORLD);
        for (int rank = 0, child_rank = 0; rank < 4; rank++) {
            if (rank == left_out)
                continue;
            Member &child = job.at(CHILD, child_rank);
            child.state = NG_GROUP_CREATING;
            child.ordinal = 1;
            child.excluded = ng_group_id_excluded(&left_out, 1);
            if (rank == missing) {
                job.forget(CHILD, child_rank++);
                continue;
            }
            child_rank++;
            job.at(WORLD, rank).derived = 1;
            job.inside(rank, NG_OP_CommShrink, WORLD);
        }
        expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {missing});
    }
}

TEST(Verdict, ARankThatDidNotComeToFinalizeIsMissing)
{
    Job job(4, WORLD, "dp", 3);
    for (int rank : {0, 1, 3}) {
        job.at(WORLD, rank).state = NG_GROUP_FINALIZED;
        job.inside(rank, NG_OP_CommFinalize, WORLD);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    EXPECT_EQ(judgement.op, NG_OP_CommFinalize);
}

TEST(Verdict, TheEndOfAChainOfReceivesIsToBlame)
{
    Job job(4, WORLD, "pp");
    for (int rank : {0, 1, 2})
        job.at(WORLD, rank).p2p(NG_OP_Recv, rank + 1, false);
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {3}, {}, {0, 1, 2});
    EXPECT_EQ(judgement.op, NG_OP_Recv);

    job.process(3).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_DEAD_RANK, {3});
}

TEST(Verdict, ASendThatNobodyReceivesIsTheReceiversFault)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Send, 1, true).p2p(NG_OP_Send, 1, true).p2p(NG_OP_Send, 1, false);
    job.at(WORLD, 1).p2p(NG_OP_Recv, 0, true).p2p(NG_OP_Recv, 0, true);
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
    EXPECT_EQ(judgement.op, NG_OP_Send);
}

TEST(Verdict, ARingInWhichEverybodyReceivesFirstIsADeadlock)
{
    Job job(4, WORLD, "pp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).p2p(NG_OP_Recv, (rank + 3) % 4, false);
    expect_kind(judge(job), NG_KIND_ORDER_DEADLOCK);
}

TEST(Verdict, SendsAndReceivesThatMatchAreAStallOfTheDevice)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Send, 1, false);
    job.at(WORLD, 1).p2p(NG_OP_Recv, 0, false);
    expect_verdict(job, NG_KIND_GPU_STALL, {});
}

TEST(Verdict, ASendBehindOneThatIsStuckBlamesNobodyOnItsOwn)
{
    Job job(3, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Send, 1, false).p2p(NG_OP_Send, 2, false);
    job.at(WORLD, 1).p2p(NG_OP_Recv, 0, false);
    expect_verdict(job, NG_KIND_GPU_STALL, {});
}

TEST(Verdict, ASendOfARankThatDiedMayHaveDiedWithIt)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    job.at(WORLD, 1).p2p(NG_OP_Send, 0, true);
    expect_kind(judge(job), NG_KIND_GPU_STALL);
    job.process(1).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_DEAD_RANK, {1});
}

/* NCCL connects ranks inside the call, and NCCLGUARD_CHECK=strict holds it: the device has nothing
 * of it yet. */
TEST(Verdict, ACollectiveThatARankIsStillInsideIsNoStalledDevice)
{
    for (int launched : {0, 1, 3}) {
        Job job(3, WORLD, "world");
        for (int rank = 0; rank < 3; rank++) {
            Member &member = job.at(WORLD, rank).did(5);
            if (rank < launched) {
                member.waits();
            } else {
                member.opened();
                job.inside(rank, NG_OP_AllReduce, WORLD, 6, LONG_AGO);
            }
        }
        expect_verdict(job, launched == 3 ? NG_KIND_GPU_STALL : NG_KIND_UNKNOWN, {}, {}, {0, 1, 2});
    }
}

/* Ranks that meet for the first time, both inside the call. */
TEST(Verdict, SendsAndReceivesThatAllAreStillInsideAreNoStalledDevice)
{
    for (bool on_device : {false, true}) {
        Job job(2, WORLD, "pp");
        for (int rank = 0; rank < 2; rank++) {
            enum ng_op op = rank ? NG_OP_Recv : NG_OP_Send;
            Member &member = job.at(WORLD, rank).p2p(op, 1 - rank, false);
            if (on_device && !rank)
                continue;
            member.records.back().state = NG_RECORD_ENTERED;
            member.pending_record = 0;
            member.pending_age_ns = 0;
            member.pending_started = false;
            job.inside(rank, op, WORLD, 0, LONG_AGO);
        }
        expect_verdict(job, on_device ? NG_KIND_GPU_STALL : NG_KIND_UNKNOWN, {}, {}, {0, 1});
    }
}

/* 0 waits for 1 in one group, 1 for 2 in another, 2 for 3 in a third; 3 went to sleep. */
TEST(Verdict, TheReasonIsFoundThroughOtherGroups)
{
    Job job(4);
    for (uint64_t group : {1, 2, 3}) {
        job.group(group, "pair", {(int)group - 1, (int)group}, 5);
        job.at(group, 0).waits(all_reduce(), (4 - (int64_t)group) * LONG_AGO);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {3});
    EXPECT_EQ(judgement.group, 3u);
    EXPECT_EQ(judgement.waiting, (std::vector<int>{0, 1, 2})) << "those who wait indirectly, too";

    job.process(3).life = NG_LIFE_DEAD;
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

TEST(Verdict, ARankWhoseNcclGroupIsStillOpenHasNotCome)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).opened();
    expect_verdict(job, NG_KIND_MISSING_RANK, {2}).because("ncclGroupEnd");
}

/* Thread 7 has a NCCL group open; thread 8 of the same process closes one of its own. */
TEST(Verdict, ASiblingsGroupEndClosesNoGroup)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).tid = 7;
    job.at(WORLD, 2).opened();
    job.inside(2, NG_OP_GroupEnd, 0, 0, NG_S, 8);
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    judgement.because("ncclGroupEnd");

    /* Nor is thread 7 stuck because thread 8 is. */
    job.calls[0].age_ns = LONG_AGO;
    judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2}) << judgement.line;

    /* Its own does, and the rank is inside that; and so may that of a thread which is not known. */
    job.calls[0].tid = 7;
    expect_kind(judge(job), NG_KIND_UNKNOWN);
    job.calls[0].tid = 8;
    job.at(WORLD, 2).records.back().tid = 0;
    expect_kind(judge(job), NG_KIND_UNKNOWN);
}

TEST(Verdict, ASiblingsGroupEndSendsNothing)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    Member &sender = job.at(WORLD, 1);
    sender.tid = 7;
    sender.p2p(NG_OP_Send, 0, false);
    sender.pending_record = 0;
    sender.records.back().state = NG_RECORD_ENTERED;
    sender.records.back().flags |= NG_RECORD_IN_GROUP;
    job.inside(1, NG_OP_GroupEnd, 0, 0, LONG_AGO, 8);
    expect_verdict(job, NG_KIND_MISSING_RANK, {1}, {}, {0}).because("ncclGroupEnd");

    job.calls[0].tid = 7;
    expect_kind(judge(job), NG_KIND_GPU_STALL);
}

TEST(Verdict, ASiblingsGroupEndMakesNoCommunicator)
{
    Job job(2, WORLD, "dp");
    job.forget(WORLD, 1);
    job.at(WORLD, 0).state = NG_GROUP_CREATING;
    job.at(WORLD, 0).creator_tid = 7;
    job.inside(0, NG_OP_GroupEnd, 0, 0, LONG_AGO, 8);
    expect_kind(judge(job), NG_KIND_HEALTHY);
    job.calls[0].tid = 7;
    expect_kind(judge(job), NG_KIND_INIT_MISSING_RANK);
    job.at(WORLD, 0).creator_tid = 0;
    job.calls[0].tid = 8;
    expect_kind(judge(job), NG_KIND_INIT_MISSING_RANK);
}

/* Its guard no longer sees any work of it: nothing is pending there. */
TEST(Verdict, TheRankWhoseDeviceFailedIsToBlame)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Job job = waiting_for(ranks, {culprit});
        job.at(WORLD, culprit).queued();
        job.at(WORLD, culprit).records.back().state = NG_RECORD_UNWATCHED;
        expect_verdict(job, NG_KIND_GPU_STALL, {});

        job.at(WORLD, culprit).cuda_error = 700;
        Judgement judgement = expect_verdict(job, NG_KIND_CUDA_ERROR, {culprit},
                                             NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
        EXPECT_EQ(judgement.seq, 7u);
        EXPECT_EQ(judgement.whys.at(0), "CUDA error 700 (illegal memory access) on its device");
        EXPECT_PRED2(mentions, judgement.line, "had a CUDA failure in AllReduce #7");

        /* A failure that CUDA recovers from ends the watching there, and no more is known. */
        job.at(WORLD, culprit).cuda_error = 2;
        expect_verdict(job, NG_KIND_GPU_STALL, {culprit}, NG_CONFIDENCE_CERTAIN);
    }
}

TEST(Verdict, ADeviceThatFailedIsToldBeforeAnythingIsLate)
{
    Job job(4, WORLD, "dp", 6);
    job.group(0xe, "tp", {2, 3});
    job.at(WORLD, 3).cuda_error = 719;
    expect_verdict(job, NG_KIND_CUDA_ERROR, {3});
    /* Of its communicators, the one with a call that has not finished. */
    job.at(0xe, 1).did(3).queued().cuda_error = 719;
    Judgement judgement = expect_verdict(job, NG_KIND_CUDA_ERROR, {3}, NG_CONFIDENCE_CERTAIN);
    EXPECT_EQ(judgement.group, 0xeu);
    EXPECT_EQ(judgement.seq, 4u);
    /* What NCCL reports there follows from it. */
    job.at(0xe, 1).async_error = 1;
    expect_verdict(job, NG_KIND_CUDA_ERROR, {3}, NG_CONFIDENCE_CERTAIN);
    job.process(3).life = NG_LIFE_DEAD;
    EXPECT_NE(judge(job).kind, NG_KIND_CUDA_ERROR);
}

TEST(Verdict, OfSeveralDevicesThatFailedNobodyKnowsWhichWasFirst)
{
    Job job = waiting_for(4, {1, 2});
    for (int rank : {1, 2})
        job.at(WORLD, rank).queued().cuda_error = 719;
    expect_verdict(job, NG_KIND_CUDA_ERROR, {1, 2}, NG_CONFIDENCE_LIKELY);
    /* Nor of several whose context was destroyed, which is not for good. */
    for (int rank : {1, 2})
        job.at(WORLD, rank).cuda_error = 709;
    expect_verdict(job, NG_KIND_GPU_STALL, {1, 2}, NG_CONFIDENCE_LIKELY);

    /* Where a rank died, its neighbours' devices fail for that reason. */
    job.process(3).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_DEAD_RANK, {3});
}

TEST(Verdict, ARankThatDoesNotComeBecauseItsDeviceFailedIsNamedForThat)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).cuda_error = 700;
    expect_verdict(job, NG_KIND_CUDA_ERROR, {2}, NG_CONFIDENCE_CERTAIN).because("CUDA error 700");
}

TEST(Verdict, AReceiveFromADeviceThatFailedIsItsFault)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    Member &sender = job.at(WORLD, 1).p2p(NG_OP_Send, 0, false);
    sender.pending_record = 0;
    sender.records.back().state = NG_RECORD_UNWATCHED;
    sender.cuda_error = 700;
    expect_verdict(job, NG_KIND_CUDA_ERROR, {1}, NG_CONFIDENCE_CERTAIN);
    sender.cuda_error = 709;
    expect_verdict(job, NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_CERTAIN)
        .because("made the call, but CUDA error 709");
}

/* Rank 2's device stalls in front of a receive from rank 3. Rank 0, which has never met rank 2,
 * waits for it inside the call, as NCCL does until both sides are connected: its device has nothing
 * to reach. */
TEST(Verdict, WhoWaitsForItsPeerInsideTheCallIsNoStalledDevice)
{
    Job job(4, WORLD, "pp");
    job.at(WORLD, 3).p2p(NG_OP_Send, 2, false);
    job.at(WORLD, 2).p2p(NG_OP_Recv, 3, false).pending_started = false;
    Member &caller = job.at(WORLD, 0).p2p(NG_OP_Send, 2, false);
    caller.records.back().state = NG_RECORD_ENTERED;
    caller.pending_record = 0;
    caller.pending_age_ns = 0;
    caller.pending_started = false;
    job.inside(0, NG_OP_Send, WORLD, 0, LONG_AGO);
    expect_verdict(job, NG_KIND_GPU_STALL, {2}, {}, {0, 3});
}

/* Rank 0 waits for a send of rank 1, which has sent so much to others since then that its black box
 * reaches back no further: it may have sent, or not. */
TEST(Verdict, OverwrittenRecordsAreNoEvidenceThatARankNeverCalled)
{
    Job job(4, WORLD, "ep");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    for (int i = 0; i < 8; i++)
        job.at(WORLD, 1).p2p(NG_OP_Send, 2 + i % 2, true);
    expect_verdict(job, NG_KIND_MISSING_RANK, {1}, NG_CONFIDENCE_CERTAIN);

    job.at(WORLD, 1).overwritten(1);
    Judgement judgement = expect_verdict(job, NG_KIND_UNKNOWN, {}, NG_CONFIDENCE_UNKNOWN);
    ASSERT_EQ(judgement.missing.size(), 1u);
    EXPECT_EQ(judgement.missing[0],
              "no records that reach back to the sends and receives of group rank 1");

    /* A later send to the same rank is evidence again, for and against. */
    job.at(WORLD, 1).p2p(NG_OP_Send, 0, true);
    expect_kind(judge(job), NG_KIND_GPU_STALL);
    job.at(WORLD, 0).records.clear();
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    expect_verdict(job, NG_KIND_MISSING_RANK, {1});

    /* Whoever died did not come, whatever was recorded. */
    job.at(WORLD, 1).overwritten(7).records.clear();
    job.process(1).life = NG_LIFE_DEAD;
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

/* A group of sends and receives that is larger than the black box: what is left of it is matched,
 * and of the rest nobody knows. */
TEST(Verdict, AWaiterWhoseOwnRecordsAreOverwrittenIsNotTakenForAStalledDevice)
{
    Job job(4, WORLD, "ep");
    for (int peer : {1, 2, 3})
        job.at(WORLD, 0).p2p(NG_OP_Recv, peer, false);
    job.at(WORLD, 0).pending_record = job.at(WORLD, 0).records.back().id;
    for (int rank : {2, 3})
        job.at(WORLD, rank).p2p(NG_OP_Send, 0, true);
    Judgement judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{1}) << judgement.line;

    job.at(WORLD, 0).overwritten(1);
    judgement = expect_verdict(job, NG_KIND_UNKNOWN, {});
    EXPECT_EQ(judgement.missing.size(), 1u);
    /* What can be seen is told, but not as if it were all. */
    job.at(WORLD, 3).records.clear();
    job.at(WORLD, 3).p2p_entered = 0;
    expect_verdict(job, NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_LIKELY);
}

/* The number of ranks was not known yet when it was made, so it could not be counted. */
TEST(Verdict, ASendWithoutACountIsNotTakenForACollective)
{
    Job job(2, WORLD, "dp");
    for (int rank : {0, 1})
        job.at(WORLD, rank).did(3);
    for (int i = 0; i < 3; i++)
        job.at(WORLD, 0).p2p(NG_OP_Send, 1, true).records.back().peer_ordinal = 0;
    job.at(WORLD, 0).waits();
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    job.at(WORLD, 1).waits();
    expect_kind(judge(job), NG_KIND_GPU_STALL);
}

TEST(Verdict, ARankThatDestroyedItsCommunicatorHasNotCome)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).state = NG_GROUP_ABORTED;
    Judgement judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2}) << judgement.line;
    judgement.because("destroyed or aborted");
}

TEST(Verdict, ARankWithoutEvidenceIsNotBlamed)
{
    for (auto [ranks, unseen] : sizes_and_culprits()) {
        Job job = waiting_for(ranks, {unseen});
        job.forget(WORLD, unseen);
        Judgement judgement = expect_verdict(job, NG_KIND_UNKNOWN, {}, NG_CONFIDENCE_UNKNOWN,
                                             all_but(ranks, {unseen}));
        ASSERT_EQ(judgement.missing.size(), 1u);
        EXPECT_PRED2(mentions, judgement.missing[0], std::to_string(unseen));
    }
}

TEST(Verdict, MissingEvidenceBesideACulpritMakesItLikely)
{
    Job job = waiting_for(8, {2, 4, 5, 6});
    for (int rank : {4, 5, 6})
        job.forget(WORLD, rank);
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_LIKELY);
    ASSERT_EQ(judgement.missing.size(), 1u);
    EXPECT_PRED2(mentions, judgement.missing[0], "4 to 6");
}

TEST(Verdict, WhatCouldNotBeReadIsMissingEvidence)
{
    Job job = waiting_for(4, {2});
    job.notes = {"box-1002-1: cut off after 8192 bytes"};
    Judgement judgement = judge(job);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2});
    EXPECT_EQ(judgement.missing, job.notes);
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_LIKELY);
}

/* One process, of which three of its four devices wait. */
static Job three_devices_of_four()
{
    Job job(1, false);
    job.group(WORLD, "dp", {0, 0, 0, 0}, 6);
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).device = rank;
    job.wait(WORLD, {0, 2, 3});
    return job;
}

TEST(Verdict, OneProcessWithSeveralDevicesIsJudgedByDevice)
{
    expect_verdict(three_devices_of_four(), NG_KIND_MISSING_RANK, {1}, {}, {0, 2, 3});
}

/* The process is inside a call of its rank 0, which is none of its rank 1. */
TEST(Verdict, ACallOfGroupRank0IsNoneOfTheOthersOfItsProcess)
{
    Job job = three_devices_of_four();
    job.calls.push_back({0, NG_OP_CommDestroy, WORLD, 0, 0, LONG_AGO, 0});
    expect_verdict(job, NG_KIND_MISSING_RANK, {1}).because("never called AllReduce #7");
}

/* A mark in a graph shows how far its replay has come; between two marks the position is unknown.
 */
TEST(Verdict, ThePositionInAGraphIsToldOnlyWhereItIsKnown)
{
    for (bool vague : {false, true}) {
        JobView view(waiting_for(2, {}));
        struct ng_verdict verdict;
        struct ng_verdict_query query = {.stalled_ns = STALLED};
        for (uint32_t i = 0; i < view.member_count; i++) {
            struct ng_view_member *member = &view.members[i];
            struct ng_view_record *record = &member->records[member->record_count - 1];
            record->graph = 5;
            record->replay = 2;
            record->graph_position = 3;
            record->graph_calls = 4;
            member->pending_vague = vague;
        }
        EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
        EXPECT_EQ(verdict.graph, 5u);
        EXPECT_EQ(verdict.replay, 2u);
        EXPECT_EQ(verdict.graph_calls, 4u);
        EXPECT_EQ(verdict.graph_position, vague ? 0u : 3u);
        ng_verdict_fini(&verdict);
    }
}

/* NCCL's progress counters tell which kernels run. */
TEST(Verdict, TheRankWhoseKernelHasNotBegunIsNamedWhereThoseOfOthersRun)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Job job = waiting_for(ranks, {});
        for (int rank = 0; rank < ranks; rank++) {
            Member &member = job.at(WORLD, rank);
            member.counted = true;
            member.counted_seq = 6;
            member.kernel = rank == culprit ? NG_KERNEL_NOT_BEGUN : NG_KERNEL_RUNS;
        }
        expect_verdict(job, NG_KIND_GPU_STALL, {culprit}, NG_CONFIDENCE_LIKELY,
                       all_but(ranks, {culprit}))
            .because("its kernel has not begun");
        job.at(WORLD, (culprit + 1) % ranks).counted_seq = 5;
        expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
        job.at(WORLD, (culprit + 1) % ranks).counted_seq = 6;
        job.at(WORLD, (culprit + 1) % ranks).kernel = NG_KERNEL_UNKNOWN;
        expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
        job.at(WORLD, (culprit + 1) % ranks).kernel = NG_KERNEL_RUNS;
        job.at(WORLD, culprit).kernel = NG_KERNEL_RUNS;
        expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
    }
}

/* What NCCL's own counters say of the collective that all wait in is told where they say it of each
 * rank. */
TEST(Verdict, NcclsCountersAreToldWhereAllThatWaitHaveThem)
{
    static const struct {
        int counted; /* ranks */
        uint64_t seq;
        bool told;
    } rows[] = {{2, 6, true}, {1, 6, false}, {0, 6, false}, {2, 5, false}};
    for (const auto &row : rows) {
        SCOPED_TRACE(std::to_string(row.counted) + " " + std::to_string(row.seq));
        char line[600];
        Job job = waiting_for(2, {});
        for (int rank = 0; rank < row.counted; rank++) {
            job.at(WORLD, rank).counted = true;
            job.at(WORLD, rank).counted_seq = row.seq;
        }
        JudgedView view(job);
        EXPECT_EQ(view.verdict.kind, NG_KIND_GPU_STALL);
        EXPECT_EQ(view.verdict.counted, row.told);
        ng_report_line(&view.verdict, line, sizeof(line));
        EXPECT_EQ(strstr(line, "does not finish on the device (by NCCL's counters, all before it "
                               "is finished); waiting: ") != nullptr,
                  row.told)
            << line;
    }
}
