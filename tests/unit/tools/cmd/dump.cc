/*
 * `ncclguard dump`: the evidence of a job from its black boxes alone.
 */

#include <sys/stat.h>

#include "tests/gtest/own_json.h"
#include "tests/unit/tools/stuck_job.h"

namespace
{

bool exists(const std::string &path)
{
    struct stat status;
    return stat(path.c_str(), &status) == 0;
}

struct Dump {
    Folder out; /* before it is used */
    Result result;

    Dump(const Stuck &job, std::vector<std::string> more = {}) : result(dump(job, more))
    {
    }

  private:
    Result dump(const Stuck &job, std::vector<std::string> more)
    {
        more.insert(more.begin(), {"dump", "--no-stacks", "--out", out.path()});
        return run(more, job.environment());
    }
};

TEST(Dump, WritesEveryRankTheVerdictAndTheTimeline)
{
    Stuck job;
    Dump dump(job);
    expect_says(dump.result, {"4 dumps in " + dump.out.path(), "missing_rank: rank 2"});
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_TRUE(exists(dump.out.path() + "/rank_" + std::to_string(rank) + ".json"));
        EXPECT_TRUE(exists(dump.out.path() + "/fr/rank_" + std::to_string(rank)));
    }
    EXPECT_TRUE(has(read_file(dump.out.path() + "/verdict.json"), "\"action\": \"none\""));
    EXPECT_TRUE(exists(dump.out.path() + "/trace.json"));
}

TEST(Dump, WhatItWritesIsWhatAnalyzeReads)
{
    Stuck job;
    Dump dump(job);
    Result result = run({"analyze", dump.out.path(), "--json"});
    EXPECT_EQ(result.code(), 3) << result.err;
    OwnJson verdict(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(verdict, "kind")), "missing_rank");
    json_t *culprits = json_object_get(verdict, "culprits");
    ASSERT_EQ(json_array_size(culprits), 1u);
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(culprits, 0), "rank")), 2);
}

/* A dump at an incident says that something is stuck, however young; one that was asked for does
 * not. */
TEST(Dump, OfAHealthyJobIsHealthyToAnalyzeToo)
{
    Stuck job("test-job", "world", 300);
    Dump dump(job);
    EXPECT_TRUE(has(dump.result.out, "healthy")) << dump.result.out;
    Result result = run({"analyze", dump.out.path()});
    EXPECT_EQ(result.code(), 0) << result.out;
}

TEST(Dump, OfAHealthyJobIsHealthyInPyTorchsFormatAlone)
{
    Stuck job("test-job", "world", 300);
    Dump dump(job);
    Result result = run({"analyze", dump.out.path() + "/fr"});
    EXPECT_EQ(result.code(), 0) << result.out;
}

TEST(Dump, AStoppedAndADeadRankAreDumpedLikeTheOthers)
{
    Stuck job;
    stop_child(job.owners[1]->pid());
    job.owners[2]->end();
    Dump dump(job);
    EXPECT_EQ(dump.result.code(), 0) << dump.result.err;
    EXPECT_TRUE(has(read_file(dump.out.path() + "/rank_1.json"), "\"life\": \"stopped\""));
    EXPECT_TRUE(has(read_file(dump.out.path() + "/rank_2.json"), "\"life\": \"dead\""));
}

/* Below the suspect time. */
TEST(Dump, AFrozenRankThatHoldsOthersUpIsToldAtOnce)
{
    Stuck job("test-job", "world", 900);
    stop_child(job.owners[2]->pid());
    Dump dump(job);
    expect_says(dump.result, {"stopped_rank: rank 2"});
    EXPECT_FALSE(has(dump.result.out, "healthy")) << dump.result.out;
    EXPECT_TRUE(has(read_file(dump.out.path() + "/verdict.json"), "\"kind\": \"stopped_rank\""));
}

TEST(Dump, ABoxThatWasCutOffIsNamedAndTheOthersAreUsed)
{
    for (auto [left_bytes, why] : CutOff::cuts) {
        CutOff job(left_bytes);
        Folder out;
        Result result = run({"dump", "--no-stacks", "--out", out.path()}, job.environment());
        expect_says(result, {"3 dumps in " + out.path(), "missing_rank: rank 2"});
        for (const char *file : {"verdict.txt", "verdict.json"})
            EXPECT_TRUE(has(read_file(out / file), job.name + why)) << read_file(out / file);
        EXPECT_TRUE(exists(out / "rank_0.json"));
        EXPECT_FALSE(exists(out / "rank_3.json"));
    }
}

/* Nobody waits any more, but it is known what for: as `analyze` says of the same black boxes. */
TEST(Dump, OfAJobThatHasEndedIsWhatHeldItUp)
{
    for (bool by_guard : {true, false}) {
        Ended job(by_guard);
        Dump dump(job);
        expect_says(dump.result, {"missing_rank: rank 2"});
        EXPECT_TRUE(
            has(read_file(dump.out.path() + "/verdict.json"), "\"kind\": \"missing_rank\""));
        const char *life = by_guard ? "\"life\": \"ended_by_guard\"" : "\"life\": \"dead\"";
        EXPECT_TRUE(has(read_file(dump.out.path() + "/rank_0.json"), life)) << "as what it ended";
        EXPECT_EQ(run({"analyze", job.folder.path()}).code(), 3);
    }
}

TEST(Dump, AVerdictOnWhichTheGuardHasActedStays)
{
    const std::string acted =
        R"({"job": "test-job", "time_unix_ns": 1795171332692540364, "kind": "missing_rank", "action": "kill"})";
    for (int64_t for_ms : {10000, 300}) {
        Stuck job("test-job", "world", for_ms);
        Folder out;
        out.write("verdict.json", acted);
        out.write("verdict.txt", "by the guard");
        Result result = run({"dump", "--no-stacks", "--out", out.path()}, job.environment());
        EXPECT_EQ(result.code(), 0) << result.err;
        EXPECT_EQ(read_file(out / "verdict.json"), acted);
        EXPECT_EQ(read_file(out / "verdict.txt"), "by the guard");
        EXPECT_TRUE(
            has(result.out,
                "verdict.json and verdict.txt there stay the guard's own: missing_rank, action "
                "kill, at 2026-"))
            << result.out;
        EXPECT_TRUE(has(result.out, for_ms > 5000 ? "missing_rank: rank 2" : "healthy"))
            << result.out;
        EXPECT_TRUE(exists(out / "rank_3.json"));
        EXPECT_TRUE(exists(out / "trace.json"));
    }
}

TEST(Dump, AGuardsVerdictOnCallsThatDifferedStaysOnceTheJobIsOver)
{
    for (int by : {1, -1})
        for (bool over : {true, false}) {
            std::unique_ptr<Stuck> running(over ? nullptr : new Stuck);
            std::unique_ptr<Ended> ended(over ? new Ended(false) : nullptr);
            Folder out;
            out.write(
                "verdict.json",
                R"({"job": "test-job", "kind": "mismatch", "action": "none", "detected_by": )" +
                    std::to_string(by) + "}");
            Result result = run({"dump", "--no-stacks", "--out", out.path()},
                                over ? ended->environment() : running->environment());
            EXPECT_EQ(result.code(), 0) << result.err;
            EXPECT_EQ(has(read_file(out / "verdict.json"), "mismatch"), over && by >= 0)
                << over << by;
        }
}

TEST(Dump, AVerdictOfAnotherJobOrOnWhichNobodyActedOrWhichIsNoneIsReplaced)
{
    for (const char *there :
         {R"({"job": "other-job", "kind": "missing_rank", "action": "kill"})",
          R"({"job": "test-job", "kind": "gpu_stall", "action": "none"})",
          R"({"job": "test-job", "kind": 3, "action": "kill"})", "[]", "", "{"}) {
        Stuck job;
        Folder out;
        out.write("verdict.json", there);
        Result result = run({"dump", "--no-stacks", "--out", out.path()}, job.environment());
        EXPECT_EQ(result.code(), 0) << result.err;
        EXPECT_FALSE(has(result.out, "stay the guard's")) << result.out;
        EXPECT_TRUE(has(read_file(out / "verdict.json"), "\"detected_by\": -1")) << there;
    }
}

/* Whatever the shell that asks has in its environment. */
TEST(Dump, WhatCountsAsStuckIsWhatTheJobSays)
{
    Stuck early("test-job", "world", 2500, EVIDENCE_RUNNING, 1000);
    Dump stuck(early);
    EXPECT_TRUE(has(stuck.result.out, "missing_rank: rank 2")) << stuck.result.out;
    EXPECT_TRUE(has(read_file(stuck.out.path() + "/verdict.json"), "\"kind\": \"missing_rank\""));
    Stuck late("test-job", "world", 7000, EVIDENCE_RUNNING, 20500);
    Dump healthy(late);
    EXPECT_TRUE(has(healthy.result.out, "healthy: nothing is stuck longer than 20.5 s; likely"))
        << healthy.result.out;
}

/* Dumps have the job's threshold, as black boxes do. */
TEST(Dump, WhatCountsAsStuckIsWhatTheJobSaysToAnalyzeToo)
{
    for (int suspect_ms : {5000, 20000}) {
        Stuck job("test-job", "world", 7000, EVIDENCE_RUNNING, suspect_ms);
        Dump dump(job);
        Result result = run({"analyze", dump.out.path()});
        EXPECT_EQ(result.code(), suspect_ms == 5000 ? 3 : 0) << result.out;
    }
}

TEST(Dump, OfActiveCallsAloneSaysSoAndHasTheSameVerdict)
{
    Stuck job;
    Dump active(job, {"--active", "--no-frames"});
    expect_says(active.result, {"4 dumps in " + active.out.path(), "missing_rank: rank 2"});
    EXPECT_TRUE(has(read_file(active.out.path() + "/rank_0.json"),
                    "this dump has only calls that are not finished, without frames"));
    Result result = run({"analyze", active.out.path(), "--json"});
    EXPECT_EQ(result.code(), 3) << result.err;
    OwnJson verdict(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(verdict, "kind")), "missing_rank");
}

TEST(Dump, OfOneGroupIsOfItsProcessesAlone)
{
    Stuck job;
    Dump world(job, {"--group", "world"});
    expect_says(world.result, {"4 dumps in " + world.out.path(), "missing_rank: rank 2"});
    EXPECT_TRUE(has(read_file(world.out.path() + "/rank_3.json"), "has only calls of group world"));
    Dump none(job, {"--group", "third"});
    EXPECT_EQ(none.result.code(), 2);
    EXPECT_TRUE(has(none.result.err, "the job has no group third")) << none.result.err;
    EXPECT_TRUE(has(none.result.err, "its groups: world")) << none.result.err;
}

TEST(Dump, OneRankAlone)
{
    Stuck job;
    Dump dump(job, {"--rank", "3"});
    expect_says(dump.result, {"1 dump in "});
    EXPECT_TRUE(exists(dump.out.path() + "/rank_3.json"));
    EXPECT_FALSE(exists(dump.out.path() + "/rank_0.json"));
    EXPECT_FALSE(exists(dump.out.path() + "/verdict.json")) << "it is of all ranks";
}

/* Where no launcher gives ranks, a process has that of its largest group: ranks 2 and 3 are ranks 1
 * and 0 of the part. */
struct WithPart {
    WithPart()
    {
        for (int rank = 0; rank < 4; rank++)
            owners.push_back(std::make_unique<BoxOwner>(
                folder.path(), evidence_rank{rank, EVIDENCE_RUNNING, 6, 6, 0, 0}, 4, "test-job",
                "world", true, 0,
                [rank] { return evidence_add_part(3 - rank < 2 ? 3 - rank : -1); }));
    }
    std::map<std::string, std::string> environment() const
    {
        return {{"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}};
    }
    Folder folder;
    std::vector<std::unique_ptr<BoxOwner>> owners;
};

TEST(Dump, OneRankInAGroupIsTheProcessOfThatGlobalRank)
{
    WithPart job;
    for (int rank : {2, 3}) {
        Folder out;
        Result result =
            run({"dump", "--rank", std::to_string(rank), "--group", "part", "--out", out.path()},
                job.environment());
        expect_says(result, {"1 dump in " + out.path()});
        std::string dump = read_file(out / ("rank_" + std::to_string(3 - rank) + ".json"));
        EXPECT_TRUE(has(dump, "\"pid\": " + std::to_string(job.owners[rank]->pid()))) << dump;
    }
}

TEST(Dump, ARankThatIsNotInTheGroupIsAMistake)
{
    WithPart job;
    Folder out;
    for (const char *rank : {"0", "1"}) {
        Result result = run({"dump", "--rank", rank, "--group", "part", "--out", out.path()},
                            job.environment());
        EXPECT_EQ(result.code(), 2) << result.out;
        EXPECT_EQ(result.err, std::string("ncclguard dump: the process of rank ") + rank +
                                  " is not in group 0123456789abcdf0\n"
                                  "ncclguard dump: `ncclguard groups` shows the ranks of each "
                                  "group\n");
        EXPECT_TRUE(std::filesystem::is_empty(out.path()));
    }
}

TEST(Dump, MistakesAreNamed)
{
    Stuck job;
    const struct {
        std::vector<std::string> more;
        const char *names, *mends;
    } rows[] = {{{"--rank", "9"}, "has no rank 9", "ncclguard top"},
                {{"--rank", "x"}, "--rank x", "whole number"},
                {{"--job", "other"}, "other", "test-job"},
                {{"extra"}, "extra", "dump --job JOB"}};
    for (const auto &row : rows) {
        Dump dump(job, row.more);
        EXPECT_EQ(dump.result.code(), 2) << dump.result.err;
        EXPECT_TRUE(has(dump.result.err, row.names)) << dump.result.err;
        EXPECT_TRUE(has(dump.result.err, row.mends)) << dump.result.err;
    }
}

TEST(Dump, GoesWhereTheHelpSaysIfNobodySaysWhere)
{
    Stuck job;
    Folder temporary;
    std::string help = run({"dump", "--help"}).out;
    EXPECT_TRUE(has(help, "NCCLGUARD_DUMP_DIR")) << help;
    EXPECT_TRUE(has(help, "$TMPDIR/ncclguard-UID/JOB; not the --out of `ncclguard run`")) << help;
    std::map<std::string, std::string> environment = job.environment();
    environment["TMPDIR"] = temporary.path();
    environment["NCCLGUARD_DUMP_DIR"] = "";
    Result result = run({"dump", "--no-stacks"}, environment);
    std::string folder = temporary / ("ncclguard-" + std::to_string(getuid()) + "/test-job");
    EXPECT_TRUE(has(result.out, "4 dumps in " + folder + "\n")) << result.out;
    EXPECT_TRUE(exists(folder + "/rank_3.json"));
}

TEST(Dump, AReducedOneLeavesTheDumpsOfAnIncidentAsTheyAre)
{
    for (std::vector<std::string> less : {std::vector<std::string>{"--active"},
                                          {"--no-frames"},
                                          {"--group", "world"},
                                          {"--active", "--rank", "0"}}) {
        Stuck job;
        Folder evidence;
        std::map<std::string, std::string> environment = job.environment();
        environment["NCCLGUARD_DUMP_DIR"] = evidence.path();
        for (const char *name : {"rank_0.json", "verdict.json", "verdict.txt", "trace.json"})
            evidence.write(name, "of the incident");
        std::filesystem::create_directory(evidence / "fr");
        evidence.write("fr/rank_0", "of the incident");
        less.insert(less.begin(), "dump");
        Result result = run(less, environment);
        EXPECT_EQ(result.code(), 0) << result.err;
        std::vector<std::string> below;
        for (const auto &entry : std::filesystem::recursive_directory_iterator(evidence.path())) {
            std::string path = entry.path();
            if (has(path, evidence.path() + "/dump-")) {
                below.push_back(path);
            } else if (entry.is_regular_file()) {
                EXPECT_EQ(read_file(path), "of the incident") << path;
            }
        }
        ASSERT_FALSE(below.empty());
        std::string folder = below[0].substr(0, below[0].find('/', evidence.path().size() + 1));
        EXPECT_TRUE(has(result.out, " in " + folder + "\n")) << result.out;
        EXPECT_TRUE(exists(folder + "/rank_0.json"));
        EXPECT_TRUE(exists(folder + "/fr/rank_0"));
        /* A name that ends in a number could be a file of PyTorch's. */
        EXPECT_EQ(folder.back(), 'Z');
    }
}

TEST(Dump, AFolderThatCannotBeMadeIsTold)
{
    Stuck job;
    Folder folder;
    std::string file = folder.path() + "/file";
    fclose(fopen(file.c_str(), "w"));
    Result result = run({"dump", "--no-stacks", "--out", file + "/below"}, job.environment());
    EXPECT_EQ(result.code(), 1);
    EXPECT_TRUE(has(result.err, "cannot use the folder")) << result.err;
}

} // namespace
