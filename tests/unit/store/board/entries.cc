/*
 * Small data on the local board: put once, seen by all, and gone with its process.
 */
#include "tests/unit/store/board/peer.h"

namespace
{

const char *const words_of_launcher = "SLURM_STEP_ID=7\n";

int put(struct ng_board *board, const char *key, const std::string &data, int64_t keep_ns = 0)
{
    struct ng_board_entry entry = {.key = key,
                                   .data = data.data(),
                                   .bytes = data.size(),
                                   .keep_ns = keep_ns,
                                   .words = words_of_launcher};
    return board->ops->put(board, &entry);
}

/* What is there, or the error as text. */
std::string fetch(struct ng_board *board, const char *key)
{
    char data[NG_BOARD_VALUE_MAX];
    size_t bytes = 0;
    int error = board->ops->fetch(board, key, data, &bytes);
    if (error == -EXDEV)
        return "other words: " + std::string(data, bytes);
    return error ? strerror(-error) : std::string(data, bytes);
}

const std::string nothing = strerror(ENOENT);

/* Of "u.key", in the run that OwnBox is of. */
const char *const file_of_key = "entry-0000000000000001.u.key";

struct Entries : testing::Test {
    Entries() : own(folder.path()), board(folder.path(), &own.box)
    {
        board.wait(0);
    }
    Folder folder;
    OwnBox own;
    Board board;
};

/* Another process, which puts something and then does what the test wants. */
Deed putting(const std::string &folder, const char *key, const std::string &data,
             int64_t keep_ns = 0)
{
    return [=](struct ng_box *box) {
        Board board(folder, box);
        board.wait(0);
        return put(board.board, key, data, keep_ns) == 0 ? 0 : 1;
    };
}

} // namespace

TEST_F(Entries, AreSeenByOtherProcesses)
{
    std::string odd("\0\n\xff", 3), large(NG_BOARD_VALUE_MAX, 'x');
    Peer peer(folder.path(), [&](struct ng_box *box) {
        Board other(folder.path(), box);
        other.wait(0);
        return put(other.board, "u.a/b c%", odd) || put(other.board, "u.large", large) ||
               put(other.board, "u.empty", "");
    });
    board.wait(0);
    EXPECT_EQ(fetch(board.board, "u.a/b c%"), odd);
    EXPECT_EQ(fetch(board.board, "u.large"), large);
    EXPECT_EQ(fetch(board.board, "u.empty"), "");
    EXPECT_EQ(fetch(board.board, "u.a"), nothing);
}

/* Two jobs of one name that their launchers tell apart. */
TEST_F(Entries, OfAnotherRunAreNotSeen)
{
    OwnBox first(folder.path(), 0, 7), second(folder.path(), 0, 8), third(folder.path(), 1, 7);
    Board one(folder.path(), &first.box), two(folder.path(), &second.box),
        same(folder.path(), &third.box);
    for (Board *each : {&one, &two, &same})
        each->wait(0);
    EXPECT_EQ(put(one.board, "u.id", "of the first"), 0);
    EXPECT_EQ(fetch(two.board, "u.id"), nothing);
    EXPECT_EQ(put(two.board, "u.id", "of the second"), 0);
    EXPECT_EQ(fetch(one.board, "u.id"), "of the first");
    EXPECT_EQ(fetch(same.board, "u.id"), "of the first");
    uint64_t there = 0;
    EXPECT_EQ(put(one.board, "u.0", ""), 0);
    EXPECT_EQ(two.board->ops->have(two.board, "u.", 0, 1, &there), 0);
    EXPECT_EQ(there, 0u);
    two.board->ops->forget(two.board, "u.id");
    EXPECT_EQ(fetch(one.board, "u.id"), "of the first");
}

/* The key is of one communicator, and tells whose it is. */
TEST_F(Entries, WithALifetimeOfTheirOwnAreSeenWithOtherWordsOfALauncher)
{
    OwnBox first(folder.path(), 0, 7), second(folder.path(), 1, 8);
    Board one(folder.path(), &first.box), two(folder.path(), &second.box);
    uint64_t there = 0;
    one.wait(0);
    two.wait(0);
    EXPECT_EQ(put(one.board, "b.0", "kept", 60 * NG_S), 0);
    EXPECT_EQ(fetch(two.board, "b.0"), "kept");
    EXPECT_EQ(put(two.board, "b.0", "x", 60 * NG_S), -EEXIST);
    EXPECT_EQ(put(two.board, "b.1", "", 60 * NG_S), 0);
    EXPECT_EQ(one.board->ops->have(one.board, "b.", 0, 3, &there), 0);
    EXPECT_EQ(there, 3u);
    one.board->ops->forget(one.board, "b.1");
    EXPECT_EQ(fetch(two.board, "b.1"), nothing);
}

/* Ranks of runs that nobody tells apart: each is a process of its own. */
struct EntriesByHand : testing::Test {
    enum { NONE = 1, AMBIGUOUS, OTHER, FIRST, SECOND, OTHER_WORDS };

    /* What a rank finds under the key. */
    static int found(struct ng_board *board)
    {
        std::string value = fetch(board, "u.id");
        return value == nothing                                            ? NONE
               : value == strerror(ENOTUNIQ)                               ? AMBIGUOUS
               : value == "first"                                          ? FIRST
               : value == "second"                                         ? SECOND
               : value == std::string("other words: ") + words_of_launcher ? OTHER_WORDS
                                                                           : OTHER;
    }
    static void add_group(struct ng_box *box, uint64_t id, int rank)
    {
        box->groups[0].id = id;
        box->groups[0].nranks = 2;
        box->groups[0].group_rank = rank;
        box->groups[0].state = NG_GROUP_READY;
        box->header->group_used = 1;
    }
    Deed puts(const std::string &value, int expected = 0, uint64_t group = 0, int rank = 0)
    {
        std::string path = folder.path();
        return [=](struct ng_box *box) {
            if (group)
                add_group(box, group, rank);
            Board board(path, box);
            board.wait(0);
            return put(board.board, "u.id", value) == expected ? 0 : 99;
        };
    }
    Deed finds(int what, uint64_t group = 0, int rank = 1)
    {
        std::string path = folder.path();
        return [=](struct ng_box *box) {
            if (group)
                add_group(box, group, rank);
            Board board(path, box);
            board.wait(0);
            int is = found(board.board);
            return is == what ? 0 : is;
        };
    }
    Folder folder;
};

TEST_F(EntriesByHand, OfAProcessWithTheSameRankAreOfAnotherRun)
{
    Peer first(folder.path(), puts("first"), 0, 0), second(folder.path(), puts("second"), 0, 0);
    OwnBox own(folder.path(), 0, 0);
    Board board(folder.path(), &own.box);
    board.wait(0);
    EXPECT_EQ(found(board.board), NONE);
    EXPECT_EQ(put(board.board, "u.id", "third"), 0);
    EXPECT_EQ(put(board.board, "u.id", "third"), 0) << "the same by the same";
    EXPECT_EQ(put(board.board, "u.id", "x"), -EEXIST);
    EXPECT_EQ(fetch(board.board, "u.id"), "third");
}

/* It fits into each of the two: neither value is given to it, nor may it put its own. */
TEST_F(EntriesByHand, ThatMayBeOfEitherRunAreRefused)
{
    Peer first(folder.path(), puts("first"), 0, 0);
    Peer early(folder.path(), finds(FIRST), 1, 0);
    Peer second(folder.path(), puts("second"), 0, 0);
    Peer late(folder.path(), finds(AMBIGUOUS), 2, 0);
    Peer putting(folder.path(), puts("x", -ENOTUNIQ), 3, 0);
}

/* As soon as each has a communicator. */
TEST_F(EntriesByHand, AreOfTheRunWithACommonCommunicator)
{
    Peer first(folder.path(), puts("first", 0, 5, 0), 0, 0);
    Peer second(folder.path(), puts("second", 0, 6, 0), 0, 0);
    Peer third(folder.path(), finds(FIRST, 5), 1, 0), fourth(folder.path(), finds(SECOND, 6), 1, 0);
}

/* The first has both ranks, so that the others are not of it. */
TEST_F(EntriesByHand, AreOfTheOnlyRunThatIsNotComplete)
{
    Peer first(folder.path(), puts("first", 0, 5, 0), 0, 0),
        other(folder.path(), finds(FIRST, 5), 1, 0);
    Peer third(folder.path(), puts("second"), 0, 0), fourth(folder.path(), finds(SECOND), 1, 0);
}

TEST_F(EntriesByHand, OfAProcessThatLeftBeforeAreOfAnEarlierRun)
{
    Peer slow(folder.path(), {}, 2, 0);
    Peer first(folder.path(), puts("first"), 0, 0);
    OwnBox own(folder.path(), 3, 0);
    Board board(folder.path(), &own.box);
    board.wait(0);
    first.kill_and_reap();
    board.wait(0);
    EXPECT_EQ(found(board.board), FIRST) << "it was there";
    Peer leaving(
        folder.path(),
        [&](struct ng_box *box) {
            box->header->life_mono_ns = ng_clock_mono_ns() - NG_S;
            box->header->life = NG_BOX_EXITED;
            Board other(folder.path(), box);
            other.wait(0);
            return put(other.board, "u.left", "x");
        },
        4, 0);
    EXPECT_EQ(fetch(board.board, "u.left"), nothing);
    EXPECT_EQ(put(board.board, "u.left", "y"), 0);
    EXPECT_EQ(fetch(board.board, "u.left"), "y");
}

/* Words of a launcher may differ within a run, but ranks that complement each other may be of two:
 * a communicator alone tells. */
TEST_F(EntriesByHand, WithOtherWordsAreGivenOnlyWhereACommunicatorTells)
{
    Peer first(folder.path(), puts("first", 0, 5, 0), 0, 7);
    Peer second(folder.path(), finds(OTHER_WORDS), 1, 8);
    Peer none(folder.path(), finds(OTHER_WORDS), 1, 0);
    Peer twin(folder.path(), finds(NONE), 0, 9), unnumbered(folder.path(), finds(NONE), -1, 10);
    Peer mate(folder.path(), finds(FIRST, 5), 2, 11);
    Peer own(folder.path(), puts("second"), 4, 13), its(folder.path(), finds(SECOND), 5, 13);
    Folder other;
    Peer left(
        other.path(),
        [&](struct ng_box *box) {
            box->header->life_mono_ns = ng_clock_mono_ns() - NG_S;
            box->header->life = NG_BOX_EXITED;
            return putting(other.path(), "u.id", "first")(box);
        },
        0, 7);
    Peer late(
        other.path(),
        [&](struct ng_box *box) {
            Board board(other.path(), box);
            board.wait(0);
            return fetch(board.board, "u.id") != nothing;
        },
        1, 8);
}

/* Nothing tells whether they fit. */
TEST_F(EntriesByHand, OfProcessesWithoutNumbersAreSeen)
{
    Peer first(folder.path(), puts("first"), -1, 0);
    Peer second(folder.path(), finds(FIRST), -1, 0);
}

TEST_F(Entries, AKeyIsPutOnce)
{
    Peer peer(folder.path(), putting(folder.path(), "u.key", "first"));
    board.wait(0);
    EXPECT_EQ(put(board.board, "u.key", "second"), -EEXIST);
    EXPECT_EQ(put(board.board, "u.key", "first"), -EEXIST) << "by another process";
    EXPECT_EQ(fetch(board.board, "u.key"), "first");
    EXPECT_EQ(put(board.board, "u.own", "x"), 0);
    EXPECT_EQ(put(board.board, "u.own", "x"), 0) << "the same by the same";
    EXPECT_EQ(put(board.board, "u.own", "y"), -EEXIST);
}

TEST_F(Entries, OfTheDeadAreGoneAfterAWhileAndCanBePutAnew)
{
    Peer peer(folder.path(), putting(folder.path(), "u.key", "old"));
    Peer barrier(folder.path(), putting(folder.path(), "b.1", "kept", 60 * NG_S), 2);
    board.wait(0);
    peer.kill_and_reap();
    barrier.kill_and_reap();
    EXPECT_EQ(fetch(board.board, "u.key"), "old") << "not at once: others may still want it";
    EXPECT_EQ(put(board.board, "u.key", "new"), -EEXIST);
    for (int i = 0; i < 200 && fetch(board.board, "u.key") != nothing; i++)
        board.wait(100);
    EXPECT_EQ(fetch(board.board, "u.key"), nothing);
    EXPECT_EQ(put(board.board, "u.key", "new"), 0);
    EXPECT_EQ(fetch(board.board, "u.key"), "new");
    EXPECT_EQ(fetch(board.board, "b.1"), "kept") << "it does not depend on its process";
}

TEST_F(Entries, OfAProcessThatNobodyKnowsDoNotCount)
{
    {
        Folder elsewhere;
        Peer stranger(elsewhere.path(), putting(elsewhere.path(), "u.key", "stale"));
        write_whole_file(folder / file_of_key, read_whole_file(elsewhere / file_of_key));
    }
    EXPECT_EQ(fetch(board.board, "u.key"), nothing);
    EXPECT_EQ(put(board.board, "u.key", "new"), 0);
    EXPECT_EQ(fetch(board.board, "u.key"), "new");
}

TEST_F(Entries, OfOneProcessHaveABound)
{
    for (int i = 0; i < NG_BOARD_KEEP_MAX; i++)
        EXPECT_EQ(put(board.board, ("u." + std::to_string(i)).c_str(), "x"), 0);
    EXPECT_EQ(put(board.board, "u.more", "x"), -ENOSPC);
    EXPECT_EQ(put(board.board, "b.more", "x", NG_S), 0) << "those that go by themselves have none";
    EXPECT_EQ(put(board.board, "u.0", "x"), 0) << "what is there counts no more";
}

TEST_F(Entries, OfOneKeyCountOnceHoweverOftenTheyArePut)
{
    for (int i = 0; i < 2 * NG_BOARD_KEEP_MAX; i++)
        EXPECT_EQ(put(board.board, "u.same", "x"), 0) << i;
    EXPECT_EQ(put(board.board, "u.other", "x"), 0);
}

TEST_F(Entries, HaveTellsWhichOfManyAreThere)
{
    uint64_t there = 99;
    EXPECT_EQ(board.board->ops->have(board.board, "b.", 0, 64, &there), 0);
    EXPECT_EQ(there, 0u);
    for (const char *key : {"b.0", "b.7", "b.63", "b.70"})
        EXPECT_EQ(put(board.board, key, "", 60 * NG_S), 0);
    EXPECT_EQ(board.board->ops->have(board.board, "b.", 0, 64, &there), 0);
    EXPECT_EQ(there, UINT64_C(1) | UINT64_C(1) << 7 | UINT64_C(1) << 63);
    EXPECT_EQ(board.board->ops->have(board.board, "b.", 64, 7, &there), 0);
    EXPECT_EQ(there, UINT64_C(1) << 6);
    board.board->ops->forget(board.board, "b.7");
    EXPECT_EQ(board.board->ops->have(board.board, "b.", 0, 8, &there), 0);
    EXPECT_EQ(there, 1u);
}

TEST_F(Entries, ThatAreDamagedAreNone)
{
    EXPECT_EQ(put(board.board, "u.key", "value"), 0);
    std::string whole = read_whole_file(folder / file_of_key);
    for (size_t length = 0; length < whole.size(); length++) {
        write_whole_file(folder / file_of_key, whole.substr(0, length));
        EXPECT_EQ(fetch(board.board, "u.key"), nothing) << length;
    }
    std::string other = whole;
    other[17] = '\x7f'; /* the length */
    write_whole_file(folder / file_of_key, other);
    EXPECT_EQ(fetch(board.board, "u.key"), nothing);
}

TEST_F(Entries, AreRemovedWithTheBoard)
{
    EXPECT_EQ(put(board.board, "u.key", "value"), 0);
    EXPECT_EQ(put(board.board, "b.key", "value", NG_S), 0);
    board.leave();
    EXPECT_TRUE(folder.names().empty());
}
