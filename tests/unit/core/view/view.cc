/*
 * A view: from black boxes, in order, with ranks that people know.
 */
#include "tests/unit/core/helpers/box.h"
#include "tests/unit/core/helpers/job.h"

namespace
{

struct ng_box_identity identity(int rank)
{
    struct ng_box_identity identity = {
        .rank = rank, .world_size = 4, .local_rank = rank, .job = "by-hand"};
    return identity;
}

/* A box in private memory, and what a view makes of it. */
struct FromBox : testing::Test {
    void SetUp() override
    {
        struct ng_box_identity who = identity(2);
        ASSERT_EQ(ng_box_create(nullptr, &who, 8, &box_), 0);
        ng_view_init(&view_);
    }
    void TearDown() override
    {
        ng_view_fini(&view_);
        ng_box_close(&box_, nullptr);
    }
    void add(enum ng_life life, int64_t now_mono_ns)
    {
        ASSERT_EQ(ng_view_add_box(&view_, &box_, life, now_mono_ns, "box-1-2"), 0);
        ng_view_seal(&view_);
    }
    struct ng_box box_;
    struct ng_view view_;
};

} // namespace

TEST(View, TellsWhenAJobSuspectsUsualAndColdCalls)
{
    struct ng_box_identity who = identity(2);
    struct ng_box box;
    struct ng_view view;
    who.suspect_ns = 2 * NG_S;
    who.cold_suspect_ns = 45 * NG_S;
    ASSERT_EQ(ng_box_create(nullptr, &who, 8, &box), 0);
    ng_view_init(&view);
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_RUNNING, 100 * NG_S, "box-1-2"), 0);
    EXPECT_EQ(view.processes[0].suspect_ns, 2 * NG_S);
    EXPECT_EQ(view.processes[0].cold_suspect_ns, 45 * NG_S);
    ng_view_fini(&view);
    ng_box_close(&box, nullptr);
}

TEST_F(FromBox, TellsWhoWhatAndHowFar)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "dp");
    writer.collective(0, NG_RECORD_COMPLETED, 50 * NG_S);
    writer.collective(0, NG_RECORD_STARTED, 60 * NG_S);
    writer.inside(NG_OP_AllReduce, 0, 70 * NG_S);
    writer.inside(NG_OP_GroupEnd, UINT32_MAX, 80 * NG_S);
    add(NG_LIFE_RUNNING, 100 * NG_S);

    ASSERT_EQ(view_.process_count, 1u);
    const struct ng_view_process *process = &view_.processes[0];
    EXPECT_EQ(process->rank, 2);
    EXPECT_EQ(process->world_size, 4);
    EXPECT_EQ(process->pid, getpid());
    EXPECT_EQ(process->life, NG_LIFE_RUNNING);
    EXPECT_STREQ(process->source, "box-1-2");
    EXPECT_EQ(process->member_count, 1u);
    EXPECT_STREQ(view_.job, "by-hand");
    ASSERT_EQ(view_.group_count, 1u);
    EXPECT_EQ(view_.groups[0].id, 0xabcu);
    EXPECT_EQ(view_.groups[0].nranks, 4);
    EXPECT_EQ(view_.groups[0].member_count, 1u);
    EXPECT_STREQ(view_.groups[0].name, "dp");
    ASSERT_EQ(view_.member_count, 1u);
    const struct ng_view_member *member = &view_.members[0];
    EXPECT_EQ(member->group_rank, 2);
    EXPECT_EQ(member->entered, 2u);
    EXPECT_EQ(member->completed, 1u);
    EXPECT_EQ(member->pending_seq, 2u);
    EXPECT_EQ(member->pending_age_ns, 10 * NG_S);
    ASSERT_EQ(member->record_count, 2u);
    EXPECT_EQ(member->records[0].id, 1u);
    EXPECT_EQ(member->records[0].state, NG_RECORD_COMPLETED);
    EXPECT_EQ(member->records[1].entered_age_ns, 40 * NG_S);
    ASSERT_EQ(view_.call_count, 2u);
    EXPECT_EQ(view_.calls[0].op, NG_OP_AllReduce);
    EXPECT_EQ(view_.calls[0].group_id, 0xabcu);
    EXPECT_EQ(view_.calls[0].group_rank, 2);
    EXPECT_EQ(view_.calls[0].age_ns, 30 * NG_S);
    EXPECT_EQ(view_.calls[1].op, NG_OP_GroupEnd);
    EXPECT_EQ(view_.calls[1].group_id, 0u);
    EXPECT_EQ(view_.calls[1].group_rank, -1);
    EXPECT_EQ(view_.calls[1].age_ns, 20 * NG_S);
    EXPECT_EQ(view_.note_count, 0u);
}

TEST_F(FromBox, TellsMemoryAndRegistrationsOfItsCommunicatorsAlone)
{
    ng_box_close(&box_, nullptr);
    struct ng_box_identity who = identity(2);
    who.with_registrations = true;
    ASSERT_EQ(ng_box_create(nullptr, &who, 8, &box_), 0);
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "dp");
    writer.group(1, 0xdef, 4, 2, "tp");
    box_.groups[0].generation = box_.groups[1].generation = 3;
    box_.registrations[0].segments = box_.registrations[1].segments = 7;
    box_.registrations[0].registered_bytes = 900;
    box_.registrations[0].generation = 3;
    box_.registrations[1].generation = 2; /* of the one before in that slot */
    box_.header->memory[NG_SEGMENT_NCCL].segments = 5;
    box_.header->memory[NG_SEGMENT_NCCL].bytes = 4096;
    box_.header->memory_kinds = 200; /* damaged */
    add(NG_LIFE_DEAD, 100 * NG_S);

    EXPECT_EQ(view_.processes[0].memory_kinds, (uint32_t)NG_BOX_MEMORY_KINDS);
    EXPECT_EQ(view_.processes[0].memory[NG_SEGMENT_NCCL].segments, 5u);
    EXPECT_EQ(view_.processes[0].memory[NG_SEGMENT_NCCL].bytes, 4096u);
    const struct ng_view_member *dp = ng_view_member(&view_, ng_view_find_group(&view_, 0xabc), 2);
    const struct ng_view_member *tp = ng_view_member(&view_, ng_view_find_group(&view_, 0xdef), 2);
    EXPECT_TRUE(dp->registration.known);
    EXPECT_EQ(dp->registration.segments, 7u);
    EXPECT_EQ(dp->registration.registered_bytes, 900u);
    EXPECT_FALSE(tp->registration.known);
    EXPECT_EQ(tp->registration.segments, 0u);
}

TEST_F(FromBox, TellsWhoTheProcessIsAndHowItsGroupsCameToBe)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "dp");
    struct ng_box_group *group = &box_.groups[0];
    group->color = 3;
    group->created_by = NG_OP_CommSplit;
    group->created_mono_ns = 40 * NG_S;
    group->ended_mono_ns = 90 * NG_S;
    memcpy(group->pci_id, "0000:1b:00.0", 13);
    snprintf(box_.header->program, sizeof(box_.header->program), "train");
    add(NG_LIFE_RUNNING, 100 * NG_S);
    const struct ng_view_process *process = &view_.processes[0];
    EXPECT_EQ(process->uid, ng_box_uid(box_.header));
    EXPECT_EQ(process->local_rank, 2);
    EXPECT_STREQ(process->program, "train");
    const struct ng_view_member *member = &view_.members[0];
    EXPECT_EQ(member->color, 3);
    EXPECT_EQ(member->created_by, (uint32_t)NG_OP_CommSplit);
    EXPECT_EQ(member->created_age_ns, 60 * NG_S);
    EXPECT_EQ(member->ended_age_ns, 10 * NG_S);
    EXPECT_STREQ(member->pci_id, "0000:1b:00.0");
}

TEST_F(FromBox, TheUidTellsProcessesApart)
{
    std::set<uint64_t> seen;
    struct ng_box_header *header = box_.header;
    EXPECT_EQ(ng_box_uid(header), ng_box_uid(header));
    seen.insert(ng_box_uid(header));
    header->pid++;
    seen.insert(ng_box_uid(header));
    header->start_ticks++;
    seen.insert(ng_box_uid(header));
    header->pid_namespace++;
    seen.insert(ng_box_uid(header));
    header->boot_id[0] ^= 1;
    seen.insert(ng_box_uid(header));
    header->host[0] ^= 1;
    seen.insert(ng_box_uid(header));
    header->origin_mono_ns++; /* another program of the same process */
    seen.insert(ng_box_uid(header));
    EXPECT_EQ(seen.size(), 7u);
    EXPECT_EQ(seen.count(0), 0u);
    memset(header->boot_id, 'b', sizeof(header->boot_id));
    memset(header->host, 'h', sizeof(header->host));
    EXPECT_NE(ng_box_uid(header), 0u) << "texts without an end";
}

/* Whatever moment the writer was stopped at: the hash is that of `entered`, or none. */
TEST_F(FromBox, TheRollingHashIsThatOfTheNewestCollective)
{
    Writer writer(&box_);
    writer.group(0, 0xa, 4, 2, "a");
    writer.group(1, 0xb, 4, 2, "b");
    for (uint64_t i = 1; i <= 3; i++) {
        uint64_t id = writer.collective(0, NG_RECORD_COMPLETED);
        box_.records[id % box_.record_capacity].rolling_hash = 100 + i;
        box_.groups[0].rolling_hash = 100 + i;
    }
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.members[0].rolling_hash, 103u);
    EXPECT_EQ(view_.members[0].records[1].rolling_hash, 102u);
    EXPECT_EQ(view_.members[1].rolling_hash, 0u) << "no collective yet";

    /* Stopped before it counted the third. */
    ng_view_fini(&view_);
    ng_view_init(&view_);
    box_.groups[0].entered = 2;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.members[0].rolling_hash, 102u);

    /* And the record of the second is overwritten. */
    ng_view_fini(&view_);
    ng_view_init(&view_);
    box_.records[2].id_state = 0;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.members[0].rolling_hash, 0u);

    /* Without records, the group knows. */
    ng_view_fini(&view_);
    ng_view_init(&view_);
    box_.groups[0].entered = 3;
    for (uint32_t i = 0; i < box_.record_capacity; i++)
        box_.records[i].id_state = 0;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.members[0].rolling_hash, 103u);
}

TEST_F(FromBox, TheRingKeepsTheNewestOldestFirst)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "");
    for (int i = 0; i < 100; i++)
        writer.collective(0, NG_RECORD_COMPLETED);
    add(NG_LIFE_RUNNING, 100 * NG_S);
    const struct ng_view_member *member = &view_.members[0];
    ASSERT_EQ(member->record_count, 8u);
    for (uint32_t i = 0; i < 8; i++)
        EXPECT_EQ(member->records[i].coll_seq, 93 + i);
}

/* The ring goes on after the number of its newest record was read. To move half of them for each of
 * the others takes minutes. */
TEST(View, OfALargeRingThatGoesOnAllRecordsAreInOrder)
{
    constexpr uint64_t ring = 1 << 17, newer = ring / 2;
    struct ng_box_identity who = identity(2);
    struct ng_box box;
    struct ng_view view;
    ASSERT_EQ(ng_box_create(nullptr, &who, ring, &box), 0);
    ng_view_init(&view);
    Writer writer(&box);
    writer.group(0, 0xabc, 4, 2, "");
    for (uint64_t i = 0; i < ring + newer; i++)
        writer.collective(0, NG_RECORD_COMPLETED);
    box.header->record_next = ring + 1;
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_RUNNING, 100 * NG_S, "box-1-2"), 0);
    ASSERT_EQ(view.members[0].record_count, ring);
    for (uint64_t i = 0; i < ring; i++)
        ASSERT_EQ(view.members[0].records[i].id, newer + 1 + i);
    ng_view_fini(&view);
    ng_box_close(&box, nullptr);
}

TEST_F(FromBox, RecordsOfSeveralGroupsAreKeptApart)
{
    Writer writer(&box_);
    writer.group(0, 0xa, 4, 2, "a");
    writer.group(1, 0xb, 2, 1, "b");
    for (int i = 0; i < 3; i++) {
        writer.collective(0, NG_RECORD_COMPLETED);
        writer.collective(1, NG_RECORD_COMPLETED);
    }
    add(NG_LIFE_RUNNING, 100 * NG_S);
    ASSERT_EQ(view_.member_count, 2u);
    for (uint32_t m = 0; m < 2; m++) {
        ASSERT_EQ(view_.members[m].record_count, 3u);
        for (uint32_t i = 0; i < 3; i++) {
            EXPECT_EQ(view_.members[m].records[i].coll_seq, i + 1);
            EXPECT_EQ(view_.members[m].records[i].id % 2, m == 0 ? 1u : 0u);
        }
    }
}

/* The communicator was destroyed and its slot given to another: its records are not the new one's.
 */
TEST_F(FromBox, RecordsOfAReusedSlotAreNotTheNewGroups)
{
    Writer writer(&box_);
    writer.group(0, 0xa, 4, 2, "a");
    writer.collective(0, NG_RECORD_COMPLETED);
    writer.group(0, 0xb, 2, 1, "b");
    writer.collective(0, NG_RECORD_COMPLETED);
    add(NG_LIFE_RUNNING, 100 * NG_S);
    ASSERT_EQ(view_.member_count, 1u);
    EXPECT_EQ(view_.groups[view_.members[0].group].id, 0xbu);
    ASSERT_EQ(view_.members[0].record_count, 1u);
    EXPECT_EQ(view_.members[0].records[0].id, 2u);
}

TEST_F(FromBox, WhatTheBoxSaysOfItsEndOverrulesRunning)
{
    box_.header->life = NG_BOX_EXITED;
    box_.header->exit_status = 3;
    box_.header->life_mono_ns = 90 * NG_S;
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "");
    writer.collective(0, NG_RECORD_STARTED, 80 * NG_S);
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].life, NG_LIFE_EXITED);
    EXPECT_EQ(view_.processes[0].exit_status, 3);
    EXPECT_EQ(view_.processes[0].life_age_ns, 10 * NG_S);
    EXPECT_EQ(view_.members[0].records[0].entered_age_ns, 10 * NG_S) << "as of its end";
}

TEST_F(FromBox, TheDeadLivedAtTheirLastHeartbeat)
{
    box_.header->heartbeat_mono_ns = 90 * NG_S;
    add(NG_LIFE_DEAD, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].life, NG_LIFE_DEAD);
    EXPECT_EQ(view_.processes[0].life_age_ns, 10 * NG_S);
    EXPECT_EQ(view_.processes[0].alive_age_ns, 10 * NG_S);
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.processes[1].alive_age_ns, 0);
}

TEST_F(FromBox, AStuckWatchdogIsTold)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "");
    memcpy((void *)box_.header->watchdog_in, "cuEventQuery", sizeof("cuEventQuery"));
    box_.header->watchdog_stuck_mono_ns = 40 * NG_S;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].watchdog_stuck_ns, 60 * NG_S);
    EXPECT_STREQ(view_.processes[0].watchdog_in, "cuEventQuery");
}

TEST_F(FromBox, AWatchdogThatMakesItsRoundsIsNotStuck)
{
    box_.header->watchdog_mono_ns = 99 * NG_S;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].watchdog_stuck_ns, 0);
    EXPECT_EQ(view_.processes[0].watched_age_ns, NG_S);
}

TEST_F(FromBox, EndedByTheGuardIsAVictim)
{
    box_.header->life = NG_BOX_ENDED_BY_GUARD;
    add(NG_LIFE_DEAD, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].life, NG_LIFE_ENDED_BY_GUARD);
}

/* Its launcher may end it first, since another rank has ended. */
TEST_F(FromBox, WhoDiedWhileAVerdictWasAboutToEndItIsAVictimToo)
{
    box_.header->ending_policy = NG_ON_TIMEOUT_KILL + 1;
    add(NG_LIFE_DEAD, 100 * NG_S);
    EXPECT_EQ(view_.processes[0].life, NG_LIFE_ENDED_BY_GUARD);
    add(NG_LIFE_STOPPED, 100 * NG_S);
    EXPECT_EQ(view_.processes[1].life, NG_LIFE_STOPPED);
}

TEST_F(FromBox, ADeadProcessAgesNoFurtherThanItsLastHeartbeat)
{
    box_.header->heartbeat_mono_ns = 90 * NG_S;
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "");
    writer.collective(0, NG_RECORD_STARTED, 80 * NG_S);
    add(NG_LIFE_DEAD, 1000 * NG_S);
    EXPECT_EQ(view_.processes[0].life, NG_LIFE_DEAD);
    EXPECT_EQ(view_.members[0].records[0].entered_age_ns, 10 * NG_S);
}

TEST_F(FromBox, DamagedSlotsAreLeftOutWithANote)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 7, "rank beyond the group");
    writer.group(1, 0xabd, 4, 1, "good");
    writer.group(2, 0xabe, 4, 1, "state");
    box_.groups[2].state = 99;
    box_.header->group_used = box_.group_capacity + 5;
    add(NG_LIFE_RUNNING, 100 * NG_S);
    ASSERT_EQ(view_.member_count, 1u);
    EXPECT_EQ(view_.groups[view_.members[0].group].id, 0xabdu);
    ASSERT_EQ(view_.note_count, 3u);
    for (uint32_t i = 0; i < view_.note_count; i++)
        EXPECT_EQ(std::string(view_.notes[i]).rfind("box-1-2: ", 0), 0u) << view_.notes[i];
}

TEST_F(FromBox, TextWithoutAnEndIsCut)
{
    Writer writer(&box_);
    writer.group(0, 0xabc, 4, 2, "");
    memset(box_.groups[0].name, 'n', sizeof(box_.groups[0].name));
    memset(box_.header->host, 'h', sizeof(box_.header->host));
    memset(box_.header->job, 'j', sizeof(box_.header->job));
    add(NG_LIFE_RUNNING, 100 * NG_S);
    EXPECT_EQ(strlen(view_.groups[0].name), sizeof(view_.groups[0].name) - 1);
    EXPECT_EQ(strlen(view_.processes[0].host), sizeof(view_.processes[0].host) - 1);
    EXPECT_EQ(strlen(view_.job), sizeof(view_.job) - 1);
}

TEST(View, MembersAreSortedByGroupAndRankWhateverTheOrderOfArrival)
{
    std::mt19937 random(7);
    OwnView view;
    std::vector<std::pair<uint64_t, int>> arrivals;

    for (uint64_t group = 1; group <= 5; group++)
        for (int rank = 0; rank < 64; rank++)
            arrivals.push_back({group, rank});
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    for (size_t i = 0; i < arrivals.size(); i++) {
        ASSERT_NE(ng_view_add_process(&view), nullptr);
        uint32_t group = ng_view_intern_group(&view, arrivals[i].first);
        view.groups[group].nranks = 64;
        ASSERT_NE(ng_view_add_member(&view, (uint32_t)i, group, arrivals[i].second), nullptr);
    }
    ng_view_seal(&view);
    EXPECT_EQ(view.group_count, 5u);
    for (uint32_t group = 0; group < 5; group++) {
        uint32_t count;
        const struct ng_view_member *members = ng_view_members(&view, group, &count);
        ASSERT_EQ(count, 64u);
        for (int rank = 0; rank < 64; rank++) {
            EXPECT_EQ(members[rank].group_rank, rank);
            EXPECT_EQ(ng_view_member(&view, group, rank), &members[rank]);
        }
        EXPECT_EQ(ng_view_member(&view, group, 64), nullptr);
        EXPECT_EQ(ng_view_member(&view, group, -1), nullptr);
        EXPECT_EQ(view.groups[group].member_count, 64u);
    }
    uint32_t count;
    EXPECT_EQ(ng_view_members(&view, 5, &count), nullptr);
    EXPECT_EQ(count, 0u);
}

TEST(View, OfTwoHandlesOfOneRankTheOneInUseComesFirst)
{
    OwnView view;
    ng_view_add_process(&view);
    uint32_t group = ng_view_intern_group(&view, 9);
    view.groups[group].nranks = 2;
    ng_view_add_member(&view, 0, group, 1)->state = NG_GROUP_DESTROYED;
    ng_view_add_member(&view, 0, group, 1)->state = NG_GROUP_READY;
    ng_view_add_member(&view, 0, group, 1)->state = NG_GROUP_ABORTED;
    ng_view_seal(&view);
    EXPECT_EQ(ng_view_member(&view, group, 1)->state, NG_GROUP_READY);
    EXPECT_EQ(view.groups[group].member_count, 1u);
    EXPECT_EQ(view.processes[0].member_count, 3u);
    EXPECT_FALSE(view.processes[0].drives_several);
}

/* One may still be creating it, and knows neither size nor version. */
TEST(View, AGroupIsWhatItsBestInformedRankTells)
{
    OwnView view;
    struct ng_view_group told = {.id = 9};
    for (int order = 0; order < 3; order++) {
        bool informed = order == 1;
        told.nranks = informed ? 4 : 0;
        told.nccl_version = informed ? 22809 : 0;
        told.parent_id = informed ? 5 : 0;
        snprintf(told.name, sizeof(told.name), "%s", informed ? "dp" : "");
        EXPECT_EQ(ng_view_tell_group(&view, &told), 0u);
    }
    EXPECT_EQ(view.group_count, 1u);
    EXPECT_EQ(view.groups[0].nranks, 4);
    EXPECT_EQ(view.groups[0].nccl_version, 22809);
    EXPECT_EQ(view.groups[0].parent_id, 5u);
    EXPECT_STREQ(view.groups[0].name, "dp");
}

TEST(View, FindsGroupsByIdHoweverMany)
{
    OwnView view;
    for (int round = 0; round < 2; round++)
        for (uint64_t id = 0; id < 20000; id++)
            ASSERT_EQ(ng_view_intern_group(&view, id << 32 | id % 7), id);
    EXPECT_EQ(view.group_count, 20000u);
}

TEST(View, KnowsGroupsWithTheSameMembers)
{
    Job job(4, 1, "world");
    job.group(2, "half", {0, 1});
    job.group(3, "half again", {0, 1});
    job.group(4, "half, turned round", {1, 0});
    job.group(5, "other half", {2, 3});
    job.group(6, "world again");
    job.group(7, "world, one unknown");
    job.forget(7, 2);
    job.group(8, "half on another device", {0, 1});
    job.at(8, 0).device = 1;
    JobView view(job);
    std::map<uint64_t, uint64_t> same;
    for (uint32_t group = 0; group < view.group_count; group++)
        same[view.groups[group].id] = view.groups[ng_view_same_members(&view, group)].id;
    EXPECT_EQ(same, (std::map<uint64_t, uint64_t>{
                        {1, 1}, {2, 2}, {3, 2}, {4, 4}, {5, 5}, {6, 1}, {7, 7}, {8, 8}}));
}

TEST(View, RanksThatCollideNameNobody)
{
    OwnView view;
    for (int i = 0; i < 5000; i++) {
        struct ng_view_process *process = ng_view_add_process(&view);
        process->life = i % 7 == 6 ? NG_LIFE_DEAD : i % 2 ? NG_LIFE_STOPPED : NG_LIFE_RUNNING;
        /* The first thousand twice; a dead one's rank was given to its successor. */
        process->rank = i < 4000 ? i * 16 : (i - 4000) * 16;
        process->world_size = 1 << 20;
    }
    ng_view_seal(&view);
    for (int i = 0; i < 5000; i++) {
        int other = i < 1000 ? i + 4000 : i >= 4000 ? i - 4000 : i;
        bool collides = other != i && i % 7 != 6 && other % 7 != 6;
        EXPECT_EQ(view.processes[i].rank_collides, collides) << i;
        EXPECT_EQ(view.processes[i].rank, collides ? -1 : i < 4000 ? i * 16 : (i - 4000) * 16) << i;
    }
}

TEST(View, AnEmptyViewIsNoTrouble)
{
    struct ng_view view;
    uint32_t count;
    ng_view_init(&view);
    ng_view_seal(&view);
    EXPECT_EQ(ng_view_members(&view, 0, &count), nullptr);
    ng_view_note(&view, "%s", std::string(10000, 'n').c_str());
    EXPECT_EQ(view.note_count, 1u);
    ng_view_fini(&view);
    ng_view_fini(&view);
}

TEST(View, FindsACollectiveHoweverManyThatCountForNothingStandBeforeIt)
{
    std::vector<struct ng_view_record> records;
    auto call = [&](uint64_t seq, enum ng_record_state state) {
        struct ng_view_record record = {};
        record.id = records.size() + 1;
        record.state = state;
        record.signature.op = NG_OP_AllReduce;
        record.signature.root = -1;
        record.coll_seq = seq;
        records.push_back(record);
    };
    uint64_t seq = 0;
    for (int i = 0; i < 100; i++)
        call(++seq, NG_RECORD_COMPLETED);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 1; i <= 100; i++)
            call(seq + i, NG_RECORD_CAPTURED); /* of one NCCL group */
        for (int i = 0; i < 100; i++)
            call(seq + 1, NG_RECORD_CAPTURED); /* each by itself */
        for (int i = 0; i < 100; i++)
            call(++seq, NG_RECORD_COMPLETED);
    }
    for (uint64_t i = 1; i <= 50; i++)
        call(seq + i, NG_RECORD_FAILED);
    std::swap(records[10], records[14]); /* two threads were at it */
    struct ng_view_member member = {.records = records.data(),
                                    .record_count = (uint32_t)records.size()};
    for (uint64_t wanted = 1; wanted <= seq; wanted++) {
        const struct ng_view_record *found = ng_view_collective(&member, wanted);
        ASSERT_NE(found, nullptr) << wanted;
        EXPECT_EQ(found->coll_seq, wanted);
        EXPECT_EQ(found->state, NG_RECORD_COMPLETED) << wanted;
    }
    EXPECT_EQ(ng_view_collective(&member, seq + 1), nullptr);
    EXPECT_EQ(ng_view_collective(&member, 0), nullptr);
}

TEST(View, TheRankToNameIsTheLaunchersElseThatInTheLargestGroup)
{
    struct ng_view view;
    Job told(4);
    told.group(1, "tp", {2, 3});
    told.fill(&view);
    EXPECT_EQ(ng_view_rank(&view, ng_view_member(&view, 0, 0)), 2);
    EXPECT_EQ(ng_view_rank(&view, ng_view_member(&view, 0, 1)), 3);
    ng_view_fini(&view);

    Job untold(4, false);
    untold.group(1, "tp", {2, 3});
    untold.group(2, "world");
    untold.fill(&view);
    uint32_t tp = ng_view_intern_group(&view, 1);
    EXPECT_EQ(ng_view_rank(&view, ng_view_member(&view, tp, 0)), 2);
    EXPECT_EQ(ng_view_rank(&view, ng_view_member(&view, tp, 1)), 3);
    ng_view_fini(&view);

    /* One process, four devices: the rank of the launcher says nothing. */
    Job devices(1);
    devices.group(1, "world", {0, 0, 0, 0});
    for (int rank = 0; rank < 4; rank++)
        devices.at(1, rank).device = rank;
    devices.fill(&view);
    EXPECT_TRUE(view.processes[0].drives_several);
    for (int rank = 0; rank < 4; rank++)
        EXPECT_EQ(ng_view_rank(&view, ng_view_member(&view, 0, rank)), rank);
    ng_view_fini(&view);
}
