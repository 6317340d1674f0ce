/*
 * Adds a black box to a view.
 *
 * The box may be written to during the reading, and it may be a damaged or truncated file. So every
 * number is checked before use, and a slot whose guard word changed during the reading is read
 * again or skipped.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/config/settable.h"
#include "core/recorder/kept.h"
#include "core/recorder/signature.h"
#include "core/util/text.h"
#include "core/view/view.h"

/* State while one box is read. */
struct reading {
    struct ng_view *view;
    const struct ng_box *box;
    int64_t now_mono_ns;
    uint32_t process;
    uint32_t *first_member_of_slot; /* group slot -> member index + 1 */
    uint32_t slots;
};

static void copy_text(char *ret_text, size_t bytes, const char *text, size_t room)
{
    size_t length = strnlen(text, room < bytes ? room : bytes - 1);
    memcpy(ret_text, text, length);
    ret_text[length] = '\0';
}

static int64_t age_of(const struct reading *reading, int64_t mono_ns)
{
    return mono_ns > 0 && mono_ns < reading->now_mono_ns ? reading->now_mono_ns - mono_ns : 0;
}

/* Converts with the one instant that the header has on both clocks; 0 if the result makes no
 * sense. */
static int64_t unix_time_of(const struct ng_box_header *header, int64_t mono_ns)
{
    int64_t difference, unix_ns;

    if (header->origin_unix_ns <= 0 ||
        __builtin_sub_overflow(header->origin_unix_ns, header->origin_mono_ns, &difference) ||
        __builtin_add_overflow(difference, mono_ns, &unix_ns) || unix_ns < 0)
        return 0;
    return unix_ns;
}

/* Reads the hash and the count together: the hash is valid only for its own count. */
static void read_entered(const struct ng_box_group *group, struct ng_view_member *member)
{
    member->entered = atomic_load_explicit(&group->entered, memory_order_acquire);
    for (int tries = 0; tries < 8; tries++) {
        uint64_t hash = NG_LOAD(group->rolling_hash);
        atomic_thread_fence(memory_order_acquire);
        uint64_t entered = NG_LOAD(group->entered);
        if (entered == member->entered) {
            member->rolling_hash = entered ? hash : 0;
            return;
        }
        member->entered = entered;
    }
}

static void read_device(const struct ng_box_group *group, struct ng_view_member *member)
{
    uint64_t pci_id[] = {NG_LOAD(group->pci_id[0]), NG_LOAD(group->pci_id[1])};

    member->device = NG_LOAD(group->device);
    copy_text(member->pci_id, sizeof(member->pci_id), (const char *)pci_id, sizeof(pci_id));
}

/* A communicator that could not be created; reported if it may be the reason why other ranks are
 * still creating it. */
static bool read_failure(struct reading *reading, const struct ng_box_group *group)
{
    int nranks = NG_LOAD(group->nranks), group_rank = NG_LOAD(group->group_rank);

    if (NG_LOAD(group->id) == 0 || group_rank < 0 || group_rank >= nranks ||
        nranks > NG_VIEW_NRANKS_MAX)
        return true;
    struct ng_view_failure *failure =
        ng_view_add_failure(reading->view, reading->process, NG_LOAD(group->id), group_rank);
    if (!failure)
        return false;
    read_device(group, &failure->member);
    failure->member.nranks = nranks;
    failure->member.nccl_version = NG_LOAD(group->nccl_version);
    failure->member.created_by = NG_LOAD(group->created_by);
    failure->member.created_age_ns = age_of(reading, NG_LOAD(group->created_mono_ns));
    failure->member.ended_age_ns = age_of(reading, NG_LOAD(group->ended_mono_ns));
    return true;
}

/* Reads the registrations only if they belong to the communicator that has the slot now. */
static void read_registration(const struct ng_box *box, uint32_t slot,
                              struct ng_view_registration *ret_registration)
{
    if (slot >= box->registration_capacity)
        return;
    const struct ng_box_registrations *from = &box->registrations[slot];
    uint32_t generation = atomic_load_explicit(&from->generation, memory_order_acquire);
    if (!generation || generation != NG_LOAD(box->groups[slot].generation))
        return;
    struct ng_view_registration registration = {.known = true, .closed = NG_LOAD(from->closed)};
#define READ(count) registration.count = NG_LOAD(from->count);
    NG_REGISTRATION_COUNTS(READ)
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(from->generation) == generation)
        *ret_registration = registration;
}

static void read_memory(const struct ng_box_header *header, struct ng_view_process *process)
{
    uint32_t kinds = atomic_load_explicit(&header->memory_kinds, memory_order_acquire);

    process->memory_kinds = kinds < NG_BOX_MEMORY_KINDS ? kinds : NG_BOX_MEMORY_KINDS;
    for (uint32_t i = 0; i < process->memory_kinds; i++)
        process->memory[i] = (struct ng_memory_sum){.segments = NG_LOAD(header->memory[i].segments),
                                                    .bytes = NG_LOAD(header->memory[i].bytes)};
}

static void read_host_calls(const struct ng_box *box, uint32_t slot,
                            struct ng_view_host_calls *ret_calls)
{
    if (slot >= box->host_calls_capacity)
        return;
    const struct ng_box_host_calls *calls = &box->host_calls[slot];
    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        ret_calls->entered[i] = NG_LOAD(calls->entered[i]);
    uint32_t op = NG_LOAD(calls->op);
    ret_calls->op = op < NG_OP_LIMIT ? op : NG_OP_NONE;
    ret_calls->tid = NG_LOAD(calls->tid);
    ret_calls->open = NG_LOAD(calls->open);
}

static int read_groups(struct reading *reading)
{
    struct ng_view *view = reading->view;

    for (uint32_t slot = 0; slot < reading->slots; slot++) {
        const struct ng_box_group *group = &reading->box->groups[slot];
        uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);
        int nranks = NG_LOAD(group->nranks), group_rank = NG_LOAD(group->group_rank);
        if (state == NG_GROUP_FAILED && !read_failure(reading, group))
            return -ENOMEM;
        if (state == NG_GROUP_FREE || state == NG_GROUP_FAILED || NG_LOAD(group->id) == 0)
            continue;
        if (state > NG_GROUP_FAILED || nranks < 0 || nranks > NG_VIEW_NRANKS_MAX ||
            group_rank >= nranks) {
            if (state > NG_GROUP_FAILED || nranks > 0)
                ng_view_note(view, "%s: group slot %u is damaged and left out",
                             view->processes[reading->process].source, slot);
            continue;
        }
        struct ng_view_group told = {.id = NG_LOAD(group->id),
                                     .parent_id = NG_LOAD(group->parent_id),
                                     .nranks = nranks,
                                     .nccl_version = NG_LOAD(group->nccl_version)};
        char name[NG_BOX_NAME_BYTES];
        ng_box_read_name(group, name);
        copy_text(told.name, sizeof(told.name), name, sizeof(name));
        uint32_t index = ng_view_tell_group(view, &told);
        if (index == UINT32_MAX)
            return -ENOMEM;

        struct ng_view_member *member =
            ng_view_add_member(view, reading->process, index, group_rank);
        if (!member)
            return -ENOMEM;
        reading->first_member_of_slot[slot] = view->member_count;
        read_device(group, member);
        read_registration(reading->box, slot, &member->registration);
        read_host_calls(reading->box, slot, &member->host_calls);
        member->nranks = nranks;
        member->nccl_version = told.nccl_version;
        member->state = (enum ng_group_state)state;
        member->async_error = NG_LOAD(group->async_error);
        member->error_age_ns = age_of(reading, NG_LOAD(group->error_mono_ns));
        member->cuda_error = NG_LOAD(group->cuda_error);
        member->creator_tid = NG_LOAD(group->creator_tid);
        member->ordinal = NG_LOAD(group->ordinal);
        member->derived = NG_LOAD(group->derived);
        member->completed = NG_LOAD(group->completed);
        member->started = NG_LOAD(group->started);
        member->scheduled = NG_LOAD(group->scheduled);
        read_entered(group, member);
        member->p2p_completed = NG_LOAD(group->p2p_completed);
        member->p2p_entered = NG_LOAD(group->p2p_entered);
        uint64_t last_call = NG_LOAD(group->last_call);
        if (!NG_LOAD(group->entered_record))
            member->last = (struct ng_signature){.op = (uint16_t)last_call,
                                                 .dtype = (int16_t)(last_call >> 16),
                                                 .redop = NG_LOAD(group->last_redop),
                                                 .root = (int32_t)(last_call >> 32),
                                                 .count = NG_LOAD(group->last_count)};
        member->color = NG_LOAD(group->color);
        member->joined_id = NG_LOAD(group->joined_id);
        member->excluded = NG_LOAD(group->excluded);
        member->created_by = NG_LOAD(group->created_by);
        member->created_age_ns = age_of(reading, NG_LOAD(group->created_mono_ns));
        member->ended_age_ns = age_of(reading, NG_LOAD(group->ended_mono_ns));
        int64_t timeout_ns = NG_LOAD(group->timeout_ns);
        member->timeout_ns =
            timeout_ns ? (timeout_ns > 0 ? timeout_ns : 0) : reading->box->header->timeout_ns;
        member->rests = NG_LOAD(group->rests) == NG_REST_OWN;
        uint32_t policy = NG_LOAD(group->policy);
        member->policy = policy <= UINT8_MAX ? (uint8_t)policy : 0;
        member->coll_joined = NG_LOAD(group->coll_joined);
        member->p2p_joined = NG_LOAD(group->p2p_joined);
        member->groups_closed = NG_LOAD(group->groups_closed);
        member->pending_record = NG_LOAD(group->pending_record);
        if (member->pending_record) {
            member->pending_seq = NG_LOAD(group->pending_seq);
            member->pending_age_ns = NG_LOAD(group->pending_age_ns);
            member->pending_started = NG_LOAD(group->pending_started);
            uint32_t doubt = NG_LOAD(group->pending_doubt);
            member->pending_vague = doubt & NG_PENDING_VAGUE;
            member->pending_unwatched = doubt & NG_PENDING_UNWATCHED;
            member->pending_inferred = NG_LOAD(group->pending_started) == NG_START_INFERRED;
            member->counted = ng_box_read_counted(NG_LOAD(group->counted), member->pending_record,
                                                  member->entered, &member->counted_seq,
                                                  &member->counted_left, &member->kernel);
            struct ng_edge edges[NG_EDGES_MAX];
            int64_t looked_mono_ns = 0;
            uint32_t count =
                ng_edges_read(reading->box, slot, member->pending_record, edges, &looked_mono_ns);
            if (!ng_view_set_edges(view, member, edges, count, age_of(reading, looked_mono_ns)))
                return -ENOMEM;
        }
    }
    return 0;
}

static bool add_thread(struct reading *reading, const struct ng_box_thread *slot, uint32_t tid)
{
    uint64_t name[] = {NG_LOAD(slot->name[0]), NG_LOAD(slot->name[1])};
    struct ng_view_thread *thread = ng_view_add_thread(reading->view, reading->process, tid);

    if (thread)
        copy_text(thread->name, sizeof(thread->name), (const char *)name, sizeof(name));
    return thread != NULL;
}

static int read_threads(struct reading *reading)
{
    uint32_t used = NG_LOAD(reading->box->header->thread_used);

    for (uint32_t i = 0; i < used && i < reading->box->thread_capacity; i++) {
        const struct ng_box_thread *thread = &reading->box->threads[i];
        uint32_t tid = atomic_load_explicit(&thread->tid, memory_order_acquire);
        uint32_t op = NG_LOAD(thread->op);
        if (!tid)
            continue;
        if (!add_thread(reading, thread, tid))
            return -ENOMEM;
        if (!op || op >= NG_OP_LIMIT)
            continue;
        struct ng_view_call *call = ng_view_add_call(reading->view, reading->process);
        if (!call)
            return -ENOMEM;
        call->tid = tid;
        call->op = (enum ng_op)op;
        uint32_t slot = NG_LOAD(thread->group_slot);
        call->group_rank = -1;
        if (slot < reading->slots) {
            call->group_id = NG_LOAD(reading->box->groups[slot].id);
            call->group_rank = NG_LOAD(reading->box->groups[slot].group_rank);
        }
        call->record_id = NG_LOAD(thread->record_id);
        call->seq = NG_LOAD(thread->seq);
        call->age_ns = age_of(reading, NG_LOAD(thread->since_mono_ns));
    }
    return 0;
}

/* Makes a consistent copy of a slot. False: never used, or overwritten during the reading. */
static bool copy_record(const struct ng_box_record *slot, const struct reading *reading,
                        struct ng_view_record *ret_record, uint32_t *ret_group_slot)
{
    uint64_t before = atomic_load_explicit(&slot->id_state, memory_order_acquire);

    if (before == 0 || ng_record_state(before) == NG_RECORD_WRITING)
        return false;
    *ret_group_slot = NG_LOAD(slot->group_slot);
    *ret_record = (struct ng_view_record){
        .id = ng_record_id(before),
        .state = ng_record_state(before),
        .signature = ng_signature_of_record(slot),
        .coll_seq = NG_LOAD(slot->coll_seq),
        .p2p_seq = NG_LOAD(slot->p2p_seq),
        .peer_ordinal = NG_LOAD(slot->peer_ordinal),
        .entered_age_ns = age_of(reading, NG_LOAD(slot->entered_mono_ns)),
        .started_age_ns = age_of(reading, NG_LOAD(slot->started_mono_ns)),
        .completed_age_ns = age_of(reading, NG_LOAD(slot->completed_mono_ns)),
        .stream = NG_LOAD(slot->stream),
        .work_previous = NG_LOAD(slot->work_previous),
        .caller = NG_LOAD(slot->caller),
        .flags = NG_LOAD(slot->flags),
        .tid = NG_LOAD(slot->tid),
        .result = NG_LOAD(slot->result),
        .rolling_hash = NG_LOAD(slot->rolling_hash),
    };
    if (ret_record->flags & NG_RECORD_REPLAYED) {
        ret_record->graph = NG_LOAD(slot->graph);
        ret_record->replay = NG_LOAD(slot->replay);
        ret_record->graph_position = NG_LOAD(slot->graph_position);
        ret_record->graph_calls = NG_LOAD(slot->graph_calls);
    }
    /* May be any number in a damaged box. */
    int64_t duration_ns = NG_LOAD(slot->duration_ns);
    ret_record->duration_ns = duration_ns > 0 ? duration_ns : 0;
    uint64_t group_id = NG_LOAD(slot->group_id);
    atomic_thread_fence(memory_order_acquire);
    uint64_t after = atomic_load_explicit(&slot->id_state, memory_order_relaxed);
    /* The state may have advanced; the rest is written once per id. */
    if (ng_record_id(after) != ng_record_id(before))
        return false;
    if (*ret_group_slot >= reading->slots || !reading->first_member_of_slot[*ret_group_slot] ||
        ret_record->signature.op >= NG_OP_LIMIT)
        return false;
    /* If the slot of the group table was reused since, the record belongs to a group that is
     * gone. */
    const struct ng_view_member *member =
        &reading->view->members[reading->first_member_of_slot[*ret_group_slot] - 1];
    return reading->view->groups[member->group].id == group_id ||
           NG_LOAD(reading->box->groups[*ret_group_slot].former_id) == group_id;
}

/*
 * The newest collective, if the ring still has it. Its rolling hash is certainly that of `entered`;
 * the group's may be one ahead, if its thread was stopped in between.
 */
static void find_last(struct ng_view_member *member)
{
    bool found = false;

    for (uint32_t i = member->record_count; i > 0 && !found; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (ng_view_record_is_p2p(record) || !ng_view_record_counts(record))
            continue;
        if (record->coll_seq > member->entered)
            member->rolling_hash = 0;
        if (record->coll_seq != member->entered)
            continue;
        found = true;
        member->rolling_hash = record->rolling_hash;
        if (!member->last.op)
            member->last = record->signature;
    }
}

/* A record that outlasted the ring (core/recorder/kept.h). Its communicator's counters tell whether
 * it is done, should its own state be late. */
static bool copy_kept(const struct ng_box_record *slot, const struct reading *reading,
                      struct ng_view_record *ret_record, uint32_t *ret_group_slot)
{
    if (ng_kept_worth(reading->box, slot) == 0 ||
        !copy_record(slot, reading, ret_record, ret_group_slot))
        return false;
    const struct ng_view_member *member =
        &reading->view->members[reading->first_member_of_slot[*ret_group_slot] - 1];
    bool done = ng_view_record_is_p2p(ret_record) ? ret_record->p2p_seq <= member->p2p_completed
                                                  : ret_record->coll_seq <= member->completed;
    if (done && !ng_view_record_is_retired(ret_record))
        ret_record->state = NG_RECORD_COMPLETED;
    return true;
}

/* In order of their ids. One that was being moved may be seen in both places. */
static void place(struct ng_view_member *member, uint32_t *placed,
                  const struct ng_view_record *record)
{
    uint32_t at = *placed;

    while (at > 0 && member->records[at - 1].id > record->id)
        at--;
    if (*placed == member->record_count || (at > 0 && member->records[at - 1].id == record->id))
        return;
    memmove(&member->records[at + 1], &member->records[at],
            (*placed - at) * sizeof(*member->records));
    member->records[at] = *record;
    ++*placed;
}

/*
 * An NCCL group that failed has undone its calls, and their numbers are used again. Where the ring
 * has wrapped around meanwhile, that may not have come to all records that outlasted it: what is
 * not numbered below the calls after it was undone.
 */
static void mark_undone(struct ng_view_member *member, uint64_t first_of_ring)
{
    uint64_t number = member->entered + member->p2p_entered + 1;

    for (uint32_t i = member->record_count; i > 0; i--) {
        struct ng_view_record *record = &member->records[i - 1];
        if (!ng_view_record_counts(record))
            continue;
        if (record->id < first_of_ring && ng_view_record_op_id(record) >= number)
            record->state = NG_RECORD_FAILED;
        else
            number = ng_view_record_op_id(record);
    }
}

/* Drop what lies before a gap: that a call has no record would look as if it had not been made. */
static void drop_before_gap(struct ng_view_member *member, uint64_t first_of_ring)
{
    uint64_t number = member->entered + member->p2p_entered + 1;
    uint32_t i = member->record_count;

    for (; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (record->id < first_of_ring && ng_view_record_op_id(record) + 1 < number)
            break;
        if (ng_view_record_counts(record))
            number = ng_view_record_op_id(record);
    }
    member->records += i;
    member->record_count -= i;
}

/* Records sorted into their members, oldest first: count, then place. */
static int read_records(struct reading *reading)
{
    const struct ng_box *box = reading->box;
    struct ng_view *view = reading->view;
    uint64_t next = NG_LOAD(box->header->record_next);
    uint32_t capacity = box->record_capacity;
    struct ng_view_record record;
    uint32_t slot;

    if (!capacity || next <= 1)
        return 0;
    uint64_t oldest = next > capacity ? next - capacity : 1;
    view->processes[reading->process].ring_first = oldest;
    for (uint32_t i = 0; i < box->kept_capacity && oldest > 1; i++)
        if (copy_kept(&box->records[capacity + i], reading, &record, &slot))
            view->members[reading->first_member_of_slot[slot] - 1].record_count++;
    for (uint64_t id = oldest; id < next && id - oldest < capacity; id++)
        if (copy_record(&box->records[ng_record_slot(id, capacity)], reading, &record, &slot))
            view->members[reading->first_member_of_slot[slot] - 1].record_count++;
    for (uint32_t i = 0; i < reading->slots; i++) {
        if (!reading->first_member_of_slot[i])
            continue;
        struct ng_view_member *member = &view->members[reading->first_member_of_slot[i] - 1];
        if (!member->record_count)
            continue;
        member->records =
            ng_arena_alloc(&view->arena, member->record_count * sizeof(*member->records));
        if (!member->records)
            return -ENOMEM;
    }
    uint32_t *placed = ng_arena_alloc(&view->arena, (reading->slots + 1) * sizeof(*placed));
    if (!placed)
        return -ENOMEM;
    /* One that is copied meanwhile is in either. Calls made since `next` was read have overwritten
     * the oldest ones: in a large ring they are many, and must not be moved for each other record.
     */
    for (int newer = 0; newer < 2; newer++)
        for (uint64_t id = oldest; id < next && id - oldest < capacity; id++) {
            const struct ng_box_record *from = &box->records[ng_record_slot(id, capacity)];
            if ((ng_record_id(NG_LOAD(from->id_state)) >= next) == newer &&
                copy_record(from, reading, &record, &slot))
                place(&view->members[reading->first_member_of_slot[slot] - 1], &placed[slot],
                      &record);
        }
    for (uint32_t i = 0; i < box->kept_capacity && oldest > 1; i++)
        if (copy_kept(&box->records[capacity + i], reading, &record, &slot))
            place(&view->members[reading->first_member_of_slot[slot] - 1], &placed[slot], &record);
    for (uint32_t i = 0; i < reading->slots; i++)
        if (reading->first_member_of_slot[i]) {
            struct ng_view_member *member = &view->members[reading->first_member_of_slot[i] - 1];
            member->record_count = placed[i];
            mark_undone(member, oldest);
            find_last(member);
            drop_before_gap(member, oldest);
        }
    return 0;
}

static int read_durations(const struct reading *reading)
{
    struct ng_duration duration;

    for (uint32_t i = 0; i < reading->box->duration_capacity; i++)
        if (ng_durations_read(reading->box, i, &duration) &&
            !ng_view_add_duration(reading->view, reading->process, &duration))
            return -ENOMEM;
    return 0;
}

static int read_faults(const struct reading *reading)
{
    struct ng_logged_fault fault;

    for (uint32_t i = 0; i < reading->box->fault_capacity; i++) {
        if (!ng_fault_log_read(reading->box, i, &fault))
            continue;
        struct ng_view_fault *added = ng_view_add_fault(reading->view, reading->process, &fault);
        if (!added)
            return -ENOMEM;
        added->first_age_ns = age_of(reading, fault.first_mono_ns);
        added->last_age_ns = age_of(reading, fault.last_mono_ns);
    }
    return 0;
}

/* Samples of a communicator whose slot another one has reused are dropped. */
static int read_samples(const struct reading *reading)
{
    const struct ng_box *box = reading->box;
    struct ng_duration_sample sample;
    uint64_t number, end;

    for (ng_duration_samples(box, &number, &end); number < end; number++) {
        if (!ng_duration_sample_read(box, number, &sample) || sample.group_slot >= reading->slots ||
            !reading->first_member_of_slot[sample.group_slot])
            continue;
        struct ng_view_member *member =
            &reading->view->members[reading->first_member_of_slot[sample.group_slot] - 1];
        if (reading->view->groups[member->group].id != sample.group_id &&
            NG_LOAD(box->groups[sample.group_slot].former_id) != sample.group_id)
            continue;
        struct ng_view_sample added = {
            .seq = sample.seq, .calls = sample.calls, .duration_ns = sample.duration_ns};
        if (!ng_view_add_sample(reading->view, member, &added))
            return -ENOMEM;
    }
    return 0;
}

static void read_watchdog(const struct ng_box_header *header, int64_t now_mono_ns,
                          struct ng_view_process *process)
{
    int64_t since = atomic_load_explicit(&header->watchdog_stuck_mono_ns, memory_order_acquire);
    int64_t watched = NG_LOAD(header->watchdog_mono_ns);
    uint64_t words[NG_BOX_FRAME_BYTES / 8];

    if (watched > 0 && watched < now_mono_ns)
        process->watched_age_ns = now_mono_ns - watched;
    if (since <= 0 || since >= now_mono_ns)
        return;
    process->watchdog_stuck_ns = now_mono_ns - since;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        words[i] = NG_LOAD(header->watchdog_in[i]);
    copy_text(process->watchdog_in, sizeof(process->watchdog_in), (const char *)words,
              sizeof(words));
}

/* A reader that runs while a second NaN is written sees the first one, or none. */
static void read_nan(const struct ng_box_header *header, const struct reading *reading,
                     struct ng_view_nan *ret_nan)
{
    const struct ng_box_nan *from = &header->nan;
    int64_t found = atomic_load_explicit(&from->found_mono_ns, memory_order_acquire);
    uint32_t op = NG_LOAD(from->op);

    if (found <= 0 || op >= NG_OP_LIMIT)
        return;
    int64_t age_ns = age_of(reading, found);
    struct ng_view_nan nan = {.age_ns = age_ns > 0 ? age_ns : 1,
                              .group_id = NG_LOAD(from->group_id),
                              .seq = NG_LOAD(from->seq),
                              .op = (enum ng_op)op,
                              .dtype = NG_LOAD(from->dtype),
                              .elements = NG_LOAD(from->elements),
                              .bad = NG_LOAD(from->bad),
                              .element = NG_LOAD(from->element),
                              .bits = NG_LOAD(from->bits),
                              .held = NG_LOAD(from->held)};
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(from->found_mono_ns) == found)
        *ret_nan = nan;
}

static void read_devices(const struct reading *reading, struct ng_view_process *process)
{
    int64_t looked_ns;

    process->device_error_count = ng_device_errors_read(reading->box, reading->now_mono_ns,
                                                        process->device_errors, &looked_ns);
    if (looked_ns)
        process->devices_age_ns = age_of(reading, looked_ns);
    if (looked_ns && !process->devices_age_ns)
        process->devices_age_ns = 1;
}

/* Clean, whatever a damaged box has there. */
static int read_settings(const struct reading *reading)
{
    struct ng_view_process *process = &reading->view->processes[reading->process];
    size_t bytes = reading->box->settings_bytes;

    for (unsigned i = 0; i < NG_SETTABLES; i++) {
        uint8_t value = NG_LOAD(reading->box->header->set[i]);
        process->set.of[i] = ng_settable_has_value((enum ng_settable)i, value) ? value : 0;
    }
    if (bytes)
        bytes = strnlen(reading->box->settings, bytes);
    if (!bytes)
        return ng_view_apply_set(reading->view, reading->process);
    char *text = ng_arena_alloc(&reading->view->arena, bytes + 1);
    if (!text)
        return -ENOMEM;
    memcpy(text, reading->box->settings, bytes);
    text[bytes] = '\0';
    ng_text_clean(text, bytes, true);
    process->settings = text;
    return ng_view_apply_set(reading->view, reading->process);
}

int ng_view_add_box(struct ng_view *view, const struct ng_box *box, enum ng_life life,
                    int64_t now_mono_ns, const char *source)
{
    struct ng_view_process *process = ng_view_add_process(view);
    struct reading reading = {.view = view, .box = box, .now_mono_ns = now_mono_ns};

    if (!process)
        return -ENOMEM;
    if (ng_box_read(box, NG_BOX_ALL) != 0)
        ng_view_note(view, "%s: cut off, or replaced: of its process is known what was read before",
                     source);
    reading.process = view->process_count - 1;
    process->rank = box->header->rank;
    process->world_size = box->header->world_size;
    process->local_rank = box->header->local_rank;
    process->pid = box->header->pid;
    process->uid = ng_box_uid(box->header);
    process->run_word = ng_box_run_word(box->header);
    copy_text(process->host, sizeof(process->host), box->header->host, sizeof(box->header->host));
    copy_text(process->program, sizeof(process->program), box->header->program,
              sizeof(box->header->program));
    if (atomic_load_explicit(&box->header->error_text_bytes, memory_order_acquire))
        copy_text(process->error_text, sizeof(process->error_text), box->header->error_text,
                  sizeof(box->header->error_text));
    copy_text(process->nccl_variables, sizeof(process->nccl_variables), box->header->nccl_variables,
              sizeof(box->header->nccl_variables));
    snprintf(process->source, sizeof(process->source), "%s", source);
    if (!view->job[0])
        copy_text(view->job, sizeof(view->job), box->header->job, sizeof(box->header->job));
    process->life = life;
    switch (NG_LOAD(box->header->life)) {
    case NG_BOX_EXITED:
        process->life = NG_LIFE_EXITED;
        process->exit_status = NG_LOAD(box->header->exit_status);
        break;
    case NG_BOX_ENDED_BY_GUARD:
        process->life = NG_LIFE_ENDED_BY_GUARD;
        break;
    case NG_BOX_EXECED:
        process->life = NG_LIFE_EXITED;
        process->exit_status = NG_EXIT_STATUS_EXEC;
        break;
    case NG_BOX_RUNNING:
        /* A policy was about to end it, but its launcher or a neighbour was faster. */
        if (life == NG_LIFE_DEAD && NG_LOAD(box->header->ending_policy))
            process->life = NG_LIFE_ENDED_BY_GUARD;
        break;
    default:
        ng_view_note(view, "%s: unknown state of life %u", source, NG_LOAD(box->header->life));
    }
    if (process->life != NG_LIFE_RUNNING && process->life != NG_LIFE_STOPPED) {
        int64_t ended = NG_LOAD(box->header->life_mono_ns);
        /* The ages of a dead process stop at its end. */
        if (ended <= 0)
            ended = NG_LOAD(box->header->heartbeat_mono_ns);
        if (ended > 0 && ended < now_mono_ns) {
            process->life_age_ns = now_mono_ns - ended;
            if (process->life == NG_LIFE_DEAD)
                process->alive_age_ns = process->life_age_ns;
            reading.now_mono_ns = ended;
        }
        int64_t seen = NG_LOAD(box->header->seen_end_mono_ns);
        if (process->life == NG_LIFE_DEAD && seen > ended && seen < now_mono_ns) {
            process->exit_status = NG_LOAD(box->header->seen_end);
            process->life_age_ns = now_mono_ns - seen;
            reading.now_mono_ns = seen;
        }
    }
    process->cut_off = NG_LOAD(box->header->cut_off);
    process->suspect_ns = ng_view_age(box->header->suspect_ns);
    process->cold_suspect_ns = ng_view_age(box->header->cold_suspect_ns);
    read_watchdog(box->header, reading.now_mono_ns, process);
    read_memory(box->header, process);
    read_nan(box->header, &reading, &process->nan);
    read_devices(&reading, process);
    process->moment_mono_ns = reading.now_mono_ns;
    process->moment_unix_ns = unix_time_of(box->header, reading.now_mono_ns);
    reading.slots = NG_LOAD(box->header->group_used);
    if (reading.slots > box->group_capacity) {
        ng_view_note(view, "%s: counts more groups than it has room for", source);
        reading.slots = box->group_capacity;
    }
    reading.first_member_of_slot =
        ng_arena_alloc(&view->arena, (reading.slots + 1) * sizeof(*reading.first_member_of_slot));
    if (!reading.first_member_of_slot)
        return -ENOMEM;
    int error = read_groups(&reading) ?: read_threads(&reading) ?: read_records(&reading);
    error = error ?: read_durations(&reading) ?: read_samples(&reading);
    error = error ?: read_faults(&reading) ?: read_settings(&reading);
    error = error ?: ng_view_add_call_stacks(view, box, reading.process, reading.now_mono_ns);
    ng_box_forget(box);
    return error;
}
