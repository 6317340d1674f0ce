/*
 * The verdict engine on random jobs: ranks run one program of collectives, sends and receives over
 * overlapping groups, each with several operations in flight, in a random order of events. Whatever
 * is seen of it, nobody is named who is not to blame.
 */
#include "tests/unit/core/helpers/job.h"

#include <numeric>

namespace
{

constexpr unsigned ROUNDS = 150;
constexpr uint64_t FIRST_GROUP = 0x1000;

/* A collective of a group, or a send from one of its ranks to another. */
struct Step {
    size_t group;
    struct ng_signature signature;
    int from, to; /* global ranks; -1 a collective */
};

enum class Fault { none, missing, dead, lost, stopped, left, mismatch, order };

constexpr Fault faults[] = {Fault::missing, Fault::dead,     Fault::lost, Fault::stopped,
                            Fault::left,    Fault::mismatch, Fault::order};

class Simulation
{
  public:
    /* `depth` operations of a rank may be in flight. */
    Simulation(unsigned seed, Fault fault)
        : random_(seed), fault_(fault), ranks_(2 + (int)pick(9)), job_(ranks_)
    {
        /* Out of order only matters to a rank that waits for each of its calls. */
        depth_ = fault == Fault::order ? 1 : 1 + pick(4);
        job_.tells_hashes = pick(2);
        make_groups();
        make_program();
        plant();
        find_places();
    }

    /* Events in random order, as many as there may be, or only `events`. */
    void run(size_t events = SIZE_MAX)
    {
        for (std::vector<int> ready = able(); !ready.empty() && events > 0; ready = able()) {
            issue(ready[pick(ready.size())]);
            finish();
            events--;
        }
        able_ = able();
        tell();
    }

    unsigned pick(size_t count)
    {
        return (unsigned)(random_() % count);
    }
    Job &job()
    {
        return job_;
    }
    int ranks() const
    {
        return ranks_;
    }
    int culprit() const
    {
        return culprit_;
    }
    bool planted() const
    {
        return fault_ == Fault::none || culprit_ >= 0;
    }
    /* Nothing is in flight that does not finish. */
    bool done() const
    {
        for (const Rank &rank : progress_)
            for (bool finished : rank.finished)
                if (!finished)
                    return false;
        return true;
    }
    /* Is this rank one that could go on, and has not? */
    bool is_late(int rank) const
    {
        return std::find(able_.begin(), able_.end(), rank) != able_.end();
    }
    /* The ranks that took part in what is planted. */
    bool is_swapped_with(int rank) const
    {
        return takes_part(rank, swapped_[0]) || takes_part(rank, swapped_[1]);
    }
    void forget(int rank)
    {
        for (size_t g = 0; g < groups_.size(); g++)
            for (size_t i = 0; i < groups_[g].size(); i++)
                if (groups_[g][i] == rank)
                    job_.forget(FIRST_GROUP + g, (int)i);
    }

  private:
    struct Rank {
        std::vector<size_t> calls;  /* its part of the program, steps */
        std::vector<size_t> places; /* of each step among them; SIZE_MAX: it has no part in it */
        size_t issued = 0;
        std::vector<bool> finished; /* of those issued */
    };

    bool takes_part(int rank, size_t step) const
    {
        const Step &what = program_[step];
        if (what.from >= 0)
            return rank == what.from || rank == what.to;
        const std::vector<int> &members = groups_[what.group];
        return std::find(members.begin(), members.end(), rank) != members.end();
    }

    void make_groups()
    {
        std::vector<int> all(ranks_);
        std::iota(all.begin(), all.end(), 0);
        groups_.push_back(all);
        for (unsigned extra = pick(6); extra > 0; extra--) {
            std::vector<int> some = all;
            std::shuffle(some.begin(), some.end(), random_);
            some.resize(2 + pick((size_t)ranks_ - 1));
            groups_.push_back(some);
        }
        for (size_t g = 0; g < groups_.size(); g++)
            job_.group(FIRST_GROUP + g, pick(2) ? ("group " + std::to_string(g)).c_str() : "",
                       groups_[g]);
    }

    void make_program()
    {
        static const struct ng_signature kinds[] = {{NG_OP_AllReduce, 7, 0, -1, 1024},
                                                    {NG_OP_AllGather, 9, -1, -1, 77},
                                                    {NG_OP_Broadcast, 2, -1, 0, 5}};
        for (unsigned steps = 8 + pick(60); steps > 0; steps--) {
            Step step = {pick(groups_.size()), kinds[pick(3)], -1, -1};
            if (pick(4) == 0) {
                const std::vector<int> &members = groups_[step.group];
                size_t from = pick(members.size());
                size_t to = (from + 1 + pick(members.size() - 1)) % members.size();
                step.from = members[from];
                step.to = members[to];
            }
            program_.push_back(step);
        }
        progress_.resize((size_t)ranks_);
        for (int rank = 0; rank < ranks_; rank++)
            for (size_t step = 0; step < program_.size(); step++)
                if (takes_part(rank, step))
                    progress_[(size_t)rank].calls.push_back(step);
    }

    void plant()
    {
        int rank = (int)pick((size_t)ranks_);
        std::vector<size_t> &calls = progress_[(size_t)rank].calls;
        if (fault_ == Fault::none || calls.empty())
            return;
        size_t at = pick(calls.size());
        if (fault_ == Fault::order) {
            /* Two calls one after the other that it has in common with the same other rank. */
            if (at + 1 >= calls.size() ||
                program_[calls[at]].group == program_[calls[at + 1]].group)
                return;
            bool common = false;
            for (int other = 0; other < ranks_; other++)
                common |= other != rank && takes_part(other, calls[at]) &&
                          takes_part(other, calls[at + 1]);
            if (!common)
                return;
            swapped_[0] = calls[at];
            swapped_[1] = calls[at + 1];
            std::swap(calls[at], calls[at + 1]);
        } else if (fault_ == Fault::mismatch) {
            const Step &step = program_[calls[at]];
            if (step.from >= 0 || groups_[step.group].size() < 3)
                return;
        }
        culprit_ = rank;
        planted_at_ = at;
    }

    void find_places()
    {
        for (Rank &own : progress_) {
            own.places.assign(program_.size(), SIZE_MAX);
            for (size_t i = 0; i < own.calls.size(); i++)
                own.places[own.calls[i]] = i;
        }
        over_.assign(program_.size(), false);
    }

    /* Ranks that are not waiting for anything, and have a call to make. */
    std::vector<int> able() const
    {
        std::vector<int> ready;
        for (int rank = 0; rank < ranks_; rank++) {
            const Rank &own = progress_[(size_t)rank];
            size_t open = (size_t)std::count(own.finished.begin(), own.finished.end(), false);
            bool ends = rank == culprit_ && fault_ != Fault::order && fault_ != Fault::mismatch &&
                        own.issued == planted_at_;
            if (own.issued < own.calls.size() && open < depth_ && !ends)
                ready.push_back(rank);
        }
        return ready;
    }

    void issue(int rank)
    {
        progress_[(size_t)rank].issued++;
        progress_[(size_t)rank].finished.push_back(false);
    }

    /* Is the call the first of its communicator that has not finished? */
    bool is_next(int rank, size_t place) const
    {
        const Rank &own = progress_[(size_t)rank];
        for (size_t i = 0; i < place; i++)
            if (!own.finished[i] &&
                program_[own.calls[i]].group == program_[own.calls[place]].group)
                return false;
        return true;
    }

    bool is_spoilt(size_t step) const
    {
        return fault_ == Fault::mismatch && culprit_ >= 0 &&
               progress_[(size_t)culprit_].calls[planted_at_] == step;
    }

    /* Has everybody made this call, and is it the next one of its communicator everywhere? */
    bool is_complete(size_t step) const
    {
        if (is_spoilt(step))
            return false;
        for (int rank = 0; rank < ranks_; rank++) {
            size_t place = progress_[(size_t)rank].places[step];
            if (place != SIZE_MAX &&
                (place >= progress_[(size_t)rank].issued || !is_next(rank, place)))
                return false;
        }
        return true;
    }

    /* All that can finish does. */
    void finish()
    {
        for (bool more = true; more;) {
            more = false;
            for (size_t step = 0; step < program_.size(); step++) {
                if (over_[step] || !is_complete(step))
                    continue;
                for (Rank &own : progress_)
                    if (own.places[step] != SIZE_MAX)
                        own.finished[own.places[step]] = true;
                over_[step] = more = true;
            }
        }
    }

    int place_in(size_t group, int rank) const
    {
        return (int)(std::find(groups_[group].begin(), groups_[group].end(), rank) -
                     groups_[group].begin());
    }

    /* What happened, as the ranks tell of it. */
    void tell()
    {
        for (int rank = 0; rank < ranks_; rank++) {
            const Rank &own = progress_[(size_t)rank];
            for (size_t i = 0; i < own.issued; i++) {
                const Step &step = program_[own.calls[i]];
                Member &member = job_.at(FIRST_GROUP + step.group, place_in(step.group, rank));
                struct ng_signature signature = step.signature;
                if (is_spoilt(own.calls[i]) && rank == culprit_)
                    signature.count += 7;
                int64_t age_ns = LONG_AGO + (int64_t)(own.issued - i);
                bool next = is_next(rank, i);
                if (step.from >= 0)
                    member.p2p(rank == step.from ? NG_OP_Send : NG_OP_Recv,
                               place_in(step.group, rank == step.from ? step.to : step.from),
                               own.finished[i], age_ns);
                else if (own.finished[i])
                    member.did(1, signature);
                else if (next)
                    member.waits(signature, age_ns);
                else
                    member.queued(signature, age_ns);
            }
        }
        for (size_t i = 0; i < job_.processes.size(); i++)
            job_.processes[i].host = "n" + std::to_string(i / 2);
        if (culprit_ < 0)
            return;
        Process &process = job_.process(culprit_);
        process.life = fault_ == Fault::dead      ? NG_LIFE_DEAD
                       : fault_ == Fault::lost    ? NG_LIFE_LOST
                       : fault_ == Fault::stopped ? NG_LIFE_STOPPED
                       : fault_ == Fault::left    ? NG_LIFE_EXITED
                                                  : NG_LIFE_RUNNING;
        process.life_age_ns = 10 * NG_S;
    }

    std::mt19937 random_;
    Fault fault_;
    int ranks_, culprit_ = -1;
    size_t planted_at_ = SIZE_MAX, depth_ = 1, swapped_[2] = {};
    Job job_;
    std::vector<std::vector<int>> groups_;
    std::vector<Step> program_;
    std::vector<Rank> progress_;
    std::vector<bool> over_; /* steps that have finished */
    std::vector<int> able_;
};

enum ng_verdict_kind kind_of(Fault fault)
{
    switch (fault) {
    case Fault::none:
        return NG_KIND_HEALTHY;
    case Fault::missing:
        return NG_KIND_MISSING_RANK;
    case Fault::dead:
    case Fault::lost:
        return NG_KIND_DEAD_RANK;
    case Fault::stopped:
        return NG_KIND_STOPPED_RANK;
    case Fault::left:
        return NG_KIND_LEFT_EARLY;
    case Fault::mismatch:
        return NG_KIND_MISMATCH;
    case Fault::order:
        return NG_KIND_ORDER_DEADLOCK;
    }
    return NG_KIND_UNKNOWN;
}

std::string about(unsigned seed, const Judgement &judgement)
{
    return "seed " + std::to_string(seed) + ": " + judgement.text;
}

} // namespace

/* Any moment of a healthy job, however long it lasts: only those are named who could go on. */
TEST(VerdictOfAnyJob, NobodyIsNamedWhoOnlyWaits)
{
    unsigned named = 0;

    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        Simulation simulation(seed, Fault::none);
        simulation.run(simulation.pick(200));
        Judgement judgement = judge(simulation.job());
        EXPECT_NE(judgement.kind, NG_KIND_ORDER_DEADLOCK) << about(seed, judgement);
        EXPECT_NE(judgement.kind, NG_KIND_MISMATCH) << about(seed, judgement);
        for (int culprit : judgement.culprits)
            ASSERT_TRUE(simulation.is_late(culprit)) << about(seed, judgement);
        named += !judgement.culprits.empty();
    }
    EXPECT_GT(named, ROUNDS / 4) << "somebody must be late for this to say anything";
}

TEST(VerdictOfAnyJob, NorWhereOnlySomeIsSeen)
{
    for (unsigned seed = 0; seed < ROUNDS; seed++) {
        Simulation simulation(seed, Fault::none);
        std::set<int> unseen;
        simulation.run(simulation.pick(200));
        for (unsigned n = 1 + simulation.pick((size_t)simulation.ranks()); n > 0; n--)
            unseen.insert((int)simulation.pick((size_t)simulation.ranks()));
        for (int rank : unseen)
            simulation.forget(rank);
        for (int rank = 0; rank < simulation.ranks(); rank++)
            if (simulation.pick(4) == 0)
                for (uint64_t group = FIRST_GROUP; group < FIRST_GROUP + 1 && !unseen.count(rank);
                     group++)
                    simulation.job().at(group, rank).keeps((int)simulation.pick(4));
        Judgement judgement = judge(simulation.job());
        EXPECT_NE(judgement.kind, NG_KIND_ORDER_DEADLOCK) << about(seed, judgement);
        EXPECT_NE(judgement.kind, NG_KIND_MISMATCH) << about(seed, judgement);
        for (int culprit : judgement.culprits)
            ASSERT_TRUE(simulation.is_late(culprit) && !unseen.count(culprit))
                << about(seed, judgement);
    }
}

TEST(VerdictOfAnyJob, ThePlantedFaultIsNamedAndNobodyElse)
{
    for (Fault fault : faults) {
        unsigned stalls = 0;
        for (unsigned seed = 0; seed < ROUNDS; seed++) {
            Simulation simulation(seed, fault);
            simulation.run();
            Judgement judgement = judge(simulation.job());
            if (!simulation.planted() || simulation.done()) {
                ASSERT_EQ(judgement.kind, NG_KIND_HEALTHY) << about(seed, judgement);
                continue;
            }
            stalls++;
            ASSERT_EQ(judgement.kind, kind_of(fault)) << about(seed, judgement);
            if (fault != Fault::order) {
                ASSERT_EQ(judgement.culprits, std::vector<int>{simulation.culprit()})
                    << about(seed, judgement);
                /* A rank frozen inside the call may still do its part. With two ranks it is not
                 * known whether the other made a call too many. */
                ASSERT_TRUE(
                    fault == Fault::stopped ||
                    (fault == Fault::left &&
                     judgement.whys.at(0).find("made a call too many") != std::string::npos) ||
                    (judgement.confidence == NG_CONFIDENCE_CERTAIN) == (fault != Fault::lost))
                    << about(seed, judgement);
                continue;
            }
            ASSERT_EQ(judgement.confidence, NG_CONFIDENCE_CERTAIN) << about(seed, judgement);
            ASSERT_TRUE(std::count(judgement.culprits.begin(), judgement.culprits.end(),
                                   simulation.culprit()))
                << about(seed, judgement);
            ASSERT_EQ(judgement.cycle.size(), 2u) << about(seed, judgement);
            for (int culprit : judgement.culprits)
                ASSERT_TRUE(simulation.is_swapped_with(culprit)) << about(seed, judgement);
        }
        EXPECT_GT(stalls, ROUNDS / 8) << "fault " << (int)fault;
    }
}

TEST(VerdictOfAnyJob, ThePlantedFaultIsNamedOrNobodyWhereOnlySomeIsSeen)
{
    for (Fault fault : faults) {
        unsigned found = 0;
        for (unsigned seed = 0; seed < ROUNDS; seed++) {
            Simulation simulation(seed, fault);
            simulation.run();
            if (!simulation.planted() || simulation.done())
                continue;
            std::set<int> unseen;
            for (unsigned n = 1 + simulation.pick((size_t)simulation.ranks()); n > 0; n--)
                unseen.insert((int)simulation.pick((size_t)simulation.ranks()));
            for (int rank : unseen)
                simulation.forget(rank);
            Judgement judgement = judge(simulation.job());
            /* Of two sides nobody can tell who is wrong; that is said. */
            if (fault == Fault::mismatch && judgement.confidence != NG_CONFIDENCE_CERTAIN &&
                judgement.kind == NG_KIND_MISMATCH)
                continue;
            if (judgement.culprits.empty()) {
                ASSERT_TRUE(judgement.kind == NG_KIND_HEALTHY ||
                            (judgement.kind == NG_KIND_UNKNOWN && !judgement.missing.empty()))
                    << about(seed, judgement);
                continue;
            }
            found++;
            ASSERT_EQ(judgement.kind, kind_of(fault)) << about(seed, judgement);
            for (int culprit : judgement.culprits)
                ASSERT_TRUE((culprit == simulation.culprit() ||
                             (fault == Fault::order && simulation.is_swapped_with(culprit))) &&
                            !unseen.count(culprit))
                    << about(seed, judgement);
        }
        EXPECT_GT(found, 10u) << "fault " << (int)fault;
    }
}
