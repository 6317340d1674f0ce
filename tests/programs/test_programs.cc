/* The test programs, bare on the stand-ins: healthy ones give right results, and each
 * misbehaviour does what its option says. */
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace
{

using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

/* No test may hang for longer than this; a busy machine may be slow. */
constexpr int limit_s = 100;

std::string program(const std::string &name)
{
    return std::string(getenv("PROGRAMS_DIR")) + "/" + name;
}

/* A command whose two outputs can be watched while it runs. */
class Job
{
  public:
    explicit Job(const Words &words, const Words &environment = {})
    {
        int out[2], err[2];
        EXPECT_EQ(0, pipe2(out, O_CLOEXEC));
        EXPECT_EQ(0, pipe2(err, O_CLOEXEC));
        std::vector<char *> argv;
        for (const auto &word : words)
            argv.push_back(const_cast<char *>(word.c_str()));
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(out[1], STDOUT_FILENO);
            dup2(err[1], STDERR_FILENO);
            for (const auto &setting : environment)
                putenv(const_cast<char *>(setting.c_str()));
            execv(argv[0], argv.data());
            _exit(127);
        }
        close(out[1]);
        close(err[1]);
        fds_[0] = out[0];
        fds_[1] = err[0];
        deadline_ = Clock::now() + std::chrono::seconds(limit_s);
    }

    ~Job()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(fds_[0]);
        close(fds_[1]);
    }

    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    /* Waits until the text has appeared on stderr this often. */
    bool saw(const std::string &text, int times = 1)
    {
        while (count(err, text) < times)
            if (!read_some())
                return count(err, text) >= times;
        return true;
    }

    /* Waits for both outputs to close, then for the end; 128 + signal as a shell has it. */
    int end()
    {
        while (read_some())
            ;
        if (Clock::now() >= deadline_)
            ADD_FAILURE() << "not finished after " << limit_s << " s:\n" << err;
        if (Clock::now() >= deadline_)
            kill(pid_, SIGKILL);
        int status;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }

    /* Whether the job is still running after this long. */
    bool still_running_after(int ms)
    {
        auto until = Clock::now() + std::chrono::milliseconds(ms);
        auto old = deadline_;
        deadline_ = until;
        while (read_some())
            ;
        deadline_ = old;
        siginfo_t info = {};
        return waitid(P_PID, (id_t)pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == 0;
    }

    void send(int number) const
    {
        if (pid_ > 0)
            kill(pid_, number);
    }

    void expect_end_by_sigterm()
    {
        send(SIGTERM);
        EXPECT_EQ(128 + SIGTERM, end()) << err;
    }

    /* Waits for the pid that a misbehaving rank tells: "rank 1 (pid P): …". */
    pid_t misbehaving_pid(const std::string &before = "rank 1 (pid ")
    {
        EXPECT_TRUE(saw(before)) << err;
        auto at = err.find(before);
        return at == std::string::npos ? -1 : atoi(err.c_str() + at + before.size());
    }

    /* Of stdout those with this in them, sorted. */
    Words lines(const std::string &part = "") const
    {
        Words lines;
        std::istringstream stream(out);
        for (std::string line; std::getline(stream, line);)
            if (line.find(part) != std::string::npos)
                lines.push_back(line);
        std::sort(lines.begin(), lines.end());
        return lines;
    }

    Words ok_lines() const
    {
        return lines(" ok calls=");
    }

    static int count(const std::string &text, const std::string &part)
    {
        int n = 0;
        for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
            n++;
        return n;
    }

    std::string out, err;

  private:
    bool read_some()
    {
        pollfd polls[2] = {{open_[0] ? fds_[0] : -1, POLLIN, 0},
                           {open_[1] ? fds_[1] : -1, POLLIN, 0}};
        if (!open_[0] && !open_[1])
            return false;
        auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
        if (left <= 0 || poll(polls, 2, (int)left + 1) <= 0)
            return false;
        for (int i = 0; i < 2; i++) {
            if (!polls[i].revents)
                continue;
            char buffer[4096];
            ssize_t n = read(fds_[i], buffer, sizeof(buffer));
            if (n <= 0)
                open_[i] = false;
            else
                (i ? err : out).append(buffer, (size_t)n);
        }
        return true;
    }

    pid_t pid_ = -1;
    int fds_[2];
    bool open_[2] = {true, true};
    Clock::time_point deadline_;
};

Words operator+(Words words, const Words &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/* With the path of the program. */
Words alone(Words command)
{
    if (command[0][0] != '/')
        command[0] = program(command[0]);
    return command;
}

Words spawn(int n, const Words &command, const Words &options = {})
{
    return Words{program("spawn"), "-n", std::to_string(n), "--timeout",
                 std::to_string(limit_s - 10)} +
           options + Words{"--"} + alone(command);
}

Words spy()
{
    return {std::string("LD_PRELOAD=") + getenv("PROGRAMS_SPY"),
            "ASAN_OPTIONS=verify_asan_link_order=0:handle_segv=0"};
}

/* Of /proc/PID/stat the word `index` behind the name; "-": there is no such process. */
std::string stat_of(pid_t pid, int index)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    auto at = text.rfind(") ");
    std::istringstream rest(at == std::string::npos ? "" : text.substr(at + 2));
    std::string word = "-";
    for (int i = 0; i <= index && rest >> word; i++)
        ;
    return word;
}

char state_of(pid_t pid)
{
    return stat_of(pid, 0)[0];
}

long cpu_ticks(pid_t pid)
{
    return atol(stat_of(pid, 11).c_str());
}

template <typename Condition> bool becomes_true(Condition condition)
{
    auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!condition()) {
        if (Clock::now() > deadline)
            return false;
        poll(nullptr, 0, 5);
    }
    return true;
}

/* --- Healthy ---------------------------------------------------------------------------------- */

struct Named {
    const char *name;
};

std::ostream &operator<<(std::ostream &stream, const Named &named)
{
    return stream << named.name;
}

struct Healthy : Named {
    Words command;
    bool one_process; /* --devices instead of spawn -n */
};

struct HealthyProgram : testing::TestWithParam<std::tuple<Healthy, int>> {
};

TEST_P(HealthyProgram, GivesRightResultsOnEveryRankTwiceTheSame)
{
    const auto &[healthy, n] = GetParam();
    Words command = healthy.command + Words{"--check"};
    command = healthy.one_process ? alone(command) + Words{"--devices", std::to_string(n)}
                                  : spawn(n, command);
    Words first;
    for (int run = 0; run < 2; run++) {
        Job job(command);
        ASSERT_EQ(0, job.end()) << job.err;
        ASSERT_EQ((size_t)n, job.ok_lines().size()) << job.out;
        if (run == 0)
            first = job.ok_lines();
        else
            EXPECT_EQ(first, job.ok_lines());
    }
}

const Healthy healthy_programs[] = {
    {{"runtime_all"}, {"coll_runtime", "--op", "all", "--iters", "3"}, false},
    {{"driver_all_inplace"}, {"coll_driver", "--op", "all", "--iters", "3", "--inplace"}, false},
    {{"multidev_all"}, {"coll_multidev", "--op", "all", "--iters", "3"}, true},
    {{"threads_all"}, {"coll_threads", "--op", "all", "--iters", "3", "--sync-every", "2"}, true},
    {{"grouped"}, {"coll_grouped", "--op", "mix", "--iters", "5", "--batch", "2"}, false},
    {{"split"}, {"coll_split", "--op", "mix", "--iters", "6", "--finalize"}, false},
    {{"grow"}, {"coll_grow", "--op", "mix", "--iters", "6", "--finalize"}, false},
    {{"overlap"}, {"coll_overlap", "--iters", "64", "--depth", "32", "--count", "64"}, false},
    {{"ring"}, {"p2p_ring", "--iters", "5", "--count", "50000"}, false},
    {{"composed"}, {"p2p_composed", "--iters", "5", "--count", "50000"}, false},
    {{"pairs"}, {"p2p_pairs", "--iters", "6"}, false},
    {{"halves"}, {"p2p_split", "--iters", "6"}, false},
    {{"init"}, {"init_only", "--times", "3"}, false},
};

INSTANTIATE_TEST_SUITE_P(Programs, HealthyProgram,
                         testing::Combine(testing::ValuesIn(healthy_programs),
                                          testing::Values(2, 4, 8)),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param).name) + "_" +
                                    std::to_string(std::get<1>(info.param));
                         });

struct EveryType : testing::TestWithParam<const char *> {
};

TEST_P(EveryType, GivesRightResultsUnderEveryReduction)
{
    for (const char *redop : {"sum", "prod", "max", "min", "avg"}) {
        Job job(spawn(3, {"coll_runtime", "--op", "all", "--iters", "1", "--count", "101",
                          "--check", "--dtype", GetParam(), "--redop", redop, "--root", "2"}));
        EXPECT_EQ(0, job.end()) << redop << "\n" << job.err;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType,
                         testing::Values("int8", "uint8", "int32", "uint32", "int64", "uint64",
                                         "float16", "float32", "float64", "bfloat16", "float8e4m3",
                                         "float8e5m2"),
                         [](const auto &info) { return std::string(info.param); });

TEST(Programs, RuntimeDriverThreadsAndMultidevPrintTheSame)
{
    const Words arguments = {"--op", "all", "--iters", "2", "--seed", "7"};
    Words first;
    for (const char *name : {"coll_runtime", "coll_driver", "coll_threads", "coll_multidev"}) {
        bool ranks = !strcmp(name, "coll_runtime") || !strcmp(name, "coll_driver");
        Words command = Words{name} + arguments;
        Job job(ranks ? spawn(4, command) : alone(command) + Words{"--devices", "4"});
        ASSERT_EQ(0, job.end()) << job.err;
        if (first.empty())
            first = job.ok_lines();
        EXPECT_EQ(first, job.ok_lines()) << name;
    }
    EXPECT_EQ(4u, first.size());
}

TEST(Programs, OneCommunicatorAfterTheOtherEachHasItsCallsAndItsLateDevice)
{
    Job job(spawn(
        2, {"coll_again", "--times", "3", "--iters", "4", "--check", "--late-device", "1:4:50"}));
    ASSERT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(6u, job.ok_lines().size()) << job.out;
    size_t late = 0;
    for (size_t at = 0; (at = job.err.find("late-device at call 4 of world", at)) < job.err.size();)
        late++, at++;
    EXPECT_EQ(3u, late) << job.err;
}

TEST(Programs, ChecksumDependsOnTheDataAndNotOnThePlaceOrTheQueue)
{
    auto checksums = [](const Words &more) {
        Job job(spawn(2, Words{"coll_runtime", "--iters", "4"} + more));
        EXPECT_EQ(0, job.end()) << job.err;
        Words lines = job.ok_lines();
        EXPECT_EQ(2u, lines.size());
        for (auto &line : lines)
            line = line.substr(line.find("checksum="));
        return lines;
    };
    Words plain = checksums({});
    ASSERT_EQ(2u, plain.size());
    EXPECT_EQ(plain[0], plain[1]) << "an all-reduce gives every rank the same";
    EXPECT_EQ(plain, checksums({"--inplace"}));
    EXPECT_EQ(plain, checksums({"--sync-every", "0"}));
    EXPECT_NE(plain, checksums({"--seed", "2"}));
    EXPECT_NE(plain, checksums({"--redop", "max"}));
}

TEST(Programs, CheckFindsWrongResults)
{
    Words environment = spy() + Words{"SPY_REDOP=" + std::to_string(2 /* ncclMax */)};
    const Words command = {"coll_runtime", "--op", "allreduce", "--iters", "2"};
    Job job(spawn(2, command + Words{"--check"}), environment);
    EXPECT_EQ(4, job.end()) << job.err;
    EXPECT_NE(std::string::npos, job.err.find("should be")) << job.err;
    Job blind(spawn(2, command), environment);
    EXPECT_EQ(0, blind.end()) << blind.err;
}

TEST(Programs, ANcclErrorIsNamedAndExitsWithThree)
{
    Job job(spawn(2, {"coll_driver", "--op", "broadcast", "--root", "9"}));
    EXPECT_EQ(3, job.end()) << job.err;
    EXPECT_NE(std::string::npos, job.err.find("common.c:")) << job.err;
    EXPECT_NE(std::string::npos, job.err.find("ncclBroadcast")) << job.err;
}

TEST(Programs, ThreadsOfSeveralProcessesMakeOneWorld)
{
    Job job(spawn(2, {"coll_threads", "--devices", "2", "--check", "--iters", "3"}));
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(4u, job.ok_lines().size());
}

TEST(Programs, WrongUsageExitsWithTwoAndNamesTheMistake)
{
    const std::pair<Words, const char *> rows[] = {
        {{"coll_runtime", "--hang", "1"}, "--hang takes R:N"},
        {{"coll_runtime", "--with", "0:1:colour=red"}, "colour"},
        {{"coll_runtime", "--dtype", "int7"}, "int7"},
        {{"coll_runtime", "--count"}, "--count needs a value"},
        {{"coll_runtime", "--devices", "2"}, "--devices"},
        {{"coll_split", "--comm", "diagonal"}, "world|row|column"},
        {{"spawn", "-n", "0"}, "-n"},
        {{"spawn", "-n", "2"}, "no program"},
    };
    for (const auto &[words, text] : rows) {
        Job job(alone(words));
        EXPECT_EQ(2, job.end()) << words[1];
        EXPECT_NE(std::string::npos, job.err.find(text)) << job.err;
    }
}

/* --- Misbehaviour ----------------------------------------------------------------------------- */

TEST(Misbehaviour, HangBlocksTheRankBeforeItsCall)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--hang", "1:3"}), spy());
    pid_t pid = job.misbehaving_pid();
    EXPECT_TRUE(becomes_true([&] { return state_of(pid) == 'S'; }));
    EXPECT_TRUE(job.saw("spy 0: AllReduce", 3)) << "the other rank comes to the call";
    job.expect_end_by_sigterm();
    EXPECT_EQ(2, Job::count(job.err, "spy 1: AllReduce"));
    EXPECT_TRUE(job.ok_lines().empty()) << job.out;
}

TEST(Misbehaviour, HangOfOneThreadLeavesItsProcessAlive)
{
    Job job({program("coll_threads"), "--devices", "2", "--iters", "5", "--hang", "1:3"});
    ASSERT_TRUE(job.saw("rank 1 (pid ")) << job.err;
    EXPECT_TRUE(job.still_running_after(300));
    job.expect_end_by_sigterm();
}

TEST(Misbehaviour, SkipLeavesOneCallOutAndGoesOn)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--skip", "1:3"}), spy());
    ASSERT_TRUE(job.saw("spy 1: AllReduce", 4)) << job.err;
    ASSERT_TRUE(job.saw("spy 0: AllReduce", 5)) << job.err;
    EXPECT_TRUE(job.still_running_after(300)) << "rank 0 waits in its last call";
    job.send(SIGTERM);
    job.end();
    EXPECT_EQ(4, Job::count(job.err, "spy 1: AllReduce"));
    EXPECT_EQ(0, Job::count(job.out, "rank 0 ok"));
}

TEST(Misbehaviour, SleepDelaysAndChangesNothing)
{
    auto begin = Clock::now();
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--sleep", "1:3:400", "--check"}));
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(400));
    EXPECT_EQ(2u, job.ok_lines().size());
    EXPECT_NE(std::string::npos, job.err.find("sleep at call 3 of world"));
}

TEST(Misbehaviour, GoIsTheFirstCallThatFindsItsFileAndNoOther)
{
    char folder[] = "/tmp/spawn-go.XXXXXX";
    ASSERT_TRUE(mkdtemp(folder));
    std::string go = std::string(folder) + "/go", id = std::string(folder) + "/id.0";
    Job job(spawn(2,
                  {"coll_runtime", "--iters", "1000000", "--pause-ms", "1", "--sleep", "0:5:0",
                   "--sleep", "0:go:1", "--exit", "1:go:7"},
                  {"--node", "0/1", "--folder", folder, "--kill-others"}));
    ASSERT_TRUE(job.saw("sleep at call 5 of world")) << job.err;
    EXPECT_EQ(0, Job::count(job.err, "exit at call"));
    std::ofstream(go) << "";
    EXPECT_EQ(7, job.end()) << job.err;
    EXPECT_EQ(1, Job::count(job.err, "exit at call")) << job.err;
    EXPECT_GE(2, Job::count(job.err, "sleep at call")) << job.err;
    EXPECT_EQ(0, remove(go.c_str()));
    EXPECT_EQ(0, remove(id.c_str()));
    EXPECT_EQ(0, rmdir(folder));
}

TEST(Misbehaviour, ASleepUntilGoLastsUntilThen)
{
    char folder[] = "/tmp/spawn-go.XXXXXX";
    ASSERT_TRUE(mkdtemp(folder));
    std::string go = std::string(folder) + "/go", id = std::string(folder) + "/id.0";
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--sleep", "1:3:go", "--exit", "0:4:7"},
                  {"--node", "0/1", "--folder", folder, "--kill-others"}));
    ASSERT_TRUE(job.saw("sleep at call 3 of world")) << job.err;
    EXPECT_EQ(0, Job::count(job.err, "exit at call"));
    std::ofstream(go) << "";
    EXPECT_EQ(7, job.end()) << job.err;
    EXPECT_EQ(0, remove(go.c_str()));
    EXPECT_EQ(0, remove(id.c_str()));
    EXPECT_EQ(0, rmdir(folder));
}

struct Ending {
    const char *option, *value;
    int status;
};

struct EndingRank : testing::TestWithParam<Ending> {
};

TEST_P(EndingRank, EndsAsTheOptionSaysAndSpawnPassesItOn)
{
    Ending ending = GetParam();
    Job job(
        spawn(3, {"coll_driver", "--iters", "5", ending.option, ending.value}, {"--kill-others"}),
        {"ASAN_OPTIONS=handle_segv=0", "TSAN_OPTIONS=handle_segv=0",
         "UBSAN_OPTIONS=handle_segv=0"});
    EXPECT_EQ(ending.status, job.end()) << job.err;
    EXPECT_NE(std::string::npos, job.err.find("rank 1 (pid ")) << job.err;
    EXPECT_NE(std::string::npos, job.err.find("at call 4 of world")) << job.err;
    EXPECT_TRUE(job.ok_lines().empty()) << job.out;
}

INSTANTIATE_TEST_SUITE_P(Endings, EndingRank,
                         testing::Values(Ending{"--exit", "1:4:7", 7},
                                         Ending{"--kill", "1:4", 128 + SIGKILL},
                                         Ending{"--segv", "1:4", 128 + SIGSEGV},
                                         Ending{"--term", "1:4", 128 + SIGTERM},
                                         Ending{"--abort", "1:4", 128 + SIGABRT}),
                         [](const auto &info) { return std::string(info.param.option + 2); });

TEST(Misbehaviour, ExitWithoutCodeIsAnOrderlyEnd)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--exit", "1:3"}), spy());
    ASSERT_TRUE(job.saw("spy 0: AllReduce", 3)) << job.err;
    pid_t pid = job.misbehaving_pid();
    EXPECT_TRUE(becomes_true([&] { return state_of(pid) == '-'; })) << "ended and reaped";
    EXPECT_TRUE(job.still_running_after(300)) << "the other rank waits";
    job.expect_end_by_sigterm(); /* the status of rank 0: rank 1 ended with 0 */
}

TEST(Misbehaviour, StopFreezesUntilContinued)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--stop", "1:3", "--check"}));
    pid_t pid = job.misbehaving_pid();
    ASSERT_TRUE(becomes_true([&] { return state_of(pid) == 'T'; }));
    EXPECT_TRUE(job.still_running_after(200));
    ASSERT_GT(pid, 0);
    kill(pid, SIGCONT);
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(2u, job.ok_lines().size());
}

TEST(Misbehaviour, StallBlocksTheStreamAndNotTheHost)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "6", "--sync-every", "0", "--stall", "1:3"}),
            spy());
    ASSERT_TRUE(job.saw("spy 1: AllReduce", 6)) << "the calls behind the stall return\n" << job.err;
    EXPECT_TRUE(job.still_running_after(300));
    job.expect_end_by_sigterm();
    EXPECT_TRUE(job.ok_lines().empty());
}

TEST(Misbehaviour, SpinComputesForEver)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "5", "--spin", "1:3"}));
    pid_t pid = job.misbehaving_pid();
    long before = cpu_ticks(pid);
    EXPECT_TRUE(becomes_true([&] { return cpu_ticks(pid) > before + 3; }));
    job.expect_end_by_sigterm();
}

struct Changed : Named {
    Words options;
    const char *call; /* what the spy then sees of rank 1, once */
};

struct ChangedCall : testing::TestWithParam<Changed> {
};

TEST_P(ChangedCall, PassesOtherArgumentsInThatCallAlone)
{
    const Changed &changed = GetParam();
    Job job(spawn(2, Words{"coll_runtime", "--iters", "4", "--sync-every", "0"} + changed.options),
            spy());
    ASSERT_TRUE(job.saw(std::string("spy 1: ") + changed.call)) << job.err;
    job.send(SIGTERM); /* it may hang, or end with mixed data: both are NCCL's way */
    job.end();
    EXPECT_EQ(1, Job::count(job.err, changed.call)) << job.err;
}

const Changed changed_calls[] = {
    {{"more"}, {"--count-delta", "1:3:17"}, "AllReduce count=1041 dtype=7 redop=0\n"},
    {{"less"}, {"--count-delta", "1:3:-24"}, "AllReduce count=1000 dtype=7 redop=0\n"},
    {{"op"}, {"--with", "1:3:op=broadcast"}, "Broadcast count=1024 dtype=7 root=0\n"},
    {{"dtype"}, {"--with", "1:3:dtype=float64"}, "AllReduce count=1024 dtype=8 redop=0\n"},
    {{"redop"}, {"--with", "1:3:redop=max"}, "AllReduce count=1024 dtype=7 redop=2\n"},
    {{"root"},
     {"--op", "broadcast", "--with", "1:3:root=1"},
     "Broadcast count=1024 dtype=7 root=1\n"},
};

INSTANTIATE_TEST_SUITE_P(Calls, ChangedCall, testing::ValuesIn(changed_calls),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(Misbehaviour, ASendCanGoToAnotherPeer)
{
    Job job(spawn(4, {"p2p_ring", "--iters", "1", "--batch", "1", "--with", "1:1:peer=3"}), spy());
    ASSERT_TRUE(job.saw("spy 1: Send count=1024 dtype=7 peer=3\n")) << job.err;
    job.send(SIGTERM);
    job.end();
}

TEST(Misbehaviour, NoInitNeverCreatesTheCommunicator)
{
    Job job(spawn(2, {"coll_runtime", "--no-init", "1"}), spy());
    ASSERT_TRUE(job.saw("rank 1 (pid ")) << job.err;
    ASSERT_TRUE(job.saw("spy 0: CommInitRank")) << job.err;
    EXPECT_TRUE(job.still_running_after(300));
    job.expect_end_by_sigterm();
    EXPECT_EQ(0, Job::count(job.err, "spy 1: CommInitRank"));
}

TEST(Misbehaviour, NoGroupEndLeavesTheGroupOpen)
{
    Job job(spawn(2, {"p2p_ring", "--iters", "3", "--no-group-end", "1:2"}), spy());
    ASSERT_TRUE(job.saw("spy 1: GroupEnd", 3)) << job.err;
    job.send(SIGTERM);
    job.end();
    EXPECT_EQ(Job::count(job.err, "spy 1: GroupEnd") + 1, Job::count(job.err, "spy 1: GroupStart"));
}

TEST(Misbehaviour, FaultsCountTheCallsOfTheNamedCommunicator)
{
    Job job(
        spawn(4, {"coll_split", "--iters", "3", "--comm", "row", "--sleep", "2:2:1", "--check"}));
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(1, Job::count(job.err, "rank 2 (pid "));
    EXPECT_NE(std::string::npos, job.err.find("sleep at call 2 of row"));
}

TEST(Misbehaviour, SeveralFaultsOfSeveralRanksAllHappen)
{
    Job job(spawn(2, {"coll_runtime", "--iters", "4", "--sleep", "0:2:1", "--sleep", "1:2:1",
                      "--sleep", "1:4:1"}));
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(3, Job::count(job.err, "sleep at call"));
}

/* --- spawn ------------------------------------------------------------------------------------ */

TEST(Spawn, GivesEveryProcessTorchrunsNamesAndAFolderThatIsGoneAfterwards)
{
    Job job(spawn(3, {"/bin/sh", "-c",
                      "touch $SPAWN_DIR/$RANK; printf '%s\\n' \"$RANK $LOCAL_RANK $WORLD_SIZE "
                      "$LOCAL_WORLD_SIZE ${MASTER_ADDR:+addr} ${MASTER_PORT:+port} $SPAWN_DIR\""}));
    ASSERT_EQ(0, job.end()) << job.err;
    Words lines = job.lines();
    ASSERT_EQ(3u, lines.size()) << job.out;
    for (int rank = 0; rank < 3; rank++) {
        std::string start = std::to_string(rank) + " " + std::to_string(rank) + " 3 3 addr port /";
        EXPECT_EQ(start, lines[(size_t)rank].substr(0, start.size()));
    }
    struct stat unused;
    EXPECT_NE(0, stat(lines[0].substr(lines[0].find('/')).c_str(), &unused));
}

TEST(Spawn, ANodeHasItsShareOfTheRanksAndLeavesTheSharedFolder)
{
    char folder[] = "/tmp/spawn-node.XXXXXX";
    ASSERT_TRUE(mkdtemp(folder));
    Job job(spawn(2,
                  {"/bin/sh", "-c",
                   "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $SPAWN_DIR"},
                  {"--node", "1/3", "--folder", folder}));
    EXPECT_EQ(0, job.end()) << job.err;
    EXPECT_EQ(1, Job::count(job.out, std::string("2 0 6 2 1 ") + folder + "\n")) << job.out;
    EXPECT_EQ(1, Job::count(job.out, std::string("3 1 6 2 1 ") + folder + "\n")) << job.out;
    EXPECT_EQ(0, rmdir(folder));
}

TEST(Spawn, RemembersTheFirstThatFailedAndLetsTheOthersEnd)
{
    /* Rank 1 fails first; rank 0 fails once rank 1 is gone, and rank 2 ends well. */
    Job job(spawn(3, {"/bin/sh", "-c",
                      "echo $$ >$SPAWN_DIR/p$RANK.new; mv $SPAWN_DIR/p$RANK.new $SPAWN_DIR/p$RANK; "
                      "[ $RANK = 1 ] && exit 5; "
                      "while [ ! -s $SPAWN_DIR/p1 ]; do sleep 0.02; done; "
                      "while kill -0 $(cat $SPAWN_DIR/p1) 2>/dev/null; do sleep 0.02; done; "
                      "[ $RANK = 0 ] && exit 6; echo survived"}));
    EXPECT_EQ(5, job.end()) << job.err;
    EXPECT_EQ("survived\n", job.out);
}

TEST(Spawn, KillOthersEndsThoseThatIgnoreSigtermToo)
{
    Job job(spawn(2,
                  {"/bin/sh", "-c",
                   "if [ $RANK = 0 ]; then trap '' TERM; : >$SPAWN_DIR/ready; "
                   "while :; do sleep 0.1; done; fi; "
                   "while [ ! -e $SPAWN_DIR/ready ]; do sleep 0.02; done; kill -9 $$"},
                  {"--kill-others"}));
    EXPECT_EQ(128 + SIGKILL, job.end()) << job.err;
}

TEST(Spawn, TimeoutEndsEveryDescendant)
{
    std::vector<pid_t> pids;
    /* On a busy machine the shells may not have begun within a second. */
    for (int seconds = 1; pids.size() < 2 && seconds <= 16; seconds *= 4) {
        Job job({program("spawn"), "-n", "2", "--timeout", std::to_string(seconds), "--", "/bin/sh",
                 "-c", "sleep 1000 & echo $!; wait"});
        EXPECT_EQ(124, job.end()) << job.err;
        std::istringstream stream(job.out);
        pids.clear();
        for (pid_t pid; stream >> pid;)
            pids.push_back(pid);
        for (pid_t pid : pids)
            EXPECT_EQ('-', state_of(pid)) << pid;
    }
    EXPECT_EQ(2u, pids.size());
}

TEST(Spawn, ForwardsSigtermAndReportsIt)
{
    Job job(spawn(2, {"/bin/sh", "-c",
                      "trap 'exit 9' TERM; echo ready >&2; while :; do sleep "
                      "0.05; done"}));
    ASSERT_TRUE(job.saw("ready", 2));
    job.send(SIGTERM);
    EXPECT_EQ(9, job.end()) << job.err;
}

TEST(Spawn, ItsDeathIsTheDeathOfItsProcesses)
{
    Job job(spawn(
        1, {"/bin/sh", "-c", "printf %s $SPAWN_DIR; echo \"(pid $$)\" >&2; exec sleep 1000"}));
    ASSERT_TRUE(job.saw(")\n"));
    pid_t pid = job.misbehaving_pid("(pid ");
    ASSERT_GT(pid, 0);
    job.send(SIGKILL);
    EXPECT_EQ(128 + SIGKILL, job.end());
    EXPECT_TRUE(becomes_true([&] { return state_of(pid) == '-' || state_of(pid) == 'Z'; }));
    EXPECT_EQ(0, rmdir(job.out.c_str())) << "the one folder that nobody is left to remove";
}

} // namespace
