/*
 * The output of `ncclguard analyze`.
 *
 * For an engineer who was just woken: after the verdict, in a few lines, what the ranks were doing,
 * what else is wrong, and what to look at next. Must never print a name that a program chose
 * without escaping it for the terminal.
 */
#include "tools/render/analyze_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/report.h"
#include "core/util/clock.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/verdict/straggler.h"
#include "tools/base/owned.h"
#include "tools/ingest/memory_sums.h"
#include "tools/ingest/timings.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/findings.h"
#include "tools/render/group_list.h"

#define ROWS_MAX          8  /* rows of what ranks are doing */
#define REPORTS_MAX       20 /* mismatches printed in full; all of them are in the JSON */
#define STRAGGLERS_MAX    8
#define REGISTRATIONS_MAX 8 /* groups */
#define TIMINGS_MAX       8 /* all of them are in the JSON */
#define CULPRITS_MAX      4 /* ranks of a mismatch, with a sentence each */

/* What a rank is doing, most significant first. */
enum doing { DOING_CALL, DOING_WORK, DOING_NOTHING, DOING_GONE };

struct activity {
    enum doing doing;
    enum ng_life life; /* DOING_GONE */
    uint64_t group_id; /* 0 none */
    uint32_t group;    /* index in the view; meaningless without an id */
    uint64_t seq;
    enum ng_op op;
    bool started;
    bool p2p; /* it has sent or received */
    int rank;
    int64_t age_ns;
};

/* The oldest operation in flight of one process; else the last collective of its largest group. */
static void look_at_member(const struct ng_view *view, const struct ng_view_member *member,
                           struct activity *activity)
{
    bool pending = member->pending_record != 0;
    const struct ng_view_group *group = &view->groups[member->group];

    if (pending ? activity->doing == DOING_WORK && member->pending_age_ns <= activity->age_ns
                : activity->doing == DOING_WORK ||
                      (activity->group_id && view->groups[activity->group].nranks >= group->nranks))
        return;
    activity->doing = pending ? DOING_WORK : DOING_NOTHING;
    activity->group = member->group;
    activity->group_id = group->id;
    activity->seq = pending ? member->pending_seq : member->entered;
    activity->op = NG_OP_NONE;
    activity->started = pending && member->pending_started;
    activity->p2p = member->p2p_entered > 0;
    activity->age_ns = pending ? member->pending_age_ns : 0;
    struct ng_signature signature;
    if (activity->seq && ng_signature_at(member, activity->seq, &signature))
        activity->op = (enum ng_op)signature.op;
}

static void look_at_call(const struct ng_view *view, const struct ng_view_call *call,
                         struct activity *activity)
{
    if (ng_life_is_gone(view->processes[call->process].life) ||
        (activity->doing == DOING_CALL && call->age_ns <= activity->age_ns) ||
        (activity->doing == DOING_WORK && call->age_ns < activity->age_ns / 2))
        return;
    activity->doing = DOING_CALL;
    uint32_t group = call->group_id ? ng_view_find_group(view, call->group_id) : UINT32_MAX;
    activity->group_id = group == UINT32_MAX ? 0 : call->group_id;
    if (activity->group_id)
        activity->group = group;
    activity->seq = call->seq;
    activity->op = call->op;
    activity->started = false;
    activity->age_ns = call->age_ns;
}

/* By what they are doing: 0 it is the same. */
static int order_of(const struct activity *a, const struct activity *b)
{
    int order = NG_ORDER(a->doing, b->doing) ?: NG_ORDER(a->life, b->life);
    order = order ?: NG_ORDER(a->group_id, b->group_id) ?: NG_ORDER(a->seq, b->seq);
    order = order ?: NG_ORDER(a->op, b->op) ?: NG_ORDER(a->started, b->started);
    return order ?: NG_ORDER(a->p2p, b->p2p);
}

static int compare_activities(const void *left, const void *right)
{
    const struct activity *a = left, *b = right;

    return order_of(a, b) ?: NG_ORDER(a->rank, b->rank);
}

static void add_seconds(struct ng_text *text, int64_t ns)
{
    int64_t tenths = ns > 0 ? ns / (NG_S / 10) : 0;

    ng_text_add(text, "%" PRId64 ".%" PRId64 " s", tenths / 10, tenths % 10);
}

static void add_group(struct ng_text *text, const struct ng_view_group *group)
{
    if (group->name[0])
        ng_text_add(text, " of group \"%.63s\"", group->name);
    else
        ng_text_add(text, " of group %016" PRIx64, group->id);
}

/* "in AllReduce #20 of group "0:default_pg" on the device for up to 5.0 s" */
static void add_activity(struct ng_text *text, const struct ng_view *view,
                         const struct activity *activity, int64_t oldest_ns)
{
    static const char *const ends[] = {
        [NG_LIFE_EXITED] = "ended", [NG_LIFE_DEAD] = "died", [NG_LIFE_LOST] = "lost"};

    if (activity->doing == DOING_GONE) {
        ng_text_add(text, "%s", ends[activity->life]);
        return;
    }
    if (activity->doing == DOING_NOTHING) {
        ng_text_add(text, "nothing in flight");
        if (!activity->group_id)
            return;
        if (!activity->seq) {
            ng_text_add(text, activity->p2p ? ", only sends and receives so far"
                                            : ", no collective so far");
        } else {
            ng_text_add(text, ", last %s #%" PRIu64,
                        activity->op ? ng_op_name(activity->op) : "collective", activity->seq);
        }
        add_group(text, &view->groups[activity->group]);
        return;
    }
    ng_text_add(text, "%s %s", activity->doing == DOING_CALL ? "inside the call" : "in",
                activity->op    ? ng_op_name(activity->op)
                : activity->seq ? "a collective"
                                : "sends and receives");
    if (activity->seq)
        ng_text_add(text, " #%" PRIu64, activity->seq);
    if (activity->group_id)
        add_group(text, &view->groups[activity->group]);
    if (activity->doing == DOING_WORK)
        ng_text_add(text, "%s", activity->started ? ", on the device" : ", queued");
    ng_text_add(text, " for ");
    add_seconds(text, oldest_ns);
}

static void put_row(struct ng_output *output, const char *name, const char *text)
{
    ng_output_format(output, "  %-12s", name);
    ng_output_safe(output, text);
    ng_output_bytes(output, "\n", 1);
}

/* What ranks are doing, with equal ones in one row. */
static int put_activities(struct ng_output *output, const struct ng_view *view)
{
    uint32_t count = view->process_count, rows = 0;
    NG_FREED struct activity *activities = calloc((size_t)count + 1, sizeof(*activities));
    NG_FREED int *ranks = calloc((size_t)count + 1, sizeof(*ranks));

    if (!activities || !ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        activities[i].doing = DOING_NOTHING;
        activities[i].rank = view->processes[i].rank;
    }
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct activity *activity = &activities[view->members[i].process];
        look_at_member(view, &view->members[i], activity);
        if (activity->rank < 0)
            activity->rank = ng_view_rank(view, &view->members[i]);
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        look_at_call(view, &view->calls[i], &activities[view->calls[i].process]);
    for (uint32_t i = 0; i < count; i++)
        if (ng_life_is_gone(view->processes[i].life))
            activities[i] = (struct activity){
                .doing = DOING_GONE, .life = view->processes[i].life, .rank = activities[i].rank};
    qsort(activities, count, sizeof(*activities), compare_activities);
    for (uint32_t i = 0, end; i < count; i = end, rows++) {
        char text[512] = "", names[160];
        struct ng_text line = {text, 0, sizeof(text)};
        int64_t oldest_ns = 0;
        for (end = i; end < count && order_of(&activities[i], &activities[end]) == 0; end++) {
            ranks[end - i] = activities[end].rank;
            if (activities[end].age_ns > oldest_ns)
                oldest_ns = activities[end].age_ns;
        }
        if (rows == ROWS_MAX) {
            ng_text_add(&line,
                        "%" PRIu32 " more ranks in other places; --json and `ncclguard top` "
                        "have them all",
                        count - i);
            put_row(output, "", text);
            break;
        }
        ng_text_ranks(ranks, end - i, names, sizeof(names));
        ng_text_add(&line, "rank%s %s", end - i == 1 ? "" : "s", names);
        if (end - i > 1)
            ng_text_add(&line, " (%" PRIu32 ")", end - i);
        ng_text_add(&line, ": ");
        add_activity(&line, view, &activities[i], oldest_ns);
        put_row(output, rows ? "" : "doing", text);
    }
    return 0;
}

static void put_mismatch(struct ng_output *output, const struct ng_view *view,
                         const struct ng_mismatch_report *report, const char *name)
{
    const struct ng_view_group *group = &view->groups[report->group];
    char text[512] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    ng_text_add(&line, "mismatch in %s #%" PRIu64, ng_op_name(report->op), report->seq);
    add_group(&line, group);
    if (report->count > 1)
        ng_text_add(&line, ", and in %" PRIu64 " more up to #%" PRIu64, report->count - 1,
                    report->last_seq);
    put_row(output, name, text);
    for (uint32_t i = 0; i < report->culprit_count && i < CULPRITS_MAX; i++) {
        const struct ng_mismatch_culprit *culprit = &report->culprits[i];
        line = (struct ng_text){text, 0, sizeof(text)};
        bool known = culprit->rank >= 0;
        ng_text_add(&line, "  %srank %d: %s", known ? "" : "group ",
                    known ? culprit->rank : culprit->group_rank, culprit->why);
        put_row(output, "", text);
    }
    if (report->culprit_count > CULPRITS_MAX) {
        line = (struct ng_text){text, 0, sizeof(text)};
        ng_text_add(&line, "  and %" PRIu32 " ranks more", report->culprit_count - CULPRITS_MAX);
        put_row(output, "", text);
    }
}

static bool is_the_verdicts(const struct ng_view *view, const struct ng_verdict *verdict,
                            const struct ng_mismatch_report *report)
{
    return verdict->kind == NG_KIND_MISMATCH && verdict->seq == report->seq &&
           verdict->group_id == view->groups[report->group].id;
}

/* Mismatches other than the one that the verdict reports. */
static void put_mismatches(struct ng_output *output, const struct ng_view *view,
                           const struct ng_verdict *verdict, const struct ng_mismatches *mismatches)
{
    uint64_t told = 0, others = mismatches->left_out;

    for (uint32_t i = 0; i < mismatches->count; i++) {
        if (is_the_verdicts(view, verdict, &mismatches->reports[i]))
            continue;
        if (told < REPORTS_MAX)
            put_mismatch(output, view, &mismatches->reports[i], told ? "" : "also found");
        else
            others++;
        told++;
    }
    if (others) {
        char text[96] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        ng_text_add(&line, "and %" PRIu64 " mismatches more; --json lists them", others);
        put_row(output, "", text);
    }
}

/* Stragglers other than the one that the verdict reports. */
static void put_stragglers(struct ng_output *output, const struct ng_view *view,
                           const struct ng_verdict *verdict)
{
    struct ng_arena arena = {0};
    struct ng_stragglers found;
    uint32_t told = 0;

    ng_stragglers_find(view, &arena, &found);
    for (uint32_t i = 0; i < found.count && told < STRAGGLERS_MAX; i++) {
        const struct ng_straggler *straggler = &found.stragglers[i];
        const struct ng_view_group *group = &view->groups[straggler->group];
        char text[768] = "", why[512];
        struct ng_text line = {text, 0, sizeof(text)};
        if (verdict->kind == NG_KIND_STRAGGLER && verdict->group_id == group->id)
            continue;
        ng_straggler_why(straggler, why, sizeof(why));
        ng_text_add(&line, "rank %d", ng_view_rank(view, straggler->member));
        add_group(&line, group);
        ng_text_add(&line, " %s; %s", why, ng_confidence_name(straggler->confidence));
        put_row(output, told++ ? "" : "late", text);
    }
    ng_arena_reset(&arena);
}

/* "1.20 ms", three digits. No %f: the locale would choose the decimal point. */
static void add_time(struct ng_text *text, uint64_t ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"s", NG_S}, {"ms", NG_MS}, {"us", 1000}};
    unsigned unit = 0;

    while (unit < 2 && ns < units[unit].ns)
        unit++;
    uint64_t whole = ns / units[unit].ns, hundredths = ns % units[unit].ns / (units[unit].ns / 100);
    if (whole >= 100)
        ng_text_add(text, "%" PRIu64 " %s", whole, units[unit].name);
    else if (whole >= 10)
        ng_text_add(text, "%" PRIu64 ".%" PRIu64 " %s", whole, hundredths / 10, units[unit].name);
    else
        ng_text_add(text, "%" PRIu64 ".%02" PRIu64 " %s", whole, hundredths, units[unit].name);
}

/* "4 KiB": a power of two. */
static void add_size(struct ng_text *text, uint32_t size_class)
{
    static const char *const units[] = {"byte", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    uint32_t unit = size_class / 10;

    /* At most 64, which readers of evidence check. */
    ng_text_add(text, "%" PRIu64 " %s%s", UINT64_C(1) << (size_class - 10 * unit), units[unit],
                !unit && size_class ? "s" : "");
}

static int compare_sums(const void *left, const void *right)
{
    const struct ng_timing *a = left, *b = right;

    return NG_ORDER(b->sum_ns, a->sum_ns);
}

/* "AllReduce of up to 4 KiB, group "dp": mean 1.20 ms, 99% within 2.05 ms, longest 5.10 ms (40
 * measured)"; those that took most of the time. */
static int put_timings(struct ng_output *output, const struct ng_view *view)
{
    struct ng_timings timings;

    int error = ng_timings_find(view, &timings);
    if (error)
        return error;
    qsort(timings.list, timings.count, sizeof(*timings.list), compare_sums);
    for (uint32_t i = 0; i < timings.count && i < TIMINGS_MAX; i++) {
        const struct ng_timing *timing = &timings.list[i];
        char text[512] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        ng_text_add(&line, "%s of up to ",
                    timing->op == NG_OP_GroupEnd ? "NCCL group" : ng_op_name(timing->op));
        add_size(&line, timing->size_class);
        add_group(&line, &view->groups[timing->group]);
        ng_text_add(&line, ": mean ");
        add_time(&line, ng_timing_mean_ns(timing));
        ng_text_add(&line, ", 99%% within ");
        add_time(&line, ng_timing_within_ns(timing, 99));
        ng_text_add(&line, ", longest ");
        add_time(&line, timing->max_ns);
        ng_text_add(&line, " (%" PRIu64 " measured)", timing->count);
        put_row(output, i ? "" : "took", text);
    }
    ng_timings_fini(&timings);
    return 0;
}

/* Groups with which the guard has registered buffers, or intended to. */
static void put_registrations(struct ng_output *output, const struct ng_view *view)
{
    struct ng_view_registration sum;
    unsigned told = 0;

    for (uint32_t group = 0; group < view->group_count && told < REGISTRATIONS_MAX; group++) {
        char text[512] = "";
        struct ng_text line = {text, 0, sizeof(text)};
        ng_memory_sums_group(view, group, &sum);
        if (!sum.known)
            continue;
        ng_text_add(&line, "buffers");
        add_group(&line, &view->groups[group]);
        ng_text_add(&line, ": ");
        ng_memory_sums_add(&line, &sum);
        put_row(output, told++ ? "" : "registered", text);
    }
}

int ng_analyze_write_text(const struct ng_view *view, const struct ng_verdict *verdict,
                          const struct ng_mismatches *mismatches, const char *folder, int fd)
{
    struct ng_output output;

    int error = ng_report_write_text(verdict, folder, fd);
    if (error)
        return error;
    ng_output_init(&output, fd);
    if (verdict->kind != NG_KIND_HEALTHY)
        error = put_activities(&output, view);
    put_mismatches(&output, view, verdict, mismatches);
    put_stragglers(&output, view, verdict);
    error = error ?: put_timings(&output, view);
    put_registrations(&output, view);
    const char *step;
    for (unsigned i = 0; (step = ng_advice_step(verdict->kind, i)) != NULL; i++)
        put_row(&output, i ? "" : "look at", step);
    int written = ng_output_flush(&output);
    return error ?: written;
}

static void write_group(struct ng_json *json, const struct ng_view_group *group)
{
    ng_json_open_object(json, "group", NG_JSON_COMPACT);
    ng_json_hex(json, "id", group->id);
    ng_json_string(json, "name", group->name);
    ng_json_int(json, "nranks", group->nranks);
    ng_json_close_object(json);
}

static void write_stragglers(struct ng_json *json, const struct ng_view *view)
{
    struct ng_arena arena = {0};
    struct ng_stragglers found;

    ng_stragglers_find(view, &arena, &found);
    ng_json_open_array(json, "stragglers", NG_JSON_LINES);
    NG_EACH (straggler, found.stragglers, found.count) {
        ng_json_open_object(json, NULL, NG_JSON_LINES);
        write_group(json, &view->groups[straggler->group]);
        ng_group_list_put_straggler(json, straggler, ng_view_rank(view, straggler->member));
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_arena_reset(&arena);
}

static int write_timings(struct ng_json *json, const struct ng_view *view)
{
    struct ng_timings timings;

    int error = ng_timings_find(view, &timings);
    if (error)
        return error;
    ng_json_open_array(json, "durations", NG_JSON_LINES);
    NG_EACH (timing, timings.list, timings.count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        write_group(json, &view->groups[timing->group]);
        ng_json_string(json, "op", ng_op_name(timing->op));
        ng_json_count(json, "size_bytes", ng_timing_size_bytes(timing));
        ng_json_uint(json, "processes", timing->processes);
        ng_json_count(json, "count", timing->count);
        ng_json_count(json, "mean_ns", ng_timing_mean_ns(timing));
        ng_json_count(json, "min_ns", timing->min_ns);
        ng_json_count(json, "max_ns", timing->max_ns);
        ng_json_count(json, "p50_ns", ng_timing_within_ns(timing, 50));
        ng_json_count(json, "p99_ns", ng_timing_within_ns(timing, 99));
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_timings_fini(&timings);
    return 0;
}

static void write_finding(struct ng_json *json, const struct ng_view *view,
                          const struct ng_mismatch_report *report)
{
    const struct ng_view_group *group = &view->groups[report->group];

    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_string(json, "kind", ng_verdict_kind_name(NG_KIND_MISMATCH));
    write_group(json, group);
    ng_json_uint(json, "seq", report->seq);
    ng_json_uint(json, "last_seq", report->last_seq);
    ng_json_uint(json, "count", report->count);
    ng_json_string(json, "op", ng_op_name(report->op));
    ng_json_string(json, "confidence", ng_confidence_name(report->confidence));
    ng_json_open_array(json, "culprits", NG_JSON_LINES);
    for (uint32_t i = 0; i < report->culprit_count; i++) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_int(json, "rank", report->culprits[i].rank);
        ng_json_int(json, "group_rank", report->culprits[i].group_rank);
        ng_json_string(json, "why", report->culprits[i].why);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
    ng_json_close_object(json);
}

static void write_registrations(struct ng_json *json, const struct ng_view *view)
{
    struct ng_view_registration sum;

    ng_json_open_array(json, "registrations", NG_JSON_LINES);
    for (uint32_t group = 0; group < view->group_count; group++) {
        ng_memory_sums_group(view, group, &sum);
        if (!sum.known)
            continue;
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        write_group(json, &view->groups[group]);
        ng_json_count(json, "segments", sum.segments);
        ng_json_count(json, "segment_bytes", sum.segment_bytes);
        ng_json_count(json, "bytes", sum.bytes);
        ng_json_count(json, "registered_bytes", sum.registered_bytes);
        ng_json_count(json, "failed", sum.failed);
        ng_json_count(json, "spent_ns", sum.spent_ns);
        ng_json_bool(json, "closed", sum.closed);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

int ng_analyze_write_json(const struct ng_view *view, const struct ng_verdict *verdict,
                          const struct ng_mismatches *mismatches, int fd)
{
    struct ng_json json;

    ng_json_init(&json, fd);
    ng_json_open_object(&json, NULL, NG_JSON_LINES);
    ng_report_add_json(&json, verdict);
    ng_json_open_array(&json, "findings", NG_JSON_LINES);
    for (uint32_t i = 0; i < mismatches->count; i++)
        write_finding(&json, view, &mismatches->reports[i]);
    ng_json_close_array(&json);
    ng_json_uint(&json, "findings_left_out", mismatches->left_out);
    write_stragglers(&json, view);
    int error = write_timings(&json, view);
    write_registrations(&json, view);
    ng_json_close_object(&json);
    int written = ng_json_finish(&json);
    return error ?: written;
}
