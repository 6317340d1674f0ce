/*
 * The log: levels, one write a line, cutting, files, dead readers, errno.
 *
 * The log is one per process: every test runs in a child of its own.
 */
#include "tests/unit/core/helpers/core.h"

#include <fnmatch.h>
#include <fstream>

#include "tests/unit/core/helpers/plain_threads.h"

namespace
{

/*
 * What a child wrote to stderr, one element per write(2): a packet socket keeps them apart.
 */
struct Outcome {
    int status;
    std::vector<std::string> writes;
};

Outcome logged(const std::function<int()> &body)
{
    Outcome outcome;
    int pair[2];
    char packet[8192];

    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    outcome.status = in_child([&] {
        dup2(pair[1], STDERR_FILENO);
        return body();
    });
    close(pair[1]);
    for (ssize_t got; (got = recv(pair[0], packet, sizeof(packet), MSG_DONTWAIT)) > 0;)
        outcome.writes.push_back(std::string(packet, (size_t)got));
    close(pair[0]);
    return outcome;
}

/* As a shell matches file names. */
bool matches(const std::string &text, const std::string &pattern)
{
    return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

} // namespace

TEST(Log, WritesNoMoreThanItsLevel)
{
    for (int level = NG_LOG_OFF; level <= NG_LOG_DEBUG; level++) {
        Outcome outcome = logged([level] {
            ng_log_init((enum ng_log_level)level, nullptr, -1);
            ng_log(NG_LOG_ERROR, "one");
            ng_log(NG_LOG_WARN, "two");
            ng_log(NG_LOG_INFO, "three");
            ng_log(NG_LOG_DEBUG, "four");
            for (int asked = NG_LOG_ERROR; asked <= NG_LOG_DEBUG; asked++)
                if (ng_log_enabled((enum ng_log_level)asked) != (asked <= level))
                    return 1;
            return ng_log_enabled(NG_LOG_OFF) ? 2 : 0;
        });
        EXPECT_EQ(outcome.status, 0);
        EXPECT_EQ((int)outcome.writes.size(), level);
    }
}

TEST(Log, ItsLevelCanChangeButNotForAForkedChild)
{
    Outcome outcome = logged([] {
        ng_log_init(NG_LOG_WARN, nullptr, -1);
        ng_log(NG_LOG_DEBUG, "one");
        ng_log_set_level(NG_LOG_DEBUG);
        ng_log(NG_LOG_DEBUG, "two");
        ng_log_set_level(NG_LOG_OFF);
        ng_log(NG_LOG_ERROR, "three");
        ng_log_after_fork();
        ng_log(NG_LOG_DEBUG, "four");
        ng_log(NG_LOG_WARN, "five");
        return 0;
    });
    ASSERT_EQ(outcome.writes.size(), 2u);
    EXPECT_NE(outcome.writes[0].find("debug: two"), std::string::npos);
    EXPECT_NE(outcome.writes[1].find("warn: five"), std::string::npos);
}

TEST(Log, WarnsBeforeItIsInitialised)
{
    Outcome outcome = logged([] {
        ng_log(NG_LOG_WARN, "early");
        ng_log(NG_LOG_INFO, "not this");
        return 0;
    });
    ASSERT_EQ(outcome.writes.size(), 1u);
    EXPECT_TRUE(matches(outcome.writes[0],
                        "ncclguard[[][1-9]*] warn: early [[]*, 2[0-9]*-*-* *:*:*.[0-9]* UTC]\n"))
        << outcome.writes[0];
}

TEST(Log, ALineIsOneWriteWithProcessRankLevelHostAndTime)
{
    Outcome outcome = logged([] {
        ng_log_init(NG_LOG_INFO, nullptr, 3);
        ng_log(NG_LOG_INFO, "%s #%d", "AllReduce", 7);
        ng_log_init(NG_LOG_INFO, nullptr, 4);
        ng_log(NG_LOG_ERROR, "next");
        return 0;
    });
    ASSERT_EQ(outcome.writes.size(), 2u);
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    std::string end = " [[]" + std::string(host) + ", 2[0-9]*-*-* *:*:*.[0-9]* UTC]\n";
    EXPECT_TRUE(matches(outcome.writes[0], "ncclguard[[][1-9]*] rank 3 info: AllReduce #7" + end))
        << outcome.writes[0];
    EXPECT_TRUE(matches(outcome.writes[1], "ncclguard[[][1-9]*] rank 4 error: next" + end))
        << outcome.writes[1];
}

TEST(Log, ALongLineIsCutAndStillEndsInANewline)
{
    Outcome outcome = logged([] {
        std::string text(100000, 'x');
        ng_log(NG_LOG_ERROR, "%s", text.c_str());
        ng_log(NG_LOG_ERROR, "after");
        return 0;
    });
    ASSERT_EQ(outcome.writes.size(), 2u);
    EXPECT_GT(outcome.writes[0].size(), 1000u);
    EXPECT_LT(outcome.writes[0].size(), 1300u);
    EXPECT_TRUE(matches(outcome.writes[0], "*xxx [[]*, 2[0-9]*-*-* *:*:*.[0-9]* UTC]\n"));
    EXPECT_EQ(outcome.writes[0].find('\n'), outcome.writes[0].size() - 1);
    EXPECT_EQ(outcome.writes[0].find('\0'), std::string::npos);
}

TEST(Log, FilesAreNamedByRankProcessAndHost)
{
    Folder folder;
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    std::string pattern = folder / "log-%r-%p-%h-%x-%", expected;
    Outcome outcome = logged([&] {
        ng_log_init(NG_LOG_WARN, pattern.c_str(), 5);
        ng_log(NG_LOG_WARN, "first");
        /* A second start appends. */
        ng_log_init(NG_LOG_WARN, pattern.c_str(), 5);
        ng_log(NG_LOG_WARN, "second");
        return 0;
    });
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(outcome.writes.empty()) << outcome.writes[0];
    std::vector<std::string> names = folder.names();
    ASSERT_EQ(names.size(), 1u);
    EXPECT_TRUE(matches(names[0], "log-5-[1-9]*-" + std::string(host) + "-%x-%")) << names[0];
    std::string content = read_whole_file(folder / names[0]);
    EXPECT_NE(content.find("first ["), std::string::npos);
    EXPECT_NE(content.find("second ["), std::string::npos);
    struct stat status;
    ASSERT_EQ(stat((folder / names[0]).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Log, AnOverlongFileNameIsNoOverflow)
{
    Outcome outcome = logged([] {
        ng_log_init(NG_LOG_WARN, ("/nonexistent/" + std::string(10000, 'x') + "%r%h").c_str(), 5);
        ng_log(NG_LOG_WARN, "still here");
        return 0;
    });
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.writes.size(), 2u);
}

TEST(Log, AProcessThatSaysNothingMakesNoFile)
{
    Folder folder;
    Outcome outcome = logged([&] {
        ng_log_init(NG_LOG_WARN, (folder / "log").c_str(), 5);
        ng_log(NG_LOG_INFO, "below the level");
        return folder.names().empty() ? 0 : 1;
    });
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(folder.names().empty());
}

TEST(Log, AFileIsMeantFromWhereTheProgramBegan)
{
    Folder folder;
    Outcome outcome = logged([&] {
        if (chdir(folder.path().c_str()) != 0)
            return 1;
        ng_log_init(NG_LOG_WARN, "log", 5);
        if (chdir("/") != 0)
            return 2;
        ng_log(NG_LOG_WARN, "from elsewhere");
        return 0;
    });
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"log"});
}

TEST(Log, AForkedChildThatLogsHasAFileOfItsOwn)
{
    Folder folder;
    Outcome outcome = logged([&] {
        ng_log_init(NG_LOG_WARN, (folder / "log-%p").c_str(), -1);
        ng_log(NG_LOG_WARN, "parent");
        return in_child([] {
            ng_log_after_fork();
            ng_log(NG_LOG_WARN, "child");
            return 0;
        });
    });
    EXPECT_EQ(outcome.status, 0);
    std::vector<std::string> names = folder.names();
    ASSERT_EQ(names.size(), 2u);
    for (const std::string &name : names) {
        std::string content = read_whole_file(folder / name);
        EXPECT_EQ(std::count(content.begin(), content.end(), '\n'), 1) << content;
        EXPECT_NE(content.find("[" + name.substr(4) + "]"), std::string::npos) << name << content;
    }
}

TEST(Log, ALineThatSomebodyTakesIsNotWrittenByTheOneThatLogs)
{
    Outcome outcome = logged([] {
        ng_log_init(NG_LOG_WARN, nullptr, -1);
        ng_log_hand_to([](const char *line, size_t length) {
            return std::string(line, length).find("taken") != std::string::npos;
        });
        ng_log(NG_LOG_WARN, "taken");
        ng_log(NG_LOG_WARN, "left");
        ng_log_hand_to(nullptr);
        ng_log(NG_LOG_WARN, "taken no more");
        return 0;
    });
    EXPECT_EQ(outcome.status, 0);
    ASSERT_EQ(outcome.writes.size(), 2u);
    EXPECT_NE(outcome.writes[0].find("left"), std::string::npos);
    EXPECT_NE(outcome.writes[1].find("taken no more"), std::string::npos);
}

TEST(Log, ManyThreadsThatBeginTogetherLoseNoLine)
{
    Folder folder;
    enum { THREADS = 16 };
    Outcome outcome = logged([&] {
        ng_log_init(NG_LOG_WARN, (folder / "log").c_str(), -1);
        std::vector<std::thread> threads;
        for (int i = 0; i < THREADS; i++)
            threads.emplace_back([i] { ng_log(NG_LOG_WARN, "line %d", i); });
        for (std::thread &thread : threads)
            thread.join();
        return 0;
    });
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(outcome.writes.empty());
    std::string content = read_whole_file(folder / "log");
    EXPECT_EQ(std::count(content.begin(), content.end(), '\n'), (long)THREADS);
}

TEST(Log, AFileThatCannotBeOpenedIsToldAndStderrIsUsed)
{
    Outcome outcome = logged([] {
        ng_log_init(NG_LOG_WARN, "/nonexistent/folder/log", -1);
        ng_log(NG_LOG_WARN, "still here");
        return 0;
    });
    ASSERT_EQ(outcome.writes.size(), 2u);
    for (const char *part : {"/nonexistent/folder/log", "NCCLGUARD_LOG_FILE", "No such file"})
        EXPECT_NE(outcome.writes[0].find(part), std::string::npos) << outcome.writes[0];
    EXPECT_NE(outcome.writes[1].find("still here"), std::string::npos);
}

TEST(Log, AClosedPipeRaisesNoSignalAndLeavesNonePending)
{
    EXPECT_EQ(in_child([] {
                  int pipe_ends[2];
                  if (pipe(pipe_ends) != 0)
                      return 1;
                  close(pipe_ends[0]);
                  dup2(pipe_ends[1], STDERR_FILENO);
                  signal(SIGPIPE, SIG_DFL);
                  ng_log(NG_LOG_ERROR, "to nobody");
                  sigset_t set;
                  sigpending(&set);
                  if (sigismember(&set, SIGPIPE))
                      return 2;
                  pthread_sigmask(SIG_BLOCK, nullptr, &set);
                  return sigismember(&set, SIGPIPE) ? 3 : 0;
              }),
              0);
}

TEST(Log, ASigpipeThatWasPendingBeforeStaysPending)
{
    EXPECT_EQ(in_child([] {
                  int pipe_ends[2];
                  sigset_t set;
                  if (pipe(pipe_ends) != 0)
                      return 1;
                  close(pipe_ends[0]);
                  dup2(pipe_ends[1], STDERR_FILENO);
                  sigemptyset(&set);
                  sigaddset(&set, SIGPIPE);
                  pthread_sigmask(SIG_BLOCK, &set, nullptr);
                  raise(SIGPIPE);
                  ng_log(NG_LOG_ERROR, "to nobody");
                  sigpending(&set);
                  return sigismember(&set, SIGPIPE) ? 0 : 2;
              }),
              0);
}

TEST(Log, ErrnoIsKeptAndCanBePrinted)
{
    Outcome outcome = logged([] {
        errno = ENOSPC;
        ng_log(NG_LOG_ERROR, "%m");
        if (errno != ENOSPC)
            return 1;
        close(STDERR_FILENO);
        ng_log(NG_LOG_ERROR, "to nowhere");
        return errno == ENOSPC ? 0 : 2;
    });
    EXPECT_EQ(outcome.status, 0);
    ASSERT_EQ(outcome.writes.size(), 1u);
    EXPECT_NE(outcome.writes[0].find("No space left"), std::string::npos) << outcome.writes[0];
}

TEST(Log, AFileOfTheProgramThatGotTheNumberOfStderrIsLeftAlone)
{
    for (bool open_at_start : {true, false}) {
        Folder folder;
        std::string path = folder / "data";
        int status = in_child([&] {
            if (!open_at_start)
                close(STDERR_FILENO);
            ng_log_init(NG_LOG_WARN, nullptr, -1);
            close(STDERR_FILENO);
            if (open(path.c_str(), O_WRONLY | O_CREAT, 0600) != STDERR_FILENO)
                return 1;
            ng_log(NG_LOG_WARN, "not into this");
            struct stat status;
            return fstat(STDERR_FILENO, &status) != 0 || status.st_size != 0 ? 1 : 0;
        });
        EXPECT_EQ(status, 0) << (open_at_start ? "closed later" : "closed at the start");
    }
}

TEST(Log, FollowsAStderrThatTheProgramSentElsewhere)
{
    Folder folder;
    std::string path = folder / "daemon.log";
    int status = in_child([&] {
        ng_log_init(NG_LOG_WARN, nullptr, -1);
        int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        ng_log(NG_LOG_WARN, "into this");
        struct stat status;
        return fstat(STDERR_FILENO, &status) != 0 || status.st_size == 0 ? 1 : 0;
    });
    EXPECT_EQ(status, 0);
}

/* The first lines that a FIFO has for its reader. */
static std::string read_fifo(const std::string &path, size_t lines)
{
    std::ifstream reader(path);
    std::string all, line;
    for (size_t i = 0; i < lines && std::getline(reader, line); i++)
        all += line + "\n";
    return all;
}

/* What `body` logs to a FIFO that nobody has opened yet: opening it does not return, as on a dead
 * file server. */
static int logging_to_nobody(const std::string &path, const std::function<int()> &body)
{
    return in_child([&] {
        alarm(60);
        ng_log_init(NG_LOG_WARN, path.c_str(), 5);
        start_log_writer();
        return body();
    });
}

TEST(Log, AFileThatDoesNotAnswerHoldsUpNobodyForLong)
{
    Folder folder;
    std::string path = folder / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(logging_to_nobody(path,
                                [] {
                                    auto begun = std::chrono::steady_clock::now();
                                    for (int i = 0; i < 1000; i++)
                                        ng_log(NG_LOG_ERROR, "to nobody");
                                    std::thread([] { ng_log(NG_LOG_ERROR, "nor this"); }).join();
                                    /* One waits, the others know by then. */
                                    return std::chrono::steady_clock::now() - begun <
                                                   std::chrono::seconds(20)
                                               ? 0
                                               : 1;
                                }),
              0);
}

TEST(Log, OnceTheFileAnswersItSaysWhatIsMissing)
{
    Folder folder;
    std::string path = folder / "fifo";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(logging_to_nobody(path,
                                [&] {
                                    for (int i = 0; i < 20; i++)
                                        ng_log(NG_LOG_ERROR, "line %d", i);
                                    std::string all = read_fifo(path, 17);
                                    bool first = all.find("line 0 [") != std::string::npos;
                                    bool room = all.find("line 15 [") != std::string::npos;
                                    bool told = all.find("4 line(s) of the log are missing") !=
                                                std::string::npos;
                                    if (!first || !room || !told)
                                        dprintf(STDERR_FILENO, "%s\n", all.c_str());
                                    return first && room && told ? 0 : 1;
                                }),
              0);
}

TEST(Log, LinesOfAFileAreThereWhenTheyAreLogged)
{
    Folder folder;
    std::string path = folder / "log";
    EXPECT_EQ(in_child([&] {
                  ng_log_init(NG_LOG_WARN, path.c_str(), 5);
                  start_log_writer();
                  for (int i = 0; i < 100; i++) {
                      ng_log(NG_LOG_ERROR, "line %d.", i);
                      if (read_whole_file(path).find("line " + std::to_string(i) + ".") ==
                          std::string::npos)
                          return 1;
                  }
                  return 0;
              }),
              0);
}
