/*
 * One process of a view in a few bytes: its fields.
 *
 * Pure: no clock, no lock, no malloc. Entered by the store's thread, the incident thread and tools.
 * Must accept any bytes without trust: others write to the store, too.
 */
#include <errno.h>
#include <string.h>

#include "core/recorder/signature.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "store/kv/words.h"
#include "store/wire/progress_wire.h"

static const char progress_magic[4] = {'N', 'G', 'P', 'R'};

/* Parents and groups of calls: from ID_INDEX on, an index in the blob's groups. */
enum { ID_NONE = 0, ID_FIXED = 1, ID_INDEX = 2 };

/* ---- Numbers, texts and blocks ---- */

static void put_number(struct ng_coder *coder, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        coder->bytes[coder->used++] = (unsigned char)(value | 0x80);
    coder->bytes[coder->used++] = (unsigned char)value;
}

static uint64_t get_number(struct ng_coder *coder)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (coder->at == coder->end)
            break;
        unsigned byte = *coder->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    coder->bad = true;
    return 0;
}

uint64_t ng_code_number(struct ng_coder *coder, uint64_t value, uint64_t limit)
{
    if (coder->writes) {
        put_number(coder, value);
        return value;
    }
    value = get_number(coder);
    if (!limit || value < limit)
        return value;
    coder->bad = true;
    return 0;
}

static int64_t code_signed(struct ng_coder *coder, int64_t value)
{
    uint64_t folded = ng_code_number(coder, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0), 0);

    return (int64_t)(folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0));
}

uint64_t ng_code_fixed(struct ng_coder *coder, uint64_t value)
{
    if (coder->writes) {
        ng_word_put(coder->bytes + coder->used, value);
        coder->used += 8;
        return value;
    }
    if (coder->end - coder->at < 8) {
        coder->bad = true;
        return 0;
    }
    coder->at += 8;
    return ng_word_get(coder->at - 8);
}

uint32_t ng_code_count(struct ng_coder *coder, uint32_t count)
{
    return (uint32_t)ng_code_number(coder, count, (uint64_t)(coder->end - coder->at) + 1);
}

uint64_t ng_code_group_id(const struct ng_coder *coder, uint64_t index)
{
    return ng_word_get(coder->group_ids + 8 * index);
}

/* Fields of any integer type. A difference may be of any two numbers. */
#define NUMBER(field)        ((field) = ng_code_number(coder, (uint64_t)(field), 0))
#define BELOW(field, limit)  ((field) = ng_code_number(coder, (uint64_t)(field), (limit)))
#define UINT32(field)        BELOW(field, (uint64_t)UINT32_MAX + 1)
#define FIXED(field)         ((field) = ng_code_fixed(coder, (field)))
#define INT(field)           ((field) = code_int(coder, (field)))
#define AGE(field)           ((field) = code_age(coder, (field)))
#define ID(field)            ((field) = code_id(coder, (field)))
#define AFTER(field, other)  ((field) = (other) + code_difference(coder, (field) - (other)))
#define BEFORE(field, other) ((field) = (other)-code_difference(coder, (other) - (field)))
#define TEXT(field)          ng_code_text(coder, (field), sizeof(field))

static int code_int(struct ng_coder *coder, int number)
{
    int64_t value = code_signed(coder, number);

    if (value >= INT32_MIN && value <= INT32_MAX)
        return (int)value;
    coder->bad = true;
    return 0;
}

static int64_t code_age(struct ng_coder *coder, int64_t age_ns)
{
    return ng_view_age(code_signed(coder, age_ns));
}

static uint64_t code_difference(struct ng_coder *coder, uint64_t difference)
{
    return (uint64_t)code_signed(coder, (int64_t)difference);
}

static uint64_t code_id(struct ng_coder *coder, uint64_t id)
{
    uint64_t number = id ? ID_FIXED : ID_NONE;

    for (uint32_t i = 0; coder->writes && id && i < coder->group_count && number == ID_FIXED; i++)
        if (ng_code_group_id(coder, i) == id)
            number = (uint64_t)ID_INDEX + i;
    NUMBER(number);
    if (number == ID_NONE)
        return 0;
    if (number == ID_FIXED)
        return ng_code_fixed(coder, id);
    if (number - ID_INDEX < coder->group_count)
        return ng_code_group_id(coder, number - ID_INDEX);
    coder->bad = true;
    return 0;
}

static void add_text(struct ng_coder *coder, const unsigned char *start, size_t length)
{
    if (length && coder->text_count < NG_PROGRESS_TEXTS) {
        coder->texts[coder->text_count].start = start;
        coder->texts[coder->text_count++].length = length;
    }
}

static void put_text(struct ng_coder *coder, bool plain, const char *text, size_t room)
{
    size_t length = strnlen(text, room - 1);

    for (uint32_t i = 0; !plain && length && i < coder->text_count; i++)
        if (coder->texts[i].length == length && memcmp(coder->texts[i].start, text, length) == 0) {
            put_number(coder, (uint64_t)i << 1 | 1);
            return;
        }
    put_number(coder, (uint64_t)length << 1);
    memcpy(coder->bytes + coder->used, text, length);
    if (!plain)
        add_text(coder, coder->bytes + coder->used, length);
    coder->used += length;
}

/* A text longer than its room, or one that contains a 0, is cut, and made safe to show. */
static void get_text(struct ng_coder *coder, bool plain, char *ret_text, size_t room)
{
    uint64_t number = get_number(coder), length = number >> 1;
    const unsigned char *start = coder->at;
    bool again = number & 1;

    ret_text[0] = '\0';
    if (again ? plain || length >= coder->text_count
              : length > (uint64_t)(coder->end - coder->at)) {
        coder->bad = true;
        return;
    }
    if (again) {
        start = coder->texts[length].start;
        length = coder->texts[length].length;
    } else {
        coder->at += length;
        if (!plain)
            add_text(coder, start, (size_t)length);
    }
    if (length > room - 1)
        length = room - 1;
    memcpy(ret_text, start, (size_t)length);
    ret_text[length] = '\0';
    ng_text_clean(ret_text, strlen(ret_text), false);
}

void ng_code_text(struct ng_coder *coder, char *text, size_t room)
{
    if (coder->writes)
        put_text(coder, false, text, room);
    else
        get_text(coder, false, text, room);
}

/* For fields added to a block: a reader that does not know them does not count their texts. */
static void code_plain_text(struct ng_coder *coder, char *text, size_t room)
{
    if (coder->writes)
        put_text(coder, true, text, room);
    else
        get_text(coder, true, text, room);
}

/* A block begins: a reader is limited to its end. Pass the result to close_block. */
static const unsigned char *open_block(struct ng_coder *coder)
{
    const unsigned char *end = coder->end;

    if (coder->writes)
        return coder->bytes + coder->used++;
    uint64_t length = get_number(coder);
    if (length > (uint64_t)(coder->end - coder->at)) {
        coder->bad = true;
        length = 0;
    }
    coder->end = coder->at + length;
    return end;
}

static void close_block(struct ng_coder *coder, const unsigned char *opened)
{
    if (!coder->writes) {
        coder->at = coder->end;
        coder->end = opened;
        return;
    }
    unsigned char *start = coder->bytes + (opened - coder->bytes);
    size_t length = (size_t)(coder->bytes + coder->used - start) - 1;
    /* Most lengths need one byte; otherwise the block is moved by one. */
    if (length >= 0x80) {
        memmove(start + 2, start + 1, length);
        start[1] = (unsigned char)(length >> 7);
        coder->used++;
        for (uint32_t i = 0; i < coder->text_count; i++)
            coder->texts[i].start += coder->texts[i].start > start;
    }
    start[0] = (unsigned char)(length >= 0x80 ? (length & 0x7f) | 0x80 : length);
}

int ng_code_begin(struct ng_coder *coder)
{
    size_t bytes = (size_t)(coder->end - coder->at);

    if (coder->writes) {
        memcpy(coder->bytes, progress_magic, sizeof(progress_magic));
        coder->used = sizeof(progress_magic);
    } else if (bytes < sizeof(progress_magic) || bytes > NG_PROGRESS_BYTES_MAX ||
               memcmp(coder->at, progress_magic, sizeof(progress_magic)) != 0) {
        return -EBADMSG;
    } else {
        coder->at += sizeof(progress_magic);
    }
    uint64_t version = ng_code_number(coder, NG_PROGRESS_VERSION, 0);
    return coder->bad || version == 0 ? -EBADMSG : version > NG_PROGRESS_VERSION ? -EPROTO : 0;
}

/* ---- The parts of a process ---- */

static void code_signature(struct ng_coder *coder, struct ng_signature *signature)
{
    UINT32(signature->op);
    INT(signature->dtype);
    INT(signature->redop);
    INT(signature->root);
    NUMBER(signature->count);
}

/* Earlier writers end here. */
static void code_faults(struct ng_coder *coder)
{
    uint32_t count = coder->fault_count;

    if (coder->writes || coder->at < coder->end)
        BELOW(count, PROGRESS_FAULTS + 1);
    coder->fault_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ng_view_fault *told = &coder->faults[coder->fault_count];
        code_plain_text(coder, told->fault.text, sizeof(told->fault.text));
        NUMBER(told->fault.times);
        INT(told->fault.rank);
        UINT32(told->fault.op);
        FIXED(told->fault.group_id);
        NUMBER(told->fault.seq);
        AGE(told->first_age_ns);
        AGE(told->last_age_ns);
        coder->fault_count += told->fault.op < NG_OP_LIMIT; /* else only a later version knows it */
    }
}

/* Kinds beyond the room for them are known only to a later version. */
static void code_memory(struct ng_coder *coder, struct ng_view_process *process)
{
    uint64_t kinds = ng_code_number(coder, process->memory_kinds, 256);

    process->memory_kinds = kinds < NG_BOX_MEMORY_KINDS ? (uint32_t)kinds : NG_BOX_MEMORY_KINDS;
    for (uint64_t i = 0; i < kinds; i++) {
        struct ng_memory_sum beyond, *sum = i < NG_BOX_MEMORY_KINDS ? &process->memory[i] : &beyond;
        beyond = (struct ng_memory_sum){0};
        NUMBER(sum->segments);
        NUMBER(sum->bytes);
    }
}

static void code_nan(struct ng_coder *coder, struct ng_view_nan *nan)
{
    AGE(nan->age_ns);
    FIXED(nan->group_id);
    NUMBER(nan->seq);
    UINT32(nan->op);
    INT(nan->dtype);
    NUMBER(nan->elements);
    NUMBER(nan->bad);
    NUMBER(nan->element);
    FIXED(nan->bits);
    NUMBER(nan->held);
    if (nan->op >= NG_OP_LIMIT) /* only a later version knows it */
        *nan = (struct ng_view_nan){0};
}

static bool is_any_set(const struct ng_settable_values *set)
{
    return NG_ANY(one, set->of, NG_SETTABLES, *one != 0);
}

/* Options and values that only a later version knows are left out. */
static void code_set(struct ng_coder *coder, struct ng_settable_values *set)
{
    uint64_t count = ng_code_number(coder, NG_SETTABLES, 256);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = i < NG_SETTABLES ? set->of[i] : 0;
        BELOW(value, UINT8_MAX + 1);
        if (i < NG_SETTABLES)
            set->of[i] = ng_settable_has_value((enum ng_settable)i, value) ? (uint8_t)value : 0;
    }
}

/* What is beyond the room for them, or of a kind that only a later version knows, is left out. */
static void code_devices(struct ng_coder *coder, struct ng_view_process *process)
{
    uint64_t count = ng_code_number(coder, process->device_error_count, 256);

    AGE(process->devices_age_ns);
    process->device_error_count = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct ng_device_error told = {0};
        if (coder->writes)
            told = process->device_errors[i];
        UINT32(told.kind);
        UINT32(told.number);
        NUMBER(told.count);
        AGE(told.age_ns);
        code_plain_text(coder, told.pci_id, sizeof(told.pci_id));
        if (process->device_error_count < NG_DEVICE_ERRORS_MAX && told.count &&
            ng_device_error_name(told.kind))
            process->device_errors[process->device_error_count++] = told;
    }
}

void ng_code_head(struct ng_coder *coder, struct ng_progress_head *head)
{
    const unsigned char *block = open_block(coder);
    struct ng_view_process *process = &head->process;
    uint64_t bits =
        (process->watchdog_stuck_ns ? HEAD_WATCHDOG : 0) |
        (process->error_text[0] ? HEAD_ERROR : 0) |
        (process->nccl_variables[0] ? HEAD_VARIABLES : 0) |
        (coder->tells_failures ? HEAD_FAILURES : 0) | (process->memory_kinds ? HEAD_MEMORY : 0) |
        (process->nan.age_ns ? HEAD_NAN : 0) | (process->alive_age_ns ? HEAD_ALIVE : 0) |
        (head->launch_run ? HEAD_LAUNCH : 0) | (is_any_set(&process->set) ? HEAD_SET : 0) |
        (process->devices_age_ns || process->device_error_count ? HEAD_DEVICES : 0);

    FIXED(process->uid);
    FIXED(head->label);
    head->written_unix_ns = code_signed(coder, head->written_unix_ns);
    if (head->written_unix_ns < 0)
        head->written_unix_ns = 0; /* so that it can be subtracted from now */
    BELOW(head->reason, 256);
    BELOW(process->life, NG_LIFE_LOST + 1);
    INT(process->exit_status);
    AGE(process->life_age_ns);
    INT(process->rank);
    INT(process->world_size);
    INT(process->local_rank);
    INT(process->pid);
    TEXT(process->host);
    TEXT(process->program);
    /* An earlier writer's head ends here. */
    if (coder->writes || coder->at != coder->end)
        NUMBER(bits);
    if (bits & HEAD_WATCHDOG) {
        AGE(process->watchdog_stuck_ns);
        TEXT(process->watchdog_in);
    }
    if (bits & HEAD_ERROR)
        TEXT(process->error_text);
    coder->tells_failures = bits & HEAD_FAILURES;
    if (bits & HEAD_VARIABLES)
        code_plain_text(coder, process->nccl_variables, sizeof(process->nccl_variables));
    code_faults(coder);
    if (bits & HEAD_MEMORY)
        code_memory(coder, process);
    if (bits & HEAD_NAN)
        code_nan(coder, &process->nan);
    if (bits & HEAD_ALIVE)
        AGE(process->alive_age_ns);
    if (bits & HEAD_LAUNCH)
        FIXED(head->launch_run);
    if (bits & HEAD_SET)
        code_set(coder, &process->set);
    if (bits & HEAD_DEVICES)
        code_devices(coder, process);
    close_block(coder, block);
}

void ng_code_group(struct ng_coder *coder, struct ng_view_group *group)
{
    const unsigned char *block = open_block(coder);

    ID(group->parent_id);
    INT(group->nranks);
    INT(group->nccl_version);
    TEXT(group->name);
    close_block(coder, block);
}

static void code_samples(struct ng_coder *coder, struct ng_view_member *member)
{
    uint64_t before = 0;

    BELOW(member->sample_count, NG_PROGRESS_SAMPLES + 1);
    NG_EACH (sample, member->samples, member->sample_count) {
        before = AFTER(sample->seq, before);
        UINT32(sample->calls);
        BELOW(sample->duration_ns, INT64_MAX);
    }
}

static void code_edges(struct ng_coder *coder, struct ng_view_member *member)
{
    AGE(member->edges_age_ns);
    BELOW(member->edge_count, NG_EDGES_MAX + 1);
    NG_EACH (edge, member->edges, member->edge_count) {
        INT(edge->peer);
        BELOW(edge->flags, UINT8_MAX + 1);
        BELOW(edge->channels, UINT8_MAX + 1);
        BELOW(edge->begun, UINT8_MAX + 1);
        BELOW(edge->taken, UINT8_MAX + 1);
        BELOW(edge->held, UINT8_MAX + 1);
        BELOW(edge->channel, UINT8_MAX + 1);
        BELOW(edge->queued, UINT8_MAX + 1);
        UINT32(edge->base);
        BELOW(edge->posted, UINT16_MAX + 1);
        BELOW(edge->consumed, UINT16_MAX + 1);
    }
}

static void code_registration(struct ng_coder *coder, struct ng_view_registration *told)
{
    told->known = true;
    NUMBER(told->closed);
#define COUNT(count) NUMBER(told->count);
    NG_REGISTRATION_COUNTS(COUNT)
}

bool ng_code_has_host_calls(const struct ng_view_member *member)
{
    return member->host_calls.op ||
           NG_ANY(one, member->host_calls.entered, NG_OP_JOINT_CALLS, *one);
}

static void code_host_calls(struct ng_coder *coder, struct ng_view_host_calls *told)
{
    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        UINT32(told->entered[i]);
    UINT32(told->op);
    UINT32(told->tid);
    BELOW(told->open, 2);
}

void ng_code_member(struct ng_coder *coder, struct ng_view_member *member, uint64_t *bits,
                    uint64_t *place)
{
    const unsigned char *block = open_block(coder);

    NUMBER(*bits);
    BELOW(*place, coder->group_count ? coder->group_count : 1);
    INT(member->group_rank);
    INT(member->device);
    BELOW(member->state, NG_GROUP_FAILED + 1);
    INT(member->async_error);
    INT(member->cuda_error);
    UINT32(member->creator_tid);
    UINT32(member->ordinal);
    UINT32(member->derived);
    NUMBER(member->entered);
    BEFORE(member->scheduled, member->entered);
    BEFORE(member->started, member->scheduled);
    BEFORE(member->completed, member->started);
    NUMBER(member->p2p_entered);
    BEFORE(member->p2p_completed, member->p2p_entered);
    INT(member->color);
    UINT32(member->created_by);
    AGE(member->created_age_ns);
    AGE(member->ended_age_ns);
    TEXT(member->pci_id);
    if (*bits & MEMBER_HASH)
        FIXED(member->rolling_hash);
    if (*bits & MEMBER_LAST)
        code_signature(coder, &member->last);
    if (*bits & MEMBER_PENDING) {
        NUMBER(member->pending_seq);
        NUMBER(member->pending_record);
        AGE(member->pending_age_ns);
    }
    member->pending_started = *bits & MEMBER_STARTED;
    member->pending_vague = *bits & MEMBER_VAGUE;
    member->pending_inferred = *bits & MEMBER_INFERRED;
    member->pending_unwatched = *bits & MEMBER_UNWATCHED;
    member->rests = *bits & MEMBER_RESTS;
    if (*bits & MEMBER_TIMEOUT)
        AGE(member->timeout_ns);
    if (*bits & MEMBER_JOINED) {
        NUMBER(member->coll_joined);
        NUMBER(member->p2p_joined);
        NUMBER(member->groups_closed);
    }
    if (*bits & MEMBER_GROWN) {
        ID(member->joined_id);
        ID(member->excluded);
    }
    if (*bits & MEMBER_SAMPLES)
        code_samples(coder, member);
    if (*bits & MEMBER_UNLIKE) {
        INT(member->nranks);
        INT(member->nccl_version);
    }
    if (*bits & MEMBER_REGISTRATION)
        code_registration(coder, &member->registration);
    if (*bits & MEMBER_ERROR)
        AGE(member->error_age_ns);
    member->counted = *bits & MEMBER_COUNTED;
    member->kernel = *bits & MEMBER_KERNEL_RUNS        ? NG_KERNEL_RUNS
                     : *bits & MEMBER_KERNEL_NOT_BEGUN ? NG_KERNEL_NOT_BEGUN
                                                       : NG_KERNEL_UNKNOWN;
    if (*bits & MEMBER_COUNTED) {
        NUMBER(member->counted_seq);
        UINT32(member->counted_left);
    }
    if (*bits & MEMBER_EDGES)
        code_edges(coder, member);
    if (*bits & MEMBER_HOST_CALLS)
        code_host_calls(coder, &member->host_calls);
    if (*bits & MEMBER_POLICY)
        BELOW(member->policy, UINT8_MAX + 1);
    close_block(coder, block);
}

/* A field that is 0 unless the bits say otherwise. */
#define IF_TOLD(bit, field, code)                                                                  \
    do {                                                                                           \
        if (bits & (bit))                                                                          \
            code;                                                                                  \
        else                                                                                       \
            (field) = 0;                                                                           \
    } while (0)

/* Fields equal to those of the previous record are omitted; a reader starts from a copy of that
 * one. */
void ng_code_record(struct ng_coder *coder, struct ng_view_record *record)
{
    const unsigned char *block = open_block(coder);
    struct ng_view_record before = coder->before, told = coder->writes ? *record : before;
    uint64_t bits =
        (ng_signature_is_equal(&told.signature, &before.signature) ? SAME_SIGNATURE : 0) |
        (told.caller == before.caller ? SAME_CALLER : 0) | (told.tid == before.tid ? SAME_TID : 0) |
        (told.rolling_hash ? RECORD_HASH : 0) | (told.started_age_ns ? RECORD_STARTED : 0) |
        (told.completed_age_ns ? RECORD_COMPLETED : 0) |
        (told.stream != before.stream ? OTHER_STREAM : 0) |
        (told.work_previous ? RECORD_JOINED : 0) | (told.duration_ns ? RECORD_DURATION : 0) |
        (told.graph ? RECORD_REPLAY : 0);
    uint64_t entered = (uint64_t)told.entered_age_ns, started = (uint64_t)told.started_age_ns,
             completed = (uint64_t)told.completed_age_ns;

    NUMBER(bits);
    AFTER(told.id, before.id);
    AFTER(told.coll_seq, before.coll_seq);
    AFTER(told.p2p_seq, before.p2p_seq);
    AFTER(entered, (uint64_t)before.entered_age_ns);
    BELOW(told.state, NG_RECORD_UNWATCHED + 1);
    NUMBER(told.peer_ordinal);
    UINT32(told.flags);
    INT(told.result);
    if (!(bits & SAME_SIGNATURE))
        code_signature(coder, &told.signature);
    if (!(bits & SAME_CALLER))
        NUMBER(told.caller);
    if (!(bits & SAME_TID))
        UINT32(told.tid);
    IF_TOLD(RECORD_HASH, told.rolling_hash, FIXED(told.rolling_hash));
    IF_TOLD(RECORD_STARTED, started, BEFORE(started, entered));
    IF_TOLD(RECORD_COMPLETED, completed, BEFORE(completed, entered));
    if (bits & OTHER_STREAM)
        NUMBER(told.stream);
    IF_TOLD(RECORD_JOINED, told.work_previous, BEFORE(told.work_previous, told.id));
    IF_TOLD(RECORD_DURATION, told.duration_ns, BELOW(told.duration_ns, INT64_MAX));
    if (bits & RECORD_REPLAY) {
        AFTER(told.graph, before.graph);
        AFTER(told.replay, before.replay);
        UINT32(told.graph_position);
        UINT32(told.graph_calls);
    } else {
        told.graph = told.replay = told.graph_position = told.graph_calls = 0;
    }
    close_block(coder, block);
    told.entered_age_ns = (int64_t)entered;
    told.started_age_ns = (int64_t)started;
    told.completed_age_ns = (int64_t)completed;
    coder->before = told;
    told.entered_age_ns = ng_view_age(told.entered_age_ns);
    told.started_age_ns = ng_view_age(told.started_age_ns);
    told.completed_age_ns = ng_view_age(told.completed_age_ns);
    *record = told;
}

void ng_code_call(struct ng_coder *coder, struct ng_view_call *call)
{
    const unsigned char *block = open_block(coder);

    UINT32(call->tid);
    UINT32(call->op);
    ID(call->group_id);
    INT(call->group_rank);
    NUMBER(call->seq);
    NUMBER(call->record_id);
    AGE(call->age_ns);
    close_block(coder, block);
}

void ng_code_failure(struct ng_coder *coder, struct ng_view_failure *failure)
{
    const unsigned char *block = open_block(coder);
    struct ng_view_member *member = &failure->member;

    FIXED(failure->group_id);
    INT(member->group_rank);
    INT(member->nranks);
    INT(member->nccl_version);
    INT(member->device);
    TEXT(member->pci_id);
    UINT32(member->created_by);
    AGE(member->created_age_ns);
    AGE(member->ended_age_ns);
    close_block(coder, block);
}
