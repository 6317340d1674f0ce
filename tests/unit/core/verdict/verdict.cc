/*
 * The verdict engine: every kind, on 2 to 64 ranks, and properties over random jobs.
 */
#include "tests/unit/core/helpers/job.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

extern "C" {
#include "core/nccl/group_id.h"
}

namespace
{

constexpr uint64_t WORLD = 0xd;

std::vector<int> all_but(int ranks, const std::vector<int> &left_out)
{
    std::vector<int> rest;
    for (int rank = 0; rank < ranks; rank++)
        if (std::find(left_out.begin(), left_out.end(), rank) == left_out.end())
            rest.push_back(rank);
    return rest;
}

/* Six rounds done by all; in the seventh everybody but `absent` waits. */
Job waiting_for(int ranks, const std::vector<int> &absent)
{
    Job job(ranks, WORLD, "dp", 6);
    job.wait(WORLD, all_but(ranks, absent));
    return job;
}

/* Sizes, and a first, a middle and a last rank of each. */
std::vector<std::pair<int, int>> sizes_and_culprits()
{
    std::vector<std::pair<int, int>> pairs;
    for (int ranks : {2, 4, 8, 64})
        for (int culprit : std::set<int>{0, ranks / 2, ranks - 1})
            pairs.push_back({ranks, culprit});
    return pairs;
}

} // namespace

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
            EXPECT_PRED2(mentions, judgement.whys.at(0), "without AllReduce #10");
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

/* But earlier rounds do: there the one that waits called something else. */
TEST(Verdict, OfTwoRanksTheOneThatDepartsFromItsRoundsMadeOneTooMany)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200},
                              c = all_reduce(300);
    Job job(2);
    job.group(WORLD, "dp");
    for (int rank : {0, 1})
        for (int step = 0; step < 5; step++)
            job.at(WORLD, rank).did(1, a).did(1, b).did(1, c);
    job.at(WORLD, 0).waits(b);
    job.process(1).life = NG_LIFE_EXITED;
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_MISMATCH);
    EXPECT_EQ(judgement.culprits, std::vector<int>{0}) << judgement.line;
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_LIKELY);
    EXPECT_TRUE(mentions(judgement.whys.at(0), "called AllGather #16, a call too many"))
        << judgement.whys[0];
}

/* And an exit status that is none of success tells. */
TEST(Verdict, OfTwoRanksTheOneThatEndedWithAnErrorLeftEarly)
{
    Job job(2);
    job.group(WORLD, "dp");
    job.at(WORLD, 0).did(9).waits();
    job.at(WORLD, 1).did(9);
    job.process(1).life = NG_LIFE_EXITED;
    job.process(1).exit_status = 7;
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_LEFT_EARLY);
    EXPECT_EQ(judgement.culprits, std::vector<int>{1});
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_CERTAIN) << judgement.line;
}

/* One of the others is held up by it in another communicator, and has not come to its end. */
TEST(Verdict, WhoMadeOneCallTooManyMayHoldUpOneThatHasNotEnded)
{
    Job job(6, WORLD, "dp");
    job.group(1, "pair", {4, 5});
    for (int rank = 0; rank < 6; rank++)
        job.at(WORLD, rank).did(9);
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
        Judgement judgement = judge(job);
        expect_kind(judgement, NG_KIND_LEFT_EARLY);
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

TEST(Verdict, NamesOfKindsAreThoseOfTheContract)
{
    static const char *const names[] = {
        "healthy",   "missing_rank",   "dead_rank", "stopped_rank",      "left_early",
        "mismatch",  "order_deadlock", "gpu_stall", "init_missing_rank", "init_mismatch",
        "straggler", "async_error",    "nan",       "abort_stuck",       "watchdog_stuck",
        "unknown"};
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
        EXPECT_PRED2(mentions, judgement.whys.at(0), "never called AllReduce #7");
        EXPECT_PRED2(mentions, judgement.whys.at(0), "AllReduce #6");
    }
}

TEST(Verdict, ARankThatDidNotAnswerIsNeverSurelyMissing)
{
    Job job = waiting_for(4, {2});
    job.process(2).quiet_ns = 2600 * NG_MS;
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_LIKELY);
    EXPECT_PRED2(mentions, judgement.whys.at(0), "2.6 s ago: it did not answer");
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
    job.group(1, "dp", {0, 1});
    job.group(2, "parent", {2, 3});
    for (int rank : {0, 1}) {
        job.at(1, rank).did(3);
        job.at(2, rank).did(3);
    }
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
                job.at(WORLD, culprit).waits();
            job.process(culprit).is(NG_LIFE_DEAD, 20 * NG_S);
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
            Judgement judgement = judge(job);
            expect_kind(judgement, NG_KIND_STOPPED_RANK);
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
            Judgement judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, {culprit},
                                                 ranks == 2 && status == 0 ? NG_CONFIDENCE_LIKELY
                                                                           : NG_CONFIDENCE_CERTAIN,
                                                 all_but(ranks, {culprit}));
            EXPECT_PRED2(mentions, judgement.whys.at(0), "exit status " + std::to_string(status));
        }
    }
}

TEST(Verdict, WhoAbortedItsCommunicatorWaitsForNobody)
{
    for (enum ng_group_state end : {NG_GROUP_ABORTED, NG_GROUP_DESTROYED}) {
        Job job = waiting_for(2, {1});
        job.process(1).life = NG_LIFE_EXITED;
        job.at(WORLD, 1).state = NG_GROUP_ABORTED;
        expect_kind(judge(job), NG_KIND_LEFT_EARLY);
        /* Its watchdog has not looked since: the work still seems to be in flight. */
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
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_LEFT_EARLY);
    EXPECT_PRED2(mentions, judgement.whys.at(0), "inside AllReduce #7; its last was AllReduce #7");
    EXPECT_PRED2(mentions, judgement.whys.at(0),
                 "it had work pending in 1 of its communicators, 2 open");
}

/* Its parent may know how it died; then that is said. */
TEST(Verdict, ADeathIsToldAsFarAsItIsKnown)
{
    static const struct {
        int exit_status;
        const char *why;
    } rows[] = {{0, "ended without a word (killed, crashed or _exit) before AllReduce #7"},
                {NG_EXIT_STATUS_SIGNAL + 9, "was killed (signal 9) before AllReduce #7"},
                {NG_EXIT_STATUS_SIGNAL + 15, "was killed (signal 15) before AllReduce #7"},
                {NG_EXIT_STATUS_SILENT + 0,
                 "ended without a word (_exit with status 0) before AllReduce #7"},
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

namespace
{

/* Hosts of two ranks each, "n0", "n1", …; those of `lost` are lost. */
void put_on_hosts(Job &job, const std::vector<int> &lost, int64_t silent_ns)
{
    for (size_t rank = 0; rank < job.processes.size(); rank++)
        job.process((int)rank).host = "n" + std::to_string(rank / 2);
    for (int rank : lost) {
        job.process(rank).is(NG_LIFE_LOST, silent_ns);
    }
}

} // namespace

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
            EXPECT_EQ(why.find("host n2 with ranks 4,5 has not been heard of for 5.4 s: it may be "
                               "down or cut off, or its processes frozen or gone; it "),
                      0u)
                << why;
        EXPECT_PRED2(mentions, judgement.whys[0],
                     came ? "was inside AllReduce #7" : "had not told of AllReduce #7");
        EXPECT_PRED2(mentions, judgement.line,
                     "dead_rank: ranks 4,5 went silent without finishing "
                     "AllReduce #7 of group \"dp\" (8 ranks) (host n2 with "
                     "ranks 4,5 has not been heard of for 5.4 s");
    }
}

TEST(Verdict, OneOfAHostThatIsLostAloneIsNotTheWholeHost)
{
    Job job = waiting_for(8, {4});
    put_on_hosts(job, {4}, 7 * NG_S);
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {4}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(
        judgement.whys.at(0).find("has not been heard of for 7.0 s, though others on its host "
                                  "n2 are"),
        0u)
        << judgement.whys[0];

    /* Where there was only one, nobody can tell it from its host. */
    job.process(4).host = "alone";
    EXPECT_EQ(judge(job).whys.at(0).find("host alone with rank 4 has not been heard of for 7.0 s"),
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

TEST(Verdict, ALostRankDoesNotComeToTheMakingOfAGroup)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1, 3}) {
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
        job.inside(rank, NG_OP_CommInitRank, WORLD);
    }
    job.forget(WORLD, 2);
    put_on_hosts(job, {2}, 9 * NG_S);
    job.process(2).host = "n9";
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {2}, NG_CONFIDENCE_LIKELY);
    EXPECT_PRED2(mentions, judgement.whys.at(0),
                 "host n9 with rank 2 has not been heard of for 9.0 s");
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
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_DEAD_RANK);
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
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_DEAD_RANK);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{4, 6})) << "rank 1 followed 40 s later";
}

/* Who waits in vain is ended by its launcher, an operator, or itself. */
TEST(Verdict, ADeathAfterAnotherHadLeftIsNoCause)
{
    for (bool same_host : {true, false}) {
        Job job(4, WORLD, "world");
        job.group(2, "row", {0, 1});
        job.group(3, "column", {1, 3});
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).did(6);
        /* Who left without waiting for the device had made the call, too, or had not. */
        for (int rank = same_host ? 1 : 0; rank < 4; rank++)
            job.at(WORLD, rank).waits();
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
        job.group(1, "a", {0, 1});
        job.group(2, "b", {2, 1});
        for (uint64_t group : {1, 2}) {
            job.at(group, 0).did(3).waits(all_reduce(),
                                          group == first ? LONG_AGO + 200 * NG_MS : LONG_AGO);
            job.at(group, 1).did(3);
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
    job.group(1, "a", {0, 1});
    job.group(2, "b", {2, 3});
    job.at(1, 0).did(3).waits();
    job.at(1, 1).did(3);
    job.at(2, 0).did(3);
    job.at(2, 1).did(3);
    job.process(3).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_MISSING_RANK, {1});
}

TEST(Verdict, OneDeviatingRankOfManyIsNamedForEachField)
{
    const struct ng_signature usual = {NG_OP_Reduce, 7, 0, 0, 1024};
    static const struct {
        struct ng_signature deviating;
        const char *field;
    } rows[] = {
        {{NG_OP_AllReduce, 7, 0, -1, 1024}, "operation"},
        {{NG_OP_Reduce, 7, 0, 0, 1023}, "count"},
        {{NG_OP_Reduce, 6, 0, 0, 1024}, "data type"},
        {{NG_OP_Reduce, 7, 2, 0, 1024}, "reduction"},
        {{NG_OP_Reduce, 7, 0, 1, 1024}, "root"},
    };
    for (const auto &row : rows) {
        for (auto [ranks, culprit] : sizes_and_culprits()) {
            if (ranks == 2)
                continue;
            Job job(ranks, WORLD, "dp");
            for (int rank = 0; rank < ranks; rank++)
                job.at(WORLD, rank).did(6).waits(rank == culprit ? row.deviating : usual);
            Judgement judgement =
                expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.seq, 7u);
            EXPECT_EQ(judgement.op, NG_OP_Reduce) << "what the others called";
            EXPECT_PRED2(mentions, judgement.whys.at(0), row.field);
        }
    }
}

/* Of two ranks that were found to differ, as those of the group that have come to the call so far
 * are known. */
TEST(Verdict, OfRanksThatDifferNobodyIsSureWhileTheOthersMayTurnItRound)
{
    static const struct {
        int alike, odd; /* of six */
        enum ng_confidence confidence;
        bool others_may_tell;
        size_t culprits;
    } rows[] = {
        {1, 1, NG_CONFIDENCE_UNKNOWN, true, 2},
        {2, 1, NG_CONFIDENCE_LIKELY, true, 1},
        {3, 1, NG_CONFIDENCE_LIKELY, true, 1},
        {4, 1, NG_CONFIDENCE_CERTAIN, false, 1}, /* whatever the sixth calls */
        {3, 3, NG_CONFIDENCE_UNKNOWN, false, 6},
        {5, 1, NG_CONFIDENCE_CERTAIN, false, 1},
    };
    for (const auto &row : rows) {
        SCOPED_TRACE(std::to_string(row.alike) + " against " + std::to_string(row.odd));
        Job job(6, WORLD, "dp");
        for (int rank = 0; rank < row.alike + row.odd; rank++)
            job.at(WORLD, rank).waits(all_reduce(rank < row.odd ? 512 : 1024), NG_MS);
        struct ng_view view;
        struct ng_verdict verdict;
        struct ng_verdict_query query = {};
        query.disagreement = {WORLD, {0, 1}, {0, row.odd}};
        job.fill(&view);
        ASSERT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
        EXPECT_EQ(verdict.kind, NG_KIND_MISMATCH);
        EXPECT_EQ(verdict.confidence, row.confidence);
        EXPECT_EQ(verdict.others_may_tell, row.others_may_tell);
        ASSERT_EQ(verdict.culprit_count, row.culprits);
        EXPECT_EQ(verdict.culprits[0].rank, 0);
        ng_verdict_fini(&verdict);
        ng_view_fini(&view);
    }
}

/* Fields that an operation does not have, or that NCCL lets differ, make no mismatch. */
TEST(Verdict, WhatNeedNotAgreeIsNoMismatch)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).did(1, {NG_OP_AllReduce, 7, 0, rank, 8});  /* no root */
        job.at(WORLD, rank).did(1, {NG_OP_AllGather, 7, rank, -1, 8}); /* no reduction */
        job.at(WORLD, rank)
            .did(1, {NG_OP_AllReduce, 7, 100 + rank, -1, 8}); /* reductions of their own */
        job.at(WORLD, rank).did(1, {NG_OP_AllToAllv, 7, -1, -1, (uint64_t)rank});
    }
    job.wait(WORLD, {0, 1, 3});
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

/* A mismatch that went through (a smaller broadcast, say) and hung the group only later. */
TEST(Verdict, TheFirstMismatchIsToBlameNotTheHangThatFollows)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(6).did(1, all_reduce(rank == 1 ? 512 : 1024)).did(1).waits();
    Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, {1});
    EXPECT_EQ(judgement.seq, 7u);
}

TEST(Verdict, OfTwoRanksHistoryTellsWhoDeviates)
{
    const struct ng_signature forward = all_reduce(100), backward = all_reduce(200),
                              odd = all_reduce(150);
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, forward).did(1, backward);
            member.did(1, forward).waits(rank == culprit ? odd : backward);
        }
        Judgement judgement =
            expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(judgement.seq, 12u);
    }
}

/* One rank left a step out: it calls what usually comes next, only too early. */
/* What came last after the same call is not what comes after the same row of calls. */
TEST(Verdict, OfTwoRanksTheOneThatMadeACallOnceMoreDeviates)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200};
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, a).did(2, b);
            member.waits(rank == culprit ? b : a);
        }
        expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY);
    }
}

TEST(Verdict, OfTwoRanksTheOneThatSkippedACallDeviates)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200},
                              c = all_reduce(300);
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, a).did(1, b).did(1, c);
            member.did(1, a).waits(rank == culprit ? c : b);
        }
        expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY);
    }
}

TEST(Verdict, OfTwoRanksWithoutHistoryNobodyCanTell)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).waits(all_reduce(1));
    job.at(WORLD, 1).waits(all_reduce(2));
    Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, ANYBODY, NG_CONFIDENCE_UNKNOWN);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1})) << "both sides are shown";
    for (const std::string &why : judgement.whys)
        EXPECT_PRED2(mentions, why, "nothing tells who is wrong");
}

/* Far back rank `odd` called something else; since then all are alike, and `keeps` records are
 * left of each. */
static Job parted(int ranks, std::vector<int> odd, int since, int keeps)
{
    Job job(ranks);
    job.tells_hashes = true;
    job.group(WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++) {
        bool differs = std::find(odd.begin(), odd.end(), rank) != odd.end();
        job.at(WORLD, rank)
            .did(50)
            .did(1, all_reduce(differs ? 512 : 1024))
            .did(since)
            .waits()
            .keeps(keeps);
    }
    return job;
}

TEST(Verdict, RollingHashesTellOfAMismatchBeyondTheRecords)
{
    for (int keeps : {0, 1, 16}) {
        Judgement judgement = expect_verdict(judge(parted(4, {2}, 30, keeps)), NG_KIND_MISMATCH,
                                             {2}, NG_CONFIDENCE_LIKELY);
        int first = 82 - (keeps ? keeps - 1 : 0);
        EXPECT_EQ(judgement.seq, (uint64_t)first);
        EXPECT_EQ(judgement.op, NG_OP_AllReduce);
        EXPECT_PRED2(mentions, judgement.whys.at(0),
                     "called something else than most others in some "
                     "collective before #" +
                         std::to_string(first));
    }
}

TEST(Verdict, OfTwoRanksThatPartedNobodyCanTellWhoIsWrong)
{
    Judgement judgement = expect_verdict(judge(parted(2, {1}, 30, 16)), NG_KIND_MISMATCH, {0, 1},
                                         NG_CONFIDENCE_UNKNOWN);
    EXPECT_PRED2(mentions, judgement.whys.at(0), "nothing tells who is wrong");
}

/* Records on both sides of the one that differs, which nobody has kept. */
TEST(Verdict, RecordsMayShowWhereHashesBeganToDiffer)
{
    for (int gone : {1, 5}) {
        Job job = parted(4, {0}, 30, 1000);
        for (int rank = 0; rank < 4; rank++) {
            auto &records = job.at(WORLD, rank).records;
            records.erase(records.begin() + 50, records.begin() + 50 + gone);
        }
        Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, {0}, NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(judgement.seq, 51u + (uint64_t)gone);
        EXPECT_PRED2(mentions, judgement.whys.at(0),
                     gone == 1 ? "as #51," : "in one of #51 to #55,");
    }
}

TEST(Verdict, HashesAloneAreNoReasonToJudge)
{
    Job job = parted(4, {2}, 30, 16);
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pending_record = 0;
    expect_kind(judge(job), NG_KIND_HEALTHY);

    /* Another group is stuck, for another reason. */
    job.group(2, "tp", {0, 1});
    job.at(2, 0).did(3).waits();
    job.at(2, 1).did(3);
    expect_verdict(job, NG_KIND_MISSING_RANK, {1});
}

TEST(Verdict, WhoWentOnLongAfterPartingHangsForAnotherReason)
{
    for (int since : {50, 300}) {
        Job job = parted(4, {2}, since, 20 + since / 4);
        job.at(WORLD, 3).pending_record = 0;
        for (int rank : {0, 1, 2})
            job.at(WORLD, rank).pending_record = 0;
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).did(1);
        job.wait(WORLD, {0, 1, 2});
        Judgement judgement =
            expect_verdict(job, since == 50 ? NG_KIND_MISMATCH : NG_KIND_MISSING_RANK,
                           {since == 50 ? 2 : 3}, NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(judgement.missing.size(), since == 50 ? 0u : 1u);
    }
}

TEST(Verdict, AlikeHistoriesOrUnknownOnesAreNoMismatch)
{
    for (bool tells : {false, true}) {
        Job job = parted(4, {}, 30, 16);
        job.tells_hashes = tells;
        expect_kind(judge(job), NG_KIND_GPU_STALL);
    }
    /* One that tells no hash is not taken for another side. */
    Job job = parted(4, {}, 30, 0);
    job.at(WORLD, 1).rolling_hash = 0;
    expect_kind(judge(job), NG_KIND_GPU_STALL);
}

TEST(Verdict, GroupsTakenInOppositeOrderAreADeadlock)
{
    Job job(2, 1, "a");
    job.group(2, "b");
    for (int rank : {0, 1}) {
        job.at(1, rank).did(4);
        job.at(2, rank).did(2);
    }
    job.at(1, 0).waits();
    job.at(2, 1).waits();
    Judgement judgement =
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, NG_CONFIDENCE_CERTAIN);
    EXPECT_EQ(judgement.whys.at(0),
              "is in AllReduce #5 of group \"a\" and has not entered AllReduce #3 of group \"b\"; "
              "rank 1 is in AllReduce #3 of group \"b\" and has not entered AllReduce #5 of group "
              "\"a\"");
    EXPECT_EQ(judgement.whys.at(1),
              "is in AllReduce #3 of group \"b\" and has not entered AllReduce #5 of group \"a\"; "
              "rank 0 is in AllReduce #5 of group \"a\" and has not entered AllReduce #3 of group "
              "\"b\"");
    EXPECT_EQ(judgement.line.find("order_deadlock: ranks 0,1 wait for each other: rank 0 is in "
                                  "AllReduce #5 of group \"a\" and has not entered AllReduce #3"),
              0u)
        << judgement.line;
    EXPECT_PRED2(mentions, judgement.text,
                 "rank 0 is in AllReduce #5 of group \"a\" (id "
                 "0000000000000001), which needs rank 1");
    ASSERT_EQ(judgement.cycle.size(), 2u);
    EXPECT_EQ(judgement.cycle[0].rank, 0);
    EXPECT_EQ(judgement.cycle[0].group_id, 1u);
    EXPECT_EQ(judgement.cycle[0].seq, 5u);
    EXPECT_EQ(judgement.cycle[0].waits_for_rank, 1);
    EXPECT_EQ(judgement.cycle[1].rank, 1);
    EXPECT_EQ(judgement.cycle[1].group_id, 2u);
    EXPECT_EQ(judgement.cycle[1].seq, 3u);
    EXPECT_EQ(judgement.cycle[1].waits_for_rank, 0);
    EXPECT_FALSE(judgement.cycle[1].queued);
    EXPECT_PRED2(mentions, judgement.json,
                 "{\"rank\": 1, \"group_rank\": 1, \"group\": \"0000000000000002\", "
                 "\"group_name\": \"b\", \"op\": \"AllReduce\", \"seq\": 3, "
                 "\"waits_for_rank\": 0, \"queued\": false}");
}

/* Groups without names are told by their ids, and so are groups that share one. */
TEST(Verdict, ADeadlockTellsGroupsApartThatNamesDoNot)
{
    for (const char *name : {"", "tp"}) {
        Job job(2, 0xaa, name);
        job.group(0xbb, name);
        job.at(0xaa, 0).did(4).waits();
        job.at(0xaa, 1).did(4);
        job.at(0xbb, 0).did(2);
        job.at(0xbb, 1).did(2).waits();
        Judgement judgement = judge(job);
        expect_kind(judgement, NG_KIND_ORDER_DEADLOCK);
        for (const std::string &why : judgement.whys)
            EXPECT_TRUE(mentions(why, "00000000000000aa") && mentions(why, "00000000000000bb"))
                << why;
    }
}

/* One rank came to the one group first, or left a call of the other out: all others agree. */
TEST(Verdict, OfTwoGroupsTheRankThatIsAloneWithItsOrderIsNamed)
{
    for (auto [ranks, odd] : sizes_and_culprits())
        for (uint64_t odd_in : {1, 2}) {
            uint64_t others_in = 3 - odd_in;
            Job job(ranks, 1, "a");
            job.group(2, "b");
            for (int rank = 0; rank < ranks; rank++) {
                job.at(1, rank).did(4);
                job.at(2, rank).did(4);
                job.at(rank == odd ? odd_in : others_in, rank).waits();
            }
            Judgement judgement =
                expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.cycle.size(), 2u);
            if (ranks == 2) {
                EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1}));
                continue;
            }
            EXPECT_EQ(judgement.culprits, std::vector<int>{odd}) << judgement.line;
            EXPECT_EQ(judgement.waiting, all_but(ranks, {odd}));
            EXPECT_EQ(judgement.group, others_in);
            EXPECT_EQ(judgement.seq, 5u);
            std::string is = odd_in == 1 ? "a" : "b", has_not = odd_in == 1 ? "b" : "a";
            EXPECT_PRED2(mentions, judgement.whys.at(0),
                         "is in AllReduce #5 of group \"" + is +
                             "\" and has not entered AllReduce #5 of group \"" + has_not +
                             "\"; rank ");
            EXPECT_PRED2(mentions, judgement.line,
                         "came in another order to AllReduce #5 of group");
        }
}

/* The fewer of those that are in both groups; who is in one of them only takes no side. */
TEST(Verdict, OfTwoGroupsOnlyTheRanksOfBothTakeSides)
{
    Job job(8, 1, "all");
    job.group(2, "pair", {2, 5});
    job.wait(1, {0, 1, 3, 4, 5, 6, 7});
    job.at(2, 0).waits();
    expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {2, 5});
}

/* The same where all calls are on one stream of each rank. */
TEST(Verdict, TheRankThatIsAloneWithItsOrderOnItsStreamIsNamed)
{
    Job job(4, 1, "a");
    job.group(2, "b");
    for (int rank = 0; rank < 4; rank++)
        for (uint64_t group : {1, 2})
            job.at(group, rank).did(3).waits().pending_started = (rank == 2) == (group == 2);
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {2});
    EXPECT_EQ(judgement.group, 1u);
}

/* Three rounds of two calls, as every rank makes them; in the fourth one rank departs from that. */
namespace
{
Job rounds(int ranks)
{
    Job job(ranks, 1, "a");
    job.group(2, "b");
    job.number_by_process();
    for (int round = 0; round < 3; round++)
        for (int rank = 0; rank < ranks; rank++) {
            job.at(1, rank).did(1);
            job.at(2, rank).did(1);
        }
    return job;
}
} // namespace

/* Of two ranks no majority tells, but one of them did it the other way in all rounds before. */
TEST(Verdict, OfTwoRanksInOppositeOrderTheOneThatDepartsFromItsRoundsIsLikelyWrong)
{
    for (int odd : {0, 1}) {
        Job job = rounds(2);
        job.at(1, 1 - odd).waits();
        job.at(2, odd).waits();
        Judgement judgement =
            expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {odd}, NG_CONFIDENCE_LIKELY, {1 - odd});
        EXPECT_EQ(judgement.group, 1u);
        EXPECT_PRED2(mentions, judgement.whys.at(0), "it alone did not call as in earlier rounds");
    }
}

/* It left a call out, and made some more that need nobody before it came to one that does not
 * finish. */
TEST(Verdict, ARankMayHaveDepartedFromItsRoundsSomeCallsAgo)
{
    for (int odd : {0, 1}) {
        Job job(2, 1, "a");
        job.group(2, "b");
        job.number_by_process();
        for (int rank : {0, 1}) {
            for (int round = 0; round < 5; round++) {
                for (int i = 0; i < 4 && (round < 4 || rank == odd); i++)
                    job.at(1, rank).p2p(NG_OP_Send, 1 - rank, true);
                if (round < 4)
                    job.at(1, rank).did(3);
                if (round < 3)
                    job.at(2, rank).did(1);
            }
            job.at(rank == odd ? 1 : 2, rank).waits();
        }
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {odd}, NG_CONFIDENCE_LIKELY);
    }
}

/* That another rank, of another part, departed before is of no matter: it did not do so now. */
TEST(Verdict, WhoDepartedShortlyBeforeGoesBeforeWhoDepartedLongBefore)
{
    Job job = rounds(2);
    for (int rank : {0, 1})
        for (int round = 0; round < 2; round++) {
            if (rank == 1 && round == 0)
                job.at(1, rank).p2p(NG_OP_Send, 0, true);
            job.at(1, rank).did(1);
            job.at(2, rank).did(1);
        }
    job.at(2, 0).waits();
    job.at(1, 1).waits();
    expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0});
}

/* All ranks came from a first phase to the rounds, which was new then, and shortly before. */
TEST(Verdict, WhereAllRanksDepartedAlikeTheOneThatDidOnceMoreIsLikelyWrong)
{
    for (int odd : {0, 1}) {
        Job job(2, 1, "a");
        job.group(2, "b");
        job.number_by_process();
        for (int rank : {0, 1}) {
            job.at(1, rank).did(1);
            job.at(2, rank).did(2);
            job.at(1, rank).did(1);
            job.at(2, rank).did(1);
            job.at(1, rank).did(1);
            job.at(rank == odd ? 1 : 2, rank).waits();
        }
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {odd});
    }
}

/* Both went on as never before, as with a new phase of the program; or too little is recorded, or
 * of other threads. */
TEST(Verdict, OfRanksInOppositeOrderNobodyIsNamedAloneWhereTheRoundsDoNotTell)
{
    for (int how : {0, 1, 2}) {
        Job job = rounds(2);
        constexpr struct ng_signature other = all_reduce(77);
        if (how == 2)
            for (int rank : {0, 1})
                for (uint64_t group : {1, 2})
                    job.at(group, rank).tid = 5;
        job.at(1, 0).waits(how == 0 ? other : all_reduce());
        job.at(2, 1).waits(how == 0 ? other : all_reduce());
        if (how == 1)
            for (int rank : {0, 1})
                for (uint64_t group : {1, 2})
                    job.at(group, rank).keeps(1);
        Judgement judgement =
            expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY, NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1})) << how;
    }
}

/* On one communicator a rank is in a collective, and a peer waits for its send before that: one of
 * both is wrong. */
TEST(Verdict, OfACollectiveAndAReceiveOfOneCommunicatorTheRankThatDepartsFromItsRoundsIsLikelyWrong)
{
    for (bool behind : {false, true})
        for (bool receive_is_new : {false, true}) {
            Job job(4, WORLD, "dp");
            for (int round = 0; round < 3; round++) {
                if (!receive_is_new) {
                    job.at(WORLD, 2).p2p(NG_OP_Send, 3, true);
                    job.at(WORLD, 3).p2p(NG_OP_Recv, 2, true);
                }
                for (int rank = 0; rank < 4; rank++)
                    job.at(WORLD, rank).did(1);
            }
            job.wait(WORLD, {0, 1, 2});
            job.at(WORLD, 3).p2p(NG_OP_Recv, 2, false);
            if (behind)
                job.at(WORLD, 3).queued();
            Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, {receive_is_new ? 3 : 2},
                                                 NG_CONFIDENCE_LIKELY);
            EXPECT_EQ(judgement.waiting, all_but(4, judgement.culprits));
            EXPECT_EQ(judgement.seq, receive_is_new ? 4u : 0u);
            EXPECT_TRUE(judgement.cycle.empty());
        }
}

/* Everybody has called everything: the peer's send is behind the collective that its device is in.
 */
TEST(Verdict, AReceiveWaitsForAPeerThatIsInACollectiveBeforeItsSend)
{
    for (bool rounds : {false, true}) {
        Job job(4, WORLD, "dp");
        for (int round = 0; round < 3 && rounds; round++) {
            job.at(WORLD, 2).p2p(NG_OP_Send, 3, true);
            job.at(WORLD, 3).p2p(NG_OP_Recv, 2, true);
            for (int rank = 0; rank < 4; rank++)
                job.at(WORLD, rank).did(1);
        }
        job.at(WORLD, 3).p2p(NG_OP_Recv, 2, false);
        job.wait(WORLD, {0, 1, 2});
        job.at(WORLD, 3).queued();
        job.at(WORLD, 2).p2p(NG_OP_Send, 3, false).records.back().state = NG_RECORD_SCHEDULED;
        Judgement judgement = expect_verdict(
            job, NG_KIND_MISMATCH, rounds ? std::vector<int>{2} : (std::vector<int>{2, 3}),
            rounds ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN);
        EXPECT_PRED2(mentions, judgement.whys.at(0),
                     "and behind it on its device waits Send to rank 3");
    }
}

/* How many are in the collective says nothing of what two others send each other. */
TEST(Verdict, OfACollectiveAndAReceiveOfOneCommunicatorNothingTellsWithoutRounds)
{
    Job job(4, WORLD, "dp");
    job.wait(WORLD, {0, 1, 2});
    job.at(WORLD, 3).p2p(NG_OP_Recv, 2, false);
    expect_verdict(job, NG_KIND_MISMATCH, {2, 3}, NG_CONFIDENCE_UNKNOWN);
}

/* Half of the ranks came to one group first, half to the other. */
TEST(Verdict, EveryRankOfADeadlockIsNamed)
{
    Job job(8, 1, "a");
    job.group(2, "b");
    for (int rank = 0; rank < 8; rank++)
        job.at(rank % 2 ? 1 : 2, rank).waits();
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, all_but(8, {}), {}, {});
    EXPECT_EQ(judgement.cycle.size(), 2u) << "one rank of each side tells of it";
    EXPECT_PRED2(mentions, judgement.whys.at(6),
                 "is in AllReduce #1 of group \"b\" and has not "
                 "entered AllReduce #1 of group \"a\"; rank 1 is in");
}

/* Both calls went onto one stream of each rank, in opposite order: everybody called everything. */
TEST(Verdict, OppositeOrderOnTheStreamsIsADeadlockToo)
{
    Job job(2, 1, "a");
    job.group(2, "b");
    for (int rank : {0, 1}) {
        job.at(1, rank).did(3).waits();
        job.at(2, rank).did(3).waits();
    }
    job.at(1, 0).pending_started = true;
    job.at(2, 0).pending_started = false;
    job.at(2, 1).pending_started = true;
    job.at(1, 1).pending_started = false;
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1});
    ASSERT_EQ(judgement.cycle.size(), 2u);
    EXPECT_TRUE(judgement.cycle[0].queued && judgement.cycle[1].queued);
    EXPECT_PRED2(mentions, judgement.whys.at(0),
                 "is in AllReduce #4 of group \"a\", and behind it on "
                 "its device waits AllReduce #4 of group \"b\"");
    EXPECT_PRED2(mentions, judgement.text, "which is queued on the device of rank 1");
}

/* The device has reached the NCCL group of both, on one stream: it is in the first of them. */
TEST(Verdict, ARingOfPairsInNcclGroupsOnOneStreamIsADeadlock)
{
    for (bool p2p : {false, true})
        for (bool one_way : {false, true}) {
            constexpr int ranks = 4;
            Job job(ranks);
            for (int rank = 0; rank < ranks; rank++)
                job.group(1 + (uint64_t)rank, "pair", {rank, (rank + 1) % ranks});
            job.number_by_process();
            for (int rank = 0; rank < ranks; rank++) {
                uint64_t previous = (uint64_t)((rank + ranks - 1) % ranks);
                Member *pair[] = {&job.at(1 + (uint64_t)rank, 0), &job.at(1 + previous, 1)};
                /* Rank 0 begins at the other end where it is no ring. */
                for (int i : {rank == 0 && !one_way, !(rank == 0 && !one_way)}) {
                    if (p2p)
                        pair[i]->p2p(i ? NG_OP_Recv : NG_OP_Send, i ? 0 : 1, false);
                    else
                        pair[i]->waits();
                    pair[i]->records.back().stream = 0x1000;
                    pair[i]->records.back().flags |= NG_RECORD_IN_GROUP;
                }
            }
            Judgement judgement =
                expect_verdict(job, one_way ? NG_KIND_ORDER_DEADLOCK : NG_KIND_GPU_STALL,
                               one_way ? all_but(ranks, {}) : std::vector<int>(),
                               one_way ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN);
            if (one_way && p2p) {
                EXPECT_PRED2(mentions, judgement.whys.at(0), "is in Send to rank 1 of group");
            }
        }
}

/* The calls of a NCCL group end together: the first of it is pending where the device is in what
 * stands behind it. */
TEST(Verdict, WhatOthersHaveFinishedIsNotWhatARankIsInThoughItsGroupHasNotEnded)
{
    for (bool others_did : {true, false}) {
        Job job(4, 1, "a");
        job.group(2, "b");
        job.number_by_process();
        for (int rank = 0; rank < 4; rank++) {
            job.at(1, rank).did(3);
            job.at(2, rank).did(3);
            if (rank != 2 && others_did)
                job.at(1, rank).did(1);
            job.at(1, rank).waits().records.back().flags |= NG_RECORD_IN_GROUP;
            job.at(2, rank).waits().records.back().flags |= NG_RECORD_IN_GROUP;
        }
        /* Rank 2 made the group once more, which the others had made. */
        job.at(1, 2).queued();
        for (int rank = 0; rank < 4; rank++)
            for (uint64_t group : {1, 2})
                for (struct ng_view_record &record : job.at(group, rank).records)
                    record.stream = 0x1000;
        Judgement judgement =
            expect_verdict(job, others_did ? NG_KIND_ORDER_DEADLOCK : NG_KIND_GPU_STALL,
                           others_did ? std::vector<int>{2} : std::vector<int>(),
                           others_did ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN);
        EXPECT_EQ(judgement.waiting, all_but(4, judgement.culprits));
    }
}

/* Rank 2 left a group out: the others are in the second call of theirs, and it is in the first of
 * the next. */
TEST(Verdict, WhoseLastCallOthersHaveFinishedHasNotComeToTheNext)
{
    Job job(4, 1, "a");
    job.group(2, "b");
    job.number_by_process();
    for (int rank = 0; rank < 4; rank++) {
        job.at(1, rank).did(3);
        job.at(2, rank).did(3);
        if (rank == 2)
            job.at(1, rank).did(1);
        job.at(1, rank).waits().records.back().flags |= NG_RECORD_IN_GROUP;
        job.at(2, rank).waits().records.back().flags |= NG_RECORD_IN_GROUP;
        for (uint64_t group : {1, 2})
            for (struct ng_view_record &record : job.at(group, rank).records)
                record.stream = 0x1000;
    }
    expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {2}, NG_CONFIDENCE_LIKELY, all_but(4, {2}));
}

/* Streams tell the order, whatever the devices were seen to have reached; and of another stream
 * they tell nothing. */
TEST(Verdict, OppositeOrderOnOneStreamIsADeadlockThoughBothSeemToHaveBegun)
{
    for (bool one_stream : {true, false}) {
        Job job(4, 1, "a");
        job.group(2, "b");
        job.number_by_process();
        for (int rank = 0; rank < 4; rank++)
            for (uint64_t i : {0, 1}) {
                Member &member = job.at(rank == 2 ? 2 - i : 1 + i, rank).waits();
                member.records.back().stream = one_stream ? 0x1000 : 0x1000 + i;
            }
        expect_verdict(job, one_stream ? NG_KIND_ORDER_DEADLOCK : NG_KIND_GPU_STALL,
                       one_stream ? std::vector<int>{2} : std::vector<int>(),
                       one_stream ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_UNKNOWN);
    }
}

/* The peer of a queued send may be past the receive already. */
TEST(Verdict, ADeadlockThroughQueuedSendsAndReceivesIsOnlyLikely)
{
    Job job(2, 1, "dp");
    job.group(2, "pp");
    for (int rank : {0, 1}) {
        job.at(1, rank).did(3).waits();
        job.at(2, rank).p2p(rank ? NG_OP_Recv : NG_OP_Send, 1 - rank, false);
        job.at(1, rank).pending_started = rank == 0;
        job.at(2, rank).pending_started = rank == 1;
    }
    expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, NG_CONFIDENCE_LIKELY);
}

TEST(Verdict, ADeadlockIsAsOldAsItsLongestWait)
{
    for (uint64_t longest : {1, 2}) {
        Job job(2, 1, "a");
        job.group(2, "b");
        job.at(1, 0).waits(all_reduce(), longest == 1 ? 2 * LONG_AGO : LONG_AGO);
        job.at(2, 1).waits(all_reduce(), longest == 2 ? 2 * LONG_AGO : LONG_AGO);
        Judgement judgement = judge(job);
        expect_kind(judgement, NG_KIND_ORDER_DEADLOCK);
        EXPECT_EQ(judgement.stalled_ns, 2 * LONG_AGO) << longest;
    }
}

TEST(Verdict, ACycleOfThreeGroupsIsNamedAndItsVictimsAreNot)
{
    Job job(4);
    job.group(1, "a", {0, 1});
    job.group(2, "b", {1, 2});
    job.group(3, "c", {2, 0});
    job.group(4, "victim", {3, 0});
    job.at(1, 0).waits();                           /* 0 waits for 1 */
    job.at(2, 0).waits();                           /* 1 waits for 2 */
    job.at(3, 0).waits();                           /* 2 waits for 0 */
    job.at(4, 0).waits(all_reduce(), 2 * LONG_AGO); /* 3 waits for 0, longest of all */
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1, 2}, {}, {3});
    ASSERT_EQ(judgement.cycle.size(), 3u);
    EXPECT_PRED2(mentions, judgement.whys.at(1),
                 "is in AllReduce #1 of group \"b\" and has not "
                 "entered AllReduce #1 of group \"a\"; rank 2 is in "
                 "AllReduce #1 of group \"c\" and has not entered "
                 "AllReduce #1 of group \"b\"; rank 0 is in");
}

TEST(Verdict, OfSeveralCyclesTheShortestIsNamed)
{
    Job job(5);
    job.group(1, "a", {0, 1});
    job.group(2, "b", {1, 2});
    job.group(3, "c", {2, 0});
    job.group(4, "d", {3, 4});
    job.group(5, "e", {4, 3});
    job.at(1, 0).waits();
    job.at(2, 0).waits();
    job.at(3, 0).waits();
    job.at(4, 0).waits(all_reduce(), STALLED);
    job.at(5, 0).waits(all_reduce(), STALLED);
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {3, 4});
    EXPECT_EQ(judgement.cycle.size(), 2u);
    EXPECT_EQ(judgement.group, 4u);
}

/* 0 and 1 send to each other first; 2 waits for 0, and 3 for 2: victims of the same group. */
TEST(Verdict, VictimsOfARingAreNotNamed)
{
    Job job(4, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Send, 1, false);
    job.at(WORLD, 1).p2p(NG_OP_Send, 0, false);
    job.at(WORLD, 2).p2p(NG_OP_Recv, 0, false);
    job.at(WORLD, 3).p2p(NG_OP_Recv, 2, false);
    Judgement judgement =
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, NG_CONFIDENCE_CERTAIN, {2, 3});
    EXPECT_EQ(judgement.op, NG_OP_Send);
    EXPECT_PRED2(mentions, judgement.whys.at(0),
                 "is in Send to rank 1 of group \"pp\" and has not "
                 "entered Recv from rank 1; rank 1 is in Send to rank "
                 "0");
}

/* 0 receives from 1 before the collective, 1 sends only after it. */
TEST(Verdict, ACycleMayGoThroughAReceiveAndACollective)
{
    Job job(3);
    job.group(1, "pp", {1, 0}); /* group ranks are not global ranks */
    job.group(2, "dp", {0, 1});
    job.group(3, "victim", {2, 0});
    job.at(1, 1).p2p(NG_OP_Recv, 0, false);
    job.at(2, 1).did(3).waits();
    job.at(2, 0).did(3);
    job.at(3, 0).waits();
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, {}, {2});
    ASSERT_EQ(judgement.cycle.size(), 2u);
    EXPECT_EQ(judgement.cycle[0].rank, 0);
    EXPECT_EQ(judgement.cycle[0].op, NG_OP_Recv);
    EXPECT_EQ(judgement.cycle[0].seq, 0u);
    EXPECT_EQ(judgement.whys.at(1),
              "is in AllReduce #4 of group \"dp\" and has not entered Send to "
              "rank 0 of group \"pp\"; rank 0 is in Recv from rank 1 of group "
              "\"pp\" and has not entered AllReduce #4 of group \"dp\"");
}

/* Long names, many groups: a sentence is never cut in its middle, and the verdict has all of it. */
TEST(Verdict, ALongCycleIsToldAsFarAsThereIsRoom)
{
    constexpr int ranks = 40;
    Job job(ranks);
    for (int rank = 0; rank < ranks; rank++) {
        std::string name = "stage " + std::to_string(rank) + std::string(50, 'x');
        job.group(0x100 + (uint64_t)rank, name.c_str(), {rank, (rank + 1) % ranks});
        job.at(0x100 + (uint64_t)rank, 0).did(1000).waits();
        job.at(0x100 + (uint64_t)rank, 1).did(1000);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, all_but(ranks, {}));
    EXPECT_EQ(judgement.cycle.size(), (size_t)ranks);
    EXPECT_PRED2(mentions, judgement.whys.at(7), "is in AllReduce #1001 of group \"stage 7x");
    EXPECT_PRED2(mentions, judgement.whys.at(7), "\"; ...");
    for (int rank = 0; rank < ranks; rank++)
        EXPECT_PRED2(mentions, judgement.text, "rank " + std::to_string(rank) + " is in AllReduce");
}

/* A rank that destroyed its communicator will not come, whatever it waits in now. */
TEST(Verdict, WhoLeftAGroupForAnotherIsNoDeadlock)
{
    Job job(3);
    job.group(1, "a", {0, 1});
    job.group(2, "b", {1, 0, 2});
    job.at(1, 0).did(3).waits();
    job.at(1, 1).did(3).state = NG_GROUP_DESTROYED;
    job.at(2, 0).waits();
    job.at(2, 2).waits();
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "destroyed or aborted");
}

/* Rank 4 of the larger group is not seen, and the others wait for it, too: but those two can never
 * come. */
TEST(Verdict, ACycleIsOneEvenIfOthersAreNotSeen)
{
    Job job(5, 1, "a");
    job.group(2, "b", {0, 1});
    job.wait(1, {0, 2, 3});
    job.at(2, 1).waits();
    job.forget(1, 4);
    Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.missing.size(), 1u);
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

/* Something outside of NCCL may hold up all devices. */
TEST(Verdict, WhereNoDeviceHasReachedTheWorkNobodyIsNamed)
{
    Job job = waiting_for(4, {});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pending_started = false;
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
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

/* Without a launcher's word, ranks are named as in the largest group, be it only in the making. */
TEST(Verdict, ARankThatIsNotOnTheBoardIsNamedByItsPlaceInTheNewGroup)
{
    Job job(4, false);
    job.group(WORLD, "dp");
    for (int rank : {0, 1, 2}) {
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
        job.inside(rank, NG_OP_CommInitRankConfig, WORLD);
    }
    job.forget(WORLD, 3);
    job.processes.pop_back();
    Judgement judgement = expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {3});
    EXPECT_NE(judgement.confidence, NG_CONFIDENCE_CERTAIN);
    EXPECT_FALSE(judgement.missing.empty());
}

/* The group is to have as many ranks as the job has processes, so the one that is left is the one
 * that has not come. */
TEST(Verdict, TheOneProcessThatIsNotInTheNewGroupOfAllIsTheRankThatHasNotCome)
{
    Job job(4, false);
    job.group(WORLD, "dp");
    for (int rank : {0, 1, 3}) {
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
        job.inside(rank, NG_OP_CommInitRankConfig, WORLD);
    }
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
                Judgement judgement = judge(job);
                expect_kind(judgement, NG_KIND_MISMATCH);
                std::string other = ng_op_name(op);
                if (ranks == 2) {
                    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_UNKNOWN);
                    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1}));
                    EXPECT_PRED2(mentions, judgement.whys.at(0), "nothing tells who is wrong");
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
    Job job(6, WORLD, "dp");
    job.group(0xff, "other", {0, 4, 5});
    for (int rank = 0; rank < 6; rank++)
        job.at(WORLD, rank).did(5);
    job.at(WORLD, 0).waits();
    for (int rank : {1, 2, 3}) {
        job.at(WORLD, rank).derived = 1;
        job.inside(rank, NG_OP_CommSplit, WORLD);
    }
    for (int group_rank : {1, 2})
        job.at(0xff, group_rank).waits();
    expect_verdict(job, NG_KIND_MISMATCH, {0}, NG_CONFIDENCE_LIKELY, all_but(6, {0}));
}

/* The ranks of the new communicator publish a hash of the ranks that it leaves out. */
TEST(Verdict, ARankThatAShrinkLeavesOutIsNotMissedThere)
{
    constexpr uint64_t CHILD = 0xe;
    for (int left_out : {0, 2}) {
        int missing = 3 - left_out;
        Job job(4, WORLD, "world");
        job.group(CHILD, "rest", all_but(4, {left_out}));
        job.derive(CHILD, WORLD);
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).did(3);
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
    job.group(1, "tp", {0, 1});
    job.group(2, "dp", {1, 2});
    job.group(3, "pp", {2, 3});
    job.at(1, 0).did(5).waits(all_reduce(), 3 * LONG_AGO);
    job.at(1, 1).did(5);
    job.at(2, 0).did(5).waits(all_reduce(), 2 * LONG_AGO);
    job.at(2, 1).did(5);
    job.at(3, 0).did(5).waits(all_reduce(), LONG_AGO);
    job.at(3, 1).did(5);
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
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "ncclGroupEnd");
}

/* Thread 7 has a NCCL group open; thread 8 of the same process closes one of its own. */
TEST(Verdict, ASiblingsGroupEndClosesNoGroup)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).tid = 7;
    job.at(WORLD, 2).opened();
    job.inside(2, NG_OP_GroupEnd, 0, 0, NG_S, 8);
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "ncclGroupEnd");

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
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1}, {}, {0});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "ncclGroupEnd");

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
        Judgement judgement = expect_verdict(job, NG_KIND_GPU_STALL, {culprit},
                                             NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
        EXPECT_EQ(judgement.seq, 7u);
        EXPECT_PRED2(mentions, judgement.whys.at(0), "CUDA error 700 (illegal memory access)");
    }
}

TEST(Verdict, OfSeveralDevicesThatFailedNobodyKnowsWhichWasFirst)
{
    Job job = waiting_for(4, {1, 2});
    for (int rank : {1, 2})
        job.at(WORLD, rank).queued().cuda_error = 719;
    expect_verdict(job, NG_KIND_GPU_STALL, {1, 2}, NG_CONFIDENCE_LIKELY);

    /* Where a rank died, its neighbours' devices fail for that reason. */
    job.process(3).life = NG_LIFE_DEAD;
    expect_verdict(job, NG_KIND_DEAD_RANK, {3});
}

TEST(Verdict, ARankThatDoesNotComeBecauseItsDeviceFailedIsMissingAndItSaysWhy)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 2).cuda_error = 700;
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "CUDA error 700");
}

TEST(Verdict, AReceiveFromADeviceThatFailedIsItsFault)
{
    Job job(2, WORLD, "pp");
    job.at(WORLD, 0).p2p(NG_OP_Recv, 1, false);
    Member &sender = job.at(WORLD, 1).p2p(NG_OP_Send, 0, false);
    sender.pending_record = 0;
    sender.records.back().state = NG_RECORD_UNWATCHED;
    sender.cuda_error = 700;
    expect_verdict(job, NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_CERTAIN);

    /* What it had sent before is no reason. */
    sender.records.back().state = NG_RECORD_COMPLETED;
    EXPECT_TRUE(judge(job).culprits.empty());
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
    EXPECT_PRED2(mentions, judgement.whys.at(0), "destroyed or aborted");
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

TEST(Verdict, OneProcessWithSeveralDevicesIsJudgedByDevice)
{
    Job job(1, false);
    job.group(WORLD, "dp", {0, 0, 0, 0});
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).device = rank;
        job.at(WORLD, rank).did(6);
        if (rank != 1)
            job.at(WORLD, rank).waits();
    }
    expect_verdict(job, NG_KIND_MISSING_RANK, {1}, {}, {0, 2, 3});
}

/* The process is inside a call of its rank 0, which is none of its rank 1. */
TEST(Verdict, ACallOfGroupRank0IsNoneOfTheOthersOfItsProcess)
{
    Job job(1, false);
    job.group(WORLD, "dp", {0, 0, 0, 0});
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).device = rank;
        job.at(WORLD, rank).did(6);
        if (rank != 1)
            job.at(WORLD, rank).waits();
    }
    job.calls.push_back({0, NG_OP_CommDestroy, WORLD, 0, 0, LONG_AGO, 0});
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {1});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "never called AllReduce #7");
}

/* A mark in a graph shows how far its replay has come; between two marks the position is unknown.
 */
TEST(Verdict, ThePositionInAGraphIsToldOnlyWhereItIsKnown)
{
    for (bool vague : {false, true}) {
        struct ng_view view;
        struct ng_verdict verdict;
        struct ng_verdict_query query = {};
        query.stalled_ns = STALLED;
        waiting_for(2, {}).fill(&view);
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
        ng_view_fini(&view);
    }
}

/* ---- Call stacks of culprits and of a waiting rank ---- */

namespace
{

struct Shown {
    int rank;
    bool waits;
    uint64_t group, seq;
    bool operator==(const Shown &other) const
    {
        return rank == other.rank && waits == other.waits && group == other.group &&
               seq == other.seq;
    }
};

/* The calls that the verdict shows when every record has frames. */
std::vector<Shown> shown_calls(const Job &job)
{
    struct ng_view view;
    struct ng_verdict verdict;
    struct ng_verdict_query query = {};
    struct ng_view_frame frame = {};
    struct ng_view_call_stack stack = {};
    std::vector<Shown> shown;

    query.stalled_ns = STALLED;
    job.fill(&view);
    stack.count = 1;
    stack.frames = &frame;
    uint32_t index = ng_view_intern_call_stack(&view, &stack);
    for (uint32_t i = 0; i < view.member_count; i++)
        for (uint32_t k = 0; k < view.members[i].record_count; k++)
            view.members[i].records[k].call_stack = index;
    EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
    for (uint32_t i = 0; i < verdict.call_count; i++)
        shown.push_back({verdict.calls[i].rank, verdict.calls[i].waits, verdict.calls[i].group_id,
                         verdict.calls[i].seq});
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return shown;
}

} // namespace

TEST(Verdict, OfACulpritTheNewestCallIsShownAndOfOneThatWaitsTheOneItIsIn)
{
    Job job = waiting_for(3, {1});
    job.at(WORLD, 0).queued();
    EXPECT_EQ(shown_calls(job), (std::vector<Shown>{{1, false, WORLD, 6}, {0, true, WORLD, 7}}));
}

/* Ids of records grow with each call of a process, whichever communicator it is on. */
TEST(Verdict, OfACulpritWithSeveralCommunicatorsTheNewestCallOfAllIsShown)
{
    constexpr uint64_t OTHER = 0xe, THIRD = 0xf;
    for (uint64_t newest : {WORLD, OTHER, THIRD}) {
        Job job = waiting_for(3, {1});
        job.group(OTHER, "other", {1, 2});
        job.group(THIRD, "third", {1, 2});
        for (uint64_t group : {OTHER, THIRD})
            for (int rank : {0, 1})
                job.at(group, rank).did(2);
        for (uint64_t group : {WORLD, OTHER, THIRD}) {
            Member &culprit = job.at(group, group == WORLD ? 1 : 0);
            for (size_t i = 0; i < culprit.records.size(); i++)
                culprit.records[i].id = (group == newest ? 1000 : 10 * group) + i;
        }
        std::vector<Shown> shown = shown_calls(job);
        ASSERT_FALSE(shown.empty());
        EXPECT_EQ(shown[0], (Shown{1, false, newest, newest == WORLD ? 6u : 2u}));
    }
}

/*
 * Random jobs: ranks in overlapping groups run one program of collectives, each of which is
 * finished when all its members came. The program is the same on all ranks, so without a fault
 * nothing is ever stuck.
 */
namespace
{

class RandomJob
{
  public:
    explicit RandomJob(unsigned seed)
        : random_(seed), ranks_(2 + (int)(random_() % 15)), job_(ranks_)
    {
        std::vector<int> all(ranks_);
        std::iota(all.begin(), all.end(), 0);
        groups_.push_back(all);
        for (unsigned extra = random_() % 6; extra > 0; extra--) {
            std::vector<int> some = all;
            std::shuffle(some.begin(), some.end(), random_);
            some.resize(2 + random_() % (unsigned)(ranks_ - 1));
            groups_.push_back(some);
        }
        for (size_t g = 0; g < groups_.size(); g++)
            job_.group(id_of(g), ("group " + std::to_string(g)).c_str(), groups_[g]);
        for (unsigned steps = 5 + random_() % 60; steps > 0; steps--) {
            static const struct ng_signature kinds[] = {{NG_OP_AllReduce, 7, 0, -1, 1024},
                                                        {NG_OP_AllGather, 9, -1, -1, 77},
                                                        {NG_OP_Broadcast, 2, -1, 0, 5}};
            program_.push_back({random_() % groups_.size(), kinds[random_() % 3]});
        }
    }

    int ranks() const
    {
        return ranks_;
    }
    size_t steps() const
    {
        return program_.size();
    }
    unsigned pick(size_t count)
    {
        return (unsigned)(random_() % count);
    }

    /*
     * Run: `absent` (-1 nobody) stops before its `stop_at`-th call. Ranks that come to a call that
     * cannot finish wait in it for `age_ns`. Returns who is stuck.
     */
    std::vector<int> run(int absent, size_t stop_at, int64_t age_ns)
    {
        std::vector<size_t> calls(ranks_, 0);
        std::set<int> stuck;
        for (const auto &step : program_) {
            const std::vector<int> &members = groups_[step.group];
            std::vector<int> came;
            for (int rank : members)
                if (!stuck.count(rank) && !(rank == absent && calls[rank] >= stop_at))
                    came.push_back(rank);
            bool complete = came.size() == members.size();
            for (int rank : came) {
                Member &member = job_.at(id_of(step.group), place(step.group, rank));
                if (complete)
                    member.did(1, step.signature);
                else
                    member.waits(step.signature, age_ns);
                calls[rank]++;
                if (!complete)
                    stuck.insert(rank);
            }
        }
        return std::vector<int>(stuck.begin(), stuck.end());
    }
    Job &job()
    {
        return job_;
    }
    /* Nobody reads this rank's evidence, in any group. */
    void forget(int rank)
    {
        for (size_t g = 0; g < groups_.size(); g++)
            for (size_t i = 0; i < groups_[g].size(); i++)
                if (groups_[g][i] == rank)
                    job_.forget(id_of(g), (int)i);
    }

  private:
    struct Step {
        size_t group;
        struct ng_signature signature;
    };
    static uint64_t id_of(size_t group)
    {
        return 0x1000 + group;
    }
    int place(size_t group, int rank) const
    {
        return (int)(std::find(groups_[group].begin(), groups_[group].end(), rank) -
                     groups_[group].begin());
    }
    std::mt19937 random_;
    int ranks_;
    Job job_;
    std::vector<std::vector<int>> groups_;
    std::vector<Step> program_;
};

constexpr unsigned ROUNDS = 400;

} // namespace

TEST(VerdictOfRandomJobs, ProgressIsNeverBlamed)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        /* Somebody lags behind, everybody else waits, none of them for long. */
        int slow = (int)random.pick((size_t)random.ranks());
        random.run(slow, random.pick(random.steps()), (int64_t)random.pick(STALLED));
        for (int rank = 0; rank < random.ranks(); rank++)
            if (random.pick(3) == 0)
                random.job().inside(rank, NG_OP_AllReduce, 0x1000, 1,
                                    (int64_t)random.pick(STALLED));
        Judgement judgement = judge(random.job());
        ASSERT_EQ(judgement.kind, NG_KIND_HEALTHY) << "seed " << seed << ": " << judgement.line;
        ASSERT_TRUE(judgement.culprits.empty());
        ASSERT_TRUE(judgement.waiting.empty());
    }
}

TEST(VerdictOfRandomJobs, TheOneAbsenteeIsNamedAndNobodyElse)
{
    static const struct {
        enum ng_life life;
        enum ng_verdict_kind kind;
    } fates[] = {{NG_LIFE_RUNNING, NG_KIND_MISSING_RANK},
                 {NG_LIFE_DEAD, NG_KIND_DEAD_RANK},
                 {NG_LIFE_STOPPED, NG_KIND_STOPPED_RANK},
                 {NG_LIFE_EXITED, NG_KIND_LEFT_EARLY}};
    unsigned stalls = 0;

    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        const auto &fate = fates[seed % 4];
        int culprit = (int)random.pick((size_t)random.ranks());
        std::vector<int> stuck =
            random.run(culprit, random.pick(random.steps()), LONG_AGO + random.pick(NG_S));
        random.job().process(culprit).life = fate.life;
        random.job().process(culprit).life_age_ns = 10 * NG_S;
        Judgement judgement = judge(random.job());
        if (stuck.empty()) {
            ASSERT_EQ(judgement.kind, NG_KIND_HEALTHY) << "seed " << seed << ": " << judgement.line;
            continue;
        }
        stalls++;
        ASSERT_EQ(judgement.kind, fate.kind) << "seed " << seed << ": " << judgement.line;
        ASSERT_EQ(judgement.culprits, std::vector<int>{culprit})
            << "seed " << seed << ": " << judgement.line;
        ASSERT_EQ(judgement.waiting, stuck) << "seed " << seed << ": " << judgement.line;
        /* Of two ranks nothing tells whether the other made a call too many. */
        ASSERT_TRUE(judgement.confidence == NG_CONFIDENCE_CERTAIN ||
                    (fate.kind == NG_KIND_LEFT_EARLY &&
                     mentions(judgement.whys.at(0), "made a call too many")))
            << "seed " << seed << ": " << judgement.line;
    }
    EXPECT_GT(stalls, ROUNDS / 2) << "the jobs must stall for this to say anything";
}

TEST(VerdictOfRandomJobs, WhoIsNotSeenIsNeverBlamed)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        int culprit = (int)random.pick((size_t)random.ranks());
        std::set<int> unseen;
        random.run(culprit, random.pick(random.steps()), LONG_AGO);
        for (unsigned n = random.pick((size_t)random.ranks()) + 1; n > 0; n--) {
            int rank = (int)random.pick((size_t)random.ranks());
            unseen.insert(rank);
            random.forget(rank);
        }
        Judgement judgement = judge(random.job());
        for (int named : judgement.culprits) {
            ASSERT_FALSE(unseen.count(named)) << "seed " << seed << ": " << judgement.line;
            ASSERT_EQ(named, culprit) << "seed " << seed << ": " << judgement.line;
        }
        for (int waiting : judgement.waiting)
            ASSERT_FALSE(unseen.count(waiting)) << "seed " << seed << ": " << judgement.line;
    }
}

/* Lives, ages, counters and records at random, however senseless: always a verdict, and never
 * against all reason. */
TEST(VerdictOfRandomJobs, SenselessEvidenceIsSurvived)
{
    static const enum ng_op inside[] = {NG_OP_AllReduce,   NG_OP_GroupEnd,   NG_OP_CommInitRank,
                                        NG_OP_CommSplit,   NG_OP_CommShrink, NG_OP_CommFinalize,
                                        NG_OP_CommDestroy, NG_OP_Recv};
    std::mt19937_64 random(99);
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob base(seed);
        base.run((int)base.pick((size_t)base.ranks()), base.pick(base.steps()), LONG_AGO);
        for (int rank = 0; rank < base.ranks(); rank++) {
            base.job().process(rank).life = (enum ng_life)(random() % 7);
            base.job().process(rank).host = std::string(random() % 3, 'n');
            base.job().tells_hashes = random() % 2;
            base.job().process(rank).life_age_ns = (int64_t)(random() % (100 * NG_S));
            Member &member = base.job().at(0x1000, rank);
            uint64_t *numbers[] = {&member.entered,       &member.scheduled,   &member.started,
                                   &member.completed,     &member.pending_seq, &member.p2p_entered,
                                   &member.pending_record};
            for (uint64_t *number : numbers)
                if (random() % 4 == 0)
                    *number = random() % 3 == 0 ? random() : random() % 20;
            member.state = (enum ng_group_state)(random() % 6);
            member.rolling_hash = random() % 3;
            for (struct ng_view_record &record : member.records)
                if (random() % 8 == 0)
                    record.rolling_hash = random() % 3;
            for (unsigned n = (unsigned)(random() % 3); n > 0; n--)
                base.job().inside(rank, inside[random() % 8], random() % 2 ? 0x1000 : 0,
                                  random() % 9, (int64_t)(random() % (60 * NG_S)));
            for (unsigned n = (unsigned)(random() % 4); n > 0; n--)
                member.p2p(random() % 2 ? NG_OP_Send : NG_OP_Recv, (int)(random() % 20) - 2,
                           random() % 2, (int64_t)(random() % (60 * NG_S)));
        }
        Judgement judgement = judge(base.job());
        std::set<int> named(judgement.culprits.begin(), judgement.culprits.end());
        for (int waiting : judgement.waiting)
            EXPECT_FALSE(named.count(waiting)) << "seed " << seed << ": " << judgement.line;
        bool may_blame = judgement.kind != NG_KIND_HEALTHY && judgement.kind != NG_KIND_UNKNOWN;
        EXPECT_TRUE(may_blame || judgement.culprits.empty())
            << "seed " << seed << ": " << judgement.line;
    }
}

/* ---- A watchdog that is stuck ---- */

namespace
{

/* Rank 1's watchdog hangs, and its device seems not to finish what all have called. */
Job unwatched(int ranks)
{
    Job job(ranks, WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++)
        job.at(WORLD, rank).did(rank == 1 ? 6 : 7);
    job.at(WORLD, 1).waits();
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    job.process(1).watchdog_in = "cuEventQuery (thread 7 in ioctl)";
    return job;
}

} // namespace

TEST(Verdict, AStuckWatchdogIsTheReasonOfADeviceThatSeemsNotToFinish)
{
    Judgement judgement =
        expect_verdict(judge(unwatched(4)), NG_KIND_WATCHDOG_STUCK, {1}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.whys.at(0),
              "the watchdog of its guard has made no round for 60.0 s: it is in "
              "cuEventQuery (thread 7 in ioctl)");
    EXPECT_EQ(judgement.seq, 7u);
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    EXPECT_EQ(judgement.stalled_ns, 60 * NG_S);
}

/* The pending work is what the watchdog saw in its last round. */
TEST(Verdict, OfAStuckWatchdogTheOldestPendingWorkIsTold)
{
    constexpr uint64_t OTHER = 0xe, THIRD = 0xf;
    Job job(2);
    for (uint64_t group : {WORLD, OTHER, THIRD})
        job.group(group, group == OTHER ? "oldest" : "younger");
    job.at(WORLD, 1).did(1).waits(all_reduce(), NG_S);
    job.at(OTHER, 1).did(2).waits(all_reduce(), 3 * NG_S);
    job.at(THIRD, 1).did(3).waits(all_reduce(), 2 * NG_S);
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    Judgement judgement = judge(job);

    expect_kind(judgement, NG_KIND_WATCHDOG_STUCK);
    EXPECT_EQ(judgement.group, OTHER);
    EXPECT_EQ(judgement.seq, 3u);
}

TEST(Verdict, AStuckWatchdogIsToldOfWhereNothingElseIsWrong)
{
    Job job(4, WORLD, "dp", 6);
    job.process(2).watchdog_stuck_ns = 60 * NG_S;
    Judgement judgement =
        expect_verdict(job, NG_KIND_WATCHDOG_STUCK, {2}, NG_CONFIDENCE_CERTAIN, {});
    EXPECT_EQ(judgement.group, 0u);
    EXPECT_PRED2(mentions, judgement.line, "is no longer watched (the watchdog of its guard");
}

TEST(Verdict, AStuckWatchdogDoesNotHideWhatTheCallsExplain)
{
    Job job = waiting_for(4, {2});
    job.process(1).watchdog_stuck_ns = 60 * NG_S;

    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

TEST(Verdict, AStuckWatchdogIsToldOfFirstWhereItIsAskedAbout)
{
    Job job = waiting_for(4, {2});
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    expect_verdict(judge(job, STALLED, true), NG_KIND_WATCHDOG_STUCK, {1}, NG_CONFIDENCE_CERTAIN,
                   {0, 3});
}

TEST(Verdict, TheWatchdogOfARankThatHasEndedIsNotStuck)
{
    Job job = unwatched(4);
    job.process(1).life = NG_LIFE_EXITED;

    EXPECT_NE(judge(job).kind, NG_KIND_WATCHDOG_STUCK) << judge(job).line;
}

/* ---- What NCCL itself reports ---- */

TEST(Verdict, AnErrorOfARankSaysWhyItDoesNotCome)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        Job job = waiting_for(ranks, {culprit});
        job.at(WORLD, culprit).async_error = 2;
        job.process(culprit).error_text = "no route to host";
        Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {culprit},
                                             NG_CONFIDENCE_CERTAIN, all_but(ranks, {culprit}));
        EXPECT_EQ(judgement.group, WORLD);
        EXPECT_EQ(judgement.op, NG_OP_AllReduce);
        EXPECT_EQ(judgement.stalled_ns, LONG_AGO);
        EXPECT_EQ(judgement.whys.at(0), "NCCL reports ncclSystemError: no route to host");
        EXPECT_PRED2(mentions, judgement.line, "is behind an asynchronous error in AllReduce");
    }
}

TEST(Verdict, AnErrorIsToldBeforeAnythingIsLate)
{
    Job job(4, WORLD, "dp", 6);
    expect_kind(judge(job), NG_KIND_HEALTHY);
    job.at(WORLD, 3).async_error = 1;
    Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {3}, {}, {});
    EXPECT_EQ(judgement.seq, 6u);
}

TEST(Verdict, ACommunicatorInProgressHasNoError)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).did(1).async_error = 7;
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, OfARemoteErrorTheRankWithOneOfItsOwnIsTheOrigin)
{
    Job job(4, WORLD, "dp");
    job.group(0xe, "tp", {2, 3});
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).did(3).async_error = 6;
    job.at(WORLD, 2).did(3).async_error = 2;
    expect_verdict(job, NG_KIND_ASYNC_ERROR, {2}, NG_CONFIDENCE_CERTAIN);
    /* And though it is in another group of that rank. */
    job.at(WORLD, 2).async_error = 0;
    job.at(0xe, 0).async_error = 2;
    Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {2});
    EXPECT_EQ(judgement.group, 0xeu);
}

TEST(Verdict, OfARemoteErrorTheRankThatIsGoneIsTheOrigin)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).did(3).async_error = 6;
    job.at(WORLD, 2).did(3);
    job.process(2).life = NG_LIFE_DEAD;
    Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {2});
    EXPECT_EQ(judgement.whys.at(0), "died, and NCCL reports ncclRemoteError to ranks of its group");
    /* Once others wait for it, its death is what is told. */
    job.wait(WORLD, {0, 1, 3});
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

/* NCCL notices at once that a peer on another host is gone, long before anybody has waited for
 * long. */
TEST(Verdict, TheEndBehindARemoteErrorIsToldThoughNobodyHasWaitedForLong)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_LOST, NG_LIFE_EXITED}) {
        Job job(4, WORLD, "dp");
        for (int rank : {0, 1, 3})
            job.at(WORLD, rank).did(3).waits(all_reduce(), NG_S).async_error = rank ? 6 : 0;
        job.at(WORLD, 2).did(3);
        job.process(2).life = life;
        Judgement judgement =
            expect_verdict(job, life == NG_LIFE_EXITED ? NG_KIND_LEFT_EARLY : NG_KIND_DEAD_RANK,
                           {2}, {}, {0, 1, 3});
        EXPECT_EQ(judgement.seq, 4u);
        /* Who ends since it was told of the error is no culprit. */
        job.process(2).life_age_ns = NG_S;
        job.process(1).is(NG_LIFE_EXITED, NG_S / 10);
        EXPECT_EQ(judge(job).culprits, std::vector<int>{2}) << life;
        /* An error of a rank's own is none of that. */
        job.at(WORLD, 0).async_error = 2;
        expect_verdict(job, NG_KIND_ASYNC_ERROR, {0});
    }
}

/* Clocks of hosts tell too little of who went first; what NCCL told them does. */
TEST(Verdict, WhoLeftSinceNcclToldItOfAnEndIsNoCulpritOnWhateverHost)
{
    for (bool heard : {false, true}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++)
            job.process(rank).host = "host" + std::to_string(rank);
        for (int rank : {0, 1, 3})
            job.at(WORLD, rank).did(3).waits();
        job.at(WORLD, 2).did(3);
        job.process(2).life = job.process(3).life = NG_LIFE_EXITED;
        job.process(2).life_age_ns = 300 * NG_MS;
        job.process(3).life_age_ns = 400 * NG_MS;
        job.at(WORLD, 3).async_error = heard ? 6 : 0;
        expect_verdict(job, NG_KIND_LEFT_EARLY,
                       heard ? std::vector<int>{2} : (std::vector<int>{2, 3}));
    }
    /* Whoever is left of them is named all the same. */
    Job job = waiting_for(4, {2});
    job.process(2).life = NG_LIFE_EXITED;
    job.at(WORLD, 2).async_error = 6;
    expect_verdict(job, NG_KIND_LEFT_EARLY, {2});
}

/* ---- Who left for an end that NCCL told it of, while others wait for it alone ---- */

constexpr uint64_t ROW = 0x500, COL = 0x600, PAIR = 0x700;

/* Rank 2 is gone, rank 1 left since NCCL told it of that in the row, and rank 0 waits for rank 1 in
 * the pair. `wide`: rank 3 of the row lives. */
Job left_since_told(enum ng_life life, bool wide = false)
{
    Job job(wide ? 4 : 3);
    job.group(ROW, "row", wide ? std::vector<int>{1, 2, 3} : std::vector<int>{1, 2});
    if (wide)
        job.at(ROW, 2).did(3);
    job.group(PAIR, "pair", {0, 1});
    job.at(ROW, 0).did(3).waits(all_reduce(), 300 * NG_MS).async_error = 6;
    job.at(ROW, 1).did(3);
    job.at(PAIR, 0).did(5).waits();
    job.at(PAIR, 1).did(5);
    job.process(1).is(NG_LIFE_EXITED, 8 * NG_S);
    job.process(2).life = life;
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 8 * NG_S + 400 * NG_MS;
    return job;
}

/* As if rank 1 were still there: its group, its call, and who is missed in it. */
void expect_what_it_left_for(const Job &job, enum ng_verdict_kind kind, uint64_t seq = 4)
{
    for (bool ends : {false, true}) {
        Judgement judgement =
            expect_verdict(judge(job, STALLED, false, false, ends), kind, {2}, {}, {0});
        EXPECT_EQ(judgement.group, ROW) << judgement.line;
        EXPECT_EQ(judgement.seq, seq) << judgement.line;
    }
}

void expect_leaver(const Job &job)
{
    Judgement judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, {1});
    EXPECT_EQ(judgement.group, PAIR) << judgement.line;
}

TEST(Verdict, WhoLeftSinceNcclToldItOfAnEndIsNoCulpritToThoseThatWaitForItAlone)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_LOST, NG_LIFE_EXITED}) {
        enum ng_verdict_kind kind = life == NG_LIFE_EXITED ? NG_KIND_LEFT_EARLY : NG_KIND_DEAD_RANK;
        Job job = left_since_told(life);
        expect_what_it_left_for(job, kind);
        EXPECT_EQ(judge(job).stalled_ns, 8 * NG_S + 300 * NG_MS)
            << "as long as it would have waited";
        /* Rank 2 had come to the call, too. */
        job.at(ROW, 1).waits();
        expect_what_it_left_for(job, kind);
        /* Others of the row live, and are not missed in what nobody waits in any more. */
        expect_what_it_left_for(left_since_told(life, true), kind);
        /* One of them still waits there: that is the same. */
        job = left_since_told(life, true);
        job.at(ROW, 2).waits(all_reduce(), 8 * NG_S);
        Judgement judgement = expect_verdict(job, kind, {2}, {}, {0, 3});
        EXPECT_EQ(judgement.stalled_ns, 8 * NG_S) << "of who waits still";
    }
}

/* NCCL may refuse a call before the watchdog has seen that the work before it is stuck, or where
 * all is done. */
TEST(Verdict, WhatALeaverWasInIsAlsoWhatNcclHasFailed)
{
    Job job = left_since_told(NG_LIFE_DEAD);
    Member all_done = job.at(ROW, 1);
    all_done.process = 1;
    all_done.group_rank = 0;
    job.at(ROW, 0) = all_done;
    job.at(ROW, 0).failed().async_error = 6;
    expect_what_it_left_for(job, NG_KIND_DEAD_RANK);
}

TEST(Verdict, WhoEndedItsCommunicatorOnItsWayOutLeftForTheSame)
{
    for (enum ng_group_state state : {NG_GROUP_ABORTED, NG_GROUP_DESTROYED}) {
        Job job = left_since_told(NG_LIFE_DEAD);
        Member &member = job.at(ROW, 0);
        member.state = state;
        member.ended_age_ns = NG_S;
        member.pending_record = member.pending_seq = 0;
        expect_what_it_left_for(job, NG_KIND_DEAD_RANK);
        /* Else it had got over it, and what it did later is its own doing. */
        member.ended_age_ns = 20 * NG_S;
        expect_leaver(job);
    }
}

TEST(Verdict, WhoLeftWithoutAWordOfNcclIsTheCulprit)
{
    Job job = left_since_told(NG_LIFE_DEAD);
    job.at(ROW, 0).async_error = 0;
    expect_leaver(job);
    job.at(ROW, 0).async_error = 2; /* an error of its own */
    expect_leaver(job);
    /* Told, but nobody is gone in that group; or of somebody who has done its part. */
    for (bool wide : {false, true})
        expect_leaver(left_since_told(NG_LIFE_RUNNING, wide));
    job = left_since_told(NG_LIFE_EXITED);
    job.at(ROW, 1).did(1);
    expect_leaver(job);
    /* Who ended only after it had left is not what it had been told of. */
    job = left_since_told(NG_LIFE_DEAD);
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 5 * NG_S;
    expect_leaver(job);
    /* Two that each were told of the other, and nobody was first. */
    job = left_since_told(NG_LIFE_EXITED);
    job.at(ROW, 1).waits().async_error = 6;
    expect_leaver(job);
}

/* Of a host of which nobody else is left to tell, it takes a while until it is known to be gone. */
TEST(Verdict, WhoLeftForOneThatDoesNotAnswerMayBeNoCulprit)
{
    for (bool waits : {false, true}) {
        Job job = left_since_told(NG_LIFE_RUNNING);
        job.process(2).quiet_ns = 8 * NG_S;
        if (waits)
            job.at(ROW, 1).waits(all_reduce(), 8 * NG_S);
        expect_leaver(job);
        EXPECT_TRUE(judge(job).may_be_gone);
        if (!waits)
            job.forget(ROW, 1); /* it has not told yet that it is of the row */
        EXPECT_TRUE(judge(job).may_be_gone);
        job.at(ROW, 0).async_error = 0;
        EXPECT_FALSE(judge(job).may_be_gone);
    }
    for (bool wide : {false, true})
        EXPECT_FALSE(judge(left_since_told(NG_LIFE_RUNNING, wide)).may_be_gone);
}

/* Rank 2 has left for rank 3, and rank 1 for rank 2. */
TEST(Verdict, LeaversAreFollowedToTheFirstEnd)
{
    Job job(4);
    job.group(ROW, "row", {2, 3});
    job.group(COL, "col", {1, 2});
    job.group(PAIR, "pair", {0, 1});
    job.at(ROW, 0).did(3).waits(all_reduce(), 300 * NG_MS).async_error = 6;
    job.at(ROW, 1).did(3);
    job.at(COL, 0).did(4).waits(all_reduce(), 300 * NG_MS).async_error = 6;
    job.at(COL, 1).did(4);
    job.at(PAIR, 0).did(5).waits();
    job.at(PAIR, 1).did(5);
    job.process(1).life = job.process(2).life = NG_LIFE_EXITED;
    job.process(1).life_age_ns = 7 * NG_S;
    job.process(2).life_age_ns = 8 * NG_S;
    job.process(3).life = NG_LIFE_DEAD;
    job.process(3).life_age_ns = job.process(3).alive_age_ns = 9 * NG_S;
    Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, {3}, {}, {0});
    EXPECT_EQ(judgement.group, ROW);
    /* Without a first one, the chain ends at who was told of nothing. */
    job.at(ROW, 0).async_error = 0;
    judgement = expect_verdict(job, NG_KIND_LEFT_EARLY, {2});
    EXPECT_EQ(judgement.group, COL);
}

TEST(Verdict, LeaversAreFollowedThroughSendsAndReceives)
{
    for (bool own_group : {false, true}) {
        Job job(3);
        if (own_group)
            job.group(ROW, "pipeline", {0, 1, 2});
        else
            job.group(ROW, "row", {1, 2});
        job.group(PAIR, "pair", {0, 1});
        Member &left = job.at(ROW, own_group ? 1 : 0);
        left.p2p(NG_OP_Recv, own_group ? 2 : 1, false, 300 * NG_MS).async_error = 6;
        job.at(own_group ? ROW : PAIR, 0).p2p(NG_OP_Recv, 1, false);
        job.process(1).is(NG_LIFE_EXITED, 8 * NG_S);
        job.process(2).life = NG_LIFE_DEAD;
        job.process(2).life_age_ns = job.process(2).alive_age_ns = 8 * NG_S + 400 * NG_MS;
        expect_what_it_left_for(job, NG_KIND_DEAD_RANK, 0);
        left.async_error = 0;
        expect_verdict(job, NG_KIND_LEFT_EARLY, {1});
    }
}

/* Whoever mixed up its data had done its part, and left when it was through. */
TEST(Verdict, TheMismatchThatALeaverWasInIsWhatIsToldOf)
{
    Job job = left_since_told(NG_LIFE_EXITED);
    job.at(ROW, 1).waits(all_reduce(512));
    expect_what_it_left_for(job, NG_KIND_MISMATCH);
}

/* The end of rank 3 has nothing to do with that of rank 2. */
TEST(Verdict, AnEndOfItsOwnGoesBeforeWhatLeaversWereInWhereEndsAreLookedFor)
{
    for (bool left : {true, false}) {
        Job job = left_since_told(NG_LIFE_DEAD, true);
        job.group(COL, "col", {0, 3});
        job.at(COL, 0).did(6).waits();
        job.at(COL, 1).did(6);
        job.process(3).is(left ? NG_LIFE_EXITED : NG_LIFE_RUNNING, left ? 6 * NG_S : 0);
        expect_verdict(judge(job, STALLED, false, false, true),
                       left ? NG_KIND_LEFT_EARLY : NG_KIND_DEAD_RANK, {left ? 3 : 2});
        Judgement judgement = judge(job);
        expect_kind(judgement, NG_KIND_DEAD_RANK);
        EXPECT_EQ(judgement.culprits, std::vector<int>{2})
            << "which is what a deadline is about: " << judgement.line;
    }
}

/* A host that does not answer may be gone with all its ranks, which is known only once it has been
 * silent for long. */
TEST(Verdict, OfARemoteErrorThoseWhoDoNotAnswerMayBeTheOrigin)
{
    Job job(4, WORLD, "dp", 3);
    job.at(WORLD, 0).waits(all_reduce(), NG_S).async_error = 6;
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_ASYNC_ERROR);
    EXPECT_FALSE(judgement.may_be_gone) << "all answer";
    job.process(3).quiet_ns = NG_S;
    judgement = judge(job);
    expect_kind(judgement, NG_KIND_ASYNC_ERROR);
    EXPECT_TRUE(judgement.may_be_gone);
    /* Once others have waited for it for long, it is what is told, and not who reports the error.
     */
    job.wait(WORLD, {0, 1, 2});
    expect_verdict(job, NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_LIKELY);
    /* An error of a rank's own needs no other origin. */
    job.at(WORLD, 1).async_error = 2;
    judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {1});
    EXPECT_FALSE(judgement.may_be_gone);
    /* Whoever is gone for certain is the origin. */
    job.at(WORLD, 1).async_error = 0;
    job.process(2).life = NG_LIFE_DEAD;
    EXPECT_FALSE(judge(job).may_be_gone);
}

/* A host whose ranks have no evidence of the others ends at the deadline, a moment before this one
 * does. */
TEST(Verdict, ARemoteErrorThatComesWithTheDeadlineIsNotWhyARankIsMissing)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3).timeout_ns = 6 * NG_S;
    for (int rank : {0, 1, 2})
        job.at(WORLD, rank).waits(all_reduce(), 6 * NG_S);
    job.at(WORLD, 0).async_error = 6;
    job.at(WORLD, 0).error_age_ns = NG_S / 2;
    expect_verdict(job, NG_KIND_MISSING_RANK, {3});
    /* An error that was there before is why nobody comes, however long ago the deadline passed. */
    job.at(WORLD, 0).error_age_ns = 3 * NG_S;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
    for (int rank : {0, 1, 2})
        job.at(WORLD, rank).waits(all_reduce(), 100 * NG_S);
    job.at(WORLD, 0).error_age_ns = 96 * NG_S;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
    job.at(WORLD, 0).error_age_ns = NG_S / 2;
    /* Before the deadline nobody has ended for it; and an error of a rank's own needs no other
     * origin. */
    for (int rank : {0, 1, 2})
        job.at(WORLD, rank).waits(all_reduce(), 5 * NG_S);
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
    for (int rank : {0, 1, 2})
        job.at(WORLD, rank).waits(all_reduce(), 6 * NG_S);
    job.at(WORLD, 0).async_error = 2;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
}

/* The same, where a host knows of its own ranks only, who have all come. */
TEST(Verdict, ARemoteErrorThatComesWithTheDeadlineExplainsNothingToAHostThatKnowsItsOwnRanksOnly)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 2; rank++)
        job.at(WORLD, rank).did(3).waits(all_reduce(), 6 * NG_S).timeout_ns = 6 * NG_S;
    job.forget(WORLD, 2);
    job.forget(WORLD, 3);
    job.at(WORLD, 1).async_error = 6;
    job.at(WORLD, 1).error_age_ns = 100 * NG_MS;
    expect_kind(judge(job), NG_KIND_UNKNOWN);
    job.at(WORLD, 1).error_age_ns = 2 * NG_S;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
}

/* Calls that differed are behind the end of those who made them. */
TEST(Verdict, TheMismatchBehindARemoteErrorIsToldThoughNobodyHasWaitedForLong)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3).waits(all_reduce(rank == 2 ? 512 : 1024), NG_S);
    job.at(WORLD, 0).async_error = 6;
    job.process(3).life = NG_LIFE_EXITED;
    expect_verdict(job, NG_KIND_MISMATCH, {2});
}

/* That another waits for a moment, as is usual, has nothing to do with the error. */
TEST(Verdict, ARemoteErrorDoesNotMakeAShortWaitAStall)
{
    Job job(4, WORLD, "dp");
    job.group(0xe, "tp", {2, 3});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3);
    job.at(WORLD, 1).async_error = 6;
    job.process(0).life = NG_LIFE_EXITED;
    job.at(0xe, 0).did(5).waits(all_reduce(), NG_S);
    job.at(0xe, 1).did(5);
    Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, {0});
    EXPECT_EQ(judgement.group, WORLD);
}

TEST(Verdict, OfARemoteErrorOfUnknownOriginNobodyIsSurelyToBlame)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3).async_error = rank % 2 ? 6 : 0;
    expect_verdict(job, NG_KIND_ASYNC_ERROR, {1, 3}, NG_CONFIDENCE_LIKELY);
}

TEST(Verdict, ARemoteErrorOfAGroupThatAProgramHasEndedIsItsOwnDoing)
{
    Job job(4, WORLD, "dp");
    for (int rank : {0, 1, 3})
        job.at(WORLD, rank).did(3).async_error = 6;
    job.at(WORLD, 2).did(3).state = NG_GROUP_ABORTED;
    expect_kind(judge(job), NG_KIND_HEALTHY);
    /* Not so an error of its own. */
    job.at(WORLD, 0).async_error = 2;
    expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
}

TEST(Verdict, ARemoteErrorOfAGroupThatAProgramHasDestroyedIsItsOwnDoing)
{
    for (enum ng_group_state state : {NG_GROUP_ABORTED, NG_GROUP_DESTROYED}) {
        Job job(4, WORLD, "dp");
        for (int rank : {0, 1, 3})
            job.at(WORLD, rank).did(3).async_error = 6;
        job.at(WORLD, 2).did(3).state = state;
        expect_kind(judge(job), NG_KIND_HEALTHY);
        /* What ended with its process was ended by nobody's program. */
        for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_LOST}) {
            job.process(2).life = life;
            Judgement judgement = judge(job);
            expect_kind(judgement, NG_KIND_ASYNC_ERROR);
            EXPECT_EQ(judgement.culprits, std::vector<int>{2}) << life;
        }
    }
}

TEST(Verdict, ARankThatIsGoneReportsNoError)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_LOST}) {
        Job job(2, WORLD, "dp");
        job.at(WORLD, 0).did(3);
        job.at(WORLD, 1).did(3).async_error = 2;
        job.process(1).life = life;
        expect_kind(judge(job), NG_KIND_HEALTHY);
    }
}

TEST(Verdict, AnErrorOfACommunicatorThatHasEndedIsHistory)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).did(3).async_error = 2;
    job.at(WORLD, 0).state = NG_GROUP_ABORTED;
    job.at(WORLD, 1).did(3).state = NG_GROUP_ABORTED;
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, WhatExplainsAnErrorIsToldInsteadOfIt)
{
    Job job = waiting_for(4, {2});
    job.at(WORLD, 0).async_error = 6;
    job.process(2).life = NG_LIFE_STOPPED;
    expect_kind(judge(job), NG_KIND_STOPPED_RANK);
    job.process(2).life = NG_LIFE_EXITED;
    expect_kind(judge(job), NG_KIND_LEFT_EARLY);
}

/* ---- Numbers that are none ---- */

namespace
{

/* In call `seq` of the world, `age_ns` ago: element 17 of a thousand of bfloat16. */
struct ng_view_nan nan_in(uint64_t seq, int64_t age_ns, bool held)
{
    return {age_ns, WORLD, seq, NG_OP_AllReduce, 9, 1000, 2, 17, 0x7fc0, held};
}

Job all_did(int ranks, uint64_t calls)
{
    Job job(ranks, WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++)
        job.at(WORLD, rank).did(calls);
    return job;
}

} // namespace

TEST(Verdict, ANanIsToldOfWhenAskedThoughNobodyWaits)
{
    Job job = all_did(4, 9);
    job.process(2).nan = nan_in(7, NG_S, false);
    Judgement judgement = expect_verdict(judge(job, STALLED, false, true), NG_KIND_NAN, {2},
                                         NG_CONFIDENCE_CERTAIN, {});
    EXPECT_EQ(judgement.whys.at(0),
              "of 1000 elements of bfloat16 that it sends, 2 are no numbers, the first is "
              "element 17: NaN (0x7fc0)");
    EXPECT_EQ(judgement.seq, 7u);
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, TheFirstOfNansThatHaveSpreadIsNamed)
{
    Job job = all_did(4, 12);
    /* Its watchdog has found it last. */
    job.process(0).nan = nan_in(8, 3 * NG_S, false);
    job.process(1).nan = nan_in(7, NG_S, false);
    job.process(2).nan = nan_in(8, 3 * NG_S, false);
    job.process(3).nan = nan_in(8, 2 * NG_S, false);
    expect_verdict(judge(job, STALLED, false, true), NG_KIND_NAN, {1}, NG_CONFIDENCE_CERTAIN);
}

TEST(Verdict, WhereAllRanksHaveNanTheyMayHaveItFromEachOther)
{
    Job job = all_did(3, 12);
    for (int rank = 0; rank < 3; rank++)
        job.process(rank).nan = nan_in(8, NG_S, false);
    Judgement judgement = judge(job, STALLED, false, true);

    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_LIKELY);
}

TEST(Verdict, ACallThatIsHeldForItsNanIsWhyTheOthersWait)
{
    for (bool stuck : {false, true}) {
        Job job = all_did(4, 6);
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).waits(all_reduce(), stuck ? LONG_AGO : NG_MS);
        job.process(1).nan = nan_in(7, stuck ? LONG_AGO : NG_MS, true);
        Judgement judgement = expect_verdict(job, NG_KIND_NAN, {1}, {}, {0, 2, 3});
        EXPECT_PRED2(mentions, judgement.whys.at(0), "; none of it has left the rank");
    }
}

TEST(Verdict, ADeathIsNotExplainedByANanThatIsHeld)
{
    Job job = waiting_for(4, {3});
    job.process(3).life = NG_LIFE_DEAD;
    job.process(1).nan = nan_in(7, LONG_AGO, true);
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

TEST(Verdict, ANanThatWasLetGoIsNotTheReasonOfALaterStall)
{
    Job job = waiting_for(4, {3});
    job.process(1).nan = nan_in(2, 10 * LONG_AGO, false);
    expect_kind(judge(job), NG_KIND_MISSING_RANK);
}

TEST(Verdict, ANanOfAGroupThatNobodyKnowsIsNotToldOf)
{
    Job job = all_did(2, 6);
    job.process(1).nan = nan_in(7, NG_S, true);
    job.process(1).nan.group_id = 0xabc;
    expect_kind(judge(job, STALLED, false, true), NG_KIND_HEALTHY);
}
