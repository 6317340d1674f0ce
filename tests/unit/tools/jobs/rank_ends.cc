/*
 * Ends that are found late: in which order they were.
 */
#include <arpa/inet.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/unit/tools/command.h"
#include "tests/unit/tools/evidence.h"

extern "C" {
#include "core/recorder/proc.h"
#include "store/board/announce.h"
#include "tools/jobs/rank_ends.h"
}

namespace
{

constexpr int RANKS = 6;

/* Ranks of a job under `ncclguard run`, which this process is, each with its black box. */
struct RankEnds : testing::Test {
    void SetUp() override
    {
        static int tests;
        /* The same tests with a sanitizer may run beside: a socket of that name is the machine's.
         */
        std::string run = "test-" + std::to_string(getpid()) + "-" + std::to_string(++tests);
        setenv("NCCLGUARD_RUN_ID", run.c_str(), 1);
        for (int rank = 0; rank < RANKS; rank++)
            ranks_.push_back(begin(rank));
    }
    void TearDown() override
    {
        for (pid_t pid : ranks_) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        unsetenv("NCCLGUARD_RUN_ID");
    }
    /* It has ended when this returns, and nobody has reaped it. */
    void end(int rank) const
    {
        siginfo_t info;
        kill(ranks_[(size_t)rank], SIGKILL);
        waitid(P_PID, (id_t)ranks_[(size_t)rank], &info, WEXITED | WNOWAIT);
    }
    /* As exit() leaves it. */
    void exit_well(int rank) const
    {
        evidence_exit_well(box_of(rank).c_str());
        end(rank);
    }
    /* Those that run, or have ended and are not reaped. */
    static int children()
    {
        std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
        return (int)std::distance(std::istream_iterator<int>(list), std::istream_iterator<int>());
    }
    /* When it was seen to end; 0 it was not. */
    int64_t end_of(int rank) const
    {
        return evidence_read_end(box_of(rank).c_str()).when_mono_ns;
    }
    std::string box_of(int rank) const
    {
        return box_of_pid(ranks_[(size_t)rank]);
    }
    std::string box_of_pid(pid_t pid) const
    {
        std::string own = "/box-" + std::to_string(pid) + "-";
        for (const std::string &box : boxes())
            if (box.find(own) != std::string::npos)
                return box;
        return "";
    }
    std::vector<std::string> boxes() const
    {
        std::vector<std::string> found;
        for (const auto &entry : std::filesystem::directory_iterator(folder_.path()))
            if (entry.path().filename().string().rfind("box-", 0) == 0)
                found.push_back(entry.path());
        return found;
    }
    /* A process of this rank has started under guard and ended by this signal (0: exit status 0;
     * SIGSTOP: it lives); nobody has reaped it. */
    static pid_t start_and_end(int rank, int number, int world_size = -1, uint64_t run = 0)
    {
        struct ng_launch launch = {};
        siginfo_t info;
        launch.rank = rank;
        launch.world_size = world_size;
        launch.run = run;
        snprintf(launch.job, sizeof(launch.job), "job");
        pid_t pid = fork();
        if (pid == 0) {
            ng_announce_start(getenv("NCCLGUARD_RUN_ID"), &launch);
            signal(number, SIG_DFL);
            raise(number);
            _exit(0);
        }
        waitid(P_PID, (id_t)pid, &info, WEXITED | WSTOPPED | WNOWAIT);
        return pid;
    }
    Folder folder_;

    pid_t begin(int rank) const
    {
        int ends[2];
        char byte;
        if (pipe(ends) != 0)
            throw std::runtime_error("pipe");
        pid_t pid = fork();
        if (pid == 0) {
            struct evidence_rank own = {.rank = rank, .entered = 7, .completed = 6};
            bool made = evidence_make_box(folder_.path().c_str(), &own, RANKS) == 0;
            if (made && write(ends[1], "", 1) == 1)
                pause();
            _exit(1);
        }
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1)
            throw std::runtime_error("a rank has no black box");
        close(ends[0]);
        return pid;
    }
    std::vector<pid_t> ranks_;
};

/* The launcher ends the others right after the one that crashed, and the observer gets no processor
 * until then. */
TEST_F(RankEnds, EndsThatAreFoundTogetherKeepTheirOrder)
{
    const int order[RANKS] = {3, 0, 5, 2, 4, 1};
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);

    ng_rank_ends_look(ends, nullptr);
    for (int rank : order)
        end(rank);
    ng_rank_ends_wait(ends, -1, 0);
    ng_rank_ends_destroy(ends);
    EXPECT_GT(end_of(order[0]), 0);
    for (int i = 1; i < RANKS; i++)
        EXPECT_GT(end_of(order[i]), end_of(order[i - 1])) << i;
}

/* Which of them was first nobody knows. */
TEST_F(RankEnds, EndsBeforeTheFirstLookAreTakenForOneMoment)
{
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);

    end(3);
    end(0);
    ng_rank_ends_look(ends, nullptr);
    end(1);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_GT(end_of(3), 0);
    EXPECT_EQ(end_of(0), end_of(3));
    EXPECT_EQ(end_of(1), end_of(3));
    EXPECT_EQ(end_of(2), 0) << "it runs";
    /* What ends later is in order. */
    end(5);
    end(2);
    ng_rank_ends_wait(ends, -1, 0);
    ng_rank_ends_destroy(ends);
    EXPECT_GT(end_of(5), end_of(3));
    EXPECT_GT(end_of(2), end_of(5));
}

/* As where all descriptors are in use when it begins. */
TEST_F(RankEnds, WithoutAnEpollEndsAreFoundAllTheSame)
{
    struct rlimit few, usual;

    getrlimit(RLIMIT_NOFILE, &usual);
    few = {0, usual.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);
    setrlimit(RLIMIT_NOFILE, &usual);
    ng_rank_ends_look(ends, nullptr);
    end(3);
    ng_rank_ends_wait(ends, -1, 0);
    end(1);
    end(0);
    ng_rank_ends_wait(ends, -1, 0);
    ng_rank_ends_destroy(ends);
    EXPECT_GT(end_of(3), 0);
    EXPECT_GT(end_of(1), end_of(3));
    EXPECT_EQ(end_of(0), end_of(1)) << "which was first is unknown";
    EXPECT_EQ(end_of(2), 0);
}

/* A store that takes connections, and never answers. */
struct Store {
    Store()
    {
        struct sockaddr_in address = {};
        socklen_t length = sizeof(address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 8) != 0 ||
            getsockname(fd, (struct sockaddr *)&address, &length) != 0)
            throw std::runtime_error("no port");
        url = "redis://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    }
    ~Store()
    {
        close(fd);
    }
    bool was_called(int timeout_ms) const
    {
        struct pollfd caller = {fd, POLLIN, 0};
        return poll(&caller, 1, timeout_ms) > 0;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::string url;
};

TEST_F(RankEnds, ADeathIsToldToTheStoreOfSeveralHostsAndAnEndThatIsWellIsNot)
{
    Store store;
    struct ng_witness_options witness = {store.url.c_str(), nullptr, nullptr};
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), &witness);
    int before = children();

    ng_rank_ends_look(ends, nullptr);
    exit_well(2);
    ng_rank_ends_wait(ends, -1, 0);
    ng_rank_ends_tell(ends);
    EXPECT_EQ(children(), before) << "nobody who would tell";
    end(3);
    ng_rank_ends_wait(ends, -1, 0); /* which returns at once, whatever the store does */
    ng_rank_ends_tell(ends);
    EXPECT_EQ(children(), before + 1);
    EXPECT_TRUE(store.was_called(20000));
    ng_rank_ends_destroy(ends);
}

/* `ncclguard run` holds a descriptor of each rank. */
TEST_F(RankEnds, ADeathIsToldThoughAllDescriptorsAreInUse)
{
    Store store;
    struct rlimit few, usual;
    struct ng_witness_options witness = {store.url.c_str(), nullptr, nullptr};
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), &witness);

    ng_rank_ends_look(ends, nullptr);
    end(3);
    ng_rank_ends_wait(ends, -1, 0);
    int lowest = dup(0);
    close(lowest);
    getrlimit(RLIMIT_NOFILE, &usual);
    few = {(rlim_t)lowest, usual.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    ng_rank_ends_tell(ends);
    setrlimit(RLIMIT_NOFILE, &usual);
    EXPECT_TRUE(store.was_called(20000));
    ng_rank_ends_destroy(ends);
}

/* Rank 3 ends, and its black box cannot be opened from before that, or from when it is told, on. */
static void expect_told_later(const RankEnds &job, const std::string &box, bool before)
{
    Store store;
    struct ng_witness_options witness = {store.url.c_str(), nullptr, nullptr};
    struct ng_rank_ends *ends = ng_rank_ends_create(job.folder_.path().c_str(), &witness);
    std::string aside = job.folder_.path() + "/aside";
    auto take_away = [&] {
        std::filesystem::rename(box, aside);
        std::filesystem::create_symlink(box, box); /* a loop */
    };

    ng_rank_ends_look(ends, nullptr);
    if (before)
        take_away();
    job.end(3);
    ng_rank_ends_wait(ends, -1, 0);
    if (!before)
        take_away();
    ng_rank_ends_tell(ends);
    EXPECT_FALSE(store.was_called(300)) << "whose job it is of is not known";
    std::filesystem::rename(aside, box);
    EXPECT_TRUE(store.was_called(20000));
    ng_rank_ends_destroy(ends);
}

TEST_F(RankEnds, ADeathIsToldThoughItsBlackBoxCannotBeOpenedForAMoment)
{
    expect_told_later(*this, box_of(3), false);
}

TEST_F(RankEnds, ADeathIsToldThoughItsBlackBoxCannotBeOpenedWhenItEnds)
{
    expect_told_later(*this, box_of(3), true);
}

/* Its launcher's number is all that is known of it. */
TEST_F(RankEnds, ARankThatEndsBeforeItsFirstCommunicatorGetsABlackBox)
{
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);
    size_t before = boxes().size();

    ng_rank_ends_look(ends, nullptr);
    pid_t well = start_and_end(RANKS, 0), killed = start_and_end(RANKS + 1, SIGKILL);
    ng_rank_ends_wait(ends, -1, 0);
    ASSERT_EQ(boxes().size(), before + 1);
    std::string box = box_of_pid(killed);
    struct evidence_end end = evidence_read_end(box.c_str());
    EXPECT_GT(end.when_mono_ns, 0);
    EXPECT_EQ(end.how, 256 + SIGKILL);

    /* It starts again, and a helper of it fails. */
    pid_t again = start_and_end(RANKS + 1, SIGSTOP), helper = start_and_end(RANKS + 1, SIGSEGV);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_EQ(boxes().size(), before);
    kill(again, SIGKILL);
    for (pid_t pid : {well, killed, again, helper})
        waitpid(pid, nullptr, 0);

    /* What comes late tells of one that is gone. */
    waitpid(start_and_end(RANKS + 2, SIGKILL), nullptr, 0);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_EQ(boxes().size(), before + 2) << "and rank " << RANKS + 1;
    ng_rank_ends_destroy(ends);
    EXPECT_EQ(boxes().size(), before + 2) << "others may look at them";
}

/* Two runs of a launcher below one `ncclguard run`, the second of which is begun again. */
TEST_F(RankEnds, RanksOfAnotherRunOfALauncherAreNeitherItsHelpersNorItsSuccessors)
{
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);
    std::vector<pid_t> started;
    auto start = [&](int rank, int number, uint64_t run) {
        started.push_back(start_and_end(rank, number, -1, run));
        ng_rank_ends_wait(ends, -1, 0);
        return started.back();
    };

    ng_rank_ends_look(ends, nullptr);
    start(RANKS, SIGSTOP, 1);
    pid_t first = start(RANKS + 1, SIGKILL, 1), second = start(RANKS, SIGKILL, 2);
    EXPECT_NE(box_of_pid(first), "");
    EXPECT_NE(box_of_pid(second), "") << "rank " << RANKS << " of run 1 lives";
    start(RANKS + 1, SIGSTOP, 3);
    EXPECT_NE(box_of_pid(first), "") << "run 1 lives, and waits for it";
    start(RANKS, SIGSTOP, 3);
    EXPECT_EQ(box_of_pid(second), "") << "nothing of run 2 is left";
    ng_rank_ends_destroy(ends);
    for (pid_t pid : started) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
}

/* torchrun in a step of Slurm: the step's number is no rank of the job. */
TEST_F(RankEnds, TheEndOfALauncherWithANumberOfItsOwnIsNotThatOfARank)
{
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);
    size_t before = boxes().size();
    struct ng_launch launch = {};
    int lines[2];
    pid_t worker = 0;

    ng_rank_ends_look(ends, nullptr);
    snprintf(launch.job, sizeof(launch.job), "job");
    launch.rank = RANKS;
    launch.world_size = 2;
    ASSERT_EQ(pipe(lines), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        ng_announce_start(getenv("NCCLGUARD_RUN_ID"), &launch);
        worker = start_and_end(launch.rank, SIGSTOP, 16);
        if (write(lines[1], &worker, sizeof(worker)) == (ssize_t)sizeof(worker))
            pause();
        _exit(1);
    }
    ASSERT_EQ(read(lines[0], &worker, sizeof(worker)), (ssize_t)sizeof(worker));
    ng_rank_ends_wait(ends, -1, 0);

    /* Nor is the launcher a process of the rank that has this number in the job. */
    kill(worker, SIGKILL);
    for (int tries = 0; tries < 1000 && boxes().size() == before; tries++)
        ng_rank_ends_wait(ends, -1, 10);
    EXPECT_NE(box_of_pid(worker), "");
    kill(launcher, SIGKILL);
    waitpid(launcher, nullptr, 0);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_EQ(box_of_pid(launcher), "");
    ng_rank_ends_destroy(ends);
    close(lines[0]);
    close(lines[1]);
}

/* As of ranks that start together. If one were not received, the end of a helper of it would be
 * taken for its own. */
TEST_F(RankEnds, AStartIsReceivedThoughTheQueueWasFull)
{
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);
    struct ng_launch launch = {};
    uint64_t ticks;
    siginfo_t info;
    int room = 0;
    char state = 'R';

    ng_rank_ends_look(ends, nullptr);
    std::ifstream("/proc/sys/net/unix/max_dgram_qlen") >> room;
    snprintf(launch.job, sizeof(launch.job), "job");
    launch.rank = RANKS;
    pid_t many = fork();
    for (int i = 0; many == 0 && i <= room; i++)
        ng_announce_start(getenv("NCCLGUARD_RUN_ID"), &launch);
    if (many == 0)
        _exit(0);
    waitid(P_PID, (id_t)many, &info, WEXITED | WNOWAIT);
    launch.rank++;
    pid_t one = fork();
    if (one == 0) {
        ng_announce_start(getenv("NCCLGUARD_RUN_ID"), &launch);
        raise(SIGKILL);
    }
    while (ng_proc_stat(one, &state, &ticks) == 0 && state != 'S' && state != 'Z')
        ;
    ng_rank_ends_wait(ends, -1, 0);
    waitid(P_PID, (id_t)one, &info, WEXITED | WNOWAIT);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_NE(box_of_pid(one), "");
    ng_rank_ends_destroy(ends);
    for (pid_t pid : {many, one})
        waitpid(pid, nullptr, 0);
}

TEST_F(RankEnds, ABoxThatWasLeftWhereNobodyLooksGoesWithTheRun)
{
    Folder apart;
    struct ng_rank_ends *ends = ng_rank_ends_create(apart.path().c_str(), nullptr);

    ng_rank_ends_look(ends, nullptr);
    for (int rank : {RANKS, RANKS + 1})
        waitpid(start_and_end(rank, SIGKILL), nullptr, 0);
    ng_rank_ends_wait(ends, -1, 0);
    EXPECT_FALSE(std::filesystem::is_empty(apart.path()));
    ng_rank_ends_destroy(ends);
    EXPECT_FALSE(std::filesystem::exists(apart.path()));
}

/* All wait in collective 7 when the verdict on it comes. */
TEST_F(RankEnds, BoxesKnowWhetherTheJobWentOnAfterAVerdict)
{
    constexpr uint64_t GROUP = 0x0123456789abcdef;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t verdict = now.tv_sec * 1000000000 + now.tv_nsec;
    struct ng_rank_ends *ends = ng_rank_ends_create(folder_.path().c_str(), nullptr);

    ng_rank_ends_look(ends, nullptr);
    EXPECT_FALSE(ng_rank_ends_went_on(nullptr, 1, GROUP, 7));
    EXPECT_FALSE(ng_rank_ends_went_on(ends, verdict, GROUP, 7));
    for (int rank = 0; rank < RANKS; rank++) {
        EXPECT_FALSE(ng_rank_ends_went_on(ends, verdict, GROUP, 7)) << rank << " waits";
        ASSERT_EQ(evidence_finish(box_of(rank).c_str(), 7), 0);
    }
    EXPECT_TRUE(ng_rank_ends_went_on(ends, verdict, GROUP, 7));
    EXPECT_TRUE(ng_rank_ends_went_on(ends, verdict, 0, 0));
    EXPECT_FALSE(ng_rank_ends_went_on(ends, verdict + 3600000000000, GROUP, 7))
        << "nothing has finished since";
    ng_rank_ends_destroy(ends);
}

} // namespace
