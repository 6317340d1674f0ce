/*
 * One process of a view in a few bytes: the reader.
 *
 * Pure: no clock, no lock, no malloc. Entered by the store's thread, which looks at heads, by the
 * incident thread for a verdict, and by tools that show a job. Must take any bytes for what they
 * are: the store is not ours alone.
 */
#include "store/wire/progress.h"

#include <errno.h>
#include <string.h>

#include "core/util/text.h"
#include "store/wire/progress_wire.h"

/*
 * Everything is read twice, at first with `append` false, to find out whether it is whole. A
 * failure is noted and zeros are read from there on.
 */
struct reader {
    const unsigned char *at, *end;
    bool bad;
    struct {
        const unsigned char *start;
        size_t length;
    } texts[NG_PROGRESS_TEXTS];
    uint32_t text_count;
    struct ng_view *view;
    bool append;
    bool short_of_memory;
    uint32_t process;
    const unsigned char *group_ids;
    struct group *groups;
    uint32_t group_count;
    struct ng_view_fault faults[PROGRESS_FAULTS];
    uint32_t fault_count;
    bool tells_failures; /* behind the calls */
    struct ng_view_record before;
};

/* A group of the blob. */
struct group {
    uint32_t index; /* in the view */
    int nranks, nccl_version;
};

/* ---- Numbers, texts and blocks ---- */

static uint64_t get_number(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (reader->at == reader->end)
            break;
        unsigned byte = *reader->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    reader->bad = true;
    return 0;
}

static uint64_t get_number_below(struct reader *reader, uint64_t limit)
{
    uint64_t value = get_number(reader);

    if (value < limit)
        return value;
    reader->bad = true;
    return 0;
}

static uint32_t get_uint32(struct reader *reader)
{
    return (uint32_t)get_number_below(reader, (uint64_t)UINT32_MAX + 1);
}

static int64_t get_signed(struct reader *reader)
{
    uint64_t folded = get_number(reader);

    return (int64_t)(folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0));
}

static int get_int(struct reader *reader)
{
    int64_t value = get_signed(reader);

    if (value >= INT32_MIN && value <= INT32_MAX)
        return (int)value;
    reader->bad = true;
    return 0;
}

static int64_t get_age(struct reader *reader)
{
    return ng_view_age(get_signed(reader));
}

static uint64_t get_difference(struct reader *reader)
{
    return (uint64_t)get_signed(reader);
}

static uint64_t fixed_at(const unsigned char *bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static uint64_t get_fixed(struct reader *reader)
{
    if (reader->end - reader->at < 8) {
        reader->bad = true;
        return 0;
    }
    reader->at += 8;
    return fixed_at(reader->at - 8);
}

/* A longer text than there is room for, or one with a 0 in it, is cut; and it is fit to be shown.
 */
static void get_any_text(struct reader *reader, bool plain, char *ret_text, size_t room)
{
    uint64_t number = get_number(reader), length = number >> 1;
    const unsigned char *start = reader->at;

    ret_text[0] = '\0';
    if (plain && (number & 1)) {
        reader->bad = true;
        return;
    }
    if (number & 1) {
        if (length >= reader->text_count) {
            reader->bad = true;
            return;
        }
        start = reader->texts[length].start;
        length = reader->texts[length].length;
    } else {
        if (length > (uint64_t)(reader->end - reader->at)) {
            reader->bad = true;
            return;
        }
        reader->at += length;
        if (!plain && length && reader->text_count < NG_PROGRESS_TEXTS) {
            reader->texts[reader->text_count].start = start;
            reader->texts[reader->text_count++].length = (size_t)length;
        }
    }
    if (length > room - 1)
        length = room - 1;
    memcpy(ret_text, start, (size_t)length);
    ret_text[length] = '\0';
    ng_text_clean(ret_text, strlen(ret_text), false);
}

static void get_text(struct reader *reader, char *ret_text, size_t room)
{
    get_any_text(reader, false, ret_text, room);
}

static void get_plain_text(struct reader *reader, char *ret_text, size_t room)
{
    get_any_text(reader, true, ret_text, room);
}

/* A block begins: the reader ends with it. Returns the end of all. */
static const unsigned char *open_reading(struct reader *reader)
{
    const unsigned char *end = reader->end;
    uint64_t length = get_number(reader);

    if (length > (uint64_t)(reader->end - reader->at)) {
        reader->bad = true;
        length = 0;
    }
    reader->end = reader->at + length;
    return end;
}

/* What a later writer added is skipped. */
static void close_reading(struct reader *reader, const unsigned char *end)
{
    reader->at = reader->end;
    reader->end = end;
}

/* How many blocks follow: no more than there are bytes. */
static uint32_t get_count(struct reader *reader)
{
    return (uint32_t)get_number_below(reader, (uint64_t)(reader->end - reader->at) + 1);
}

/* ---- The parts of a process ---- */

static void get_signature(struct reader *reader, struct ng_signature *ret_signature)
{
    ret_signature->op = get_uint32(reader);
    ret_signature->dtype = get_int(reader);
    ret_signature->redop = get_int(reader);
    ret_signature->root = get_int(reader);
    ret_signature->count = get_number(reader);
}

/* One that only a later version knows is none that this one can tell of. */
static uint32_t get_op(struct reader *reader)
{
    uint32_t op = get_uint32(reader);

    return op < NG_OP_LIMIT ? op : NG_OP_NONE;
}

static uint64_t get_id(struct reader *reader)
{
    uint64_t number = get_number(reader);

    if (number == ID_NONE)
        return 0;
    if (number == ID_FIXED)
        return get_fixed(reader);
    if (number - ID_INDEX < reader->group_count)
        return fixed_at(reader->group_ids + 8 * (number - ID_INDEX));
    reader->bad = true;
    return 0;
}

/* Writers before them end here. */
static void get_faults(struct reader *reader)
{
    uint32_t count =
        reader->at < reader->end ? (uint32_t)get_number_below(reader, PROGRESS_FAULTS + 1) : 0;

    reader->fault_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ng_view_fault *told = &reader->faults[reader->fault_count];
        *told = (struct ng_view_fault){0};
        get_plain_text(reader, told->fault.text, sizeof(told->fault.text));
        told->fault.times = get_number(reader);
        told->fault.rank = get_int(reader);
        uint32_t op = get_uint32(reader);
        told->fault.op = (enum ng_op)op;
        told->fault.group_id = get_fixed(reader);
        told->fault.seq = get_number(reader);
        told->first_age_ns = get_age(reader);
        told->last_age_ns = get_age(reader);
        reader->fault_count += op < NG_OP_LIMIT; /* else only a later version knows it */
    }
}

/* Kinds beyond those that there is room for only a later version knows. */
static void get_memory(struct reader *reader, bool told, struct ng_progress_head *ret_head)
{
    uint64_t kinds = told ? get_number_below(reader, 256) : 0;

    ret_head->memory_kinds = kinds < NG_BOX_MEMORY_KINDS ? (uint32_t)kinds : NG_BOX_MEMORY_KINDS;
    for (uint64_t i = 0; i < kinds; i++) {
        struct ng_memory_sum sum = {.segments = get_number(reader)};
        sum.bytes = get_number(reader);
        if (i < NG_BOX_MEMORY_KINDS)
            ret_head->memory[i] = sum;
    }
}

static void get_nan(struct reader *reader, bool told, struct ng_view_nan *ret_nan)
{
    *ret_nan = (struct ng_view_nan){0};
    if (!told)
        return;
    struct ng_view_nan nan = {.age_ns = get_age(reader)};
    nan.group_id = get_fixed(reader);
    nan.seq = get_number(reader);
    uint32_t op = get_uint32(reader);
    nan.op = (enum ng_op)op;
    nan.dtype = get_int(reader);
    nan.elements = get_number(reader);
    nan.bad = get_number(reader);
    nan.element = get_number(reader);
    nan.bits = get_fixed(reader);
    nan.held = get_number(reader);
    if (op < NG_OP_LIMIT) /* else only a later version knows it */
        *ret_nan = nan;
}

static void get_head(struct reader *reader, struct ng_progress_head *ret_head)
{
    const unsigned char *end = open_reading(reader);

    ret_head->watchdog_stuck_ns = 0;
    ret_head->watchdog_in[0] = ret_head->error_text[0] = '\0';
    ret_head->uid = get_fixed(reader);
    ret_head->label = get_fixed(reader);
    ret_head->written_unix_ns = get_signed(reader);
    if (ret_head->written_unix_ns < 0)
        ret_head->written_unix_ns = 0; /* so that it can be taken from now */
    ret_head->reason = (enum ng_progress_reason)get_number_below(reader, 256);
    ret_head->life = (enum ng_life)get_number_below(reader, NG_LIFE_LOST + 1);
    ret_head->exit_status = get_int(reader);
    ret_head->life_age_ns = get_age(reader);
    ret_head->rank = get_int(reader);
    ret_head->world_size = get_int(reader);
    ret_head->local_rank = get_int(reader);
    ret_head->pid = get_int(reader);
    get_text(reader, ret_head->host, sizeof(ret_head->host));
    get_text(reader, ret_head->program, sizeof(ret_head->program));
    /* An earlier writer's head ends here. */
    uint64_t bits = reader->at == reader->end ? 0 : get_number(reader);
    if (bits & HEAD_WATCHDOG) {
        ret_head->watchdog_stuck_ns = get_age(reader);
        get_text(reader, ret_head->watchdog_in, sizeof(ret_head->watchdog_in));
    }
    if (bits & HEAD_ERROR)
        get_text(reader, ret_head->error_text, sizeof(ret_head->error_text));
    ret_head->nccl_variables[0] = '\0';
    reader->tells_failures = bits & HEAD_FAILURES;
    if (bits & HEAD_VARIABLES)
        get_plain_text(reader, ret_head->nccl_variables, sizeof(ret_head->nccl_variables));
    get_faults(reader);
    get_memory(reader, bits & HEAD_MEMORY, ret_head);
    get_nan(reader, bits & HEAD_NAN, &ret_head->nan);
    ret_head->alive_age_ns = bits & HEAD_ALIVE ? get_age(reader) : 0;
    close_reading(reader, end);
}

static void get_groups(struct reader *reader)
{
    uint32_t count = get_count(reader);

    if (count > (size_t)(reader->end - reader->at) / 8) {
        reader->bad = true;
        return;
    }
    reader->group_ids = reader->at;
    reader->group_count = count;
    reader->at += 8 * (size_t)count;
    if (!reader->groups)
        reader->groups =
            ng_arena_alloc(&reader->view->arena, (count + 1) * sizeof(*reader->groups));
    if (!reader->groups) {
        reader->short_of_memory = true;
        return;
    }
    for (uint32_t i = 0; i < count && !reader->bad; i++) {
        const unsigned char *end = open_reading(reader);
        struct ng_view_group told = {.id = fixed_at(reader->group_ids + 8 * (size_t)i)};
        told.parent_id = get_id(reader);
        told.nranks = get_int(reader);
        told.nccl_version = get_int(reader);
        get_text(reader, told.name, sizeof(told.name));
        close_reading(reader, end);
        if (!told.id || told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX)
            reader->bad = true;
        reader->groups[i].nranks = told.nranks;
        reader->groups[i].nccl_version = told.nccl_version;
        if (!reader->append)
            continue;
        reader->groups[i].index = ng_view_tell_group(reader->view, &told);
        if (reader->groups[i].index == UINT32_MAX) {
            reader->short_of_memory = true;
            return;
        }
    }
}

/* False: of an operation that only a later version knows. */
static bool get_record(struct reader *reader, struct ng_view_record *ret_record)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_record record = reader->before;
    uint64_t bits = get_number(reader);

    record.id += get_difference(reader);
    record.coll_seq += get_difference(reader);
    record.p2p_seq += get_difference(reader);
    record.entered_age_ns = (int64_t)((uint64_t)record.entered_age_ns + get_difference(reader));
    record.state = (enum ng_record_state)get_number_below(reader, NG_RECORD_UNWATCHED + 1);
    record.peer_ordinal = get_number(reader);
    record.flags = get_uint32(reader);
    record.result = get_int(reader);
    if (!(bits & SAME_SIGNATURE))
        get_signature(reader, &record.signature);
    if (!(bits & SAME_CALLER))
        record.caller = get_number(reader);
    if (!(bits & SAME_TID))
        record.tid = get_uint32(reader);
    record.rolling_hash = bits & RECORD_HASH ? get_fixed(reader) : 0;
    record.started_age_ns =
        bits & RECORD_STARTED ? (int64_t)((uint64_t)record.entered_age_ns - get_difference(reader))
                              : 0;
    record.completed_age_ns =
        bits & RECORD_COMPLETED
            ? (int64_t)((uint64_t)record.entered_age_ns - get_difference(reader))
            : 0;
    if (bits & OTHER_STREAM)
        record.stream = get_number(reader);
    record.work_previous = bits & RECORD_JOINED ? record.id - get_difference(reader) : 0;
    record.duration_ns = bits & RECORD_DURATION ? (int64_t)get_number_below(reader, INT64_MAX) : 0;
    if (bits & RECORD_REPLAY) {
        record.graph += get_difference(reader);
        record.replay += get_difference(reader);
        record.graph_position = get_uint32(reader);
        record.graph_calls = get_uint32(reader);
    } else {
        record.graph = record.replay = 0;
        record.graph_position = record.graph_calls = 0;
    }
    close_reading(reader, end);
    reader->before = record;
    record.entered_age_ns = ng_view_age(record.entered_age_ns);
    record.started_age_ns = ng_view_age(record.started_age_ns);
    record.completed_age_ns = ng_view_age(record.completed_age_ns);
    *ret_record = record;
    return record.signature.op < NG_OP_LIMIT;
}

static void get_records(struct reader *reader, struct ng_view_member *member)
{
    uint32_t count = get_count(reader);
    struct ng_view_record record;

    if (reader->append && count) {
        member->records = ng_arena_alloc(&reader->view->arena, count * sizeof(*member->records));
        if (!member->records) {
            reader->short_of_memory = true;
            return;
        }
    }
    for (uint32_t i = 0; i < count && !reader->bad; i++)
        if (get_record(reader, &record) && reader->append)
            member->records[member->record_count++] = record;
}

/* Into `samples`, of which there are NG_PROGRESS_SAMPLES; how many. */
static uint32_t get_samples(struct reader *reader, struct ng_view_sample *samples)
{
    uint32_t count = (uint32_t)get_number_below(reader, NG_PROGRESS_SAMPLES + 1);
    uint64_t seq = 0;

    for (uint32_t i = 0; i < count; i++) {
        seq += get_difference(reader);
        samples[i].seq = seq;
        samples[i].calls = get_uint32(reader);
        samples[i].duration_ns = (int64_t)get_number_below(reader, INT64_MAX);
    }
    return reader->bad ? 0 : count;
}

static void get_registration(struct reader *reader, struct ng_view_registration *ret_told)
{
    *ret_told = (struct ng_view_registration){.known = true, .closed = get_number(reader) != 0};
    ret_told->segments = get_number(reader);
    ret_told->segment_bytes = get_number(reader);
    ret_told->bytes = get_number(reader);
    ret_told->registered_bytes = get_number(reader);
    ret_told->made = get_number(reader);
    ret_told->ended = get_number(reader);
    ret_told->failed = get_number(reader);
    ret_told->deferred = get_number(reader);
    ret_told->spent_ns = get_number(reader);
}

static void get_member(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_member told = {.process = reader->process};
    struct ng_view_sample samples[NG_PROGRESS_SAMPLES];
    uint64_t bits = get_number(reader);
    uint64_t place = get_number_below(reader, reader->group_count);

    told.group_rank = get_int(reader);
    told.device = get_int(reader);
    told.state = (enum ng_group_state)get_number_below(reader, NG_GROUP_FAILED + 1);
    told.async_error = get_int(reader);
    told.cuda_error = get_int(reader);
    told.creator_tid = get_uint32(reader);
    told.ordinal = get_uint32(reader);
    told.derived = get_uint32(reader);
    told.entered = get_number(reader);
    told.scheduled = told.entered - get_difference(reader);
    told.started = told.scheduled - get_difference(reader);
    told.completed = told.started - get_difference(reader);
    told.p2p_entered = get_number(reader);
    told.p2p_completed = told.p2p_entered - get_difference(reader);
    told.color = get_int(reader);
    told.created_by = get_op(reader);
    told.created_age_ns = get_age(reader);
    told.ended_age_ns = get_age(reader);
    get_text(reader, told.pci_id, sizeof(told.pci_id));
    if (bits & MEMBER_HASH)
        told.rolling_hash = get_fixed(reader);
    if (bits & MEMBER_LAST)
        get_signature(reader, &told.last);
    if (told.last.op >= NG_OP_LIMIT)
        told.last = (struct ng_signature){0};
    if (bits & MEMBER_PENDING) {
        told.pending_seq = get_number(reader);
        told.pending_record = get_number(reader);
        told.pending_age_ns = get_age(reader);
    }
    told.pending_started = bits & MEMBER_STARTED;
    told.pending_vague = bits & MEMBER_VAGUE;
    told.rests = bits & MEMBER_RESTS;
    if (bits & MEMBER_TIMEOUT)
        told.timeout_ns = get_age(reader);
    if (bits & MEMBER_JOINED) {
        told.coll_joined = get_number(reader);
        told.p2p_joined = get_number(reader);
        told.groups_closed = get_number(reader);
    }
    if (bits & MEMBER_GROWN) {
        told.joined_id = get_id(reader);
        told.excluded = get_id(reader);
    }
    uint32_t sample_count = bits & MEMBER_SAMPLES ? get_samples(reader, samples) : 0;
    if (!reader->bad && place < reader->group_count) {
        told.nranks = reader->groups[place].nranks;
        told.nccl_version = reader->groups[place].nccl_version;
    }
    if (bits & MEMBER_UNLIKE) {
        told.nranks = get_int(reader);
        told.nccl_version = get_int(reader);
        reader->bad |= told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX;
    }
    if (bits & MEMBER_REGISTRATION)
        get_registration(reader, &told.registration);
    if (bits & MEMBER_ERROR)
        told.error_age_ns = get_age(reader);
    close_reading(reader, end);
    if (reader->bad)
        return;
    if (told.group_rank < -1 || told.group_rank >= NG_VIEW_NRANKS_MAX ||
        (told.group_rank >= 0 && told.group_rank >= reader->groups[place].nranks)) {
        reader->bad = true;
        return;
    }
    if (reader->append) {
        told.group = reader->groups[place].index;
        struct ng_view_member *member =
            ng_view_add_member(reader->view, reader->process, told.group, told.group_rank);
        if (!member) {
            reader->short_of_memory = true;
            return;
        }
        *member = told;
        for (uint32_t i = 0; i < sample_count; i++)
            if (!ng_view_add_sample(reader->view, member, &samples[i]))
                reader->short_of_memory = true;
        get_records(reader, member);
    } else {
        get_records(reader, NULL);
    }
}

static void get_call(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_call told = {.process = reader->process};

    told.tid = get_uint32(reader);
    told.op = (enum ng_op)get_uint32(reader);
    told.group_id = get_id(reader);
    told.group_rank = get_int(reader);
    told.seq = get_number(reader);
    told.record_id = get_number(reader);
    told.age_ns = get_age(reader);
    close_reading(reader, end);
    if (!reader->append || told.op >= NG_OP_LIMIT)
        return;
    struct ng_view_call *call = ng_view_add_call(reader->view, reader->process);
    if (call)
        *call = told;
    else
        reader->short_of_memory = true;
}

static void get_failure(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_member told = {.process = reader->process};

    uint64_t group_id = get_fixed(reader);
    told.group_rank = get_int(reader);
    told.nranks = get_int(reader);
    told.nccl_version = get_int(reader);
    told.device = get_int(reader);
    get_text(reader, told.pci_id, sizeof(told.pci_id));
    told.created_by = (enum ng_op)get_uint32(reader);
    told.created_age_ns = get_age(reader);
    told.ended_age_ns = get_age(reader);
    close_reading(reader, end);
    if (!reader->append || told.group_rank < 0 || told.group_rank >= told.nranks ||
        told.nranks > NG_VIEW_NRANKS_MAX || told.nccl_version < 0 || told.created_by >= NG_OP_LIMIT)
        return;
    struct ng_view_failure *failure =
        ng_view_add_failure(reader->view, reader->process, group_id, told.group_rank);
    if (!failure) {
        reader->short_of_memory = true;
        return;
    }
    told.color = failure->member.color;
    told.state = failure->member.state;
    failure->member = told;
}

/* ---- The whole blob, and its head alone ---- */

static bool goes_on(const struct reader *reader)
{
    return !reader->bad && !reader->short_of_memory;
}

static int result_of(const struct reader *reader)
{
    return reader->short_of_memory ? -ENOMEM : reader->bad ? -EBADMSG : 0;
}

/* Up to where the head begins. */
static int begin(struct reader *reader, const void *data, size_t bytes)
{
    reader->at = data;
    reader->end = reader->at + bytes;
    reader->text_count = 0;
    reader->before = (struct ng_view_record){0};
    if (bytes < sizeof(progress_magic) || bytes > NG_PROGRESS_BYTES_MAX ||
        memcmp(data, progress_magic, sizeof(progress_magic)) != 0)
        return -EBADMSG;
    reader->at += sizeof(progress_magic);
    uint64_t version = get_number(reader);
    return reader->bad || version == 0 ? -EBADMSG : version > NG_PROGRESS_VERSION ? -EPROTO : 0;
}

/* When the ages of a process are 0: as it wrote, or at its end. 0 not known. */
static int64_t moment_of(const struct ng_progress_head *head)
{
    bool lives = head->life == NG_LIFE_RUNNING || head->life == NG_LIFE_STOPPED;
    int64_t moment;

    if (__builtin_sub_overflow(head->written_unix_ns, lives ? 0 : head->life_age_ns, &moment))
        return 0;
    return moment > 0 ? moment : 0;
}

static void add_process(struct reader *reader, const struct ng_progress_head *head,
                        const char *source)
{
    struct ng_view_process *process = ng_view_add_process(reader->view);

    if (!process) {
        reader->short_of_memory = true;
        return;
    }
    reader->process = reader->view->process_count - 1;
    process->rank = head->rank;
    process->world_size = head->world_size;
    process->local_rank = head->local_rank;
    process->pid = head->pid;
    process->uid = head->uid;
    process->life = head->life;
    process->exit_status = head->exit_status;
    process->life_age_ns = head->life_age_ns;
    process->alive_age_ns = head->alive_age_ns;
    process->moment_unix_ns = moment_of(head);
    memcpy(process->host, head->host, sizeof(process->host));
    memcpy(process->program, head->program, sizeof(process->program));
    memcpy(process->nccl_variables, head->nccl_variables, sizeof(process->nccl_variables));
    memcpy(process->source, source, sizeof(process->source));
    process->watchdog_stuck_ns = head->watchdog_stuck_ns;
    memcpy(process->watchdog_in, head->watchdog_in, sizeof(process->watchdog_in));
    memcpy(process->error_text, head->error_text, sizeof(process->error_text));
    process->nan = head->nan;
    process->memory_kinds = head->memory_kinds;
    for (uint32_t i = 0; i < head->memory_kinds; i++)
        process->memory[i] = head->memory[i];
    for (uint32_t i = 0; i < reader->fault_count; i++) {
        const struct ng_view_fault *told = &reader->faults[i];
        struct ng_view_fault *added =
            ng_view_add_fault(reader->view, reader->process, &told->fault);
        if (!added) {
            reader->short_of_memory = true;
            return;
        }
        added->first_age_ns = told->first_age_ns;
        added->last_age_ns = told->last_age_ns;
    }
}

/* The whole blob, once. */
static int get_process(struct reader *reader, const void *data, size_t bytes)
{
    struct ng_progress_head head;
    char source[sizeof(reader->view->processes->source)];
    int error = begin(reader, data, bytes);

    if (error)
        return error;
    get_head(reader, &head);
    get_text(reader, source, sizeof(source));
    if (reader->append)
        add_process(reader, &head, source);
    if (goes_on(reader))
        get_groups(reader);
    uint32_t members = goes_on(reader) ? get_count(reader) : 0;
    for (uint32_t i = 0; i < members && goes_on(reader); i++)
        get_member(reader);
    uint32_t calls = goes_on(reader) ? get_count(reader) : 0;
    for (uint32_t i = 0; i < calls && goes_on(reader); i++)
        get_call(reader);
    uint32_t failures = goes_on(reader) && reader->tells_failures ? get_count(reader) : 0;
    for (uint32_t i = 0; i < failures && goes_on(reader); i++)
        get_failure(reader);
    return result_of(reader);
}

int ng_progress_decode(struct ng_view *view, const void *data, size_t bytes, uint32_t *ret_process)
{
    struct reader reader = {.view = view};
    int error = get_process(&reader, data, bytes);

    if (error)
        return error;
    reader.append = true;
    error = get_process(&reader, data, bytes);
    if (!error)
        *ret_process = reader.process;
    return error;
}

int ng_progress_peek(const void *data, size_t bytes, struct ng_progress_head *ret_head)
{
    struct reader reader = {0};
    struct ng_progress_head head;
    int error = begin(&reader, data, bytes);

    if (error)
        return error;
    get_head(&reader, &head);
    if (reader.bad)
        return -EBADMSG;
    *ret_head = head;
    return 0;
}
