/*
 * Ranks that came to the making of a communicator and do not mean the same one; the roll call of
 * those who wait; NCCL's variables; releases whose init must not be aborted.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/config/nccl_variables.h"
#include "core/incident/roll_call.h"
#include "core/policy/init_abort.h"
#include "core/verdict/init_mismatch.h"
}

constexpr uint64_t WORLD = 0xd, OTHER = 0xe, SMALL = 0x5;

/* All of `ranks` wait in ncclCommInitRank of WORLD. */
static Job initialising(int ranks, bool launcher_told = true)
{
    Job job(ranks, launcher_told);
    job.group(WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++) {
        job.at(WORLD, rank).state = NG_GROUP_CREATING;
        job.at(WORLD, rank).created_by = NG_OP_CommInitRank;
        job.inside(rank, NG_OP_CommInitRank, WORLD);
    }
    return job;
}

/* `rank` passes another rank's number. */
static Job with_twin(int ranks, int rank, int as, bool launcher_told = true)
{
    Job job = initialising(ranks, launcher_told);
    job.at(WORLD, rank).group_rank = as;
    for (Call &call : job.calls)
        if (call.process == rank)
            call.group_rank = as;
    return job;
}

/* These ranks hold another unique id than the others. */
static Job with_other_id(int ranks, const std::vector<int> &odd, bool launcher_told = true)
{
    Job job = initialising(ranks, launcher_told);
    job.group(OTHER, "dp");
    for (int rank = 0; rank < ranks; rank++) {
        bool is_odd = std::find(odd.begin(), odd.end(), rank) != odd.end();
        job.at(OTHER, rank).state = NG_GROUP_CREATING;
        job.at(OTHER, rank).created_by = NG_OP_CommInitRank;
        job.forget(is_odd ? WORLD : OTHER, rank);
        if (is_odd)
            job.calls[(size_t)rank].group = OTHER;
    }
    return job;
}

/* The line, and how it is logged. */
static std::string roll_of(const Job &job, enum ng_wait_type type = NG_WAIT_CREATE,
                           enum ng_log_level *ret_level = nullptr)
{
    OwnArena arena;
    struct ng_wait_graph waits;
    struct ng_view_index processes;
    char line[NG_ROLL_CALL_LINE_BYTES] = "";
    enum ng_log_level level = NG_LOG_OFF;

    JobView view(job);
    EXPECT_EQ(ng_wait_graph_find(&view, STALLED, &arena, &waits), 0);
    EXPECT_EQ(ng_view_index_find(&view, &arena, &processes), 0);
    for (uint32_t i = 0; i < waits.count && !line[0]; i++)
        if (waits.waits[i].type == type) {
            EXPECT_EQ(ng_roll_call_line(&processes, &waits, i, &arena, line, &level), 0);
        }
    if (ret_level)
        *ret_level = level;
    return line;
}

TEST(InitMismatch, ARankNumberThatTwoHaveIsThatOfWhoWasLaunchedAsAnother)
{
    for (int ranks : {3, 8, 64}) {
        Judgement judgement =
            expect_verdict(judge(with_twin(ranks, ranks - 1, 1)), NG_KIND_INIT_MISMATCH,
                           {ranks - 1}, NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(judgement.op, NG_OP_CommInitRank);
        judgement.because("as rank 1 of");
        judgement.because("no process called it as rank " + std::to_string(ranks - 1));
        EXPECT_TRUE(judgement.missing.empty());
        EXPECT_EQ(judgement.waiting.size(), (size_t)ranks - 1);
    }
}

TEST(InitMismatch, OfTwoRanksTheLaunchersWordIsOnlyLikely)
{
    expect_verdict(judge(with_twin(2, 1, 0)), NG_KIND_INIT_MISMATCH, {1}, NG_CONFIDENCE_LIKELY);
}

TEST(InitMismatch, WithoutALauncherBothOfOneNumberAreNamedAndNobodyIsBlamedForSure)
{
    Judgement judgement = expect_verdict(judge(with_twin(4, 3, 1, false)), NG_KIND_INIT_MISMATCH,
                                         ANYBODY, NG_CONFIDENCE_UNKNOWN);
    EXPECT_EQ(judgement.culprits.size(), 2u);
    judgement.because("it is not known which are wrong");
}

/* Ranks of a part of a job are numbered anew: the launcher's numbers say nothing there. */
TEST(InitMismatch, TheLauncherOfALargerJobSaysNothingOfItsParts)
{
    Job job = with_twin(4, 3, 1);
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).world_size = 8;
    Judgement judgement =
        expect_verdict(job, NG_KIND_INIT_MISMATCH, ANYBODY, NG_CONFIDENCE_UNKNOWN);
    EXPECT_EQ(judgement.culprits.size(), 2u);
}

TEST(InitMismatch, ATwinThatNcclToldOfAFailureIsOneAsWell)
{
    Job job = initialising(4);
    job.at(WORLD, 3).state = NG_GROUP_FAILED;
    job.at(WORLD, 3).group_rank = 1;
    job.calls.pop_back();
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {3});
}

TEST(InitMismatch, ATwinThatIsDeadIsATriedAgainAndNoMismatch)
{
    Job job = with_twin(4, 3, 1);
    job.process(3).life = NG_LIFE_DEAD;
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
}

TEST(InitMismatch, AnotherNumberOfRanksIsThatOfTheFew)
{
    for (int said : {3, 9}) {
        Job job = initialising(8);
        job.at(WORLD, 2).nranks = said;
        expect_verdict(job, NG_KIND_INIT_MISMATCH, {2}, NG_CONFIDENCE_CERTAIN)
            .because("with " + std::to_string(said) + " ranks where the others say 8");
    }
}

TEST(InitMismatch, OfTwoSizesTheJobsIsLikelyMeantAndElseNobodyKnows)
{
    Job job = initialising(2);
    job.at(WORLD, 0).nranks = 3;
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {0}, NG_CONFIDENCE_LIKELY);

    Job untold = initialising(2, false);
    untold.at(WORLD, 0).nranks = 3;
    expect_verdict(judge(untold), NG_KIND_INIT_MISMATCH, {0, 1}, NG_CONFIDENCE_UNKNOWN);
}

TEST(InitMismatch, AnotherUniqueIdIsThatOfTheFew)
{
    for (int ranks : {3, 8, 64}) {
        Judgement judgement =
            expect_verdict(judge(with_other_id(ranks, {ranks - 1})), NG_KIND_INIT_MISMATCH,
                           {ranks - 1}, NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(judgement.group, WORLD);
        judgement.because("with another unique id");
        EXPECT_EQ(judgement.waiting.size(), (size_t)ranks - 1);
    }
    /* Rank 0 is wrong, too, if all others agree. */
    EXPECT_EQ(judge(with_other_id(4, {0})).culprits, std::vector<int>{0});
}

TEST(InitMismatch, OfTwoIdsThatOfRank0IsLikelyMeant)
{
    expect_verdict(judge(with_other_id(2, {1})), NG_KIND_INIT_MISMATCH, {1}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judge(with_other_id(4, {2, 3})).culprits, (std::vector<int>{2, 3}));
}

/* Two runs of one name, started by hand, whose ranks complement each other: no rank of the one is
 * wrong for the other. */
TEST(InitMismatch, IdsOfWhatMayBeTwoRunsAreUnclear)
{
    Job job = with_other_id(4, {3});
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).run_word = rank == 3 ? 8 : 7;
    expect_verdict(judge(job), NG_KIND_INIT_MISMATCH, {0, 1, 2, 3}, NG_CONFIDENCE_UNKNOWN)
        .because("it is unclear whether they are of one run");
    /* One launcher, or an older communicator, tells that they are one. */
    job.process(3).run_word = 7;
    expect_verdict(judge(job), NG_KIND_INIT_MISMATCH, {3}, NG_CONFIDENCE_CERTAIN);
    job.process(3).run_word = 8;
    job.process(2).run_word = 8;
    expect_verdict(judge(job), NG_KIND_INIT_MISMATCH, {3}, NG_CONFIDENCE_CERTAIN);
    job.process(2).run_word = 7;
    job.group(SMALL, "pp", {0, 3});
    expect_verdict(judge(job), NG_KIND_INIT_MISMATCH, {3}, NG_CONFIDENCE_CERTAIN);
}

/* Two small groups, each of which lacks a rank that hangs elsewhere, are no one group. */
TEST(InitMismatch, TwoGroupsOfAPartOfTheJobAreTwoGroups)
{
    Job job(8);
    job.group(WORLD, "tp", {0, 1});
    job.group(OTHER, "tp", {2, 3});
    for (auto [group, rank, process] : {std::tuple{WORLD, 0, 0}, {OTHER, 1, 3}}) {
        job.at(group, rank).state = NG_GROUP_CREATING;
        job.at(group, rank).created_by = NG_OP_CommInitRank;
        job.inside(process, NG_OP_CommInitRank, group);
    }
    job.forget(WORLD, 1);
    job.forget(OTHER, 0);
    expect_kind(judge(job), NG_KIND_INIT_MISSING_RANK);
}

TEST(InitMismatch, AnotherReleaseIsToldOnlyWhereAllHaveCome)
{
    Job job = initialising(4);
    job.at(WORLD, 1).nccl_version = 22605;
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {1}, NG_CONFIDENCE_CERTAIN)
        .because("has NCCL 2.26.5 where the others have 2.28.9");

    /* With a rank missing NCCL has not come to it yet. */
    job.forget(WORLD, 3);
    expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {3});
}

TEST(InitMismatch, OneDeviceTwiceIsThatOfWhoIsNotWhereItsLauncherPutIt)
{
    Job job = initialising(4);
    for (int rank = 0; rank < 4; rank++) {
        job.process(rank).local_rank = rank;
        job.at(WORLD, rank).device = rank;
        job.at(WORLD, rank).pci_id = "0000:0" + std::to_string(rank) + ":00.0";
    }
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
    job.at(WORLD, 2).device = 1;
    job.at(WORLD, 2).pci_id = "0000:01:00.0";
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {2}, NG_CONFIDENCE_LIKELY);
    /* The same bus on another host is another device. */
    job.process(2).host = "elsewhere";
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
    /* Unless NCCL is told that both are one host. */
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).nccl_variables = "NCCL_HOSTID=all";
    expect_kind(judge(job), NG_KIND_INIT_MISMATCH);
}

/* Who has an NCCL_HOSTID of its own may share a device, as is usual where several ranks have one
 * GPU. */
TEST(InitMismatch, RanksThatNcclTakesForOtherHostsMayShareADevice)
{
    Job job = initialising(4);
    for (int rank = 0; rank < 4; rank++) {
        job.process(rank).local_rank = rank;
        job.at(WORLD, rank).device = 0;
        job.at(WORLD, rank).pci_id = "0000:01:00.0";
        job.process(rank).nccl_variables = "NCCL_HOSTID=rank-" + std::to_string(rank);
    }
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
    /* Of those who have none, and of those who have one, each alone. */
    job.process(1).nccl_variables = "";
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
    job.process(3).nccl_variables = "NCCL_HOSTID=rank-2";
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {2, 3});
    /* What is about pairs of a host is not about them. */
    job.process(3).nccl_variables = "NCCL_HOSTID=rank-3 NCCL_P2P_DISABLE=1";
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
    job.process(2).nccl_variables = "NCCL_HOSTID=rank-3";
    job.at(WORLD, 2).pci_id = "0000:02:00.0";
    expect_kind(judge(job), NG_KIND_INIT_MISMATCH);
}

TEST(InitMismatch, AVariableThatDiffersIsNeverSurelyTheReason)
{
    Job job = initialising(4);
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).nccl_variables = rank == 3 ? "NCCL_IB_DISABLE=1" : "";
    expect_verdict(job, NG_KIND_INIT_MISMATCH, {3}, NG_CONFIDENCE_LIKELY)
        .because("NCCL_IB_DISABLE = 1, the others not set");
    /* What only the work goes by hangs no init. */
    job.process(3).nccl_variables = "NCCL_ALGO=Ring";
    EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH);
}

TEST(InitMismatch, TheFirstCollectiveHangsByTheVariablesOfWork)
{
    for (uint64_t seq : {1, 2}) {
        Job job(4, WORLD, "dp");
        for (int rank = 0; rank < 4; rank++) {
            job.at(WORLD, rank).did((int)seq - 1).waits();
            job.process(rank).nccl_variables = rank == 1 ? "NCCL_PROTO=LL" : "NCCL_PROTO=Simple";
        }
        Judgement judgement = judge(job);
        expect_kind(judgement, seq == 1 ? NG_KIND_INIT_MISMATCH : NG_KIND_GPU_STALL);
        if (seq == 1) {
            EXPECT_EQ(judgement.culprits, std::vector<int>{1});
        }
    }
}

/* Which transport connects two GPUs of a host says nothing about the next host. */
TEST(InitMismatch, VariablesAboutPairsOfAHostAreComparedThereAlone)
{
    for (const char *text : {"NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=SYS", "NCCL_SHM_DISABLE=1"}) {
        Job job = initialising(6);
        for (int rank = 0; rank < 6; rank++) {
            job.process(rank).host = rank < 3 ? "a" : "b";
            job.process(rank).nccl_variables = rank < 3 ? "" : text;
        }
        EXPECT_NE(judge(job).kind, NG_KIND_INIT_MISMATCH) << text;
        /* All others of its host have it, most of the job have not. */
        job.process(5).nccl_variables = "";
        expect_verdict(job, NG_KIND_INIT_MISMATCH, {5}).because("not set, the others of its host ");
    }
}

/* A device that has not reached the first collective is held up by what is queued there. */
TEST(InitMismatch, ADeviceStallOfAFirstCollectiveIsNotTakenForVariables)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).waits();
        job.at(WORLD, rank).pending_started = rank != 2;
        job.process(rank).nccl_variables = rank == 1 ? "NCCL_PROTO=LL" : "NCCL_PROTO=Simple";
    }
    expect_verdict(job, NG_KIND_GPU_STALL, {2});
}

/* Variables may hang a collective; that a rank does not come to one does. */
TEST(InitMismatch, VariablesAreNoReasonWhereARankIsMissingElsewhere)
{
    Job job(4, WORLD, "dp");
    job.group(SMALL, "tp", {1, 2});
    job.group(OTHER, "pp", {0, 3});
    for (int rank = 0; rank < 4; rank++)
        job.process(rank).nccl_variables = rank == 1 ? "NCCL_PROTO=LL" : "NCCL_PROTO=Simple";
    for (int rank = 0; rank < 2; rank++)
        job.at(SMALL, rank).waits();
    job.at(OTHER, 0).did(3).waits();
    job.at(OTHER, 1).did(3);
    expect_verdict(job, NG_KIND_MISSING_RANK, {3});
}

TEST(InitMismatch, WhoWasToldThatItFailedIsNamedWhereNothingElseIsKnown)
{
    Job job = initialising(4);
    job.at(WORLD, 2).state = NG_GROUP_FAILED;
    job.calls.erase(job.calls.begin() + 2);
    expect_verdict(job, NG_KIND_INIT_MISSING_RANK, {2})
        .because("where NCCL reported that it failed");
}

TEST(RollCall, FoldsThoseWhoCameAndSaysWhereTheOthersAre)
{
    Job job = initialising(64);
    job.group(SMALL, "tp", {3, 4});
    for (int rank : {3, 4, 6, 60})
        job.forget(WORLD, rank);
    std::vector<Call> left;
    for (const Call &call : job.calls)
        if (call.process != 3 && call.process != 4 && call.process != 6 && call.process != 60)
            left.push_back(call);
    job.calls = left;
    job.at(SMALL, 0).did(4);
    job.inside(3, NG_OP_AllReduce, SMALL, 5);
    job.inside(4, NG_OP_AllReduce, SMALL, 5);
    job.process(6).life = NG_LIFE_DEAD;
    std::string line = roll_of(job);
    EXPECT_PRED2(mentions, line,
                 "CommInitRank of group \"dp\" waits for 30.0 s: 60 of 64 came "
                 "(0-2,5,7-59,61-63); missing");
    EXPECT_PRED2(mentions, line, "3,4 (in AllReduce #5 of group \"tp\")");
    EXPECT_PRED2(mentions, line, "6 (dead)");
    EXPECT_PRED2(mentions, line, "60 (alive, in no NCCL call)");
}

TEST(RollCall, IsBoundedHoweverManyAreMissing)
{
    Job job = initialising(2000);
    std::vector<Call> left;
    for (const Call &call : job.calls) {
        if (call.process % 2)
            job.forget(WORLD, call.process);
        else
            left.push_back(call);
    }
    job.calls = left;
    for (int rank = 1; rank < 2000; rank += 2)
        if (rank % 40 == 1)
            job.inside(rank, NG_OP_Broadcast, (uint64_t)rank + 100, (uint64_t)rank);
    std::string line = roll_of(job);
    EXPECT_LT(line.size(), (size_t)NG_ROLL_CALL_LINE_BYTES);
    EXPECT_PRED2(mentions, line, "...");
    EXPECT_PRED2(mentions, line, "1000 of 2000 came");
}

TEST(RollCall, SaysWhereRanksDisagree)
{
    EXPECT_PRED2(mentions, roll_of(with_twin(4, 3, 1)), "they disagree on the rank");
    EXPECT_PRED2(mentions, roll_of(with_other_id(4, {3})),
                 "missing 3 (in CommInitRank of group \"dp\"); they disagree on the "
                 "unique id");
}

TEST(RollCall, WarnsOfRanksThatDoNotComeAndOfWhatTakesLong)
{
    enum ng_log_level level;
    Job job = initialising(4);
    EXPECT_PRED2(mentions, roll_of(job, NG_WAIT_CREATE, &level),
                 "4 of 4 came (0-3), nobody is missing");
    EXPECT_EQ(level, NG_LOG_WARN) << "for half a minute";
    for (Call &call : job.calls)
        call.age_ns = 20 * NG_S;
    roll_of(job, NG_WAIT_CREATE, &level);
    EXPECT_EQ(level, NG_LOG_INFO);
    job.calls.pop_back();
    job.forget(WORLD, 3);
    EXPECT_PRED2(mentions, roll_of(job, NG_WAIT_CREATE, &level), "missing 3");
    EXPECT_EQ(level, NG_LOG_WARN);
    Job twins = with_twin(4, 3, 1);
    for (Call &call : twins.calls)
        call.age_ns = 20 * NG_S;
    EXPECT_PRED2(mentions, roll_of(twins, NG_WAIT_CREATE, &level), "they disagree on the rank");
    EXPECT_EQ(level, NG_LOG_WARN);
}

TEST(RollCall, SaysWhoIsInsideTheFirstSendsAndReceives)
{
    enum ng_log_level level;
    Job job(4, WORLD, "pp");
    for (int rank = 0; rank < 2; rank++) {
        enum ng_op op = rank ? NG_OP_Recv : NG_OP_Send;
        Member &member = job.at(WORLD, rank).p2p(op, 1 - rank, false);
        member.records.back().state = NG_RECORD_ENTERED;
        member.pending_record = 0;
        member.pending_age_ns = 0;
        job.inside(rank, op, WORLD, 0, 20 * NG_S);
    }
    std::string line = roll_of(job, NG_WAIT_P2P, &level);
    EXPECT_PRED2(mentions, line,
                 "waits for 20.0 s: 2 ranks are inside the call, nobody is missing");
    EXPECT_EQ(level, NG_LOG_INFO);
    job.at(WORLD, 1).records.clear();
    job.at(WORLD, 1).p2p_entered = 0;
    job.calls.pop_back();
    line = roll_of(job, NG_WAIT_P2P, &level);
    EXPECT_PRED2(mentions, line, "1 rank is inside the call; missing 1 (alive, in no NCCL call)");
    EXPECT_EQ(level, NG_LOG_WARN);
}

TEST(RollCall, ARankThatNobodyHasSeenIsNotSaidToBeAnywhere)
{
    Job job = initialising(4, false);
    job.forget(WORLD, 2);
    EXPECT_PRED2(
        mentions, roll_of(job),
        "missing 2 (no sign of it: not started, or it has not created a communicator yet)");
}

TEST(Variables, OnlyThoseOfTheTableAreReadAndFound)
{
    char text[NG_BOX_VARIABLES_BYTES], value[64];
    setenv("NCCL_ALGO", "Ring, Tree", 1);
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    ng_nccl_variables_read(text, sizeof(text));
    EXPECT_STREQ(text, "NCCL_IB_DISABLE=1 NCCL_ALGO=Ring,_Tree");
    EXPECT_TRUE(ng_nccl_variables_find(text, "NCCL_ALGO", value, sizeof(value)));
    EXPECT_STREQ(value, "Ring,_Tree");
    EXPECT_FALSE(ng_nccl_variables_find(text, "NCCL_IB", value, sizeof(value)));
    char little[24];
    ng_nccl_variables_read(little, sizeof(little));
    EXPECT_STREQ(little, "NCCL_IB_DISABLE=1") << "whole ones only";
    for (const char *name : {"NCCL_ALGO", "NCCL_DEBUG", "NCCL_IB_DISABLE"})
        unsetenv(name);
    ng_nccl_variables_read(text, sizeof(text));
    EXPECT_STREQ(text, "");
}

TEST(InitAbort, IsUnsafeInTheReleasesOfTheTableAlone)
{
    for (int version : {2408, 2804, 20908, 21104, 21212, 21304, 21403, 21505, 21602})
        EXPECT_NE(ng_init_abort_unsafe(version), nullptr) << version;
    for (int version : {0, 21605, 21806, 22809, 23007})
        EXPECT_EQ(ng_init_abort_unsafe(version), nullptr) << version;
}
