/*
 * Ranks that a verdict ends and that cannot end themselves: which of them their neighbours end, and
 * which not.
 */
#include "tests/unit/store/board/peer.h"

extern "C" {
#include "core/config/config.h"
#include "core/policy/neighbours.h"
}

namespace
{

const uint32_t LOG = NG_ON_TIMEOUT_LOG + 1, ABORT = NG_ON_TIMEOUT_ABORT + 1,
               TEARDOWN = NG_ON_TIMEOUT_TEARDOWN + 1, KILL = NG_ON_TIMEOUT_KILL + 1;

/* A rank whose deadlines lead to this at least. */
Deed lets(uint32_t mildest, uint32_t ending = 0, uint32_t takes_errors = 0)
{
    return [=](struct ng_box *box) {
        box->header->mildest_policy = mildest;
        box->header->ending_policy = ending;
        box->header->takes_errors = takes_errors;
        return 0;
    };
}

/* The signal that has ended it; 0: it lives. */
int end_of(const Peer &peer)
{
    siginfo_t info = {};

    EXPECT_EQ(waitid(P_PID, (id_t)peer.pid(), &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid ? info.si_status : 0;
}

/* Rank 2 of a job with a verdict, about to end. */
struct Neighbours : testing::Test {
    Neighbours() : own_(folder_.path(), 2), board_(folder_.path(), &own_.box)
    {
        own_.box.header->mildest_policy = own_.box.header->ending_policy = KILL;
    }
    /* Ends the neighbours that exist now. */
    void end(bool told = true)
    {
        board_.wait(0);
        int64_t before_ns = ng_clock_mono_ns();
        ng_neighbours_end(board_.board, &own_.box, before_ns, told);
        took_ns_ = ng_clock_mono_ns() - before_ns;
    }
    /* By SIGABRT, which it has a second for; who is not stopped has had two to end itself. */
    void expect_aborted(const Peer &peer, bool stopped)
    {
        bool over = took_ns_ >= (stopped ? NG_S : 3 * NG_S);
        EXPECT_EQ(end_of(peer), SIGABRT) << (over ? "late: it has got no processor" : "");
    }

    Folder folder_;
    OwnBox own_;
    Board board_;

    int64_t took_ns_ = 0;
};

} // namespace

TEST_F(Neighbours, EndOneThatIsStopped)
{
    Peer kill(folder_.path(), lets(KILL)), teardown(folder_.path(), lets(TEARDOWN), 3);

    kill.stop();
    teardown.stop();
    end();
    expect_aborted(kill, true);
    expect_aborted(teardown, true);
}

TEST_F(Neighbours, EndOneThatDoesNotEndItself)
{
    Peer peer(folder_.path(), lets(KILL));

    end();
    expect_aborted(peer, false);
}

TEST_F(Neighbours, EndOneThatBlocksTheSignal)
{
    Peer peer(folder_.path(), [](struct ng_box *box) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        return lets(KILL)(box);
    });

    peer.stop();
    end();
    EXPECT_EQ(end_of(peer), SIGKILL);
}

/* By the ceiling of its own, or as far as is known. */
TEST_F(Neighbours, LeaveOneWhoseOwnPolicyIsMilder)
{
    Peer log(folder_.path(), lets(LOG)), abort(folder_.path(), lets(ABORT), 3),
        unknown(folder_.path(), lets(0), 4);
    Peer running(folder_.path(), lets(LOG), 5), ended(folder_.path(), lets(KILL), 6);

    log.stop();
    abort.stop();
    unknown.stop();
    end();
    expect_aborted(ended, false);
    EXPECT_EQ(end_of(log), 0);
    EXPECT_EQ(end_of(abort), 0);
    EXPECT_EQ(end_of(unknown), 0);
    EXPECT_EQ(end_of(running), 0);
}

TEST_F(Neighbours, LeaveOneThatCameAfterTheIncident)
{
    int64_t began_mono_ns = ng_clock_mono_ns();
    Peer later(folder_.path(), lets(KILL));

    later.stop();
    board_.wait(0);
    ng_neighbours_end(board_.board, &own_.box, began_mono_ns, true);
    EXPECT_EQ(end_of(later), 0);
}

/* Its own guard sees to it, or its program does. */
TEST_F(Neighbours, LeaveOneThatIsAboutToEnd)
{
    Peer ending(folder_.path(), lets(KILL, KILL), 3), takes(folder_.path(), lets(KILL, 0, 1), 4);
    Peer ended(folder_.path(), lets(KILL), 5), stopped(folder_.path(), lets(KILL, 0, 1), 6);

    stopped.stop();
    end();
    expect_aborted(ended, false);
    expect_aborted(stopped, true);
    EXPECT_EQ(end_of(ending), 0);
    EXPECT_EQ(end_of(takes), 0);
}

/* Of those that end, one stays until all have. */
TEST_F(Neighbours, DoNotWaitWhereOneBeforeThemDoes)
{
    Peer before(folder_.path(), lets(KILL, KILL), 1), runs(folder_.path(), lets(KILL), 3);

    end();
    EXPECT_EQ(end_of(runs), 0);
}

/* Who runs may be about to find the verdict, of which those that are stopped are part. */
TEST_F(Neighbours, LeaveThoseThatAreNotTold)
{
    Peer runs(folder_.path(), lets(KILL), 3), stopped(folder_.path(), lets(KILL), 4);

    stopped.stop();
    end(false);
    EXPECT_EQ(end_of(runs), 0);
    EXPECT_EQ(end_of(stopped), 0);
}

TEST_F(Neighbours, EndOneThatIsStoppedThoughNobodyIsTold)
{
    Peer ending(folder_.path(), lets(KILL, KILL), 3), stopped(folder_.path(), lets(KILL), 4);

    stopped.stop();
    end(false);
    expect_aborted(stopped, true);
    EXPECT_EQ(end_of(ending), 0);
}

/* A rank that cannot read what is on the board any more hears of a verdict by this alone. */
TEST_F(Neighbours, AreKnownToHaveBeenEndedByAVerdict)
{
    int64_t since = 0, now = ng_clock_mono_ns();
    Peer killed(folder_.path(), lets(KILL), 3);
    Peer ended(folder_.path(), [=](struct ng_box *box) {
        box->header->ending_mono_ns = now;
        return lets(KILL, KILL)(box);
    });

    board_.wait(0);
    killed.kill_and_reap();
    EXPECT_NE(board_.wait(20000) & NG_BOARD_DEATH, 0u);
    EXPECT_EQ(board_.board->ops->given_up(board_.board, &since), 0u);
    ended.kill_and_reap();
    EXPECT_NE(board_.wait(20000) & NG_BOARD_DEATH, 0u);
    EXPECT_EQ(board_.board->ops->given_up(board_.board, &since), KILL);
    EXPECT_EQ(since, now);
}

/* As after setuid or chroot. */
TEST_F(Neighbours, KnowWhoCannotReadTheirFolderAndDoNotWaitForItsDump)
{
    Peer reads(folder_.path(), {}, 3), cut_off(folder_.path(), [](struct ng_box *box) {
        box->header->cut_off = 1;
        return 0;
    });

    board_.wait(0);
    EXPECT_EQ(board_.dumps_missing(1), 1u);
    EXPECT_EQ(own_.box.header->cut_off, 0u);
    Folder elsewhere;
    OwnBox own(elsewhere.path());
    Board board(elsewhere.path(), &own.box);
    std::filesystem::rename(elsewhere.path(), elsewhere.path() + ".away");
    board.wait(0);
    EXPECT_EQ(own.box.header->cut_off, 1u);
    std::filesystem::rename(elsewhere.path() + ".away", elsewhere.path());
}
