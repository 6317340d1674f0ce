/*
 * Reads rank_<r>.json, field by field as core/report/dump.h documents it, and rebuilds the view.
 *
 * Used by `ncclguard analyze`. A dump may come from another machine, another version or a full
 * disk: no number is used before it is checked. Names are for people; only the numbers beside them
 * are used.
 */
#include "tools/ingest/read_dump.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/report/dump.h"
#include "core/report/dump_fields.h"
#include "core/util/text.h"

#define RANK_LIMIT NG_VIEW_NRANKS_MAX

/* An integer within bounds; `otherwise` if it is missing, of another type or out of bounds. */
static int64_t get_int(const json_t *object, const char *key, int64_t minimum, int64_t maximum,
                       int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < minimum ||
        json_integer_value(value) > maximum)
        return otherwise;
    return json_integer_value(value);
}

/* Counts above INT64_MAX are decimal strings. */
static uint64_t get_uint(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    char *end;

    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (uint64_t)json_integer_value(value);
    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    return *end || errno ? 0 : number;
}

static uint64_t get_hex(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16)
        return 0;
    return strtoull(text, NULL, 16);
}

static void get_text(const json_t *object, const char *key, char *ret_text, size_t bytes)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(ret_text, bytes, "%s", text ? text : "");
}

/* Each member of a list of core/report/dump_fields.h, into the struct that `to` points to, by its
 * kind. Of what has a name, the number beside it. */
#define GET(kind, member)     to->member = get_##kind(from, #member);
#define get_u8(from, key)     (uint8_t) get_int(from, key, 0, UINT8_MAX, 0)
#define get_u16(from, key)    (uint16_t) get_int(from, key, 0, UINT16_MAX, 0)
#define get_u32(from, key)    (uint32_t) get_int(from, key, 0, UINT32_MAX, 0)
#define get_size(from, key)   (int)get_int(from, key, 0, INT32_MAX, 0)
#define get_rank(from, key)   (int)get_int(from, key, -1, RANK_LIMIT, -1)
#define get_code(from, key)   (int)get_int(from, key, INT32_MIN, INT32_MAX, 0)
#define get_option(from, key) (int)get_int(from, key, INT32_MIN, INT32_MAX, -1)
#define get_age(from, key)    ng_view_age(get_int(from, key, 0, INT64_MAX, 0))
#define get_flag(from, key)   json_is_true(json_object_get(from, key))
#define get_op(from, key)     (enum ng_op) get_int(from, key "_number", 0, NG_OP_LIMIT - 1, 0)
#define get_dtype(from, key)  get_option(from, key "_number")
#define get_redop(from, key)  get_option(from, key "_number")
#define get_result(from, key) get_code(from, key "_number")

/* False for an operation that this version does not know. */
static bool get_signature(const json_t *from, struct ng_signature *to)
{
    if (get_int(from, "op_number", 0, NG_OP_LIMIT - 1, -1) < 0)
        return false;
    NG_DUMP_SIGNATURE(GET)
    return true;
}

/* Files that contain frames, as listed in the dump; paths of others have none. */
struct modules {
    const struct ng_view_module **list;
    size_t count;
};

static int read_modules(struct ng_view *view, const json_t *list, struct modules *ret_modules)
{
    struct modules modules = {0};

    modules.list =
        ng_arena_alloc(&view->arena, (json_array_size(list) + 1) * sizeof(*modules.list));
    if (!modules.list)
        return -ENOMEM;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *from = json_array_get(list, i);
        const char *path = json_string_value(json_object_get(from, "path"));
        const char *build_id = json_string_value(json_object_get(from, "build_id"));
        if (!path)
            continue;
        modules.list[modules.count] = ng_view_add_module(view, path, build_id ? build_id : "");
        if (!modules.list[modules.count++])
            return -ENOMEM;
    }
    *ret_modules = modules;
    return 0;
}

static const struct ng_view_module *find_module(const struct modules *modules, const char *path)
{
    for (size_t i = 0; path && i < modules->count; i++)
        if (strcmp(modules->list[i]->path, path) == 0)
            return modules->list[i];
    return NULL;
}

/* Entries beyond the capacity of a black box are left out. */
static int read_frames(struct ng_view *view, uint32_t process, const struct modules *modules,
                       const json_t *from, struct ng_view_record *record)
{
    const json_t *list = json_object_get(from, "frames");
    struct ng_view_frame frames[NG_VIEW_FRAMES];
    struct ng_view_call_stack stack = {.process = process,
                                       .whole = get_flag(from, "frames_whole"),
                                       .python_cut = get_flag(from, "frames_python_cut"),
                                       .frames = frames};

    for (size_t i = 0; i < json_array_size(list) && stack.count < NG_VIEW_FRAMES; i++) {
        const json_t *frame = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(frame, "name"));
        frames[stack.count] = (struct ng_view_frame){
            .module = find_module(modules, json_string_value(json_object_get(frame, "file"))),
            .offset = get_uint(frame, "offset"),
            .name = name,
            .name_offset = get_uint(frame, "name_offset"),
            .is_python = json_is_integer(json_object_get(frame, "line")),
            .line = (int32_t)get_int(frame, "line", 0, INT32_MAX, 0)};
        stack.count++;
    }
    if (!stack.count)
        return 0;
    /* Copied: the names belong to the document. */
    record->call_stack = ng_view_copy_call_stack(view, &stack, process);
    return record->call_stack ? 0 : -ENOMEM;
}

static int read_records(struct ng_view *view, const json_t *list, const struct modules *modules,
                        struct ng_view_member *member, size_t *left_out)
{
    size_t count = json_array_size(list);

    if (count == 0)
        return 0;
    member->records = ng_arena_alloc(&view->arena, count * sizeof(*member->records));
    if (!member->records)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(list, i);
        int64_t state = get_int(from, "state_number", NG_RECORD_ENTERED, NG_RECORD_UNWATCHED, -1);
        struct ng_view_record record = {.id = get_uint(from, "id")}, *to = &record;
        if (state < 0 || record.id == 0 || !get_signature(from, &record.signature)) {
            ++*left_out;
            continue;
        }
        record.state = (enum ng_record_state)state;
        NG_DUMP_RECORD_NUMBERS(GET)
        NG_DUMP_RECORD(GET)
        NG_DUMP_RECORD_REPLAY(GET)
        if (read_frames(view, member->process, modules, from, &record) != 0)
            return -ENOMEM;
        member->records[member->record_count++] = record;
    }
    return 0;
}

/* Implausible entries are left out: they only help to compare. */
static int read_samples(struct ng_view *view, const json_t *list, struct ng_view_member *member)
{
    size_t count = json_array_size(list);

    for (size_t i = count > NG_VIEW_SAMPLES ? count - NG_VIEW_SAMPLES : 0; i < count; i++) {
        const json_t *from = json_array_get(list, i);
        struct ng_view_sample sample, *to = &sample;
        NG_DUMP_SAMPLE(GET)
        if (sample.seq && sample.duration_ns && !ng_view_add_sample(view, member, &sample))
            return -ENOMEM;
    }
    return 0;
}

static int read_edges(struct ng_view *view, const json_t *of, struct ng_view_member *member)
{
    const json_t *list = json_object_get(of, "connections");
    struct ng_edge edges[NG_EDGES_MAX];
    size_t count = json_array_size(list);

    if (count > NG_EDGES_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(list, i);
        struct ng_edge *to = &edges[i];
        to->peer = (int32_t)get_int(from, "peer", 0, INT32_MAX, -1);
        NG_DUMP_EDGE(GET)
    }
    return ng_view_set_edges(view, member, edges, (uint32_t)count,
                             get_age(of, "connections_age_ns"))
               ? 0
               : -ENOMEM;
}

/* False: it is implausible. */
static bool get_duration(const json_t *from, struct ng_duration *ret_duration)
{
    const json_t *histogram = json_object_get(from, "histogram");
    struct ng_duration duration = {0}, *to = &duration;

    NG_DUMP_DURATION(GET)
    duration.size_class = (uint32_t)get_int(from, "size_class", 0, 64, 65);
    for (size_t i = 0; i < NG_DURATION_BUCKETS && i < json_array_size(histogram); i++) {
        const json_t *count = json_array_get(histogram, i);
        if (json_is_integer(count) && json_integer_value(count) >= 0)
            duration.histogram[i] = (uint64_t)json_integer_value(count);
    }
    *ret_duration = duration;
    return duration.group_id && duration.op != NG_OP_NONE && duration.size_class <= 64 &&
           duration.count && duration.min_ns <= duration.max_ns;
}

static int read_durations(struct ng_view *view, uint32_t process, const json_t *list)
{
    struct ng_duration duration;

    for (size_t i = 0; i < json_array_size(list); i++)
        if (get_duration(json_array_get(list, i), &duration) &&
            !ng_view_add_duration(view, process, &duration))
            return -ENOMEM;
    return 0;
}

static int read_faults(struct ng_view *view, uint32_t process, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *from = json_array_get(list, i);
        struct ng_logged_fault fault = {0}, *to = &fault;
        NG_DUMP_FAULT(GET)
        get_text(from, "fault", fault.text, sizeof(fault.text));
        if (!fault.times || !fault.text[0])
            continue;
        struct ng_view_fault *added = ng_view_add_fault(view, process, &fault);
        if (!added)
            return -ENOMEM;
        added->first_age_ns = get_age(from, "first_age_ns");
        added->last_age_ns = get_age(from, "last_age_ns");
    }
    return 0;
}

static void get_registration(const json_t *from, struct ng_view_registration *to)
{
    if (!json_is_object(from))
        return;
    to->known = true;
    to->closed = get_flag(from, "closed");
#define GET_COUNT(count) GET(uint, count)
    NG_REGISTRATION_COUNTS(GET_COUNT)
}

static void get_host_calls(const json_t *from, struct ng_view_host_calls *ret_calls)
{
    if (!json_is_object(from))
        return;
    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        ret_calls->entered[i] = get_u32(from, ng_op_name(NG_OP_CommWindowRegister + i));
    ret_calls->op = (uint32_t)get_int(from, "batch_op_number", 0, NG_OP_LIMIT - 1, 0);
    ret_calls->tid = get_u32(from, "batch_tid");
    ret_calls->open = get_flag(from, "batch_open");
}

/* Returns 0, -EBADMSG if the member is implausible, or -ENOMEM. */
static int read_member(struct ng_view *view, uint32_t process, const struct modules *modules,
                       const json_t *from, size_t *records_left_out)
{
    uint64_t group_id = get_hex(from, "group_id");
    int nranks = (int)get_int(from, "nranks", 0, RANK_LIMIT, -1);
    int group_rank = get_rank(from, "group_rank");
    int64_t state = get_int(from, "state_number", NG_GROUP_FREE, NG_GROUP_FAILED, -1);

    if (group_id == 0 || nranks < 0 || state < 0 || (nranks > 0 && group_rank >= nranks))
        return -EBADMSG;
    struct ng_view_group told = {.id = group_id,
                                 .parent_id = get_hex(from, "parent_id"),
                                 .nranks = nranks,
                                 .nccl_version = get_size(from, "nccl_version")};
    get_text(from, "group_name", told.name, sizeof(told.name));
    uint32_t index = ng_view_tell_group(view, &told);
    if (index == UINT32_MAX)
        return -ENOMEM;

    struct ng_view_member *member = ng_view_add_member(view, process, index, group_rank);
    struct ng_view_member *to = member;
    if (!member)
        return -ENOMEM;
    member->device = (int)get_int(from, "device", -1, INT32_MAX, -1);
    member->nranks = nranks;
    member->nccl_version = told.nccl_version;
    get_text(from, "pci_id", member->pci_id, sizeof(member->pci_id));
    member->state = (enum ng_group_state)state;
    member->created_by = get_u32(from, "created_by_number");
    member->joined_id = get_hex(from, "joined_id");
    member->excluded = get_hex(from, "excluded");
    NG_DUMP_MEMBER_STATE(GET)
    get_host_calls(json_object_get(from, "host_calls"), &member->host_calls);
    if (!get_signature(json_object_get(from, "last"), &member->last))
        member->last = (struct ng_signature){.dtype = -1, .redop = -1, .root = -1};
    get_registration(json_object_get(from, "registration"), &member->registration);
    member->timeout_ns = get_age(from, "timeout_ns");
    member->policy = (uint8_t)get_int(from, "policy_number", 0, NG_ON_TIMEOUT_LAST + 1, 0);
    NG_DUMP_MEMBER_PENDING(GET)
#define GET_FLAG(member) GET(flag, member)
    NG_DUMP_MEMBER_FLAGS(GET_FLAG)
    member->counted = json_object_get(from, "counted_seq") != NULL;
    member->counted_seq = get_uint(from, "counted_seq");
    member->counted_left = (uint32_t)get_uint(from, "counted_left");
    const json_t *runs = json_object_get(from, "kernel_runs");
    member->kernel = !json_is_boolean(runs) ? NG_KERNEL_UNKNOWN
                     : json_is_true(runs)   ? NG_KERNEL_RUNS
                                            : NG_KERNEL_NOT_BEGUN;
    int error = read_samples(view, json_object_get(from, "samples"), member)
                    ?: read_edges(view, from, member);
    return error
               ?: read_records(view, json_object_get(from, "records"), modules, member,
                               records_left_out);
}

static int read_call(struct ng_view *view, uint32_t process, const json_t *from)
{
    if (get_int(from, "op_number", 1, NG_OP_LIMIT - 1, -1) < 0)
        return -EBADMSG;
    struct ng_view_call *to = ng_view_add_call(view, process);
    if (!to)
        return -ENOMEM;
    NG_DUMP_CALL(GET)
    return 0;
}

static int read_thread(struct ng_view *view, uint32_t process, const json_t *from)
{
    uint32_t tid = get_u32(from, "tid");

    if (!tid)
        return 0;
    struct ng_view_thread *thread = ng_view_add_thread(view, process, tid);
    if (!thread)
        return -ENOMEM;
    get_text(from, "name", thread->name, sizeof(thread->name));
    return 0;
}

/* Words of NCCL's RAS are written in order; others are damaged, as are those with an unknown state
 * or an impossible rank. */
static int read_ras(struct ng_view *view, const json_t *list)
{
    struct ng_view_ras last = {.rank.rank = -1};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *from = json_array_get(list, i);
        const char *host = json_string_value(json_object_get(from, "host"));
        struct ng_view_ras word = {
            .group_id = get_hex(from, "group_id"),
            .age_ns = get_age(from, "age_ns"),
            .others = get_uint(from, "others"),
            .behind = get_flag(from, "behind"),
            .waits = get_flag(from, "waits"),
            .rank = {.rank = get_rank(from, "group_rank"),
                     .pid = get_size(from, "pid"),
                     .state = ng_ras_state_of(json_string_value(json_object_get(from, "state"))),
                     .counts = get_flag(from, "counts"),
                     .launched = get_uint(from, "launched")}};
        if (host && strlen(host) < NG_RAS_HOST_BYTES)
            ng_ras_copy_host(host, (uint32_t)strlen(host), word.rank.host);
        if (word.rank.rank < 0 || word.rank.state == NG_RAS_STATES ||
            word.group_id < last.group_id ||
            (word.group_id == last.group_id && word.rank.rank <= last.rank.rank))
            continue;
        last = word;
        if (!ng_view_add_ras(view, &word))
            return -ENOMEM;
    }
    return 0;
}

int ng_read_dump_find(const struct ng_view *view, const char *host, int pid)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (pid > 0 && view->processes[i].pid == pid && strcmp(view->processes[i].host, host) == 0)
            return (int)i;
    return -1;
}

static void get_memory(const json_t *list, struct ng_view_process *process)
{
    size_t kinds = json_array_size(list);

    process->memory_kinds = kinds < NG_BOX_MEMORY_KINDS ? (uint32_t)kinds : NG_BOX_MEMORY_KINDS;
    for (size_t i = 0; i < process->memory_kinds; i++) {
        const json_t *from = json_array_get(list, i);
        process->memory[i] = (struct ng_memory_sum){.segments = get_uint(from, "segments"),
                                                    .bytes = get_uint(from, "bytes")};
    }
}

static void get_nan(const json_t *from, struct ng_view_nan *to)
{
    if (!json_is_object(from))
        return;
    NG_DUMP_NAN(GET)
}

static void get_devices(const json_t *from, struct ng_view_process *process)
{
    const json_t *list = json_object_get(from, "device_errors");

    process->devices_age_ns = get_age(from, "devices_age_ns");
    for (size_t i = 0;
         i < json_array_size(list) && process->device_error_count < NG_DEVICE_ERRORS_MAX; i++) {
        const json_t *one = json_array_get(list, i);
        struct ng_device_error error = {
            .kind = ng_device_error_of_name(json_string_value(json_object_get(one, "what"))),
            .number = get_u32(one, "number"),
            .count = get_uint(one, "count"),
            .age_ns = get_age(one, "age_ns")};
        get_text(one, "pci", error.pci_id, sizeof(error.pci_id));
        if (error.kind && error.count)
            process->device_errors[process->device_error_count++] = error;
    }
}

static void get_settings(const json_t *list, struct ng_text *text)
{
    const json_t *one;
    size_t i;

    json_array_foreach((json_t *)list, i, one)
    {
        struct ng_setting setting;
        get_text(one, "name", setting.name, sizeof(setting.name));
        get_text(one, "value", setting.value, sizeof(setting.value));
        get_text(one, "from", setting.from, sizeof(setting.from));
        ng_text_add(text, "%s\t%s\t%s\n", setting.name, setting.from, setting.value);
    }
}

/* As the black box has them: core/config/settings.h. */
static int read_settings(struct ng_view *view, const json_t *from, struct ng_view_process *process)
{
    char lines[NG_SETTINGS_BYTES] = "";
    struct ng_text text = {lines, 0, sizeof(lines)};
    uint64_t left_out = get_uint(from, "environment_left_out");

    get_settings(json_object_get(from, "settings"), &text);
    get_settings(json_object_get(from, "environment"), &text);
    if (left_out)
        ng_text_add(&text, "\t\t%" PRIu64 "\n", left_out);
    if (!text.used)
        return 0;
    process->settings = ng_arena_strdup(&view->arena, lines);
    return process->settings ? 0 : -ENOMEM;
}

static int read_process(struct ng_view *view, const json_t *from, const char *source)
{
    struct ng_view_process *to = ng_view_add_process(view);

    if (!to)
        return -ENOMEM;
    NG_DUMP_PROCESS_IDS(GET)
    get_text(from, "program", to->program, sizeof(to->program));
    get_text(from, "nccl_variables", to->nccl_variables, sizeof(to->nccl_variables));
    get_text(from, "error_text", to->error_text, sizeof(to->error_text));
    get_text(from, "host", to->host, sizeof(to->host));
    snprintf(to->source, sizeof(to->source), "%s", source);
    to->life =
        (enum ng_life)get_int(from, "life_number", NG_LIFE_UNKNOWN, NG_LIFE_LOST, NG_LIFE_UNKNOWN);
    NG_DUMP_PROCESS_STATE(GET)
    get_text(from, "watchdog_in", to->watchdog_in, sizeof(to->watchdog_in));
    get_memory(json_object_get(from, "memory"), to);
    get_nan(json_object_get(from, "nan"), &to->nan);
    get_devices(from, to);
    NG_DUMP_PROCESS_TIMES(GET)
    return read_settings(view, from, to);
}

static void note_left_out(struct ng_view *view, const char *source, const char *what, size_t count)
{
    if (count)
        ng_view_note(view, "%s: %zu %s damaged and left out", source, count, what);
}

static int read_parts(struct ng_view *view, const json_t *root, const char *source)
{
    size_t calls_left_out = 0, members_left_out = 0, records_left_out = 0, i;
    uint32_t process = view->process_count;
    const json_t *calls = json_object_get(root, "calls"),
                 *members = json_object_get(root, "members"),
                 *threads = json_object_get(root, "calling_threads");
    struct modules modules = {0};
    json_t *element;
    int error = read_process(view, json_object_get(root, "process"), source);

    for (i = 0; !error && i < json_array_size(calls); i++) {
        error = read_call(view, process, json_array_get(calls, i));
        calls_left_out += error == -EBADMSG;
        error = error == -EBADMSG ? 0 : error;
    }
    for (i = 0; !error && i < json_array_size(threads); i++)
        error = read_thread(view, process, json_array_get(threads, i));
    error = error ?: read_modules(view, json_object_get(root, "modules"), &modules);
    for (i = 0; !error && i < json_array_size(members); i++) {
        error = read_member(view, process, &modules, json_array_get(members, i), &records_left_out);
        members_left_out += error == -EBADMSG;
        error = error == -EBADMSG ? 0 : error;
    }
    error = error ?: read_durations(view, process, json_object_get(root, "durations"));
    error = error ?: read_faults(view, process, json_object_get(root, "faults"));
    error = error ?: read_ras(view, json_object_get(root, "ras"));
    if (error)
        return error;
    if (!json_is_array(calls))
        ng_view_note(view, "%s: does not tell the calls that threads were inside", source);
    if (!json_is_array(members))
        ng_view_note(view, "%s: does not tell the communicators", source);
    note_left_out(view, source, "calls", calls_left_out);
    note_left_out(view, source, "communicators", members_left_out);
    note_left_out(view, source, "records", records_left_out);
    json_array_foreach(json_object_get(root, "notes"), i, element)
    {
        if (json_is_string(element))
            ng_view_note(view, "%s: %s", source, json_string_value(element));
    }
    const char *job = json_string_value(json_object_get(root, "job"));
    if (job && *job && view->job[0] && strcmp(job, view->job) != 0)
        ng_view_note(view, "%s: of another job, %s (the others: %s)", source, job, view->job);
    if (job && !view->job[0])
        snprintf(view->job, sizeof(view->job), "%s", job);
    return 0;
}

int ng_read_dump(struct ng_view *view, const char *path, const char *source, char *why,
                 size_t why_bytes)
{
    json_error_t parse_error;
    char host[sizeof(view->processes->host)];
    int error = 0;

    FILE *file = fopen(path, "re");
    if (!file) {
        error = -errno;
        snprintf(why, why_bytes, "%s", strerror(-error));
        return error;
    }
    json_t *root = json_loadf(file, 0, &parse_error);
    bool failed = ferror(file);
    fclose(file);
    if (!root) {
        snprintf(why, why_bytes, failed ? "cannot be read" : "damaged: line %d: %s",
                 parse_error.line, parse_error.text);
        return failed ? -EIO : -EBADMSG;
    }
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *process = json_object_get(root, "process");
    get_text(process, "host", host, sizeof(host));
    int same = ng_read_dump_find(view, host, get_size(process, "pid"));
    if (!schema) {
        snprintf(why, why_bytes, "JSON, but no dump of ncclguard (no schema)");
        error = -EBADMSG;
    } else if (strcmp(schema, NG_DUMP_SCHEMA) != 0) {
        snprintf(why, why_bytes, "schema %s; a dump that this version reads has %s", schema,
                 NG_DUMP_SCHEMA);
        error = -EPROTO;
    } else if (!json_is_object(process)) {
        snprintf(why, why_bytes, "damaged: it does not say which process it is of");
        error = -EBADMSG;
    } else if (same >= 0) {
        snprintf(why, why_bytes, "%s tells of the same process", view->processes[same].source);
        error = -EEXIST;
    } else {
        view->on_request = get_flag(root, "on_request");
        error = read_parts(view, root, source);
        if (error == -ENOMEM)
            snprintf(why, why_bytes, "out of memory");
    }
    json_decref(root);
    return error;
}
