/*
 * A job made by hand, as a view.
 */
#include "tests/unit/core/helpers/job.h"

#include <numeric>
#include <sys/mman.h>

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
    for (int rank = 0; rank < ranks; rank++) {
        Process process = {.rank = launcher_told ? rank : -1,
                           .world_size = launcher_told ? ranks : -1,
                           .pid = 1000 + rank,
                           .life = NG_LIFE_RUNNING};
        processes.push_back(process);
    }
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

void Job::group(uint64_t id, const char *name, const std::vector<int> &ranks)
{
    groups_[id] = Group{name, (int)ranks.size(), 0};
    for (size_t i = 0; i < ranks.size(); i++) {
        Member member = {.process = ranks[i], .group_rank = (int)i, .group = id};
        members_.push_back(member);
    }
}

void Job::group(uint64_t id, const char *name)
{
    std::vector<int> ranks(processes.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    group(id, name, ranks);
}

void Job::number_by_process()
{
    std::map<int, std::shared_ptr<uint64_t>> numbers;
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
        if (member.group == group && member.process == rank)
            group_rank = member.group_rank;
    calls.push_back({rank, op, group, group_rank, seq, age_ns, tid});
}

void Job::fill(struct ng_view *view) const
{
    ng_view_init(view);
    snprintf(view->job, sizeof(view->job), "by-hand");
    for (size_t p = 0; p < processes.size(); p++) {
        struct ng_view_process *process = ng_view_add_process(view);
        process->rank = processes[p].rank;
        process->world_size = processes[p].world_size;
        process->run_word = processes[p].run_word;
        process->ring_first = processes[p].ring_first;
        process->pid = processes[p].pid;
        process->life = processes[p].life;
        process->exit_status = processes[p].exit_status;
        process->life_age_ns = processes[p].life_age_ns;
        process->suspect_ns = suspect_ns;
        process->cold_suspect_ns = cold_suspect_ns;
        process->alive_age_ns = processes[p].alive_age_ns;
        process->quiet_ns = processes[p].quiet_ns;
        snprintf(process->error_text, sizeof(process->error_text), "%s",
                 processes[p].error_text.c_str());
        process->watchdog_stuck_ns = processes[p].watchdog_stuck_ns;
        process->watched_age_ns = processes[p].watched_age_ns;
        snprintf(process->watchdog_in, sizeof(process->watchdog_in), "%s",
                 processes[p].watchdog_in.c_str());
        process->nan = processes[p].nan;
        process->local_rank = processes[p].local_rank;
        process->memory_kinds = processes[p].memory_kinds;
        for (uint32_t i = 0; i < process->memory_kinds; i++)
            process->memory[i] = processes[p].memory[i];
        snprintf(process->nccl_variables, sizeof(process->nccl_variables), "%s",
                 processes[p].nccl_variables.c_str());
        std::string host =
            processes[p].host.empty() ? "host-" + std::to_string(p / 8) : processes[p].host;
        snprintf(process->host, sizeof(process->host), "%s", host.c_str());
        process->self = processes[p].self;
        snprintf(process->source, sizeof(process->source), "box-%d-1", processes[p].pid);
        for (const Call &call : calls) {
            if (call.process != (int)p)
                continue;
            struct ng_view_call *added = ng_view_add_call(view, (uint32_t)p);
            added->tid = call.tid ? call.tid : (uint32_t)processes[p].pid;
            added->op = call.op;
            added->group_id = call.group;
            added->group_rank = call.group_rank;
            added->seq = call.seq;
            added->age_ns = call.age_ns;
        }
        for (const Member &from : members_) {
            if (from.process != (int)p)
                continue;
            const Group &group = groups_.at(from.group);
            uint32_t index = ng_view_intern_group(view, from.group);
            if (view->groups[index].nranks < group.nranks)
                view->groups[index].nranks = group.nranks;
            view->groups[index].parent_id = group.parent;
            view->groups[index].nccl_version = 22809;
            snprintf(view->groups[index].name, sizeof(view->groups[index].name), "%s",
                     group.name.c_str());
            struct ng_view_member *member =
                ng_view_add_member(view, (uint32_t)p, index, from.group_rank);
            member->device = from.device;
            member->state = from.state;
            member->cuda_error = from.cuda_error;
            member->async_error = from.async_error;
            member->ended_age_ns = from.ended_age_ns;
            member->timeout_ns = from.timeout_ns;
            member->policy = from.policy;
            member->error_age_ns = from.error_age_ns;
            member->creator_tid = from.creator_tid;
            member->created_by = from.created_by;
            member->nranks = from.nranks ? from.nranks : group.nranks;
            member->nccl_version = from.nccl_version ? from.nccl_version : 22809;
            snprintf(member->pci_id, sizeof(member->pci_id), "%s", from.pci_id.c_str());
            if (member->nranks > view->groups[index].nranks)
                view->groups[index].nranks = member->nranks;
            member->ordinal = from.ordinal;
            member->excluded = from.excluded;
            member->derived = from.derived;
            member->host_calls = from.host_calls;
            member->entered = from.entered;
            member->scheduled = from.scheduled;
            member->started = from.started;
            member->completed = from.completed;
            member->p2p_entered = from.p2p_entered;
            member->p2p_completed = from.p2p_completed;
            member->pending_seq = from.pending_seq;
            member->pending_record = from.pending_record;
            member->pending_age_ns = from.pending_age_ns;
            member->pending_started = from.pending_started;
            member->pending_inferred = from.pending_inferred;
            member->counted = from.counted;
            member->counted_seq = from.counted_seq;
            member->counted_left = from.counted_left;
            ng_view_set_edges(view, member, from.edges.data(), (uint32_t)from.edges.size(),
                              from.edges_age_ns);
            member->coll_joined = from.coll_joined;
            member->p2p_joined = from.p2p_joined;
            member->groups_closed = from.groups_closed;
            member->last = from.last;
            member->registration = from.registration;
            member->rolling_hash = tells_hashes ? from.rolling_hash : 0;
            member->record_count = (uint32_t)from.records.size();
            member->records = (struct ng_view_record *)ng_arena_alloc(
                &view->arena, from.records.size() * sizeof(*member->records) + 1);
            std::copy(from.records.begin(), from.records.end(), member->records);
            for (uint32_t i = 0; i < member->record_count && !tells_hashes; i++)
                member->records[i].rolling_hash = 0;
            for (const struct ng_view_sample &sample : from.samples)
                ng_view_add_sample(view, member, &sample);
        }
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

Judgement judge(const Job &job, int64_t stalled_ns, bool watchdog, bool nan, bool ends)
{
    OwnView view;
    struct ng_verdict verdict;
    struct ng_verdict_query query = {};
    Judgement judgement = {};
    char line[NG_REPORT_LINE_BYTES];

    query.stalled_ns = stalled_ns;
    query.watchdog = watchdog;
    query.nan = nan;
    query.ends = ends;
    job.fill(&view);
    EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
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
    judgement.end_is_certain = verdict.end_is_certain;
    judgement.gave_up_ns = verdict.gave_up_ns;
    judgement.all_came = verdict.all_came;
    ng_verdict_fini(&verdict);
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

bool mentions(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}
