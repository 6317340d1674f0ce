/*
 * `ncclguard analyze`: the verdict from dumps and black boxes, whole, missing or damaged.
 */

#include "tests/gtest/own_json.h"
#include "tests/unit/tools/stuck_job.h"
#include "tests/unit/tools/verdict_json.h"

namespace
{

struct Json : OwnJson {
    using OwnJson::OwnJson;
    std::string missing_evidence() const
    {
        return missing_evidence_of(root);
    }
    std::string text(const char *key) const
    {
        const char *value = json_string_value(json_object_get(root, key));
        return value ? value : "";
    }
    std::vector<int> culprits() const
    {
        std::vector<int> ranks;
        size_t i;
        json_t *culprit;
        json_array_foreach(json_object_get(root, "culprits"), i, culprit)
        {
            ranks.push_back(static_cast<int>(json_integer_value(json_object_get(culprit, "rank"))));
        }
        return ranks;
    }
};

/* `analyze` must find a fault of this kind, of these ranks, in the evidence. */
struct Found : Json {
    std::string err;
    Found(const std::vector<std::string> &evidence, const std::string &kind,
          const std::vector<int> &blamed)
        : Found(kind, blamed, run(arguments_of(evidence)))
    {
    }

  private:
    Found(const std::string &kind, const std::vector<int> &blamed, const Result &result)
        : Json(result.out), err(result.err)
    {
        EXPECT_EQ(result.code(), 3) << result.out << err;
        EXPECT_EQ(text("kind"), kind) << result.out;
        EXPECT_EQ(culprits(), blamed) << result.out;
    }
    static std::vector<std::string> arguments_of(std::vector<std::string> evidence)
    {
        evidence.insert(evidence.begin(), {"analyze", "--json"});
        return evidence;
    }
};

/* Rank 2 of 4 finished six collectives and never came to the seventh. */
const evidence_rank one_missing[] = {
    {0, EVIDENCE_RUNNING, 7, 6, 10000, 0},
    {1, EVIDENCE_RUNNING, 7, 6, 10000, 0},
    {2, EVIDENCE_RUNNING, 6, 6, 0, 0},
    {3, EVIDENCE_RUNNING, 7, 6, 10000, 0},
};

const evidence_rank all_well[] = {
    {0, EVIDENCE_RUNNING, 7, 7, 0, 0},
    {1, EVIDENCE_RUNNING, 7, 7, 0, 0},
};

std::vector<std::unique_ptr<BoxOwner>> own_boxes(const Folder &folder, const evidence_rank *ranks,
                                                 int count, int nranks, bool beats = true)
{
    std::vector<std::unique_ptr<BoxOwner>> owners;
    for (int i = 0; i < count; i++)
        owners.push_back(
            std::make_unique<BoxOwner>(folder.path(), ranks[i], nranks, "test-job", "", beats));
    return owners;
}

/* Those of ranks that are killed together: how they ended is what each box says, whatever the
 * machine takes to make and to kill them. */
std::vector<std::unique_ptr<BoxOwner>>
own_last_boxes(const Folder &folder, const evidence_rank *ranks, int count, int nranks)
{
    HeldClock held;
    return own_boxes(folder, ranks, count, nranks, false);
}

/* Those of ranks that have all been killed. */
void leave_boxes(const Folder &folder, const evidence_rank *ranks, int count, int nranks)
{
    own_last_boxes(folder, ranks, count, nranks);
}

TEST(AnalyzeDumps, NamesTheMissingRankAndExitsWith3)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    Result result = run({"analyze", folder.path(), "--json"});
    EXPECT_EQ(result.code(), 3) << result.err;
    Json verdict(result.out);
    EXPECT_EQ(verdict.text("schema"), "ncclguard.verdict/1");
    EXPECT_EQ(verdict.text("kind"), "missing_rank");
    EXPECT_EQ(verdict.text("job"), "test-job");
    EXPECT_EQ(verdict.text("op"), "AllReduce");
    EXPECT_EQ(verdict.text("confidence"), "certain");
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "seq")), 7);
    EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "detected_by")), -1);

    Result text = run({"analyze", folder.path()});
    EXPECT_EQ(text.code(), 3);
    EXPECT_NE(text.out.find("missing_rank"), std::string::npos);
    EXPECT_NE(text.out.find("rank 2"), std::string::npos);
}

TEST(AnalyzeDumps, AreFoundBesideTheVerdictThatIsNamed)
{
    Folder folder;
    for (const char *name : {"verdict.json", "verdict.txt"}) {
        std::ofstream(folder / name) << "{}";
        EXPECT_EQ(run({"analyze", folder / name}).code(), 2) << "nothing lies beside it";
    }
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    for (const char *name : {"verdict.json", "verdict.txt"})
        EXPECT_EQ(run({"analyze", folder / name}).out, run({"analyze", folder.path()}).out);
}

TEST(AnalyzeDumps, SaysHealthyAndExitsWith0)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), all_well, 2, 2), 0);
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_EQ(Json(result.out).text("kind"), "healthy");
}

TEST(AnalyzeDumps, TakesFilesOneByOneAndSaysWhoIsNotKnown)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    Result result = run({"analyze", "--json", folder / "rank_0.json", folder / "rank_1.json",
                         folder / "rank_3.json"});
    EXPECT_EQ(result.code(), 3);
    Json verdict(result.out);
    EXPECT_TRUE(verdict.culprits().empty()) << "a rank without evidence was blamed";
    EXPECT_GT(json_array_size(json_object_get(verdict.root, "missing_evidence")), 0u);
}

/* The rank that the others wait for knows of no wait. */
TEST(AnalyzeDumps, AreHealthyForCertainOnlyWhereAllRanksTell)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    Result result = run({"analyze", "--json", folder / "rank_2.json"});
    EXPECT_EQ(result.code(), 0) << result.out;
    Json alone(result.out);
    EXPECT_EQ(alone.text("kind"), "healthy");
    EXPECT_EQ(alone.text("confidence"), "likely");
    EXPECT_PRED2(has, alone.missing_evidence(),
                 "no evidence of group ranks 0-1,3 of group 0123456789abcdef\n");

    Folder whole;
    ASSERT_EQ(evidence_write_dumps(whole.path().c_str(), all_well, 2, 2), 0);
    Json all(run({"analyze", "--json", whole.path()}).out);
    EXPECT_EQ(all.text("confidence"), "certain");
    EXPECT_EQ(all.missing_evidence(), "");
}

/* Rank 1 of 2 never came to the seventh collective, of a job that wrote over two of the files of
 * one before. */
TEST(AnalyzeDumps, OfAFolderThatWasUsedAgainTellOfTheNewestJobAlone)
{
    const int64_t now_ns = INT64_C(1795171332692540364), hour_ns = INT64_C(3600000000000);
    const evidence_rank newer[] = {
        {0, EVIDENCE_RUNNING, 9, 8, 10000, 0},
        {1, EVIDENCE_RUNNING, 8, 8, 0, 0},
    };
    Folder folder;
    ASSERT_EQ(evidence_write_dumps_of("first", 0xa, now_ns - hour_ns, folder.path().c_str(),
                                      one_missing, 4, 4),
              0);
    ASSERT_EQ(evidence_write_dumps_of("second", 0xb, now_ns, folder.path().c_str(), newer, 2, 2),
              0);
    for (const std::string &nothing : {std::string(), folder / "none"}) {
        std::vector<std::string> arguments = {"analyze", "--json"};
        if (!nothing.empty())
            arguments.push_back(nothing);
        arguments.push_back(folder.path());
        Result result = run(arguments);
        EXPECT_EQ(result.code(), 3) << result.err;
        EXPECT_PRED2(has, result.err,
                     "rank_2.json, rank_3.json: of another job, first, which is older than second");
        Json verdict(result.out);
        EXPECT_EQ(verdict.text("job"), "second");
        EXPECT_EQ(verdict.text("kind"), "missing_rank");
        EXPECT_EQ(verdict.culprits(), std::vector<int>{1});
        EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "seq")), 9);
        if (nothing.empty()) {
            EXPECT_EQ(verdict.text("confidence"), "certain");
            EXPECT_EQ(verdict.missing_evidence(), "");
        } else {
            EXPECT_PRED2(has, verdict.missing_evidence(), "none: No such file");
        }
    }
}

TEST(AnalyzeDumps, TellWhenTheIncidentWas)
{
    const int64_t then_ns = INT64_C(1763659440000000000), before_ns = then_ns - INT64_C(7000000000);
    const std::string said =
        R"(", "kind": "missing_rank", "time_unix_ns": )" + std::to_string(before_ns) + "}";
    Folder folder;
    ASSERT_EQ(
        evidence_write_dumps_of("test-job", 0xa, then_ns, folder.path().c_str(), one_missing, 4, 4),
        0);
    auto when = [&] {
        Json verdict(run({"analyze", "--json", folder.path()}).out);
        return static_cast<int64_t>(
            json_integer_value(json_object_get(verdict.root, "time_unix_ns")));
    };
    EXPECT_EQ(when(), then_ns);
    EXPECT_PRED2(has, run({"analyze", folder.path()}).out,
                 "  when        2025-11-20 17:24:00 UTC\n");
    folder.write("verdict.json", R"({"job": "another)" + said);
    EXPECT_EQ(when(), then_ns) << "of another job";
    folder.write("verdict.json", R"({"job": "test-job)" + said);
    EXPECT_EQ(when(), before_ns) << "a guard's own";
}

/* Evidence without a clock: a time that nobody knows is none. */
TEST(AnalyzeDumps, WithoutATimeTellNone)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    Json verdict(run({"analyze", "--json", folder.path()}).out);
    EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "time_unix_ns")), 0);
    EXPECT_EQ(run({"analyze", folder.path()}).out.find("  when "), std::string::npos);
}

/* Each host was given a name of its own. */
TEST(AnalyzeDumps, OfOneCommunicatorAreOfOneJobWhateverItIsCalled)
{
    const int64_t now_ns = INT64_C(1795171332692540364);
    Folder folder;
    ASSERT_EQ(
        evidence_write_dumps_of("here", 0xa, now_ns - 1, folder.path().c_str(), one_missing, 2, 4),
        0);
    ASSERT_EQ(
        evidence_write_dumps_of("there", 0xa, now_ns, folder.path().c_str(), one_missing + 2, 2, 4),
        0);
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(result.err.find("left out"), std::string::npos) << result.err;
    EXPECT_EQ(Json(result.out).culprits(), std::vector<int>{2});
}

TEST(AnalyzeDumps, UsesWhatIsUsableAndNamesTheRest)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    std::string cut = read_file(folder / "rank_3.json");
    folder.write("rank_3.json", cut.substr(0, cut.size() / 2));
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(result.code(), 3);
    EXPECT_NE(result.err.find("rank_3.json: damaged"), std::string::npos) << result.err;
    Json verdict(result.out);
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_NE(verdict.text("confidence"), "certain");
    std::string evidence;
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(verdict.root, "missing_evidence"), i, line)
    {
        evidence += json_string_value(line);
    }
    EXPECT_NE(evidence.find("rank_3.json"), std::string::npos) << evidence;
}

/* A file's name is anybody's, and a terminal obeys what it is told. */
TEST(AnalyzeDumps, NamesOfFilesCannotCommandATerminal)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    folder.write("rank_\x1b[2J\x07\x9b.json", "{");
    for (const std::string &path :
         {folder / "rank_\x1b[2J\x07\x9b.json", folder / "no\x1b]0;such\x07", folder.path()}) {
        Result result = run({"analyze", path});
        EXPECT_NE(result.err, "");
        for (const std::string &said : {result.err, result.out})
            for (unsigned char byte : said)
                EXPECT_TRUE(byte >= ' ' || byte == '\n') << said;
        EXPECT_EQ(result.err.find('\x9b'), std::string::npos) << result.err;
    }
}

TEST(AnalyzeDumps, NoticesADeathThatIsYoungerThanTheSuspectTime)
{
    const evidence_rank one_dead[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 300, 0},
        {1, EVIDENCE_DEAD, 6, 6, 0, 200},
        {2, EVIDENCE_RUNNING, 7, 6, 250, 0},
    };
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_dead, 3, 3), 0);
    Found({folder.path()}, "dead_rank", {1});
}

TEST(AnalyzeDumps, TellCallsThatDifferBeforeOneThatIsUnderWayForAMoment)
{
    for (int64_t under_way_ms : {68, 30000}) {
        const evidence_rank ranks[] = {
            {0, EVIDENCE_RUNNING, 8, 8, 0, 0, false, true},
            {1, EVIDENCE_RUNNING, 8, 8, 0, 0},
            {2, EVIDENCE_RUNNING, 7, 6, under_way_ms, 0},
        };
        Folder folder;
        ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), ranks, 3, 3), 0);
        Result result = run({"analyze", "--json", folder.path()});
        EXPECT_EQ(result.code(), 3) << result.err;
        Json verdict(result.out);
        if (under_way_ms > 1000) {
            EXPECT_NE(verdict.text("kind"), "mismatch") << "one is stuck: " << result.out;
            continue;
        }
        EXPECT_EQ(verdict.text("kind"), "mismatch") << result.out;
        EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "seq")), 8);
        EXPECT_EQ(json_array_size(json_object_get(verdict.root, "waiting")), 0u);
    }
}

TEST(AnalyzeDumps, CountsAProcessThatTwoFilesTellOfOnce)
{
    Folder folder;
    ASSERT_EQ(evidence_write_dumps(folder.path().c_str(), one_missing, 4, 4), 0);
    Result result = run({"analyze", "--json", folder.path(), folder / "rank_2.json"});
    EXPECT_EQ(result.code(), 3);
    EXPECT_NE(result.err.find("same process"), std::string::npos) << result.err;
    Json verdict(result.out);
    EXPECT_EQ(verdict.culprits(), std::vector<int>{2});
    EXPECT_EQ(verdict.text("confidence"), "certain") << "nothing is missing";
    EXPECT_EQ(verdict.missing_evidence(), "");
}

/* The copies are as old as the copying, and say themselves when it was. */
TEST(AnalyzeFlight, FilesOfOursThatWereCopiedTellHowLongItWasStuck)
{
    const int64_t now_ns =
        std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
    for (int64_t ago_s : {0, 480, 864000}) {
        Folder folder;
        const int64_t moment_ns = now_ns - ago_s * INT64_C(1000000000);
        ASSERT_EQ(evidence_write_flights(moment_ns, folder.path().c_str(), one_missing, 4, 4), 0);
        Found verdict({folder / "fr"}, "missing_rank", {2});
        EXPECT_EQ(json_integer_value(json_object_get(verdict.root, "stalled_ms")), 10000) << ago_s;
    }
}

/* Its folder in shared memory and that of its evidence. */
TEST(AnalyzeMixed, BlackBoxesAndDumpsOfTheSameProcessesAreNoLessCertain)
{
    Folder boxes, dumps;
    auto owners = own_boxes(boxes, one_missing, 4, 4);
    Result dumped = run({"dump", "--no-stacks", "--out", dumps.path()},
                        {{"NCCLGUARD_STORE", "local:" + boxes.path()}, {"NCCLGUARD_JOB", ""}});
    ASSERT_EQ(dumped.code(), 0) << dumped.err;
    for (const auto &[first, second] : {std::pair(&boxes, &dumps), std::pair(&dumps, &boxes)}) {
        Found verdict({first->path(), second->path()}, "missing_rank", {2});
        EXPECT_EQ(verdict.text("confidence"), "certain");
        EXPECT_EQ(verdict.missing_evidence(), "");
    }
}

struct Unusable {
    std::string name, content, reason;
};

struct UnusableInput : testing::TestWithParam<Unusable> {
};

TEST_P(UnusableInput, IsNamedWithItsReasonAndExitsWith2)
{
    Folder folder;
    std::string path = folder.write(GetParam().name, GetParam().content);
    for (const std::string &given : {path, folder.path()}) {
        Result result = run({"analyze", given, "--json"});
        EXPECT_EQ(result.code(), 2);
        EXPECT_EQ(result.out, "");
        if (given == path) {
            EXPECT_NE(result.err.find(path + ": "), std::string::npos) << result.err;
            EXPECT_NE(result.err.find(GetParam().reason), std::string::npos) << result.err;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnusableInput,
    testing::Values(
        Unusable{"rank_0.json", "", "empty"}, Unusable{"rank_0.json", "{", "damaged"},
        Unusable{"rank_0.json", "{}", "no schema"},
        Unusable{"rank_0.json", "{\"schema\": \"ncclguard.rank/9\"}", "ncclguard.rank/9"},
        Unusable{"verdict.json", "{\"schema\": \"ncclguard.verdict/1\"}", "ncclguard.verdict/1"},
        Unusable{"rank_0.json", "{\"schema\": \"ncclguard.rank/1\"}", "which process"},
        Unusable{"rank_0.json", "{\"schema\": \"ncclguard.rank/1\", \"process\": 3}",
                 "which process"},
        Unusable{"rank_0", std::string("\x80\x04\x95", 3), "cut off"},
        Unusable{"rank_0", std::string("\x80\x04N.", 4), "not of PyTorch's flight recorder"},
        Unusable{"notes.txt", "hello", "neither"}, Unusable{"box-1-2", "hello", "not a black box"},
        Unusable{"box-1-3", std::string(8192, '\0'), "not a black box"}));

TEST(Analyze, SaysOfAFolderWhereItsEvidenceMayBe)
{
    Folder folder;
    EXPECT_EQ(run({"analyze", folder.path()}).code(), 2);
    EXPECT_EQ(run({"analyze", folder / "none"}).code(), 2);
    std::filesystem::create_directory(folder / "inner");
    std::filesystem::create_directory(folder / "archive");
    std::ofstream(folder / "archive/log.1") << "nothing of ours";
    ASSERT_EQ(evidence_write_dumps((folder / "inner").c_str(), all_well, 2, 2), 0);
    Result result = run({"analyze", folder.path()});
    EXPECT_EQ(result.code(), 2);
    EXPECT_NE(result.err.find("inner"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("archive"), std::string::npos) << result.err;
}

TEST(AnalyzeBoxes, NamesTheMissingRankOfALiveJob)
{
    Folder folder;
    auto owners = own_boxes(folder, one_missing, 4, 4);
    Found({folder.path()}, "missing_rank", {2});
}

TEST(AnalyzeBoxes, NamesTheMissingRankAfterTheWholeJobWasKilled)
{
    Folder folder;
    leave_boxes(folder, one_missing, 4, 4);
    Found({folder.path()}, "missing_rank", {2});
}

TEST(AnalyzeBoxes, NamesTheRankThatWasKilledAmongTheLiving)
{
    const evidence_rank young[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 200, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 0},
    };
    Folder folder;
    auto owners = own_boxes(folder, young, 2, 2);
    Result before = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(before.code(), 0) << before.out;
    owners[1]->end();
    Found({folder.path()}, "dead_rank", {1});
}

TEST(AnalyzeBoxes, NamesTheRankThatDiedLongBeforeTheOthersWereKilled)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 60000, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 61000},
    };
    Folder folder;
    leave_boxes(folder, ranks, 2, 2);
    Found({folder.path()}, "dead_rank", {1});
}

/* The launcher ended the others before anybody had waited for as long as the suspect time. */
TEST(AnalyzeBoxes, NameTheRankThatDiedFirstThoughNobodyHadWaitedForLong)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 3700, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 4000},
    };
    Folder folder, dumps;
    leave_boxes(folder, ranks, 2, 2);
    Result dumped = run({"dump", "--no-stacks", "--out", dumps.path()},
                        {{"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}});
    ASSERT_EQ(dumped.code(), 0) << dumped.err;
    /* A dump that is written after all have died shows all of them dead at the same moment. */
    for (const Folder *evidence : {&folder, &dumps}) {
        Found verdict({evidence->path()}, "dead_rank", {1});
        EXPECT_EQ(verdict.text("confidence"), "likely") << "it may have been frozen";
    }
}

TEST(AnalyzeBoxes, NameTheRankThatLeftThoughNobodyHadWaitedForLong)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 900, 0},
        {1, EVIDENCE_EXITED, 6, 6, 0, 1000},
    };
    Folder folder;
    leave_boxes(folder, ranks, 2, 2);
    Found({folder.path()}, "left_early", {1});
}

TEST(AnalyzeBoxes, OfRanksThatDiedAtOnceDoNotTellWhomTheOthersWaitedFor)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 700, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 600},
    };
    Folder folder;
    leave_boxes(folder, ranks, 2, 2);
    Found verdict({folder.path()}, "unknown", {});
    EXPECT_NE(verdict.missing_evidence().find("ended first"), std::string::npos);
}

/* Which of them was first, a guard has told while the job ran. */
TEST(AnalyzeBoxes, WithWhatAGuardSaidNameTheRankThatDied)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 700, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 600},
        {2, EVIDENCE_RUNNING, 6, 6, 0, 600},
    };
    for (bool by_name : {true, false}) {
        Folder folder;
        {
            auto owners = own_last_boxes(folder, ranks, 3, 3);
            char host[64] = "";
            gethostname(host, sizeof(host) - 1);
            std::string one = "dead_rank: rank 1 (host " + std::string(host) + ", pid " +
                              std::to_string(owners[1]->pid()) +
                              ") died without finishing AllReduce #7; certain";
            ASSERT_EQ(evidence_tell_incident(folder.path().c_str(), 6,
                                             "gpu_stall: of what is done; certain"),
                      0);
            ASSERT_EQ(evidence_tell_incident(folder.path().c_str(), 7,
                                             by_name ? one.c_str()
                                                     : "dead_rank: ranks 1,2 died; certain"),
                      0);
            ASSERT_EQ(evidence_tell_incident(folder.path().c_str(), 6,
                                             "gpu_stall: of what is done; certain"),
                      0);
        }
        Result result = run({"analyze", "--json", folder.path()});
        EXPECT_EQ(result.code(), 3) << result.out << result.err;
        Json verdict(result.out);
        EXPECT_EQ(verdict.text("kind"), by_name ? "dead_rank" : "unknown") << result.out;
        if (by_name) {
            EXPECT_EQ(verdict.culprits(), std::vector<int>{1});
            EXPECT_EQ(verdict.text("confidence"), "certain");
        } else {
            EXPECT_PRED2(has, verdict.missing_evidence(),
                         "a guard said: dead_rank: ranks 1,2 died");
        }
    }
}

/* One rank left with the error of the refused call, and the launcher ended the other in it. */
TEST(AnalyzeBoxes, OfRanksThatEndedInACallThatDifferedBlameNoneOfThem)
{
    const evidence_rank ranks[] = {
        {0, EVIDENCE_EXITED, 7, 6, 0, 0},
        {1, EVIDENCE_RUNNING, 7, 6, 700, 0},
    };
    const std::string said =
        "mismatch: rank 5 (host far, pid 9) did not match the others in AllReduce #7; certain";
    for (bool told : {false, true}) {
        Folder folder;
        {
            auto owners = own_last_boxes(folder, ranks, 2, 6);
            if (told) {
                ASSERT_EQ(evidence_tell_incident(folder.path().c_str(), 7, said.c_str()), 0);
            }
        }
        Result result = run({"analyze", "--json", folder.path()});
        EXPECT_EQ(result.code(), 3) << result.out << result.err;
        Json verdict(result.out);
        EXPECT_EQ(verdict.text("kind"), told ? "mismatch" : "left_early") << result.out;
        EXPECT_EQ(verdict.culprits(), told ? std::vector<int>{} : std::vector<int>{0});
        if (told) {
            EXPECT_PRED2(has, verdict.missing_evidence(), "a guard said: " + said) << result.out;
        }
    }
}

TEST(AnalyzeBoxes, OfAJobThatWasKilledInGoodHealthAreHealthy)
{
    const evidence_rank busy[] = {
        {0, EVIDENCE_RUNNING, 7, 6, 3, 0},
        {1, EVIDENCE_RUNNING, 6, 6, 0, 0},
    };
    Folder folder;
    leave_boxes(folder, busy, 2, 2);
    Result result = run({"analyze", folder.path()});
    EXPECT_EQ(result.code(), 0) << result.out << result.err;
    EXPECT_NE(result.out.find("likely"), std::string::npos)
        << "one waited for the other: " << result.out;
    /* Asked for a shorter time, it is a rank that has not come. */
    EXPECT_EQ(run({"analyze", "--stalled", "2ms", folder.path()}).code(), 3);
}

TEST(AnalyzeBoxes, ThatWereCutOffAreNamedAndTheOthersUsed)
{
    Folder folder;
    auto owners = own_boxes(folder, one_missing, 4, 4);
    std::string name;
    for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
        if (entry.path().filename().string().rfind("box-" + std::to_string(owners[3]->pid()) + "-",
                                                   0) == 0)
            name = entry.path().filename();
    ASSERT_NE(name, "");
    std::string content = read_file(folder / name);
    owners[3]->end();
    std::filesystem::remove(folder / name);
    folder.write(name, content.substr(0, 8192));
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(result.code(), 3);
    EXPECT_PRED2(has, result.err, name + ": a black box that was cut off");
    EXPECT_EQ(Json(result.out).culprits(), std::vector<int>{2});
}

TEST(AnalyzeBoxes, OfWhichOneWasCutOffAreHealthyWithADoubt)
{
    Folder folder;
    leave_boxes(folder, all_well, 2, 2);
    std::string name = std::filesystem::directory_iterator(folder.path())->path().filename();
    std::filesystem::resize_file(folder / name, 8192);
    Result result = run({"analyze", "--json", folder.path()});
    EXPECT_EQ(result.code(), 0) << result.out << result.err;
    Json verdict(result.out);
    EXPECT_EQ(verdict.text("confidence"), "likely");
    EXPECT_PRED2(has, verdict.missing_evidence(), name + ": a black box that was cut off");
    EXPECT_NE(verdict.missing_evidence().find("no evidence of group rank "), std::string::npos);
}

/* What must come back from a dump: everything but when it was written and what the reader calls its
 * source. */
std::string comparable(const std::string &path)
{
    json_error_t error;
    json_t *root = json_load_file(path.c_str(), 0, &error);
    if (!root)
        return error.text;
    json_object_del(root, "written_unix_ns");
    json_object_del(root, "notes");
    json_object_del(json_object_get(root, "process"), "source");
    char *text = json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(1));
    std::string result = text;
    free(text);
    json_decref(root);
    return result;
}

TEST(ReadDump, UnderstandsEveryFieldThatIsWritten)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        Folder first, second;
        char name[64], why[256] = "";
        ASSERT_EQ(evidence_write_random(first.path().c_str(), seed, name, sizeof(name)), 0);
        ASSERT_EQ(
            evidence_copy_dump((first / name).c_str(), second.path().c_str(), why, sizeof(why)), 0)
            << why;
        ASSERT_EQ(comparable(second / name), comparable(first / name)) << "seed " << seed;
    }
}

TEST(ReadDump, SurvivesDamageAnywhere)
{
    Folder folder;
    char name[64];
    unsigned seed = 4711;
    ASSERT_EQ(evidence_write_random(folder.path().c_str(), 7, name, sizeof(name)), 0);
    std::string whole = read_file(folder / name);
    ASSERT_EQ(evidence_judge((folder / name).c_str(), 1), 0);
    for (int round = 0; round < 600; round++) {
        std::string damaged = whole;
        if (round % 4 == 0)
            damaged.resize(static_cast<size_t>(rand_r(&seed)) % damaged.size());
        for (int i = 0; i < 3 && !damaged.empty(); i++)
            damaged[static_cast<size_t>(rand_r(&seed)) % damaged.size()] =
                "0123456789-\"{}[],:x"[rand_r(&seed) % 19];
        evidence_judge(folder.write("damaged", damaged).c_str(), 1);
    }
    EXPECT_LT(evidence_judge(folder.write("damaged", whole.substr(0, whole.size() - 3)).c_str(), 1),
              0);
}

TEST(ReadBox, SurvivesDamageAnywhere)
{
    Folder folder;
    unsigned seed = 4711;
    leave_boxes(folder, one_missing, 1, 4);
    std::string name = std::filesystem::directory_iterator(folder.path())->path();
    /* Group 0 lies behind the records; what follows it is zeros. */
    std::string whole = read_file(name);
    size_t used = 64 * 1024;
    ASSERT_GT(whole.size(), used);
    ASSERT_EQ(evidence_judge(name.c_str(), 1), 0);
    for (int round = 0; round < 300; round++) {
        std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
        std::vector<std::pair<size_t, char>> before;
        for (int i = 0; i < 40; i++) {
            /* Half of the damage where every byte counts: the header's first 200 bytes. */
            size_t at = static_cast<size_t>(rand_r(&seed)) % (i % 2 ? used : 200);
            before.emplace_back(at, whole[at]);
            file.seekp(static_cast<std::streamoff>(at));
            file.put(static_cast<char>(rand_r(&seed)));
        }
        file.close();
        evidence_judge(name.c_str(), 1);
        file.open(name, std::ios::in | std::ios::out | std::ios::binary);
        for (const auto &[at, byte] : before) {
            file.seekp(static_cast<std::streamoff>(at));
            file.put(byte);
        }
    }
    EXPECT_EQ(evidence_judge(name.c_str(), 1), 0);
}

} /* namespace */
