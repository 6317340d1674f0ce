/*
 * Who lives, as the local board sees it: deaths, zombies, stopped and silent processes, descriptors
 * that the program closed, and limits that it set.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/store/board/peer.h"

namespace
{

/* Descriptors of this process for other processes; boards of earlier tests keep theirs. */
std::set<int> pid_descriptors()
{
    std::set<int> found;
    char link[64];

    for (int fd = 3; fd < 1024; fd++) {
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        ssize_t length = readlink(path.c_str(), link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        if (strstr(link, "pidfd"))
            found.insert(fd);
    }
    return found;
}

/* The program closes what it did not open, and opens something of its own at the number. */
int replace_pid_descriptor(const std::set<int> &before, int with)
{
    for (int fd : pid_descriptors())
        if (!before.count(fd)) {
            close(fd);
            EXPECT_EQ(dup2(with, fd), fd);
            return fd;
        }
    ADD_FAILURE() << "no descriptor of the peer's process";
    return -1;
}

/* Wait until the board tells of a death: within a bound that only a lost event would reach. */
bool death_is_told(Board *board)
{
    for (int64_t until = ng_clock_mono_ns() + 20 * NG_S; ng_clock_mono_ns() < until;)
        if (board->wait(2000) & NG_BOARD_DEATH)
            return true;
    return false;
}

std::map<int, int> ends(Board *board)
{
    std::map<int, int> found;
    OwnView view;

    EXPECT_EQ(board->board->ops->view(board->board, &view), 0);
    for (uint32_t i = 0; i < view.process_count; i++)
        found[view.processes[i].pid] = view.processes[i].exit_status;
    return found;
}

/* It has ended, and nobody has asked how. */
void await_zombie(int pid)
{
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

struct LocalLife : BoardTest {
    std::set<int> before = pid_descriptors();
};

} // namespace

TEST_F(LocalLife, EveryRankIsShownAlive)
{
    Peer one(folder.path()), two(folder.path(), {}, 2);

    board.wait(0);
    std::map<int, enum ng_life> lives = board.lives();
    EXPECT_EQ(lives.size(), 3u);
    EXPECT_EQ(lives[getpid()], NG_LIFE_RUNNING);
    EXPECT_EQ(lives[one.pid()], NG_LIFE_RUNNING);
    EXPECT_EQ(lives[two.pid()], NG_LIFE_RUNNING);
    EXPECT_EQ(board.ended(), 0u);
}

TEST_F(LocalLife, ADeathEndsTheWaitByItselfThoughNobodyReapsTheProcess)
{
    Peer peer(folder.path());

    board.wait(0);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_RUNNING);
    peer.kill_unreaped();
    int64_t before = ng_clock_mono_ns();
    /* Death and nothing else: it was not found by looking around. */
    EXPECT_EQ(board.wait(30000), NG_BOARD_DEATH);
    EXPECT_IN_TIME(ng_clock_mono_ns() - before, 10 * NG_S) << "an event, not the end of the wait";
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_DEAD);
    EXPECT_EQ(board.ended(), 1u);
    EXPECT_EQ(board.wait(0), 0u) << "told once";
    EXPECT_EQ(board.ended(), 1u);
}

/* Its process ends after that: what is there to read must not keep the others awake for ever. */
TEST_F(LocalLife, WhoSaidThatItLeftEndsNoWaitWhenItIsGone)
{
    Peer peer(folder.path(), [](struct ng_box *box) {
        __atomic_store_n((uint32_t *)&box->header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
        return 0;
    });

    EXPECT_TRUE(board.wait(0) & NG_BOARD_DEATH);
    peer.kill_unreaped();
    await_zombie(peer.pid());
    int64_t before = ng_clock_mono_ns();
    EXPECT_EQ(board.wait(200), 0u);
    EXPECT_GE(ng_clock_mono_ns() - before, 200 * NG_MS) << "the whole wait";
}

TEST_F(LocalLife, ADeathIsNoticedAfterThePidIsGoneToo)
{
    Peer peer(folder.path());
    int pid = peer.pid();

    board.wait(0);
    peer.kill_and_reap();
    EXPECT_EQ(board.wait(30000), NG_BOARD_DEATH);
    EXPECT_EQ(board.lives()[pid], NG_LIFE_DEAD);
}

TEST_F(LocalLife, WhoDiedBeforeWeLookedIsDead)
{
    Peer zombie(folder.path()), reaped(folder.path(), {}, 2);
    int pid = reaped.pid();

    zombie.kill_unreaped();
    reaped.kill_and_reap();
    EXPECT_TRUE(board.wait(0) & NG_BOARD_DEATH);
    EXPECT_EQ(board.ended(), 2u);
    EXPECT_EQ(board.lives()[zombie.pid()], NG_LIFE_DEAD);
    EXPECT_EQ(board.lives()[pid], NG_LIFE_DEAD);
}

TEST_F(LocalLife, ACrashAndAKillAreToldApart)
{
    Peer crashed(folder.path()), killed(folder.path(), {}, 2);

    board.wait(0);
    kill(crashed.pid(), SIGSEGV);
    killed.kill_unreaped();
    await_zombie(crashed.pid());
    while (board.ended() < 2)
        ASSERT_TRUE(death_is_told(&board));
    std::map<int, int> found = ends(&board);
    EXPECT_EQ(found[crashed.pid()], NG_EXIT_STATUS_SIGNAL + SIGSEGV);
    EXPECT_EQ(found[killed.pid()], NG_EXIT_STATUS_SIGNAL + SIGKILL);
    EXPECT_EQ(found[getpid()], 0) << "it lives";
}

/* Its parent was faster than we: only newer kernels remember. */
TEST_F(LocalLife, HowAProcessEndedIsNeverGuessed)
{
    Peer killed(folder.path()), silent(folder.path(), {}, 2);
    int killed_pid = killed.pid(), silent_pid = silent.pid();

    board.wait(0);
    killed.kill_and_reap();
    ASSERT_EQ(silent.finish(), 0) << "by _exit: its box does not tell";
    while (board.ended() < 2)
        ASSERT_TRUE(death_is_told(&board));
    std::map<int, int> found = ends(&board);
    EXPECT_TRUE(found[killed_pid] == 0 || found[killed_pid] == NG_EXIT_STATUS_SIGNAL + SIGKILL)
        << found[killed_pid];
    EXPECT_TRUE(found[silent_pid] == 0 || found[silent_pid] == NG_EXIT_STATUS_SILENT + 0)
        << found[silent_pid];
}

TEST_F(LocalLife, AReusedPidIsDead)
{
    Peer peer(folder.path(), [](struct ng_box *box) {
        box->header->start_ticks++; /* as if somebody else had had this pid before */
        return 0;
    });

    board.wait(0);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_DEAD);
}

TEST_F(LocalLife, WhatAProcessSaysOfItsEndCounts)
{
    auto leaves = [](enum ng_box_life how) {
        return [how](struct ng_box *box) {
            __atomic_store_n((int32_t *)&box->header->exit_status, 7, __ATOMIC_SEQ_CST);
            __atomic_store_n((int64_t *)&box->header->life_mono_ns, ng_clock_mono_ns(),
                             __ATOMIC_SEQ_CST);
            __atomic_store_n((uint32_t *)&box->header->life, (uint32_t)how, __ATOMIC_SEQ_CST);
            return 0;
        };
    };
    Peer exited(folder.path(), leaves(NG_BOX_EXITED));
    Peer ended(folder.path(), leaves(NG_BOX_ENDED_BY_GUARD), 2);
    int ended_pid = ended.pid();
    ended.kill_and_reap();

    EXPECT_TRUE(board.wait(0) & NG_BOARD_DEATH);
    EXPECT_EQ(board.ended(), 2u) << "one is still in its exit handlers, and counts already";
    EXPECT_EQ(board.lives()[exited.pid()], NG_LIFE_EXITED);
    EXPECT_EQ(board.lives()[ended_pid], NG_LIFE_ENDED_BY_GUARD)
        << "after we came: it is of our own run";
}

TEST_F(LocalLife, WhomTheGuardEndedBeforeWeCameIsOfAnEarlierRun)
{
    Folder folder; /* in which our own box comes last */
    Peer earlier(folder.path(), [](struct ng_box *box) {
        __atomic_store_n((int64_t *)&box->header->life_mono_ns, ng_clock_mono_ns(),
                         __ATOMIC_SEQ_CST);
        __atomic_store_n((uint32_t *)&box->header->life, (uint32_t)NG_BOX_ENDED_BY_GUARD,
                         __ATOMIC_SEQ_CST);
        return 0;
    });
    int pid = earlier.pid();
    earlier.kill_and_reap();
    Peer died(folder.path(), {}, 2);
    int died_pid = died.pid();
    died.kill_and_reap();

    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    board.wait(0);
    std::map<int, enum ng_life> lives = board.lives();
    EXPECT_EQ(lives.count(pid), 0u);
    EXPECT_EQ(lives.count(died_pid), 1u) << "whose end nobody explains is still shown";
    EXPECT_EQ(board.ended(), 1u);
}

TEST_F(LocalLife, StoppedAndSilentProcessesAreFrozen)
{
    Peer stopped(folder.path());
    Peer silent(
        folder.path(),
        [](struct ng_box *box) {
            __atomic_store_n((int64_t *)&box->header->heartbeat_mono_ns,
                             ng_clock_mono_ns() - 30 * NG_S, __ATOMIC_SEQ_CST);
            return 0;
        },
        2);

    board.wait(0);
    EXPECT_EQ(board.lives()[stopped.pid()], NG_LIFE_RUNNING);
    EXPECT_EQ(board.lives()[silent.pid()], NG_LIFE_STOPPED);
    stopped.stop();
    EXPECT_EQ(board.lives()[stopped.pid()], NG_LIFE_STOPPED);
    kill(stopped.pid(), SIGCONT);
    EXPECT_EQ(waitpid(stopped.pid(), nullptr, WCONTINUED), stopped.pid());
    EXPECT_EQ(board.lives()[stopped.pid()], NG_LIFE_RUNNING);
    EXPECT_EQ(board.ended(), 0u);
}

TEST_F(LocalLife, InAnotherPidNamespaceTheLockTellsOfADeath)
{
    struct ng_box_header mine = {.pid = own.box.header->pid,
                                 .start_ticks = own.box.header->start_ticks};
    /* It even has our own numbers: they mean nothing there. */
    Peer peer(folder.path(), [mine](struct ng_box *box) {
        box->header->pid_namespace++;
        box->header->pid = mine.pid;
        box->header->start_ticks = mine.start_ticks;
        return 0;
    });
    struct ng_view view;
    auto look = [&] {
        ng_view_init(&view);
        EXPECT_EQ(board.board->ops->view(board.board, &view), 0);
        int found = -1;
        uint32_t selves = 0;
        for (uint32_t i = 0; i < view.process_count; i++) {
            selves += view.processes[i].self;
            if (!view.processes[i].self)
                found = (int)view.processes[i].life;
        }
        EXPECT_EQ(view.process_count, 2u);
        EXPECT_EQ(selves, 1u) << "which of the two are we";
        ng_view_fini(&view);
        return found;
    };

    board.wait(0);
    EXPECT_EQ(look(), (int)NG_LIFE_RUNNING);
    EXPECT_EQ(board.ended(), 0u);
    peer.kill_unreaped();
    EXPECT_TRUE(death_is_told(&board));
    EXPECT_EQ(look(), (int)NG_LIFE_DEAD);
}

TEST_F(LocalLife, AReadableFileAtAReusedDescriptorNumberIsNoDeath)
{
    Peer peer(folder.path());
    int fds[2];
    char byte = 'p';

    board.wait(0);
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    ASSERT_EQ(write(fds[1], &byte, 1), 1);
    int number = replace_pid_descriptor(before, fds[0]);
    EXPECT_EQ(board.wait(0) & NG_BOARD_DEATH, 0u);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_RUNNING);
    EXPECT_EQ(board.ended(), 0u);
    peer.kill_unreaped();
    EXPECT_TRUE(death_is_told(&board));
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_DEAD);
    byte = 0;
    EXPECT_EQ(read(number, &byte, 1), 1) << "the program's file is still there, and unread";
    EXPECT_EQ(byte, 'p');
    close(number);
    close(fds[0]);
    close(fds[1]);
}

TEST_F(LocalLife, ASilentFileAtAReusedDescriptorNumberHidesNoDeath)
{
    Peer peer(folder.path());
    int fds[2];

    board.wait(0);
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    int number = replace_pid_descriptor(before, fds[0]);
    board.wait(0);
    peer.kill_unreaped();
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_DEAD);
    EXPECT_TRUE(death_is_told(&board));
    close(number);
    close(fds[0]);
    close(fds[1]);
}

TEST_F(LocalLife, ClosedDescriptorsAreMissedByNobody)
{
    Peer peer(folder.path());

    board.wait(0);
    for (int fd : pid_descriptors())
        if (!before.count(fd))
            close(fd);
    ng_descriptor_close(&board.kick);
    EXPECT_EQ(board.wait(0) & NG_BOARD_DEATH, 0u);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_RUNNING);
    peer.kill_unreaped();
    EXPECT_TRUE(death_is_told(&board));
}

/* Descriptors of this process for the black box of another. */
static std::vector<int> box_descriptors(int pid)
{
    std::vector<int> found;
    char link[PATH_MAX];

    for (int fd = 3; fd < 1024; fd++) {
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        ssize_t length = readlink(path.c_str(), link, sizeof(link) - 1);
        link[length > 0 ? length : 0] = '\0';
        if (strstr(link, ("/" NG_BOX_PREFIX + std::to_string(pid) + "-").c_str()))
            found.push_back(fd);
    }
    return found;
}

static std::string box_of(const Folder &folder, int pid)
{
    for (const std::string &name : folder.names())
        if (name.rfind(NG_BOX_PREFIX + std::to_string(pid) + "-", 0) == 0)
            return folder / name;
    return "";
}

TEST_F(LocalLife, ABoxWhoseDescriptorTheProgramClosedIsReadOn)
{
    Peer peer(folder.path());
    uint32_t left = NG_BOX_EXITED;

    board.wait(0);
    std::vector<int> fds = box_descriptors(peer.pid());
    ASSERT_EQ(fds.size(), 1u);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC),
        file = open(box_of(folder, peer.pid()).c_str(), O_WRONLY);
    ASSERT_EQ(dup2(null, fds[0]), fds[0]);
    EXPECT_EQ(board.wait(0) & NG_BOARD_DEATH, 0u);
    ASSERT_EQ(pwrite(file, &left, sizeof(left), offsetof(struct ng_box_header, life)),
              (ssize_t)sizeof(left));
    EXPECT_TRUE(board.wait(0) & NG_BOARD_DEATH);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_EXITED);
    EXPECT_EQ(fcntl(fds[0], F_GETFD), 0) << "the program's file is left alone";
    close(fds[0]);
    close(file);
    close(null);
}

/* What it said before is known, and its end is told of as any other's. */
TEST_F(LocalLife, ABoxThatIsCutOffEndsNoNeighbour)
{
    Peer peer(folder.path(), [](struct ng_box *box) {
        box->groups[0].id = 0x77;
        box->groups[0].nranks = 2;
        box->groups[0].group_rank = 1;
        box->groups[0].state = NG_GROUP_READY;
        box->header->group_used = 1;
        return 0;
    });
    auto members = [&] {
        OwnView view;
        EXPECT_EQ(board.board->ops->view(board.board, &view), 0);
        uint32_t count = view.member_count, notes = view.note_count;
        return std::pair{count, notes};
    };

    board.wait(0);
    EXPECT_EQ(members(), (std::pair{1u, 0u}));
    ASSERT_EQ(truncate(box_of(folder, peer.pid()).c_str(), 0), 0);
    EXPECT_EQ(board.wait(0) & NG_BOARD_DEATH, 0u);
    EXPECT_EQ(members(), (std::pair{1u, 1u})) << "with a word about it";
    peer.kill_unreaped();
    EXPECT_TRUE(death_is_told(&board));
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_DEAD);
    EXPECT_EQ(members(), (std::pair{1u, 1u}));
}

TEST_F(LocalLife, ASilentBoxThatIsCutOffIsNoSignOfAFrozenProcess)
{
    Peer peer(folder.path(), [](struct ng_box *box) {
        box->header->heartbeat_mono_ns = ng_clock_mono_ns() - 10 * NG_S;
        return 0;
    });

    board.wait(0);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_STOPPED);
    ASSERT_EQ(truncate(box_of(folder, peer.pid()).c_str(), 0), 0);
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_RUNNING)
        << "it cannot say any more that it goes on";
    peer.stop();
    EXPECT_EQ(board.lives()[peer.pid()], NG_LIFE_STOPPED) << "the kernel says so";
}

/* Programs that lock themselves in lower the limit to nothing once they have all they need. */
TEST_F(LocalLife, WithoutDescriptorsTheWaitNeitherSpinsNorHangs)
{
    Peer peer(folder.path());

    EXPECT_EQ(in_child([&] {
                  OwnBox mine(folder.path(), 3);
                  Board board(folder.path(), &mine.box);
                  struct rlimit none = {0, 0};
                  struct timespec used;
                  int waits = 0;
                  board.wait(0);
                  setrlimit(RLIMIT_NOFILE, &none);
                  for (int64_t until = ng_clock_mono_ns() + NG_S; ng_clock_mono_ns() < until;
                       waits++)
                      if (board.wait(1000) & NG_BOARD_DEATH)
                          return 1; /* without a pidfd nothing is known, which is no death */
                  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
                  /* At a walking pace, ten waits. A spinning one would come round thousands of
                   * times. */
                  return waits <= 50 && used.tv_sec == 0 ? 0 : 2;
              }),
              0);
}

TEST_F(LocalLife, AKickEndsTheWaitAndIsDrained)
{
    uint64_t one = 1;

    board.wait(0);
    ASSERT_EQ(write(board.kick.fd, &one, sizeof(one)), (ssize_t)sizeof(one));
    EXPECT_EQ(board.wait(30000), NG_BOARD_KICK);
    EXPECT_EQ(board.wait(0), 0u);
}

TEST_F(LocalLife, OnlyTheLivingOweADump)
{
    auto dumped = [](uint64_t epoch) {
        return [epoch](struct ng_box *box) {
            __atomic_store_n((uint64_t *)&box->header->dump_epoch, epoch, __ATOMIC_SEQ_CST);
            return 0;
        };
    };
    Peer done(folder.path(), dumped(4)), earlier(folder.path(), dumped(3), 2);
    Peer frozen(folder.path(), {}, 3), dead(folder.path(), {}, 4);
    Peer leaving(
        folder.path(),
        [](struct ng_box *box) {
            __atomic_store_n((uint32_t *)&box->header->life, (uint32_t)NG_BOX_EXITED,
                             __ATOMIC_SEQ_CST);
            return 0;
        },
        5);

    board.wait(0);
    EXPECT_EQ(board.dumps_missing(4), 3u);
    frozen.stop();
    dead.kill_unreaped();
    EXPECT_EQ(board.dumps_missing(4), 1u);
    EXPECT_EQ(board.dumps_missing(3), 0u);
    EXPECT_EQ(board.dumps_missing(5), 2u);
}
