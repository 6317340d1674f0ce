/*
 * Properties of verdicts over random jobs.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

#include <numeric>

/*
 * Ranks in overlapping groups run one program of collectives, each of which is
 * finished when all its members came. The program is the same on all ranks, so without a fault
 * nothing is ever stuck.
 */
namespace
{

class RandomJob
{
  public:
    explicit RandomJob(unsigned seed)
        : random_(seed), ranks_(2 + (int)(random_() % 15)), job_(ranks_)
    {
        std::vector<int> all(ranks_);
        std::iota(all.begin(), all.end(), 0);
        groups_.push_back(all);
        for (unsigned extra = random_() % 6; extra > 0; extra--) {
            std::vector<int> some = all;
            std::shuffle(some.begin(), some.end(), random_);
            some.resize(2 + random_() % (unsigned)(ranks_ - 1));
            groups_.push_back(some);
        }
        for (size_t g = 0; g < groups_.size(); g++)
            job_.group(id_of(g), ("group " + std::to_string(g)).c_str(), groups_[g]);
        for (unsigned steps = 5 + random_() % 60; steps > 0; steps--) {
            static const struct ng_signature kinds[] = {{NG_OP_AllReduce, 7, 0, -1, 1024},
                                                        {NG_OP_AllGather, 9, -1, -1, 77},
                                                        {NG_OP_Broadcast, 2, -1, 0, 5}};
            program_.push_back({random_() % groups_.size(), kinds[random_() % 3]});
        }
    }

    int ranks() const
    {
        return ranks_;
    }
    size_t steps() const
    {
        return program_.size();
    }
    unsigned pick(size_t count)
    {
        return (unsigned)(random_() % count);
    }

    /*
     * Run: `absent` (-1 nobody) stops before its `stop_at`-th call. Ranks that come to a call that
     * cannot finish wait in it for `age_ns`. Returns who is stuck.
     */
    std::vector<int> run(int absent, size_t stop_at, int64_t age_ns)
    {
        std::vector<size_t> calls(ranks_, 0);
        std::set<int> stuck;
        for (const auto &step : program_) {
            const std::vector<int> &members = groups_[step.group];
            std::vector<int> came;
            for (int rank : members)
                if (!stuck.count(rank) && !(rank == absent && calls[rank] >= stop_at))
                    came.push_back(rank);
            bool complete = came.size() == members.size();
            for (int rank : came) {
                Member &member = job_.at(id_of(step.group), place(step.group, rank));
                if (complete)
                    member.did(1, step.signature);
                else
                    member.waits(step.signature, age_ns);
                calls[rank]++;
                if (!complete)
                    stuck.insert(rank);
            }
        }
        return std::vector<int>(stuck.begin(), stuck.end());
    }
    Job &job()
    {
        return job_;
    }
    /* Nobody reads this rank's evidence, in any group. */
    void forget(int rank)
    {
        for (size_t g = 0; g < groups_.size(); g++)
            for (size_t i = 0; i < groups_[g].size(); i++)
                if (groups_[g][i] == rank)
                    job_.forget(id_of(g), (int)i);
    }

  private:
    struct Step {
        size_t group;
        struct ng_signature signature;
    };
    static uint64_t id_of(size_t group)
    {
        return 0x1000 + group;
    }
    int place(size_t group, int rank) const
    {
        return (int)(std::find(groups_[group].begin(), groups_[group].end(), rank) -
                     groups_[group].begin());
    }
    std::mt19937 random_;
    int ranks_;
    Job job_;
    std::vector<std::vector<int>> groups_;
    std::vector<Step> program_;
};

constexpr unsigned ROUNDS = 400;

} // namespace

TEST(VerdictOfRandomJobs, ProgressIsNeverBlamed)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        /* Somebody lags behind, everybody else waits, none of them for long. */
        int slow = (int)random.pick((size_t)random.ranks());
        random.run(slow, random.pick(random.steps()), (int64_t)random.pick(STALLED));
        for (int rank = 0; rank < random.ranks(); rank++)
            if (random.pick(3) == 0)
                random.job().inside(rank, NG_OP_AllReduce, 0x1000, 1,
                                    (int64_t)random.pick(STALLED));
        Judgement judgement = judge(random.job());
        ASSERT_EQ(judgement.kind, NG_KIND_HEALTHY) << "seed " << seed << ": " << judgement.line;
        ASSERT_TRUE(judgement.culprits.empty());
        ASSERT_TRUE(judgement.waiting.empty());
    }
}

TEST(VerdictOfRandomJobs, TheOneAbsenteeIsNamedAndNobodyElse)
{
    static const struct {
        enum ng_life life;
        enum ng_verdict_kind kind;
    } fates[] = {{NG_LIFE_RUNNING, NG_KIND_MISSING_RANK},
                 {NG_LIFE_DEAD, NG_KIND_DEAD_RANK},
                 {NG_LIFE_STOPPED, NG_KIND_STOPPED_RANK},
                 {NG_LIFE_EXITED, NG_KIND_LEFT_EARLY}};
    unsigned stalls = 0;

    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        const auto &fate = fates[seed % 4];
        int culprit = (int)random.pick((size_t)random.ranks());
        std::vector<int> stuck =
            random.run(culprit, random.pick(random.steps()), LONG_AGO + random.pick(NG_S));
        random.job().process(culprit).life = fate.life;
        random.job().process(culprit).life_age_ns = 10 * NG_S;
        Judgement judgement = judge(random.job());
        if (stuck.empty()) {
            ASSERT_EQ(judgement.kind, NG_KIND_HEALTHY) << "seed " << seed << ": " << judgement.line;
            continue;
        }
        stalls++;
        ASSERT_EQ(judgement.kind, fate.kind) << "seed " << seed << ": " << judgement.line;
        ASSERT_EQ(judgement.culprits, std::vector<int>{culprit})
            << "seed " << seed << ": " << judgement.line;
        ASSERT_EQ(judgement.waiting, stuck) << "seed " << seed << ": " << judgement.line;
        /* Of two ranks nothing tells whether the other made a call too many. */
        ASSERT_TRUE(judgement.confidence == NG_CONFIDENCE_CERTAIN ||
                    (fate.kind == NG_KIND_LEFT_EARLY &&
                     mentions(judgement.whys.at(0), "made a call too many")))
            << "seed " << seed << ": " << judgement.line;
    }
    EXPECT_GT(stalls, ROUNDS / 2) << "the jobs must stall for this to say anything";
}

TEST(VerdictOfRandomJobs, WhoIsNotSeenIsNeverBlamed)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob random(seed);
        int culprit = (int)random.pick((size_t)random.ranks());
        std::set<int> unseen;
        random.run(culprit, random.pick(random.steps()), LONG_AGO);
        for (unsigned n = random.pick((size_t)random.ranks()) + 1; n > 0; n--) {
            int rank = (int)random.pick((size_t)random.ranks());
            unseen.insert(rank);
            random.forget(rank);
        }
        Judgement judgement = judge(random.job());
        for (int named : judgement.culprits) {
            ASSERT_FALSE(unseen.count(named)) << "seed " << seed << ": " << judgement.line;
            ASSERT_EQ(named, culprit) << "seed " << seed << ": " << judgement.line;
        }
        for (int waiting : judgement.waiting)
            ASSERT_FALSE(unseen.count(waiting)) << "seed " << seed << ": " << judgement.line;
    }
}

/* Lives, ages, counters and records at random, however senseless: always a verdict, and never
 * against all reason. */
TEST(VerdictOfRandomJobs, SenselessEvidenceIsSurvived)
{
    static const enum ng_op inside[] = {NG_OP_AllReduce,   NG_OP_GroupEnd,   NG_OP_CommInitRank,
                                        NG_OP_CommSplit,   NG_OP_CommShrink, NG_OP_CommFinalize,
                                        NG_OP_CommDestroy, NG_OP_Recv};
    std::mt19937_64 random(99);
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        RandomJob base(seed);
        base.run((int)base.pick((size_t)base.ranks()), base.pick(base.steps()), LONG_AGO);
        for (int rank = 0; rank < base.ranks(); rank++) {
            base.job().process(rank).life = (enum ng_life)(random() % 7);
            base.job().process(rank).host = std::string(random() % 3, 'n');
            base.job().tells_hashes = random() % 2;
            base.job().process(rank).life_age_ns = (int64_t)(random() % (100 * NG_S));
            Member &member = base.job().at(0x1000, rank);
            uint64_t *numbers[] = {&member.entered,       &member.scheduled,   &member.started,
                                   &member.completed,     &member.pending_seq, &member.p2p_entered,
                                   &member.pending_record};
            for (uint64_t *number : numbers)
                if (random() % 4 == 0)
                    *number = random() % 3 == 0 ? random() : random() % 20;
            member.state = (enum ng_group_state)(random() % 6);
            member.rolling_hash = random() % 3;
            for (struct ng_view_record &record : member.records)
                if (random() % 8 == 0)
                    record.rolling_hash = random() % 3;
            for (unsigned n = (unsigned)(random() % 3); n > 0; n--)
                base.job().inside(rank, inside[random() % 8], random() % 2 ? 0x1000 : 0,
                                  random() % 9, (int64_t)(random() % (60 * NG_S)));
            for (unsigned n = (unsigned)(random() % 4); n > 0; n--)
                member.p2p(random() % 2 ? NG_OP_Send : NG_OP_Recv, (int)(random() % 20) - 2,
                           random() % 2, (int64_t)(random() % (60 * NG_S)));
        }
        Judgement judgement = judge(base.job());
        std::set<int> named(judgement.culprits.begin(), judgement.culprits.end());
        for (int waiting : judgement.waiting)
            EXPECT_FALSE(named.count(waiting)) << "seed " << seed << ": " << judgement.line;
        bool may_blame = judgement.kind != NG_KIND_HEALTHY && judgement.kind != NG_KIND_UNKNOWN;
        EXPECT_TRUE(may_blame || judgement.culprits.empty())
            << "seed " << seed << ": " << judgement.line;
    }
}
