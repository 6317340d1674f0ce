/*
 * A job as people browse it: what is shown, in which order, and what keys do; without a terminal.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/verdict/verdict.h"
#include "tools/render/browser.h"
}

namespace
{

constexpr uint64_t WORLD = 0x1111;

/* A job as the command sees it at one moment. */
struct Look : JudgedView {
    explicit Look(const Job &job) : JudgedView(job)
    {
        EXPECT_EQ(ng_table_make(this, &verdict, &table), 0);
    }
    ~Look()
    {
        ng_table_fini(&table);
    }
    struct ng_table table;
};

class Browsed
{
  public:
    explicit Browsed(const Job &job, unsigned lines = 24, unsigned columns = 80)
        : lines_(lines), columns_(columns)
    {
        ng_browser_init(&browser);
        look(job);
    }
    ~Browsed()
    {
        ng_browser_fini(&browser);
    }
    Browsed(const Browsed &) = delete;

    void look(const Job &job)
    {
        auto next = std::make_unique<Look>(job);
        EXPECT_EQ(ng_browser_update(&browser, &next->table), 0);
        look_ = std::move(next);
        draw();
    }
    /* Keys, as a person types them after each other; the last one's action. */
    enum ng_browser_action press(const std::vector<int> &keys)
    {
        enum ng_browser_action action = NG_BROWSER_DRAW;
        for (int key : keys) {
            action = ng_browser_press(&browser, key);
            draw();
        }
        return action;
    }
    enum ng_browser_action press(int key)
    {
        return press(std::vector<int>{key});
    }
    void type(const std::string &text)
    {
        for (char one : text)
            press(one);
    }
    /* Each line is as wide as the screen at most, and there are as many as it has. */
    void draw(const char *trouble = nullptr)
    {
        struct ng_table_paper paper = {.lines = lines_, .columns = columns_, .trouble = trouble};
        char *text = nullptr;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);
        ng_browser_print(&browser, &paper, file);
        fclose(file);
        picture.clear();
        for (const char *at = text; *at;) {
            const char *end = strchr(at, '\n');
            ASSERT_NE(end, nullptr);
            picture.emplace_back(at, end);
            EXPECT_LE(ng_sheet_width(picture.back().c_str()), columns_) << picture.back();
            at = end + 1;
        }
        free(text);
        EXPECT_EQ(picture.size(), lines_) << all();
    }
    std::string all() const
    {
        std::string text;
        for (const std::string &line : picture)
            text += line + "\n";
        return text;
    }
    bool has(const std::string &part) const
    {
        return all().find(part) != std::string::npos;
    }
    /* Under the titles. */
    std::vector<std::string> rows() const
    {
        std::vector<std::string> result;
        bool under = false;
        for (size_t i = 0; i + 2 < picture.size(); i++) {
            if (under && !picture[i].empty())
                result.push_back(picture[i]);
            under |= picture[i].find("ENTERED") != std::string::npos;
        }
        return result;
    }
    /* The first words of the rows: ranks. */
    std::vector<std::string> ranks() const
    {
        std::vector<std::string> result;
        for (const std::string &row : rows()) {
            size_t from = row.find_first_not_of(" >!"), to = row.find(' ', from);
            result.push_back(row.substr(from, to - from));
        }
        return result;
    }
    std::string selected() const
    {
        for (const std::string &row : picture)
            if (!row.empty() && row[0] == '>')
                return row;
        return "";
    }

    struct ng_browser browser;
    std::vector<std::string> picture;

  private:
    unsigned lines_, columns_;
    std::unique_ptr<Look> look_;
};

/* Six collectives done by all, the seventh entered by all but rank `missing`. */
Job one_missing(int ranks, int missing)
{
    Job job(ranks, WORLD, "world");
    for (int rank = 0; rank < ranks; rank++) {
        job.at(WORLD, rank).did(6);
        if (rank != missing)
            job.at(WORLD, rank).waits();
    }
    return job;
}

using Words = std::vector<std::string>;

TEST(Browser, AThousandRanksThatAreAlikeAreOneLineAndTheCulpritIsSelected)
{
    for (auto [lines, columns] : {std::pair(24u, 80u), std::pair(60u, 200u)}) {
        Browsed browsed(one_missing(1024, 7), lines, columns);
        EXPECT_EQ(browsed.rows().size(), 2u) << browsed.all();
        EXPECT_TRUE(browsed.has("0-6,8-1023 (1023)")) << browsed.all();
        EXPECT_EQ(browsed.selected().substr(0, 2), ">!") << browsed.all();
        EXPECT_NE(browsed.selected().find(" 7 "), std::string::npos) << browsed.all();
        EXPECT_TRUE(browsed.has("AllReduce #7, on device, 30.0 s")) << browsed.all();
        EXPECT_TRUE(browsed.has("missing_rank: rank 7")) << browsed.all();
        EXPECT_TRUE(browsed.has("j jobs")) << browsed.all();
        EXPECT_TRUE(browsed.has("(1024 ranks, alike ones folded)")) << browsed.all();
    }
}

TEST(Browser, OneScrollsThroughAllRanks)
{
    Browsed browsed(one_missing(1024, 7));
    browsed.press({'f', NG_KEY_HOME});
    EXPECT_EQ(browsed.ranks()[0], "0");
    size_t page = browsed.rows().size();
    EXPECT_GE(page, 13u) << browsed.all();
    browsed.press(NG_KEY_END);
    EXPECT_EQ(browsed.ranks().back(), "1023");
    EXPECT_EQ(browsed.rows().size(), page);
    EXPECT_NE(browsed.selected().find("1023"), std::string::npos);
    browsed.press(NG_KEY_PAGE_UP);
    EXPECT_NE(browsed.selected().find(std::to_string(1023 - (page - 1))), std::string::npos)
        << browsed.all();
    browsed.press({NG_KEY_HOME, NG_KEY_PAGE_DOWN, NG_KEY_DOWN, NG_KEY_UP});
    EXPECT_NE(browsed.selected().find(std::to_string(page - 1)), std::string::npos)
        << browsed.all();
    browsed.press({NG_KEY_HOME, NG_KEY_UP});
    EXPECT_NE(browsed.selected().find(" 0 "), std::string::npos) << browsed.all();
}

TEST(Browser, AFilterKeepsTheRowsThatHaveItsText)
{
    Browsed browsed(one_missing(64, 7));
    browsed.press({'f', '/'});
    browsed.type("12");
    EXPECT_EQ(browsed.ranks(), Words{"12"}) << browsed.all();
    EXPECT_TRUE(browsed.has("/12_"));
    browsed.press({NG_KEY_BACKSPACE, NG_KEY_ENTER});
    EXPECT_EQ(browsed.ranks(), Words{"1"}) << browsed.all();
    EXPECT_TRUE(browsed.has("only those with \"1\"")) << browsed.all();
    browsed.press({NG_KEY_ESCAPE, '/'});
    browsed.type("allREDUCE");
    browsed.press(NG_KEY_ENTER);
    EXPECT_TRUE(browsed.has("(63 ranks)")) << browsed.all();
    browsed.press('/');
    browsed.type(" no such thing q");
    EXPECT_TRUE(browsed.rows().empty()) << browsed.all();
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("(64 ranks)")) << browsed.all();
}

TEST(Browser, TheCulpritIsFoundFromEverywhere)
{
    Browsed browsed(one_missing(64, 40));
    browsed.press({'f', NG_KEY_HOME});
    EXPECT_EQ(browsed.selected().find('!'), std::string::npos);
    browsed.press('c');
    EXPECT_EQ(browsed.selected().substr(0, 2), ">!");
    browsed.press({NG_KEY_HOME, '/'});
    browsed.type("3");
    browsed.press({NG_KEY_ENTER, 'g', 'c'});
    EXPECT_EQ(browsed.selected().substr(0, 2), ">!") << browsed.all();
    EXPECT_NE(browsed.selected().find("40"), std::string::npos) << browsed.all();
}

/* Four ranks on hosts of which the last is first by name; rank
 * 2 waits longest for rank 1, which is gone. */
Job unequal()
{
    Job job(4, WORLD, "world");
    const char *const hosts[] = {"d", "c", "b", "a"};
    for (int rank = 0; rank < 4; rank++) {
        job.process(rank).host = hosts[rank];
        job.at(WORLD, rank).did(6);
        if (rank != 1)
            job.at(WORLD, rank).waits();
    }
    job.at(WORLD, 2).pending_age_ns += 5 * NG_S;
    job.process(1).is(NG_LIFE_DEAD, 20 * NG_S);
    return job;
}

TEST(Browser, RowsAreSortedByRankAgeStateAndHost)
{
    Browsed browsed(unequal(), 24, 200);
    browsed.press('f');
    EXPECT_EQ(browsed.ranks(), (Words{"0", "1", "2", "3"})) << browsed.all();
    browsed.press('s');
    EXPECT_EQ(browsed.ranks(), (Words{"1", "2", "0", "3"})) << browsed.all();
    EXPECT_TRUE(browsed.has("sorted by age"));
    browsed.press('s');
    EXPECT_EQ(browsed.ranks(), (Words{"1", "0", "2", "3"})) << browsed.all();
    EXPECT_TRUE(browsed.has("sorted by state"));
    browsed.press('s');
    EXPECT_EQ(browsed.ranks(), (Words{"3", "2", "1", "0"})) << browsed.all();
    browsed.press('s');
    EXPECT_EQ(browsed.ranks(), (Words{"0", "1", "2", "3"})) << browsed.all();
}

/* Only the key sorts anew; and the selection stays on its row. */
TEST(Browser, RowsDoNotJumpFromLookToLook)
{
    Job job = unequal();
    Browsed browsed(job, 24, 200);
    browsed.press({'f', 's', NG_KEY_HOME, NG_KEY_DOWN});
    Words before = browsed.ranks();
    EXPECT_EQ(before, (Words{"1", "2", "0", "3"}));
    job.at(WORLD, 3).pending_age_ns += 100 * NG_S;
    browsed.look(job);
    EXPECT_EQ(browsed.ranks(), before) << browsed.all();
    EXPECT_NE(browsed.selected().find(" 2 "), std::string::npos) << browsed.all();
    browsed.press({'s', 's', 's', 's'});
    EXPECT_EQ(browsed.ranks(), (Words{"1", "3", "2", "0"})) << browsed.all();
    EXPECT_NE(browsed.selected().find(" 2 "), std::string::npos) << browsed.all();
}

/* Folded, too: a line that splits stays where it was, and what leaves it comes behind it. */
TEST(Browser, FoldedLinesKeepTheirPlaces)
{
    Job job(8, WORLD, "world", 6);
    job.group(0x2222, "late", {4, 5, 6, 7});
    Browsed browsed(job, 24, 200);
    ASSERT_EQ(browsed.ranks(), (Words{"0-7", "4-7"})) << browsed.all();
    job.wait(WORLD, {1, 2, 3, 4, 5, 6, 7});
    browsed.look(job);
    EXPECT_EQ(browsed.ranks(), (Words{"0", "1-7", "4-7"})) << browsed.all();
    Job after(8, WORLD, "world", 7);
    after.group(0x2222, "late", {4, 5, 6, 7});
    browsed.look(after);
    EXPECT_EQ(browsed.ranks(), (Words{"0-7", "4-7"})) << browsed.all();
}

/* Ranks on their way, each in another call for less than a second, are one line. */
TEST(Browser, RanksInMotionAreAlike)
{
    Job job(64, WORLD, "world");
    for (int rank = 0; rank < 64; rank++) {
        job.at(WORLD, rank).did(6 + rank % 3);
        if (rank % 2) {
            job.at(WORLD, rank).waits();
            job.at(WORLD, rank).pending_age_ns = rank * NG_MS;
        }
    }
    for (int rank = 0; rank < 64; rank++)
        for (auto &one : job.at(WORLD, rank).records)
            one.entered_age_ns = std::min<int64_t>(one.entered_age_ns, 100 * NG_MS);
    Browsed browsed(job, 24, 200);
    EXPECT_EQ(browsed.ranks(), Words{"0-63"}) << browsed.all();
    EXPECT_TRUE(browsed.has("32 of 64 in NCCL")) << browsed.all();
    EXPECT_TRUE(browsed.has("6-9")) << browsed.all();
}

TEST(Browser, GroupsAreALineEachAndLeadToTheirRanks)
{
    Job job = one_missing(8, 3);
    job.group(0x2222, "tensor", {0, 1, 2, 3});
    Browsed browsed(job, 24, 120);
    browsed.press('g');
    ASSERT_EQ(browsed.rows().size(), 2u) << browsed.all();
    EXPECT_NE(browsed.rows()[0].find("world"), std::string::npos);
    EXPECT_NE(browsed.rows()[0].find("8/8"), std::string::npos);
    EXPECT_NE(browsed.rows()[0].find("1 culprit, 7 waiting"), std::string::npos) << browsed.all();
    browsed.press({NG_KEY_DOWN, NG_KEY_ENTER});
    EXPECT_TRUE(browsed.has("(4 ranks, alike ones folded)   sorted by rank   of one group"))
        << browsed.all();
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("groups: lines 1-2 of 2")) << browsed.all();
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("(12 ranks")) << browsed.all();
}

TEST(Browser, TellsDeadlinesOfRanksAndOfGroupsWhereThereIsRoom)
{
    Job job = one_missing(8, 3);
    job.group(0x2222, "tensor", {0, 1, 2, 3});
    for (int rank = 0; rank < 8; rank++) {
        job.at(0x1111, rank).timeout_ns = 60 * NG_S;
        job.at(0x1111, rank).policy = NG_ON_TIMEOUT_ABORT + 1;
    }
    job.at(0x2222, 1).policy = NG_ON_TIMEOUT_LOG + 1;
    Browsed wide(job, 40, 240), narrow(job, 40, 80);
    EXPECT_TRUE(wide.has("60.0 s, abort")) << wide.all();
    EXPECT_TRUE(wide.has("several")) << "folded ranks of tensor\n" << wide.all();
    wide.press('g');
    EXPECT_NE(wide.rows()[0].find("60.0 s, abort"), std::string::npos) << wide.all();
    EXPECT_NE(wide.rows()[1].find("policies differ"), std::string::npos) << wide.all();
    EXPECT_FALSE(narrow.has("60.0 s, abort")) << narrow.all();
    narrow.press({'c', NG_KEY_ENTER});
    EXPECT_TRUE(narrow.has("  deadline: 60.0 s, abort")) << narrow.all();
}

TEST(Browser, EnterUnfoldsALineAndShowsARankWithItsStack)
{
    Browsed browsed(one_missing(64, 40));
    browsed.press({NG_KEY_HOME, NG_KEY_ENTER});
    EXPECT_TRUE(browsed.has("of 64 (64 ranks)")) << browsed.all();
    EXPECT_NE(browsed.selected().find(" 0 "), std::string::npos) << browsed.all();
    EXPECT_EQ(browsed.press({'c', NG_KEY_ENTER}), NG_BROWSER_SHOW_RANK);
    const struct ng_table_row *row = ng_browser_row(&browsed.browser);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->rank, 40);
    std::string stack = "Thread 1 \"python3\", in read\n";
    for (int i = 0; i < 50; i++)
        stack += "frame " + std::to_string(i) + "\033[31m\n";
    ng_browser_set_stack(&browsed.browser, stack.c_str());
    browsed.draw();
    EXPECT_TRUE(browsed.has("rank 40: the verdict names it")) << browsed.all();
    EXPECT_TRUE(browsed.has("never called AllReduce #7")) << browsed.all();
    EXPECT_TRUE(browsed.has("frame 0")) << browsed.all();
    EXPECT_FALSE(browsed.has("frame 49"));
    browsed.press(NG_KEY_END);
    EXPECT_TRUE(browsed.has("frame 49")) << browsed.all();
    EXPECT_TRUE(browsed.has("#1 AllReduce of 1024 float32")) << browsed.all();
    EXPECT_FALSE(browsed.has("\033")) << browsed.all();
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("of 64 (64 ranks)")) << browsed.all();
    EXPECT_EQ(browsed.press('t'), NG_BROWSER_DRAW);
}

TEST(Browser, JobsAreThereToChooseFrom)
{
    Browsed browsed(one_missing(4, 2));
    EXPECT_EQ(browsed.press('j'), NG_BROWSER_LIST_JOBS);
    struct ng_browser_job jobs[2] = {{"one", "this host", 4, 4}, {"other", "the store", 0, 0}};
    ASSERT_EQ(ng_browser_set_jobs(&browsed.browser, jobs, 2), 0);
    browsed.draw();
    EXPECT_TRUE(browsed.has("4 of 4 alive")) << browsed.all();
    EXPECT_EQ(browsed.press({NG_KEY_DOWN, NG_KEY_ENTER}), NG_BROWSER_OPEN_JOB);
    ASSERT_NE(ng_browser_job(&browsed.browser), nullptr);
    EXPECT_STREQ(ng_browser_job(&browsed.browser)->name, "other");
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("missing_rank")) << browsed.all();
}

TEST(Browser, BeforeThereIsAJobOnlyJobsCanBeSeen)
{
    struct ng_browser browser;
    ng_browser_init(&browser);
    struct ng_browser_job job = {"one", "this host", 4, 4};
    ASSERT_EQ(ng_browser_set_jobs(&browser, &job, 1), 0);
    for (int key : {(int)'c', (int)'f', (int)'s', (int)'g', (int)'/', (int)'t', (int)NG_KEY_DOWN,
                    (int)'?', (int)NG_KEY_END, (int)NG_KEY_ESCAPE})
        EXPECT_EQ(ng_browser_press(&browser, key), NG_BROWSER_DRAW) << key;
    browser.page = NG_PAGE_JOBS;
    EXPECT_EQ(ng_browser_press(&browser, NG_KEY_ESCAPE), NG_BROWSER_QUIT);
    ng_browser_fini(&browser);
}

TEST(Browser, HelpNamesEveryKeyAndFitsAcross)
{
    Browsed browsed(one_missing(4, 2), 40, 80);
    browsed.press('?');
    for (const char *key : {"Enter", "Esc", "  c ", "  / ", "  s ", "  f ", "  g,", "  j ", "  t ",
                            "space", "q, Ctrl-C", "Page Up"})
        EXPECT_TRUE(browsed.has(key)) << key;
    EXPECT_TRUE(browsed.has("all on their way.")) << browsed.all();
    browsed.press(NG_KEY_ESCAPE);
    EXPECT_TRUE(browsed.has("j jobs"));
}

TEST(Browser, ATinyScreenAndTroubleAreBorne)
{
    for (unsigned lines = 4; lines < 30; lines++) {
        Browsed browsed(one_missing(64, 40), lines, 20);
        browsed.draw("stale: \033[31m gone");
        EXPECT_TRUE(browsed.has("stale: ")) << browsed.all();
        EXPECT_FALSE(browsed.has("\033")) << browsed.all();
        browsed.press({'f', NG_KEY_END, 'g', '?', NG_KEY_ESCAPE, NG_KEY_ENTER});
    }
}

TEST(Browser, RanksThatLeaveTakeTheSelectionToAnother)
{
    Browsed browsed(one_missing(64, 40));
    browsed.press({'f', NG_KEY_END});
    browsed.look(one_missing(8, 2));
    EXPECT_EQ(browsed.rows().size(), 8u) << browsed.all();
    EXPECT_NE(browsed.selected().find(" 7 "), std::string::npos) << browsed.all();
    browsed.look(Job(0));
    browsed.press({NG_KEY_DOWN, NG_KEY_ENTER, 'c', 'g', NG_KEY_ENTER, 's', 'f'});
}

} // namespace
