/*
 * `ncclguard top`, `abort` and the store on the command line: which job, what a terminal sees, what
 * a process list must not.
 */
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

#include <random>

#include "tests/gtest/in_time.h"
#include "tests/gtest/own_json.h"
#include "tests/unit/tools/picture.h"
#include "tests/unit/tools/stuck_job.h"

namespace
{

const char secret[] = "pa55-w0rd";

/* A usage error: exit 2, nothing on standard output, and two lines with these words. */
void expect_usage_error(const Result &result, const std::string &names, const std::string &mends)
{
    EXPECT_EQ(result.code(), 2) << result.err;
    EXPECT_EQ(result.out, "");
    std::vector<std::string> told = lines(result.err);
    ASSERT_EQ(told.size(), 2u) << result.err;
    EXPECT_TRUE(has(told[0], names)) << told[0];
    EXPECT_TRUE(has(told[1], mends)) << told[1];
}

/* ---- Which job ---- */

TEST(Top, ShowsTheOnlyJobThatThereIs)
{
    Stuck job;
    Result result = run({"top"}, job.environment());
    expect_says(result, {"job test-job", "missing_rank: rank 2", "4 of 4 ranks seen"});
    EXPECT_FALSE(has(result.out, "\033")) << result.out;
}

TEST(Top, JsonIsTheVerdictAndTheTable)
{
    Stuck job;
    Result result = run({"top", "--json", "--job", "test-job"}, job.environment());
    EXPECT_EQ(result.code(), 0) << result.err;
    OwnJson root(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(root, "schema")), "ncclguard.verdict/1");
    EXPECT_STREQ(json_string_value(json_object_get(root, "table_schema")), "ncclguard.top/1");
    EXPECT_EQ(json_array_size(json_object_get(root, "processes")), 4u);
    EXPECT_STREQ(json_string_value(json_object_get(root, "kind")), "missing_rank");
    EXPECT_STREQ(json_string_value(json_object_get(root, "job")), "test-job");
    for (const char *key :
         {"schema", "time_unix_ns", "group", "seq", "op", "culprits", "waiting", "confidence",
          "missing_evidence", "detected_by", "stalled_ms", "action"})
        EXPECT_NE(json_object_get(root, key), nullptr) << key;
}

TEST(Groups, AreListedWithMembersAndAsJson)
{
    Stuck job;
    expect_says(run({"groups"}, job.environment()),
                {"job test-job: 1 group, 1 in use", "\"world\" (4 ranks), in use",
                 "global ranks, in the group's order: 0-3", "deadline: "});
    Result result = run({"groups", "--json", "--job", "test-job"}, job.environment());
    EXPECT_EQ(result.code(), 0) << result.err;
    OwnJson root(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(root, "schema")), "ncclguard.groups/1");
    EXPECT_STREQ(json_string_value(json_object_get(root, "job")), "test-job");
    json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    EXPECT_EQ(json_array_size(json_object_get(group, "members")), 4u);
}

TEST(Groups, OfNoJobAreAUsageError)
{
    Stuck job;
    expect_usage_error(run({"groups", "--job", "nowhere"}, job.environment()), "nowhere",
                       "test-job (4 of 4");
    expect_usage_error(run({"groups", "tp"}, job.environment()), "tp", "ncclguard groups");
}

TEST(Top, WithSeveralJobsListsThemAndShowsNone)
{
    Stuck job;
    BoxOwner other(job.folder.path(), {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, "other-job");
    Result result = run({"top", "--once"}, job.environment());
    expect_usage_error(result, "2 jobs", "other-job (1 of 1 processes alive), test-job (4 of 4");
}

TEST(Top, AJobThatLivesComesBeforeThoseThatHaveDied)
{
    Stuck job;
    BoxOwner dead(job.folder.path(), {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, "dead-job");
    dead.end();
    expect_says(run({"top", "--once"}, job.environment()), {"missing_rank"});
}

TEST(Top, AJobThatIsNotThereIsNamedBesideThoseThatAre)
{
    Stuck job;
    for (const char *command : {"top", "abort"})
        expect_usage_error(run({command, "--job", "nowhere"}, job.environment()), "nowhere",
                           "test-job (4 of 4");
    Folder empty;
    expect_usage_error(
        run({"top"}, {{"NCCLGUARD_STORE", "local:" + empty.path()}, {"NCCLGUARD_JOB", ""}}),
        "no job", "ncclguard run");
    expect_usage_error(run({"top", "--store", "none"}), "none", "--store URL");
    expect_usage_error(run({"top", "--job", "x", "--store", "local:/no/such/folder"}),
                       "no process of job x", "--store");
}

TEST(Top, ADamagedBoxIsANoteAndNoMore)
{
    Stuck job;
    job.folder.write("box-1-1", "damaged");
    expect_says(run({"top", "--once"}, job.environment()),
                {"not known: box-1-1", "missing_rank: rank 2"});
}

TEST(Top, ABoxThatWasCutOffIsNamedAndTheOthersAreUsed)
{
    for (auto [left_bytes, why] : CutOff::cuts) {
        CutOff job(left_bytes);
        expect_says(run({"top", "--once"}, job.environment()),
                    {"not known: " + job.name + why, "missing_rank: rank 2", "3 of 4 ranks seen"});
    }
}

/* What is said of these ranks once rank 1 got SIGKILL, or SIGSTOP. */
Result top_after(int signal, const std::vector<evidence_rank> &ranks)
{
    Folder folder;
    std::vector<std::unique_ptr<BoxOwner>> owners;
    for (const evidence_rank &rank : ranks)
        owners.push_back(
            std::make_unique<BoxOwner>(folder.path(), rank, static_cast<int>(ranks.size())));
    if (signal == SIGKILL)
        owners[1]->end();
    else
        stop_child(owners[1]->pid());
    return run({"top", "--store", "local:" + folder.path()}, {{"NCCLGUARD_JOB", ""}});
}

TEST(Top, ADeathThatHoldsOthersUpIsToldAtOnce)
{
    expect_says(top_after(SIGKILL,
                          {{0, EVIDENCE_RUNNING, 7, 6, 900, 0}, {1, EVIDENCE_RUNNING, 6, 6, 0, 0}}),
                {"dead_rank: rank 1"});
}

/* The others have not waited for as long as the one that gave up. */
TEST(Top, WhatARankGaveUpIsToldAtOnce)
{
    expect_says(top_after(SIGKILL, {{0, EVIDENCE_RUNNING, 7, 6, 900, 0},
                                    {1, EVIDENCE_RUNNING, 7, 6, 3000, 0},
                                    {2, EVIDENCE_RUNNING, 6, 6, 0, 0}}),
                {"missing_rank: rank 2"});
}

/* Below the suspect time. */
TEST(Top, AFrozenRankThatHoldsOthersUpIsToldAtOnce)
{
    expect_says(top_after(SIGSTOP,
                          {{0, EVIDENCE_RUNNING, 7, 6, 900, 0}, {1, EVIDENCE_RUNNING, 6, 6, 0, 0}}),
                {"stopped_rank: rank 1"});
}

/* Nobody waits for it. */
TEST(Top, AFrozenRankThatHoldsNobodyUpIsNoReason)
{
    Result result =
        top_after(SIGSTOP, {{0, EVIDENCE_RUNNING, 6, 6, 0, 0}, {1, EVIDENCE_RUNNING, 6, 6, 0, 0}});
    EXPECT_TRUE(has(result.out, "healthy: nothing is stuck longer than 5 s; certain"))
        << result.out;
}

TEST(Top, ThatNothingIsStuckIsOnlyLikelyWhileWorkIsPendingForLong)
{
    for (bool for_long : {false, true}) {
        Stuck job("test-job", "world", for_long ? 2000 : 300, EVIDENCE_RUNNING, 20000);
        Result result = run({"top", "--once"}, job.environment());
        EXPECT_TRUE(
            has(result.out, for_long ? "longer than 20 s; likely" : "longer than 20 s; certain"))
            << result.out;
    }
}

/* Nobody waits any more, but it is known what for. The table says how each process ended. */
TEST(Top, OfAJobThatHasEndedSaysWhatHeldItUp)
{
    for (bool by_guard : {true, false}) {
        Ended job(by_guard);
        Result result = run({"top", "--once"}, job.environment());
        expect_says(result, {"missing_rank: rank 2"});
        EXPECT_EQ(has(result.out, "guard"), by_guard) << result.out;
    }
}

/* The threshold is the job's, not that in the environment of `top`; an option overrides both. */
TEST(Top, WhatCountsAsStuckIsWhatTheJobSays)
{
    Stuck early("test-job", "world", 2500, EVIDENCE_RUNNING, 1000);
    std::map<std::string, std::string> environment = early.environment();
    environment["NCCLGUARD_SUSPECT"] = "9s";
    Result result = run({"top", "--once"}, environment);
    EXPECT_TRUE(has(result.out, "missing_rank: rank 2")) << result.out;
    result = run({"top", "--once", "--stalled", "100s"}, environment);
    EXPECT_TRUE(has(result.out, "healthy: nothing is stuck longer than 100 s; certain"))
        << result.out;
    Stuck late("test-job", "world", 7000, EVIDENCE_RUNNING, 20000);
    result = run({"top", "--once"}, late.environment());
    EXPECT_TRUE(has(result.out, "healthy: nothing is stuck longer than 20 s; likely"))
        << result.out;
}

/* ---- A terminal ---- */

class Terminal
{
  public:
    Terminal(const std::vector<std::string> &arguments,
             const std::map<std::string, std::string> &environment, unsigned short rows = 24,
             unsigned short columns = 100)
        : picture(rows, columns)
    {
        struct winsize size = {rows, columns, 0, 0};
        std::vector<std::string> words = {the_command()};
        words.insert(words.end(), arguments.begin(), arguments.end());
        std::vector<char *> argv;
        for (std::string &one : words)
            argv.push_back(&one[0]);
        argv.push_back(nullptr);
        if (openpty(&master_, &slave_, nullptr, nullptr, &size) != 0)
            throw std::runtime_error("openpty");
        fcntl(master_, F_SETFD, FD_CLOEXEC);
        fcntl(slave_, F_SETFD, FD_CLOEXEC);
        tcgetattr(slave_, &before_);
        pid_ = fork();
        if (pid_ == 0) {
            setsid();
            ioctl(slave_, TIOCSCTTY, 0);
            for (int fd = 0; fd < 3; fd++)
                dup2(slave_, fd);
            /* Curses does not know it: the plain screen. */
            setenv("TERM", "no-such-terminal", 1);
            /* Of a terminal that it does not know, ncurses leaves its first screen behind. */
            setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
            for (const auto &[name, value] : environment)
                value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
            execv(argv[0], argv.data());
            _exit(99);
        }
    }
    ~Terminal()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(master_);
        close(slave_);
    }
    Terminal(const Terminal &) = delete;

    /* Whether this comes, after what was awaited before; false after 20 s. */
    bool comes(const std::string &text)
    {
        auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (;;) {
            size_t found = screen_.find(text, seen_);
            if (found != std::string::npos) {
                seen_ = found + text.size();
                return true;
            }
            struct pollfd polled = {master_, POLLIN, 0};
            char buffer[4096];
            if (std::chrono::steady_clock::now() > until || poll(&polled, 1, 20000) <= 0)
                return false;
            ssize_t bytes = read(master_, buffer, sizeof(buffer));
            if (bytes <= 0)
                return false;
            screen_.append(buffer, static_cast<size_t>(bytes));
        }
    }
    /* Whether the picture comes to be so; false after 60 s, or when the program has ended. */
    bool shows(const std::function<bool(const Picture &)> &is_so)
    {
        auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!is_so(picture)) {
            struct pollfd polled = {master_, POLLIN, 0};
            char buffer[4096];
            if (std::chrono::steady_clock::now() > until || poll(&polled, 1, 60000) <= 0)
                return false;
            ssize_t bytes = read(master_, buffer, sizeof(buffer));
            if (bytes <= 0)
                return false;
            screen_.append(buffer, static_cast<size_t>(bytes));
            picture.feed(std::string(buffer, static_cast<size_t>(bytes)));
        }
        return true;
    }
    bool shows(const std::string &text)
    {
        return shows([&](const Picture &now) { return now.has(text); });
    }
    /* What comes up to the end of a picture; "" none. */
    std::string next_picture()
    {
        size_t from = seen_;
        return comes("\033[J") ? screen_.substr(from, seen_ - from) : "";
    }
    void type(const std::string &keys)
    {
        EXPECT_EQ(write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
    }
    void resize(unsigned short rows, unsigned short columns)
    {
        struct winsize size = {rows, columns, 0, 0};
        picture.resize(rows, columns);
        ioctl(master_, TIOCSWINSZ, &size);
    }
    void send(int number)
    {
        kill(pid_, number);
    }
    bool stops()
    {
        int status;
        return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
    }
    /* The wait status of the end; the output is read to what is there. */
    int end()
    {
        int status = -1;
        comes("\033[?1049l");
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }
    /* Status 0, and the terminal is given back. */
    void expect_good_end()
    {
        int status = end();
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
        EXPECT_TRUE(is_as_before());
    }
    bool is_as_before() const
    {
        struct termios now;
        tcgetattr(slave_, &now);
        return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
               now.c_oflag == before_.c_oflag &&
               memcmp(now.c_cc, before_.c_cc, sizeof(now.c_cc)) == 0 &&
               came_last("\033[?1049l", "\033[?1049h") && came_last("\033[?25h", "\033[?25l") &&
               (screen_.find("\033[?7l") == std::string::npos || came_last("\033[?7h", "\033[?7l"));
    }
    bool came_last(const char *last, const char *before) const
    {
        size_t at = screen_.rfind(last);
        return at != std::string::npos && at > screen_.rfind(before);
    }
    bool is_raw() const
    {
        struct termios now;
        tcgetattr(slave_, &now);
        return !(now.c_lflag & (ICANON | ECHO));
    }
    const std::string &screen() const
    {
        return screen_;
    }

    Picture picture; /* of what `shows` has read */

  private:
    int master_, slave_;
    pid_t pid_ = -1;
    struct termios before_;
    std::string screen_;
    size_t seen_ = 0;
};

TEST(TopOnATerminal, RedrawsUntilQAndGivesTheTerminalBack)
{
    Stuck job;
    Terminal terminal({"top", "--interval", "100ms"}, job.environment());
    ASSERT_TRUE(terminal.comes("\033[?1049h"));
    ASSERT_TRUE(terminal.comes("missing_rank: rank 2")) << terminal.screen();
    EXPECT_TRUE(terminal.is_raw());
    ASSERT_TRUE(terminal.comes("\033[H"));
    ASSERT_TRUE(terminal.comes("missing_rank: rank 2"));
    terminal.type("xx\033[A");
    ASSERT_TRUE(terminal.comes("\033[H"));
    terminal.type("q");
    terminal.expect_good_end();
}

TEST(TopOnATerminal, AnotherSizeIsUsedAtOnce)
{
    Stuck job;
    Terminal terminal({"top", "--interval", "1h"}, job.environment(), 40, 200);
    ASSERT_TRUE(terminal.comes("test-job   1 host   4 of 4 ranks seen"));
    ASSERT_TRUE(terminal.comes("\033[J"));
    size_t before = terminal.screen().size();
    terminal.resize(24, 30);
    ASSERT_TRUE(terminal.comes("\033[J"));
    std::string picture = terminal.screen().substr(before);
    EXPECT_FALSE(has(picture, "ranks seen")) << picture;
    EXPECT_TRUE(has(picture, "job test-job")) << picture;
    terminal.type("q");
    terminal.end();
}

TEST(TopOnATerminal, WhatCannotBeSeenForAWhileIsShownAsItWas)
{
    Stuck job;
    Terminal terminal({"top", "--interval", "100ms"}, job.environment());
    ASSERT_TRUE(terminal.comes("missing_rank"));
    /* In one step: where nothing is at all the job is over. */
    std::string away = job.folder.path() + ".away";
    std::ofstream(away) << "no folder";
    auto exchange = [&] {
        return renameat2(AT_FDCWD, job.folder.path().c_str(), AT_FDCWD, away.c_str(),
                         RENAME_EXCHANGE);
    };
    ASSERT_EQ(exchange(), 0);
    bool told = terminal.comes("stale: "), twice = false;
    if (told)
        twice = terminal.comes("missing_rank") && terminal.comes("stale: ");
    ASSERT_EQ(exchange(), 0);
    std::filesystem::remove(away);
    EXPECT_TRUE(told && twice) << terminal.screen();
    ASSERT_TRUE(terminal.comes("\033[J")); /* the end of the picture that was read last */
    /* Once those made meanwhile have been read, too, it is no longer said. */
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::string picture;
    do
        picture = terminal.next_picture();
    while (has(picture, "stale: ") && std::chrono::steady_clock::now() < until);
    EXPECT_TRUE(has(picture, "missing_rank")) << picture;
    EXPECT_FALSE(has(picture, "stale: ")) << picture;
    terminal.type("q");
    terminal.expect_good_end();
}

TEST(TopOnATerminal, OnceAndADumbTerminalPrintPlainly)
{
    Stuck job;
    for (bool dumb : {false, true}) {
        std::map<std::string, std::string> environment = job.environment();
        std::vector<std::string> arguments = {"top"};
        if (dumb)
            environment["TERM"] = "dumb";
        else
            arguments.push_back("--once");
        Terminal terminal(arguments, environment);
        ASSERT_TRUE(terminal.comes("missing_rank"));
        ASSERT_TRUE(terminal.comes("MEMBER"));
        EXPECT_FALSE(has(terminal.screen(), "\033")) << terminal.screen();
    }
}

/* ---- A terminal that curses knows: people browse the job ---- */

const char up[] = "\033OA", down[] = "\033OB", page_up[] = "\033[5~", page_down[] = "\033[6~",
           home[] = "\033OH", end_key[] = "\033OF";

std::map<std::string, std::string> in_xterm(std::map<std::string, std::string> environment)
{
    environment["TERM"] = "xterm-256color";
    environment["LC_ALL"] = "C.UTF-8";
    environment["NO_COLOR"] = "";
    return environment;
}

/* Redrawn plainly, and by curses. */
struct TopOnEither : testing::TestWithParam<bool> {
    void SetUp() override
    {
        if (GetParam() && !NG_HAVE_CURSES)
            GTEST_SKIP() << "ncursesw was not there when this was built";
    }
    std::unique_ptr<Terminal> top(const char *interval = "1h")
    {
        auto environment = job.environment();
        return std::make_unique<Terminal>(std::vector<std::string>{"top", "--interval", interval},
                                          GetParam() ? in_xterm(environment) : environment);
    }
    bool is_drawn(Terminal &terminal) const
    {
        return GetParam() ? terminal.shows("j jobs") && terminal.picture.has("missing_rank")
                          : terminal.comes("missing_rank") && terminal.comes("\033[J");
    }
    Stuck job;
};
INSTANTIATE_TEST_SUITE_P(, TopOnEither, testing::Bool(), [](const auto &info) {
    return std::string(info.param ? "Curses" : "Plain");
});

TEST_P(TopOnEither, CtrlCEndsItLikeQ)
{
    auto terminal = top();
    ASSERT_TRUE(is_drawn(*terminal));
    terminal->type("\003");
    terminal->expect_good_end();
}

TEST_P(TopOnEither, ASignalEndsItByThatSignalWithTheTerminalRestored)
{
    auto terminal = top();
    ASSERT_TRUE(is_drawn(*terminal));
    terminal->send(SIGTERM);
    int status = terminal->end();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
    EXPECT_TRUE(terminal->is_as_before());
}

TEST_P(TopOnEither, CtrlZGivesTheTerminalBackUntilItGoesOn)
{
    auto terminal = top();
    ASSERT_TRUE(is_drawn(*terminal));
    terminal->type("\032");
    ASSERT_TRUE(terminal->stops());
    ASSERT_TRUE(terminal->comes("\033[?1049l"));
    EXPECT_TRUE(terminal->is_as_before());
    terminal->picture.resize(24, 100);
    terminal->send(SIGCONT);
    ASSERT_TRUE(is_drawn(*terminal));
    EXPECT_TRUE(terminal->came_last("\033[?1049h", "\033[?1049l"));
    EXPECT_TRUE(terminal->is_raw());
    terminal->type("q");
    terminal->expect_good_end();
}

TEST_P(TopOnEither, EndsWithTheJob)
{
    auto terminal = top("100ms");
    ASSERT_TRUE(is_drawn(*terminal));
    for (auto &owner : job.owners)
        owner->end();
    for (const auto &entry : std::filesystem::directory_iterator(job.folder.path()))
        std::filesystem::remove(entry.path());
    terminal->expect_good_end();
}

/* Without curses the same job is redrawn plainly, and none of this can be tested. */
struct TopInCurses : testing::Test {
    void SetUp() override
    {
        if (!NG_HAVE_CURSES)
            GTEST_SKIP() << "ncursesw was not there when this was built";
    }
};

TEST_F(TopInCurses, TheCulpritIsSelectedAndAlikeRanksAreFolded)
{
    Stuck job;
    Terminal terminal({"top", "--interval", "1h"}, in_xterm(job.environment()), 24, 80);
    ASSERT_TRUE(terminal.shows("j jobs")) << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.has("missing_rank: rank 2")) << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.has("0,1,3 (3)")) << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.has(">!")) << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.has("lines 1-2 of 2 (4 ranks, alike ones folded)"))
        << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.coloured());
    EXPECT_TRUE(terminal.is_raw());
    terminal.type("q");
    terminal.expect_good_end();
}

TEST_F(TopInCurses, AnotherSizeIsUsedAtOnce)
{
    Stuck job;
    Terminal terminal({"top", "--interval", "1h"}, in_xterm(job.environment()), 24, 80);
    ASSERT_TRUE(terminal.shows("j jobs"));
    terminal.resize(60, 200);
    ASSERT_TRUE(terminal.shows([](const Picture &now) {
        return now.line(59).find("j jobs") != std::string::npos;
    })) << terminal.picture.text();
    EXPECT_TRUE(terminal.picture.has("STARTED")) << terminal.picture.text();
    EXPECT_FALSE(terminal.picture.line(23).find("j jobs") != std::string::npos);
    terminal.type("q");
    terminal.expect_good_end();
}

TEST_F(TopInCurses, NoColorIsKept)
{
    Stuck job;
    std::map<std::string, std::string> environment = in_xterm(job.environment());
    environment["NO_COLOR"] = "1";
    Terminal terminal({"top", "--interval", "1h"}, environment);
    ASSERT_TRUE(terminal.shows("j jobs"));
    EXPECT_FALSE(terminal.picture.coloured()) << terminal.screen();
    terminal.type("q");
    terminal.expect_good_end();
}

/* A terminal in which the test types. */
struct Browsed : Terminal {
    Browsed(const std::vector<std::string> &arguments,
            const std::map<std::string, std::string> &environment, unsigned short rows = 24,
            unsigned short columns = 80)
        : Terminal(arguments, in_xterm(environment), rows, columns)
    {
        EXPECT_TRUE(shows("q quit")) << picture.text();
    }
    ~Browsed()
    {
        type("q");
        expect_good_end();
    }
    /* Type, and see this. */
    void expect(const std::string &keys, const std::string &text,
                const char *file = __builtin_FILE(), int line = __builtin_LINE())
    {
        testing::ScopedTrace trace(file, line, "typed");
        type(keys);
        EXPECT_TRUE(shows(text)) << text << " does not come:\n" << picture.text();
    }
    /* Type, and this row is selected. */
    void expect_selected(const std::string &keys, const std::string &text,
                         const char *file = __builtin_FILE(), int line = __builtin_LINE())
    {
        testing::ScopedTrace trace(file, line, "typed");
        type(keys);
        EXPECT_TRUE(shows([&](const Picture &now) {
            int at = now.find(">");
            return at >= 0 && now.line(static_cast<unsigned>(at)).find(text) != std::string::npos;
        })) << text
            << " is not selected:\n"
            << picture.text();
    }
};

/* Many ranks that a guard has ended, of which one did not come to the seventh collective. */
struct Many : private HeldClock {
    explicit Many(int ranks, int missing)
    {
        for (int rank = 0; rank < ranks; rank++)
            BoxOwner(folder.path(),
                     {rank, EVIDENCE_ENDED_BY_GUARD, rank == missing ? 6u : 7u, 6,
                      rank == missing ? 0 : 10000, 0},
                     ranks, "test-job", "world", false);
    }
    std::map<std::string, std::string> environment() const
    {
        return {{"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}};
    }
    Folder folder;
};

TEST_F(TopInCurses, AThousandRanksAreInOneScreenAndCanBeScrolled)
{
    Many job(1024, 700);
    for (auto [rows, columns] : {std::pair<unsigned short, unsigned short>(24, 80), {60, 200}}) {
        Browsed browsed({"top", "--interval", "1h"}, job.environment(), rows, columns);
        EXPECT_TRUE(browsed.picture.has("0-699,701-1023 (1023)")) << browsed.picture.text();
        browsed.expect_selected("", "!");
        browsed.expect_selected("", " 700 ");
        browsed.expect("f", "of 1024 (1024 ranks)");
        browsed.expect_selected(end_key, " 1023 ");
        browsed.expect_selected(up, " 1022 ");
        browsed.expect_selected(home, " 0 ");
        browsed.expect_selected(down, " 1 ");
        browsed.expect_selected(std::string(page_down) + page_up + "c", " 700 ");
        browsed.expect("/1000", "/1000_");
        browsed.expect_selected("\r", " 1000 ");
        browsed.expect("\033", "of 1024 (1024 ranks)");
        browsed.expect("s", "sorted by age");
        browsed.expect("s", "sorted by state");
        browsed.expect("s", "sorted by host");
        browsed.expect("s", "sorted by rank");
        browsed.expect("g", "1024/1024");
        browsed.expect("?", "what it has been in for");
        browsed.expect("\033", "1024/1024");
    }
}

TEST_F(TopInCurses, ARankHasItsStackFromTheEvidence)
{
    Stuck job;
    Folder evidence;
    std::map<std::string, std::string> environment = job.environment();
    environment["NCCLGUARD_DUMP_DIR"] = evidence.path();
    std::string pid = std::to_string(job.owners[2]->pid());
    evidence.write("rank_2.stacks.txt",
                   "Stacks of rank 2, pid " + pid +
                       " (python3 train.py) on host a.\n\nThread 1 \"python3\"\n"
                       "  Python, innermost first:\n"
                       "    File \"train.py\", line 12 in load\n");
    evidence.write("rank_1.stacks.txt", "Stacks of rank 1, pid 1 (another) on host a.\n");
    Browsed browsed({"top", "--interval", "1h"}, environment);
    browsed.expect("c\r", "rank 2: the verdict names it");
    EXPECT_TRUE(browsed.shows("line 12 in load")) << browsed.picture.text();
    browsed.expect("\033", "4 ranks");
    browsed.expect("f", "of 4 (4 ranks)");
    /* That of another process is not its own. */
    browsed.expect_selected(up, " 1 ");
    browsed.expect("\r", "not taken yet");
    EXPECT_FALSE(browsed.picture.has("another")) << browsed.picture.text();
}

TEST_F(TopInCurses, SeveralJobsAreThereToChooseFrom)
{
    Stuck job;
    BoxOwner other(job.folder.path(), {0, EVIDENCE_RUNNING, 1, 1, 0, 0}, 1, "other-job", "world",
                   true, 7);
    Browsed browsed({"top", "--interval", "1h"}, job.environment());
    EXPECT_TRUE(browsed.picture.has("other-job")) << browsed.picture.text();
    browsed.expect_selected("", "other-job");
    browsed.expect_selected(down, "test-job");
    browsed.expect("\r", "missing_rank: rank 2");
    browsed.expect("j", "4 of 4 alive");
    browsed.expect_selected(up, "other-job");
    browsed.type("\r");
    EXPECT_TRUE(browsed.shows([](const Picture &now) {
        return now.has("job other-job") && !now.has("missing_rank") && now.has("(1 rank,");
    })) << browsed.picture.text();
}

TEST_F(TopInCurses, JobsOfTheStoreAreThereToChooseFrom)
{
    Folder folder;
    std::string path = folder / "socket";
    Process server({"redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir",
                    folder.path()});
    if (!server.wait_for("eady to accept connections"))
        GTEST_SKIP() << "redis-server is not installed";
    Process client({"redis-cli", "-s", path, "MSET", "{ncclguard:train-7:run}:a", "x",
                    "{ncclguard:train-8:run}:a", "x"});
    ASSERT_EQ(client.wait_end(), 0);
    Browsed browsed({"top", "--interval", "1h"}, {{"NCCLGUARD_STORE", "redis+unix://" + path},
                                                  {"NCCLGUARD_JOB", ""},
                                                  {"NCCLGUARD_DIR", folder.path()}});
    EXPECT_TRUE(browsed.picture.has("train-7") && browsed.picture.has("train-8"))
        << browsed.picture.text();
    EXPECT_TRUE(browsed.picture.has("the store")) << browsed.picture.text();
    /* Of keys alone it cannot be told where the ranks are. */
    browsed.expect("\r", "no process of job train-");
    kill(server.pid(), SIGKILL);
    browsed.expect("j", "cannot be used");
}

TEST_F(TopInCurses, WhatCannotBeSeenForAWhileIsShownAsItWas)
{
    Stuck job;
    Browsed browsed({"top", "--interval", "100ms"}, job.environment());
    std::string away = job.folder.path() + ".away";
    std::ofstream(away) << "no folder";
    auto exchange = [&] {
        return renameat2(AT_FDCWD, job.folder.path().c_str(), AT_FDCWD, away.c_str(),
                         RENAME_EXCHANGE);
    };
    ASSERT_EQ(exchange(), 0);
    EXPECT_TRUE(browsed.shows("stale: ")) << browsed.picture.text();
    EXPECT_TRUE(browsed.picture.has("missing_rank")) << browsed.picture.text();
    ASSERT_EQ(exchange(), 0);
    std::filesystem::remove(away);
    EXPECT_TRUE(browsed.shows([](const Picture &now) {
        return !now.has("stale: ") && now.has("lines 1-2");
    })) << browsed.picture.text();
}

/* ---- Abort ---- */

TEST(Abort, TellsEveryLivingProcessAndSaysHowMany)
{
    Stuck job;
    Result result = run({"abort", "--job", "test-job"}, job.environment());
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_EQ(result.out, "told 4 processes of job test-job to abort all groups\n");
}

TEST(Abort, FindsAGroupByIdAndByName)
{
    for (const char *group : {"0123456789abcdef", "0123456789ABCDEF", "world"}) {
        Stuck job;
        expect_says(run({"abort", "--job", "test-job", "--group", group}, job.environment()),
                    {"group 0123456789abcdef"});
    }
}

TEST(Abort, NeedsAJobAndAGroupThatThereIs)
{
    Stuck job;
    expect_usage_error(run({"abort"}, job.environment()), "no job", "--job JOB");
    expect_usage_error(run({"abort", "--job", ""}, job.environment()), "empty", "--job JOB");
    expect_usage_error(run({"abort", "--job", "test-job", "--group", ""}, job.environment()),
                       "empty", "--group GROUP");
    expect_usage_error(run({"abort", "--job", "test-job", "--group", "wrld"}, job.environment()),
                       "wrld", "world 0123456789abcdef (4 ranks)");
    expect_usage_error(
        run({"abort", "--job", "test-job", "--group", "0000000000000000"}, job.environment()),
        "0000000000000000", "world");
}

TEST(Suspend, AndItsKinTellEveryLivingProcessWhatAndForHowLong)
{
    Stuck job;
    static const struct {
        std::vector<std::string> arguments;
        const char *told;
    } rows[] = {
        {{"suspend"}, "suspend the deadlines of all groups"},
        {{"suspend", "--for", "90s"}, "suspend the deadlines of all groups for 90s"},
        {{"suspend", "--group", "world"}, "suspend the deadlines of group 0123456789abcdef"},
        {{"resume"}, "resume the deadlines of all groups"},
        {{"resume", "--group", "0123456789abcdef"},
         "resume the deadlines of group 0123456789abcdef"},
        {{"reload"}, "read the rules of all groups again"},
    };
    for (const auto &row : rows) {
        std::vector<std::string> arguments = row.arguments;
        arguments.insert(arguments.begin() + 1, {"--job", "test-job"});
        Result result = run(arguments, job.environment());
        EXPECT_EQ(result.code(), 0) << result.err;
        EXPECT_EQ(result.out,
                  std::string("told 4 processes of job test-job to ") + row.told + "\n");
    }
}

TEST(Set, SaysHowManyHaveTakenItAndWhoHasNot)
{
    Folder folder;
    std::vector<std::unique_ptr<BoxOwner>> owners;
    /* Rank 2 is frozen, rank 1 has another value, and of rank 3 nothing is known. */
    for (int rank = 0; rank < 4; rank++) {
        const evidence_rank here = {rank, EVIDENCE_RUNNING, 7, 7, 0, 0};
        const uint8_t timing = rank == 3 ? 0 : rank ? 2 : 3;
        owners.push_back(std::make_unique<BoxOwner>(folder.path(), here, 4, "test-job", "world",
                                                    true, 0,
                                                    [timing] { return evidence_set(timing); }));
    }
    kill(owners[2]->pid(), SIGSTOP);
    const std::map<std::string, std::string> environment = {
        {"NCCLGUARD_STORE", "local:" + folder.path()}, {"NCCLGUARD_JOB", ""}};
    Result result = run({"set", "--job", "test-job", "timing=all"}, environment);
    EXPECT_EQ(result.code(), 1) << result.err;
    EXPECT_EQ(result.err, "");
    std::vector<std::string> told = lines(result.out);
    ASSERT_EQ(told.size(), 5u) << result.out;
    EXPECT_EQ(told[0], "told 4 processes of job test-job to set timing=all");
    EXPECT_EQ(told[1], "1 of 4 processes took it");
    auto pid = [&](int rank) { return "pid " + std::to_string(owners[(size_t)rank]->pid()) + ")"; };
    EXPECT_TRUE(has(told[2], "not taken by rank 1 ") && has(told[2], pid(1)) &&
                has(told[2], "no answer within 5 s"))
        << told[2];
    EXPECT_TRUE(has(told[3], "not taken by rank 2 ") && has(told[3], pid(2)) &&
                has(told[3], "frozen"))
        << told[3];
    EXPECT_TRUE(has(told[4], "not taken by rank 3 ") && has(told[4], pid(3))) << told[4];
    owners.resize(1);
    result = run({"set", "--job", "test-job", "NCCLGUARD_TIMING=ALL"}, environment);
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_EQ(result.out, "told 1 process of job test-job to set timing=all\n"
                          "1 of 1 process took it\n");
}

TEST(Set, NeedsAJobThatThereIs)
{
    Stuck job;
    expect_usage_error(run({"set", "--job", "other", "timing=all"}, job.environment()),
                       "no process of job other", "test-job");
    for (auto &owner : job.owners)
        owner->end();
    expect_usage_error(run({"set", "--job", "test-job", "timing=all"}, job.environment()),
                       "no process of job test-job is alive", "nothing is left to set");
}

TEST(Abort, WithNobodyAliveSaysSo)
{
    Stuck job;
    for (auto &owner : job.owners)
        owner->end();
    expect_usage_error(run({"abort", "--job", "test-job"}, job.environment()),
                       "no process of job test-job is alive", "nothing left");
}

/* ---- The store ---- */

std::string with_secret(const std::string &rest)
{
    return "redis://:" + std::string(secret) + "@" + rest;
}

TEST(Store, APasswordIsNotInTheCommandLineOfRunButInItsEnvironment)
{
    std::string url = with_secret("127.0.0.1:1");
    const char script[] = "tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo $NCCLGUARD_STORE";
    for (const std::vector<std::string> &option :
         {std::vector<std::string>{"--store", url}, std::vector<std::string>{"--store=" + url},
          std::vector<std::string>{"--sto", url},
          std::vector<std::string>{"--store", url + "/1", "--store", url}}) {
        std::vector<std::string> arguments = {"run"};
        arguments.insert(arguments.end(), option.begin(), option.end());
        arguments.insert(arguments.end(), {"sh", "-c", script});
        Result result = run(arguments);
        EXPECT_EQ(result.code(), 0) << result.err;
        std::vector<std::string> told = lines(result.out);
        ASSERT_EQ(told.size(), 2u) << result.out;
        EXPECT_FALSE(has(told[0], secret)) << told[0];
        EXPECT_TRUE(has(told[0], "redis://:***@127")) << told[0];
        EXPECT_TRUE(has(told[0], "run")) << told[0];
        EXPECT_EQ(told[1], url);
        EXPECT_FALSE(has(result.err, secret)) << result.err;
    }
}

TEST(Store, TheProgramsOwnArgumentsStayAsTheyAre)
{
    std::string url = with_secret("h");
    Result result = run({"run", "--store", "none", "printf", "%s|", "--store", url});
    EXPECT_EQ(result.out, "--store|" + url + "|");
}

TEST(Store, NoUsageErrorShowsAPassword)
{
    std::string url = with_secret("h:70000"), good = with_secret("h"), word = secret;
    const std::vector<std::vector<std::string>> mistakes = {
        {"run", "--store", url, "true"},
        {"run", "--store=" + url, "true"},
        {"run", "--stroe=" + good, "true"},
        {"run", "--stroe", good},
        {"top", "--store", url},
        {"top", good},
        {"abort", "--job", "x", "--store", url},
        {"abort", good},
        {"doctor", "--store=" + good, "--jsn"},
        {"config", good},
        {"apis", good},
        {good},
        {"--store=" + good},
        {"run", "--store", "redis:" + word + "@h", "true"},
        {"run", "--store", "redis://:" + word, "true"},
        {"run", "--store", "rediss://u:" + word + "@h/x", "true"},
        {"run", "--store", "redis+unix://:" + word + "@/", "true"},
        {"run", "--store", "redis+sentinel://:" + word + "@a,b", "true"},
        {"run", "--store", "http://:" + word + "@h", "true"},
        {"run", "--store", ":" + word + "@h", "true"},
    };
    for (const std::vector<std::string> &arguments : mistakes) {
        Result result = run(arguments);
        EXPECT_EQ(result.code(), 2) << arguments.back() << result.err;
        EXPECT_EQ(lines(result.err).size(), 2u) << result.err;
        EXPECT_FALSE(has(result.err, secret)) << result.err;
        EXPECT_FALSE(has(result.out, secret)) << result.out;
    }
    Result result = run({"run", "true"}, {{"NCCLGUARD_STORE", url}});
    EXPECT_EQ(result.code(), 2);
    EXPECT_FALSE(has(result.err, secret)) << result.err;
}

TEST(Store, ArgumentsOfAllKindsEndInAUsageErrorOrAnAnswerAndShowNoPassword)
{
    static const char *const words[] = {"top",
                                        "abort",
                                        "--job",
                                        "--job=",
                                        "--once",
                                        "--json",
                                        "--group",
                                        "--group=x",
                                        "--store",
                                        "--",
                                        "-",
                                        "",
                                        "--help",
                                        "--interval",
                                        "--interval=0",
                                        "1s",
                                        "--stalled=-1",
                                        "local:",
                                        "none",
                                        "redis://:pa55-w0rd@127.0.0.1:1",
                                        "--store=redis://u:pa55-w0rd@[::1]:1/0",
                                        "redis://:pa55-w0rd@",
                                        "\xff\x1b[2J",
                                        "-h",
                                        "-x",
                                        "no-such-job",
                                        "--store=local:/no/such/folder"};
    constexpr size_t count = sizeof(words) / sizeof(words[0]);
    std::mt19937 random(3);
    Folder empty;
    for (int round = 0; round < 150; round++) {
        std::vector<std::string> arguments = {round % 2 ? "top" : "abort"};
        for (unsigned i = random() % 6; i > 0; i--)
            arguments.push_back(words[random() % count]);
        if (round % 3)
            arguments.insert(arguments.end(), {"--job", "no-such-job"});
        Result result = run(arguments, {{"NCCLGUARD_JOB", ""}, {"NCCLGUARD_DIR", empty.path()}});
        std::string all;
        for (const std::string &word : arguments)
            all += " " + word;
        EXPECT_GE(result.code(), 0) << all;
        EXPECT_LE(result.code(), 2) << all;
        if (result.code() != 0) {
            EXPECT_EQ(lines(result.err).size(), 2u) << all << "\n" << result.err;
            EXPECT_EQ(result.out, "") << all;
        }
        EXPECT_FALSE(has(result.out + result.err, secret)) << all << "\n" << result.err;
    }
}

/* A port at which nobody listens, and nobody can while this is there. */
class SilentPort
{
  public:
    SilentPort()
    {
        struct sockaddr_in address = {};
        socklen_t bytes = sizeof(address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(fd_, reinterpret_cast<struct sockaddr *>(&address), bytes) != 0 ||
            getsockname(fd_, reinterpret_cast<struct sockaddr *>(&address), &bytes) != 0)
            throw std::runtime_error("no free port");
        number = ntohs(address.sin_port);
    }
    ~SilentPort()
    {
        close(fd_);
    }
    SilentPort(const SilentPort &) = delete;
    std::string host() const
    {
        return "127.0.0.1:" + std::to_string(number);
    }
    int number;

  private:
    int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

/* A real server on a port of its own, as the package has it. */
class Redis
{
  public:
    Redis()
    {
        /* Somebody else may take the port before the server does. */
        for (int tries = 0; tries < 5 && !ready; tries++) {
            port = SilentPort().number;
            server_ = std::make_unique<Process>(std::vector<std::string>{
                "redis-server", "--port", std::to_string(port), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", "--requirepass", secret, "--dir", folder_.path()});
            ready = server_->wait_for("eady to accept connections");
        }
    }
    static bool available()
    {
        return system("command -v redis-server > /dev/null") == 0;
    }
    std::string host() const
    {
        return "127.0.0.1:" + std::to_string(port);
    }
    pid_t pid() const
    {
        return server_->pid();
    }
    int port = 0;
    bool ready = false;

  private:
    Folder folder_;
    std::unique_ptr<Process> server_;
};

std::string store_line(const std::string &out)
{
    std::string found;
    bool inside = false;
    for (const std::string &line : lines(out)) {
        if (has(line, "redis://"))
            inside = true;
        else if (!has(line, "  mend: "))
            inside = false;
        if (inside)
            found += line + "\n";
    }
    return found;
}

TEST(StoreOnRedis, TheDoctorTellsWhetherItAnswersAndWhatIsWrong)
{
    if (!Redis::available())
        GTEST_SKIP() << "redis-server is not installed";
    Redis redis;
    ASSERT_TRUE(redis.ready);
    /* A store has two seconds to answer. */
    auto began = std::chrono::steady_clock::now();
    auto if_late = [&began] {
        auto took = std::chrono::steady_clock::now() - began;
        began += took;
        return took < std::chrono::seconds(2) ? "" : "late: the server had little of the machine\n";
    };
    Result well = run({"doctor", "--store", with_secret(redis.host()), "--", "/bin/true"});
    const char *late = if_late();
    EXPECT_TRUE(has(store_line(well.out), "the store answers")) << late << well.out;
    EXPECT_FALSE(has(well.out + well.err, secret)) << well.out;

    Result from_environment = run({"doctor", "--json", "--", "/bin/true"},
                                  {{"NCCLGUARD_STORE", with_secret(redis.host())}});
    late = if_late();
    EXPECT_TRUE(has(from_environment.out, "the store answers")) << late << from_environment.out;
    EXPECT_FALSE(has(from_environment.out, secret));

    Result wrong =
        run({"doctor", "--store", "redis://:wr0ng-0ne@" + redis.host(), "--", "/bin/true"});
    late = if_late();
    EXPECT_TRUE(has(store_line(wrong.out), "warning")) << late << wrong.out;
    EXPECT_TRUE(has(store_line(wrong.out), "mend: correct the user and password"))
        << late << wrong.out;
    EXPECT_FALSE(has(wrong.out + wrong.err, "wr0ng-0ne")) << wrong.out;

    stop_child(redis.pid());
    auto start = std::chrono::steady_clock::now();
    Result silent = run({"doctor", "--store", with_secret(redis.host()), "--", "/bin/true"});
    EXPECT_IN_TIME(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    EXPECT_TRUE(has(store_line(silent.out), "mend: see whether the server is stuck")) << silent.out;
    kill(redis.pid(), SIGCONT);
}

TEST(StoreOnRedis, TheDoctorNamesAServerThatIsNotThere)
{
    SilentPort port;
    Result result = run({"doctor", "--store", with_secret(port.host()), "--", "/bin/true"});
    EXPECT_TRUE(has(store_line(result.out), "mend: start Redis there")) << result.out;
    EXPECT_FALSE(has(result.out, secret));
}

TEST(StoreOnRedis, TopAndAbortTellAJobThatIsNotThereFromAStoreThatIsNotThere)
{
    if (!Redis::available())
        GTEST_SKIP() << "redis-server is not installed";
    Redis redis;
    ASSERT_TRUE(redis.ready);
    Folder empty;
    for (const char *command : {"top", "abort"}) {
        Result result = run({command, "--job", "nobody", "--store", with_secret(redis.host())},
                            {{"NCCLGUARD_DIR", empty.path()}});
        expect_usage_error(result, "no process of job nobody", "--store");
        EXPECT_FALSE(has(result.err, secret)) << result.err;
    }
    SilentPort port;
    for (const char *command : {"top", "abort"}) {
        Result result = run({command, "--job", "nobody", "--store", with_secret(port.host())});
        EXPECT_EQ(result.code(), 1) << result.err;
        ASSERT_EQ(lines(result.err).size(), 2u) << result.err;
        EXPECT_TRUE(has(lines(result.err)[1], "start Redis there")) << result.err;
        EXPECT_FALSE(has(result.err, secret)) << result.err;
    }
}

} /* namespace */
