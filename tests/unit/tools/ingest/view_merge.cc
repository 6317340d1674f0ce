/*
 * Keeping less of a large job must not change what is said about it.
 */

#include "tests/gtest/own_json.h"
#include "tests/unit/tools/command.h"
#include "tests/unit/tools/evidence.h"
#include "tests/unit/tools/ingest/merged.h"

TEST(ViewMerge, OfRandomJobsGivesTheVerdictOfAllRecords)
{
    static merged whole, less;
    unsigned smaller = 0, with_findings = 0;

    for (unsigned seed = 1; seed <= 400; seed++) {
        ASSERT_EQ(merged_random(seed, UINT64_MAX, &whole), 0);
        ASSERT_EQ(merged_random(seed, 0, &less), 0);
        ASSERT_STREQ(less.verdict, whole.verdict) << "seed " << seed;
        smaller += less.records < whole.records / 2;
        with_findings += whole.findings > 0;
    }
    /* Or it was no test. */
    EXPECT_GT(smaller, 130u);
    EXPECT_GT(with_findings, 80u);
}

TEST(ViewMerge, KeepsWholeWhatFitsAndNothingElse)
{
    static merged whole, some, none;

    ASSERT_EQ(merged_random(3, UINT64_MAX, &whole), 0);
    ASSERT_EQ(merged_random(3, whole.records, &some), 0);
    EXPECT_EQ(some.records, whole.records);
    ASSERT_EQ(merged_random(3, whole.records - 1, &some), 0);
    ASSERT_EQ(merged_random(3, 0, &none), 0);
    EXPECT_EQ(some.records, none.records);
}

/* Read by several threads, of which nothing may be seen either. */
TEST(ViewMerge, OfPyTorchsDumpsGivesTheVerdictOfAllRecords)
{
    static merged whole, less, again;
    Folder folder;
    Process process({"python3", getenv("NG_TEST_FLIGHT"), folder.path(), "all", "--records", "70",
                     "--ranks", "9"});
    ASSERT_EQ(process.wait_end(), 0) << process.err();
    unsigned smaller = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder.path())) {
        ASSERT_EQ(merged_folder(entry.path().c_str(), UINT64_MAX, &whole), 0);
        ASSERT_EQ(merged_folder(entry.path().c_str(), 0, &less), 0);
        ASSERT_EQ(merged_folder(entry.path().c_str(), 0, &again), 0);
        EXPECT_STREQ(less.verdict, whole.verdict) << entry.path();
        EXPECT_STREQ(less.verdict, again.verdict) << entry.path();
        smaller += less.records < whole.records;
    }
    EXPECT_GT(smaller, 40u);
}

/* However long it takes to read them: else those that were read first would have ended first. */
TEST(ViewMerge, BlackBoxesAreAllOfOneMoment)
{
    Folder folder;
    uint32_t processes = 0;
    int64_t apart_ns = -1;

    ASSERT_EQ(merged_ends(folder.path().c_str(), 64, &processes, &apart_ns), 0);
    EXPECT_EQ(processes, 64u);
    EXPECT_EQ(apart_ns, 0);
}

/* All that a merge passes on: a field that is added to the view and not copied is found here. */
TEST(ViewMerge, PassesOnEverythingThatADumpTells)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        Folder first, second;
        char name[64], why[256] = "";
        ASSERT_EQ(evidence_write_random(first.path().c_str(), seed, name, sizeof(name)), 0);
        ASSERT_EQ(
            evidence_copy_dump((first / name).c_str(), second.path().c_str(), why, sizeof(why)), 0)
            << why;
        std::string direct = read_file(second / name);
        std::filesystem::remove(second / name);
        ASSERT_EQ(merged_dump((first / name).c_str(), second.path().c_str(), why, sizeof(why)), 0)
            << why;
        std::string copied = read_file(second / name);
        OwnJson one(direct), other(copied);
        json_object_del(one, "written_unix_ns");
        json_object_del(other, "written_unix_ns");
        EXPECT_TRUE(json_equal(one, other)) << "seed " << seed << "\n" << direct << "\n" << copied;
    }
}
