/*
 * The table as JSON: everything that is known, in the view's own order.
 */
#include "tools/render/table_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/memory_map.h"
#include "core/verdict/straggler.h"
#include "tools/ingest/memory_sums.h"
#include "tools/render/group_list.h"

struct writer {
    const struct ng_table *table;
    struct ng_json json;
    uint32_t *order, *index_of; /* of processes, by rank; and the other way round */
    struct ng_table_lists calls, members;
};

static void put_ms(struct ng_json *json, const char *key, int64_t ns)
{
    ng_json_int(json, key, ns / NG_MS);
}

static void put_text(struct ng_json *json, const char *key, const char *text)
{
    ng_json_string(json, key, text[0] ? text : NULL);
}

static void put_signature(struct ng_json *json, const char *key,
                          const struct ng_signature *signature)
{
    if (!signature->op) {
        ng_json_null(json, key);
        return;
    }
    ng_json_open_object(json, key, NG_JSON_COMPACT);
    ng_json_string(json, "op", ng_op_name(signature->op));
    ng_json_count(json, "count", signature->count);
    ng_json_string(json, "dtype", ng_dtype_name(signature->dtype));
    ng_json_string(json, "redop", signature->redop < 0 ? NULL : ng_redop_name(signature->redop));
    ng_json_int(json, "root", signature->root);
    ng_json_close_object(json);
}

/* ---- Processes ---- */

static void put_devices(struct writer *writer, uint32_t process)
{
    const struct ng_view *view = writer->table->view;
    const uint32_t *list = writer->members.list;
    uint32_t first = writer->members.start[process], end = writer->members.start[process + 1];

    ng_json_open_array(&writer->json, "devices", NG_JSON_COMPACT);
    for (uint32_t i = first; i < end; i++) {
        const struct ng_view_member *member = &view->members[list[i]];
        bool told = member->device < 0;
        for (uint32_t k = first; k < i && !told; k++)
            told = view->members[list[k]].device == member->device;
        if (told)
            continue;
        ng_json_open_object(&writer->json, NULL, NG_JSON_COMPACT);
        ng_json_int(&writer->json, "device", member->device);
        put_text(&writer->json, "pci_id", member->pci_id);
        ng_json_close_object(&writer->json);
    }
    ng_json_close_array(&writer->json);
}

static void put_calls(struct writer *writer, uint32_t process)
{
    const struct ng_view *view = writer->table->view;

    ng_json_open_array(&writer->json, "calls", NG_JSON_COMPACT);
    for (uint32_t i = writer->calls.start[process]; i < writer->calls.start[process + 1]; i++) {
        const struct ng_view_call *call = &view->calls[writer->calls.list[i]];
        ng_json_open_object(&writer->json, NULL, NG_JSON_COMPACT);
        ng_json_count(&writer->json, "tid", call->tid);
        ng_json_string(&writer->json, "op", ng_op_name(call->op));
        ng_json_id(&writer->json, "group", call->group_id);
        ng_json_count(&writer->json, "seq", call->seq);
        put_ms(&writer->json, "age_ms", call->age_ns);
        ng_json_close_object(&writer->json);
    }
    ng_json_close_array(&writer->json);
}

static void put_sum(struct ng_json *json, const struct ng_memory_sum *sum)
{
    ng_json_count(json, "segments", sum->segments);
    ng_json_count(json, "bytes", sum->bytes);
}

static void put_memory(struct writer *writer, uint32_t index)
{
    const struct ng_view_process *process = &writer->table->view->processes[index];
    struct ng_view_registration registration;
    struct ng_json *json = &writer->json;
    struct ng_memory_sum sum;

    if (!ng_memory_sums_memory(process, &sum)) {
        ng_json_null(json, "memory");
        return;
    }
    ng_memory_sums_process(writer->table->view, index, &registration);
    ng_json_open_object(json, "memory", NG_JSON_COMPACT);
    put_sum(json, &sum);
    ng_json_open_object(json, "kinds", NG_JSON_COMPACT);
    for (uint32_t i = 0; i < process->memory_kinds && i < NG_SEGMENT_KINDS; i++) {
        ng_json_open_object(json, ng_segment_kind_name((enum ng_segment_kind)i), NG_JSON_COMPACT);
        put_sum(json, &process->memory[i]);
        ng_json_close_object(json);
    }
    ng_json_close_object(json);
    ng_json_count(json, "registered_segments", registration.segments);
    ng_json_count(json, "registered_bytes", registration.segment_bytes);
    ng_json_close_object(json);
}

static void put_registration(struct ng_json *json, const struct ng_view_registration *told)
{
    if (!told->known) {
        ng_json_null(json, "registration");
        return;
    }
    ng_json_open_object(json, "registration", NG_JSON_COMPACT);
    ng_json_count(json, "segments", told->segments);
    ng_json_count(json, "segment_bytes", told->segment_bytes);
    ng_json_count(json, "bytes", told->bytes);
    ng_json_count(json, "registered_bytes", told->registered_bytes);
    ng_json_double(json, "share", ng_memory_sums_share(told) / 100.0);
    ng_json_count(json, "made", told->made);
    ng_json_count(json, "ended", told->ended);
    ng_json_count(json, "failed", told->failed);
    ng_json_count(json, "deferred", told->deferred);
    ng_json_count(json, "spent_ns", told->spent_ns);
    ng_json_bool(json, "closed", told->closed);
    ng_json_close_object(json);
}

static void put_process(struct writer *writer, uint32_t index)
{
    const struct ng_view_process *process = &writer->table->view->processes[index];
    struct ng_json *json = &writer->json;

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_int(json, "rank", process->rank);
    ng_json_int(json, "local_rank", process->local_rank);
    ng_json_int(json, "world_size", process->world_size);
    ng_json_string(json, "host", process->host);
    ng_json_int(json, "pid", process->pid);
    put_text(json, "program", process->program);
    ng_json_id(json, "uid", process->uid);
    ng_json_string(json, "life", ng_dump_life_name(process->life));
    ng_group_list_put_known(json, "exit_status",
                            process->life == NG_LIFE_EXITED && process->exit_status >= 0,
                            process->exit_status);
    ng_group_list_put_known(json, "signal",
                            process->life == NG_LIFE_DEAD &&
                                process->exit_status > NG_EXIT_STATUS_SIGNAL &&
                                process->exit_status < NG_EXIT_STATUS_SILENT,
                            process->exit_status - NG_EXIT_STATUS_SIGNAL);
    put_ms(json, "life_age_ms", process->life_age_ns);
    put_devices(writer, index);
    put_memory(writer, index);
    put_calls(writer, index);
    ng_json_close_object(json);
}

/* ---- Groups ---- */

static void put_p2p(struct writer *writer, const struct ng_view_member *member)
{
    const struct ng_view *view = writer->table->view;
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "p2p_pending", NG_JSON_COMPACT);
    NG_EACH (record, member->records, member->record_count) {
        if (ng_view_record_is_retired(record) || !ng_view_record_is_p2p(record))
            continue;
        const struct ng_view_member *peer =
            ng_view_member(view, member->group, record->signature.root);
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "op", ng_op_name(record->signature.op));
        ng_json_int(json, "peer", record->signature.root);
        ng_json_int(json, "peer_rank", peer ? writer->table->rows[peer - view->members].rank : -1);
        ng_json_count(json, "ordinal", record->peer_ordinal);
        ng_json_string(json, "state", ng_dump_record_state_name(record->state));
        put_ms(json, "age_ms", record->entered_age_ns);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_in(struct ng_json *json, const struct ng_table_row *row)
{
    static const char *const phases[] = {
        [NG_PHASE_GROUP] = "group",
        [NG_PHASE_CALL] = "call",
        [NG_PHASE_QUEUED] = "queued",
        [NG_PHASE_DEVICE] = "device",
    };

    if (row->phase == NG_PHASE_NONE) {
        ng_json_null(json, "in");
        return;
    }
    ng_json_open_object(json, "in", NG_JSON_COMPACT);
    ng_json_string(json, "op", row->op != NG_OP_NONE ? ng_op_name(row->op) : NULL);
    ng_json_count(json, "seq", row->seq);
    put_ms(json, "age_ms", row->age_ns);
    ng_json_string(json, "phase", phases[row->phase]);
    ng_json_close_object(json);
}

static void put_member(struct writer *writer, uint32_t index)
{
    const struct ng_view *view = writer->table->view;
    const struct ng_view_member *member = &view->members[index];
    const struct ng_view_process *process = &view->processes[member->process];
    const struct ng_table_row *row = &writer->table->rows[index];
    struct ng_json *json = &writer->json;

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_int(json, "group_rank", member->group_rank);
    ng_json_int(json, "rank", row->rank);
    ng_json_string(json, "host", process->host);
    ng_json_int(json, "pid", process->pid);
    ng_json_count(json, "process", writer->index_of[member->process]);
    ng_json_int(json, "device", member->device);
    put_text(json, "pci_id", member->pci_id);
    ng_json_string(json, "state", ng_dump_group_state_name(member->state));
    put_ms(json, "created_age_ms", member->created_age_ns);
    put_ms(json, "ended_age_ms", member->ended_age_ns);
    ng_json_count(json, "entered", member->entered);
    ng_json_count(json, "scheduled", member->scheduled);
    ng_json_count(json, "started", member->started);
    ng_json_count(json, "completed", member->completed);
    ng_json_count(json, "behind", row->behind);
    put_ms(json, "behind_ms", row->behind_ns);
    put_in(json, row);
    ng_json_bool(json, "suspended", member->rests);
    ng_group_list_put_bounds(json, member->timeout_ns, member->policy);
    put_signature(json, "last", &member->last);
    ng_json_id(json, "rolling_hash", member->rolling_hash);
    ng_json_count(json, "p2p_entered", member->p2p_entered);
    ng_json_count(json, "p2p_completed", member->p2p_completed);
    put_p2p(writer, member);
    put_registration(json, &member->registration);
    ng_json_string(json, "async_error",
                   member->async_error ? ng_result_name(member->async_error) : NULL);
    ng_json_string(json, "cuda_error",
                   member->cuda_error ? ng_cuda_error_text(member->cuda_error) : NULL);
    ng_json_close_object(json);
}

static void put_straggler(struct writer *writer, uint32_t group)
{
    const struct ng_view *view = writer->table->view;
    struct ng_json *json = &writer->json;
    struct ng_arena arena = {0};
    struct ng_straggler straggler;

    bool any = ng_straggler_find(view, group, &arena, &straggler);
    ng_arena_reset(&arena);
    if (!any) {
        ng_json_null(json, "straggler");
        return;
    }
    ng_json_open_object(json, "straggler", NG_JSON_COMPACT);
    ng_group_list_put_straggler(json, &straggler,
                                writer->table->rows[straggler.member - view->members].rank);
    ng_json_close_object(json);
}

static void put_group(struct writer *writer, uint32_t index)
{
    const struct ng_view *view = writer->table->view;
    const struct ng_view_group *group = &view->groups[index];
    struct ng_json *json = &writer->json;
    struct ng_view_registration registration;
    struct ng_group_making making = ng_group_list_making(view, index);
    uint32_t count, same = ng_view_same_members(view, index);
    const struct ng_view_member *members = ng_view_members(view, index, &count);

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_hex(json, "id", group->id);
    ng_json_string(json, "name", group->name);
    ng_json_id(json, "parent", group->parent_id);
    ng_json_int(json, "size", group->nranks);
    ng_json_int(json, "nccl_version", group->nccl_version);
    ng_group_list_put_known(json, "color", making.color >= 0, making.color);
    ng_json_string(json, "created_by", making.created_by ? ng_op_name(making.created_by) : NULL);
    put_ms(json, "created_age_ms", making.age_ns);
    ng_json_bool(json, "ended", making.ended);
    ng_json_count(json, "front", writer->table->front[index]);
    ng_json_id(json, "same_members_as", same < index ? view->groups[same].id : 0);
    ng_group_list_put_group_bounds(json, view, index);
    ng_group_list_put_missing(json, view, index);
    put_straggler(writer, index);
    ng_memory_sums_group(view, index, &registration);
    put_registration(json, &registration);
    ng_json_open_array(json, "members", NG_JSON_LINES);
    for (uint32_t i = 0; i < count; i++)
        put_member(writer, (uint32_t)(&members[i] - view->members));
    ng_json_close_array(json);
    ng_json_close_object(json);
}

/* ---- All of it ---- */

static int compare_processes(const void *left, const void *right, void *context)
{
    const struct ng_view *view = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    unsigned rank_a = (unsigned)view->processes[a].rank, rank_b = (unsigned)view->processes[b].rank;

    return NG_ORDER(rank_a, rank_b) ?: NG_ORDER(a, b);
}

static uint32_t process_of_member(const struct ng_view *view, uint32_t index)
{
    return view->members[index].process;
}

static int prepare(struct writer *writer)
{
    const struct ng_view *view = writer->table->view;

    writer->order = calloc(view->process_count + 1, sizeof(*writer->order));
    writer->index_of = calloc(view->process_count + 1, sizeof(*writer->index_of));
    if (!writer->order || !writer->index_of)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++)
        writer->order[i] = i;
    qsort_r(writer->order, view->process_count, sizeof(*writer->order), compare_processes,
            (void *)view);
    for (uint32_t i = 0; i < view->process_count; i++)
        writer->index_of[writer->order[i]] = i;
    return ng_table_sort_calls(view, &writer->calls)
               ?: ng_table_sort(view, view->member_count, process_of_member, &writer->members);
}

static int write_document(struct writer *writer, int fd)
{
    const struct ng_view *view = writer->table->view;
    struct ng_json *json = &writer->json;

    ng_json_init(json, fd);
    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_report_add_json(json, writer->table->verdict);
    ng_json_string(json, "table_schema", NG_TABLE_SCHEMA);
    ng_json_strings(json, "hosts", (char *const *)writer->table->hosts, writer->table->host_count);
    ng_json_open_object(json, "ranks", NG_JSON_COMPACT);
    ng_json_count(json, "seen", writer->table->seen);
    ng_json_count(json, "expected", writer->table->expected);
    ng_json_close_object(json);
    ng_json_open_array(json, "processes", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->process_count; i++)
        put_process(writer, writer->order[i]);
    ng_json_close_array(json);
    ng_json_open_array(json, "groups", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->group_count; i++)
        put_group(writer, i);
    ng_json_close_array(json);
    ng_json_strings(json, "notes", view->notes, view->note_count);
    ng_json_close_object(json);
    return ng_json_finish(json);
}

int ng_table_write_json(const struct ng_table *table, int fd)
{
    struct writer writer = {.table = table};
    int error = prepare(&writer) ?: write_document(&writer, fd);
    free(writer.order);
    free(writer.index_of);
    ng_table_lists_fini(&writer.calls);
    ng_table_lists_fini(&writer.members);
    return error;
}
