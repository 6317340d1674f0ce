/*
 * What NCCL itself reports, and ranks that left for an end that it told them of.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

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
    EXPECT_EQ(expect_verdict(job, NG_KIND_ASYNC_ERROR, {3}, {}, {}).seq, 6u);
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
    EXPECT_EQ(expect_verdict(job, NG_KIND_ASYNC_ERROR, {2}).group, 0xeu);
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

/* The clocks of hosts are too imprecise to order the ends; the errors that NCCL reported order
 * them. */
TEST(Verdict, WhoLeftSinceNcclToldItOfAnEndIsNoCulpritOnWhateverHost)
{
    for (bool heard : {false, true}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++)
            job.process(rank).host = "host" + std::to_string(rank);
        for (int rank : {0, 1, 3})
            job.at(WORLD, rank).did(3).waits(all_reduce(), rank == 3 ? NG_S : LONG_AGO);
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
        job.at(ROW, 1).waits(all_reduce(), 300 * NG_MS);
        expect_what_it_left_for(job, kind);
        /* Other ranks of the row live; no rank waits in that operation any more, so they are not
         * missing in it. */
        expect_what_it_left_for(left_since_told(life, true), kind);
        /* One of them still waits there: that is the same. */
        job = left_since_told(life, true);
        job.at(ROW, 2).waits(all_reduce(), 8 * NG_S);
        EXPECT_EQ(expect_verdict(job, kind, {2}, {}, {0, 3}).stalled_ns, 8 * NG_S)
            << "of who waits still";
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
        /* If it ended the communicator long before it left, the error is not why it left. */
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

/* If no process of a host is left to report its end, the loss is known only after a while. */
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
        Judgement judgement = expect_verdict(job, NG_KIND_DEAD_RANK, ANYBODY);
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
    Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, ANYBODY);
    EXPECT_FALSE(judgement.may_be_gone) << "all answer";
    job.process(3).quiet_ns = NG_S;
    judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, ANYBODY);
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
    Job job(4, WORLD, "dp", 3);
    job.group(0xe, "tp", {2, 3});
    job.at(WORLD, 1).async_error = 6;
    job.process(0).life = NG_LIFE_EXITED;
    job.at(0xe, 0).did(5).waits(all_reduce(), NG_S);
    job.at(0xe, 1).did(5);
    EXPECT_EQ(expect_verdict(job, NG_KIND_ASYNC_ERROR, {0}).group, WORLD);
}

TEST(Verdict, OfARemoteErrorOfUnknownOriginNobodyIsSurelyToBlame)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3).async_error = rank % 2 ? 6 : 0;
    expect_verdict(job, NG_KIND_ASYNC_ERROR, {1, 3}, NG_CONFIDENCE_LIKELY);
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
            Judgement judgement = expect_verdict(job, NG_KIND_ASYNC_ERROR, ANYBODY);
            EXPECT_EQ(judgement.culprits, std::vector<int>{2}) << life;
        }
        /* Not so an error of its own. */
        job.process(2).life = NG_LIFE_RUNNING;
        job.at(WORLD, 0).async_error = 2;
        expect_kind(judge(job), NG_KIND_ASYNC_ERROR);
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
