/*
 * A job made by hand, as a view.
 */
#include "tests/unit/core/helpers/job.h"

#include <numeric>
#include <sys/mman.h>

Member::Member(int process, uint64_t group, int group_rank) : ng_view_member{}, group(group)
{
    this->process = (uint32_t)process;
    this->group_rank = group_rank;
    state = NG_GROUP_READY;
    color = -1;
    last = {0, -1, -1, -1, 0};
    pending_started = true;
}

Process::Process(int rank, int world_size, int pid) : ng_view_process{}
{
    this->rank = rank;
    this->world_size = world_size;
    this->pid = pid;
    local_rank = -1;
    life = NG_LIFE_RUNNING;
}

struct ng_view_record &Member::record(struct ng_signature signature, enum ng_record_state state,
                                      int64_t age_ns)
{
    struct ng_view_record record = {.id = numbers ? ++*numbers : (uint64_t)records.size() + 1,
                                    .state = state,
                                    .signature = signature,
                                    .coll_seq = entered,
                                    .p2p_seq = p2p_entered,
                                    .entered_age_ns = age_ns,
                                    .tid = tid};
    if (!ng_view_record_is_p2p(&record)) {
        /* Any hash will do: nobody looks into it. */
        for (uint64_t field :
             {(uint64_t)signature.op, (uint64_t)signature.dtype, (uint64_t)signature.redop,
              (uint64_t)signature.root, signature.count})
            rolling_hash = (rolling_hash ^ field) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        record.rolling_hash = rolling_hash;
        last = signature;
    }
    records.push_back(record);
    return records.back();
}

Member &Member::did(int n, struct ng_signature signature)
{
    for (int i = 0; i < n; i++) {
        entered++;
        record(signature, NG_RECORD_COMPLETED, LONG_AGO);
    }
    scheduled = started = completed = entered;
    return *this;
}

Member &Member::waits(struct ng_signature signature, int64_t age_ns)
{
    entered++;
    scheduled = started = entered;
    pending_seq = entered;
    pending_age_ns = age_ns;
    pending_record = record(signature, NG_RECORD_STARTED, age_ns).id;
    return *this;
}

Member &Member::queued(struct ng_signature signature, int64_t age_ns)
{
    entered++;
    scheduled = entered;
    record(signature, NG_RECORD_SCHEDULED, age_ns);
    return *this;
}

Member &Member::opened(struct ng_signature signature)
{
    entered++;
    record(signature, NG_RECORD_ENTERED, LONG_AGO).flags = NG_RECORD_IN_GROUP;
    return *this;
}

Member &Member::p2p(enum ng_op op, int peer, bool done, int64_t age_ns)
{
    p2p_entered++;
    struct ng_view_record &made = record({(uint32_t)op, 7, -1, peer, 64},
                                         done ? NG_RECORD_COMPLETED : NG_RECORD_STARTED, age_ns);
    made.peer_ordinal = ++ordinals[{peer, op == NG_OP_Send}];
    made.flags = NG_RECORD_P2P;
    if (done) {
        p2p_completed = p2p_entered;
    } else if (!pending_record) {
        pending_record = made.id;
        pending_age_ns = age_ns;
    }
    return *this;
}

Member &Member::grouped(int n)
{
    uint64_t colls = 0;
    for (size_t i = records.size() - (size_t)n; i < records.size(); i++) {
        records[i].flags |= NG_RECORD_IN_GROUP;
        records[i].work_previous = i > records.size() - (size_t)n ? records[i - 1].id : 0;
        colls += !ng_view_record_is_p2p(&records[i]);
    }
    uint64_t p2ps = (uint64_t)n - colls;
    coll_joined += colls ? colls - 1 : 0;
    p2p_joined += p2ps ? p2ps - 1 : 0;
    groups_closed += n > 1;
    return *this;
}

Member &Member::aborts(int64_t before_ns, bool seen)
{
    records.back().state = seen ? NG_RECORD_FAILED : NG_RECORD_STARTED;
    records.back().entered_age_ns += before_ns;
    state = NG_GROUP_ABORTED;
    ended_age_ns = before_ns;
    if (seen)
        pending_record = pending_seq = pending_age_ns = 0;
    return *this;
}

Member &Member::failed(struct ng_signature signature)
{
    entered++;
    record(signature, NG_RECORD_FAILED, 0).result = 6;
    entered--; /* NCCL has not taken it */
    return *this;
}

Member &Member::keeps(int n)
{
    return overwritten((int)records.size() > n ? (int)records.size() - n : 0);
}

Member &Member::overwritten(int n)
{
    records.erase(records.begin(), records.begin() + n);
    return *this;
}

Job::Job(int ranks, bool launcher_told)
{
    for (int rank = 0; rank < ranks; rank++)
        processes.emplace_back(launcher_told ? rank : -1, launcher_told ? ranks : -1, 1000 + rank);
}

Job::Job(int ranks, uint64_t group, const char *name, int done) : Job(ranks)
{
    this->group(group, name);
    for (int rank = 0; rank < ranks; rank++)
        at(group, rank).did(done);
}

void Job::wait(uint64_t group, const std::vector<int> &group_ranks)
{
    for (int rank : group_ranks)
        at(group, rank).waits();
}

void Job::making(uint64_t group, const std::vector<int> &group_ranks, enum ng_op op, int64_t age_ns)
{
    for (int rank : group_ranks) {
        Member &member = at(group, rank);
        member.state = NG_GROUP_CREATING;
        inside((int)member.process, op, group, 0, age_ns);
    }
}

void Job::group(uint64_t id, const char *name, const std::vector<int> &ranks, int done)
{
    groups_[id] = Group{name, (int)ranks.size(), 0};
    for (size_t i = 0; i < ranks.size(); i++)
        members_.emplace_back(ranks[i], id, (int)i).did(done);
}

void Job::group(uint64_t id, const char *name)
{
    std::vector<int> ranks(processes.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    group(id, name, ranks);
}

void Job::number_by_process()
{
    std::map<uint32_t, std::shared_ptr<uint64_t>> numbers;
    for (Member &member : members_) {
        std::shared_ptr<uint64_t> &its = numbers[member.process];
        if (!its)
            its = std::make_shared<uint64_t>(0);
        member.numbers = its;
    }
}

int Job::ranks_of(uint64_t group) const
{
    return groups_.at(group).nranks;
}

Member &Job::at(uint64_t group, int group_rank)
{
    for (Member &member : members_)
        if (member.group == group && member.group_rank == group_rank)
            return member;
    ADD_FAILURE() << "no rank " << group_rank << " in group " << group;
    return members_[0];
}

void Job::forget(uint64_t group, int group_rank)
{
    for (size_t i = 0; i < members_.size(); i++)
        if (members_[i].group == group && members_[i].group_rank == group_rank)
            members_.erase(members_.begin() + (long)i--);
}

void Job::inside(int rank, enum ng_op op, uint64_t group, uint64_t seq, int64_t age_ns,
                 uint32_t tid)
{
    int group_rank = -1;
    for (const Member &member : members_)
        if (member.group == group && (int)member.process == rank)
            group_rank = member.group_rank;
    calls.push_back({rank, op, group, group_rank, seq, age_ns, tid});
}

template <size_t bytes> static void copy(char (&to)[bytes], const std::string &from)
{
    snprintf(to, bytes, "%s", from.c_str());
}

void Job::add_member(struct ng_view *view, const Member &from) const
{
    const Group &group = groups_.at(from.group);
    uint32_t index = ng_view_intern_group(view, from.group);
    if (view->groups[index].nranks < group.nranks)
        view->groups[index].nranks = group.nranks;
    view->groups[index].parent_id = group.parent;
    view->groups[index].nccl_version = 22809;
    copy(view->groups[index].name, group.name);
    struct ng_view_member *member = ng_view_add_member(view, from.process, index, from.group_rank);
    *member = from;
    member->group = index;
    member->nranks = from.nranks ? from.nranks : group.nranks;
    member->nccl_version = from.nccl_version ? from.nccl_version : 22809;
    copy(member->pci_id, from.pci_id);
    if (member->nranks > view->groups[index].nranks)
        view->groups[index].nranks = member->nranks;
    ng_view_set_edges(view, member, from.edges.data(), (uint32_t)from.edges.size(),
                      from.edges_age_ns);
    if (!tells_hashes)
        member->rolling_hash = 0;
    member->record_count = (uint32_t)from.records.size();
    member->records = (struct ng_view_record *)ng_arena_alloc(
        &view->arena, from.records.size() * sizeof(*member->records) + 1);
    std::copy(from.records.begin(), from.records.end(), member->records);
    for (uint32_t i = 0; i < member->record_count && !tells_hashes; i++)
        member->records[i].rolling_hash = 0;
    for (const struct ng_view_sample &sample : from.samples)
        ng_view_add_sample(view, member, &sample);
}

void Job::fill(struct ng_view *view) const
{
    ng_view_init(view);
    snprintf(view->job, sizeof(view->job), "by-hand");
    for (uint32_t p = 0; p < processes.size(); p++) {
        const Process &its = processes[p];
        struct ng_view_process *process = ng_view_add_process(view);
        *process = its;
        process->suspect_ns = suspect_ns;
        process->cold_suspect_ns = cold_suspect_ns;
        copy(process->error_text, its.error_text);
        copy(process->watchdog_in, its.watchdog_in);
        copy(process->nccl_variables, its.nccl_variables);
        copy(process->host, its.host.empty() ? "host-" + std::to_string(p / 8) : its.host);
        copy(process->source, "box-" + std::to_string(its.pid) + "-1");
        for (const Call &call : calls) {
            if (call.process != (int)p)
                continue;
            struct ng_view_call *added = ng_view_add_call(view, p);
            added->tid = call.tid ? call.tid : (uint32_t)its.pid;
            added->op = call.op;
            added->group_id = call.group;
            added->group_rank = call.group_rank;
            added->seq = call.seq;
            added->age_ns = call.age_ns;
        }
        for (const Member &from : members_)
            if (from.process == p)
                add_member(view, from);
    }
    for (const std::string &note : notes)
        ng_view_note(view, "%s", note.c_str());
    ng_view_seal(view);
}

/* What `write` writes, without a file: verdicts are written by the thousand. */
static std::string written(const std::function<void(int fd)> &write)
{
    int fd = memfd_create("verdict", MFD_CLOEXEC);
    write(fd);
    std::string text((size_t)lseek(fd, 0, SEEK_END), '\0');
    EXPECT_EQ(pread(fd, &text[0], text.size(), 0), (ssize_t)text.size());
    close(fd);
    return text;
}

JudgedView::JudgedView(const Job &job, const struct ng_verdict_query &query) : JobView(job)
{
    EXPECT_EQ(ng_verdict_reach(this, &query, &verdict), 0);
}

Judgement judge(const Job &job, int64_t stalled_ns, bool watchdog, bool nan, bool ends)
{
    struct ng_verdict_query query = {};
    Judgement judgement = {};
    char line[NG_REPORT_LINE_BYTES];

    query.stalled_ns = stalled_ns;
    query.watchdog = watchdog;
    query.nan = nan;
    query.ends = ends;
    JudgedView view(job, query);
    const struct ng_verdict &verdict = view.verdict;
    judgement.kind = verdict.kind;
    judgement.confidence = verdict.confidence;
    judgement.group = verdict.group_id;
    judgement.seq = verdict.seq;
    judgement.op = verdict.op;
    judgement.stalled_ns = verdict.stalled_ns;
    for (uint32_t i = 0; i < verdict.culprit_count; i++) {
        judgement.culprits.push_back(verdict.culprits[i].rank);
        judgement.whys.push_back(verdict.culprits[i].why);
    }
    judgement.waiting.assign(verdict.waiting, verdict.waiting + verdict.waiting_count);
    for (uint32_t i = 0; i < verdict.missing_evidence_count; i++)
        judgement.missing.push_back(verdict.missing_evidence[i]);
    ng_report_line(&verdict, line, sizeof(line));
    judgement.line = line;
    judgement.text =
        written([&](int fd) { EXPECT_EQ(ng_report_write_text(&verdict, nullptr, fd), 0); });
    judgement.json = written([&](int fd) { EXPECT_EQ(ng_report_write_json(&verdict, fd), 0); });
    judgement.cycle.assign(verdict.cycle, verdict.cycle + verdict.cycle_count);
    judgement.may_be_gone = verdict.may_be_gone;
    judgement.more_may_be_lost = verdict.more_may_be_lost;
    judgement.end_is_certain = verdict.end_is_certain;
    judgement.gave_up_ns = verdict.gave_up_ns;
    judgement.all_came = verdict.all_came;
    return judgement;
}

const Ranks ANYBODY = [] {
    Ranks anybody = {};
    anybody.anybody = true;
    return anybody;
}();

void expect_kind(const Judgement &judgement, enum ng_verdict_kind kind)
{
    EXPECT_STREQ(ng_verdict_kind_name(judgement.kind), ng_verdict_kind_name(kind))
        << judgement.line;
}

Judgement expect_verdict(const Judgement &judgement, enum ng_verdict_kind kind,
                         const Ranks &culprits, std::optional<enum ng_confidence> confidence,
                         const Ranks &waiting, const char *file, int line)
{
    testing::ScopedTrace trace(file, line, judgement.line);

    expect_kind(judgement, kind);
    if (!culprits.anybody) {
        EXPECT_EQ(judgement.culprits, culprits.ranks);
    }
    if (confidence) {
        EXPECT_STREQ(ng_confidence_name(judgement.confidence), ng_confidence_name(*confidence));
    }
    if (!waiting.anybody) {
        EXPECT_EQ(judgement.waiting, waiting.ranks) << "waiting";
    }
    return judgement;
}

Judgement expect_verdict(const Job &job, enum ng_verdict_kind kind, const Ranks &culprits,
                         std::optional<enum ng_confidence> confidence, const Ranks &waiting,
                         const char *file, int line)
{
    return expect_verdict(judge(job), kind, culprits, confidence, waiting, file, line);
}

void Judgement::because(const std::string &part, const char *file, int line) const
{
    testing::ScopedTrace trace(file, line, this->line);

    EXPECT_PRED2(mentions, whys.at(0), part);
}

bool mentions(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}
