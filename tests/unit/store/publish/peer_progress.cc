/*
 * What all processes of a job told a store, as a view.
 */
#include "tests/unit/store/publish/ranks.h"

struct PeerProgress : testing::Test {
    PeerProgress() : kv("memory:" + folder.path())
    {
    }

    /* A place with its blob, and for how long that has been true; less than 0: no sign of life. */
    void stands(uint64_t slot, const std::string &blob, int64_t unchanged_ms = 0)
    {
        std::string number = std::to_string(slot);
        ASSERT_EQ(kv.set("p/" + number, blob), 0);
        int error = unchanged_ms < 0 ? 0 : kv.set("l/" + number, std::to_string(unchanged_ms));
        ASSERT_EQ(error, 0);
        if (slot > slots)
            slots = slot;
        ASSERT_EQ(kv.set("n", std::to_string(slots)), 0);
    }
    static Told process(int rank, uint64_t label = 5)
    {
        Told one;
        one.rank = rank;
        one.uid = 1000 + (uint64_t)rank;
        one.label = label;
        return one;
    }
    int fetch(struct ng_peer_progress **ret_blobs, uint32_t *ret_count)
    {
        return ng_peer_progress_fetch(kv.kv, within(patience_ms), &arena, ret_blobs, ret_count);
    }
    /* The store's processes added to what `view` has. */
    void add(struct ng_view *view, uint64_t root = 5)
    {
        struct ng_peer_progress *blobs;
        uint32_t count;
        ASSERT_EQ(fetch(&blobs, &count), 0);
        ASSERT_EQ(ng_peer_progress_add(blobs, count, root, ttl, view), 0);
        ng_view_seal(view);
    }
    const struct ng_view_process *find(const struct ng_view &view, int rank)
    {
        const struct ng_view_process *found = nullptr;
        for (uint32_t i = 0; i < view.process_count; i++)
            if (view.processes[i].rank == rank) {
                EXPECT_EQ(found, nullptr) << "rank " << rank << " twice";
                found = &view.processes[i];
            }
        return found;
    }
    void SetUp() override
    {
        ng_view_init(&view);
    }
    void TearDown() override
    {
        ng_view_fini(&view);
        ng_arena_reset(&arena);
    }
    static constexpr int64_t ttl = 5 * NG_S;
    Folder folder;
    Kv kv;
    uint64_t slots = 0;
    struct ng_view view;
    struct ng_arena arena = {};
};

/* The reader is a thread of a program that must go on: data on the store must not exhaust its
 * memory. */
TEST_F(PeerProgress, MoreThanAJobTellsIsNotTakenIn)
{
    struct ng_peer_progress *blobs;
    uint32_t count;
    stands(1, std::string(NG_PROGRESS_BYTES_MAX + 1, 'x'));
    stands(2, told(process(2)));
    ASSERT_EQ(fetch(&blobs, &count), 0);
    EXPECT_EQ(count, 1u) << "one that is longer than any is nobody";
    ng_arena_reset(&arena);
    for (uint64_t slot = 3; slot < 3 + 64; slot++)
        stands(slot, std::string(NG_PROGRESS_BYTES_MAX, 'x'));
    EXPECT_EQ(fetch(&blobs, &count), -ENOMEM) << "and all together have a bound";
}

TEST_F(PeerProgress, NobodyIsThere)
{
    struct ng_peer_progress *blobs;
    uint32_t count = 9;
    EXPECT_EQ(fetch(&blobs, &count), 0);
    EXPECT_EQ(count, 0u);
    add(&view);
    EXPECT_EQ(view.process_count, 0u);
}

TEST_F(PeerProgress, AllOfManyPlacesAreFoundHolesAndAll)
{
    std::set<uint64_t> wanted;
    for (uint64_t slot = 1; slot <= 700; slot += slot % 7 == 0 ? 5 : 1) {
        stands(slot, told(process((int)slot)));
        wanted.insert(slot);
    }
    struct ng_peer_progress *blobs;
    uint32_t count;
    ASSERT_EQ(fetch(&blobs, &count), 0);
    std::set<uint64_t> found;
    for (uint32_t i = 0; i < count; i++) {
        found.insert(blobs[i].slot);
        EXPECT_TRUE(blobs[i].lives);
        EXPECT_EQ(blobs[i].root, 5u);
    }
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(count, wanted.size());
}

TEST_F(PeerProgress, WhatTheOwnHostShowsIsNearerTheTruth)
{
    struct ng_view_process *here = ng_view_add_process(&view);
    here->uid = 1001;
    here->rank = 1;
    here->life = NG_LIFE_DEAD;
    stands(1, told(process(1)));
    stands(2, told(process(2)));
    add(&view);
    ASSERT_EQ(view.process_count, 2u);
    EXPECT_EQ(find(view, 1)->life, NG_LIFE_DEAD);
    EXPECT_EQ(find(view, 2)->life, NG_LIFE_RUNNING);
}

TEST_F(PeerProgress, WhoGivesNoSignOfLifeIsLost)
{
    Told one = process(1);
    one.written_ago_ns = 60 * NG_S;
    stands(1, told(one), -1);
    one = process(2); /* written a moment ago: silent for its time to live all the same */
    stands(2, told(one), -1);
    one = process(3); /* another clock */
    one.written_ago_ns = -3600 * NG_S;
    stands(3, told(one), -1);
    add(&view);
    ASSERT_EQ(view.process_count, 3u);
    EXPECT_EQ(find(view, 1)->life, NG_LIFE_LOST);
    EXPECT_NEAR((double)find(view, 1)->life_age_ns, 60e9, 30e9);
    EXPECT_EQ(find(view, 2)->life, NG_LIFE_LOST);
    EXPECT_EQ(find(view, 2)->life_age_ns, ttl);
    EXPECT_EQ(find(view, 3)->life, NG_LIFE_LOST);
    EXPECT_EQ(find(view, 3)->life_age_ns, ttl);
}

TEST_F(PeerProgress, WhoHasEndedIsNotLost)
{
    Told one = process(1);
    one.life = NG_LIFE_DEAD;
    one.life_age_ns = 2 * NG_S;
    one.written_ago_ns = 100 * NG_S;
    stands(1, told(one), -1);
    one = process(2);
    one.life = NG_LIFE_STOPPED;
    stands(2, told(one), -1);
    one = process(3);
    one.life = NG_LIFE_EXITED;
    stands(3, told(one), 0); /* its sign of life is still there */
    add(&view);
    EXPECT_EQ(find(view, 1)->life, NG_LIFE_DEAD);
    EXPECT_NEAR((double)find(view, 1)->life_age_ns, 102e9, 30e9);
    EXPECT_EQ(find(view, 2)->life, NG_LIFE_STOPPED);
    EXPECT_EQ(find(view, 3)->life, NG_LIFE_EXITED);
}

TEST_F(PeerProgress, WhatIsUnchangedGrowsOlder)
{
    Told one = process(1);
    one.group = 77;
    one.entered = 9;
    one.pending_age_ns = 10 * NG_S;
    stands(1, told(one), 30000);
    add(&view);
    ASSERT_EQ(view.member_count, 1u);
    EXPECT_EQ(view.members[0].entered, 9u);
    EXPECT_EQ(view.members[0].pending_age_ns, 40 * NG_S);
    EXPECT_FALSE(view.processes[0].self);
}

TEST_F(PeerProgress, OtherIncarnationsAreNotShown)
{
    stands(1, told(process(1, 5)));
    stands(2, told(process(2, 9)));    /* lives, and nobody of ours has its rank: it may be ours */
    stands(3, told(process(1, 9)), 0); /* a late rank of another run */
    Told dead = process(3, 9);
    dead.life = NG_LIFE_DEAD;
    stands(4, told(dead), -1);
    stands(5, told(process(4, 9)), -1);
    stands(6, told(process(-1, 9)));
    slots = 6;
    add(&view);
    EXPECT_EQ(view.process_count, 2u);
    ASSERT_NE(find(view, 1), nullptr);
    EXPECT_EQ(find(view, 1)->uid, 1001u);
    ASSERT_NE(find(view, 2), nullptr);
}

/* They have no communicator yet: their rank is free, but they are of another run. */
TEST_F(PeerProgress, WhomAnotherLauncherStartedAreNotShown)
{
    Told one = process(1, 5), other = process(2, 9), early = process(3, 0), ours = process(4, 0);
    one.launch_run = ours.launch_run = 7;
    other.launch_run = early.launch_run = 8;
    stands(1, told(one));
    stands(2, told(other));
    stands(3, told(early));
    stands(4, told(ours));
    stands(5, told(process(5, 0))); /* by hand */
    other.rank = 1;
    other.uid = 77;
    stands(6, told(other)); /* a rank that is there twice shows that they are several runs */
    add(&view);
    EXPECT_EQ(view.process_count, 2u);
    EXPECT_NE(find(view, 1), nullptr);
    EXPECT_NE(find(view, 4), nullptr);
}

TEST_F(PeerProgress, BeforeAnyCommunicatorTheLauncherTells)
{
    struct ng_view_process *here = ng_view_add_process(&view);
    here->uid = 1001;
    here->rank = 1;
    Told one = process(1, 0), other = process(1, 0), ours = process(2, 0);
    one.launch_run = ours.launch_run = 7;
    other.launch_run = 8;
    other.uid = 77;
    stands(1, told(one));
    stands(2, told(other));
    stands(3, told(ours));
    add(&view, 0);
    EXPECT_EQ(view.process_count, 2u);
    EXPECT_NE(find(view, 2), nullptr);
}

/* Two runs by hand: a rank without a communicator may be of either. */
TEST_F(PeerProgress, WhenSeveralRunsByHandAreActiveNoStrangerIsShown)
{
    stands(1, told(process(1, 5)));
    stands(2, told(process(2, 0)));
    Told other = process(1, 9);
    other.uid = 77;
    for (enum ng_life life : {NG_LIFE_RUNNING, NG_LIFE_DEAD, NG_LIFE_STOPPED}) {
        other.life = life;
        stands(3, told(other), life == NG_LIFE_DEAD ? -1 : 0);
        OwnView all;
        add(&all);
        EXPECT_EQ(all.process_count, life == NG_LIFE_RUNNING ? 1u : 2u) << life;
        EXPECT_NE(find(all, 1), nullptr);
    }
    other = process(3, 9);
    other.world_size = 4;
    stands(3, told(other));
    add(&view);
    EXPECT_EQ(view.process_count, 1u) << "of a job of another size";
}

TEST_F(PeerProgress, UnitedLabelsAreOneIncarnation)
{
    uint64_t root;
    stands(1, told(process(1, 5)));
    stands(2, told(process(2, 9)), -1);
    ASSERT_EQ(ng_incarnation_join(kv.kv, 100, 5, 0, within(patience_ms), &root), 0);
    ASSERT_EQ(ng_incarnation_join(kv.kv, 100, 9, 0, within(patience_ms), &root), 0);
    add(&view);
    ASSERT_NE(find(view, 2), nullptr);
    EXPECT_EQ(find(view, 2)->life, NG_LIFE_LOST);
}

/* Ranks 0 to 2 with one unique id, rank 3 with another; and what else the board has. */
struct Halves : PeerProgress {
    int may_be_one(std::vector<uint64_t> roots = {5, 9})
    {
        struct ng_peer_progress *blobs;
        uint32_t count;
        EXPECT_EQ(fetch(&blobs, &count), 0);
        return ng_peer_progress_may_be_one(blobs, count, roots.data(), (uint32_t)roots.size(),
                                           &arena);
    }
    void SetUp() override
    {
        PeerProgress::SetUp();
        for (int rank = 0; rank < 3; rank++)
            stands((uint64_t)rank + 1, told(process(rank, 5)));
        stands(4, told(process(3, 9)));
    }
};

TEST_F(Halves, OfWhichEachHasRanksOfItsOwnMayBeOne)
{
    EXPECT_EQ(may_be_one(), 0);
}

TEST_F(Halves, ThatBothHaveARankAreTwoRunsThoughOneIsDead)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_RUNNING}) {
        Told late = process(1, 9);
        late.uid = 77;
        late.life = life;
        stands(5, told(late), life == NG_LIFE_RUNNING ? 0 : -1);
        EXPECT_EQ(may_be_one(), -EPERM);
    }
}

TEST_F(Halves, OfWhichOneHasAProcessWithoutARankAreNotTakenForOne)
{
    stands(5, told(process(-1, 9)));
    EXPECT_EQ(may_be_one(), -EPERM);
}

TEST_F(Halves, OfWhichLaunchersSayDifferentThingsMayBeOne)
{
    Told other = process(3, 9);
    other.launch_run = 8;
    stands(4, told(other));
    EXPECT_EQ(may_be_one(), 0);
}

TEST_F(Halves, AreNotPartedByAThirdRunNorByTwoPlacesOfOneProcess)
{
    Told other = process(1, 11);
    other.uid = 77;
    stands(5, told(other));
    stands(6, told(process(3, 9)), -1); /* the place that it lost */
    EXPECT_EQ(may_be_one(), 0);
    EXPECT_EQ(may_be_one({5, 9, 11}), -EPERM);
}

/*
 * One run of two hosts, whose launchers' words differ: a step of the batch system for each host, a
 * master that is spelled differently, or a local one that is set on each.
 */
struct WordsDiffer : PeerProgress {
    /* The uid is that of the slot. */
    void is(uint64_t uid, int rank, uint64_t launch_run, uint64_t label = 0,
            enum ng_life life = NG_LIFE_RUNNING, int world_size = 4)
    {
        Told one = process(rank, label);
        one.uid = uid;
        one.launch_run = launch_run;
        one.life = life;
        one.world_size = world_size;
        stands(uid, told(one), ng_life_has_ended(life) ? -1 : 0);
    }
    /* The run of each blob. */
    std::vector<uint64_t> runs()
    {
        struct ng_peer_progress *blobs;
        uint32_t count;
        EXPECT_EQ(fetch(&blobs, &count), 0);
        const uint64_t *found = ng_peer_progress_runs(blobs, count, &arena);
        return std::vector<uint64_t>(found, found + count);
    }
    static constexpr uint64_t here = 7, there = 8, elsewhere = 6;
};

TEST_F(WordsDiffer, BeforeACommunicatorAllRanksOfARunAreSeen)
{
    is(1, 0, here, 5);
    is(2, 1, here, 5);
    is(3, 2, there);
    is(4, 3, there);
    add(&view);
    EXPECT_EQ(view.process_count, 4u);
    EXPECT_EQ(runs(), std::vector<uint64_t>(4, 5));
}

TEST_F(WordsDiffer, NobodyHasACommunicatorYet)
{
    for (int rank = 0; rank < 4; rank++)
        is((uint64_t)rank + 1, rank, rank < 2 ? here : there);
    struct ng_view_process *near = ng_view_add_process(&view);
    near->uid = 1;
    near->rank = 0;
    add(&view, 0);
    EXPECT_EQ(view.process_count, 4u);
    EXPECT_EQ(runs(), std::vector<uint64_t>(4, here));
}

/* Each host has a unique id of its own: that they are one is only known later. */
TEST_F(WordsDiffer, CommunicatorsThatDifferMayBeOfOneRun)
{
    for (int rank = 0; rank < 4; rank++)
        is((uint64_t)rank + 1, rank, rank < 2 ? here : there, rank < 2 ? 5 : 9);
    add(&view);
    EXPECT_EQ(view.process_count, 4u);
    EXPECT_EQ(runs(), std::vector<uint64_t>(4, 5));
}

/* A framework that has one process for each step: they all have the step's rank, 0 of 1. */
TEST_F(WordsDiffer, ARankOfAWorldOfOneSaysNothing)
{
    for (uint64_t uid = 1; uid <= 4; uid++)
        is(uid, 0, uid <= 2 ? here : there, 0, NG_LIFE_RUNNING, 1);
    EXPECT_EQ(runs(), std::vector<uint64_t>(4, here));
    is(2, 0, here, 5, NG_LIFE_RUNNING, 1);
    is(3, 0, there, 5, NG_LIFE_RUNNING, 1);
    EXPECT_EQ(runs(), std::vector<uint64_t>(4, 5));
}

/* A second run that is active does not part what a communicator connects, nor take from it. */
TEST_F(WordsDiffer, ARunIsWholeBesideAnother)
{
    is(1, 0, here, 5);
    is(2, 1, here);
    is(3, 2, there, 5);
    is(4, 3, there);
    is(5, 0, elsewhere, 9);
    is(6, 1, elsewhere);
    is(7, 2, 0);
    EXPECT_EQ(runs(), (std::vector<uint64_t>{5, 5, 5, 5, elsewhere, elsewhere, NG_PEER_RUN_OPEN}));
    add(&view);
    EXPECT_EQ(view.process_count, 4u);
    for (int rank = 0; rank < 4; rank++)
        ASSERT_NE(find(view, rank), nullptr);
}

/* Those by hand fit together, whoever else is active. */
TEST_F(WordsDiffer, ARunByHandBesideOneOfALauncher)
{
    is(1, 0, here);
    is(2, 1, here);
    is(3, 0, 0, 9);
    is(4, 1, 0);
    EXPECT_EQ(runs(), (std::vector<uint64_t>{here, here, 9, 9}));
    add(&view, 9);
    EXPECT_EQ(view.process_count, 2u);
    is(3, 0, 0);
    EXPECT_EQ(runs(), (std::vector<uint64_t>{here, here, NG_PEER_RUN_OPEN, NG_PEER_RUN_OPEN}));
}

/* Of which run a process is for another, before both have a communicator. */
struct ByHand : PeerProgress {
    /* Rank and label of a process, whose uid is `uid`. */
    void is(uint64_t uid, int rank, uint64_t label = 0, enum ng_life life = NG_LIFE_RUNNING,
            int world_size = 8)
    {
        Told one = process(rank, label);
        one.uid = uid;
        one.life = life;
        one.world_size = world_size;
        stands(uid, told(one), ng_life_has_ended(life) ? -1 : 0);
    }
    enum ng_peer_whose whose(uint64_t own, uint64_t uid)
    {
        struct ng_peer_progress *blobs;
        uint32_t count;
        enum ng_peer_whose found = NG_PEER_UNCLEAR;
        EXPECT_EQ(fetch(&blobs, &count), 0);
        EXPECT_EQ(ng_peer_progress_whose(blobs, count, own, uid, &arena, &found), 0);
        return found;
    }
};

TEST_F(ByHand, AsLongAsRanksFitThereIsOneRun)
{
    is(1, 0);
    is(2, 1);
    is(3, 2, 50);
    for (uint64_t own : {1, 2, 3})
        for (uint64_t uid : {1, 2, 3})
            EXPECT_EQ(whose(own, uid), NG_PEER_OF_OURS);
    is(4, -1);
    EXPECT_EQ(whose(4, 1), NG_PEER_OF_OURS) << "without ranks nothing tells";
    EXPECT_EQ(whose(1, 4), NG_PEER_OF_OURS);
    EXPECT_EQ(whose(1, 99), NG_PEER_UNCLEAR) << "it is not there yet";
}

TEST_F(ByHand, ARankThatIsThereTwiceMakesItUnclear)
{
    is(1, 0);
    is(2, 1);
    is(3, 0);
    EXPECT_EQ(whose(1, 3), NG_PEER_OF_ANOTHER);
    EXPECT_EQ(whose(2, 1), NG_PEER_UNCLEAR);
    EXPECT_EQ(whose(2, 3), NG_PEER_UNCLEAR);
    EXPECT_EQ(whose(1, 2), NG_PEER_UNCLEAR);
    is(4, 2);
    is(3, 1);
    EXPECT_EQ(whose(1, 4), NG_PEER_UNCLEAR) << "each may be of either run";
    is(3, 1, 0, NG_LIFE_DEAD);
    EXPECT_EQ(whose(1, 4), NG_PEER_OF_OURS);
    EXPECT_EQ(whose(4, 3), NG_PEER_UNCLEAR) << "what the dead left";
}

TEST_F(ByHand, ARunThatIsCompleteHasNoOtherRanks)
{
    is(1, 0, 50);
    is(2, 1, 50);
    is(3, 0);
    is(4, 1);
    EXPECT_EQ(whose(4, 1), NG_PEER_OF_ANOTHER);
    EXPECT_EQ(whose(4, 3), NG_PEER_OF_OURS);
    is(5, 2);
    EXPECT_EQ(whose(4, 3), NG_PEER_OF_OURS);
    EXPECT_EQ(whose(5, 3), NG_PEER_UNCLEAR);
    is(5, 2, 0, NG_LIFE_RUNNING, 4);
    EXPECT_EQ(whose(5, 3), NG_PEER_OF_ANOTHER) << "of a job of another size";
}

TEST_F(PeerProgress, MoreLabelsThanAnybodyHasDoNotHurt)
{
    for (uint64_t i = 1; i <= 100; i++)
        stands(i, told(process((int)i, i + 10)));
    struct ng_peer_progress *blobs;
    uint32_t count;
    ASSERT_EQ(fetch(&blobs, &count), 0);
    EXPECT_EQ(count, 100u);
    EXPECT_EQ(blobs[0].root, 11u);
    add(&view);
    EXPECT_EQ(view.process_count, 100u) << "they live, and have ranks of their own";
}

TEST_F(PeerProgress, OfTwoPlacesOfOneProcessTheNewerWordCounts)
{
    Told one = process(1);
    one.written_ago_ns = 60 * NG_S;
    stands(1, told(one), -1); /* the place that it lost */
    one.written_ago_ns = 0;
    stands(2, told(one), 0);
    one = process(2); /* and the other way round */
    stands(3, told(one), 0);
    one.written_ago_ns = 60 * NG_S;
    stands(4, told(one), -1);
    one = process(3); /* neither lives: what was told last */
    one.life = NG_LIFE_DEAD;
    stands(5, told(one), -1);
    one.life = NG_LIFE_RUNNING;
    one.written_ago_ns = 60 * NG_S;
    stands(6, told(one), -1);
    add(&view);
    EXPECT_EQ(view.process_count, 3u);
    EXPECT_EQ(find(view, 1)->life, NG_LIFE_RUNNING);
    EXPECT_EQ(find(view, 2)->life, NG_LIFE_RUNNING);
    EXPECT_EQ(find(view, 3)->life, NG_LIFE_DEAD);
}

/* It died before it could say which place it has: its neighbour told of that in another one. */
TEST_F(PeerProgress, OfTwoPlacesOfOneProcessItsEndCounts)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_ENDED_BY_GUARD}) {
        Told one = process((int)life);
        stands(++slots, told(one), 0);
        one.life = life;
        stands(++slots, told(one), -1);
        one = process(100 + (int)life); /* and the other way round */
        one.life = life;
        stands(++slots, told(one), -1);
        one.life = NG_LIFE_RUNNING;
        stands(++slots, told(one), 0);
    }
    add(&view);
    EXPECT_EQ(view.process_count, 6u);
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_ENDED_BY_GUARD}) {
        EXPECT_EQ(find(view, (int)life)->life, life);
        EXPECT_EQ(find(view, 100 + (int)life)->life, life);
    }
}

TEST_F(PeerProgress, DamagedOnesGetANote)
{
    std::string blob = told(process(1));
    stands(1, blob.substr(0, blob.size() / 2));
    stands(2, "");
    stands(3, "nonsense");
    std::string newer = told(process(4));
    newer[4] = 100; /* its version */
    stands(4, newer);
    stands(5, told(process(5)));
    add(&view);
    ASSERT_EQ(view.process_count, 1u);
    EXPECT_EQ(view.processes[0].rank, 5);
    std::string notes;
    for (uint32_t i = 0; i < view.note_count; i++)
        notes += std::string(view.notes[i]) + "\n";
    for (const char *slot : {"slot 2 ", "slot 3 "})
        EXPECT_NE(notes.find(slot), std::string::npos) << notes;
    EXPECT_NE(notes.find("slot 1 of the board: damaged"), std::string::npos) << notes;
    EXPECT_NE(notes.find("slot 4 of the board: of another version"), std::string::npos) << notes;
}

TEST_F(PeerProgress, AnyBytesAreSurvived)
{
    std::mt19937_64 random(4);
    for (int round = 0; round < 200; round++) {
        std::string blob = told(process(1));
        for (int k = 0; k < 5; k++)
            blob[random() % blob.size()] = (char)random();
        struct ng_peer_progress one = {};
        std::vector<char> exact(blob.begin(), blob.end());
        one.data = exact.data();
        one.bytes = exact.size();
        one.slot = 1;
        one.root = 5;
        one.lives = random() % 2;
        OwnView any;
        EXPECT_EQ(ng_peer_progress_add(&one, 1, 5, ttl, &any), 0);
        ng_view_seal(&any);
        EXPECT_LE(any.process_count, 1u);
    }
}

TEST_F(PeerProgress, ACountThatIsNoneIsTold)
{
    struct ng_peer_progress *blobs;
    uint32_t count;
    ASSERT_EQ(kv.set("n", "99999999999"), 0);
    EXPECT_EQ(fetch(&blobs, &count), -EPROTO);
    EXPECT_EQ(count, 0u);
    ASSERT_EQ(kv.set("n", "nonsense"), 0);
    EXPECT_EQ(fetch(&blobs, &count), 0);
    EXPECT_EQ(count, 0u);
}

TEST_F(PeerProgress, AStoreThatFailsIsTold)
{
    stands(1, told(process(1)));
    FaultyKv faulty("memory:" + folder.path(), "job");
    struct ng_peer_progress *blobs;
    uint32_t count;
    faulty.set(FaultyKv::FAIL, -ECONNREFUSED);
    EXPECT_EQ(ng_peer_progress_fetch(&faulty, within(1000), &arena, &blobs, &count), -ECONNREFUSED);
    EXPECT_EQ(count, 0u);
    faulty.set(FaultyKv::HANG);
    EXPECT_EQ(ng_peer_progress_fetch(&faulty, within(50), &arena, &blobs, &count), -ETIMEDOUT);
}
