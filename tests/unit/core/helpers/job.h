/*
 * A job made by hand, as a view: ranks, groups, progress and records, for tests of the engine and
 * of dumps.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_JOB_H
#define NCCLGUARD_TESTS_UNIT_CORE_JOB_H

#include "tests/unit/core/helpers/core.h"

#include <map>
#include <memory>
#include <optional>

/* Nothing in these tests runs: ages are what they are told to be. */
constexpr int64_t STALLED = 5 * NG_S;
constexpr int64_t LONG_AGO = 30 * NG_S;

constexpr struct ng_signature all_reduce(uint64_t count = 1024)
{
    return {NG_OP_AllReduce, 7, 0, -1, count};
}

/* One rank of one group on its way through its calls; collected into a view by Job::fill. */
struct Member : ng_view_member {
    Member(int process, uint64_t group, int group_rank);

    uint64_t group;                    /* its id */
    int nranks = 0, nccl_version = 0;  /* as it told itself; 0: as its group */
    std::vector<struct ng_edge> edges; /* of NCCL's connections */
    std::string pci_id;
    uint32_t tid = 0; /* of the thread that makes the calls from here on; 0 not known */
    std::vector<struct ng_view_record> records;
    std::vector<struct ng_view_sample> samples;
    std::map<std::pair<int, bool>, uint64_t> ordinals; /* per peer and direction */
    std::shared_ptr<uint64_t> numbers; /* of the records of its process; empty: its own */

    /* `n` collectives that finished. */
    Member &did(int n, struct ng_signature signature = all_reduce());
    /* One more collective that is on the stream and does not finish, for `age_ns`. */
    Member &waits(struct ng_signature signature = all_reduce(), int64_t age_ns = LONG_AGO);
    /* One more behind it. */
    Member &queued(struct ng_signature signature = all_reduce(), int64_t age_ns = LONG_AGO);
    /* One that was called inside an NCCL group that is still open. */
    Member &opened(struct ng_signature signature = all_reduce());
    /* Only the newest `n` records are left. */
    Member &keeps(int n);
    /* The oldest `n` records are overwritten. */
    Member &overwritten(int n);
    /* One send or receive. */
    Member &p2p(enum ng_op op, int peer, bool done, int64_t age_ns = LONG_AGO);
    /* The newest `n` calls are one NCCL group, and that is closed. */
    Member &grouped(int n);
    /* The communicator is aborted while it waits, so long before its end; its watchdog has seen
     * that, or not. */
    Member &aborts(int64_t before_ns = NG_S, bool seen = true);
    /* One more collective, which NCCL fails since a peer is gone. */
    Member &failed(struct ng_signature signature = all_reduce());

  private:
    friend class Job;
    struct ng_view_record &record(struct ng_signature signature, enum ng_record_state state,
                                  int64_t age_ns);
};

struct Call {
    int process;
    enum ng_op op;
    uint64_t group;
    int group_rank;
    uint64_t seq;
    int64_t age_ns;
    uint32_t tid;
};

struct Process : ng_view_process {
    Process(int rank, int world_size, int pid);

    std::string error_text; /* of NCCL, about the first asynchronous error */
    std::string watchdog_in, nccl_variables;
    std::string host; /* empty: eight processes of the job share one */

    /* Its life has been this for so long; what its exit status is, where that is known. */
    void is(enum ng_life now, int64_t age_ns)
    {
        life = now;
        life_age_ns = age_ns;
    }
    void is(enum ng_life now, int64_t age_ns, int status)
    {
        is(now, age_ns);
        exit_status = status;
    }
};

/* One process per rank unless told otherwise. */
class Job
{
  public:
    /* `ranks` processes with global ranks from 0, alive. */
    explicit Job(int ranks, bool launcher_told = true);
    /* The same, with a group of them all, in which each has done so many collectives. */
    Job(int ranks, uint64_t group, const char *name, int done = 0);

    /* A group of these global ranks, each of which reports itself, and has done so many
     * collectives. */
    void group(uint64_t id, const char *name, const std::vector<int> &ranks, int done = 0);
    void group(uint64_t id, const char *name); /* of all ranks */
    /* Group `id` is being made, or was made, from `parent`. */
    void derive(uint64_t id, uint64_t parent)
    {
        groups_.at(id).parent = parent;
    }
    Member &at(uint64_t group, int group_rank);
    /* These ranks of a group are in one more collective, which does not finish. */
    void wait(uint64_t group, const std::vector<int> &group_ranks);
    /* Nobody has evidence of this rank of this group. */
    void forget(uint64_t group, int group_rank);
    Process &process(int rank)
    {
        return processes[rank];
    }
    /* A thread of this rank is inside a call; `tid` 0: that of the process's first thread. */
    void inside(int rank, enum ng_op op, uint64_t group = 0, uint64_t seq = 0,
                int64_t age_ns = LONG_AGO, uint32_t tid = 0);
    /* These ranks of a group are making it, with this call. */
    void making(uint64_t group, const std::vector<int> &group_ranks,
                enum ng_op op = NG_OP_CommInitRank, int64_t age_ns = LONG_AGO);
    int ranks_of(uint64_t group) const;
    /* The records of each process are numbered as they are made, whatever their groups, which are
     * all there. */
    void number_by_process();

    void fill(struct ng_view *view) const;

    std::vector<Process> processes;
    std::vector<Call> calls;
    std::vector<std::string> notes;
    bool tells_hashes = false;
    int64_t suspect_ns = 0, cold_suspect_ns = 0; /* of all its processes */

  private:
    struct Group {
        std::string name;
        int nranks;
        uint64_t parent;
    };
    void add_member(struct ng_view *view, const Member &from) const;
    std::map<uint64_t, Group> groups_;
    std::vector<Member> members_;
};

/* The view of a job; and with what the engine says of it. */
struct JobView : OwnView {
    explicit JobView(const Job &job)
    {
        job.fill(this);
    }
};
struct JudgedView : JobView {
    explicit JudgedView(const Job &job,
                        const struct ng_verdict_query &query = {.stalled_ns = STALLED});
    ~JudgedView()
    {
        ng_verdict_fini(&verdict);
    }
    struct ng_verdict verdict;
};

/* What the engine says of a job, as plain values. */
struct Judgement {
    /* The sentence on the first culprit has this in it. */
    void because(const std::string &part, const char *file = __builtin_FILE(),
                 int line = __builtin_LINE()) const;

    enum ng_verdict_kind kind;
    enum ng_confidence confidence;
    uint64_t group, seq;
    enum ng_op op;
    int64_t stalled_ns;
    std::vector<int> culprits, waiting;
    std::vector<std::string> whys, missing;
    std::string line, text, json;
    std::vector<struct ng_verdict_step> cycle;
    bool may_be_gone, more_may_be_lost, end_is_certain, all_came;
    int64_t gave_up_ns;
};
Judgement judge(const Job &job, int64_t stalled_ns = STALLED, bool watchdog = false,
                bool nan = false, bool ends = false);

/* The ranks that a test expects; ANYBODY: any ranks. */
struct Ranks {
    std::vector<int> ranks;
    bool anybody = false;
    Ranks(std::initializer_list<int> list) : ranks(list)
    {
    }
    Ranks(std::vector<int> list) : ranks(std::move(list))
    {
    }
};
extern const Ranks ANYBODY;

void expect_kind(const Judgement &judgement, enum ng_verdict_kind kind);
/* This kind, culprits, confidence (none: whichever) and waiting ranks; gives back the judgement. */
Judgement expect_verdict(const Judgement &judgement, enum ng_verdict_kind kind,
                         const Ranks &culprits, std::optional<enum ng_confidence> confidence = {},
                         const Ranks &waiting = ANYBODY, const char *file = __builtin_FILE(),
                         int line = __builtin_LINE());
/* The same of the verdict on a job. */
Judgement expect_verdict(const Job &job, enum ng_verdict_kind kind, const Ranks &culprits,
                         std::optional<enum ng_confidence> confidence = {},
                         const Ranks &waiting = ANYBODY, const char *file = __builtin_FILE(),
                         int line = __builtin_LINE());
/* For EXPECT_PRED2, which shows both. */
bool mentions(const std::string &text, const std::string &part);

#endif
