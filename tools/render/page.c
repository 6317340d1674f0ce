/*
 * The report of `ncclguard analyze --html`: view and verdict as JSON inside the page that draws
 * them.
 *
 * Used by `ncclguard analyze`. Text from the evidence must never become markup.
 */
#include "tools/render/page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/recorder/signature.h"
#include "core/report/dump.h"
#include "core/report/report.h"
#include "core/report/timeline.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/verdict/straggler.h"
#include "tools/base/save_as.h"
#include "tools/ingest/memory_sums.h"
#include "tools/ingest/timings.h"
#include "tools/render/findings.h"

#define NUMBER_MAX      INT64_C(9007199254740991) /* largest exact integer of a script */
#define SIGNATURE_SLOTS 65536u                    /* a power of two */
#define TIMINGS_MAX     5000u
#define BOUNDS          5 /* a separate state in the data: done, but see ng_span.bounds */
#define SIGNATURES_MAX  (SIGNATURE_SLOTS / 2)

struct writer {
    struct ng_json json;
    struct ng_timeline timeline;
    /* The arguments of operations, each combination once. */
    struct ng_signature *signatures;
    uint32_t signature_count;
    uint32_t *slots; /* index + 1 by hash */
};

/* ---- Values ---- */

static void put_count(struct writer *writer, const char *key, uint64_t value)
{
    ng_json_int(&writer->json, key, value <= (uint64_t)NUMBER_MAX ? (int64_t)value : NUMBER_MAX);
}

/* Microseconds are precise enough for a screen. */
static void put_duration(struct writer *writer, const char *key, int64_t ns)
{
    ng_json_int(&writer->json, key, ns / NG_US);
}

static void put_time(struct writer *writer, const char *key, uint64_t ns)
{
    put_duration(writer, key, ns <= INT64_MAX ? (int64_t)ns : INT64_MAX);
}

static void put_moment(struct writer *writer, const char *key, int64_t at_ns)
{
    put_duration(writer, key, at_ns - writer->timeline.begin_ns);
}

/* The index of a signature in the list, added if new; -1: there is none, or there are too many. */
static int find_signature(struct writer *writer, const struct ng_signature *signature)
{
    const uint64_t fields[] = {signature->op, (uint32_t)signature->dtype,
                               (uint32_t)signature->redop, (uint32_t)signature->root,
                               signature->count};
    uint64_t hash = 0;

    if (!signature->op)
        return -1;
    for (size_t i = 0; i < NG_COUNT(fields); i++)
        hash = (hash ^ fields[i]) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) & (SIGNATURE_SLOTS - 1);
    while (writer->slots[at] &&
           !ng_signature_is_equal(&writer->signatures[writer->slots[at] - 1], signature))
        at = (at + 1) & (SIGNATURE_SLOTS - 1);
    if (!writer->slots[at]) {
        if (writer->signature_count == SIGNATURES_MAX)
            return -1;
        writer->signatures[writer->signature_count] = *signature;
        writer->slots[at] = ++writer->signature_count;
    }
    return (int)writer->slots[at] - 1;
}

/* ---- Verdict ---- */

/* When the waiting ranks began to wait: by the time at which each was observed, which need not be
 * the last. */
static int64_t awaited_since_ns(const struct ng_timeline *timeline)
{
    const struct ng_verdict *verdict = timeline->verdict;
    int64_t since_ns = timeline->end_ns - verdict->stalled_ns;

    NG_EACH (rank, timeline->ranks, timeline->rank_count) {
        for (uint32_t k = 0; rank->waits && k < rank->count; k++) {
            const struct ng_view_member *member =
                &timeline->view->members[timeline->members[rank->first + k]];
            if (!member->pending_record || member->pending_seq != verdict->seq ||
                timeline->view->groups[member->group].id != verdict->group_id)
                continue;
            int64_t at_ns = ng_timeline_at(timeline, member->process, member->pending_age_ns);
            since_ns = at_ns < since_ns ? at_ns : since_ns;
        }
    }
    return since_ns > timeline->begin_ns ? since_ns : timeline->begin_ns;
}

static void put_devices(struct ng_json *json, const struct ng_verdict *verdict)
{
    char text[256];

    ng_json_open_array(json, "devices", NG_JSON_LINES);
    for (uint32_t i = 0; i < verdict->device_error_count; i++) {
        ng_report_device_error(&verdict->device_errors[i], text, sizeof(text));
        ng_json_string(json, NULL, text);
    }
    ng_json_close_array(json);
}

static void put_verdict(struct writer *writer)
{
    const struct ng_verdict *verdict = writer->timeline.verdict;
    struct ng_json *json = &writer->json;
    char line[NG_REPORT_LINE_BYTES];
    bool operation = verdict->kind != NG_KIND_HEALTHY && verdict->op != NG_OP_NONE;

    ng_report_line(verdict, line, sizeof(line));
    ng_json_open_object(json, "verdict", NG_JSON_LINES);
    ng_json_string(json, "kind", ng_verdict_kind_name(verdict->kind));
    ng_json_string(json, "text", ng_verdict_kind_text(verdict->kind));
    ng_json_string(json, "line", line);
    ng_json_string(json, "confidence", ng_confidence_name(verdict->confidence));
    ng_json_id(json, "group", verdict->group_id);
    ng_json_string(json, "group_name", verdict->group_name);
    ng_json_int(json, "nranks", verdict->group_nranks);
    ng_json_string(json, "op", operation ? ng_op_name(verdict->op) : NULL);
    put_count(writer, "seq", verdict->seq);
    put_duration(writer, "stalled", verdict->stalled_ns);
    put_moment(writer, "since", awaited_since_ns(&writer->timeline));
    ng_json_int(json, "detected_by", verdict->detected_by);
    ng_json_string(json, "action", verdict->action);
    ng_report_add_culprits(&writer->json, writer->timeline.verdict);
    ng_json_ints(json, "waiting", verdict->waiting, verdict->waiting_count);
    ng_report_add_cycle(json, verdict);
    ng_report_add_calls(json, verdict);
    ng_report_add_rehearsal(json, verdict);
    put_devices(json, verdict);
    ng_json_strings(json, "missing", verdict->missing_evidence, verdict->missing_evidence_count);
    ng_json_close_object(json);
    ng_json_open_array(json, "advice", NG_JSON_LINES);
    for (unsigned i = 0; ng_advice_step(verdict->kind, i); i++)
        ng_json_string(json, NULL, ng_advice_step(verdict->kind, i));
    ng_json_close_array(json);
}

/* ---- Groups and ranks ---- */

/* As text; null: the guard has registered nothing with it. */
static void put_registered(struct writer *writer, uint32_t group)
{
    struct ng_view_registration sum;
    char text[256] = "";
    struct ng_text words = {text, 0, sizeof(text)};

    ng_memory_sums_group(writer->timeline.view, group, &sum);
    if (sum.known)
        ng_memory_sums_add(&words, &sum);
    ng_json_string(&writer->json, NULL, sum.known ? text : NULL);
}

static void put_hosts_and_groups(struct writer *writer)
{
    const struct ng_clock_offsets *clocks = &writer->timeline.clocks;
    const struct ng_view *view = writer->timeline.view;
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "hosts", NG_JSON_LINES);
    NG_EACH (host, clocks->hosts, clocks->host_count) {
        ng_json_open_array(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, NULL, host->name);
        ng_json_uint(json, NULL, host->processes);
        ng_json_uint(json, NULL, host->samples);
        put_duration(writer, NULL, host->offset_ns);
        put_duration(writer, NULL, host->scatter_ns);
        ng_json_bool(json, NULL, host->applied);
        ng_json_close_array(json);
    }
    ng_json_close_array(json);
    ng_json_open_array(json, "groups", NG_JSON_LINES);
    for (uint32_t i = 0; i < view->group_count; i++) {
        const struct ng_view_group *group = &view->groups[i];
        ng_json_open_array(json, NULL, NG_JSON_COMPACT);
        ng_json_hex(json, NULL, group->id);
        ng_json_string(json, NULL, group->name);
        ng_json_int(json, NULL, group->nranks);
        ng_json_int(json, NULL, group->nccl_version);
        put_registered(writer, i);
        ng_json_close_array(json);
    }
    ng_json_close_array(json);
}

static void put_spans(struct writer *writer, const struct ng_view_member *member)
{
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, NULL, NG_JSON_COMPACT);
    for (uint32_t i = ng_timeline_first(&writer->timeline, member); i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        struct ng_span span = ng_timeline_span(&writer->timeline, member, record);
        if (!ng_timeline_knows(record))
            continue;
        bool failed = record->state == NG_RECORD_FAILED;
        ng_json_int(json, NULL, find_signature(writer, &record->signature));
        put_count(writer, NULL, ng_view_record_is_p2p(record) ? record->p2p_seq : record->coll_seq);
        ng_json_int(json, NULL, failed ? -1 : span.bounds ? BOUNDS : (int)span.state);
        put_moment(writer, NULL, span.entered_ns);
        put_duration(writer, NULL, span.start_ns - span.entered_ns);
        put_duration(writer, NULL, span.end_ns - span.start_ns);
    }
    ng_json_close_array(json);
}

static void put_member(struct writer *writer, const struct ng_view_member *member)
{
    struct ng_json *json = &writer->json;
    bool pending = member->pending_record != 0;

    ng_json_open_array(json, NULL, NG_JSON_COMPACT);
    ng_json_uint(json, NULL, member->group);
    ng_json_int(json, NULL, member->group_rank);
    ng_json_int(json, NULL, member->device);
    ng_json_string(json, NULL, ng_dump_group_state_name(member->state));
    put_count(writer, NULL, member->entered);
    put_count(writer, NULL, member->scheduled);
    put_count(writer, NULL, member->started);
    put_count(writer, NULL, member->completed);
    put_count(writer, NULL, member->p2p_entered);
    put_count(writer, NULL, member->p2p_completed);
    ng_json_string(json, NULL, member->async_error ? ng_result_name(member->async_error) : NULL);
    ng_json_int(json, NULL, find_signature(writer, &member->last));
    put_count(writer, NULL, pending ? member->pending_seq : 0);
    put_duration(writer, NULL, pending ? member->pending_age_ns : -NG_US);
    ng_json_bool(json, NULL, member->pending_started);
    put_spans(writer, member);
    ng_json_close_array(json);
}

/* Of the groups of a process, the one in which a call was made; -1 none. */
static int group_of_call(const struct ng_view *view, const struct ng_view_call *call)
{
    const struct ng_view_process *process = &view->processes[call->process];

    for (uint32_t i = 0; call->group_id && i < process->member_count; i++) {
        uint32_t group = view->members[view->by_process[process->first_member + i]].group;
        if (view->groups[group].id == call->group_id)
            return (int)group;
    }
    return -1;
}

static void put_calls(struct writer *writer, uint32_t process)
{
    const struct ng_view *view = writer->timeline.view;
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "calls", NG_JSON_COMPACT);
    NG_EACH (call, view->calls, view->call_count) {
        if (call->process != process)
            continue;
        ng_json_open_array(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, NULL, ng_op_name(call->op));
        ng_json_int(json, NULL, group_of_call(view, call));
        ng_json_int(json, NULL, call->group_rank);
        put_count(writer, NULL, call->seq);
        put_duration(writer, NULL, call->age_ns);
        ng_json_uint(json, NULL, call->tid);
        ng_json_close_array(json);
    }
    ng_json_close_array(json);
}

static void put_process(struct writer *writer, uint32_t index)
{
    const struct ng_timeline *timeline = &writer->timeline;
    const struct ng_view_process *process = &timeline->view->processes[index];
    struct ng_json *json = &writer->json;

    ng_json_uint(json, "host", timeline->clocks.host_of[index]);
    ng_json_int(json, "pid", process->pid);
    ng_json_string(json, "program", process->program);
    ng_json_string(json, "life", ng_dump_life_name(process->life));
    put_duration(writer, "life_age", process->life_age_ns);
    if (process->life == NG_LIFE_EXITED)
        ng_json_int(json, "exit", process->exit_status);
    put_moment(writer, "moment", ng_timeline_at(timeline, index, 0));
    put_calls(writer, index);
}

static void put_rank(struct writer *writer, const struct ng_timeline_rank *rank)
{
    const struct ng_timeline *timeline = &writer->timeline;
    struct ng_json *json = &writer->json;

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_int(json, "rank", rank->rank);
    if (rank->culprit)
        ng_json_int(json, "culprit", rank->culprit - timeline->verdict->culprits);
    if (rank->waits)
        ng_json_bool(json, "waits", true);
    if (rank->process != NG_TIMELINE_NOBODY)
        put_process(writer, rank->process);
    ng_json_open_array(json, "members", NG_JSON_COMPACT);
    for (uint32_t i = 0; i < rank->count; i++)
        put_member(writer, &timeline->view->members[timeline->members[rank->first + i]]);
    ng_json_close_array(json);
    ng_json_close_object(json);
}

static void put_signatures(struct writer *writer)
{
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "signatures", NG_JSON_LINES);
    NG_EACH (signature, writer->signatures, writer->signature_count) {
        ng_json_open_array(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, NULL, ng_op_name(signature->op));
        put_count(writer, NULL, signature->count);
        ng_json_string(json, NULL, signature->dtype < 0 ? NULL : ng_dtype_name(signature->dtype));
        ng_json_string(json, NULL, signature->redop < 0 ? NULL : ng_redop_name(signature->redop));
        ng_json_int(json, NULL, signature->root);
        ng_json_close_array(json);
    }
    ng_json_close_array(json);
}

static void put_stacks(struct writer *writer, const struct ng_stack_groups *stacks)
{
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "stacks", NG_JSON_LINES);
    NG_EACH (stack, stacks->stacks, stacks->count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "title", stack->title);
        ng_json_string(json, "text", stack->text);
        ng_json_uint(json, "threads", stack->threads);
        ng_json_ints(json, "ranks", stack->ranks, stack->rank_count);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_json_open_array(json, "look_at", NG_JSON_LINES);
    for (uint32_t i = 0; i < stacks->summary_count; i++) {
        ng_json_open_array(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, NULL, stacks->summaries[i].rank);
        ng_json_string(json, NULL, stacks->summaries[i].text);
        ng_json_close_array(json);
    }
    ng_json_close_array(json);
}

static void put_mismatches(struct writer *writer, const struct ng_mismatches *mismatches)
{
    struct ng_json *json = &writer->json;

    ng_json_open_array(json, "mismatches", NG_JSON_LINES);
    for (uint32_t i = 0; mismatches && i < mismatches->count; i++) {
        const struct ng_mismatch_report *report = &mismatches->reports[i];
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_uint(json, "group", report->group);
        ng_json_string(json, "op", ng_op_name(report->op));
        put_count(writer, "seq", report->seq);
        put_count(writer, "last_seq", report->last_seq);
        put_count(writer, "count", report->count);
        ng_json_string(json, "confidence", ng_confidence_name(report->confidence));
        ng_json_open_array(json, "culprits", NG_JSON_COMPACT);
        for (uint32_t k = 0; k < report->culprit_count; k++) {
            ng_json_open_array(json, NULL, NG_JSON_COMPACT);
            ng_json_int(json, NULL, report->culprits[k].rank);
            ng_json_string(json, NULL, report->culprits[k].why);
            ng_json_close_array(json);
        }
        ng_json_close_array(json);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    put_count(writer, "mismatches_left_out", mismatches ? mismatches->left_out : 0);
}

static void put_stragglers(struct writer *writer)
{
    const struct ng_view *view = writer->timeline.view;
    struct ng_json *json = &writer->json;
    struct ng_arena arena = {0};
    struct ng_stragglers found;

    ng_stragglers_find(view, &arena, &found);
    ng_json_open_array(json, "stragglers", NG_JSON_LINES);
    NG_EACH (straggler, found.stragglers, found.count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_uint(json, "group", straggler->group);
        ng_json_int(json, "rank", ng_view_rank(view, straggler->member));
        ng_json_uint(json, "last", straggler->last);
        ng_json_uint(json, "samples", straggler->samples);
        put_duration(writer, "wait", straggler->wait_ns);
        put_duration(writer, "duration", straggler->duration_ns);
        put_duration(writer, "total", straggler->total_wait_ns);
        ng_json_string(json, "confidence", ng_confidence_name(straggler->confidence));
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_arena_reset(&arena);
}

static int put_timings(struct writer *writer)
{
    const struct ng_view *view = writer->timeline.view;
    struct ng_json *json = &writer->json;
    struct ng_timings timings;

    int error = ng_timings_find(view, &timings);
    if (error)
        return error;
    ng_json_open_array(json, "durations", NG_JSON_LINES);
    for (uint32_t i = 0; i < timings.count && i < TIMINGS_MAX; i++) {
        const struct ng_timing *timing = &timings.list[i];
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_uint(json, "group", timing->group);
        ng_json_string(json, "op", ng_op_name(timing->op));
        put_count(writer, "size", ng_timing_size_bytes(timing));
        put_count(writer, "count", timing->count);
        put_time(writer, "mean", ng_timing_mean_ns(timing));
        put_time(writer, "p50", ng_timing_within_ns(timing, 50));
        put_time(writer, "p99", ng_timing_within_ns(timing, 99));
        put_time(writer, "max", timing->max_ns);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_timings_fini(&timings);
    return 0;
}

static int put_document(struct writer *writer, const struct ng_page *page)
{
    const struct ng_timeline *timeline = &writer->timeline;
    struct ng_json *json = &writer->json;

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_string(json, "schema", "ncclguard.page/1");
    ng_json_string(json, "version", NG_VERSION);
    ng_json_string(json, "job", timeline->view->job);
    ng_json_int(json, "end_unix_ms", timeline->end_ns / NG_MS);
    put_moment(writer, "length", timeline->end_ns);
    put_count(writer, "left_out", timeline->records_left_out);
    put_verdict(writer);
    ng_json_strings(json, "notes", timeline->view->notes, timeline->view->note_count);
    put_hosts_and_groups(writer);
    ng_json_open_array(json, "ranks", NG_JSON_LINES);
    for (uint32_t i = 0; i < timeline->rank_count; i++)
        put_rank(writer, &timeline->ranks[i]);
    ng_json_close_array(json);
    put_signatures(writer);
    put_mismatches(writer, page->mismatches);
    put_stragglers(writer);
    int error = put_timings(writer);
    put_stacks(writer, page->stacks);
    ng_json_close_object(json);
    return error;
}

/* ---- Output ---- */

/* In JSON these occur in strings only, where they may be escaped. */
static void put_without_markup(struct ng_output *output, const char *text, size_t length)
{
    size_t plain = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] != '<' && text[i] != '>' && text[i] != '&')
            continue;
        ng_output_bytes(output, text + plain, i - plain);
        ng_output_format(output, "\\u%04x", (unsigned)text[i]);
        plain = i + 1;
    }
    ng_output_bytes(output, text + plain, length - plain);
}

static int copy_without_markup(int from, struct ng_output *output)
{
    char buffer[16384];
    off_t at = 0;

    for (;;) {
        ssize_t got = pread(from, buffer, sizeof(buffer), at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : output->error;
        put_without_markup(output, buffer, (size_t)got);
        at += got;
    }
}

static int write_document(struct writer *writer, const struct ng_page *page, int fd)
{
    struct ng_output output;

    int document = memfd_create("page", MFD_CLOEXEC);
    if (document < 0)
        return -errno;
    ng_json_init(&writer->json, document);
    int error = put_document(writer, page);
    int written = ng_json_finish(&writer->json);
    error = error ?: written;
    ng_output_init(&output, fd);
    error = error ?: copy_without_markup(document, &output);
    error = error ?: ng_output_flush(&output);
    close(document);
    return error;
}

int ng_page_write_data(const struct ng_page *page, int fd)
{
    struct writer writer = {.signature_count = 0};

    writer.signatures = calloc(SIGNATURES_MAX, sizeof(*writer.signatures));
    writer.slots = calloc(SIGNATURE_SLOTS, sizeof(*writer.slots));
    int error =
        writer.signatures && writer.slots
            ? ng_timeline_make(page->view, page->verdict, NG_PAGE_SPANS_MAX, &writer.timeline)
            : -ENOMEM;
    if (!error) {
        error = write_document(&writer, page, fd);
        ng_timeline_fini(&writer.timeline);
    }
    free(writer.signatures);
    free(writer.slots);
    return error;
}

static int put_part(int fd, const struct ng_page_part *part)
{
    struct ng_output output;

    ng_output_init(&output, fd);
    ng_output_bytes(&output, part->bytes, part->count);
    return ng_output_flush(&output);
}

static int write_page(const void *context, int fd)
{
    int error = put_part(fd, &ng_page_before) ?: ng_page_write_data(context, fd);
    return error ?: put_part(fd, &ng_page_after);
}

int ng_page_write(const struct ng_page *page, const char *path)
{
    return ng_save_as(path, write_page, page);
}
