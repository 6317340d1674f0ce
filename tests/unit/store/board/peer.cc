/*
 * Forked ranks for tests of boards.
 */
#include "tests/unit/store/board/peer.h"

#include <sys/eventfd.h>

Board::Board(const std::string &folder, const struct ng_box *box)
{
    EXPECT_EQ(ng_local_open(folder.c_str(), box, &board), 0);
    kick = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    /* Reachable for ever, as in the guard. */
    static auto *all = new std::vector<struct ng_board *>;
    all->push_back(board);
}

Board::~Board()
{
    /* A user may have 128 instances of inotify, and the tests beside want some, too. */
    board->ops->abandon(board);
    ng_descriptor_close(&kick);
}

std::map<int, enum ng_life> Board::lives()
{
    std::map<int, enum ng_life> found;
    OwnView view;

    EXPECT_EQ(board->ops->view(board, &view), 0);
    for (uint32_t i = 0; i < view.process_count; i++)
        found[view.processes[i].pid] = view.processes[i].life;
    EXPECT_EQ(found.size(), view.process_count) << "a process is shown twice";
    return found;
}

Peer::Peer(const std::string &folder, const Deed &deed, int rank, uint64_t run)
{
    int ready[2], go[2];
    char byte;

    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0) {
        ADD_FAILURE() << "pipe2: " << strerror(errno);
        return;
    }
    pid_ = fork();
    if (pid_ == 0) {
        alarm(60);
        close(ready[0]);
        close(go[1]);
        OwnBox own(folder, rank, run);
        if (own.error)
            _exit(101);
        int status = deed ? deed(&own.box) : 0;
        if (status)
            _exit(status);
        if (write(ready[1], "x", 1) != 1)
            _exit(102);
        while (read(go[0], &byte, 1) < 0 && errno == EINTR)
            ;
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    go_ = go[1];
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the peer did not come up";
    close(ready[0]);
}

Peer::~Peer()
{
    if (pid_ > 0)
        kill_and_reap();
    if (go_ >= 0)
        close(go_);
}

void Peer::kill_unreaped()
{
    siginfo_t info;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitid(P_PID, (id_t)pid_, &info, WEXITED | WNOWAIT), 0);
}

void Peer::kill_and_reap()
{
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

void Peer::stop()
{
    kill(pid_, SIGSTOP);
    EXPECT_EQ(waitpid(pid_, nullptr, WUNTRACED), pid_);
}

int Peer::finish()
{
    int status = -1;
    close(go_);
    go_ = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct ng_incident stall(enum ng_incident_level level, uint64_t group_id, uint64_t seq,
                         int64_t since_mono_ns)
{
    struct ng_incident wanted = {.level = level,
                                 .group_id = group_id,
                                 .seq = seq,
                                 .op = NG_OP_AllReduce,
                                 .claimant_rank = 1,
                                 .since_mono_ns = since_mono_ns};
    return wanted;
}

Deed claims(const std::string &folder, const struct ng_incident &wanted, bool builder)
{
    return [=](struct ng_box *box) {
        struct ng_incident mine;
        Board board(folder, box);
        if (board.claim(wanted, &mine) != 0)
            return 10;
        mine.state = NG_INCIDENT_JUDGED;
        snprintf(mine.line, sizeof(mine.line), "the verdict");
        return builder && board.publish(mine) != 0 ? 11 : 0;
    };
}
