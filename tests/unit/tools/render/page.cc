/*
 * What the page of `ncclguard analyze --html` is made of: its data, its file, and stacks folded.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "tools/render/findings.h"
#include "tools/render/page.h"
#include "tools/render/stack_groups.h"
}

namespace
{

/* A view with a verdict, and the page's data of it. */
class Page : public JudgedView
{
  public:
    using JudgedView::JudgedView;
    ~Page()
    {
        ng_stack_groups_fini(&stacks);
    }
    std::string data()
    {
        return text_from([&](int fd) { EXPECT_EQ(ng_page_write_data(&page, fd), 0); });
    }
    json_t *parsed()
    {
        root = std::make_unique<OwnJson>(data());
        return *root;
    }
    int write(const std::string &path)
    {
        return ng_page_write(&page, path.c_str());
    }

    struct ng_stack_groups stacks = {};
    struct ng_mismatches mismatches = {};

  private:
    struct ng_page page = {this, &verdict, &mismatches, &stacks};
    std::unique_ptr<OwnJson> root;
};

Job stuck_job(int ranks = 3)
{
    Job job(ranks, 7, "</script><script>alert('world')&amp;", 3);
    for (int rank = 0; rank < ranks; rank++)
        if (rank != 1)
            job.at(7, rank).waits();
    job.notes = {"<b>note</b>"};
    return job;
}

int64_t number_of(json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

json_t *member_of(json_t *root, size_t rank)
{
    return json_array_get(
        json_object_get(json_array_get(json_object_get(root, "ranks"), rank), "members"), 0);
}

const char two_threads[] = "Stacks of rank 3, pid 12 (train) on host a.\n"
                           "Look at: thread 12 \"main\", in read\n"
                           "\n"
                           "Thread 12 \"main\", in read\n"
                           "  Native, innermost first:\n"
                           "    #0  read+0x12 (libc.so.6+0x7f00aa12)\n"
                           "\n"
                           "Thread 13 \"worker\", in futex\n"
                           "  in ncclAllReduce #7 of group 00c0ffee00c0ffee for 12 s\n"
                           "    #0  futex+0x1 (libc.so.6+0x10)\n"
                           "\n"
                           "Files, with build ids:\n"
                           "  abcdef libc.so.6\n";

std::string replaced(std::string text, const std::string &what, const std::string &with)
{
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
        text.replace(at, what.size(), with);
    return text;
}

struct Stacks {
    ~Stacks()
    {
        ng_stack_groups_fini(&folded);
    }
    void add(int rank, const std::string &text)
    {
        EXPECT_EQ(ng_stack_groups_add(&folded, rank, text.c_str()), 0);
    }
    std::vector<int> ranks(uint32_t stack) const
    {
        const struct ng_stack_group &from = folded.stacks[stack];
        return {from.ranks, from.ranks + from.rank_count};
    }
    struct ng_stack_groups folded = {};
};

} // namespace

/* The culprit was looked at later than those who wait for it: their wait did not begin later for
 * that. */
TEST(Page, TheWaitForTheCulpritBeginsWithTheFirstWhoWaits)
{
    Job job = stuck_job();
    job.at(7, 2).pending_age_ns = LONG_AGO - 2 * NG_S;
    Page page(job);
    for (uint32_t i = 0; i < page.process_count; i++) {
        int64_t later_ns = i == 1 ? 4 * NG_S : 0;
        page.processes[i].moment_mono_ns = 1000 * NG_S + later_ns;
        page.processes[i].moment_unix_ns = INT64_C(1763659440) * NG_S + later_ns;
    }
    json_t *root = page.parsed();
    json_t *verdict = json_object_get(root, "verdict"),
           *first = json_array_get(json_object_get(root, "ranks"), 0);
    EXPECT_EQ(number_of(verdict, "since"), number_of(first, "moment") - LONG_AGO / NG_US);
    EXPECT_EQ(number_of(root, "length") - number_of(verdict, "since"),
              (LONG_AGO + 4 * NG_S) / NG_US);
}

TEST(Page, TheDataHoldsNothingThatCouldBeMarkup)
{
    Page page(stuck_job());
    ASSERT_EQ(ng_stack_groups_add(&page.stacks, 1, "Thread 1 \"<i>\"\n  <module>&\n"), 0);
    std::string data = page.data();
    EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
    json_t *root = page.parsed();
    json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    EXPECT_STREQ(json_string_value(json_array_get(group, 1)),
                 "</script><script>alert('world')&amp;");
    EXPECT_STREQ(json_string_value(json_array_get(json_object_get(root, "notes"), 0)),
                 "<b>note</b>");
    json_t *stack = json_array_get(json_object_get(root, "stacks"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(stack, "text")), "  <module>&");
}

TEST(Page, AGroupTellsWhatIsRegisteredWithIt)
{
    Job job = stuck_job();
    Page nothing(job);
    json_t *group = json_array_get(json_object_get(nothing.parsed(), "groups"), 0);
    EXPECT_TRUE(json_is_null(json_array_get(group, 4)));
    job.at(7, 0).registration = {true, true, 2, 3 << 20, 4000, 3000, 2, 0, 1, 0, 1500000000};
    Page page(job);
    group = json_array_get(json_object_get(page.parsed(), "groups"), 0);
    std::string text = json_string_value(json_array_get(group, 4));
    EXPECT_EQ(
        text,
        "75% of the bytes sent and received, 2 segments (3 MiB), 1.500 s spent, 1 failed, no more");
}

TEST(Page, EveryRankHasItsMembersAndItsCallsAsSpans)
{
    Page page(stuck_job());
    json_t *root = page.parsed();
    ASSERT_EQ(json_array_size(json_object_get(root, "ranks")), 3u);
    EXPECT_EQ(json_array_size(json_array_get(member_of(root, 0), 15)), 6u * 4);
    EXPECT_EQ(json_array_size(json_array_get(member_of(root, 1), 15)), 6u * 3);
    EXPECT_EQ(json_integer_value(json_array_get(member_of(root, 0), 4)), 4);
    EXPECT_EQ(json_integer_value(json_array_get(member_of(root, 0), 13)), LONG_AGO / NG_US);
    EXPECT_EQ(json_integer_value(json_array_get(member_of(root, 1), 13)), -1);
    /* One signature for all of them. */
    EXPECT_EQ(json_array_size(json_object_get(root, "signatures")), 1u);
    json_t *culprit = json_array_get(json_object_get(root, "ranks"), 1);
    EXPECT_EQ(json_integer_value(json_object_get(culprit, "culprit")), 0);
    EXPECT_TRUE(
        json_is_true(json_object_get(json_array_get(json_object_get(root, "ranks"), 2), "waits")));
}

TEST(Page, TellsEveryMismatch)
{
    Page page(stuck_job());
    struct ng_mismatch_culprit culprit = {};
    struct ng_mismatch_report report = {};
    culprit.rank = 2;
    snprintf(culprit.why, sizeof(culprit.why), "count <1>");
    report.seq = report.last_seq = 3;
    report.count = 1;
    report.op = NG_OP_AllReduce;
    report.culprits = &culprit;
    report.culprit_count = 1;
    page.mismatches.reports = &report;
    page.mismatches.count = 1;
    json_t *told = json_array_get(json_object_get(page.parsed(), "mismatches"), 0);
    EXPECT_EQ(json_integer_value(json_object_get(told, "seq")), 3);
    json_t *first = json_array_get(json_object_get(told, "culprits"), 0);
    EXPECT_STREQ(json_string_value(json_array_get(first, 1)), "count <1>");
}

TEST(Page, CountsThatAScriptCannotHoldAreCutOff)
{
    Page page(stuck_job());
    page.members[0].entered = UINT64_MAX;
    page.members[0].records[0].signature.count = UINT64_MAX;
    json_t *root = page.parsed();
    EXPECT_EQ(json_integer_value(json_array_get(member_of(root, 0), 4)), INT64_C(9007199254740991));
}

TEST(Page, DamagedNumbersStillMakeAPage)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        std::mt19937_64 random(seed);
        Page page(stuck_job());
        struct ng_view_member *member = &page.members[random() % page.member_count];
        member->state = (enum ng_group_state)random();
        member->pending_age_ns = (int64_t)random();
        member->async_error = (int)random();
        for (uint32_t i = 0; i < member->record_count; i++) {
            struct ng_view_record *record = &member->records[i];
            record->state = (enum ng_record_state)(random() % 12);
            record->signature = {(uint32_t)random(), (int)random(), (int)random(), (int)random(),
                                 random()};
            record->coll_seq = random();
            record->entered_age_ns = (int64_t)random();
            record->started_age_ns = (int64_t)random();
            record->completed_age_ns = (int64_t)random();
        }
        page.processes[0].moment_unix_ns = (int64_t)random();
        page.processes[0].life = (enum ng_life)random();
        ASSERT_NE(page.parsed(), nullptr) << "seed " << seed;
    }
}

TEST(Page, TheFileIsThereInFullOrNotAtAll)
{
    Folder folder;
    Page page(stuck_job());
    EXPECT_EQ(page.write(folder / "page.html"), 0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"page.html"});
    std::string text = read_whole_file(folder / "page.html");
    EXPECT_EQ(text.rfind("<!DOCTYPE html>", 0), 0u);
    EXPECT_NE(text.find("</html>"), std::string::npos);
    EXPECT_EQ(page.write(folder / "no/page.html"), -ENOENT);
    EXPECT_EQ(page.write(folder.path()), -EISDIR);
    EXPECT_EQ(in_child([&] {
                  struct rlimit limit = {5000, 5000};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &limit);
                  return page.write(folder / "cut.html") == -EFBIG ? 0 : 2;
              }),
              0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"page.html"});
}

TEST(Page, ADeviceIsWrittenToAndNotReplaced)
{
    Page page(stuck_job());
    EXPECT_EQ(page.write("/dev/full"), -ENOSPC);
    EXPECT_EQ(page.write("/dev/null"), 0);
    struct stat status;
    ASSERT_EQ(stat("/dev/null", &status), 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST(Advice, ThereIsSomeForEveryKindButHealthy)
{
    for (int kind = 0; kind < NG_KIND_COUNT; kind++)
        EXPECT_EQ(ng_advice_step((enum ng_verdict_kind)kind, 0) != nullptr, kind != NG_KIND_HEALTHY)
            << ng_verdict_kind_name((enum ng_verdict_kind)kind);
    EXPECT_EQ(ng_advice_step(NG_KIND_MISSING_RANK, 99), nullptr);
}

TEST(StackGroups, AParagraphOfAThreadIsAStackAndOthersAreNot)
{
    Stacks stacks;
    stacks.add(3, two_threads);
    ASSERT_EQ(stacks.folded.count, 2u);
    EXPECT_STREQ(stacks.folded.stacks[0].title, "Thread 12 \"main\", in read");
    EXPECT_STREQ(stacks.folded.stacks[0].text, "  Native, innermost first:\n"
                                               "    #0  read+0x12 (libc.so.6+0x7f00aa12)");
    ASSERT_EQ(stacks.folded.summary_count, 1u);
    EXPECT_EQ(stacks.folded.summaries[0].rank, 3);
    EXPECT_STREQ(stacks.folded.summaries[0].text, "thread 12 \"main\", in read");
}

TEST(StackGroups, WhatDiffersInIdsAddressesAndTimesIsTheSame)
{
    Stacks stacks;
    stacks.add(3, two_threads);
    std::string other = replaced(two_threads, "Thread 12", "Thread 98765");
    other = replaced(other, "0x7f00aa12", "0x5512345678");
    other = replaced(other, "00c0ffee00c0ffee", "0123456789abcdef");
    stacks.add(1, replaced(other, "for 12 s", "for 340 ms"));
    EXPECT_EQ(stacks.ranks(0), (std::vector<int>{1, 3}));
    /* The call of the second has lasted for other units of time. */
    EXPECT_EQ(stacks.folded.count, 3u);
    stacks.add(2, replaced(other, "for 12 s", "for 7 s"));
    EXPECT_EQ(stacks.folded.count, 3u);
    EXPECT_EQ(stacks.ranks(0), (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(stacks.ranks(1), (std::vector<int>{2, 3}));
}

TEST(StackGroups, OtherFunctionsFilesOrPlacesAreOtherStacks)
{
    for (const char *with : {"write+0x12", "read+0x13", "(libd.so"}) {
        Stacks stacks;
        stacks.add(0, two_threads);
        std::string what = *with == '(' ? "(libc.so" : "read+0x12";
        stacks.add(1, replaced(two_threads, what, with));
        EXPECT_GT(stacks.folded.count, 2u) << with;
    }
}

TEST(StackGroups, ThreadsOfOneRankThatAreAlikeCountOnce)
{
    Stacks stacks;
    stacks.add(4, "Thread 1 \"a\"\n  #0 x\n\nThread 2 \"a\"\n  #0 x\n");
    ASSERT_EQ(stacks.folded.count, 1u);
    EXPECT_EQ(stacks.folded.stacks[0].threads, 2u);
    EXPECT_EQ(stacks.ranks(0), std::vector<int>{4});
}

TEST(StackGroups, ALongStackIsKeptWhole)
{
    std::string lines;
    for (int i = 0; i < 1000; i++)
        lines += "  #" + std::to_string(i) + " a frame with a long name\n";
    Stacks stacks;
    stacks.add(0, "Thread 1 \"" + std::string(3000, 'a') + "\"\n" + lines);
    ASSERT_EQ(stacks.folded.count, 1u);
    EXPECT_TRUE(stacks.folded.stacks[0].text + std::string("\n") == lines);
    EXPECT_EQ(strlen(stacks.folded.stacks[0].title), 3011u);
}

TEST(StackGroups, TakesEveryFileOfAFolderThatIsOneAndNoOther)
{
    Folder folder;
    struct ng_stack_groups folded = {};
    write_whole_file(folder / "rank_10.stacks.txt", two_threads);
    write_whole_file(folder / "rank_2.stacks.txt", two_threads);
    write_whole_file(folder / "rank_3.stacks.txt", "");
    write_whole_file(folder / "rank_4.stacks.txt", std::string("Thread 1\0Thread", 15));
    write_whole_file(folder / "rank_x.stacks.txt", two_threads);
    write_whole_file(folder / "rank_5.json", two_threads);
    ASSERT_EQ(mkfifo((folder / "rank_6.stacks.txt").c_str(), 0600), 0);
    EXPECT_EQ(ng_stack_groups_add_folder(&folded, folder.path().c_str()), 0);
    ASSERT_GE(folded.count, 2u);
    EXPECT_EQ(folded.stacks[0].rank_count, 2u);
    EXPECT_EQ(folded.stacks[0].ranks[0], 2);
    EXPECT_EQ(ng_stack_groups_add_folder(&folded, (folder / "nowhere").c_str()), -ENOENT);
    ng_stack_groups_fini(&folded);
}

TEST(StackGroups, ManyDifferentStacksAreFoundAgain)
{
    Stacks stacks;
    for (int rank = 0; rank < 3; rank++)
        for (int i = 0; i < 3000; i++)
            stacks.add(rank, "Thread 1\n  #0 f" + std::to_string(i) + "\n");
    EXPECT_EQ(stacks.folded.count, 3000u);
    EXPECT_EQ(stacks.ranks(2999), (std::vector<int>{0, 1, 2}));
}
