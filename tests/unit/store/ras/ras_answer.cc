/*
 * Answers of NCCL's RAS, as its releases write them, and what is no answer.
 */
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "store/ras/ras_answer.h"
}

namespace
{
struct Answer {
    int error;
    struct ng_ras_answer answer = {};

    explicit Answer(const std::string &text)
    {
        /* Of its own, so that a sanitizer sees what is read behind its end. */
        std::vector<char> bytes(text.begin(), text.end());
        error = ng_ras_answer_read(bytes.data(), bytes.size(), &answer);
    }
    ~Answer()
    {
        ng_arena_reset(&answer.arena);
    }
    const struct ng_ras_communicator &at(uint32_t i) const
    {
        return answer.communicators[i];
    }
};

std::string rank(int number, int pid, int all_reduces, const char *flag = "")
{
    std::string finalize = strcmp(flag, "finalize_called") == 0 ? "true" : "false";

    return "{\"rank\": " + std::to_string(number) +
           ",\n\"host\": \"10.0.0.1\", \"pid\": " + std::to_string(pid) +
           ", \"cuda_dev\": 0, \"nvml_dev\": 0,\n\"status\": {\"init_state\": 0, \"async_error\": "
           "0, \"finalize_called\": " +
           finalize +
           ", \"destroy_flag\": false, \"abort_flag\": false},\n\"collective_counts\": "
           "{\"Broadcast\": 1, \"Reduce\": 0, \"AllGather\": 0, \"ReduceScatter\": 0, "
           "\"AllReduce\": " +
           std::to_string(all_reduces) + "}}";
}

/* 2.28.7 to 2.28.9 write no comma behind nvml_dev. */
std::string missing(int number, int pid, bool unresponsive, bool dead, const char *comma = "")
{
    return "{\"rank\": " + std::to_string(number) +
           ", \"host\": \"10.0.0.2\", \"pid\": " + std::to_string(pid) +
           ", \"cuda_dev\": 1, \"nvml_dev\": 1" + comma +
           "\n\"status\": {\"unresponsive\": " + (unresponsive ? "true" : "false") +
           ", \"considered_dead\": " + (dead ? "true" : "false") + "}}";
}

std::string json(const std::string &ranks, const std::string &lacks, int size = 4)
{
    return "{\n  \"nccl_version\": \"2.28.9\",\n  \"timestamp\": \"2026-11-26 12:00:00\",\n"
           "  \"communicators_count\": 1,\n  \"communicators\": [\n    {\n"
           "      \"hash\": \"0xae94423cfbb2ef4a\",\n"
           "      \"secondary_hash\": \"0xb7:0xb8\",\n      \"size\": " +
           std::to_string(size) + ",\n      \"ranks_count\": 1, \"missing_ranks_count\": 1,\n" +
           "      \"ranks\": [\n" + ranks + "\n      ],\n      \"missing_ranks\": [\n" + lacks +
           "\n      ]\n    }\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.000,\n"
           "    \"timeouts_count\": 0\n  }\n}\n";
}

const char HEAD[] =
    "NCCL version 2.26.2 compiled with CUDA 12.8\n"
    "CUDA runtime version 12080, driver version 12080\n\n"
    "Job summary\n===========\n\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      4          8            1         32       32\n\n"
    "Communicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         4       7-8        32        32   RUNNING  INCOMPLETE\n"
    "    1         8         4         1         4        32   RUNNING      OK\n"
    "\nErrors\n======\n\n";
} // namespace

TEST(RasAnswer, JsonTellsEachRank)
{
    for (const char *comma : {"", ","}) {
        Answer answer(
            json(rank(0, 11, 20) + ",\n" + rank(2, 13, 19, "finalize_called"),
                 missing(1, 12, true, false, comma) + ",\n" + missing(3, 14, true, true, comma)));
        ASSERT_EQ(answer.error, 0);
        ASSERT_EQ(answer.answer.count, 1u);
        const struct ng_ras_communicator &communicator = answer.at(0);
        EXPECT_EQ(communicator.hash, 0xae94423cfbb2ef4a);
        EXPECT_EQ(communicator.size, 4);
        EXPECT_FALSE(communicator.partial);
        ASSERT_EQ(communicator.rank_count, 4u);
        const enum ng_ras_state states[] = {NG_RAS_MEMBER, NG_RAS_UNREACHABLE, NG_RAS_ENDING,
                                            NG_RAS_DEAD};
        for (int i = 0; i < 4; i++) {
            EXPECT_EQ(communicator.ranks[i].rank, i);
            EXPECT_EQ(communicator.ranks[i].pid, 11 + i);
            EXPECT_EQ(communicator.ranks[i].state, states[i]);
            EXPECT_EQ(communicator.ranks[i].counts, i % 2 == 0);
        }
        EXPECT_EQ(communicator.ranks[0].launched, 21u);
        EXPECT_STREQ(communicator.ranks[1].host, "10.0.0.2");
    }
}

TEST(RasAnswer, JsonTellsAProcessThatHasLeftTheCommunicator)
{
    Answer answer(json(rank(0, 11, 20), missing(1, 12, false, false), 2));
    ASSERT_EQ(answer.error, 0);
    EXPECT_EQ(answer.at(0).ranks[1].state, NG_RAS_NO_MEMBER);
}

TEST(RasAnswer, WhatIsNotAnAnswerIsRefused)
{
    const std::string good = json(rank(0, 11, 20) + "," + rank(1, 12, 20), "", 2);

    ASSERT_EQ(Answer(good).error, 0);
    /* Cut off anywhere. */
    for (size_t bytes = 0; bytes + 3 < good.size(); bytes++)
        EXPECT_EQ(Answer(good.substr(0, bytes)).error, -EBADMSG) << bytes;
    for (const std::string &bad :
         {std::string("220 mail.example ESMTP\r\n"), std::string("HTTP/1.1 400 Bad\r\n\r\n"),
          std::string(1000, '['), "{\"communicators\": [" + std::string(1000, '[') + "]}",
          json(rank(0, 11, 20) + "," + rank(0, 12, 20), "", 2),  /* a rank twice */
          json(rank(1, 11, 20) + "," + rank(0, 12, 20), "", 2),  /* out of order */
          json(rank(0, 11, 20), missing(0, 12, true, false), 2), /* there and missing */
          json(rank(2, 11, 20), "", 2),                          /* beyond its size */
          json(rank(-1, 11, 20), "", 2), json(rank(0, 11, 20), "", 0),
          json(rank(0, 11, 20), "", 2000000000), json("{\"rank\": 99999999999999999999}", "", 2)})
        EXPECT_EQ(Answer(bad).error, -EBADMSG) << bad.substr(0, 80);
}

TEST(RasAnswer, AHostThatIsNoAddressIsLeftOut)
{
    std::string text = json(rank(0, 11, 20), "", 1);

    text.replace(text.find("10.0.0.1"), 8, "a\x1b[31mred");
    Answer answer(text);
    ASSERT_EQ(answer.error, 0);
    EXPECT_STREQ(answer.at(0).ranks[0].host, "");
}

TEST(RasAnswer, TextTellsTheRanksThatDiffer)
{
    Answer answer(std::string(HEAD) +
                  "INCOMPLETE\n  Missing communicator data from 1 job process\n"
                  "  Process 3487984 on node 172.16.64.213 managing GPU 5\n\n"
                  "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
                  "  Process 3487985 on node 172.16.64.213 managing GPU 6\n\n"
                  "#0-0 (cf264af53edbe986) INCOMPLETE\n"
                  "  Missing communicator data from 2 ranks\n"
                  "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n"
                  "  Rank 22 -- GPU 6 managed by process 3487985 on node 172.16.64.213\n\n"
                  "Warnings\n========\n\n"
                  "#0-0 (cf264af53edbe986) MISMATCH\n"
                  "  Communicator ranks have different status\n"
                  "  29 ranks have status RUNNING\n"
                  "  Rank 4 has status FINALIZE -- GPU 4 managed by process 77 on node 1.2.3.4\n"
                  "  Communicator ranks have different AllReduce operation counts\n"
                  "  27 ranks have launched up to operation 6650\n"
                  "  2 ranks have launched up to operation 6649\n"
                  "  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210\n"
                  "  Rank 3 -- GPU 3 (NVML 7) managed by process 483075 on node 172.16.64.210\n"
                  "  Rank 7 has not launched any operations -- [process information not found]\n\n"
                  "  Communicator ranks have different Broadcast operation counts\n"
                  "  29 ranks have launched up to operation 5\n"
                  "  Rank 2 has launched up to operation 4 -- GPU 2 managed by process 483074 on "
                  "node 172.16.64.210\n\n");
    ASSERT_EQ(answer.error, 0);
    ASSERT_EQ(answer.answer.count, 1u);
    const struct ng_ras_communicator &communicator = answer.at(0);
    EXPECT_EQ(communicator.hash, 0xcf264af53edbe986);
    EXPECT_EQ(communicator.size, 32);
    EXPECT_TRUE(communicator.partial && communicator.counts);
    EXPECT_EQ(communicator.launched, 6655u);
    struct {
        int rank, pid;
        enum ng_ras_state state;
        bool counts;
        uint64_t launched;
    } const wanted[] = {
        {2, 483074, NG_RAS_MEMBER, true, 6653},      {3, 483075, NG_RAS_MEMBER, true, 6654},
        {4, 77, NG_RAS_ENDING, true, 6655},          {7, 0, NG_RAS_MEMBER, true, 5},
        {21, 3487984, NG_RAS_UNREACHABLE, false, 0}, {22, 3487985, NG_RAS_DEAD, false, 0}};
    ASSERT_EQ(communicator.rank_count, 6u);
    for (unsigned i = 0; i < 6; i++) {
        EXPECT_EQ(communicator.ranks[i].rank, wanted[i].rank);
        EXPECT_EQ(communicator.ranks[i].pid, wanted[i].pid);
        EXPECT_EQ(communicator.ranks[i].state, wanted[i].state) << i;
        EXPECT_EQ(communicator.ranks[i].counts, wanted[i].counts) << i;
        if (wanted[i].counts) {
            EXPECT_EQ(communicator.ranks[i].launched, wanted[i].launched) << i;
        }
    }
    EXPECT_STREQ(communicator.ranks[1].host, "172.16.64.210");
}

/* Before 2.26 the counts are of all operations together, and a missing rank is a number alone. */
TEST(RasAnswer, TextOfTheFirstReleases)
{
    Answer answer(std::string(HEAD) +
                  "#0-0 (cf264af53edbe986) INCOMPLETE\n"
                  "  Missing communicator data from 2 ranks\n  The missing ranks: 21,30\n\n"
                  "Warnings\n========\n\n#0-0 (cf264af53edbe986) MISMATCH\n"
                  "  Communicator ranks have different collective operation counts\n"
                  "  29 ranks have launched up to operation 20\n"
                  "  Rank 3 has launched up to operation 19 -- GPU 3 managed by process 9 on node "
                  "::1\n");
    ASSERT_EQ(answer.error, 0);
    const struct ng_ras_communicator &communicator = answer.at(0);
    ASSERT_EQ(communicator.rank_count, 3u);
    EXPECT_EQ(communicator.ranks[0].launched, 19u);
    EXPECT_EQ(communicator.ranks[1].state, NG_RAS_UNREACHABLE);
    EXPECT_EQ(communicator.ranks[2].rank, 30);
    EXPECT_EQ(communicator.launched, 20u);
}

/* Two halves, neither of which is listed: who is in which is not known. */
TEST(RasAnswer, TextWithTwoHalvesTellsNoCounts)
{
    Answer answer(std::string(HEAD) +
                  "Warnings\n========\n\n#1-3 (cf264af53edbe986) MISMATCH\n"
                  "  Communicator ranks have different AllReduce operation counts\n"
                  "  2 ranks have launched up to operation 20\n"
                  "  2 ranks have launched up to operation 19\n\n");
    ASSERT_EQ(answer.error, 0);
    ASSERT_EQ(answer.answer.count, 1u);
    EXPECT_EQ(answer.at(0).size, 4);
    EXPECT_FALSE(answer.at(0).counts);
}

TEST(RasAnswer, TextThatIsCutOffOrImpossibleIsRefused)
{
    for (const char *rest :
         {"", "#0-0 (cf264af53edbe986) INCOMPLETE\n",
          "#2-0 (cf264af53edbe986) INCOMPLETE\n\nWarnings\n====\n",
          "#0-0 (cf264af53edb) INCOMPLETE\n\nWarnings\n====\n",
          "#0-0 (cf264af53edbe986) INCOMPLETE\n  The missing rank: 32\n\nWarnings\n====\n"})
        EXPECT_EQ(Answer(std::string(HEAD) + rest).error, -EBADMSG) << rest;
    EXPECT_EQ(Answer(std::string(HEAD) + "Warnings\n========\n\n").error, 0);
}

/* As NCCL 2.28.9 answered on two GPUs of one host, rank 1 of which was killed, or did not come. */
static const char real_dead_json[] =
    "{\n"
    "  \"nccl_version\": \"2.28.9\",\n"
    "  \"cuda_runtime_version\": 13000,\n"
    "  \"cuda_driver_version\": 13000,\n"
    "  \"timestamp\": \"2026-11-26 23:51:57\",\n"
    "  \"communicators_count\": 1,\n"
    "  \"communicators\": [\n"
    "    {\n"
    "      \"hash\": \"0xc9b2ee27752fd361\",\n"
    "      \"secondary_hash\": \"0x19615dd3307a7f62:0x9cc836361ab95ec8\",\n"
    "      \"size\": 2,\n"
    "      \"ranks_count\": 1,\n"
    "      \"missing_ranks_count\": 1,\n"
    "      \"ranks\": [\n"
    "        {\n"
    "          \"rank\": 0,\n"
    "          \"host\": \"192.0.2.2\",\n"
    "          \"pid\": 670,\n"
    "          \"cuda_dev\": 0,\n"
    "          \"nvml_dev\": 0,\n"
    "          \"status\": {\n"
    "            \"init_state\": 0,\n"
    "            \"async_error\": 0,\n"
    "            \"finalize_called\": false,\n"
    "            \"destroy_flag\": false,\n"
    "            \"abort_flag\": false\n"
    "          },\n"
    "          \"collective_counts\": {\n"
    "            \"Broadcast\": 0,\n"
    "            \"Reduce\": 0,\n"
    "            \"AllGather\": 0,\n"
    "            \"ReduceScatter\": 0,\n"
    "            \"AllReduce\": 20\n"
    "          }\n"
    "        }\n"
    "      ],\n"
    "      \"missing_ranks\": [\n"
    "        {\n"
    "          \"rank\": 1,\n"
    "          \"host\": \"192.0.2.2\",\n"
    "          \"pid\": 671,\n"
    "          \"cuda_dev\": 1,\n"
    "          \"nvml_dev\": 1\n"
    "          \"status\": {\n"
    "            \"unresponsive\": true,\n"
    "            \"considered_dead\": false\n"
    "          }\n"
    "        }\n"
    "      ]\n"
    "    }\n"
    "  ],\n"
    "  \"ras\": {\n"
    "    \"collection_time_sec\": 0.000,\n"
    "    \"timeouts_count\": 0\n"
    "  }\n"
    "}\n";
static const char real_hang_json[] =
    "{\n"
    "  \"nccl_version\": \"2.28.9\",\n"
    "  \"cuda_runtime_version\": 13000,\n"
    "  \"cuda_driver_version\": 13000,\n"
    "  \"timestamp\": \"2026-11-26 23:51:28\",\n"
    "  \"communicators_count\": 1,\n"
    "  \"communicators\": [\n"
    "    {\n"
    "      \"hash\": \"0x34b90e1ab66c6b86\",\n"
    "      \"secondary_hash\": \"0x84677dc671b71787:0x67096600f2cf00ce\",\n"
    "      \"size\": 2,\n"
    "      \"ranks_count\": 2,\n"
    "      \"missing_ranks_count\": 0,\n"
    "      \"ranks\": [\n"
    "        {\n"
    "          \"rank\": 0,\n"
    "          \"host\": \"192.0.2.2\",\n"
    "          \"pid\": 604,\n"
    "          \"cuda_dev\": 0,\n"
    "          \"nvml_dev\": 0,\n"
    "          \"status\": {\n"
    "            \"init_state\": 0,\n"
    "            \"async_error\": 0,\n"
    "            \"finalize_called\": false,\n"
    "            \"destroy_flag\": false,\n"
    "            \"abort_flag\": false\n"
    "          },\n"
    "          \"collective_counts\": {\n"
    "            \"Broadcast\": 0,\n"
    "            \"Reduce\": 0,\n"
    "            \"AllGather\": 0,\n"
    "            \"ReduceScatter\": 0,\n"
    "            \"AllReduce\": 20\n"
    "          }\n"
    "        },\n"
    "        {\n"
    "          \"rank\": 1,\n"
    "          \"host\": \"192.0.2.2\",\n"
    "          \"pid\": 605,\n"
    "          \"cuda_dev\": 1,\n"
    "          \"nvml_dev\": 1,\n"
    "          \"status\": {\n"
    "            \"init_state\": 0,\n"
    "            \"async_error\": 0,\n"
    "            \"finalize_called\": false,\n"
    "            \"destroy_flag\": false,\n"
    "            \"abort_flag\": false\n"
    "          },\n"
    "          \"collective_counts\": {\n"
    "            \"Broadcast\": 0,\n"
    "            \"Reduce\": 0,\n"
    "            \"AllGather\": 0,\n"
    "            \"ReduceScatter\": 0,\n"
    "            \"AllReduce\": 19\n"
    "          }\n"
    "        }\n"
    "      ],\n"
    "      \"missing_ranks\": [\n"
    "\n"
    "      ]\n"
    "    }\n"
    "  ],\n"
    "  \"ras\": {\n"
    "    \"collection_time_sec\": 0.000,\n"
    "    \"timeouts_count\": 0\n"
    "  }\n"
    "}\n";
static const char real_dead_text[] =
    "NCCL version 2.28.9 compiled with CUDA 13.0\n"
    "CUDA runtime version 13000, driver version 13000\n"
    "\n"
    "Job summary\n"
    "===========\n"
    "\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      1          2            1          2        2\n"
    "\n"
    "Communicators... (0.000s)\n"
    "=============\n"
    "\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n"
    "\n"
    "Errors\n"
    "======\n"
    "\n"
    "INCOMPLETE\n"
    "  Missing communicator data from 1 job process\n"
    "  Process 671 on node 192.0.2.2 managing GPU 1\n"
    "\n"
    "#0-0 (c9b2ee27752fd361) INCOMPLETE\n"
    "  Missing communicator data from 1 rank\n"
    "  Rank 1 -- GPU 1 managed by process 671 on node 192.0.2.2\n"
    "\n"
    "Warnings\n"
    "========\n";
static const char real_hang_text[] =
    "NCCL version 2.28.9 compiled with CUDA 13.0\n"
    "CUDA runtime version 13000, driver version 13000\n"
    "\n"
    "Job summary\n"
    "===========\n"
    "\n"
    "  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      1          2            1          2        2\n"
    "\n"
    "Communicators... (0.000s)\n"
    "=============\n"
    "\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         1         2         2         2   RUNNING  MISMATCH\n"
    "\n"
    "Errors\n"
    "======\n"
    "\n"
    "Warnings\n"
    "========\n"
    "\n"
    "#0-0 (34b90e1ab66c6b86) MISMATCH\n"
    "  Communicator ranks have different AllReduce operation counts\n"
    "  Rank 0 has launched up to operation 20 -- GPU 0 managed by process 604 on node 192.0.2.2\n"
    "  Rank 1 has launched up to operation 19 -- GPU 1 managed by process 605 on node 192.0.2.2\n";

/* Two bytes of text would make a hundred of memory. */
TEST(RasAnswer, ManyRemarksAreRefused)
{
    for (bool many : {false, true}) {
        std::string ranks;
        for (int i = 0; i < (many ? 1 << 18 : 1000); i++)
            ranks += "{\"rank\":" + std::to_string(i) + "}";
        EXPECT_EQ(Answer(json(ranks, "", 1 << 20)).error, 0);
        EXPECT_EQ(Answer(json(ranks, missing(1 << 19, 1001, true, false), 1 << 20)).error,
                  many ? -EBADMSG : 0);
    }
    for (bool many : {false, true}) {
        std::string text = std::string(HEAD) + "#0-0 (cf264af53edbe986) INCOMPLETE\n"
                                               "  Missing communicator data from 2 ranks\n";
        for (int i = 0; i < (many ? 1 << 18 : 1000); i++)
            text += "  Rank 1 -- GPU 5 managed by process 7 on node 172.16.64.213\n";
        EXPECT_EQ(Answer(text + "\nWarnings\n========\n\n").error, many ? -EBADMSG : 0);
    }
}

/* What did not come in time is not out of reach for that. */
TEST(RasAnswer, WhereRasItselfWaitedInVainNobodyIsOutOfReach)
{
    std::string text =
        json(rank(0, 1000, 7), missing(1, 1001, true, false) + missing(2, 1002, true, true));
    text.replace(text.find("timeouts_count\": 0") + 17, 1, "2");
    Answer answer(text);
    ASSERT_EQ(answer.error, 0);
    ASSERT_EQ(answer.at(0).rank_count, 3u);
    EXPECT_EQ(answer.at(0).ranks[1].state, NG_RAS_MEMBER);
    EXPECT_FALSE(answer.at(0).ranks[1].counts);
    EXPECT_EQ(answer.at(0).ranks[2].state, NG_RAS_DEAD);
}

TEST(RasAnswer, NcclOfTwoGpus)
{
    for (const char *text : {real_dead_json, real_dead_text}) {
        Answer answer(text);
        ASSERT_EQ(answer.error, 0);
        ASSERT_EQ(answer.answer.count, 1u);
        EXPECT_EQ(answer.at(0).hash, 0xc9b2ee27752fd361);
        EXPECT_EQ(answer.at(0).size, 2);
        const struct ng_ras_rank &last = answer.at(0).ranks[answer.at(0).rank_count - 1];
        EXPECT_EQ(last.rank, 1);
        EXPECT_EQ(last.pid, 671);
        EXPECT_STREQ(last.host, "192.0.2.2");
        EXPECT_EQ(last.state, NG_RAS_UNREACHABLE);
    }
    for (const char *text : {real_hang_json, real_hang_text}) {
        Answer answer(text);
        ASSERT_EQ(answer.error, 0);
        ASSERT_EQ(answer.answer.count, 1u);
        EXPECT_EQ(answer.at(0).hash, 0x34b90e1ab66c6b86);
        ASSERT_EQ(answer.at(0).rank_count, 2u);
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(answer.at(0).ranks[i].pid, 604 + i);
            EXPECT_TRUE(answer.at(0).ranks[i].counts);
            EXPECT_EQ(answer.at(0).ranks[i].launched, 20u - i);
            EXPECT_EQ(answer.at(0).ranks[i].state, NG_RAS_MEMBER);
        }
    }
}
