/*
 * Progress of a process in a few bytes: there and back without loss, and whatever the bytes are.
 */
#include "tests/unit/core/helpers/job.h"

#include <tuple>
#include <type_traits>

extern "C" {
#include "core/util/text.h"
#include "store/wire/progress.h"
}

namespace
{

using Random = std::mt19937_64;

uint64_t any(Random &random)
{
    switch (random() % 4) {
    case 0:
        return 0;
    case 1:
        return random() % 200;
    case 2:
        return random();
    default:
        return random() >> random() % 64;
    }
}

int any_int(Random &random)
{
    return random() % 2 ? (int)(random() % 100) - 1 : (int)any(random);
}

/* Mostly one of a few, as in life, and seldom as long as there is room for. */
void any_text(Random &random, char *ret_text, size_t room)
{
    static const char *const usual[] = {"", "dp", "0000:1b:00.0", "node-17", "\"é\""};
    if (random() % 4) {
        snprintf(ret_text, room, "%s", usual[random() % 5]);
        return;
    }
    size_t length = random() % room;
    for (size_t i = 0; i < length; i++)
        ret_text[i] = (char)(1 + random() % 255);
    ret_text[length] = '\0';
    ng_text_clean(ret_text, length, false); /* else it is not what comes back */
}

/* Fields that are told: what gives them any value and what compares them have one list. */
#define FIELDS(type, ...)                                                                          \
    constexpr auto fields_of(const struct type *)                                                  \
    {                                                                                              \
        using It = struct type;                                                                    \
        return std::make_tuple(__VA_ARGS__);                                                       \
    }
#define FIELD(field) std::pair(#field, &It::field)

FIELDS(ng_signature, FIELD(op), FIELD(dtype), FIELD(redop), FIELD(root), FIELD(count))
FIELDS(ng_edge, FIELD(peer), FIELD(flags), FIELD(channels), FIELD(begun), FIELD(taken), FIELD(held),
       FIELD(channel), FIELD(queued), FIELD(base), FIELD(posted), FIELD(consumed))
FIELDS(ng_view_record, FIELD(id), FIELD(state), FIELD(signature), FIELD(coll_seq), FIELD(p2p_seq),
       FIELD(peer_ordinal), FIELD(entered_age_ns), FIELD(caller), FIELD(flags), FIELD(tid),
       FIELD(result), FIELD(rolling_hash), FIELD(started_age_ns), FIELD(completed_age_ns),
       FIELD(stream), FIELD(work_previous), FIELD(duration_ns), FIELD(graph), FIELD(replay),
       FIELD(graph_position), FIELD(graph_calls))
FIELDS(ng_view_sample, FIELD(seq), FIELD(calls), FIELD(duration_ns))
FIELDS(ng_view_host_calls, FIELD(entered), FIELD(op), FIELD(tid), FIELD(open))
FIELDS(ng_view_registration, FIELD(known), FIELD(closed), FIELD(segments), FIELD(segment_bytes),
       FIELD(bytes), FIELD(registered_bytes), FIELD(made), FIELD(ended), FIELD(failed),
       FIELD(deferred), FIELD(spent_ns))
FIELDS(ng_view_member, FIELD(device), FIELD(nranks), FIELD(nccl_version), FIELD(state),
       FIELD(async_error), FIELD(cuda_error), FIELD(creator_tid), FIELD(ordinal), FIELD(derived),
       FIELD(host_calls), FIELD(entered), FIELD(scheduled), FIELD(started), FIELD(completed),
       FIELD(p2p_entered), FIELD(p2p_completed), FIELD(color), FIELD(created_by),
       FIELD(created_age_ns), FIELD(ended_age_ns), FIELD(pci_id), FIELD(rolling_hash), FIELD(last),
       FIELD(pending_seq), FIELD(pending_record), FIELD(pending_age_ns), FIELD(pending_started),
       FIELD(pending_vague), FIELD(pending_inferred), FIELD(pending_unwatched), FIELD(counted),
       FIELD(kernel), FIELD(counted_seq), FIELD(counted_left), FIELD(timeout_ns),
       FIELD(error_age_ns), FIELD(rests), FIELD(policy), FIELD(coll_joined), FIELD(p2p_joined),
       FIELD(groups_closed), FIELD(joined_id), FIELD(excluded), FIELD(registration))
FIELDS(ng_view_nan, FIELD(age_ns), FIELD(group_id), FIELD(seq), FIELD(op), FIELD(dtype),
       FIELD(elements), FIELD(bad), FIELD(element), FIELD(bits), FIELD(held))
FIELDS(ng_settable_values, FIELD(of))
FIELDS(ng_device_error, FIELD(kind), FIELD(number), FIELD(count), FIELD(age_ns), FIELD(pci_id))
FIELDS(ng_memory_sum, FIELD(segments), FIELD(bytes))
FIELDS(ng_view_process, FIELD(rank), FIELD(world_size), FIELD(local_rank), FIELD(nccl_variables),
       FIELD(pid), FIELD(uid), FIELD(life), FIELD(exit_status), FIELD(life_age_ns),
       FIELD(alive_age_ns), FIELD(host), FIELD(program), FIELD(source), FIELD(watchdog_stuck_ns),
       FIELD(watchdog_in), FIELD(nan), FIELD(memory_kinds), FIELD(memory), FIELD(error_text),
       FIELD(set), FIELD(devices_age_ns), FIELD(device_error_count), FIELD(device_errors))
FIELDS(ng_view_group, FIELD(id), FIELD(parent_id), FIELD(nranks), FIELD(nccl_version), FIELD(name))
FIELDS(ng_view_call, FIELD(process), FIELD(tid), FIELD(op), FIELD(group_id), FIELD(group_rank),
       FIELD(seq), FIELD(record_id), FIELD(age_ns))
FIELDS(ng_logged_fault, FIELD(text), FIELD(times), FIELD(rank), FIELD(op), FIELD(group_id),
       FIELD(seq))
FIELDS(ng_view_fault, FIELD(process), FIELD(fault), FIELD(first_age_ns), FIELD(last_age_ns))

/* The enumerations' values that are told: from 0 up to below this. */
constexpr uint64_t limit_of(enum ng_life)
{
    return NG_LIFE_LOST + 1;
}
constexpr uint64_t limit_of(enum ng_group_state)
{
    return NG_GROUP_FAILED + 1;
}
constexpr uint64_t limit_of(enum ng_op)
{
    return NG_OP_LIMIT;
}
constexpr uint64_t limit_of(enum ng_record_state)
{
    return NG_RECORD_UNWATCHED + 1;
}

template <typename T> void set_any(Random &random, T &value)
{
    if constexpr (std::is_same_v<T, bool>) {
        value = random() % 2;
    } else if constexpr (std::is_enum_v<T>) {
        value = (T)(random() % limit_of(T()));
    } else if constexpr (std::is_same_v<T, int>) {
        value = any_int(random);
    } else if constexpr (std::is_same_v<T, int64_t>) {
        value = (int64_t)(any(random) >> 2); /* an age */
    } else if constexpr (std::is_integral_v<T>) {
        value = (T)any(random);
    } else if constexpr (std::is_same_v<std::remove_extent_t<T>, char>) {
        any_text(random, value, sizeof(value));
    } else if constexpr (std::is_array_v<T>) {
        for (auto &element : value)
            set_any(random, element);
    } else {
        std::apply([&](auto... field) { (set_any(random, value.*field.second), ...); },
                   fields_of(&value));
    }
    if constexpr (std::is_same_v<T, struct ng_settable_values>)
        for (uint8_t &one : value.of)
            one %= 4; /* each has that many values */
    if constexpr (std::is_same_v<T, struct ng_signature>) {
        value.op %= NG_OP_LIMIT;
        if (random() % 2)
            value = {NG_OP_AllReduce, 7, 0, -1, 1024};
    }
}

template <typename T> T any_value(Random &random)
{
    T value = {};
    set_any(random, value);
    return value;
}

struct ng_view_record any_record(Random &random)
{
    auto record = any_value<struct ng_view_record>(random);
    record.state = (enum ng_record_state)(1 + random() % NG_RECORD_UNWATCHED);
    record.graph |= 1;
    if (random() % 3)
        record.graph = record.replay = record.graph_position = record.graph_calls = 0;
    return record;
}

void add_any_member(Random &random, struct ng_view *view, uint32_t process, uint32_t group)
{
    int nranks = view->groups[group].nranks, nccl_version = view->groups[group].nccl_version;
    struct ng_view_member *member = ng_view_add_member(
        view, process, group, nranks > 0 ? (int)(random() % (uint64_t)(nranks + 1)) - 1 : -1);
    set_any(random, *member);
    /* As its group, or as it alone was told. */
    member->nranks = random() % 3 ? nranks : (int)(random() % 9000) | 1;
    member->nccl_version = random() % 3 ? nccl_version : any_int(random) | 1;
    member->created_by %= NG_OP_LIMIT;
    member->host_calls.op = 1 + member->host_calls.op % (NG_OP_LIMIT - 1);
    if (random() % 2)
        member->host_calls = {};
    if (random() % 2)
        member->last = {};
    if (random() % 2) {
        member->pending_seq = member->pending_record = 0;
        member->pending_age_ns = 0;
    }
    if (!member->counted)
        member->counted_seq = member->counted_left = 0;
    member->kernel %= 3;
    member->registration.known = true;
    if (random() % 2)
        member->registration = {};
    struct ng_edge edges[NG_EDGES_MAX];
    uint32_t edge_count = (uint32_t)(random() % (NG_EDGES_MAX + 1));
    set_any(random, edges);
    EXPECT_TRUE(ng_view_set_edges(view, member, edges, edge_count,
                                  edge_count ? any_value<int64_t>(random) : 0));
    member->record_count = (uint32_t)(random() % 40);
    member->records = (struct ng_view_record *)ng_arena_alloc(
        &view->arena, member->record_count * sizeof(*member->records) + 1);
    for (uint32_t i = 0; i < member->record_count; i++)
        member->records[i] = any_record(random);
    for (uint64_t samples = random() % (NG_PROGRESS_SAMPLES + 1); samples > 0; samples--) {
        auto sample = any_value<struct ng_view_sample>(random);
        EXPECT_TRUE(ng_view_add_sample(view, member, &sample));
    }
}

void add_any_process(Random &random, struct ng_view *view, const std::vector<uint64_t> &ids)
{
    struct ng_view_process *process = ng_view_add_process(view);
    uint32_t index = view->process_count - 1;
    set_any(random, *process);
    process->watchdog_stuck_ns |= 1;
    if (random() % 4)
        process->watchdog_stuck_ns = process->watchdog_in[0] = 0;
    if (random() % 4)
        process->error_text[0] = '\0';
    process->nan.age_ns |= 1;
    if (random() % 4)
        process->nan = {};
    process->device_error_count = (uint32_t)(random() % (NG_DEVICE_ERRORS_MAX + 1));
    for (uint32_t i = 0; i < NG_DEVICE_ERRORS_MAX; i++) {
        process->device_errors[i].kind = 1 + (uint32_t)(random() % (NG_DEVICE_ERROR_KINDS - 1));
        process->device_errors[i].count |= 1;
        if (i >= process->device_error_count)
            process->device_errors[i] = {};
    }
    process->memory_kinds = (uint32_t)(random() % (NG_BOX_MEMORY_KINDS + 1));
    for (uint32_t i = process->memory_kinds; i < NG_BOX_MEMORY_KINDS; i++)
        process->memory[i] = {};
    for (uint64_t members = random() % 12; members > 0; members--)
        add_any_member(random, view, index, ng_view_intern_group(view, ids[random() % ids.size()]));
    for (uint64_t calls = random() % 4; calls > 0; calls--) {
        struct ng_view_call *call = ng_view_add_call(view, index);
        set_any(random, *call);
        call->process = index;
        if (random() % 2)
            call->group_id = ids[random() % ids.size()];
    }
    for (uint64_t failures = random() % 3; failures > 0; failures--) {
        int nranks = 1 + (int)(random() % 9000);
        struct ng_view_failure *failure =
            ng_view_add_failure(view, index, any(random), (int)(random() % (uint64_t)nranks));
        failure->member.nranks = nranks;
        failure->member.nccl_version = (int)(random() % 99999);
        failure->member.created_by = (uint32_t)(random() % NG_OP_LIMIT);
        set_any(random, failure->member.device);
        set_any(random, failure->member.pci_id);
        set_any(random, failure->member.created_age_ns);
        set_any(random, failure->member.ended_age_ns);
    }
    for (uint64_t faults = random() % 3; faults > 0; faults--) {
        auto fault = any_value<struct ng_logged_fault>(random);
        if (random() % 2)
            fault.group_id = ids[random() % ids.size()];
        struct ng_view_fault *told = ng_view_add_fault(view, index, &fault);
        set_any(random, told->first_age_ns);
        set_any(random, told->last_age_ns);
    }
}

void fill_any(Random &random, struct ng_view *view, uint32_t processes)
{
    std::vector<uint64_t> ids;
    for (uint64_t count = 1 + random() % 6; count > 0; count--) {
        ids.push_back(random() | 1);
        uint32_t index = ng_view_intern_group(view, ids.back());
        struct ng_view_group *group = &view->groups[index];
        group->nranks = random() % 5 ? (int)(random() % 9000) : NG_VIEW_NRANKS_MAX;
        group->nccl_version = any_int(random);
        group->parent_id = random() % 2 ? ids[random() % ids.size()] : any(random);
        any_text(random, group->name, sizeof(group->name));
    }
    while (processes-- > 0)
        add_any_process(random, view, ids);
}

std::string encode(const struct ng_view *view, uint32_t process, struct ng_progress_limits limits)
{
    OwnArena arena;
    const void *data = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(ng_progress_encode(view, process, &limits, &arena, &data, &bytes), 0);
    std::string blob((const char *)data, bytes);
    return blob;
}

constexpr struct ng_progress_limits all_of_it = {UINT32_MAX, 0x1234567890abcdef,
                                                 1763629200000000000, NG_PROGRESS_BY_NEIGHBOUR,
                                                 0xfedcba0987654321};

#define SAME(field) EXPECT_EQ(a.field, b.field) << #field

template <typename T> void expect_same(const T &a, const T &b, const char *name = "")
{
    if constexpr (std::is_same_v<std::remove_extent_t<T>, char>) {
        EXPECT_STREQ(a, b) << name;
    } else if constexpr (std::is_array_v<T>) {
        for (size_t i = 0; i < std::extent_v<T>; i++)
            expect_same(a[i], b[i], name);
    } else if constexpr (std::is_class_v<T>) {
        std::apply(
            [&](auto... field) {
                (expect_same(a.*field.second, b.*field.second, field.first), ...);
            },
            fields_of(&a));
    } else {
        EXPECT_EQ(a, b) << name;
    }
}

template <typename T> void expect_same_all(const T *a, uint32_t count, const T *b, uint32_t others)
{
    EXPECT_EQ(count, others);
    for (uint32_t i = 0; i < count && i < others; i++)
        expect_same(a[i], b[i]);
}
#define SAME_ALL(fields, count) expect_same_all(a.fields, a.count, b.fields, b.count)

void expect_same_member(const struct ng_view_member &a, const struct ng_view_member &b)
{
    SAME(process);
    SAME(group_rank);
    expect_same(a, b);
    SAME(edges_age_ns);
    SAME_ALL(edges, edge_count);
    SAME_ALL(records, record_count);
    SAME_ALL(samples, sample_count);
}

/* Views with the same processes in the same order. */
void expect_same_view(const struct ng_view &a, const struct ng_view &b)
{
    SAME_ALL(processes, process_count);
    ASSERT_EQ(a.member_count, b.member_count);
    for (uint32_t i = 0; i < a.member_count; i++) {
        expect_same_member(a.members[i], b.members[i]);
        expect_same(a.groups[a.members[i].group], b.groups[b.members[i].group]);
    }
    SAME_ALL(calls, call_count);
    ASSERT_EQ(a.failure_count, b.failure_count);
    for (uint32_t i = 0; i < a.failure_count; i++) {
        SAME(failures[i].group_id);
        expect_same_member(a.failures[i].member, b.failures[i].member);
    }
    SAME_ALL(faults, fault_count);
}

/* A rank as it is in a training job: ten groups, collectives in all of them. */
void fill_usual(struct ng_view *view, int groups, int records)
{
    struct ng_view_process *process = ng_view_add_process(view);
    process->rank = 1234;
    process->world_size = 4096;
    process->local_rank = 2;
    process->pid = 1234567;
    process->uid = 0x123456789abcdef0;
    process->life = NG_LIFE_RUNNING;
    snprintf(process->host, sizeof(process->host), "gpu-node-0154");
    snprintf(process->program, sizeof(process->program), "python3.11");
    snprintf(process->source, sizeof(process->source), "box-1234567-987654321");
    for (int g = 0; g < groups; g++) {
        struct ng_view_group told = {.id = 0x9e3779b97f4a7c15 * (uint64_t)(g + 1),
                                     .parent_id = g ? 0x9e3779b97f4a7c15 : 0,
                                     .nranks = g ? 8 << g % 4 : 4096,
                                     .nccl_version = 22809};
        snprintf(told.name, sizeof(told.name), "%s_group_%d", g % 2 ? "tensor" : "data", g);
        uint32_t group = ng_view_tell_group(view, &told);
        struct ng_view_member *member = ng_view_add_member(view, 0, group, 7);
        uint64_t seq = 100000 + 999 * (uint64_t)g;
        member->device = 2;
        member->nranks = told.nranks;
        member->nccl_version = told.nccl_version;
        member->state = NG_GROUP_READY;
        member->creator_tid = 1234567;
        member->ordinal = (uint32_t)g;
        member->entered = member->scheduled = seq;
        member->started = member->completed = seq - 2;
        member->color = g ? 3 : -1;
        member->created_by = NG_OP_CommSplit;
        member->created_age_ns = 3600 * NG_S + g;
        snprintf(member->pci_id, sizeof(member->pci_id), "0000:1b:00.0");
        member->rolling_hash = seq * 0x123456789abcdef1;
        member->last = {NG_OP_AllReduce, 9, 0, -1, 25 << 20};
        member->pending_seq = seq - 1;
        member->pending_record = seq * 10;
        member->pending_age_ns = 12345678;
        member->record_count = (uint32_t)records;
        member->records = (struct ng_view_record *)ng_arena_alloc(
            &view->arena, (size_t)records * sizeof(*member->records));
        for (int i = 0; i < records; i++) {
            struct ng_view_record *record = &member->records[i];
            record->id = (seq - (uint64_t)(records - 1 - i)) * 10;
            record->state = i < records - 2 ? NG_RECORD_COMPLETED : NG_RECORD_SCHEDULED;
            record->signature = {NG_OP_AllReduce, 9, 0, -1, (uint64_t)(i % 3 + 1) << 20};
            record->coll_seq = seq - (uint64_t)(records - 1 - i);
            record->entered_age_ns = (int64_t)(records - i) * 4321987;
            record->caller = 0x7f1234567890;
            record->tid = 1234567;
            record->rolling_hash = record->coll_seq * 0x123456789abcdef1;
        }
    }
    struct ng_view_call *call = ng_view_add_call(view, 0);
    call->tid = 1234567;
    call->op = NG_OP_AllReduce;
    call->group_id = view->groups[0].id;
    call->seq = 100000;
    call->age_ns = 4321;
}

} // namespace

TEST(Progress, TellsEveryFieldOfAnyProcess)
{
    for (unsigned seed = 0; seed < 150; seed++) {
        Random random(seed);
        OwnView view, again;
        fill_any(random, &view, 1 + (uint32_t)(random() % 5));
        for (uint32_t process = 0; process < view.process_count; process++) {
            std::string blob = encode(&view, process, all_of_it);
            uint32_t index = UINT32_MAX;
            ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
            EXPECT_EQ(index, process);
        }
        expect_same_view(view, again);
        /* And once more, to the byte. */
        for (uint32_t process = 0; process < view.process_count; process++)
            EXPECT_EQ(encode(&again, process, all_of_it), encode(&view, process, all_of_it));
        if (HasFailure())
            FAIL() << "seed " << seed;
    }
}

/* What follows the head; its length is a number of up to two bytes. */
std::string behind_head(const std::string &blob)
{
    size_t at = 5, length = (unsigned char)blob[at] & 0x7f;
    if ((unsigned char)blob[at++] & 0x80)
        length |= (size_t)(unsigned char)blob[at++] << 7;
    return blob.substr(at + length);
}

/* An older reader passes over what it does not know of: then no text behind it may be another one.
 */
TEST(Progress, WhatTheHeadHasGrownByChangesNothingBehindIt)
{
    OwnView view;
    fill_usual(&view, 4, 3);
    std::string before = encode(&view, 0, all_of_it);
    struct ng_view_process *process = &view.processes[0];
    /* Also one that comes again behind it. */
    snprintf(process->nccl_variables, sizeof(process->nccl_variables), "%s", view.groups[1].name);
    struct ng_logged_fault fault = {};
    snprintf(fault.text, sizeof(fault.text), "*:hang");
    fault.times = 1;
    ASSERT_NE(ng_view_add_fault(&view, 0, &fault), nullptr);
    std::string grown = encode(&view, 0, all_of_it);
    EXPECT_GT(grown.size(), before.size());
    EXPECT_EQ(behind_head(grown), behind_head(before));
}

/* The store is not ours alone: a sentence that rounds an age, or a sum of two, overflowed. */
TEST(Progress, NobodyIsSoOldThatAgesCannotBeAdded)
{
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 2);
    struct ng_view_member *member = &view.members[0];
    member->pending_record = 1;
    member->pending_age_ns = INT64_MAX;
    member->created_age_ns = INT64_MIN;
    member->records[0].entered_age_ns = INT64_MAX;
    member->records[1].entered_age_ns = 5;
    std::string blob = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    const struct ng_view_member *told = &again.members[0];
    EXPECT_EQ(told->pending_age_ns, NG_VIEW_AGE_MAX_NS);
    EXPECT_EQ(told->created_age_ns, 0);
    EXPECT_EQ(told->records[0].entered_age_ns, NG_VIEW_AGE_MAX_NS);
    EXPECT_EQ(told->records[1].entered_age_ns, 5);
    ng_progress_age(&again, index, INT64_MAX);
    EXPECT_EQ(told->pending_age_ns, NG_VIEW_AGE_MAX_NS);
    EXPECT_EQ(told->records[1].entered_age_ns, NG_VIEW_AGE_MAX_NS);
}

/* It is logged, shown on terminals and written to verdict.txt. */
TEST(Progress, TextsComeFitToBeShown)
{
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 2);
    struct ng_view_process *process = &view.processes[0];
    snprintf(process->host, sizeof(process->host), "gpu\x1b[2J\n\xff.1");
    snprintf(process->program, sizeof(process->program), "a\xe2\x80\xae.out");
    snprintf(process->error_text, sizeof(process->error_text), "one\rtwo");
    snprintf(process->nccl_variables, sizeof(process->nccl_variables), "NCCL_DEBUG=\x07");
    snprintf(view.groups[0].name, sizeof(view.groups[0].name), "dp\t\xc3");
    std::string blob = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    process = &again.processes[0];
    EXPECT_STREQ(process->host, "gpu?[2J??.1");
    EXPECT_STREQ(process->program, "a?.out");
    EXPECT_STREQ(process->error_text, "one?two");
    EXPECT_STREQ(process->nccl_variables, "NCCL_DEBUG=?");
    EXPECT_STREQ(again.groups[0].name, "dp?");
    struct ng_progress_head head;
    ASSERT_EQ(ng_progress_peek(blob.data(), blob.size(), &head), 0);
    EXPECT_STREQ(head.process.host, "gpu?[2J??.1");
}

/* It is an index into a table for whoever judges. */
TEST(Progress, AnOperationOfAMemberThatNobodyKnowsIsNone)
{
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 2);
    view.members[0].created_by = NG_OP_LIMIT;
    view.members[0].last = {UINT32_MAX, 7, 0, -1, 1024};
    view.members[0].host_calls.op = NG_OP_LIMIT;
    std::string blob = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    EXPECT_EQ(again.members[0].created_by, (uint32_t)NG_OP_NONE);
    EXPECT_EQ(again.members[0].last.op, (uint32_t)NG_OP_NONE);
    EXPECT_EQ(again.members[0].host_calls.op, (uint32_t)NG_OP_NONE);
}

/* A view grew: tell the new fields, at the end of their block, and name them in FIELDS above;
 * except suspect_ns and cold_suspect_ns of a process, which readers have from the boxes of their
 * own host, as they have ring_first and watched_age_ns, and run_word, which is in the head. */
TEST(Progress, KnowsEveryFieldOfTheView)
{
    EXPECT_EQ(sizeof(struct ng_view_process), 1592u);
    EXPECT_EQ(sizeof(struct ng_view_call), 56u);
    EXPECT_EQ(sizeof(struct ng_view_record), 176u);
    EXPECT_EQ(sizeof(struct ng_view_member), 448u);
    EXPECT_EQ(sizeof(struct ng_view_sample), 24u);
    EXPECT_EQ(sizeof(struct ng_view_group), 96u);
    EXPECT_EQ(sizeof(struct ng_view_fault), 200u);
    EXPECT_EQ(sizeof(struct ng_view_failure), 456u);
}

TEST(Progress, OfTheSamplesTheNewestAreTold)
{
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 1);
    for (uint64_t seq = 1; seq <= 40; seq++) {
        struct ng_view_sample sample = {seq * 128, 1, 3 * NG_MS};
        ASSERT_TRUE(ng_view_add_sample(&view, &view.members[0], &sample));
    }
    std::string with = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_decode(&again, with.data(), with.size(), &index), 0);
    ASSERT_EQ(again.members[0].sample_count, NG_PROGRESS_SAMPLES);
    EXPECT_EQ(again.members[0].samples[0].seq, (40 - NG_PROGRESS_SAMPLES + 1) * 128u);
    view.members[0].sample_count = 0;
    std::string without = encode(&view, 0, all_of_it);
    EXPECT_LT(with.size() - without.size(), NG_PROGRESS_SAMPLES * 8u);
}

/* Of another host only that is known of what its processes are set to. */
TEST(Progress, WhatCommandsHaveSetIsToldAndAValueThatThereIsNotIsNone)
{
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 1);
    for (uint8_t value : {NG_TIMING_ALL + 1, 200}) {
        view.processes[0].set.of[NG_SETTABLE_TIMING] = value;
        std::string blob = encode(&view, 0, all_of_it);
        ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    }
    EXPECT_STREQ(again.processes[0].settings, "NCCLGUARD_TIMING\tcommand\tall\n");
    EXPECT_EQ(again.processes[1].settings, nullptr);
    EXPECT_EQ(again.processes[1].set.of[NG_SETTABLE_TIMING], 0);
}

TEST(Progress, TheHeadIsReadAlone)
{
    Random random(5);
    OwnView view;
    struct ng_progress_head head;
    fill_any(random, &view, 1);
    const struct ng_view_process &a = view.processes[0];
    std::string blob = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_peek(blob.data(), blob.size(), &head), 0);
    EXPECT_EQ(head.label, all_of_it.label);
    EXPECT_EQ(head.written_unix_ns, all_of_it.written_unix_ns);
    EXPECT_EQ(head.reason, NG_PROGRESS_BY_NEIGHBOUR);
    EXPECT_EQ(head.launch_run, all_of_it.launch_run);
    const struct ng_view_process &b = head.process;
    SAME(uid);
    SAME(life);
    SAME(exit_status);
    SAME(life_age_ns);
    SAME(alive_age_ns);
    SAME(rank);
    SAME(world_size);
    SAME(local_rank);
    SAME(pid);
    EXPECT_STREQ(a.host, b.host);
    EXPECT_STREQ(a.program, b.program);
}

/* The engine says the same of what came by the store. */
TEST(Progress, TheVerdictStaysTheSame)
{
    int stuck = 0;
    for (unsigned seed = 0; seed < 150; seed++) {
        Random random(seed);
        Job job(8, seed % 4 != 0);
        job.group(1, "world");
        job.group(2, "left", {0, 1, 2, 3});
        job.group(3, "right", {4, 5, 6, 7});
        for (int rank = 0; rank < 8; rank++)
            for (uint64_t group : {UINT64_C(1), UINT64_C(2) + (rank > 3)}) {
                Member &member = job.at(group, group == 1 ? rank : rank % 4);
                member.did((int)(3 + random() % 3));
                if (random() % 2)
                    member.waits(random() % 8 ? all_reduce() : all_reduce(7));
                if (random() % 4 == 0)
                    member.p2p(NG_OP_Send, (int)(random() % 4), random() % 2);
            }
        int rank = (int)(random() % 8);
        job.process(rank).is((enum ng_life)(random() % (NG_LIFE_LOST + 1)), NG_S);
        if (random() % 2)
            job.inside((int)(random() % 8), NG_OP_AllReduce, 1, 4);

        OwnView view, again;
        job.fill(&view);
        for (uint32_t process = 0; process < view.process_count; process++) {
            std::string blob =
                encode(&view, process, {NG_PROGRESS_RECORDS_SUSPECT, 1, 2, NG_PROGRESS_BY_ITSELF});
            uint32_t index;
            ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
        }
        ng_view_seal(&again);
        snprintf(again.job, sizeof(again.job), "%s", view.job);
        struct ng_verdict_query query = {.stalled_ns = STALLED};
        std::string texts[2];
        for (struct ng_view *from : {&view, &again}) {
            struct ng_verdict verdict;
            ASSERT_EQ(ng_verdict_reach(from, &query, &verdict), 0);
            texts[from == &again] = text_from(
                [&](int fd) { EXPECT_EQ(ng_report_write_text(&verdict, nullptr, fd), 0); });
            stuck += verdict.kind != NG_KIND_HEALTHY;
            ng_verdict_fini(&verdict);
        }
        EXPECT_EQ(texts[0], texts[1]) << "seed " << seed;
    }
    EXPECT_GT(stuck, 150) << "most of these jobs are stuck";
}

TEST(Progress, UnfinishedRecordsComeFirstThenTheNewest)
{
    for (uint32_t room : {0u, 1u, 3u, 5u, 10u, 16u, 39u, 40u, 41u, 1000u}) {
        OwnView view, again;
        fill_usual(&view, 2, 20); /* 20 records each, two of them unfinished */
        view.members[0].records[3].state = NG_RECORD_STARTED;
        std::set<uint64_t> expected;
        std::vector<std::pair<uint64_t, bool>> all;
        for (uint32_t m = 0; m < 2; m++)
            for (uint32_t i = 0; i < 20; i++)
                all.push_back({view.members[m].records[i].id,
                               view.members[m].records[i].state != NG_RECORD_COMPLETED});
        std::sort(all.begin(), all.end());
        for (size_t i = 0; i < all.size(); i++)
            if (all[i].second && expected.size() < room)
                expected.insert(all[i].first);
        for (size_t i = all.size(); i > 0; i--)
            if (!all[i - 1].second && expected.size() < room)
                expected.insert(all[i - 1].first);

        std::string blob = encode(&view, 0, {room, 0, 0, NG_PROGRESS_BY_ITSELF});
        uint32_t index;
        ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
        std::set<uint64_t> told;
        for (uint32_t m = 0; m < again.member_count; m++)
            for (uint32_t i = 0; i < again.members[m].record_count; i++)
                told.insert(again.members[m].records[i].id);
        EXPECT_EQ(told, expected) << "room " << room;
    }
}

TEST(Progress, RecordsWithOneIdAreNoTrouble)
{
    OwnView view, again;
    fill_usual(&view, 2, 20);
    for (uint32_t m = 0; m < 2; m++)
        for (uint32_t i = 0; i < 20; i++)
            view.members[m].records[i].id = 5;
    std::string blob = encode(&view, 0, {16, 0, 0, NG_PROGRESS_BY_ITSELF});
    uint32_t index;
    ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    EXPECT_LE(again.members[0].record_count + again.members[1].record_count, 16u);
}

TEST(Progress, IsSmall)
{
    OwnView view;
    fill_usual(&view, 10, 40);
    size_t peace = encode(&view, 0, {16, 1, 1763629200000000000, NG_PROGRESS_BY_ITSELF}).size();
    size_t suspect = encode(&view, 0, {512, 1, 1763629200000000000, NG_PROGRESS_BY_ITSELF}).size();
    printf("10 groups: %zu bytes with 16 records, %zu with 400\n", peace, suspect);
    RecordProperty("bytes_peace", (int)peace);
    EXPECT_LT(peace, 1800u);
    EXPECT_LT(suspect, 13000u);
}

/* Room is counted beforehand: a neighbour writes whatever a damaged box claims. */
TEST(Progress, MembersWithTheLargestNumbersHaveRoom)
{
    constexpr int members = 2500;
    OwnView view, again;
    uint32_t index;
    fill_usual(&view, 1, 0);
    struct ng_edge edges[NG_EDGES_MAX];
    memset((void *)edges, 0xff, sizeof(edges));
    for (struct ng_edge &edge : edges)
        edge.peer = INT32_MIN;
    for (int i = 0; i < members; i++) {
        struct ng_view_member *member = ng_view_add_member(&view, 0, 0, i);
        ASSERT_NE(member, nullptr);
        ASSERT_TRUE(ng_view_set_edges(&view, member, edges, NG_EDGES_MAX, NG_VIEW_AGE_MAX_NS));
        for (uint32_t k = 0; k < NG_PROGRESS_SAMPLES; k++) {
            struct ng_view_sample sample = {k % 2 ? (uint64_t)INT64_MAX : 1, UINT32_MAX,
                                            INT64_MAX - 1};
            ASSERT_TRUE(ng_view_add_sample(&view, member, &sample));
        }
        struct ng_view_registration *registration = &member->registration;
        registration->known = true;
        registration->segments = registration->segment_bytes = registration->bytes =
            registration->registered_bytes = registration->made = registration->ended =
                registration->failed = registration->deferred = registration->spent_ns = UINT64_MAX;
        for (uint32_t &entered : member->host_calls.entered)
            entered = UINT32_MAX;
        member->entered = member->p2p_entered = INT64_MAX;
        member->coll_joined = member->p2p_joined = member->groups_closed = UINT64_MAX;
        member->pending_seq = member->pending_record = UINT64_MAX;
        member->timeout_ns = member->created_age_ns = member->ended_age_ns = member->error_age_ns =
            member->pending_age_ns = NG_VIEW_AGE_MAX_NS;
        member->last = {UINT32_MAX, INT32_MIN, INT32_MIN, INT32_MIN, UINT64_MAX};
        member->joined_id = member->excluded = UINT64_MAX;
    }
    std::string blob = encode(&view, 0, all_of_it);
    ASSERT_EQ(ng_progress_decode(&again, blob.data(), blob.size(), &index), 0);
    EXPECT_EQ(again.member_count, members + 1u);
}

TEST(Progress, MoreThanAnybodyReadsIsNotWritten)
{
    OwnView view;
    OwnArena arena;
    const void *data;
    size_t bytes;
    struct ng_progress_limits limits = {UINT32_MAX, 0, 0, NG_PROGRESS_BY_ITSELF};
    fill_usual(&view, 20, 10000);
    EXPECT_EQ(ng_progress_encode(&view, 0, &limits, &arena, &data, &bytes), -EMSGSIZE);
    EXPECT_EQ(ng_progress_encode(&view, 1, &limits, &arena, &data, &bytes), -EINVAL);
}

/* Cut off anywhere it is damaged, and nothing of it is taken. */
TEST(Progress, ATruncatedBlobIsRefusedWhole)
{
    Random random(3);
    OwnView view, again;
    struct ng_progress_head head;
    fill_any(random, &view, 1);
    std::string blob = encode(&view, 0, all_of_it);
    for (size_t length = 0; length < blob.size(); length++) {
        /* On the heap: beyond its end is not ours. */
        std::vector<char> cut(blob.begin(), blob.begin() + (long)length);
        uint32_t index = 77;
        EXPECT_EQ(ng_progress_decode(&again, cut.data(), cut.size(), &index), -EBADMSG);
        EXPECT_EQ(index, 77u);
        EXPECT_EQ(again.process_count + again.member_count + again.group_count, 0u);
        int error = ng_progress_peek(cut.data(), cut.size(), &head);
        EXPECT_TRUE(error == 0 || error == -EBADMSG);
    }
}

/* What is accepted can be judged, dumped and told again. */
TEST(Progress, AnyBytesAreTakenForWhatTheyAre)
{
    int accepted = 0, refused = 0;
    for (unsigned seed = 0; seed < 1500; seed++) {
        Random random(seed);
        OwnView view, again;
        if (seed % 2)
            fill_any(random, &view, 1);
        else
            fill_usual(&view, 3, 10);
        std::string blob = encode(&view, 0, all_of_it);
        std::vector<char> bytes(blob.begin(), blob.end());
        for (uint64_t changes = 1 + random() % 4; changes > 0; changes--) {
            size_t at = 5 + random() % (bytes.size() - 5); /* not magic and version */
            switch (random() % 4) {
            case 0:
                bytes[at] = (char)(bytes[at] ^ 1 << random() % 8);
                break;
            case 1:
                bytes[at] = (char)random();
                break;
            case 2:
                bytes.erase(bytes.begin() + (long)at);
                break;
            default:
                bytes.insert(bytes.begin() + (long)at, (char)random());
            }
        }
        std::vector<char> exact(bytes); /* no room behind its end */
        struct ng_progress_head head;
        uint32_t index;
        int error = ng_progress_decode(&again, exact.data(), exact.size(), &index);
        ng_progress_peek(exact.data(), exact.size(), &head);
        if (error) {
            EXPECT_EQ(error, -EBADMSG);
            EXPECT_EQ(again.process_count + again.member_count + again.call_count +
                          again.fault_count,
                      0u);
            refused++;
            continue;
        }
        accepted++;
        ng_progress_age(&again, index, (int64_t)(random() >> 1));
        encode(&again, 0, all_of_it);
        ng_view_seal(&again);
        if (accepted % 8)
            continue;
        struct ng_verdict verdict;
        struct ng_verdict_query query = {.stalled_ns = STALLED};
        ASSERT_EQ(ng_verdict_reach(&again, &query, &verdict), 0);
        ng_verdict_fini(&verdict);
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        EXPECT_EQ(ng_dump_write_process(&again, 0, null), 0);
        close(null);
    }
    EXPECT_GT(accepted, 100);
    EXPECT_GT(refused, 100);
}

TEST(Progress, ALaterVersionIsToldApartFromDamage)
{
    OwnView view, again;
    struct ng_progress_head head;
    uint32_t index;
    fill_usual(&view, 1, 1);
    std::string blob = encode(&view, 0, all_of_it);
    std::string later = blob, other = blob;
    later[4] = NG_PROGRESS_VERSION + 1;
    other[0] = 'X';
    EXPECT_EQ(ng_progress_decode(&again, later.data(), later.size(), &index), -EPROTO);
    EXPECT_EQ(ng_progress_peek(later.data(), later.size(), &head), -EPROTO);
    EXPECT_EQ(ng_progress_decode(&again, other.data(), other.size(), &index), -EBADMSG);
    EXPECT_EQ(ng_progress_decode(&again, "", 0, &index), -EBADMSG);
    EXPECT_EQ(ng_progress_peek("", 0, &head), -EBADMSG);
    EXPECT_EQ(again.process_count, 0u);
    /* What a later writer appends is skipped: at the end, and in a block, here the head. */
    std::string longer = blob + "more";
    size_t head_at = 5, length = (unsigned char)blob[head_at];
    ASSERT_LT(length, 0x7fu) << "one byte of length";
    longer[head_at] = (char)(length + 1);
    longer.insert(head_at + 1 + length, 1, 'x');
    EXPECT_EQ(ng_progress_decode(&again, longer.data(), longer.size(), &index), 0);
    expect_same_view(view, again);
}

TEST(Progress, GrowsOlderAsLongAsItsProcessLives)
{
    OwnView view;
    fill_usual(&view, 1, 2);
    struct ng_edge edge = {};
    ASSERT_TRUE(ng_view_set_edges(&view, &view.members[0], &edge, 1, NG_S));
    view.members[0].error_age_ns = NG_S;
    view.members[1].error_age_ns = 0;
    ng_progress_age(&view, 0, 5 * NG_S);
    EXPECT_EQ(view.members[0].error_age_ns, 6 * NG_S)
        << "an error from before a deadline is not its consequence";
    EXPECT_EQ(view.members[1].error_age_ns, 0) << "there is none";
    EXPECT_EQ(view.members[0].edges_age_ns, 6 * NG_S)
        << "looks of two hosts are compared by their ages";
    EXPECT_EQ(view.members[0].pending_age_ns, 12345678 + 5 * NG_S);
    EXPECT_EQ(view.members[0].created_age_ns, 3605 * NG_S);
    EXPECT_EQ(view.members[0].ended_age_ns, 0) << "it has not ended";
    EXPECT_EQ(view.members[0].records[1].entered_age_ns, 4321987 + 5 * NG_S);
    EXPECT_EQ(view.calls[0].age_ns, 4321 + 5 * NG_S);
    EXPECT_EQ(view.processes[0].life_age_ns, 0);
    ng_progress_age(&view, 0, -5 * NG_S);
    EXPECT_EQ(view.calls[0].age_ns, 4321 + 5 * NG_S) << "clocks differ: nothing gets younger";

    view.processes[0].life = NG_LIFE_DEAD;
    view.processes[0].life_age_ns = NG_S;
    ng_progress_age(&view, 0, 5 * NG_S);
    EXPECT_EQ(view.processes[0].life_age_ns, 6 * NG_S);
    EXPECT_EQ(view.processes[0].alive_age_ns, 0) << "not known";
    view.processes[0].alive_age_ns = 7 * NG_S;
    ng_progress_age(&view, 0, NG_S);
    EXPECT_EQ(view.processes[0].alive_age_ns, 8 * NG_S);
    EXPECT_EQ(view.calls[0].age_ns, 4321 + 5 * NG_S) << "as it was at its end";
}
