/*
 * What is judged of a job that has ended: which rank was first, where that was seen.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "tools/ingest/mismatches.h"
#include "tools/judge/postmortem.h"
}

namespace
{

constexpr int KILLED = NG_EXIT_STATUS_SIGNAL;

/* How a rank ended, and when. */
struct Fate {
    enum ng_life life;
    int exit_status;
    int64_t at_ms;
    const char *host = "";
    int64_t wall_clock_ms = 0; /* so far its wall clock is ahead of the others' */
};

const Fate told_to_end = {NG_LIFE_DEAD, KILLED + SIGTERM, 5};

struct Told {
    enum ng_verdict_kind kind;
    enum ng_confidence confidence;
    std::vector<int> culprits;
    std::string line;
};

/* What the ranks were in: call 10, for 3 ms, which nobody had noticed yet. */
struct Work {
    int64_t waited_ms = 3;
    bool all_came = false;   /* rank 1, too */
    int64_t aborted_ms = 0;  /* rank 0 aborted the communicator so long before its end */
    bool seen = true;        /* by its watchdog */
    bool wall_clock = false; /* its clocks tell no more than that */
    bool idle = false;       /* nobody: they are between calls */
    bool inits = false;      /* instead, the making of the group, to which rank 1 did not come */
    bool told = false;       /* a guard had reported that rank 1 was missing */
    int behind = 0;          /* the last rank waits so many calls earlier, as its watchdog has it */
};

Told judge_ended(const std::vector<Fate> &fates, Work work = {})
{
    Job job((int)fates.size());
    job.group(0xd, "dp");
    for (int rank = 0; rank < (int)fates.size(); rank++) {
        if (work.inits) {
            job.at(0xd, rank).state = NG_GROUP_CREATING;
            if (rank == 1)
                job.forget(0xd, rank);
            else
                job.inside(rank, NG_OP_CommInitRank, 0xd, 0, work.waited_ms * NG_MS);
        } else {
            job.at(0xd, rank).did(9 - (rank + 1 == (int)fates.size() ? work.behind : 0));
            if (!work.idle && (work.all_came || rank != 1))
                job.at(0xd, rank).waits(all_reduce(), work.waited_ms * NG_MS);
            if (work.aborted_ms && rank == 0)
                job.at(0xd, rank).aborts(work.aborted_ms * NG_MS, work.seen);
        }
        job.process(rank).life = fates[(size_t)rank].life;
        job.process(rank).exit_status = fates[(size_t)rank].exit_status;
        job.process(rank).life_age_ns = NG_S - fates[(size_t)rank].at_ms * NG_MS;
        job.process(rank).alive_age_ns = NG_S;
        job.process(rank).host = *fates[(size_t)rank].host ? fates[(size_t)rank].host : "here";
    }
    struct ng_verdict verdict;
    struct ng_postmortem postmortem = {};
    struct ng_incident incident = {
        .group_id = 0xd, .seq = 10, .op = NG_OP_AllReduce, .kind = NG_KIND_MISSING_RANK};
    postmortem.told = &incident;
    postmortem.told_count = work.told;
    JobView view(job);
    for (uint32_t i = 0; i < view.process_count; i++) {
        int64_t at_ns = fates[i].at_ms * NG_MS;
        view.processes[i].moment_unix_ns = 1000 * NG_S + at_ns + fates[i].wall_clock_ms * NG_MS;
        view.processes[i].moment_mono_ns = work.wall_clock ? 0 : 500 * NG_S + at_ns;
    }
    EXPECT_EQ(ng_postmortem_judge(&view, &postmortem, &verdict), 0);
    char line[NG_REPORT_LINE_BYTES];
    ng_report_line(&verdict, line, sizeof(line));
    Told told = {verdict.kind, verdict.confidence, {}, line};
    for (uint32_t i = 0; i < verdict.culprit_count; i++)
        told.culprits.push_back(verdict.culprits[i].rank);
    ng_verdict_fini(&verdict);
    return told;
}

/* All ranks had finished all that they called, but `left` them open. */
struct ng_verdict judge_between_calls(const std::vector<enum ng_life> &lives,
                                      enum ng_group_state left,
                                      std::vector<std::string> *ret_doubts)
{
    Job job((int)lives.size(), 0xd, "dp", 9);
    for (int rank = 0; rank < (int)lives.size(); rank++) {
        job.process(rank).life = lives[(size_t)rank];
        job.process(rank).life_age_ns = job.process(rank).alive_age_ns = NG_S;
        job.at(0xd, rank).state = left;
    }
    struct ng_verdict verdict;
    struct ng_postmortem postmortem = {};
    JobView view(job);
    EXPECT_EQ(ng_postmortem_judge(&view, &postmortem, &verdict), 0);
    ret_doubts->assign(verdict.missing_evidence,
                       verdict.missing_evidence + verdict.missing_evidence_count);
    struct ng_verdict told = {.kind = verdict.kind, .confidence = verdict.confidence};
    ng_verdict_fini(&verdict);
    return told;
}

} // namespace

TEST(Postmortem, TheRankThatCrashedBeforeItsLauncherEndedTheOthersDied)
{
    for (int ranks : {2, 4})
        for (int number : {SIGSEGV, SIGABRT, SIGKILL}) {
            std::vector<Fate> fates((size_t)ranks, told_to_end);
            fates[1] = {NG_LIFE_DEAD, KILLED + number, 0};
            Told told = judge_ended(fates);
            EXPECT_EQ(told.kind, NG_KIND_DEAD_RANK) << ranks << " ranks, signal " << number;
            EXPECT_EQ(told.confidence, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(told.culprits, std::vector<int>{1});
        }
}

TEST(Postmortem, TheRankThatFailedBeforeItsLauncherEndedTheOthersLeftEarly)
{
    Told told = judge_ended({told_to_end, {NG_LIFE_EXITED, 7, 0}, told_to_end});
    EXPECT_EQ(told.kind, NG_KIND_LEFT_EARLY);
    EXPECT_EQ(told.confidence, NG_CONFIDENCE_CERTAIN);
    EXPECT_EQ(told.culprits, std::vector<int>{1});
}

/* The first one has, and so they do not wait for it there; they were ended before their watchdogs
 * saw that, or before their next call. */
TEST(Postmortem, NobodyWaitsForTheFirstInACallThatItHasFinished)
{
    for (Fate end : {Fate{NG_LIFE_DEAD, KILLED + SIGSEGV, 0}, Fate{NG_LIFE_EXITED, 7, 0}})
        for (int64_t waited_ms : {3, 30})
            for (int behind : {1, 3}) {
                Told told = judge_ended({told_to_end, end, told_to_end, told_to_end},
                                        {.waited_ms = waited_ms, .behind = behind});
                EXPECT_EQ(told.kind,
                          end.life == NG_LIFE_DEAD ? NG_KIND_DEAD_RANK : NG_KIND_LEFT_EARLY);
                EXPECT_EQ(told.culprits, std::vector<int>{1});
                EXPECT_NE(told.line.find("AllReduce #10"), std::string::npos) << told.line;
            }
}

/* Each process has taken the wall clock's time once, and may have been held up in between. */
TEST(Postmortem, WhichRankEndedFirstIsKnownByTheClockOfTheirHost)
{
    Fate crashed = {NG_LIFE_DEAD, KILLED + SIGSEGV, 0, "", 20};
    Told told = judge_ended({told_to_end, crashed, told_to_end});
    EXPECT_EQ(told.kind, NG_KIND_DEAD_RANK);
    EXPECT_EQ(told.confidence, NG_CONFIDENCE_CERTAIN);
    EXPECT_EQ(told.culprits, std::vector<int>{1});
    crashed = {NG_LIFE_DEAD, KILLED + SIGSEGV, 5, "", -20};
    told = judge_ended({told_to_end, crashed, told_to_end});
    EXPECT_NE(told.confidence, NG_CONFIDENCE_CERTAIN) << "at one time";
    crashed.at_ms = 0;
    crashed.wall_clock_ms = 0;
    told = judge_ended({told_to_end, crashed, told_to_end}, {.wall_clock = true});
    EXPECT_EQ(told.kind, NG_KIND_DEAD_RANK) << "where nothing else is known";
}

/* A framework's watchdog takes its own rank down, and the launcher then ends the others. */
TEST(Postmortem, TheRankThatGaveUpAWaitIsNotToBlame)
{
    for (int ranks : {2, 4}) {
        std::vector<Fate> fates((size_t)ranks, told_to_end);
        fates[0] = {NG_LIFE_DEAD, KILLED + SIGABRT, 0};
        Told told = judge_ended(fates, {.waited_ms = 60000});
        EXPECT_EQ(told.kind, NG_KIND_MISSING_RANK) << ranks << " ranks";
        EXPECT_EQ(told.confidence, NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(told.culprits, std::vector<int>{1});
        told = judge_ended(fates, {.waited_ms = 60000, .all_came = true});
        EXPECT_EQ(told.kind, NG_KIND_GPU_STALL) << ranks << " ranks";
        told = judge_ended(fates, {.waited_ms = 60000, .inits = true});
        EXPECT_EQ(told.kind, NG_KIND_INIT_MISSING_RANK) << ranks << " ranks";
    }
}

/* As PyTorch does where it tears down: then nothing is pending at its end. */
TEST(Postmortem, ARankThatGaveUpMayHaveAbortedItsCommunicatorsBefore)
{
    for (int ranks : {2, 4}) {
        std::vector<Fate> fates((size_t)ranks, told_to_end);
        fates[0] = {NG_LIFE_DEAD, KILLED + SIGABRT, 0};
        for (bool seen : {true, false}) {
            Told told = judge_ended(fates, {.waited_ms = 60000, .aborted_ms = 1000, .seen = seen});
            EXPECT_EQ(told.kind, NG_KIND_MISSING_RANK) << ranks << " ranks";
            EXPECT_EQ(told.confidence, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(told.culprits, std::vector<int>{1});
        }
        /* It went on without it. */
        Told told = judge_ended(fates, {.waited_ms = 60000, .aborted_ms = 6000});
        EXPECT_NE(told.kind, NG_KIND_MISSING_RANK);
    }
}

/* Why a rank that has waited for long crashes or fails may have nothing to do with its wait. */
TEST(Postmortem, AnotherEndAfterALongWaitLeavesADoubt)
{
    for (Fate end : {Fate{NG_LIFE_DEAD, KILLED + SIGSEGV, 0},
                     Fate{NG_LIFE_DEAD, KILLED + SIGKILL, 0}, Fate{NG_LIFE_EXITED, 1, 0}}) {
        Told told = judge_ended({end, told_to_end}, {.waited_ms = 60000});
        EXPECT_EQ(told.kind, NG_KIND_MISSING_RANK) << end.exit_status;
        EXPECT_EQ(told.confidence, NG_CONFIDENCE_LIKELY) << end.exit_status;
        EXPECT_EQ(told.culprits, std::vector<int>{1});
    }
}

/* A guard has mostly reported the wait before a rank gives it up. */
TEST(Postmortem, RanksThatLeftAfterALongWaitAreNotToBlameWhateverWasReportedBefore)
{
    const Fate gave_up = {NG_LIFE_EXITED, 1, 0},
               left_when_told = {NG_LIFE_EXITED, 128 + SIGTERM, 5};

    for (bool reported : {false, true}) {
        for (const auto &fates : std::vector<std::vector<Fate>>{
                 {gave_up, told_to_end},
                 {gave_up, told_to_end, gave_up},
                 {gave_up, told_to_end, told_to_end, told_to_end},
                 {gave_up, left_when_told},
                 {{NG_LIFE_DEAD, KILLED + SIGABRT, 0}, left_when_told, told_to_end},
             }) {
            bool aborted = fates[0].life == NG_LIFE_DEAD;
            Told told = judge_ended(fates, {.waited_ms = 60000, .told = reported});
            EXPECT_EQ(told.kind, NG_KIND_MISSING_RANK) << fates.size() << told.line;
            EXPECT_EQ(told.confidence, aborted ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY);
            EXPECT_EQ(told.culprits, std::vector<int>{1});
            told = judge_ended(fates, {.waited_ms = 60000, .all_came = true, .told = reported});
            EXPECT_EQ(told.kind, NG_KIND_GPU_STALL) << fates.size() << told.line;
        }
    }
}

/* What a guard has reported says more than which rank was the first to fail. */
TEST(Postmortem, ARankThatFailedAfterItWasReportedAsMissingWasMissing)
{
    for (bool reported : {false, true}) {
        Told told = judge_ended({told_to_end, {NG_LIFE_DEAD, KILLED + SIGKILL, 0}, told_to_end},
                                {.waited_ms = 60000, .told = reported});
        EXPECT_EQ(told.kind, reported ? NG_KIND_MISSING_RANK : NG_KIND_DEAD_RANK);
        EXPECT_EQ(told.culprits, std::vector<int>{1});
    }
}

TEST(Postmortem, ARankThatCrashedIsNamedThoughNobodyWaitedForIt)
{
    for (bool idle : {false, true})
        for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
            Told told = judge_ended({{NG_LIFE_DEAD, KILLED + number, 0}, told_to_end},
                                    {.waited_ms = 300, .idle = idle});
            EXPECT_EQ(told.kind, NG_KIND_DEAD_RANK) << number;
            /* A rank that aborts in a call may have waited for too long. */
            EXPECT_EQ(told.confidence,
                      number == SIGABRT && !idle ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(told.culprits, std::vector<int>{0});
            EXPECT_PRED2(mentions, told.line,
                         "rank 0 (host here, pid 1000) died (crashed (signal " +
                             std::to_string(number) + "); its last was AllReduce #" +
                             (idle ? "9" : "10"));
        }
    /* Any other end need be no fault; nor is it one to be ended by a launcher or an operator. */
    for (int status : {0, KILLED + SIGKILL, KILLED + SIGTERM}) {
        Told told = judge_ended({{NG_LIFE_DEAD, status, 0}, told_to_end}, {.idle = true});
        EXPECT_EQ(told.kind, NG_KIND_HEALTHY) << status;
    }
    /* Programs may end by abort() on purpose. */
    Fate abort_at_end = {NG_LIFE_DEAD, KILLED + SIGABRT, 0};
    Told told = judge_ended({abort_at_end, abort_at_end}, {.idle = true});
    EXPECT_EQ(told.kind, NG_KIND_HEALTHY);
    /* Which of several was first is not known. */
    told = judge_ended(
        {{NG_LIFE_DEAD, KILLED + SIGSEGV, 0}, {NG_LIFE_DEAD, KILLED + SIGSEGV, 5}, told_to_end},
        {.idle = true});
    EXPECT_EQ(told.kind, NG_KIND_DEAD_RANK);
    EXPECT_EQ(told.confidence, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(told.culprits, (std::vector<int>{0, 1}));
}

/* That one ended before the others is no reason where all were ended alike, by whatever order of
 * signals a launcher has, nor where the order or the way was not seen. */
TEST(Postmortem, WhoWasMerelyEndedFirstIsNotToBlame)
{
    const struct {
        const char *what;
        Fate first, other;
    } rows[] = {
        {"all by SIGTERM", {NG_LIFE_DEAD, KILLED + SIGTERM, 0}, told_to_end},
        {"all by SIGKILL",
         {NG_LIFE_DEAD, KILLED + SIGKILL, 0},
         {NG_LIFE_DEAD, KILLED + SIGKILL, 5}},
        {"SIGTERM, then SIGKILL",
         {NG_LIFE_DEAD, KILLED + SIGTERM, 0},
         {NG_LIFE_DEAD, KILLED + SIGKILL, 5}},
        {"SIGINT, then SIGTERM", {NG_LIFE_DEAD, KILLED + SIGINT, 0}, told_to_end},
        {"an exit for SIGTERM", {NG_LIFE_EXITED, 128 + SIGTERM, 0}, told_to_end},
        {"a normal exit", {NG_LIFE_EXITED, 0, 0}, told_to_end},
        {"the first not known", {NG_LIFE_DEAD, 0, 0}, told_to_end},
        {"the other not known", {NG_LIFE_DEAD, KILLED + SIGSEGV, 0}, {NG_LIFE_DEAD, 0, 5}},
        {"at one time", {NG_LIFE_DEAD, KILLED + SIGSEGV, 5}, told_to_end},
        {"on different hosts",
         {NG_LIFE_DEAD, KILLED + SIGSEGV, 0},
         {NG_LIFE_DEAD, KILLED + SIGTERM, 5, "there"}},
    };
    for (const auto &row : rows) {
        Told told = judge_ended({row.other, row.first});
        EXPECT_FALSE(told.confidence == NG_CONFIDENCE_CERTAIN && !told.culprits.empty())
            << row.what << ": " << ng_verdict_kind_name(told.kind);
    }
}

/* A first call takes long, and between the last look of a busy machine's watchdogs and the ends of
 * their processes all of the work may have been done. Longer, it is told. */
TEST(Postmortem, RanksThatEndedByThemselvesInACallThatAllHadMadeForAShortTimeTellNothing)
{
    const Fate ended = {NG_LIFE_DEAD, NG_EXIT_STATUS_SILENT + 6, 0};
    Fate later = ended;
    later.at_ms = 5;
    for (const auto &[waited_ms, kind] : std::map<int64_t, enum ng_verdict_kind>{
             {3, NG_KIND_HEALTHY}, {410, NG_KIND_HEALTHY}, {1500, NG_KIND_UNKNOWN}})
        for (const std::vector<Fate> &fates :
             {std::vector<Fate>{ended, ended}, {ended, later}, {later, ended}}) {
            Told told = judge_ended(fates, {.waited_ms = waited_ms, .all_came = true});
            EXPECT_EQ(told.kind, kind) << waited_ms << " ms: " << told.line;
        }
    Told missing = judge_ended({ended, ended}, {.waited_ms = 410});
    EXPECT_EQ(missing.kind, NG_KIND_UNKNOWN) << missing.line;
}

TEST(Postmortem, AJobWhoseRanksWereKilledBetweenCallsIsNotCertainToHaveBeenHealthy)
{
    const struct {
        std::vector<enum ng_life> lives;
        enum ng_group_state left;
        const char *doubt; /* NULL: it is certain */
    } cases[] = {
        {{NG_LIFE_DEAD, NG_LIFE_DEAD, NG_LIFE_DEAD, NG_LIFE_DEAD}, NG_GROUP_READY, "ranks 0-3"},
        {{NG_LIFE_EXITED, NG_LIFE_DEAD, NG_LIFE_EXITED}, NG_GROUP_READY, "rank 1"},
        {{NG_LIFE_RUNNING, NG_LIFE_DEAD, NG_LIFE_DEAD}, NG_GROUP_READY, "ranks 1,2"},
        {{NG_LIFE_DEAD, NG_LIFE_DEAD}, NG_GROUP_DESTROYED, NULL},
        {{NG_LIFE_EXITED, NG_LIFE_EXITED}, NG_GROUP_READY, NULL},
    };
    for (const auto &one : cases) {
        std::vector<std::string> doubts;
        struct ng_verdict verdict = judge_between_calls(one.lives, one.left, &doubts);
        SCOPED_TRACE(one.doubt ? one.doubt : "certain");
        EXPECT_EQ(verdict.kind, NG_KIND_HEALTHY);
        EXPECT_EQ(verdict.confidence, one.doubt ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
        ASSERT_EQ(doubts.size(), one.doubt ? 1u : 0u);
        if (!one.doubt)
            continue;
        EXPECT_EQ(doubts[0], std::string("how ") + one.doubt +
                                 " ended: killed, crashed or _exit, between calls and with "
                                 "communicators open");
    }
}

/* Rank 0 was between two calls when the evidence was written, which the others had made for `ms`.
 */
static enum ng_verdict_kind judge_unwatched(int64_t ms, int64_t stuck_ns)
{
    Job job(3, 0xd, "dp", 9);
    for (int rank = 1; rank < 3; rank++)
        job.at(0xd, rank).waits(all_reduce(), ms * NG_MS);
    job.process(0).watchdog_stuck_ns = stuck_ns;
    struct ng_verdict verdict;
    struct ng_incident incident = {.kind = NG_KIND_WATCHDOG_STUCK};
    struct ng_postmortem postmortem = {};
    postmortem.incident = true;
    postmortem.told = &incident;
    postmortem.told_count = 1;
    JobView view(job);
    EXPECT_EQ(ng_postmortem_judge(&view, &postmortem, &verdict), 0);
    enum ng_verdict_kind kind = verdict.kind;
    ng_verdict_fini(&verdict);
    return kind;
}

/* With NCCLGUARD_CHECK=strict. */
TEST(Mismatches, TheRankWhoseCallTheGuardRefusedIsNamed)
{
    Job job(5, 0xd, "dp", 3);
    for (int rank : {0, 1, 2, 3})
        job.at(0xd, rank).waits(all_reduce(128));
    job.at(0xd, 4).failed(all_reduce(4096)).records.back().result = 5 /* ncclInvalidUsage */;
    job.process(4).is(NG_LIFE_EXITED, NG_S);
    JobView view(job);
    struct ng_difference difference = {};
    difference.group = ng_view_find_group(&view, 0xd);
    difference.seq = difference.last_seq = 4;
    difference.count = 1;
    struct ng_histories histories = {};
    histories.differences = &difference;
    histories.difference_count = 1;
    struct ng_mismatches mismatches;
    ASSERT_EQ(ng_mismatches_find(&view, &histories, &mismatches), 0);
    ASSERT_EQ(mismatches.count, 1u);
    EXPECT_EQ(mismatches.reports[0].confidence, NG_CONFIDENCE_CERTAIN);
    ASSERT_EQ(mismatches.reports[0].culprit_count, 1u);
    EXPECT_EQ(mismatches.reports[0].culprits[0].rank, 4);
    ng_mismatches_fini(&mismatches);
}

TEST(Postmortem, AStuckWatchdogIsToldThoughTheOthersWaitedForAMomentWhenTheEvidenceWasWritten)
{
    EXPECT_EQ(judge_unwatched(36, 2 * NG_S), NG_KIND_WATCHDOG_STUCK);
    /* What had waited before the watchdog was stuck, or for long, is not its doing. */
    EXPECT_EQ(judge_unwatched(36, 30 * NG_MS), NG_KIND_MISSING_RANK);
    EXPECT_EQ(judge_unwatched(2500, 3 * NG_S), NG_KIND_MISSING_RANK);
}
