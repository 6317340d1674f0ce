/*
 * rank_<r>.json: everything that one process recorded about itself.
 *
 * Called by the guard's threads at an incident. Must never allocate or lock; must be able to write
 * a view built from a damaged black box, whatever numbers it holds.
 */
#include "core/report/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/config/settings.h"
#include "core/report/dump_fields.h"
#include "core/report/stacks_format.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/memory_map.h"
#include "core/view/p2p_patterns.h"

#define MODULES_MAX 256u /* files that contain frames */

static const char *const life_names[] = {
    [NG_LIFE_UNKNOWN] = "unknown", [NG_LIFE_RUNNING] = "running",
    [NG_LIFE_STOPPED] = "stopped", [NG_LIFE_EXITED] = "exited",
    [NG_LIFE_DEAD] = "dead",       [NG_LIFE_ENDED_BY_GUARD] = "ended_by_guard",
    [NG_LIFE_LOST] = "lost",
};

static const char *const group_state_names[] = {
    [NG_GROUP_FREE] = "free",           [NG_GROUP_CREATING] = "creating",
    [NG_GROUP_READY] = "ready",         [NG_GROUP_FINALIZED] = "finalized",
    [NG_GROUP_DESTROYED] = "destroyed", [NG_GROUP_ABORTED] = "aborted",
    [NG_GROUP_FAILED] = "failed",
};

static const char *const record_state_names[] = {
    [NG_RECORD_WRITING] = "writing",     [NG_RECORD_ENTERED] = "entered",
    [NG_RECORD_SCHEDULED] = "scheduled", [NG_RECORD_STARTED] = "started",
    [NG_RECORD_COMPLETED] = "completed", [NG_RECORD_FAILED] = "failed",
    [NG_RECORD_CAPTURED] = "captured",   [NG_RECORD_UNWATCHED] = "unwatched",
};

#define NAME_OF(names, number)                                                                     \
    ((unsigned)(number) < sizeof(names) / sizeof((names)[0]) ? (names)[(unsigned)(number)]         \
                                                             : "unknown")

const char *ng_dump_life_name(enum ng_life life)
{
    return NAME_OF(life_names, life);
}

const char *ng_dump_group_state_name(enum ng_group_state state)
{
    return NAME_OF(group_state_names, state);
}

const char *ng_dump_record_state_name(enum ng_record_state state)
{
    return NAME_OF(record_state_names, state);
}

int ng_dump_rank(const struct ng_view *view, uint32_t process)
{
    const struct ng_view_process *told = &view->processes[process];
    uint32_t count = view->by_process ? told->member_count : view->member_count;
    int lowest = -1;

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_member *member =
            &view->members[view->by_process ? view->by_process[told->first_member + i] : i];
        if (member->process != process)
            continue;
        int rank = ng_view_rank(view, member);
        if (rank >= 0 && (lowest < 0 || rank < lowest))
            lowest = rank;
    }
    return lowest >= 0 ? lowest : view->processes[process].rank;
}

void ng_dump_name(const struct ng_view *view, uint32_t process, char *ret_name, size_t bytes)
{
    int rank = ng_dump_rank(view, process);

    if (rank >= 0)
        snprintf(ret_name, bytes, "rank_%d.json", rank);
    else
        snprintf(ret_name, bytes, "rank_unknown_%d.json", view->processes[process].pid);
}

static void put_uint(struct ng_json *json, const char *key, uint64_t value)
{
    char text[24];

    if (value <= INT64_MAX) {
        ng_json_uint(json, key, value);
        return;
    }
    snprintf(text, sizeof(text), "%" PRIu64, value);
    ng_json_string(json, key, text);
}

/* A name for people, and its number; a name of NULL stands for none. */
static void put_named(struct ng_json *json, const char *key, const char *name, int64_t number)
{
    char number_key[32];

    snprintf(number_key, sizeof(number_key), "%s_number", key);
    ng_json_string(json, key, name);
    ng_json_int(json, number_key, number);
}

static void put_op(struct ng_json *json, const char *key, uint32_t op)
{
    put_named(json, key, op == NG_OP_NONE ? NULL : ng_op_name(op), op);
}

static void put_dtype(struct ng_json *json, const char *key, int dtype)
{
    put_named(json, key, dtype == -1 ? NULL : ng_dtype_name(dtype), dtype);
}

static void put_redop(struct ng_json *json, const char *key, int redop)
{
    put_named(json, key, redop == -1 ? NULL : ng_redop_name(redop), redop);
}

static void put_result(struct ng_json *json, const char *key, int result)
{
    put_named(json, key, ng_result_name(result), result);
}

/* Each member of a list of core/report/dump_fields.h, of the struct that `from` points to. */
#define PUT(kind, member) put_##kind(json, #member, from->member);
#define put_u8            ng_json_uint
#define put_u16           ng_json_uint
#define put_u32           ng_json_uint
#define put_hex           ng_json_hex
#define put_flag          ng_json_bool
#define put_age           ng_json_int
#define put_size          ng_json_int
#define put_rank          ng_json_int
#define put_code          ng_json_int
#define put_option        ng_json_int

static void put_signature(struct ng_json *json, const struct ng_signature *from)
{
    NG_DUMP_SIGNATURE(PUT)
}

/* Device memory; null: not tracked. */
static void put_memory(struct ng_json *json, const struct ng_view_process *process)
{
    if (!process->memory_kinds) {
        ng_json_null(json, "memory");
        return;
    }
    ng_json_open_array(json, "memory", NG_JSON_COMPACT);
    for (uint32_t i = 0; i < process->memory_kinds; i++) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "kind", ng_segment_kind_name((enum ng_segment_kind)i));
        put_uint(json, "segments", process->memory[i].segments);
        put_uint(json, "bytes", process->memory[i].bytes);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_nan(struct ng_json *json, const struct ng_view_nan *from)
{
    if (!from->age_ns) {
        ng_json_null(json, "nan");
        return;
    }
    ng_json_open_object(json, "nan", NG_JSON_COMPACT);
    NG_DUMP_NAN(PUT)
    ng_json_close_object(json);
}

/* What the driver knows of its devices. */
static void put_devices(struct ng_json *json, const struct ng_view_process *process)
{
    ng_json_int(json, "devices_age_ns", process->devices_age_ns);
    ng_json_open_array(json, "device_errors", NG_JSON_COMPACT);
    NG_EACH (error, process->device_errors, process->device_error_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "pci", error->pci_id);
        ng_json_string(json, "what", ng_device_error_name(error->kind));
        ng_json_uint(json, "number", error->number);
        put_uint(json, "count", error->count);
        ng_json_int(json, "age_ns", error->age_ns);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

/* The options: `from` is not empty; else the variables of the environment. */
static void put_settings(struct ng_json *json, const struct ng_view_process *process, bool options)
{
    const char *at = process->settings ? process->settings : "";
    struct ng_setting setting;
    uint64_t left_out = 0;

    ng_json_open_array(json, options ? "settings" : "environment", NG_JSON_LINES);
    while (ng_settings_next(&at, &setting)) {
        if (!setting.name[0])
            left_out = strtoull(setting.value, NULL, 10);
        if (!setting.name[0] || (setting.from[0] != '\0') != options)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "name", setting.name);
        ng_json_string(json, "value", setting.value);
        if (options)
            ng_json_string(json, "from", setting.from);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    if (!options)
        put_uint(json, "environment_left_out", left_out);
}

static void put_process(struct ng_json *json, const struct ng_view_process *from)
{
    ng_json_open_object(json, "process", NG_JSON_LINES);
    NG_DUMP_PROCESS_IDS(PUT)
    ng_json_string(json, "host", from->host);
    ng_json_string(json, "program", from->program);
    ng_json_string(json, "nccl_variables", from->nccl_variables);
    ng_json_string(json, "error_text", from->error_text);
    ng_json_string(json, "source", from->source);
    put_memory(json, from);
    put_named(json, "life", ng_dump_life_name(from->life), from->life);
    NG_DUMP_PROCESS_STATE(PUT)
    ng_json_string(json, "watchdog_in", from->watchdog_in);
    put_nan(json, &from->nan);
    put_devices(json, from);
    NG_DUMP_PROCESS_TIMES(PUT)
    put_settings(json, from, true);
    put_settings(json, from, false);
    ng_json_close_object(json);
}

static void put_calls(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "calls", NG_JSON_LINES);
    NG_EACH (from, view->calls, view->call_count) {
        if (from->process != process)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        NG_DUMP_CALL(PUT)
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_threads(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "calling_threads", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->thread_count; i++) {
        if (view->threads[i].process != process)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_uint(json, "tid", view->threads[i].tid);
        ng_json_string(json, "name", view->threads[i].name);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_frames(struct ng_json *json, const struct ng_view_call_stack *stack)
{
    ng_json_open_array(json, "frames", NG_JSON_COMPACT);
    NG_EACH (frame, stack->frames, stack->count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "name", frame->name);
        put_uint(json, "name_offset", frame->name_offset);
        ng_json_string(json, "file", frame->module ? frame->module->path : NULL);
        put_uint(json, "offset", frame->offset);
        if (frame->is_python)
            ng_json_int(json, "line", frame->line);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_json_bool(json, "frames_whole", stack->whole);
    if (stack->python_cut)
        ng_json_bool(json, "frames_python_cut", true);
}

static void put_record(struct ng_json *json, const struct ng_view *view,
                       const struct ng_view_record *from)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(view, from);

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    put_uint(json, "id", from->id);
    put_named(json, "state", ng_dump_record_state_name(from->state), from->state);
    put_signature(json, &from->signature);
    NG_DUMP_RECORD_NUMBERS(PUT)
    put_uint(json, "op_id", ng_view_record_op_id(from));
    ng_json_bool(json, "retired", ng_view_record_is_retired(from));
    NG_DUMP_RECORD(PUT)
    if (from->graph) {
        NG_DUMP_RECORD_REPLAY(PUT)
    }
    if (stack)
        put_frames(json, stack);
    ng_json_close_object(json);
}

static void put_samples(struct ng_json *json, const struct ng_view_member *member)
{
    ng_json_open_array(json, "samples", NG_JSON_LINES);
    NG_EACH (from, member->samples, member->sample_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        NG_DUMP_SAMPLE(PUT)
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_durations(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "durations", NG_JSON_LINES);
    NG_EACH (told, view->durations, view->duration_count) {
        const struct ng_duration *from = &told->duration;
        if (told->process != process)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        NG_DUMP_DURATION(PUT)
        ng_json_open_array(json, "histogram", NG_JSON_COMPACT);
        for (unsigned k = 0; k < NG_DURATION_BUCKETS; k++)
            put_uint(json, NULL, from->histogram[k]);
        ng_json_close_array(json);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

/* Only if there are any, since faults are rarely injected. */
static void put_faults(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    bool any = false;

    NG_EACH (told, view->faults, view->fault_count) {
        const struct ng_logged_fault *from = &told->fault;
        if (told->process != process)
            continue;
        if (!any)
            ng_json_open_array(json, "faults", NG_JSON_LINES);
        any = true;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "fault", from->text);
        NG_DUMP_FAULT(PUT)
        ng_json_int(json, "first_age_ns", told->first_age_ns);
        ng_json_int(json, "last_age_ns", told->last_age_ns);
        ng_json_close_object(json);
    }
    if (any)
        ng_json_close_array(json);
}

/* The files that contain frames of one process, each once. */
struct listed {
    const struct ng_view_module *modules[MODULES_MAX];
    uint32_t count;
};

/* False: it is already listed, or there are too many. */
static bool list_module(struct listed *listed, const struct ng_view_module *module)
{
    for (uint32_t i = listed->count; i > 0; i--) {
        const struct ng_view_module *other = listed->modules[i - 1];
        if (other == module || (strcmp(other->path, module->path) == 0 &&
                                strcmp(other->build_id, module->build_id) == 0))
            return false;
    }
    if (listed->count == MODULES_MAX)
        return false;
    listed->modules[listed->count++] = module;
    return true;
}

static void put_modules(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    struct listed listed = {.count = 0};

    ng_json_open_array(json, "modules", NG_JSON_LINES);
    NG_EACH (stack, view->call_stacks, view->call_stack_count) {
        for (uint32_t k = 0; stack->process == process && k < stack->count; k++) {
            const struct ng_view_module *module = stack->frames[k].module;
            if (!module || !list_module(&listed, module))
                continue;
            ng_json_open_object(json, NULL, NG_JSON_COMPACT);
            ng_json_string(json, "path", module->path);
            ng_json_string(json, "build_id", module->build_id);
            ng_json_close_object(json);
        }
    }
    ng_json_close_array(json);
}

static void put_composed_work(struct ng_json *json, const struct ng_view_member *member,
                              const struct ng_p2p_pattern *pattern, uint32_t index)
{
    const struct ng_p2p_pattern_work *work = &pattern->works[index];

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    put_op(json, "op", work->op);
    ng_json_int(json, "root", work->root);
    put_uint(json, "sent", work->sent);
    put_uint(json, "received", work->received);
    ng_json_open_array(json, "records", NG_JSON_COMPACT);
    for (uint32_t i = work->first; i <= work->last; i++)
        if (pattern->work_of[i] == index)
            put_uint(json, NULL, member->records[i].id);
    ng_json_close_array(json);
    ng_json_close_object(json);
}

/* If memory is short, only the sends and receives are written. */
static void put_composed(struct ng_json *json, const struct ng_view *view,
                         const struct ng_view_member *member)
{
    struct ng_arena arena = {0};
    struct ng_p2p_pattern pattern = {0};

    ng_json_open_array(json, "composed", NG_JSON_LINES);
    if (ng_p2p_pattern_find(view, member, &arena, &pattern) == 0)
        for (uint32_t i = 0; i < pattern.work_count; i++)
            if (pattern.works[i].op != NG_OP_NONE)
                put_composed_work(json, member, &pattern, i);
    ng_json_close_array(json);
    ng_arena_reset(&arena);
}

/* What is registered with a communicator; null: not known. */
static void put_registration(struct ng_json *json, const struct ng_view_registration *from)
{
    if (!from->known) {
        ng_json_null(json, "registration");
        return;
    }
    ng_json_open_object(json, "registration", NG_JSON_COMPACT);
#define PUT_COUNT(count) PUT(uint, count)
    NG_REGISTRATION_COUNTS(PUT_COUNT)
    ng_json_bool(json, "closed", from->closed);
    ng_json_close_object(json);
}

static void put_host_calls(struct ng_json *json, const struct ng_view_host_calls *calls)
{
    uint32_t any = calls->op;

    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        any |= calls->entered[i];
    if (!any)
        return;
    ng_json_open_object(json, "host_calls", NG_JSON_COMPACT);
    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        put_uint(json, ng_op_name(NG_OP_CommWindowRegister + i), calls->entered[i]);
    put_uint(json, "batch_op_number", calls->op);
    put_uint(json, "batch_tid", calls->tid);
    ng_json_bool(json, "batch_open", calls->open);
    ng_json_close_object(json);
}

static void put_edges(struct ng_json *json, const struct ng_view_member *member)
{
    if (!member->edge_count)
        return;
    ng_json_int(json, "connections_age_ns", member->edges_age_ns);
    ng_json_open_array(json, "connections", NG_JSON_LINES);
    NG_EACH (from, member->edges, member->edge_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "peer", from->peer);
        ng_json_bool(json, "sends", from->flags & NG_EDGE_SENDS);
        ng_json_bool(json, "moves", from->flags & NG_EDGE_MOVES);
        NG_DUMP_EDGE(PUT)
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_member(struct ng_json *json, const struct ng_view *view,
                       const struct ng_view_member *from)
{
    const struct ng_view_group *group = &view->groups[from->group];

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_int(json, "rank", ng_view_rank(view, from));
    ng_json_int(json, "group_rank", from->group_rank);
    ng_json_int(json, "device", from->device);
    ng_json_string(json, "pci_id", from->pci_id);
    ng_json_hex(json, "group_id", group->id);
    ng_json_hex(json, "parent_id", group->parent_id);
    ng_json_hex(json, "joined_id", from->joined_id);
    ng_json_hex(json, "excluded", from->excluded);
    ng_json_string(json, "group_name", group->name);
    ng_json_int(json, "nranks", from->nranks ? from->nranks : group->nranks);
    ng_json_int(json, "nccl_version",
                from->nccl_version ? from->nccl_version : group->nccl_version);
    put_named(json, "state", ng_dump_group_state_name(from->state), from->state);
    put_op(json, "created_by", from->created_by);
    NG_DUMP_MEMBER_STATE(PUT)
    ng_json_open_object(json, "last", NG_JSON_COMPACT);
    put_signature(json, &from->last);
    ng_json_close_object(json);
    put_registration(json, &from->registration);
    ng_json_int(json, "timeout_ns", from->timeout_ns);
    put_named(json, "policy", ng_on_timeout_name((enum ng_on_timeout)(from->policy - 1)),
              from->policy);
    NG_DUMP_MEMBER_PENDING(PUT)
#define PUT_FLAG(member)                                                                           \
    if (from->member)                                                                              \
        ng_json_bool(json, #member, true);
    NG_DUMP_MEMBER_FLAGS(PUT_FLAG)
    put_host_calls(json, &from->host_calls);
    if (from->counted) {
        put_uint(json, "counted_seq", from->counted_seq);
        put_uint(json, "counted_left", from->counted_left);
        if (from->kernel)
            ng_json_bool(json, "kernel_runs", from->kernel == NG_KERNEL_RUNS);
    }
    put_edges(json, from);
    ng_json_open_array(json, "records", NG_JSON_LINES);
    NG_EACH (record, from->records, from->record_count)
        put_record(json, view, record);
    ng_json_close_array(json);
    put_composed(json, view, from);
    put_samples(json, from);
    ng_json_close_object(json);
}

/* Words of NCCL's RAS are in the dump of the process that asked. */
static void put_ras(struct ng_json *json, const struct ng_view *view)
{
    ng_json_open_array(json, "ras", NG_JSON_LINES);
    NG_EACH (word, view->ras, view->ras_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_hex(json, "group_id", word->group_id);
        ng_json_int(json, "age_ns", word->age_ns);
        ng_json_int(json, "group_rank", word->rank.rank);
        ng_json_int(json, "pid", word->rank.pid);
        ng_json_string(json, "host", word->rank.host);
        ng_json_string(json, "state", ng_ras_state_name(word->rank.state));
        ng_json_bool(json, "counts", word->rank.counts);
        put_uint(json, "launched", word->rank.launched);
        put_uint(json, "others", word->others);
        ng_json_bool(json, "behind", word->behind);
        ng_json_bool(json, "waits", word->waits);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

/* A note begins with the file that it concerns; notes about another process belong in its dump. */
static bool is_about(const char *note, const struct ng_view_process *process)
{
    size_t length = strlen(process->source);
    return length && strncmp(note, process->source, length) == 0 && note[length] == ':';
}

static void put_notes(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "notes", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->note_count; i++) {
        bool of_another =
            NG_ANY(other, view->processes, view->process_count,
                   other != &view->processes[process] && is_about(view->notes[i], other));
        if (!of_another || is_about(view->notes[i], &view->processes[process]))
            ng_json_string(json, NULL, view->notes[i]);
    }
    ng_json_close_array(json);
}

int ng_dump_write_process(const struct ng_view *view, uint32_t process, int fd)
{
    struct ng_json json;

    ng_json_init(&json, fd);
    ng_json_open_object(&json, NULL, NG_JSON_LINES);
    ng_json_string(&json, "schema", NG_DUMP_SCHEMA);
    ng_json_string(&json, "guard_version", NG_VERSION);
    ng_json_string(&json, "job", view->job);
    ng_json_int(&json, "written_unix_ns", ng_clock_unix_ns());
    ng_json_bool(&json, "on_request", view->on_request);
    ng_json_int(&json, "rank", ng_dump_rank(view, process));
    put_process(&json, &view->processes[process]);
    put_calls(&json, view, process);
    put_threads(&json, view, process);
    put_durations(&json, view, process);
    put_faults(&json, view, process);
    ng_json_open_array(&json, "members", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].process == process)
            put_member(&json, view, &view->members[i]);
    ng_json_close_array(&json);
    if (view->call_stack_count)
        put_modules(&json, view, process);
    if (view->ras_count && view->processes[process].self)
        put_ras(&json, view);
    put_notes(&json, view, process);
    if (view->stacks && view->processes[process].self)
        ng_stacks_write_json(view->stacks, &json);
    ng_json_close_object(&json);
    return ng_json_finish(&json);
}

struct content {
    const struct ng_view *view;
    uint32_t process;
};

static int write_content(const void *context, int fd)
{
    const struct content *content = context;
    return ng_dump_write_process(content->view, content->process, fd);
}

int ng_dump_save_process(const struct ng_view *view, uint32_t process, const char *folder)
{
    struct content content = {view, process};
    char name[64];

    if (process >= view->process_count)
        return -EINVAL;
    ng_dump_name(view, process, name, sizeof(name));
    return ng_output_save(folder, name, write_content, &content);
}
