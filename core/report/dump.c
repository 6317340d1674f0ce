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

static void put_op(struct ng_json *json, uint32_t op)
{
    ng_json_string(json, "op", op == NG_OP_NONE ? NULL : ng_op_name(op));
    ng_json_uint(json, "op_number", op);
}

static void put_signature(struct ng_json *json, const struct ng_signature *signature)
{
    put_op(json, signature->op);
    ng_json_string(json, "dtype", signature->dtype == -1 ? NULL : ng_dtype_name(signature->dtype));
    ng_json_int(json, "dtype_number", signature->dtype);
    ng_json_string(json, "redop", signature->redop == -1 ? NULL : ng_redop_name(signature->redop));
    ng_json_int(json, "redop_number", signature->redop);
    ng_json_int(json, "root", signature->root);
    put_uint(json, "count", signature->count);
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

static void put_nan(struct ng_json *json, const struct ng_view_nan *nan)
{
    if (!nan->age_ns) {
        ng_json_null(json, "nan");
        return;
    }
    ng_json_open_object(json, "nan", NG_JSON_COMPACT);
    ng_json_int(json, "age_ns", nan->age_ns);
    ng_json_hex(json, "group_id", nan->group_id);
    put_uint(json, "seq", nan->seq);
    put_op(json, nan->op);
    ng_json_string(json, "dtype", ng_dtype_name(nan->dtype));
    ng_json_int(json, "dtype_number", nan->dtype);
    put_uint(json, "elements", nan->elements);
    put_uint(json, "bad", nan->bad);
    put_uint(json, "element", nan->element);
    ng_json_hex(json, "bits", nan->bits);
    ng_json_bool(json, "held", nan->held);
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

static void put_process(struct ng_json *json, const struct ng_view_process *process)
{
    ng_json_open_object(json, "process", NG_JSON_LINES);
    ng_json_int(json, "rank", process->rank);
    ng_json_int(json, "world_size", process->world_size);
    ng_json_int(json, "local_rank", process->local_rank);
    ng_json_int(json, "pid", process->pid);
    ng_json_hex(json, "uid", process->uid);
    ng_json_string(json, "host", process->host);
    ng_json_string(json, "program", process->program);
    ng_json_string(json, "nccl_variables", process->nccl_variables);
    ng_json_string(json, "error_text", process->error_text);
    ng_json_string(json, "source", process->source);
    put_memory(json, process);
    ng_json_string(json, "life", ng_dump_life_name(process->life));
    ng_json_int(json, "life_number", process->life);
    ng_json_int(json, "exit_status", process->exit_status);
    ng_json_int(json, "quiet_ns", process->quiet_ns);
    ng_json_int(json, "watchdog_stuck_ns", process->watchdog_stuck_ns);
    ng_json_string(json, "watchdog_in", process->watchdog_in);
    put_nan(json, &process->nan);
    put_devices(json, process);
    ng_json_int(json, "suspect_ns", process->suspect_ns);
    ng_json_int(json, "cold_suspect_ns", process->cold_suspect_ns);
    ng_json_int(json, "life_age_ns", process->life_age_ns);
    ng_json_int(json, "alive_age_ns", process->alive_age_ns);
    ng_json_int(json, "moment_mono_ns", process->moment_mono_ns);
    ng_json_int(json, "moment_unix_ns", process->moment_unix_ns);
    put_settings(json, process, true);
    put_settings(json, process, false);
    ng_json_close_object(json);
}

static void put_calls(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "calls", NG_JSON_LINES);
    NG_EACH (call, view->calls, view->call_count) {
        if (call->process != process)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_uint(json, "tid", call->tid);
        put_op(json, call->op);
        ng_json_hex(json, "group_id", call->group_id);
        ng_json_int(json, "group_rank", call->group_rank);
        put_uint(json, "seq", call->seq);
        put_uint(json, "record_id", call->record_id);
        ng_json_int(json, "age_ns", call->age_ns);
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
                       const struct ng_view_record *record)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(view, record);

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    put_uint(json, "id", record->id);
    ng_json_string(json, "state", ng_dump_record_state_name(record->state));
    ng_json_int(json, "state_number", record->state);
    put_signature(json, &record->signature);
    put_uint(json, "coll_seq", record->coll_seq);
    put_uint(json, "p2p_seq", record->p2p_seq);
    put_uint(json, "peer_ordinal", record->peer_ordinal);
    put_uint(json, "op_id", ng_view_record_op_id(record));
    ng_json_bool(json, "retired", ng_view_record_is_retired(record));
    ng_json_int(json, "entered_age_ns", record->entered_age_ns);
    ng_json_int(json, "started_age_ns", record->started_age_ns);
    ng_json_int(json, "completed_age_ns", record->completed_age_ns);
    ng_json_hex(json, "stream", record->stream);
    put_uint(json, "work_previous", record->work_previous);
    ng_json_hex(json, "caller", record->caller);
    ng_json_uint(json, "flags", record->flags);
    ng_json_uint(json, "tid", record->tid);
    ng_json_string(json, "result", ng_result_name(record->result));
    ng_json_int(json, "result_number", record->result);
    ng_json_hex(json, "rolling_hash", record->rolling_hash);
    ng_json_int(json, "duration_ns", record->duration_ns);
    if (record->graph) {
        put_uint(json, "graph", record->graph);
        put_uint(json, "replay", record->replay);
        ng_json_uint(json, "graph_position", record->graph_position);
        ng_json_uint(json, "graph_calls", record->graph_calls);
    }
    if (stack)
        put_frames(json, stack);
    ng_json_close_object(json);
}

static void put_samples(struct ng_json *json, const struct ng_view_member *member)
{
    ng_json_open_array(json, "samples", NG_JSON_LINES);
    for (uint32_t i = 0; i < member->sample_count; i++) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        put_uint(json, "seq", member->samples[i].seq);
        ng_json_uint(json, "calls", member->samples[i].calls);
        ng_json_int(json, "duration_ns", member->samples[i].duration_ns);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_durations(struct ng_json *json, const struct ng_view *view, uint32_t process)
{
    ng_json_open_array(json, "durations", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->duration_count; i++) {
        const struct ng_duration *duration = &view->durations[i].duration;
        if (view->durations[i].process != process)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_hex(json, "group_id", duration->group_id);
        put_op(json, duration->op);
        ng_json_uint(json, "size_class", duration->size_class);
        put_uint(json, "count", duration->count);
        put_uint(json, "sum_ns", duration->sum_ns);
        put_uint(json, "min_ns", duration->min_ns);
        put_uint(json, "max_ns", duration->max_ns);
        ng_json_open_array(json, "histogram", NG_JSON_COMPACT);
        for (unsigned k = 0; k < NG_DURATION_BUCKETS; k++)
            put_uint(json, NULL, duration->histogram[k]);
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
        if (told->process != process)
            continue;
        if (!any)
            ng_json_open_array(json, "faults", NG_JSON_LINES);
        any = true;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "fault", told->fault.text);
        put_uint(json, "times", told->fault.times);
        ng_json_int(json, "rank", told->fault.rank);
        put_op(json, told->fault.op);
        ng_json_hex(json, "group_id", told->fault.group_id);
        put_uint(json, "seq", told->fault.seq);
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
    put_op(json, work->op);
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
static void put_registration(struct ng_json *json, const struct ng_view_registration *told)
{
    if (!told->known) {
        ng_json_null(json, "registration");
        return;
    }
    ng_json_open_object(json, "registration", NG_JSON_COMPACT);
#define PUT(count) put_uint(json, #count, told->count);
    NG_REGISTRATION_COUNTS(PUT)
    ng_json_bool(json, "closed", told->closed);
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
    NG_EACH (edge, member->edges, member->edge_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "peer", edge->peer);
        ng_json_bool(json, "sends", edge->flags & NG_EDGE_SENDS);
        ng_json_bool(json, "moves", edge->flags & NG_EDGE_MOVES);
        ng_json_uint(json, "flags", edge->flags);
        ng_json_uint(json, "channels", edge->channels);
        ng_json_uint(json, "begun", edge->begun);
        ng_json_uint(json, "taken", edge->taken);
        ng_json_uint(json, "held", edge->held);
        ng_json_uint(json, "channel", edge->channel);
        ng_json_uint(json, "base", edge->base);
        ng_json_uint(json, "posted", edge->posted);
        ng_json_uint(json, "consumed", edge->consumed);
        ng_json_uint(json, "queued", edge->queued);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_member(struct ng_json *json, const struct ng_view *view,
                       const struct ng_view_member *member)
{
    const struct ng_view_group *group = &view->groups[member->group];

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_int(json, "rank", ng_view_rank(view, member));
    ng_json_int(json, "group_rank", member->group_rank);
    ng_json_int(json, "device", member->device);
    ng_json_string(json, "pci_id", member->pci_id);
    ng_json_hex(json, "group_id", group->id);
    ng_json_hex(json, "parent_id", group->parent_id);
    ng_json_hex(json, "joined_id", member->joined_id);
    ng_json_hex(json, "excluded", member->excluded);
    ng_json_string(json, "group_name", group->name);
    ng_json_int(json, "nranks", member->nranks ? member->nranks : group->nranks);
    ng_json_int(json, "nccl_version",
                member->nccl_version ? member->nccl_version : group->nccl_version);
    ng_json_string(json, "state", ng_dump_group_state_name(member->state));
    ng_json_int(json, "state_number", member->state);
    ng_json_string(json, "created_by",
                   member->created_by == NG_OP_NONE ? NULL : ng_op_name(member->created_by));
    ng_json_uint(json, "created_by_number", member->created_by);
    ng_json_int(json, "created_age_ns", member->created_age_ns);
    ng_json_int(json, "ended_age_ns", member->ended_age_ns);
    ng_json_int(json, "async_error", member->async_error);
    ng_json_int(json, "error_age_ns", member->error_age_ns);
    ng_json_int(json, "cuda_error", member->cuda_error);
    ng_json_uint(json, "creator_tid", member->creator_tid);
    ng_json_int(json, "color", member->color);
    ng_json_uint(json, "ordinal", member->ordinal);
    ng_json_uint(json, "derived", member->derived);
    put_uint(json, "entered", member->entered);
    put_uint(json, "scheduled", member->scheduled);
    put_uint(json, "started", member->started);
    put_uint(json, "completed", member->completed);
    put_uint(json, "p2p_entered", member->p2p_entered);
    put_uint(json, "p2p_completed", member->p2p_completed);
    ng_json_hex(json, "rolling_hash", member->rolling_hash);
    ng_json_open_object(json, "last", NG_JSON_COMPACT);
    put_signature(json, &member->last);
    ng_json_close_object(json);
    put_registration(json, &member->registration);
    ng_json_int(json, "timeout_ns", member->timeout_ns);
    ng_json_string(json, "policy", ng_on_timeout_name((enum ng_on_timeout)(member->policy - 1)));
    ng_json_uint(json, "policy_number", member->policy);
    ng_json_bool(json, "rests", member->rests);
    put_uint(json, "coll_joined", member->coll_joined);
    put_uint(json, "p2p_joined", member->p2p_joined);
    put_uint(json, "groups_closed", member->groups_closed);
    put_uint(json, "pending_seq", member->pending_seq);
    put_uint(json, "pending_record", member->pending_record);
    ng_json_int(json, "pending_age_ns", member->pending_age_ns);
    ng_json_bool(json, "pending_started", member->pending_started);
    if (member->pending_vague)
        ng_json_bool(json, "pending_vague", true);
    if (member->pending_inferred)
        ng_json_bool(json, "pending_inferred", true);
    if (member->pending_unwatched)
        ng_json_bool(json, "pending_unwatched", true);
    put_host_calls(json, &member->host_calls);
    if (member->counted) {
        put_uint(json, "counted_seq", member->counted_seq);
        put_uint(json, "counted_left", member->counted_left);
    }
    put_edges(json, member);
    ng_json_open_array(json, "records", NG_JSON_LINES);
    for (uint32_t i = 0; i < member->record_count; i++)
        put_record(json, view, &member->records[i]);
    ng_json_close_array(json);
    put_composed(json, view, member);
    put_samples(json, member);
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
