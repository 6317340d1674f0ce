/*
 * Which processes of a folder are one run: jobs of one name that are under way at the same time.
 */
#include "tests/unit/store/board/peer.h"

extern "C" {
#include "store/board/local_parts.h"
}

namespace
{

/* What a box says of its process. */
struct Process {
    int rank = -1, world_size = -1;
    uint64_t launch_run = 0;
    std::string run_id = {};
    std::vector<uint64_t> groups = {};
    bool gone = false;
    int nranks = 4, group_rank = 0;
};

/* Boxes and peers of some processes. */
class Runs
{
  public:
    explicit Runs(const std::vector<Process> &processes)
    {
        for (const Process &process : processes)
            add(process);
    }
    void add(const Process &process)
    {
        boxes_.push_back(std::make_unique<Content>());
        Content &box = *boxes_.back();
        struct ng_peer peer = {};
        box.header.rank = process.rank;
        box.header.world_size = process.world_size;
        box.header.launch_run = process.launch_run;
        snprintf(box.header.run_id, sizeof(box.header.run_id), "%s", process.run_id.c_str());
        peer.box.header = &box.header;
        peer.box.groups = box.groups;
        peer.box.group_capacity = 8;
        peer.pid = 100 + (int)peers_.size();
        peer.gone = process.gone;
        peer.linked = (uint32_t)peers_.size();
        peers_.push_back(peer);
        for (uint64_t id : process.groups)
            add_group(peers_.size() - 1, id, process.nranks, process.group_rank);
    }
    void add_group(size_t process, uint64_t id, int nranks = 4, int group_rank = 0)
    {
        Content &box = *boxes_[process];
        struct ng_box_group &group = box.groups[box.header.group_used++];
        group.id = id;
        group.nranks = nranks;
        group.group_rank = group_rank;
        group.state = NG_GROUP_CREATING;
    }
    void end_groups(size_t process)
    {
        for (struct ng_box_group &group : boxes_[process]->groups)
            group.state = NG_GROUP_FREE;
    }
    /* The first of each one's run. */
    std::vector<uint32_t> found()
    {
        std::vector<uint32_t> runs;
        ng_local_find_runs(peers_.data(), (uint32_t)peers_.size());
        for (const struct ng_peer &peer : peers_)
            runs.push_back(peer.run);
        return runs;
    }

    /* Of the first one's run. */
    std::string name()
    {
        char text[NG_BOARD_RUN_NAME_BYTES];
        found();
        struct ng_peers all = {peers_.data(), (uint32_t)peers_.size()};
        ng_local_name_run(&all, 0, text);
        return text;
    }

  private:
    struct Content {
        struct ng_box_header header = {};
        struct ng_box_group groups[8] = {};
    };
    std::vector<std::unique_ptr<Content>> boxes_;
    std::vector<struct ng_peer> peers_;
};

using Is = std::vector<uint32_t>;

Process launched(uint64_t run, int rank, const std::vector<uint64_t> &groups = {})
{
    Process process;
    process.rank = rank;
    process.world_size = 4;
    process.launch_run = run;
    process.groups = groups;
    return process;
}

} // namespace

TEST(LocalRuns, ALauncherTellsWhoBelongsTogetherBeforeAnyCommunicatorIsMade)
{
    EXPECT_EQ(Runs({launched(7, 0), launched(8, 0), launched(7, 1), launched(8, 1)}).found(),
              (Is{0, 1, 0, 1}));
}

TEST(LocalRuns, ACommunicatorInCommonIsOneRunWhateverLaunchersSay)
{
    EXPECT_EQ(
        Runs({launched(7, 0, {1}), launched(8, 1, {2, 1}), launched(9, 2, {2}), launched(9, 0)})
            .found(),
        (Is{0, 0, 0, 0}));
    EXPECT_EQ(
        Runs({launched(0, 0, {1}), launched(0, 0, {2}), launched(0, 1, {1}), launched(0, 1, {2})})
            .found(),
        (Is{0, 1, 0, 1}));
}

TEST(LocalRuns, WhoJoinsLaterConnectsTwoAndTheyStayOneRun)
{
    Runs runs({launched(0, 0, {1}), launched(0, 0, {2})});
    EXPECT_EQ(runs.found(), (Is{0, 1}));
    runs.add(launched(0, 1, {1, 2}));
    EXPECT_EQ(runs.found(), (Is{0, 0, 0}));
    for (size_t i = 0; i < 3; i++)
        runs.end_groups(i);
    EXPECT_EQ(runs.found(), (Is{0, 0, 0})) << "though their communicators are gone";
    Runs later({launched(7, 0, {1}), launched(8, 0, {2})});
    EXPECT_EQ(later.found(), (Is{0, 1}));
    later.add_group(1, 1);
    EXPECT_EQ(later.found(), (Is{0, 0}));
}

TEST(LocalRuns, RanksStartedByHandAreOneRunAsLongAsTheirNumbersFit)
{
    EXPECT_EQ(Runs({launched(0, 0, {1}), launched(0, 1, {1}), launched(0, 2)}).found(),
              (Is{0, 0, 0}))
        << "a rank that hangs before its first communicator";
    EXPECT_EQ(Runs({launched(0, 0, {1}), launched(0, 1, {2}), launched(0, 2, {1})}).found(),
              (Is{0, 0, 0}))
        << "a rank with a wrong unique id";
    EXPECT_EQ(Runs({launched(0, 0, {1}), launched(0, 1, {1}), launched(0, 1, {2}), launched(0, 2)})
                  .found(),
              (Is{0, 0, 2, 3}))
        << "two jobs: nobody knows whose rank 2 it is";
    Process alone = launched(0, 3);
    alone.world_size = 8;
    EXPECT_EQ(Runs({launched(0, 0), alone}).found(), (Is{0, 1})) << "of a job of another size";
    EXPECT_EQ(Runs({launched(7, 0), launched(0, 1)}).found(), (Is{0, 1}))
        << "of a launcher and by hand";
}

TEST(LocalRuns, WithoutNumbersThoseOfTheLargestGroupTell)
{
    Process first, second;
    first.groups = {1};
    second.groups = {2};
    EXPECT_EQ(Runs({first, second}).found(), (Is{0, 1})) << "both have its rank 0";
    second.group_rank = 1;
    EXPECT_EQ(Runs({first, second}).found(), (Is{0, 0})) << "its unique id is wrong";
    EXPECT_EQ(Runs({Process(), Process()}).found(), (Is{0, 1})) << "nothing in common";
    Runs threads({first, second});
    threads.add_group(1, 2, 4, 0);
    EXPECT_EQ(threads.found(), (Is{0, 1}))
        << "several devices each, whose threads come in any order";
}

TEST(LocalRuns, ProcessesUnderOneNcclguardRunAreOneRunWhereNoLauncherTellsMore)
{
    Process one, two, other;
    one.run_id = two.run_id = "run-1-2";
    other.run_id = "run-3-4";
    EXPECT_EQ(Runs({one, two, other}).found(), (Is{0, 0, 2}));
    one.launch_run = 7;
    two.launch_run = 8;
    EXPECT_EQ(Runs({one, two}).found(), (Is{0, 1})) << "a script that starts two jobs";
}

TEST(LocalRuns, LeftoversOfADeadRunAreNoneOfTheNextAndDoNotKeepItApart)
{
    Process dead = launched(0, 0, {9}), lost = launched(0, 2);
    dead.gone = lost.gone = true;
    EXPECT_EQ(Runs({dead, launched(0, 0, {1}), launched(0, 1, {2})}).found(), (Is{0, 1, 1}));
    EXPECT_EQ(Runs({launched(0, 0, {1}), lost}).found(), (Is{0, 0}))
        << "a rank that died before its first communicator";
}

TEST(LocalRuns, TheIncidentOfAnotherRunIsNotSeen)
{
    Folder folder;
    OwnBox own(folder.path(), 0, 7);
    Board board(folder.path(), &own.box);
    struct ng_incident incident;
    Peer other(folder.path(), claims(folder.path(), stall(NG_INCIDENT_TIMEOUT, 5, 1), true), 1, 8);

    board.wait(0);
    EXPECT_EQ(board.next(0, &incident), -ENOENT);
    EXPECT_EQ(board.lives().count(other.pid()), 0u);
    EXPECT_EQ(board.dumps_missing(1), 0u);
    /* The same again, and it is ours to claim, beside it. */
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 5, 1), &incident), 0);
    EXPECT_EQ(incident.epoch, 2u);
    incident.state = NG_INCIDENT_JUDGED;
    EXPECT_EQ(board.publish(incident), 0);
    EXPECT_EQ(board.get(1, &incident), -ENOENT);
    other.kill_and_reap();
    board.wait(0);
    EXPECT_EQ(board.ended(), 0u);
    Peer mine(folder.path(), claims(folder.path(), stall(NG_INCIDENT_SUSPECT, 6, 1), true), 1, 7);
    board.wait(0);
    ASSERT_EQ(board.next(2, &incident), 0);
    EXPECT_EQ(incident.group_id, 6u);
    mine.kill_and_reap();
    board.wait(0);
    EXPECT_EQ(board.ended(), 1u);
}

TEST(LocalRuns, AToolSeesEachRunAndItsOrderReachesThatOneAlone)
{
    Folder folder;
    OwnBox own(folder.path(), 0, 7);
    Board board(folder.path(), &own.box);
    Peer mine(folder.path(), {}, 1, 7), other(folder.path(), {}, 1, 8);
    struct ng_local_run runs[4];
    struct ng_incident incident;
    OwnView view;
    uint32_t living;

    ASSERT_EQ(ng_local_runs(folder.path().c_str(), runs, 4), 2);
    for (const struct ng_local_run &run : {runs[0], runs[1]}) {
        EXPECT_EQ(run.living, run.id == 7 ? 2u : 1u);
        EXPECT_EQ(run.processes, run.living);
        EXPECT_STREQ(run.job, "board");
    }
    EXPECT_EQ(ng_local_collect(folder.path().c_str(), 8, &view), 1);
    EXPECT_EQ(view.processes[0].pid, other.pid());
    EXPECT_EQ(ng_local_runs(folder.path().c_str(), runs, 1), 1) << "no more than there is room for";
    EXPECT_EQ(ng_local_runs("/nonexistent/folder", runs, 1), -ENOENT);

    struct ng_incident order = stall(RECORD_ABORT, 0, 0);
    board.wait(0);
    EXPECT_EQ(ng_local_leave(folder.path().c_str(), 8, &order, &living), 0);
    EXPECT_EQ(living, 1u);
    EXPECT_EQ(board.next(0, &incident), -ENOENT);
    EXPECT_EQ(ng_local_leave(folder.path().c_str(), 7, &order, &living), 0);
    EXPECT_EQ(living, 2u);
    ASSERT_EQ(board.next(0, &incident), 0);
    EXPECT_EQ(incident.epoch, 2u);
    EXPECT_EQ(ng_local_leave(folder.path().c_str(), 0, &order, &living), 0);
    EXPECT_EQ(living, 3u);
    EXPECT_EQ(board.next(2, &incident), 0) << "of all";
}

TEST(LocalRuns, BesideAnotherRunItsEvidenceHasAFolderOfItsOwn)
{
    Folder folder;
    OwnBox own(folder.path(), 0, 7);
    Board board(folder.path(), &own.box);
    char name[NG_BOARD_RUN_NAME_BYTES];
    Peer mine(folder.path(), {}, 1, 7);
    Peer elsewhere(
        folder.path(), [](struct ng_box *box) { return box->header->evidence_folder = 0, 0; }, 1,
        9);

    board.wait(0);
    EXPECT_EQ(board.board->ops->apart(board.board, name), -ENOENT) << "nobody else has the folder";
    Peer other(folder.path(), {}, 1, 8);
    board.wait(0);
    EXPECT_EQ(board.board->ops->apart(board.board, name), 0);
    EXPECT_STREQ(name, "run-0000000000000007");
    other.kill_and_reap();
    board.wait(0);
    EXPECT_EQ(board.board->ops->apart(board.board, name), 0) << "what it has left is to stay";
}

TEST(LocalRuns, TheFolderOfARunIsNamedAfterNcclguardRunAndAForeignNameIsNoPath)
{
    Process guarded = launched(7, 0);
    guarded.run_id = "run-12-345";
    EXPECT_EQ(Runs({guarded, launched(7, 1)}).name(), "run-12-345-0000000000000007");
    for (const char *bad : {"../../etc", "run-1/2", "run-x", "1-2", ""}) {
        Process process = launched(7, 0);
        process.run_id = bad;
        EXPECT_EQ(Runs({process}).name(), "run-0000000000000007") << bad;
    }
}
