/*
 * Ranks that wait for each other, and which of them took another order than the rest.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

extern "C" {
#include "core/verdict/cycle.h"
}

/* Groups 1 and 2 of all ranks, whose calls are numbered as each process makes them. */
static Job numbered_groups(int ranks)
{
    Job job(ranks, 1, "a");
    job.group(2, "b");
    job.number_by_process();
    return job;
}

TEST(Verdict, GroupsTakenInOppositeOrderAreADeadlock)
{
    Job job(2, 1, "a", 4);
    job.group(2, "b", {0, 1}, 2);
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
        Job job(2, 0xaa, name, 4);
        job.group(0xbb, name, {0, 1}, 2);
        job.at(0xaa, 0).waits();
        job.at(0xbb, 1).waits();
        Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY);
        for (const std::string &why : judgement.whys)
            EXPECT_TRUE(mentions(why, "00000000000000aa") && mentions(why, "00000000000000bb"))
                << why;
    }
}

/* One rank called the groups in another order, or left out a call of one; all others agree. */
TEST(Verdict, OfTwoGroupsTheRankThatIsAloneWithItsOrderIsNamed)
{
    for (auto [ranks, odd] : sizes_and_culprits())
        for (uint64_t odd_in : {1, 2}) {
            uint64_t others_in = 3 - odd_in;
            Job job(ranks, 1, "a", 4);
            job.group(2, "b", all_but(ranks, {}), 4);
            for (int rank = 0; rank < ranks; rank++)
                job.at(rank == odd ? odd_in : others_in, rank).waits();
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
            judgement.because("is in AllReduce #5 of group \"" + is +
                              "\" and has not entered AllReduce #5 of group \"" + has_not +
                              "\"; rank ");
            EXPECT_PRED2(mentions, judgement.line,
                         "came in another order to AllReduce #5 of group");
        }
}

/* Rank 2 has left a reduction out. Its root waits for it; the others have sent their part and gone
 * on to the next call, in the order in which the root would make it. */
TEST(Verdict, OfTwoGroupsTheRanksThatHavePassedTheOneCallTakeSides)
{
    for (int how : {0, 1, 2, 3}) {
        Job job = numbered_groups(4);
        for (int rank : {1, 3})
            job.at(2, rank).did(1);
        job.at(2, 0).waits();
        for (int rank : {1, 2, 3}) {
            if (how == 1)
                job.at(1, rank).tid = 5;
            job.at(1, rank).waits();
        }
        for (int rank : {1, 3})
            for (uint64_t group : {1, 2})
                if (how == 2)
                    job.at(group, rank).records.back().flags |= NG_RECORD_IN_GROUP;
                else if (how == 3 && group == 2)
                    job.at(group, rank).keeps(0);
        Judgement judgement = expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY);
        EXPECT_EQ(judgement.culprits, how ? (std::vector<int>{0, 2}) : std::vector<int>{2}) << how;
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

/* A grid of two columns. One rank is in the call of all, against one rank in its row, which is no
 * majority, and three in its column, which are. */
TEST(Verdict, WhereTwoRanksAreOneAgainstOneAThirdCallTellsWhichIsWrong)
{
    for (uint64_t row : {2, 9}) {
        Job job(8, 5, "all");
        job.group(row, "row", {0, 1});
        job.group(3, "even", {0, 2, 4, 6});
        job.group(4, "odd", {1, 3, 5, 7});
        job.at(5, 0).waits();
        job.at(row, 1).waits();
        for (int column : {3, 4})
            for (int rank : {1, 2, 3})
                job.at((uint64_t)column, rank).waits();
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0}, NG_CONFIDENCE_CERTAIN);
    }
}

/* The threads that have not come to the call of all may be in something else. */
TEST(Verdict, WhichOfTwoRanksIsWrongIsLikelyWhereThoseOfTheThirdCallHaveOtherThreads)
{
    for (bool one_each : {false, true}) {
        Job job(8, 5, "all");
        job.group(2, "row", {0, 1});
        job.group(3, "even", {0, 2, 4, 6});
        job.number_by_process();
        for (int rank = 0; rank < 8; rank++) {
            job.at(5, rank).tid = 9;
            job.at(5, rank).did(2);
        }
        job.at(5, 0).waits();
        job.at(2, 1).tid = 9;
        job.at(2, 1).waits();
        for (int rank : {1, 2, 3}) {
            job.at(3, rank).tid = one_each ? 10 : 9;
            job.at(3, rank).waits();
        }
        job.group(4, "odd", {1, 3, 5, 7});
        for (int rank : {1, 2, 3}) {
            job.at(4, rank).tid = 9;
            job.at(4, rank).waits();
        }
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0},
                       one_each ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
    }
}

/* The same where all calls are on one stream of each rank. */
TEST(Verdict, TheRankThatIsAloneWithItsOrderOnItsStreamIsNamed)
{
    Job job(4, 1, "a");
    job.group(2, "b");
    for (int rank = 0; rank < 4; rank++)
        for (uint64_t group : {1, 2})
            job.at(group, rank).did(3).waits().pending_started = (rank == 2) == (group == 2);
    EXPECT_EQ(expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {2}).group, 1u);
}

/* Three rounds of two calls, as every rank makes them; in the fourth one rank departs from that. */
static Job rounds(int ranks)
{
    Job job = numbered_groups(ranks);
    for (int round = 0; round < 3; round++)
        for (int rank = 0; rank < ranks; rank++) {
            job.at(1, rank).did(1);
            job.at(2, rank).did(1);
        }
    return job;
}

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
        judgement.because("it alone did not call as in earlier rounds");
    }
}

/* It left a call out, and made some more that need nobody before it came to one that does not
 * finish. */
TEST(Verdict, ARankMayHaveDepartedFromItsRoundsSomeCallsAgo)
{
    for (int odd : {0, 1}) {
        Job job = numbered_groups(2);
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
        Job job = numbered_groups(2);
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
    for (int how : {0, 1, 2, 3}) {
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
        if (how == 3) /* calls between them may be lost */
            for (int rank : {0, 1})
                job.process(rank).ring_first = 1000;
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
        expect_verdict(job, NG_KIND_MISMATCH,
                       rounds ? std::vector<int>{2} : (std::vector<int>{2, 3}),
                       rounds ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_UNKNOWN)
            .because("and behind it on its device waits Send to rank 3");
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
    judgement.because("is in AllReduce #4 of group \"a\", and behind it on "
                      "its device waits AllReduce #4 of group \"b\"");
    EXPECT_PRED2(mentions, judgement.text, "which is queued on the device of rank 1");
}

/* What the device is in is inferred from the work before it: only likely. */
TEST(Verdict, ADeadlockOfWorksWhoseStartsAreInferredIsOnlyLikely)
{
    for (int inferred : {0, 1, 2}) {
        Job job(2, 1, "a");
        job.group(2, "b");
        for (int rank : {0, 1})
            for (uint64_t group : {1, 2}) {
                Member &member = job.at(group, rank).did(3).waits();
                member.pending_started = group == (uint64_t)rank + 1;
                member.pending_inferred = member.pending_started && rank < inferred;
            }
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1},
                       inferred ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
    }
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
                judgement.because("is in Send to rank 1 of group");
            }
        }
}

/* The calls of a NCCL group end together: the first of it is pending where the device is in what
 * stands behind it. */
TEST(Verdict, WhatOthersHaveFinishedIsNotWhatARankIsInThoughItsGroupHasNotEnded)
{
    for (bool others_did : {true, false}) {
        Job job = numbered_groups(4);
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
    Job job = numbered_groups(4);
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
        Job job = numbered_groups(4);
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

/* Where each group has a thread of its own, the one that has not come may do something else than
 * wait for the other. */
TEST(Verdict, ADeadlockThroughThreadsThatMayBeFreeIsOnlyLikely)
{
    for (bool one_each : {true, false}) {
        Job job = numbered_groups(4);
        for (int rank = 0; rank < 4; rank++)
            for (uint64_t group : {1, 2}) {
                Member &member = job.at(group, rank);
                uint32_t own = 9 + (uint32_t)group, other = 12 - (uint32_t)group;
                member.tid = one_each ? own : other;
                member.did(2);
                member.tid = own;
                member.did(2);
            }
        job.wait(1, {0, 1, 3});
        job.wait(2, {0, 1, 2});
        expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {2, 3},
                       one_each ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN, {0, 1});
    }
}

/* Rank 0 left out its send in the second group, and waits in the first. Rank 1 made both calls in
 * one NCCL group, and NCCL starts none of them before all have connected. */
TEST(Verdict, AnNcclGroupThatWaitsToConnectHoldsUpAllItsCalls)
{
    for (bool collective : {false, true})
        for (uint32_t closes : {8, 7}) {
            Job job(2, 1, "");
            job.group(2, "");
            job.number_by_process();
            job.at(2, 1).tid = 8;
            job.at(1, 1).tid = closes;
            if (collective)
                job.at(1, 0).waits();
            else
                job.at(1, 0).p2p(NG_OP_Recv, 1, false);
            job.at(2, 1).p2p(NG_OP_Recv, 0, false);
            if (collective)
                job.at(1, 1).opened();
            else
                job.at(1, 1).p2p(NG_OP_Send, 0, false);
            for (uint64_t group : {1, 2}) {
                Member &member = job.at(group, 1);
                member.records.back().state = NG_RECORD_ENTERED;
                member.records.back().flags |= NG_RECORD_IN_GROUP;
                member.pending_record = member.pending_age_ns = 0;
            }
            job.inside(1, NG_OP_GroupEnd, 0, 0, LONG_AGO, 8);
            if (closes != 8) {
                job.inside(1, NG_OP_GroupEnd, 0, 0, LONG_AGO, closes);
                EXPECT_NE(judge(job).kind, NG_KIND_ORDER_DEADLOCK);
                continue;
            }
            Judgement judgement =
                expect_verdict(job, NG_KIND_ORDER_DEADLOCK, {0, 1}, NG_CONFIDENCE_LIKELY);
            std::string call = collective ? "AllReduce #1" : "Send to rank 0";
            EXPECT_EQ(judgement.whys.at(1),
                      "is in Recv from rank 0 of group 0000000000000002, and in the same "
                      "ncclGroupEnd waits " +
                          call + " of group 0000000000000001; rank 0 is in " +
                          (collective ? "AllReduce #1" : "Recv from rank 1") +
                          " of group 0000000000000001 and has not entered Send to rank 1 of group "
                          "0000000000000002");
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
        EXPECT_EQ(expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY).stalled_ns, 2 * LONG_AGO)
            << longest;
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
    judgement.because("is in Send to rank 1 of group \"pp\" and has not "
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
    expect_verdict(job, NG_KIND_MISSING_RANK, {1}).because("destroyed or aborted");
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

/* Nor is a number added to a pointer to nothing, which clang's sanitizer alone would notice. */
TEST(Cycle, OfNoWaitsAndOfWaitsWithoutEdgesThereIsNone)
{
    for (bool waits_there : {false, true}) {
        Job job = waiting_for(4, waits_there ? std::vector<int>{2} : std::vector<int>{0, 1, 2, 3});
        OwnArena arena;
        struct ng_wait_graph waits;
        struct ng_cycle cycle = {nullptr, 7, true};
        JobView view(job);
        ASSERT_EQ(ng_wait_graph_find(&view, STALLED, &arena, &waits), 0);
        ASSERT_EQ(waits.count, waits_there ? 1u : 0u);
        ASSERT_EQ(ng_cycle_find(&view, &waits, &arena, &cycle), 0);
        EXPECT_EQ(cycle.count, 0u);
        EXPECT_FALSE(cycle.blurred);
    }
}
