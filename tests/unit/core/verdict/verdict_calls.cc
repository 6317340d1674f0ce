/*
 * The calls that a verdict shows, of culprits and of a rank that waits.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

namespace
{

struct Shown {
    int rank;
    bool waits;
    uint64_t group, seq;
    bool operator==(const Shown &other) const
    {
        return rank == other.rank && waits == other.waits && group == other.group &&
               seq == other.seq;
    }
};

/* The calls that the verdict shows when every record has frames. */
std::vector<Shown> shown_calls(const Job &job)
{
    struct ng_verdict verdict;
    struct ng_verdict_query query = {};
    struct ng_view_frame frame = {};
    struct ng_view_call_stack stack = {};
    std::vector<Shown> shown;

    query.stalled_ns = STALLED;
    JobView view(job);
    stack.count = 1;
    stack.frames = &frame;
    uint32_t index = ng_view_intern_call_stack(&view, &stack);
    for (uint32_t i = 0; i < view.member_count; i++)
        for (uint32_t k = 0; k < view.members[i].record_count; k++)
            view.members[i].records[k].call_stack = index;
    EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
    for (uint32_t i = 0; i < verdict.call_count; i++)
        shown.push_back({verdict.calls[i].rank, verdict.calls[i].waits, verdict.calls[i].group_id,
                         verdict.calls[i].seq});
    ng_verdict_fini(&verdict);
    return shown;
}

} // namespace

TEST(Verdict, OfACulpritTheNewestCallIsShownAndOfOneThatWaitsTheOneItIsIn)
{
    Job job = waiting_for(3, {1});
    job.at(WORLD, 0).queued();
    EXPECT_EQ(shown_calls(job), (std::vector<Shown>{{1, false, WORLD, 6}, {0, true, WORLD, 7}}));
}

/* Ids of records grow with each call of a process, whichever communicator it is on. */
TEST(Verdict, OfACulpritWithSeveralCommunicatorsTheNewestCallOfAllIsShown)
{
    constexpr uint64_t OTHER = 0xe, THIRD = 0xf;
    for (uint64_t newest : {WORLD, OTHER, THIRD}) {
        Job job = waiting_for(3, {1});
        job.group(OTHER, "other", {1, 2});
        job.group(THIRD, "third", {1, 2});
        for (uint64_t group : {OTHER, THIRD})
            for (int rank : {0, 1})
                job.at(group, rank).did(2);
        for (uint64_t group : {WORLD, OTHER, THIRD}) {
            Member &culprit = job.at(group, group == WORLD ? 1 : 0);
            for (size_t i = 0; i < culprit.records.size(); i++)
                culprit.records[i].id = (group == newest ? 1000 : 10 * group) + i;
        }
        std::vector<Shown> shown = shown_calls(job);
        ASSERT_FALSE(shown.empty());
        EXPECT_EQ(shown[0], (Shown{1, false, newest, newest == WORLD ? 6u : 2u}));
    }
}
