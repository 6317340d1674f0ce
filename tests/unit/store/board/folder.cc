/*
 * The local board's folder: what it removes, what it never touches, and what it makes of rubbish.
 */
#include "tests/unit/store/board/peer.h"

namespace
{

void make_old(const std::string &path)
{
    struct timespec times[2] = {{.tv_sec = time(nullptr) - 7200, .tv_nsec = 0},
                                {.tv_sec = time(nullptr) - 7200, .tv_nsec = 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
}

bool exists(const std::string &path)
{
    struct stat status;
    return lstat(path.c_str(), &status) == 0;
}

/* A folder where it is put, gone with its known files at the end. */
class Place : NotCopied
{
  public:
    explicit Place(const std::string &path) : path_(path)
    {
        EXPECT_EQ(ng_paths_make(path.c_str()), 0) << path;
    }
    ~Place()
    {
        ng_paths_remove_board(path_.c_str());
        unlink((path_ + "/thesis.tex").c_str());
        rmdir(path_.c_str());
    }
    const std::string &path() const
    {
        return path_;
    }

  private:
    std::string path_;
};

std::string default_place(const char *job)
{
    char path[PATH_MAX];
    std::string name = "test-board-" + std::to_string(getpid()) + "-" + job;
    ng_paths_default_dir(name.c_str(), path, sizeof(path));
    return path;
}

/* The box of a process that is no more. */
void leave_dead_box(const std::string &folder)
{
    Peer peer(folder);
    peer.kill_and_reap();
}

} // namespace

TEST(LocalFolder, TheLastToLeaveTidiesUpWhereNothingHappened)
{
    Folder folder;
    Place place(folder / "job");
    OwnBox own(place.path());
    Board board(place.path(), &own.box);

    leave_dead_box(place.path());
    board.wait(0);
    board.leave();
    EXPECT_FALSE(exists(place.path()));
}

TEST(LocalFolder, WhileOthersTakePartNothingIsRemoved)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    Peer peer(folder.path());

    board.leave();
    EXPECT_EQ(folder.names().size(), 2u);
    peer.stop(); /* frozen is not gone */
    board.leave();
    EXPECT_EQ(folder.names().size(), 2u);
    peer.kill_unreaped();
    board.leave();
    EXPECT_FALSE(exists(folder.path()));
}

TEST(LocalFolder, WhatLedToAnIncidentStays)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    struct ng_incident got = {};

    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got), 0);
    board.leave();
    EXPECT_EQ(folder.names().size(), 2u);
}

TEST(LocalFolder, ForeignFilesSurviveTheLastToLeave)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    const std::vector<std::string> foreign = {".bashrc", "boxes", "data.csv", "incidents.txt"};

    for (const std::string &name : foreign)
        write_whole_file(folder / name, "somebody's");
    ASSERT_EQ(mkdir((folder / "sub").c_str(), 0700), 0);
    board.wait(0);
    board.leave();
    std::vector<std::string> expected = foreign;
    expected.push_back("sub");
    EXPECT_EQ(folder.names(), expected);
    EXPECT_EQ(read_whole_file(folder / "data.csv"), "somebody's");
}

/* The guard's names are box-PID-TICKS and incident-N; a user's may begin alike. */
TEST(LocalFolder, ForeignFilesWhoseNamesBeginLikeOursSurviveToo)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    const std::vector<std::string> foreign = {".box-office.swp", "box-2024.csv", "box-plot.png",
                                              "incident-report.txt"};

    for (const std::string &name : foreign)
        write_whole_file(folder / name, "somebody's");
    board.wait(0);
    board.leave();
    EXPECT_EQ(folder.names(), foreign);
}

TEST(LocalFolder, AbandonedJobsAreSweptFromOurOwnPlaceAndNothingElseIs)
{
    Place own_place(default_place("own")), dead(default_place("dead")),
        living(default_place("living")), recent(default_place("recent")),
        foreign(default_place("foreign"));

    leave_dead_box(dead.path());
    leave_dead_box(recent.path());
    leave_dead_box(foreign.path());
    write_whole_file(foreign.path() + "/thesis.tex", "somebody's");
    Peer peer(living.path());
    for (const Place *place : {&dead, &living, &foreign})
        make_old(place->path());

    OwnBox own(own_place.path());
    Board board(own_place.path(), &own.box);
    board.wait(0);
    EXPECT_FALSE(exists(dead.path()));
    EXPECT_TRUE(exists(recent.path()));
    EXPECT_TRUE(exists(living.path()));
    EXPECT_EQ(read_whole_file(foreign.path() + "/thesis.tex"), "somebody's");
    EXPECT_EQ(board.lives().size(), 1u);

    /* Where our own job left, the others' folders are as they were. */
    board.leave();
    EXPECT_FALSE(exists(own_place.path()));
    EXPECT_TRUE(exists(living.path()));
}

TEST(LocalFolder, FoldersBesideOneThatTheUserNamedAreNeverSwept)
{
    Folder folder;
    Place parent(folder / "ncclguard-experiments");
    Place run(parent.path() + "/run1"), dataset(parent.path() + "/dataset"),
        old_run(parent.path() + "/run0");

    write_whole_file(dataset.path() + "/thesis.tex", "labels");
    leave_dead_box(old_run.path());
    make_old(dataset.path());
    make_old(old_run.path());
    OwnBox own(run.path());
    Board board(run.path(), &own.box);
    board.wait(0);
    board.leave();
    EXPECT_FALSE(exists(run.path()));
    EXPECT_EQ(read_whole_file(dataset.path() + "/thesis.tex"), "labels");
    EXPECT_TRUE(exists(old_run.path()));
}

TEST(LocalFolder, BoxesOfAnotherBootOrOfLongAgoAreRemoved)
{
    Folder folder;
    Peer other_boot(folder.path(), [](struct ng_box *box) {
        box->header->boot_id[0] = 'X';
        return 0;
    });
    Peer long_ago(
        folder.path(),
        [](struct ng_box *box) {
            __atomic_store_n((int64_t *)&box->header->heartbeat_mono_ns,
                             ng_clock_mono_ns() - 3600 * NG_S, __ATOMIC_SEQ_CST);
            return 0;
        },
        2);
    long_ago.kill_and_reap();
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);

    board.wait(0);
    EXPECT_EQ(folder.names().size(), 1u);
    EXPECT_EQ(board.lives().size(), 1u);
    EXPECT_EQ(board.ended(), 0u);
}

TEST(LocalFolder, RubbishWithTheNameOfABoxIsPassedOver)
{
    Folder folder;
    OwnBox own(folder.path());
    Board board(folder.path(), &own.box);
    std::string whole = read_whole_file(folder / folder.names()[0]);

    write_whole_file(folder / "box-1-1", "");
    write_whole_file(folder / "box-1-2", whole.substr(0, 5000));
    write_whole_file(folder / "box-1-3", std::string(10000, 'x'));
    write_whole_file(folder / ("box-" + std::string(200, '9')), whole);
    ASSERT_EQ(mkdir((folder / "box-1-4").c_str(), 0700), 0);
    ASSERT_EQ(mkfifo((folder / "box-1-5").c_str(), 0600), 0);
    board.wait(0);
    std::map<int, enum ng_life> lives = board.lives();
    EXPECT_EQ(lives.size(), 1u);
    EXPECT_EQ(lives[getpid()], NG_LIFE_RUNNING);
}

TEST(LocalFolder, AFolderThatVanishesLeavesUsOurselves)
{
    Folder folder;
    Place place(folder / "job");
    OwnBox own(place.path());
    Board board(place.path(), &own.box);
    Peer peer(place.path());
    struct ng_incident got = {};

    board.wait(0);
    ng_paths_remove_board(place.path().c_str());
    ASSERT_FALSE(exists(place.path()));
    for (int i = 0; i < 5; i++)
        board.wait(0); /* the news of the removal */
    EXPECT_EQ(board.wait(50), 0u) << "and then there is peace";
    std::map<int, enum ng_life> lives = board.lives();
    EXPECT_EQ(lives[getpid()], NG_LIFE_RUNNING);
    EXPECT_EQ(lives[peer.pid()], NG_LIFE_RUNNING) << "what is open stays";
    EXPECT_EQ(board.next(0, &got), -ENOENT);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 1), &got), -ENOENT);
    peer.kill_unreaped();
    EXPECT_EQ(board.wait(30000), NG_BOARD_DEATH);
    board.leave();
}

TEST(LocalFolder, ANameThatIsTooLongIsRefused)
{
    OwnBox own("/nonexistent");
    struct ng_board *board = nullptr;
    EXPECT_EQ(ng_local_open(("/" + std::string(PATH_MAX, 'x')).c_str(), &own.box, &board),
              -ENAMETOOLONG);
    EXPECT_EQ(board, nullptr);
}

TEST(LocalCollect, ReadsEveryBoxAndNotesWhatIsNone)
{
    Folder folder;
    Peer alive(folder.path()), dead(folder.path(), {}, 2);
    OwnView view;

    dead.kill_unreaped();
    write_whole_file(folder / "box-1-1", std::string(10000, 'x'));
    std::string name = folder.names().back();
    write_whole_file(folder / "box-9-9", read_whole_file(folder / name).substr(0, 8192));
    write_whole_file(folder / "notes.txt", "somebody's");
    EXPECT_EQ(ng_local_collect(folder.path().c_str(), 0, &view), 2);
    ASSERT_EQ(view.process_count, 2u);
    for (uint32_t i = 0; i < 2; i++) {
        bool lives = view.processes[i].pid == alive.pid();
        EXPECT_EQ(view.processes[i].life, lives ? NG_LIFE_RUNNING : NG_LIFE_DEAD);
        EXPECT_EQ(view.processes[i].rank, lives ? 1 : 2);
        EXPECT_FALSE(view.processes[i].self);
    }
    std::set<std::string> notes(view.notes, view.notes + view.note_count);
    EXPECT_EQ(notes,
              (std::set<std::string>{"box-1-1: not a black box", "box-9-9: damaged or cut off"}));
    EXPECT_EQ(folder.names().size(), 5u) << "a reader removes nothing";
}

/* However long it takes to read them: else those that were read first would have ended first. */
TEST(LocalCollect, BoxesAreAllOfOneMoment)
{
    Folder folder;
    OwnBox own(folder.path());
    std::string mine = folder / folder.names()[0], copy;
    struct ng_view view;

    own.box.header->life = NG_BOX_EXITED;
    own.box.header->life_mono_ns = ng_clock_mono_ns() - 20 * NG_S;
    copy = read_whole_file(mine);
    for (int i = 1; i <= 32; i++) {
        ((struct ng_box_header *)&copy[0])->pid =
            5000000 + i; /* which no process of this machine has */
        write_whole_file(folder / (NG_BOX_PREFIX + std::to_string(5000000 + i) + "-1"), copy);
    }
    unlink(mine.c_str());
    auto look = [&](const char *by) {
        ASSERT_EQ(view.process_count, 32u) << by;
        for (uint32_t i = 1; i < 32; i++)
            EXPECT_EQ(view.processes[i].life_age_ns, view.processes[0].life_age_ns) << by;
        EXPECT_GE(view.processes[0].life_age_ns, 20 * NG_S) << by;
        ng_view_fini(&view);
    };
    ng_view_init(&view);
    EXPECT_EQ(ng_local_collect(folder.path().c_str(), 0, &view), 32);
    look("tools");
    OwnBox nobody("/nonexistent");
    Board board(folder.path(), &nobody.box);
    board.wait(0);
    ng_view_init(&view);
    ASSERT_EQ(board.board->ops->view(board.board, &view), 0);
    look("the board");
}

TEST(LocalCollect, NoFolderIsAnError)
{
    OwnView view;
    EXPECT_EQ(ng_local_collect("/nonexistent/folder", 0, &view), -ENOENT);
}
