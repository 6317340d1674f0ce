/*
 * Processes that change under the board: they become other programs, lose their first thread, are
 * forked, may not make certain system calls, or are stuck with malloc's lock.
 */
#include "tests/unit/store/board/peer.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* A rank that was silent for a while and is `sleep` now; returns its pid. */
static pid_t rank_that_became_sleep(const std::string &folder)
{
    int gone[2];
    char byte;

    if (pipe2(gone, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        auto *own = new OwnBox(folder, 1);
        if (own->error)
            _exit(101);
        __atomic_store_n((int64_t *)&own->box.header->heartbeat_mono_ns,
                         ng_clock_mono_ns() - 3 * NG_S, __ATOMIC_SEQ_CST);
        execlp("sleep", "sleep", "60", (char *)nullptr);
        _exit(102);
    }
    close(gone[1]);
    /* The other end closes with the exec. */
    EXPECT_EQ(read(gone[0], &byte, 1), 0);
    close(gone[0]);
    return pid;
}

static std::map<int, int> exit_statuses(Board *board)
{
    std::map<int, int> found;
    OwnView view;

    EXPECT_EQ(board->board->ops->view(board->board, &view), 0);
    for (uint32_t i = 0; i < view.process_count; i++)
        if (!view.processes[i].self)
            found[view.processes[i].pid] = view.processes[i].exit_status;
    return found;
}

/* From now on these system calls fail with EPERM in this process. */
static void forbid_calls(const std::vector<long> &calls)
{
    std::vector<struct sock_filter> program = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (long call : calls) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog filter = {(unsigned short)program.size(), program.data()};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

const std::vector<long> links_and_room = {
    SYS_linkat,
    SYS_fallocate,
#ifdef SYS_link
    SYS_link,
#endif
};

TEST(LocalPrograms, WhoBecameAnotherProgramHasLeftAndIsCountedOnce)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    pid_t pid = rank_that_became_sleep(folder.path());
    ASSERT_GT(pid, 0);

    EXPECT_TRUE(board.wait(0) & NG_BOARD_DEATH);
    EXPECT_EQ(board.lives()[pid], NG_LIFE_EXITED);
    EXPECT_EQ(exit_statuses(&board)[pid], NG_EXIT_STATUS_EXEC);
    EXPECT_EQ(board.ended(), 1u);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(board.wait(0), 0u);
    EXPECT_EQ(board.ended(), 1u);
    EXPECT_EQ(board.lives()[pid], NG_LIFE_EXITED) << "what it became has ended, that is all";
}

TEST(LocalPrograms, AProgramThatAProcessBecameHasABoxOfItsOwn)
{
    Folder folder;
    OwnBox before(folder.path()), now(folder.path());
    ASSERT_EQ(before.error, 0);
    ASSERT_EQ(now.error, 0);
    EXPECT_STRNE(before.box.name, now.box.name);
    Board board(folder.path(), &now.box);

    board.wait(0);
    EXPECT_EQ(exit_statuses(&board)[getpid()], NG_EXIT_STATUS_EXEC);
    EXPECT_EQ(before.box.header->life, (uint32_t)NG_BOX_EXECED) << "told to those who look later";
    EXPECT_EQ(now.box.header->life, (uint32_t)NG_BOX_RUNNING);

    Peer neighbour(folder.path());
    EXPECT_EQ(neighbour.finish(), 0);
}

TEST(LocalPrograms, AProcessWhoseFirstThreadEndedLives)
{
    int ready[2];
    char byte, state = '?';
    uint64_t ticks;

    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static int ends[2];
        alarm(60);
        ends[1] = ready[1];
        pthread_t thread;
        pthread_create(
            &thread, nullptr,
            [](void *) -> void * {
                /* Until the first thread is a zombie. */
                while (!ng_proc_first_thread_ended())
                    sched_yield();
                if (write(ends[1], "x", 1) != 1)
                    _exit(1);
                for (;;)
                    pause();
            },
            nullptr);
        /* pthread_exit unwinds, which the test framework takes for an exception. */
        syscall(SYS_exit, 0);
    }
    close(ready[1]);
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(ng_proc_stat(pid, &state, &ticks), 0);
    EXPECT_NE(state, 'Z');
    kill(pid, SIGKILL);
    siginfo_t info;
    EXPECT_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(ng_proc_stat(pid, &state, &ticks), 0);
    EXPECT_EQ(state, 'Z') << "now it is one";
    waitpid(pid, nullptr, 0);
    close(ready[0]);
}

TEST(LocalPrograms, AForkedChildKeepsNoDescriptorOfTheBoard)
{
    EXPECT_EQ(in_child([] {
                  Folder folder;
                  OwnBox own(folder.path());
                  Peer peer(folder.path());
                  auto descriptors = [] {
                      int count = 0;
                      for (int fd = 3; fd < 1024; fd++)
                          count += fcntl(fd, F_GETFD) >= 0;
                      return count;
                  };
                  Board board(folder.path(), &own.box);
                  int before = descriptors();
                  board.wait(0);
                  if (descriptors() <= before)
                      return 1;
                  return in_child([&] {
                      board.board->ops->abandon(board.board);
                      return descriptors() == before ? 0 : 2;
                  });
              }),
              0);
}

TEST(LocalPrograms, WithoutHardLinksAndReservationsABoardWorks)
{
    EXPECT_EQ(in_child([] {
                  Folder folder;
                  forbid_calls(links_and_room);
                  OwnBox own(folder.path());
                  if (own.error)
                      return 1;
                  Board board(folder.path(), &own.box);
                  Peer peer(folder.path(),
                            claims(folder.path(), stall(NG_INCIDENT_TIMEOUT, 7, 3), false));
                  struct ng_incident there;
                  board.wait(0);
                  if (board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 3), &there) != -EEXIST)
                      return 2;
                  if (there.claimant_pid != peer.pid())
                      return 3;
                  peer.kill_unreaped();
                  board.wait(0);
                  return board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 3), &there) == 0 ? 0 : 4;
              }),
              0);
}

TEST(LocalPrograms, NothingNeedsMallocOnceTheBoardIsOpen)
{
    EXPECT_EQ(in_child([] {
                  Folder folder;
                  OwnBox own(folder.path());
                  std::vector<std::unique_ptr<Peer>> peers;
                  for (int rank = 1; rank <= 20; rank++)
                      peers.push_back(std::make_unique<Peer>(folder.path(), Deed(), rank));
                  Board board(folder.path(), &own.box);
                  struct ng_incident mine, next;
                  OwnView view;
                  forbid_malloc(true);
                  board.wait(0);
                  int error = board.board->ops->view(board.board, &view);
                  uint32_t count = view.process_count;
                  if (!error)
                      error = board.claim(stall(NG_INCIDENT_SUSPECT, 7, 3), &mine);
                  if (!error)
                      error = board.publish(mine);
                  if (!error)
                      error = board.next(0, &next);
                  board.dumps_missing(1);
                  board.leave();
                  forbid_malloc(false);
                  return error ? 1 : count == 21 ? 0 : 2;
              }),
              0);
}
