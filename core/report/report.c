/*
 * A verdict for programs, for people and for the log.
 *
 * Called by the watchdog of the rank that claimed the incident, and by the command. Must never
 * allocate, lock or block, nor let a name that the program chose reach a terminal unescaped.
 */
#include "core/report/report.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nccl/board.h"
#include "core/report/stacks_format.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/view/p2p_patterns.h"

#define FRAMES_TOLD     8 /* per call, in the text */
#define CALL_TEXT_BYTES 1536
#define STACKS_SKEW_NS  NG_S /* between the clocks of a host and of its file system */
#define STACKS_TOLD     4    /* culprits whose stacks are in the text; other stacks are beside it */

/* How the log line joins the culprits, one or several, to the operation: one row per kind. */
static const struct {
    const char *culprit;    /* "rank 2 (...) <this> AllReduce #7 of group ..." */
    const char *no_culprit; /* "AllReduce #7 of group ... <this>" */
    bool with_why;          /* the phrases above do not state the reason */
} phrases[NG_KIND_COUNT] = {
    [NG_KIND_MISSING_RANK] = {"never called", "lacks a rank", false},
    [NG_KIND_DEAD_RANK] = {"died without finishing", "lacks a rank that died", false},
    [NG_KIND_STOPPED_RANK] = {"froze without finishing", "lacks a rank that froze", false},
    [NG_KIND_LEFT_EARLY] = {"ended without finishing", "lacks a rank that ended", false},
    [NG_KIND_MISMATCH] = {"did not match the others in", "was called with different arguments",
                          true},
    [NG_KIND_ORDER_DEADLOCK] = {"came in another order to", "is in a cycle across groups", true},
    [NG_KIND_GPU_STALL] = {"called but does not finish",
                           "was called by all and does not finish on the device", true},
    [NG_KIND_INIT_MISSING_RANK] = {"never came to", "lacks a rank", false},
    [NG_KIND_INIT_MISMATCH] = {"disagrees with the others on", "is not called alike by all", true},
    [NG_KIND_STRAGGLER] = {"comes last, again and again, to", "has a rank that comes last", true},
    [NG_KIND_ASYNC_ERROR] = {"is behind an asynchronous error in", "got an asynchronous error",
                             true},
    [NG_KIND_CUDA_ERROR] = {"had a CUDA failure in", "has a rank with a CUDA failure", true},
    [NG_KIND_NAN] = {"had NaN to send in", "had NaN to send", true},
    [NG_KIND_ABORT_STUCK] = {"cannot end", "does not return", true},
    [NG_KIND_WATCHDOG_STUCK] = {"is no longer watched",
                                "is not watched: the watchdog of a rank is stuck", true},
    [NG_KIND_UNKNOWN] = {"may have held up", "is stuck; the evidence does not say why", true},
};

static bool has_operation(const struct ng_verdict *verdict)
{
    return verdict->op != NG_OP_NONE;
}

/* "; 1048576 float32": the known arguments. Placed after everything else, since people and programs
 * search for "AllReduce #7 of". */
static void add_arguments(struct ng_text *line, const struct ng_verdict *verdict)
{
    if (!verdict->count_known && !verdict->dtype)
        return;
    ng_text_add(line, "; ");
    if (verdict->count_known)
        ng_text_add(line, "%" PRIu64 " ", verdict->count);
    ng_text_add(line, "%s", verdict->dtype ? verdict->dtype : "elements");
}

/* "AllReduce #7", "Send", "all-to-all (send/recv)", "a collective"… followed by the group. */
static void add_operation(struct ng_text *line, const struct ng_verdict *verdict)
{
    if (verdict->pattern) {
        ng_text_add(line, "%s (send/recv)", ng_p2p_pattern_words(verdict->pattern));
        return;
    }
    ng_text_add(line, "%s", has_operation(verdict) ? ng_op_name(verdict->op) : "work");
    if (verdict->seq)
        ng_text_add(line, " #%" PRIu64, verdict->seq);
    if (verdict->cold)
        ng_text_add(line, " (cold)");
    if (!verdict->graph)
        return;
    ng_text_add(line, " in replay %" PRIu64 " of graph %" PRIu64, verdict->replay, verdict->graph);
    if (verdict->graph_position)
        ng_text_add(line, " (call %" PRIu32 " of %" PRIu32 ")", verdict->graph_position,
                    verdict->graph_calls);
}

static void add_group(struct ng_text *line, const struct ng_verdict *verdict, bool with_id)
{
    if (verdict->group_name[0])
        ng_text_add(line, "group \"%.63s\"", verdict->group_name);
    else
        ng_text_add(line, "group %016" PRIx64, verdict->group_id);
    ng_text_add(line, " (");
    if (verdict->group_name[0] && with_id)
        ng_text_add(line, "id %016" PRIx64 ", ", verdict->group_id);
    if (verdict->group_nranks > 0)
        ng_text_add(line, "%d ranks)", verdict->group_nranks);
    else
        ng_text_add(line, "ranks not known)");
}

static int rank_of_culprit(const void *culprits, uint32_t index)
{
    return ((const struct ng_culprit *)culprits)[index].rank;
}

static void add_culprit(struct ng_text *line, const struct ng_culprit *culprit)
{
    if (culprit->rank >= 0)
        ng_text_add(line, "rank %d", culprit->rank);
    else if (culprit->group_rank >= 0)
        ng_text_add(line, "group rank %d", culprit->group_rank);
    else
        ng_text_add(line, "a rank not known");
    if (culprit->host[0] && culprit->pid)
        ng_text_add(line, " (host %.63s, pid %d)", culprit->host, culprit->pid);
    else if (culprit->host[0])
        ng_text_add(line, " (host %.63s)", culprit->host);
    else if (culprit->pid)
        ng_text_add(line, " (pid %d)", culprit->pid);
}

static void add_group_of_step(struct ng_text *line, const struct ng_verdict_step *step)
{
    if (step->group_name[0])
        ng_text_add(line, "group \"%.63s\" (id %016" PRIx64 ")", step->group_name, step->group_id);
    else
        ng_text_add(line, "group %016" PRIx64, step->group_id);
}

/* "rank 0 is in AllReduce #5 of group "a" (id 00000000000000aa), which needs rank 1" */
static void add_step(struct ng_text *line, const struct ng_verdict_step *step)
{
    ng_text_add(line, "rank %d is in %s", step->rank, ng_op_name(step->op));
    if (step->seq)
        ng_text_add(line, " #%" PRIu64, step->seq);
    ng_text_add(line, " of ");
    add_group_of_step(line, step);
    ng_text_add(
        line, step->queued ? ", which is queued on the device of rank %d" : ", which needs rank %d",
        step->waits_for_rank);
}

/* How the culprits that are gone ended. */
static const char *end_phrase(const struct ng_verdict *verdict)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; i < verdict->culprit_count; i++)
        lost += verdict->culprits[i].life == NG_LIFE_LOST;
    if (!has_operation(verdict))
        return "died"; /* whoever waited */
    return lost == 0                        ? phrases[NG_KIND_DEAD_RANK].culprit
           : lost == verdict->culprit_count ? "went silent without finishing"
                                            : "died or went silent without finishing";
}

static void add_operation_in_group(struct ng_text *line, const struct ng_verdict *verdict)
{
    add_operation(line, verdict);
    if (verdict->group_id) {
        ng_text_add(line, " of ");
        add_group(line, verdict, false);
    }
}

/* The action in "rank=1,op=AllReduce:hang": "hang". */
static const char *fault_name(const char *fault)
{
    const char *colon = strrchr(fault, ':');

    return colon ? colon + 1 : fault;
}

/* "; rehearsal: hang of rank 1 injected by NCCLGUARD_FAULT" */
static void add_rehearsal(struct ng_text *line, const struct ng_verdict *verdict)
{
    const struct ng_verdict_rehearsal *first = verdict->rehearsal;

    if (!verdict->rehearsal_count)
        return;
    ng_text_add(line, "; rehearsal: %.40s of rank %d", fault_name(first->fault), first->rank);
    if (verdict->rehearsal_count > 1)
        ng_text_add(line, " and %" PRIu32 " more", verdict->rehearsal_count - 1);
    ng_text_add(line, " injected by NCCLGUARD_FAULT");
}

/* "; device of rank 1: Xid 79 (the device has fallen off the bus), and 1 more" */
static void add_device_errors(struct ng_text *line, const struct ng_verdict *verdict)
{
    if (!verdict->device_error_count)
        return;
    ng_text_add(line, "; device of rank %d: ", verdict->device_errors[0].rank);
    ng_device_error_tell(line, &verdict->device_errors[0].error);
    if (verdict->device_error_count > 1)
        ng_text_add(line, ", and %" PRIu32 " more", verdict->device_error_count - 1);
}

/* "; waiting: 0,1,3 for 5.0 s; 1024 float32; deadline: 10 min 0 s; certain" */
static void add_tail(struct ng_text *line, const struct ng_verdict *verdict)
{
    if (verdict->waiting_count) {
        ng_text_add(line, "; waiting: ");
        ng_text_add_ranks(line, NULL, verdict->waiting, verdict->waiting_count, 64);
        ng_text_add(line, " for ");
        ng_text_add_duration(line, verdict->stalled_ns);
    } else if (verdict->kind == NG_KIND_MISMATCH && !verdict->stalled_ns) {
        ng_text_add(line, "; nothing is stuck");
    } else if (verdict->kind != NG_KIND_HEALTHY) {
        ng_text_add(line, "; for ");
        ng_text_add_duration(line, verdict->stalled_ns);
    }
    add_arguments(line, verdict);
    if (verdict->deadline_ns && verdict->stalled_ns) {
        ng_text_add(line, "; deadline: ");
        ng_text_add_duration(line, verdict->deadline_ns);
    }
    add_device_errors(line, verdict);
    if (verdict->missing_evidence_count)
        ng_text_add(line, "; missing evidence: %" PRIu32, verdict->missing_evidence_count);
    ng_text_add(line, "; %s", ng_confidence_name(verdict->confidence));
    add_rehearsal(line, verdict);
}

static void add_body(struct ng_text *line, const struct ng_verdict *verdict)
{
    enum ng_verdict_kind kind = verdict->kind < NG_KIND_COUNT ? verdict->kind : NG_KIND_UNKNOWN;

    ng_text_add(line, "%s: ", ng_verdict_kind_name(verdict->kind));
    if (kind == NG_KIND_HEALTHY) {
        ng_text_add(line, "%s", ng_verdict_kind_text(kind));
        return;
    }
    if (verdict->culprit_count == 0) {
        add_operation_in_group(line, verdict);
        ng_text_add(line, " %s", phrases[kind].no_culprit);
        if (verdict->counted)
            ng_text_add(line, " (by NCCL's counters, all before it is finished)");
        return;
    }
    if (verdict->culprit_count == 1) {
        add_culprit(line, verdict->culprits);
    } else {
        ng_text_add(line, "ranks ");
        ng_text_add_ranks(line, rank_of_culprit, verdict->culprits, verdict->culprit_count, 64);
    }
    if (kind == NG_KIND_ORDER_DEADLOCK && verdict->culprit_count > 1) {
        ng_text_add(line, " wait for each other: rank %d %s", verdict->culprits[0].rank,
                    verdict->culprits[0].why);
        return;
    }
    const char *phrase = kind == NG_KIND_DEAD_RANK ? end_phrase(verdict) : phrases[kind].culprit;
    bool with_why = phrases[kind].with_why || phrase != phrases[kind].culprit;
    ng_text_add(line, " %s", phrase);
    bool without = kind == NG_KIND_DEAD_RANK && !has_operation(verdict);
    if (kind != NG_KIND_WATCHDOG_STUCK && !without) {
        ng_text_add(line, " ");
        add_operation_in_group(line, verdict);
    } else if (verdict->group_id) {
        ng_text_add(line, " in ");
        add_operation_in_group(line, verdict);
    }
    /* The reason gets the remaining room, if that is enough to be useful. */
    if (with_why && verdict->culprits[0].why[0] && line->bytes - line->used > 24)
        ng_text_add(line, " (%.*s)", (int)(line->bytes - line->used - sizeof(" ()")),
                    verdict->culprits[0].why);
}

void ng_report_line(const struct ng_verdict *verdict, char *ret_line, size_t bytes)
{
    char tail_text[352] = "";
    struct ng_text tail = {tail_text, 0, sizeof(tail_text)};
    struct ng_text line = {ret_line, 0,
                           bytes < NG_REPORT_LINE_BYTES ? bytes : NG_REPORT_LINE_BYTES};
    size_t whole = line.bytes;

    if (!bytes)
        return;
    ret_line[0] = '\0';
    add_tail(&tail, verdict);
    /* Duration and confidence are never truncated, unless the caller has no room at all. */
    if (tail.used < line.bytes)
        line.bytes -= tail.used;
    add_body(&line, verdict);
    line.bytes = whole;
    ng_text_add(&line, "%s", tail_text);
    /* Names come from the program, so escape them. */
    ng_text_clean(line.text, line.used, false);
}

/* The culprits as add_body writes them: after "rank " or "ranks "; NULL: there are none. */
static const char *culprits_of(const char *line)
{
    const char *at = strstr(line, ": ");

    if (!at)
        return NULL;
    at += strlen(": ");
    if (strncmp(at, "rank ", strlen("rank ")) == 0)
        return at + strlen("rank ");
    return strncmp(at, "ranks ", strlen("ranks ")) == 0 ? at + strlen("ranks ") : NULL;
}

void ng_report_line_culprits(const char *line, char *ret_text, size_t bytes)
{
    const char *at = culprits_of(line);

    snprintf(ret_text, bytes, "%.*s", at ? (int)strspn(at, "0123456789,-?.") : 0, at ? at : "");
}

bool ng_report_line_blames(const char *line, int rank)
{
    const char *at = culprits_of(line);
    char *end;

    if (!at || rank < 0)
        return false;
    at--;
    do {
        long first = strtol(++at, &end, 10), last = first;
        if (end == at)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (rank >= first && rank <= last)
            return true;
        at = end;
    } while (*at == ',');
    return false;
}

void ng_report_add_rehearsal(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_open_array(json, "rehearsal", NG_JSON_LINES);
    NG_EACH (injected, verdict->rehearsal, verdict->rehearsal_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", injected->rank);
        ng_json_string(json, "fault", injected->fault);
        ng_json_count(json, "times", injected->times);
        ng_json_string(json, "op", ng_op_name(injected->op));
        ng_json_hex(json, "group", injected->group_id);
        ng_json_count(json, "seq", injected->seq);
        ng_json_int(json, "age_ms", injected->age_ns / NG_MS);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

void ng_report_device_error(const struct ng_verdict_device_error *told, char *ret_text,
                            size_t bytes)
{
    struct ng_text line = {ret_text, 0, bytes};

    ng_text_add(&line, "rank %d, %s: ", told->rank, told->error.pci_id);
    ng_device_error_tell(&line, &told->error);
    ng_text_add(&line, "; noticed ");
    ng_text_add_duration(&line, told->error.age_ns);
    ng_text_add(&line, " ago");
}

void ng_report_add_device_errors(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_open_array(json, "device_errors", NG_JSON_LINES);
    NG_EACH (told, verdict->device_errors, verdict->device_error_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", told->rank);
        ng_json_int(json, "device", told->device);
        ng_json_string(json, "pci", told->error.pci_id);
        ng_json_string(json, "what", ng_device_error_name(told->error.kind));
        ng_json_uint(json, "number", told->error.number);
        ng_json_count(json, "count", told->error.count);
        ng_json_int(json, "ago_ms", told->error.age_ns / NG_MS);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

void ng_report_add_cycle(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_open_array(json, "cycle", NG_JSON_LINES);
    NG_EACH (step, verdict->cycle, verdict->cycle_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", step->rank);
        ng_json_int(json, "group_rank", step->group_rank);
        ng_json_hex(json, "group", step->group_id);
        ng_json_string(json, "group_name", step->group_name);
        ng_json_string(json, "op", ng_op_name(step->op));
        ng_json_uint(json, "seq", step->seq);
        ng_json_int(json, "waits_for_rank", step->waits_for_rank);
        ng_json_bool(json, "queued", step->queued);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static const char *without_folder(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

/* The frame's file is neither installed nor the interpreter's own. */
static bool is_of_program(const struct ng_view_frame *frame)
{
    static const char *const elsewhere[] = {"/site-packages/", "/dist-packages/", "/lib/python3"};

    if (!frame->is_python || !frame->module || frame->module->path[0] == '<')
        return false;
    return !NG_ANY(entry, elsewhere, NG_COUNT(elsewhere), strstr(frame->module->path, *entry));
}

/* Chooses the frames to show: Python frames, if there are any, from the program's own innermost one
 * on; otherwise all. */
static void choose_frames(const struct ng_verdict_call *call, uint32_t *ret_first,
                          uint32_t *ret_end)
{
    uint32_t count = 0, first = 0;

    while (count < call->count && call->frames[count].is_python)
        count++;
    while (first < count && !is_of_program(&call->frames[first]))
        first++;
    *ret_first = first < count ? first : 0;
    *ret_end = count ? count : call->count;
}

static void add_frame(struct ng_text *line, const struct ng_view_frame *frame)
{
    const char *file = frame->module ? without_folder(frame->module->path) : "?";

    if (frame->is_python && frame->line)
        ng_text_add(line, "%.80s (%.60s:%d)", frame->name ? frame->name : "?", file, frame->line);
    else if (frame->is_python)
        ng_text_add(line, "%.80s (%.60s)", frame->name ? frame->name : "?", file);
    else if (frame->name)
        ng_text_add(line, "%.80s", frame->name);
    else
        ng_text_add(line, "%.60s+%#" PRIx64, file, frame->offset);
    if (frame->source)
        ng_text_add(line, " (%.60s:%d)", without_folder(frame->source), frame->line);
}

/* "member_issue < member_call < main < libc.so.6+0x27249", "step (train.py:42) < <module>
 * (train.py:80)" */
static void add_frames(struct ng_text *line, const struct ng_verdict_call *call)
{
    uint32_t first, end;

    choose_frames(call, &first, &end);
    for (uint32_t i = first; i < end && i < first + FRAMES_TOLD; i++) {
        ng_text_add(line, i > first ? " < " : "");
        add_frame(line, &call->frames[i]);
    }
    if (end > first + FRAMES_TOLD)
        ng_text_add(line, " < ...");
}

void ng_report_add_calls(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_open_array(json, "calls", NG_JSON_LINES);
    NG_EACH (call, verdict->calls, verdict->call_count) {
        char text[CALL_TEXT_BYTES] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        add_frames(&line, call);
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", call->rank);
        ng_json_bool(json, "waits", call->waits);
        ng_json_hex(json, "group", call->group_id);
        ng_json_string(json, "op", call->op ? ng_op_name(call->op) : NULL);
        ng_json_count(json, "seq", call->seq);
        ng_json_open_array(json, "frames", NG_JSON_COMPACT);
        NG_EACH (frame, call->frames, call->count) {
            ng_json_open_object(json, NULL, NG_JSON_COMPACT);
            ng_json_string(json, "name", frame->name);
            ng_json_string(json, "file", frame->module ? frame->module->path : NULL);
            ng_json_count(json, "offset", frame->offset);
            if (frame->is_python || frame->source)
                ng_json_int(json, "line", frame->line);
            if (frame->source)
                ng_json_string(json, "source", frame->source);
            ng_json_close_object(json);
        }
        ng_json_close_array(json);
        ng_json_string(json, "from", text);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

void ng_report_add_culprits(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_open_array(json, "culprits", NG_JSON_LINES);
    NG_EACH (culprit, verdict->culprits, verdict->culprit_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", culprit->rank);
        ng_json_int(json, "group_rank", culprit->group_rank);
        ng_json_string(json, "host", culprit->host);
        ng_json_int(json, "pid", culprit->pid);
        ng_json_string(json, "why", culprit->why);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

void ng_report_add_json(struct ng_json *json, const struct ng_verdict *verdict)
{
    ng_json_string(json, "schema", NG_REPORT_SCHEMA);
    ng_json_string(json, "job", verdict->job);
    ng_json_int(json, "time_unix_ns", verdict->time_unix_ns);
    ng_json_string(json, "kind", ng_verdict_kind_name(verdict->kind));
    if (verdict->group_id) {
        ng_json_open_object(json, "group", NG_JSON_COMPACT);
        ng_json_hex(json, "id", verdict->group_id);
        ng_json_string(json, "name", verdict->group_name);
        ng_json_int(json, "nranks", verdict->group_nranks);
        ng_json_close_object(json);
    } else {
        ng_json_null(json, "group");
    }
    ng_json_uint(json, "seq", verdict->seq);
    ng_json_string(json, "op", has_operation(verdict) ? ng_op_name(verdict->op) : NULL);
    if (verdict->count_known)
        ng_json_count(json, "count", verdict->count);
    if (verdict->dtype)
        ng_json_string(json, "dtype", verdict->dtype);
    if (verdict->pattern)
        ng_json_string(json, "composed", ng_op_name(verdict->pattern));
    if (verdict->graph) {
        ng_json_open_object(json, "graph", NG_JSON_COMPACT);
        ng_json_uint(json, "number", verdict->graph);
        ng_json_uint(json, "replay", verdict->replay);
        ng_json_uint(json, "position", verdict->graph_position);
        ng_json_uint(json, "calls", verdict->graph_calls);
        ng_json_close_object(json);
    }
    ng_report_add_culprits(json, verdict);
    ng_json_ints(json, "waiting", verdict->waiting, verdict->waiting_count);
    ng_json_string(json, "confidence", ng_confidence_name(verdict->confidence));
    ng_json_strings(json, "missing_evidence", verdict->missing_evidence,
                    verdict->missing_evidence_count);
    ng_json_int(json, "detected_by", verdict->detected_by);
    ng_json_int(json, "stalled_ms", verdict->stalled_ns / NG_MS);
    if (verdict->deadline_ns)
        ng_json_int(json, "deadline_ms", verdict->deadline_ns / NG_MS);
    ng_json_string(json, "action", verdict->action ? verdict->action : "none");
    if (verdict->cycle_count)
        ng_report_add_cycle(json, verdict);
    if (verdict->rehearsal_count)
        ng_report_add_rehearsal(json, verdict);
    if (verdict->device_error_count)
        ng_report_add_device_errors(json, verdict);
    if (verdict->call_count)
        ng_report_add_calls(json, verdict);
}

int ng_report_write_json(const struct ng_verdict *verdict, int fd)
{
    struct ng_json json;

    ng_json_init(&json, fd);
    ng_json_open_object(&json, NULL, NG_JSON_LINES);
    ng_report_add_json(&json, verdict);
    ng_json_close_object(&json);
    return ng_json_finish(&json);
}

/* One row of the text: the first line has the row's name, the others are indented to match. */
static void put_row(struct ng_output *output, const char *name, const char *text)
{
    ng_output_format(output, "  %-12s", name);
    ng_output_safe(output, text);
    ng_output_bytes(output, "\n", 1);
}

static void put_who(struct ng_output *output, const struct ng_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->culprit_count; i++) {
        const struct ng_culprit *culprit = &verdict->culprits[i];
        char text[512] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        add_culprit(&line, culprit);
        if (culprit->rank >= 0 && culprit->group_rank >= 0 && culprit->group_rank != culprit->rank)
            ng_text_add(&line, ", rank %d of the group", culprit->group_rank);
        put_row(output, i ? "" : "who", text);
        if (culprit->why[0])
            put_row(output, "", culprit->why);
    }
    if (verdict->culprit_count == 0)
        put_row(output, "who", "no rank stands out");
}

/* The host stacks of the culprits, as far as they wrote them into the folder. At a deadline they do
 * so once it is judged; older ones are of an earlier incident. */
static void put_stacks(struct ng_output *output, const struct ng_verdict *verdict,
                       const char *folder)
{
    char summary[1000], name[64];
    unsigned told = 0;
    int64_t taken_unix_ns;

    for (uint32_t i = 0; i < verdict->culprit_count && told < STACKS_TOLD; i++) {
        const struct ng_culprit *culprit = &verdict->culprits[i];
        char text[96] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        if (ng_stacks_read_summary(folder, culprit->rank, culprit->pid, summary, sizeof(summary),
                                   &taken_unix_ns) != 0)
            continue;
        char *native = strstr(summary, "; native: "), *python = strstr(summary, "; Python: ");
        if (native)
            *native = '\0';
        if (python)
            *python = '\0';
        const char *title = told++ ? "" : "stacks";
        if (taken_unix_ns + STACKS_SKEW_NS < verdict->time_unix_ns) {
            ng_text_add(&line, "before this verdict, at ");
            ng_text_add_utc(&line, taken_unix_ns, false);
            put_row(output, title, text);
            title = "";
            line.used = 0;
        }
        put_row(output, title, summary);
        if (python)
            put_row(output, "", python + strlen("; "));
        if (native)
            put_row(output, "", native + strlen("; "));
        ng_stacks_file_name(culprit->rank, culprit->pid, name, sizeof(name));
        ng_text_add(&line, "all of it: %s", name);
        put_row(output, "", text);
    }
}

/* Where the culprits made their last calls, and where the others wait for them. */
static void put_calls(struct ng_output *output, const struct ng_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->call_count; i++) {
        const struct ng_verdict_call *call = &verdict->calls[i];
        char text[CALL_TEXT_BYTES] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        ng_text_add(&line, "rank %d %s ", call->rank, call->waits ? "waits in" : "last called");
        ng_text_add(&line, "%s", call->op ? ng_op_name(call->op) : "NCCL");
        if (call->seq)
            ng_text_add(&line, " #%" PRIu64, call->seq);
        ng_text_add(&line, call->waits ? ", called from " : " from ");
        add_frames(&line, call);
        put_row(output, i ? "" : "calls", text);
    }
}

static void put_cycle(struct ng_output *output, const struct ng_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->cycle_count; i++) {
        char text[512] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        add_step(&line, &verdict->cycle[i]);
        put_row(output, i ? "" : "cycle", text);
    }
}

static void put_device_errors(struct ng_output *output, const struct ng_verdict *verdict)
{
    char text[256];

    for (uint32_t i = 0; i < verdict->device_error_count; i++) {
        ng_report_device_error(&verdict->device_errors[i], text, sizeof(text));
        put_row(output, i || verdict->counted ? "" : "device", text);
    }
    if (verdict->device_errors_cut)
        put_row(output, "", "there may be more: see device_errors of each rank_R.json");
}

static void put_rehearsal(struct ng_output *output, const struct ng_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->rehearsal_count; i++) {
        const struct ng_verdict_rehearsal *injected = &verdict->rehearsal[i];
        char text[512] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        ng_text_add(&line, "rank %d: %s, injected by NCCLGUARD_FAULT at %s", injected->rank,
                    injected->fault, ng_op_name(injected->op));
        if (injected->seq)
            ng_text_add(&line, " #%" PRIu64, injected->seq);
        ng_text_add(&line, ", ");
        ng_text_add_duration(&line, injected->age_ns);
        ng_text_add(&line, " ago");
        if (injected->times > 1)
            ng_text_add(&line, " (%" PRIu64 " times so far)", injected->times);
        put_row(output, i ? "" : "rehearsal", text);
    }
}

static void put_what(struct ng_output *output, const struct ng_verdict *verdict)
{
    char text[512] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    put_row(output, "what", ng_verdict_kind_text(verdict->kind));
    if (!has_operation(verdict) && !verdict->group_id)
        return;
    add_operation(&line, verdict);
    if (verdict->group_id) {
        ng_text_add(&line, " of ");
        add_group(&line, verdict, true);
    }
    add_arguments(&line, verdict);
    put_row(output, "operation", text);
}

static void put_waiting(struct ng_output *output, const struct ng_verdict *verdict)
{
    char text[1024] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    ng_text_add_duration(&line, verdict->stalled_ns);
    if (verdict->deadline_ns && verdict->stalled_ns) {
        ng_text_add(&line, "; deadline: ");
        ng_text_add_duration(&line, verdict->deadline_ns);
    }
    /* A straggler is not stuck, only late each time by this much. */
    put_row(output, verdict->kind == NG_KIND_STRAGGLER ? "each time" : "stuck for", text);
    line = (struct ng_text){text, 0, sizeof(text)};
    text[0] = '\0';
    if (verdict->waiting_count)
        ng_text_add(&line, "%s ", verdict->waiting_count == 1 ? "rank" : "ranks");
    ng_text_add_ranks(&line, NULL, verdict->waiting, verdict->waiting_count, 800);
    if (verdict->waiting_count > 1)
        ng_text_add(&line, " (%" PRIu32 ")", verdict->waiting_count);
    put_row(output, "waiting", text);
    if (verdict->counted)
        put_row(output, "device", "by NCCL's counters, all before it is finished");
    put_device_errors(output, verdict);
    for (uint32_t i = 0; i < verdict->connection_count; i++)
        put_row(output, i ? "" : "connections", verdict->connections[i]);
}

int ng_report_write_text(const struct ng_verdict *verdict, const char *folder, int fd)
{
    struct ng_output output;
    char text[512] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    ng_output_init(&output, fd);
    ng_output_format(&output, "ncclguard verdict: %s", ng_verdict_kind_name(verdict->kind));
    ng_output_bytes(&output, "\n", 1);
    if (verdict->kind == NG_KIND_HEALTHY) {
        put_row(&output, "what", ng_verdict_kind_text(verdict->kind));
    } else {
        put_who(&output, verdict);
        if (folder)
            put_stacks(&output, verdict, folder);
        put_calls(&output, verdict);
        put_what(&output, verdict);
        put_cycle(&output, verdict);
        put_waiting(&output, verdict);
    }
    put_row(&output, "confidence", ng_confidence_name(verdict->confidence));
    put_rehearsal(&output, verdict);
    for (uint32_t i = 0; i < verdict->missing_evidence_count; i++)
        put_row(&output, i ? "" : "not known", verdict->missing_evidence[i]);
    if (verdict->job[0])
        put_row(&output, "job", verdict->job);
    if (verdict->time_unix_ns > 0) {
        ng_text_add_utc(&line, verdict->time_unix_ns, false);
        if (verdict->detected_by >= 0)
            ng_text_add(&line, ", noticed by rank %d", verdict->detected_by);
        put_row(&output, "when", text);
    }
    if (verdict->action && strcmp(verdict->action, "none") != 0)
        put_row(&output, "action", verdict->action);
    if (folder)
        put_row(&output, "evidence", folder);
    return ng_output_flush(&output);
}

struct text_of {
    const struct ng_verdict *verdict;
    const char *folder;
};

static int write_text(const void *context, int fd)
{
    const struct text_of *text = context;
    return ng_report_write_text(text->verdict, text->folder, fd);
}

static int write_json(const void *context, int fd)
{
    return ng_report_write_json(context, fd);
}

/* The text first: a program that finds verdict.json must also find the text beside it. */
int ng_report_save(const struct ng_verdict *verdict, const char *folder)
{
    struct text_of text = {verdict, folder};

    int text_error = ng_output_save(folder, "verdict.txt", write_text, &text);
    int json_error = ng_output_save(folder, "verdict.json", write_json, verdict);
    return text_error ? text_error : json_error;
}

struct document {
    const char *text;
    size_t bytes;
};

static int write_document(const void *context, int fd)
{
    const struct document *document = context;
    struct ng_output output;

    ng_output_init(&output, fd);
    ng_output_bytes(&output, document->text, document->bytes);
    return ng_output_flush(&output);
}

int ng_report_save_documents(const struct ng_documents *documents, const char *folder)
{
    struct document text = {documents->text, documents->text_bytes};
    struct document json = {documents->json, documents->json_bytes};

    return ng_output_save(folder, "verdict.txt", write_document, &text)
               ?: ng_output_save(folder, "verdict.json", write_document, &json);
}
