/*
 * `ncclguard run` is not there: status, signals, environment and terminal pass through, and nothing
 * stays behind.
 */

#include <pty.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <set>

#include "tests/unit/tools/command.h"
#include "tests/unit/tools/evidence.h"

namespace
{

/*
 * The program under guard in these tests, started as `test_tools_run --as-program MODE`. It prints
 * every signal but those of job control as "signal N", and every line of its input as "heard …".
 * MODE "once": ends with status 9 at the first signal; "on": runs until it reads the line "end",
 * then prints how many interrupts it received.
 */
volatile sig_atomic_t came[64];

void note_signal(int number)
{
    came[number] = came[number] + 1;
}

int be_program(const std::string &mode)
{
    sigset_t all, none;
    int told[64] = {};
    struct pollfd polled = {0, POLLIN, 0};
    std::string line;

    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    struct sigaction action = {};
    action.sa_handler = note_signal;
    sigfillset(&action.sa_mask);
    for (int number = 1; number < 64; number++)
        if (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU)
            sigaction(number, &action, nullptr);
    printf("ready %d\n", 20 + 1);
    for (;;) {
        fflush(stdout);
        polled.revents = 0;
        int ready = ppoll(&polled, 1, nullptr, &none);
        for (int number = 1; number < 64; number++) {
            if (came[number] == told[number])
                continue;
            told[number] = came[number];
            printf("signal %d\n", number);
            if (mode == "once")
                return 9;
        }
        char byte;
        if (ready <= 0)
            continue;
        if (read(0, &byte, 1) != 1) {
            polled.fd = -1;
        } else if (byte != '\n') {
            line += byte;
        } else if (line == "end") {
            printf("interrupts %d\n", static_cast<int>(came[SIGINT]));
            return 0;
        } else {
            printf("heard %s\n", line.c_str());
            line.clear();
        }
    }
}

std::vector<std::string> shell(const std::string &script)
{
    return {"run", "sh", "-c", script};
}

bool write_text(const char *path, const std::string &text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text.data(), text.size()) == (ssize_t)text.size();
    if (fd >= 0)
        close(fd);
    return written;
}

/* Waits, bounded, until no process holds the pipe's writing end: an event, not a guess at timing.
 */
bool closes_within_20_s(int fd)
{
    struct pollfd polled = {fd, POLLIN, 0};
    char byte;
    for (;;) {
        if (poll(&polled, 1, 20000) <= 0)
            return false;
        ssize_t bytes = read(fd, &byte, 1);
        if (bytes <= 0)
            return bytes == 0;
    }
}

struct ExitStatus : testing::TestWithParam<int> {
};

TEST_P(ExitStatus, PassesThrough)
{
    EXPECT_EQ(run(shell("exit " + std::to_string(GetParam()))).code(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Codes, ExitStatus,
                         testing::Values(0, 1, 2, 3, 7, 126, 127, 128, 137, 255));

struct DeathBySignal : testing::TestWithParam<int> {
};

TEST_P(DeathBySignal, PassesThroughAsTheSameSignal)
{
    signal(GetParam(), SIG_DFL); /* what a shell starts in the background ignores SIGQUIT */
    EXPECT_EQ(run(shell("ulimit -c 0; kill -" + std::to_string(GetParam()) + " $$")).signal(),
              GetParam());
}

INSTANTIATE_TEST_SUITE_P(Signals, DeathBySignal,
                         testing::Values(SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGSEGV,
                                         SIGPIPE, SIGTERM, SIGUSR1, SIGALRM));

TEST(Run, TellsNotFoundAndNotExecutableAsShellsDo)
{
    Folder folder;
    Result none = run({"run", "no-such-program"});
    EXPECT_EQ(none.code(), 127);
    EXPECT_EQ(none.err, "ncclguard run: no-such-program: not found\n");
    std::string file = folder.write("data", "x", 0600);
    Result data = run({"run", file});
    EXPECT_EQ(data.code(), 126);
    EXPECT_NE(data.err.find(file), std::string::npos);
    Result script = run({"run", folder.write("script", "#!/no/such/interpreter\n", 0700)});
    EXPECT_EQ(script.code(), 126);
    EXPECT_NE(script.err.find("interpreter"), std::string::npos);
}

TEST(Run, GivesTheProgramItsArgumentsUntouched)
{
    EXPECT_EQ(run({"run", "printf", "%s|", "--timeout", "5s", "--", "a b", ""}).out,
              "--timeout|5s|--|a b||");
    EXPECT_EQ(run({"run", "--", "printf", "%s|", "--help"}).out, "--help|");
}

TEST(Run, SetsWhatItsOptionsSay)
{
    Folder folder;
    Result result =
        run({"run", "--timeout", "90s", "--on-timeout", "log", "--store", "none", "--out",
             folder / "new/evidence", "sh", "-c",
             "echo $NCCLGUARD_TIMEOUT $NCCLGUARD_ON_TIMEOUT $NCCLGUARD_STORE $NCCLGUARD_DUMP_DIR"});
    EXPECT_EQ(result.out, "90s log none " + folder / "new/evidence" + "\n");
    struct stat status;
    ASSERT_EQ(stat((folder / "new/evidence").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST(Run, SetsFaultsAndListsThem)
{
    Result set = run({"run", "--fault", "rank=1:hang", "sh", "-c", "echo $NCCLGUARD_FAULT"});
    EXPECT_EQ(set.out, "rank=1:hang\n");
    Result list = run({"run", "--fault", "help"});
    EXPECT_EQ(list.code(), 0);
    for (const char *word : {"rank=N", "prob=P", "hang", "gpu-stall", "store-delay"})
        EXPECT_NE(list.out.find(word), std::string::npos) << word;
}

TEST(Run, RefusesABadFaultOfTheEnvironment)
{
    setenv("NCCLGUARD_FAULT", "rank=1:hng", 1);
    Result result = run({"run", "true"});
    unsetenv("NCCLGUARD_FAULT");
    EXPECT_EQ(result.code(), 2);
    EXPECT_PRED2(has, result.err, "NCCLGUARD_FAULT, column 8: hng is no fault");
}

TEST(Run, MakesTheEvidenceFolderAbsolute)
{
    Folder folder;
    static std::string where;
    where = folder.path();
    Result result = run({"run", "--out", "evidence", "sh", "-c", "echo $NCCLGUARD_DUMP_DIR"}, {},
                        [] { (void)!chdir(where.c_str()); });
    EXPECT_EQ(result.out, folder / "evidence" + "\n");
}

TEST(Run, RefusesAnEvidenceFolderThatOthersMayWriteTo)
{
    Folder folder;
    mkdir((folder / "open").c_str(), 0700);
    chmod((folder / "open").c_str(), 0777);
    Result result = run({"run", "--out", folder / "open", "echo", "started"});
    EXPECT_EQ(result.code(), 2);
    EXPECT_EQ(result.out, "");
}

TEST(Run, NamesTheRunOnceAndLeavesTheJobsNameToTheLauncher)
{
    std::string script = "echo \"$NCCLGUARD_RUN_ID/$NCCLGUARD_JOB\"";
    std::string first = run(shell(script)).out, second = run(shell(script)).out;
    EXPECT_EQ(first.rfind("run-", 0), 0u) << first;
    EXPECT_EQ(first.substr(first.size() - 2), "/\n");
    EXPECT_NE(first, second);
    EXPECT_EQ(run(shell(script), {{"NCCLGUARD_RUN_ID", "outer"}}).out, "outer/\n");
    EXPECT_EQ(run(shell("echo \"$NCCLGUARD_DUMP_DIR\""), {{"SLURM_JOB_ID", "17"}}).out, "\n");
}

std::string fixture(const std::string &name)
{
    const char *folder = getenv("NG_TEST_DOCTOR");
    if (!folder)
        throw std::runtime_error("NG_TEST_DOCTOR is not set");
    return std::string(folder) + "/" + name;
}

TEST(Run, WarnsOnceWhenNoProcessOfTheProgramLoadedTheLibrary)
{
    /* A library of its own: whoever opens the one of this build beside it is seen, too. */
    Folder folder;
    std::string library = folder.write("libncclguard.so", read_file(fixture("libnccl.so.2")));
    Result result = run({"run", fixture("static")}, {{"NCCLGUARD_LIB", library}});
    EXPECT_EQ(result.code(), 3);
    ASSERT_EQ(lines(result.err).size(), 1u) << result.err;
    EXPECT_NE(result.err.find("warning: no process of " + fixture("static")), std::string::npos);
    EXPECT_PRED2(has, result.err, "`ncclguard doctor -- " + fixture("static") + "`");
}

TEST(Run, WarnsOfALauncherThatLeavesTheEnvironmentBehind)
{
    for (const std::vector<std::string> &argv :
         {std::vector<std::string>{"env", "-u", "LD_PRELOAD", fixture("nothing")},
          {"env", "-u", "A", "-u", "LD_PRELOAD", fixture("nothing")},
          {"env", "--ignore-env", fixture("nothing")},
          {"env", "-S", "-i " + fixture("nothing")},
          {"env", "-i", fixture("nothing"), "/bin/true", "ncclguard.log"}}) {
        std::vector<std::string> arguments = {"run"};
        arguments.insert(arguments.end(), argv.begin(), argv.end());
        Result result = run(arguments);
        ASSERT_EQ(lines(result.err).size(), 1u) << result.err;
        EXPECT_NE(result.err.find("warning: nothing behind env was guarded"), std::string::npos);
    }
}

TEST(Run, WarnsOnceOfALauncherThatNumbersRanksAndNamesNoJob)
{
    using Environment = std::map<std::string, std::string>;
    for (const auto &[changes, warns] :
         std::vector<std::pair<Environment, bool>>{{{}, true},
                                                   {{{"PMI_RANK", "1"}}, false},
                                                   {{{"PMI_SIZE", "1"}}, false},
                                                   {{{"PMI_RANK", ""}}, false},
                                                   {{{"NCCLGUARD_JOB", "train"}}, false},
                                                   {{{"PMI_JOBID", "kvs_1"}}, false},
                                                   {{{"NCCLGUARD_RUN_ID", "outer"}}, false},
                                                   {{{"NCCLGUARD_LOG", "error"}}, false},
                                                   {{{"NCCLGUARD", "0"}}, false}}) {
        Environment environment = changes;
        environment.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
        Result result = run({"run", fixture("nothing")}, environment);
        EXPECT_EQ(result.code(), 3);
        ASSERT_EQ(lines(result.err).size(), warns ? 1u : 0u) << result.err;
        EXPECT_EQ(has(result.err, "warning: the launcher numbers 2 ranks (as MPICH does) and names "
                                  "no job"),
                  warns);
        EXPECT_EQ(has(result.err, "set NCCLGUARD_JOB"), warns);
    }
}

/* Job folders of this user, as the library chooses them. */
std::string job_folder(const std::string &job)
{
    return "/dev/shm/ncclguard-" + std::to_string(geteuid()) + "/" + job;
}

/* Goes with the test, however that ends. */
struct Removed {
    explicit Removed(const std::string &job) : path(job_folder(job))
    {
    }
    ~Removed()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Removed(const Removed &) = delete;
    std::string path;
};

/* A shell script that leaves a black box as a process outside of a run does. */
std::string write_box(const std::string &job)
{
    return "mkdir -p -m 700 " + job_folder(job) +
           "; read -r stat < /proc/$$/stat; set -- ${stat##*) }; : > " + job_folder(job) +
           "/box-$$-${20}; ";
}

/* The command line of a rank of that job (see be_rank). */
std::vector<std::string> a_rank(const std::string &job)
{
    return {std::filesystem::read_symlink("/proc/self/exe"), "--as-rank", job};
}

/* `ncclguard run`, with `before` in front of such a rank. */
std::vector<std::string> run_rank(const std::string &job, std::vector<std::string> before = {})
{
    std::vector<std::string> argv = {the_command(), "run"}, rank = a_rank(job);
    argv.insert(argv.end(), before.begin(), before.end());
    argv.insert(argv.end(), rank.begin(), rank.end());
    return argv;
}

/* Whatever the table of launchers says. */
TEST(Run, DoesNotWarnOfALauncherBehindWhichABlackBoxCameUp)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    Process process(run_rank(job, {"env", "-u", "LD_PRELOAD"}));
    ASSERT_TRUE(process.wait_for("there")) << process.err();
    kill(process.pid(), SIGTERM);
    process.wait_end();
    EXPECT_EQ(process.err(), "");
}

TEST(Run, DoesNotWarnOfLaunchersThatKeepTheEnvironment)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "chroot and runuser are root's";
    for (const std::vector<std::string> &argv :
         {std::vector<std::string>{"chroot", "/", fixture("nothing")},
          {"runuser", "-u", "root", "--", fixture("nothing")},
          {"su", "root", "-s", "/bin/sh", "-c", fixture("nothing")}}) {
        std::vector<std::string> arguments = {"run"};
        arguments.insert(arguments.end(), argv.begin(), argv.end());
        Result result = run(arguments);
        EXPECT_EQ(result.code(), 3) << argv[0];
        EXPECT_EQ(result.err, "") << argv[0];
    }
}

TEST(Run, DoesNotWarnWhenAnyProcessLoadedTheLibrary)
{
    Folder folder;
    std::string script = folder.write("script", "#!/bin/sh\nexit 3\n", 0700);
    for (const std::vector<std::string> &argv :
         {std::vector<std::string>{fixture("nothing")},
          {script},
          {fixture("static"), fixture("nothing")},
          {"sh", "-c", fixture("static") + "; exit 3"},
          {"env", "-u", "LD_PRELOAD", "-u", "NCCLGUARD_RUN_ID", the_command(), "run",
           fixture("nothing")}}) {
        std::vector<std::string> arguments = {"run"};
        arguments.insert(arguments.end(), argv.begin(), argv.end());
        Result result = run(arguments);
        EXPECT_EQ(result.code(), 3);
        EXPECT_EQ(result.err, "") << argv[0];
    }
}

TEST(Run, DoesNotWarnWhenNothingWasToBeGuardedOrTheLogIsToBeQuiet)
{
    EXPECT_EQ(run({"run", fixture("static")}, {{"NCCLGUARD_LOG", "error"}}).err, "");
    EXPECT_EQ(run({"run", fixture("static")}, {{"NCCLGUARD", "0"}}).err, "");
    /* The outer one tells. */
    Result nested = run({"run", the_command(), "run", fixture("static")});
    EXPECT_EQ(nested.err.find("loaded libncclguard.so"), std::string::npos) << nested.err;
}

TEST(Run, AppendsTheLibraryToAnExistingPreload)
{
    Folder folder;
    std::string content = read_file(fixture("libnccl.so.2"));
    std::string library = folder.write("libncclguard.so", content);
    folder.write("libncclguard.sox", content);
    std::map<std::string, std::string> environment = {{"NCCLGUARD_LIB", library},
                                                      {"LD_PRELOAD", ""}};
    EXPECT_EQ(run(shell("echo $LD_PRELOAD"), environment).out, library + "\n");
    environment["LD_PRELOAD"] = "libm.so.6";
    EXPECT_EQ(run(shell("echo $LD_PRELOAD"), environment).out, "libm.so.6:" + library + "\n");
    environment["LD_PRELOAD"] = library + " libm.so.6";
    EXPECT_EQ(run(shell("echo $LD_PRELOAD"), environment).out, library + " libm.so.6\n");
    environment["LD_PRELOAD"] = library + "x";
    EXPECT_EQ(run(shell("echo $LD_PRELOAD"), environment).out, library + "x:" + library + "\n");
}

TEST(Run, FindsTheLibraryInABuildAnInstallationAndABundle)
{
    for (const char *place : {"shim", "lib", "bin"}) {
        Folder folder;
        for (const char *sub : {"bin", "shim", "lib"})
            mkdir((folder / sub).c_str(), 0700);
        std::filesystem::copy(the_command(), folder / "bin/ncclguard");
        std::string library = folder.write(std::string(place) + "/libncclguard.so",
                                           read_file(fixture("libnccl.so.2")));
        Process process({folder / "bin/ncclguard", "run", "sh", "-c", "echo $LD_PRELOAD"},
                        {{"LD_PRELOAD", ""}, {"NCCLGUARD_LIB", ""}});
        EXPECT_EQ(process.wait_end(), 0) << process.err();
        EXPECT_EQ(process.out(), library + "\n");
    }
}

TEST(Run, SaysWhenThereIsNoLibraryOrItCannotBePreloaded)
{
    Folder folder;
    std::filesystem::copy(the_command(), folder / "ncclguard");
    Process lonely({folder / "ncclguard", "run", "echo", "started"}, {{"NCCLGUARD_LIB", ""}});
    int status = lonely.wait_end();
    EXPECT_EQ(WEXITSTATUS(status), 2);
    EXPECT_EQ(lonely.out(), "");
    EXPECT_EQ(lines(lonely.err()).size(), 2u) << lonely.err();

    std::string spaced = folder.write("with space.so", "");
    Result result = run({"run", "echo", "started"}, {{"NCCLGUARD_LIB", spaced}});
    EXPECT_EQ(result.code(), 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(run({"run", "echo"}, {{"NCCLGUARD_LIB", folder / "none.so"}}).code(), 2);
}

TEST(Run, StartsNothingWhereTheLibraryIsSomethingElse)
{
    Folder folder;
    for (const std::string &file :
         {folder.write("text", "text"), folder.path(), std::string("/dev/null"), fixture("nothing"),
          fixture("libstub.so")}) {
        Result result = run({"run", "echo", "started"}, {{"NCCLGUARD_LIB", file}});
        EXPECT_EQ(result.code(), 2) << file;
        EXPECT_EQ(result.out, "");
        EXPECT_NE(result.err.find(file + " is not our library"), std::string::npos) << result.err;
        EXPECT_EQ(lines(result.err).size(), 2u) << result.err;
    }
}

TEST(Run, PassesSignalsOn)
{
    for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGTERM, SIGWINCH, SIGRTMIN}) {
        Process process({the_command(), "run", std::filesystem::read_symlink("/proc/self/exe"),
                         "--as-program", "once"});
        ASSERT_TRUE(process.wait_for("ready")) << process.err();
        kill(process.pid(), number);
        int status = process.wait_end();
        ASSERT_TRUE(status >= 0 && WIFEXITED(status)) << number << " " << status;
        EXPECT_EQ(WEXITSTATUS(status), 9) << number;
        EXPECT_NE(process.out().find("signal " + std::to_string(number) + "\n"), std::string::npos)
            << number;
    }
}

TEST(Run, LeavesTheProgramsSignalMaskAndDispositionsAsTheyWere)
{
    std::string script = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    auto ignore_two = [] {
        signal(SIGHUP, SIG_IGN);
        signal(SIGCHLD, SIG_IGN);
    };
    Process bare({"grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"}, {}, ignore_two);
    ASSERT_EQ(bare.wait_end(), 0);
    Result guarded =
        run({"run", "grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"}, {}, ignore_two);
    EXPECT_EQ(guarded.code(), 0);
    EXPECT_EQ(guarded.out, bare.out());
}

TEST(Run, IsInTheProgramsProcessGroupAndSession)
{
    Process process({the_command(), "run", "cat", "/proc/self/stat"});
    ASSERT_EQ(process.wait_end(), 0);
    std::istringstream stat(process.out().substr(process.out().rfind(')') + 2));
    std::string state;
    int parent, group, session;
    stat >> state >> parent >> group >> session;
    EXPECT_EQ(group, getpgrp());
    EXPECT_EQ(session, getsid(0));
}

TEST(Run, EndsWhatTheProgramLeavesBehindEvenIfItIgnoresSigterm)
{
    int held[2];
    ASSERT_EQ(pipe(held), 0);
    /* Orphans, a session of its own, one that ignores SIGTERM, one that is stopped: all hold the
     * pipe. */
    Result result = run(shell("exec >/dev/null 2>&1; sleep 600 & (sleep 600 &); setsid sleep 600 & "
                              "sh -c 'trap \"\" TERM; while :; do sleep 600; done' & "
                              "sh -c 'kill -STOP $$; sleep 600' & exit 5"));
    EXPECT_EQ(result.code(), 5);
    close(held[1]);
    EXPECT_TRUE(closes_within_20_s(held[0])) << "a process of the program still lives";
    close(held[0]);
}

TEST(Run, GivesLeftProcessesTheChanceToEndThemselves)
{
    Folder folder;
    /* `wait` is interrupted at once by a signal that has a trap. */
    Result result = run(shell("bash -c 'trap \"echo bye > " + folder / "bye" +
                              "; exit\" TERM; sleep 600 & echo > " + folder / "ready" +
                              "; wait' & "
                              "until [ -e " +
                              folder / "ready" + " ]; do sleep 0.01; done"));
    EXPECT_EQ(result.code(), 0);
    EXPECT_EQ(read_file(folder / "bye"), "bye\n") << "late: it had two seconds for it";
}

TEST(Run, EndsTheProgramWhenItIsKilledItself)
{
    Process process({the_command(), "run", "sh", "-c", "echo $$; exec sleep 600"});
    ASSERT_TRUE(process.wait_for("\n"));
    kill(process.pid(), SIGKILL);
    int status = process.wait_end(); /* returns when the program, too, has closed its outputs */
    ASSERT_TRUE(status >= 0 && WIFSIGNALED(status));
    EXPECT_TRUE(process.closed());
}

/* A command on a terminal of its own. */
class Terminal
{
  public:
    explicit Terminal(const std::vector<std::string> &argv)
    {
        pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
        if (pid_ == 0) {
            std::vector<char *> arguments;
            for (const std::string &argument : argv)
                arguments.push_back(const_cast<char *>(argument.c_str()));
            arguments.push_back(nullptr);
            setenv("HISTFILE", "", 1);
            execvp(arguments[0], arguments.data());
            _exit(99);
        }
    }
    ~Terminal()
    {
        close(fd_); /* hangs up: all get SIGHUP */
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Terminal(const Terminal &) = delete;
    void type(const std::string &text)
    {
        ASSERT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
    /* Reads until `text` came; what follows it is left for the next call. */
    bool shows(const std::string &text)
    {
        while (seen_.find(text) == std::string::npos) {
            struct pollfd polled = {fd_, POLLIN, 0};
            char buffer[4096];
            if (poll(&polled, 1, 20000) <= 0)
                return false;
            ssize_t bytes = read(fd_, buffer, sizeof(buffer));
            if (bytes <= 0)
                return false;
            seen_.append(buffer, static_cast<size_t>(bytes));
        }
        seen_.erase(0, seen_.find(text) + text.size());
        return true;
    }
    const std::string &seen() const
    {
        return seen_;
    }
    pid_t pid() const
    {
        return pid_;
    }

  private:
    int fd_;
    pid_t pid_;
    std::string seen_;
};

TEST(Run, StopsAndContinuesWithTheProgram)
{
    Terminal terminal({"bash", "--norc", "--noprofile", "-i"});
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    terminal.type(the_command() + " run " + self + " --as-program on\n");
    ASSERT_TRUE(terminal.shows("ready 21")) << terminal.seen();
    terminal.type("\x1a");
    ASSERT_TRUE(terminal.shows("Stopped")) << terminal.seen();
    /* $((…)): the shell echoes what is typed, so that the answer must differ from it. */
    terminal.type("echo shell $((20 + 2))\n");
    ASSERT_TRUE(terminal.shows("shell 22")) << terminal.seen();
    terminal.type("fg\n");
    ASSERT_TRUE(terminal.shows("signal 18")) << terminal.seen();
    terminal.type("words\n");
    ASSERT_TRUE(terminal.shows("heard words")) << terminal.seen();
    terminal.type("end\n");
    terminal.type("echo status $((200 + $?))\n");
    ASSERT_TRUE(terminal.shows("status 200")) << terminal.seen();
}

TEST(Run, DoesNotPassOnWhatTheTerminalGaveToAll)
{
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    Terminal terminal({the_command(), "run", self, "--as-program", "on"});
    ASSERT_TRUE(terminal.shows("ready 21")) << terminal.seen();
    /* The command is held up, so that a second signal could not merge with the first. */
    stop_child(terminal.pid());
    terminal.type("\x03");
    ASSERT_TRUE(terminal.shows("signal 2\r\n")) << terminal.seen();
    kill(terminal.pid(), SIGUSR1);
    kill(terminal.pid(), SIGCONT);
    /* Pending signals are taken in the order of their numbers: the interrupt was dealt with before
     * this one. */
    ASSERT_TRUE(terminal.shows("signal 10")) << terminal.seen();
    terminal.type("end\n");
    ASSERT_TRUE(terminal.shows("interrupts 1\r\n")) << terminal.seen();
}

/* A verdict as the library would leave it. */
std::string write_verdict(const std::string &action, const std::string &kind = "missing_rank")
{
    return "printf '{\"schema\": \"ncclguard.verdict/1\", \"action\": \"" + action +
           "\", \"kind\": \"" + kind +
           "\"}' > $NCCLGUARD_DUMP_DIR/.v; echo 'rank 2 is to blame' > "
           "$NCCLGUARD_DUMP_DIR/verdict.txt; "
           "mv $NCCLGUARD_DUMP_DIR/.v $NCCLGUARD_DUMP_DIR/verdict.json; ";
}

/* The same, reached two hours ago, of which no black box is left. */
std::string write_old_verdict(const std::string &action)
{
    int64_t reached = (int64_t)time(nullptr) - 7200;
    std::string text = write_verdict(action), schema = "\"action\"";
    return text.replace(text.find(schema), 0,
                        "\"time_unix_ns\": " + std::to_string(reached) + "000000000, ");
}

/* What stands below each verdict. */
std::string look_further(const std::string &folder)
{
    return "ncclguard run: to look further:\n  ncclguard analyze " + folder +
           "\n  ncclguard analyze --html report.html " + folder + "\n";
}

TEST(Run, PrintsTheVerdictOfThisRun)
{
    Folder folder;
    Result killed =
        run({"run", "--out", folder / "e", "sh", "-c", write_verdict("kill") + "exit 6"});
    EXPECT_EQ(killed.code(), 6);
    EXPECT_EQ(killed.err, "rank 2 is to blame\n" + look_further(folder / "e"));
    /* The same folder, but nothing happened this time. */
    EXPECT_EQ(run({"run", "--out", folder / "e", "true"}).err, "");
    Result suspected = run({"run", "--out", folder / "f", "sh", "-c", write_verdict("none")});
    EXPECT_EQ(suspected.err, "");
    /* The outer run tells, not the inner. */
    Result nested =
        run({"run", "--out", folder / "g", the_command(), "run", "sh", "-c", write_verdict("log")});
    EXPECT_EQ(nested.err, "rank 2 is to blame\n" + look_further(folder / "g"));
}

TEST(Run, SaysHowOldAVerdictIsThatLeftTheJobAlive)
{
    for (const char *action : {"log", "abort", "kill", "teardown"}) {
        Folder folder;
        Result result = run({"run", "--out", folder / "e", "sh", "-c", write_old_verdict(action)});
        bool alive = action[0] == 'l' || action[0] == 'a';
        EXPECT_EQ(result.err.find("ncclguard run: the last verdict, 720") == 0, alive)
            << action << result.err;
        EXPECT_EQ(result.err.find(" s before the end; nothing shows that the job went on after it\n"
                                  "rank 2 is to blame\n") != std::string::npos,
                  alive);
    }
}

/* What it prints can be given to a shell as it stands. */
TEST(Run, QuotesAFolderWithSignsOfTheShell)
{
    Folder folder;
    for (auto [name, quoted] : {std::pair("two words", "two words"), {"it's", "it'\\''s"}}) {
        Result result =
            run({"run", "--out", folder / name, "sh", "-c", "IFS=; " + write_verdict("kill")});
        EXPECT_EQ(result.err, "rank 2 is to blame\n" + look_further("'" + (folder / quoted) + "'"));
    }
}

/* Whoever gets the error of a refused call ends with it. */
TEST(Run, PrintsThatCallsDifferedWhereTheJobFailed)
{
    for (const char *kind : {"mismatch", "gpu_stall"})
        for (int status : {0, 3}) {
            Folder folder;
            Result result = run({"run", "--out", folder / "e", "sh", "-c",
                                 write_verdict("none", kind) + "exit " + std::to_string(status)});
            EXPECT_EQ(result.code(), status);
            bool printed = status != 0 && std::string(kind) == "mismatch";
            EXPECT_EQ(result.err,
                      printed ? "rank 2 is to blame\n" + look_further(folder / "e") : "")
                << kind;
        }
}

TEST(Run, SaysWhereTheEvidenceLiesWhenTheTextIsMissing)
{
    Folder folder;
    Result result = run({"run", "--out", folder / "e", "sh", "-c",
                         write_verdict("kill") + "rm $NCCLGUARD_DUMP_DIR/verdict.txt"});
    EXPECT_EQ(result.err, "ncclguard: the evidence lies in " + folder / "e" + "\n" +
                              look_further(folder / "e"));
}

TEST(Run, RemovesTheJobsFolderInSharedMemoryWhoeverNamedTheJob)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    Process process(run_rank(job));
    ASSERT_TRUE(process.wait_for("there")) << process.err();
    EXPECT_EQ(access(job_folder(job).c_str(), F_OK), 0);
    kill(process.pid(), SIGTERM);
    process.wait_end();
    EXPECT_NE(access(job_folder(job).c_str(), F_OK), 0);
}

/* The run looks only when the rank is gone: what the rank has left tells whose it was. */
TEST(Run, RemovesTheFolderOfARankThatIsGoneBeforeItLooks)
{
    std::string job = "test-" + std::to_string(getpid()), rank;
    Removed removed(job);
    for (const std::string &word : a_rank(job))
        rank += word + " ";
    Result result = run({"run", "bash", "-c",
                         "kill -STOP $PPID; coproc " + rank +
                             "; read -ru ${COPROC[0]} there; kill -KILL $COPROC_PID; "
                             "wait $COPROC_PID; kill -CONT $PPID; [[ $there = there ]]"});
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_NE(access(job_folder(job).c_str(), F_OK), 0);
}

/* A rank that has moved to another root removes its black box, but cannot name the folder. */
TEST(Run, RemovesAFolderThatWasLeftEmptyBeforeItLooks)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    Result result = run({"run", "bash", "-c",
                         "kill -STOP $PPID; " + write_box(job) + "rm " + job_folder(job) +
                             "/box-*; kill -CONT $PPID"});
    EXPECT_EQ(result.code(), 0) << result.err;
    EXPECT_NE(access(job_folder(job).c_str(), F_OK), 0);
}

/* Who reads a process's memory while it ends keeps its lock a little longer. */
TEST(Run, WaitsForALockThatOutlivesItsProcess)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    Process process(run_rank(job));
    ASSERT_TRUE(process.wait_for("there")) << process.err();
    std::string box = std::filesystem::directory_iterator(job_folder(job))->path();
    int fd = open(box.c_str(), O_RDWR), rank = 0;
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    ASSERT_EQ(sscanf(box.c_str() + box.rfind('/'), "/box-%d-", &rank), 1) << box;
    /* The lock passes from the rank to us before the run looks. */
    kill(process.pid(), SIGSTOP);
    kill(rank, SIGKILL);
    ASSERT_EQ(fcntl(fd, F_OFD_SETLKW, &lock), 0) << box;
    auto began = std::chrono::steady_clock::now();
    kill(process.pid(), SIGCONT);
    usleep(100000); /* for the run to come to it; it passes, too, where the run is slower */
    close(fd);
    auto held = std::chrono::steady_clock::now() - began;
    process.wait_end();
    bool gone = access(job_folder(job).c_str(), F_OK) != 0;
    /* The run waits for two seconds. */
    EXPECT_TRUE(gone) << (held < std::chrono::seconds(1) ? "" : "late: the test held it for long");
}

TEST(Run, LeavesAJobsFolderInWhichSomebodyElseLives)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    std::filesystem::create_directories(job_folder(job));
    std::string other = job_folder(job) + "/box-1-1";
    int fd = open(other.c_str(), O_RDWR | O_CREAT, 0600);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    ASSERT_EQ(run({"run", "bash", "-c", write_box(job)}).code(), 0);
    EXPECT_EQ(access(other.c_str(), F_OK), 0);
    close(fd);
}

TEST(Run, LeavesJobsFoldersThatAreNotItsOwn)
{
    std::string job = "test-" + std::to_string(getpid());
    Removed removed(job);
    /* A box of a process that lives, but is none of the run's, and of one that is long gone. */
    Process process({the_command(), "run", "bash", "-c", "echo there; exec sleep 600"});
    ASSERT_TRUE(process.wait_for("there"));
    ASSERT_EQ(system(write_box(job).c_str()), 0);
    kill(process.pid(), SIGTERM);
    process.wait_end();
    EXPECT_EQ(access(job_folder(job).c_str(), F_OK), 0);
}

/* As where many processes watch folders already (fs.inotify.max_user_instances). */
TEST(Run, RemovesTheJobsFolderWhereTheSystemHasNoMoreWatches)
{
    std::string job = "test-" + std::to_string(getpid()),
                self = std::filesystem::read_symlink("/proc/self/exe");
    Removed removed(job), other(job + "-other");
    Process process({self, "--without-watches", the_command(), "run", self, "--as-rank", job});
    if (!process.wait_for("there")) {
        ASSERT_NE(process.err().find("no namespace"), std::string::npos) << process.err();
        GTEST_SKIP() << process.err();
    }
    EXPECT_EQ(access(job_folder(job).c_str(), F_OK), 0);
    /* Of no run, and of another. */
    ASSERT_EQ(
        system((self + " --as-rank " + other.path.substr(other.path.rfind('/') + 1) + " >/dev/null")
                   .c_str()),
        0);
    kill(process.pid(), SIGTERM);
    process.wait_end();
    EXPECT_NE(access(job_folder(job).c_str(), F_OK), 0) << process.err();
    EXPECT_EQ(access(other.path.c_str(), F_OK), 0);
    EXPECT_EQ(process.err(), "");
}

/* `test_tools_run --as-rank JOB`: leaves a black box as a rank of that job would; under a run it
 * stays. */
int be_rank(const std::string &job)
{
    struct evidence_rank rank = {};
    std::filesystem::create_directories(job_folder(job));
    if (evidence_make_box_of(job.c_str(), "", job_folder(job).c_str(), &rank, 1) != 0)
        return 1;
    printf("there\n");
    fflush(stdout);
    if (getenv("NCCLGUARD_RUN_ID"))
        pause();
    return 0;
}

enum {
    LOG = 1,
    KILL = 4, /* as policies are in black boxes */
    CRASHES = 10,
    FOLLOWS = 11
};

/*
 * `test_tools_run --as-rank-of FOLDER POLICY`: leaves its black box there. With policy kill it ends
 * by a verdict, once the box has been read three times: at once, for its end to be noted, and then
 * twice, and so all that follows from the first of these has been done; else it stays. With
 * NG_TEST_OTHERS in its environment not before so many others of the folder have been read.
 * CRASHES: it crashes then. FOLLOWS: ends by SIGTERM once another's end was noted, because of it.
 */
int be_rank_of(const char *folder, int policy)
{
    struct evidence_rank rank = {};
    char events[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    const char *wanted = getenv("NG_TEST_OTHERS");
    std::set<std::string> others;

    if (inotify_add_watch(watch, folder, IN_CLOSE_NOWRITE | IN_CLOSE_WRITE) < 0 ||
        evidence_make_box(folder, &rank, 8) != 0)
        return 1;
    if (const char *run = getenv("NG_TEST_RUN"))
        evidence_set_run((uint64_t)atoi(run));
    if (policy <= KILL)
        evidence_set_policies((uint32_t)policy, 0);
    std::string own = "box-" + std::to_string(getpid()) + "-";
    for (int seen = 0; (policy != KILL && policy != CRASHES) || seen < 3;) {
        ssize_t bytes = read(watch, events, sizeof(events));
        for (char *at = events; at < events + bytes;) {
            auto *event = reinterpret_cast<struct inotify_event *>(at);
            at += sizeof(*event) + event->len;
            if (!event->len || strncmp(event->name, "box-", 4) != 0)
                continue;
            if (strncmp(event->name, own.c_str(), own.size()) == 0)
                seen += (event->mask & IN_CLOSE_NOWRITE) &&
                        others.size() >= (size_t)(wanted ? atoi(wanted) : 0);
            else if (event->mask & IN_CLOSE_NOWRITE)
                others.insert(event->name);
            /* What is in it counts, not how often it was written to. */
            else if (policy == FOLLOWS &&
                     evidence_read_end((std::string(folder) + "/" + event->name).c_str())
                             .when_mono_ns > 0)
                raise(SIGTERM);
        }
    }
    if (policy == CRASHES)
        signal(SIGSEGV, SIG_DFL), raise(SIGSEGV); /* a sanitizer has a handler */
    evidence_set_policies((uint32_t)policy, (uint32_t)policy);
    _exit(0);
}

/* A shell under `ncclguard run`, `$rank POLICY` being such a rank of its job. */
Result run_job(const std::string &script)
{
    Folder folder;
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    return run(shell("rank='" + self + " --as-rank-of " + folder.path() + "'; " + script),
               {{"NCCLGUARD_DIR", folder.path()}});
}

/* A killed rank cannot record its end: `ncclguard run` does it, though the rank is a child of a
 * shell. */
TEST(Run, PutsTheEndsOfRanksIntoTheirBlackBoxes)
{
    Folder folder;
    std::string self = std::filesystem::read_symlink("/proc/self/exe"),
                rank = self + " --as-rank-of " + folder.path();
    Result result = run(shell("NG_TEST_OTHERS=1 " + rank + " 10 & first=$!; " + rank +
                              " 11 & wait $!; wait $first; exit 0"),
                        {{"NCCLGUARD_DIR", folder.path()}});
    EXPECT_EQ(result.code(), 0) << result.err;
    std::map<int, int64_t> ends; /* how: when */
    for (const auto &entry : std::filesystem::directory_iterator(folder.path())) {
        struct evidence_end end = evidence_read_end(entry.path().c_str());
        ends[end.how] = end.when_mono_ns;
    }
    ASSERT_EQ(ends.size(), 2u);
    /* As the kernel tells (Linux 6.15), or nobody has reaped it yet. */
    if (ends.count(0))
        GTEST_SKIP() << "the kernel does not tell how a process has ended";
    ASSERT_TRUE(ends.count(256 + SIGSEGV) && ends.count(256 + SIGTERM));
    EXPECT_GT(ends[256 + SIGSEGV], 0);
    EXPECT_LT(ends[256 + SIGSEGV], ends[256 + SIGTERM]);
}

TEST(Leftovers, AreEndedAfterAVerdict)
{
    Result result = run_job("$rank 4 & sleep 600 & sh -c 'kill -STOP $$; sleep 600' & "
                            "sh -c 'trap \"\" TERM; while :; do sleep 600; done' & wait; exit 5");
    EXPECT_EQ(result.code(), 5) << result.err;
    EXPECT_PRED2(has, result.err, "it has not called NCCL: SIGTERM\n");
    EXPECT_PRED2(has, result.err, "it has not called NCCL: SIGKILL\n");
    EXPECT_NE(result.err.find("stopped: SIGKILL\n"), std::string::npos) << result.err;
}

/* A leftover that goes with SIGKILL alone: whatever else would be ended has had SIGTERM long
 * before. */
const char *const old = "sh -c 'trap \"\" TERM; while :; do sleep 600; done' & old=$!; ";

/* What began after the verdict is another attempt, and a process's own policy is the ceiling. */
TEST(Leftovers, AreNotWhatCameLaterNorWhatIsSetToLog)
{
    Result result = run_job(
        std::string("$rank 1 & box=$!; NCCLGUARD_ON_TIMEOUT=log sleep 600 & set=$!; ") + old +
        "NG_TEST_OTHERS=1 $rank 4 & wait $!; sleep 600 & later=$!; wait $old; echo old $?; "
        "kill -KILL $box $set $later; wait $box; echo box $?; wait $set; echo set $?; "
        "wait $later; echo later $?");
    EXPECT_EQ(result.out, "old 137\nbox 137\nset 137\nlater 137\n") << result.err;
}

/* Below the same shell. */
TEST(Leftovers, AreNotOfAnotherJob)
{
    std::string job = "test-" + std::to_string(getpid()),
                self = std::filesystem::read_symlink("/proc/self/exe");
    Removed removed(job), other(job + "-other");
    std::string of_other = self + " --as-rank " + job + "-other >&2";
    std::filesystem::create_directories(job_folder(job));
    Result result = run(
        shell(of_other + " & other=$!; (" + of_other + " & wait) & above=$!; " + old + self +
              " --as-rank-of " + job_folder(job) +
              " 4 & wait $old; echo old $?; "
              "kill -KILL $other $above; wait $other; echo other $?; wait $above; echo above $?"));
    EXPECT_EQ(result.out, "old 137\nother 137\nabove 137\n") << result.err;
}

/* Nor is a process without a box below two runs known to be of one. */
TEST(Leftovers, AreNotOfAnotherRunOfTheJob)
{
    Result result = run_job("NG_TEST_RUN=2 $rank 2 & other=$!; sleep 600 & unknown=$!; "
                            "NG_TEST_RUN=1 $rank 2 & same=$!; "
                            "NG_TEST_OTHERS=2 NG_TEST_RUN=1 $rank 4 & wait $same; echo same $?; "
                            "kill -KILL $other $unknown; "
                            "wait $other; echo other $?; wait $unknown; echo unknown $?");
    EXPECT_EQ(result.out, "same 143\nother 137\nunknown 137\n") << result.err;
}

TEST(Leftovers, AreALauncherThatWaitsForNobody)
{
    Result result = run_job("$rank 4 & exec sleep 600");
    EXPECT_EQ(result.signal(), SIGTERM) << result.err;
    EXPECT_PRED2(has, result.err, "left after the verdict: the launcher (pid ");
}

/* It may wait long for the other hosts before it starts the next attempt. */
TEST(Leftovers, AreNotALauncherThatHasRestartsLeft)
{
    std::string job = "test-" + std::to_string(getpid()),
                self = std::filesystem::read_symlink("/proc/self/exe");
    Removed removed(job), other(job + "-other");
    Folder folder;
    for (const std::string &path : {job_folder(job), other.path})
        std::filesystem::create_directories(path);
    std::string rank = self + " --as-rank-of ", ended = folder / "ended";
    Result result = run(shell("(TORCHELASTIC_MAX_RESTARTS=3 " + rank + job_folder(job) +
                              " 4 & wait $!; echo > " + ended +
                              "; exec sleep 600) & elastic=$!; "
                              "(until [ -e " +
                              ended + " ]; do :; done; " + rank + other.path +
                              " 4 & exec sleep 600) & plain=$!; wait $plain; echo plain $?; "
                              "kill -KILL $elastic; wait $elastic; echo elastic $?"));
    EXPECT_EQ(result.out, "plain 143\nelastic 137\n") << result.err;
}

/* `test_tools_run --without-watches COMMAND…`: runs it where no inotify instance is to be had. */
int run_without_watches(char **command)
{
    std::string user = std::to_string(geteuid());
    if (unshare(CLONE_NEWUSER) != 0 ||
        !write_text("/proc/self/uid_map", user + " " + user + " 1") ||
        !write_text("/proc/sys/user/max_inotify_instances", "0")) {
        fprintf(stderr, "no namespace of users: %s\n", strerror(errno));
        return 77;
    }
    execv(command[0], command);
    return 127;
}

} /* namespace */

/* Every other `ncclguard run` of this host reads the boxes in /dev/shm, too, and what tests wait
 * for is that their own has. So the tests have a /dev/shm of their own, where they may. */
void leave_the_others()
{
    if (unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--as-program") == 0)
        return be_program(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--as-rank") == 0)
        return be_rank(argv[2]);
    if (argc == 4 && strcmp(argv[1], "--as-rank-of") == 0)
        return be_rank_of(argv[2], atoi(argv[3]));
    if (argc > 2 && strcmp(argv[1], "--without-watches") == 0)
        return run_without_watches(argv + 2);
    testing::InitGoogleTest(&argc, argv);
    leave_the_others();
    return RUN_ALL_TESTS();
}
