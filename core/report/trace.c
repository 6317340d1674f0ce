/*
 * trace.json: the job as a timeline that Perfetto and chrome://tracing open.
 *
 * Called by the guard's threads at an incident and by the command. Must never call malloc or lock;
 * must be able to draw a view built from a damaged black box, whatever numbers it holds.
 *
 * Slices of one track must nest, or viewers drop them. Operations of a stream run one after the
 * other on the device, but both ends are observed by polling and may overlap slightly, so a slice
 * never begins before the end of the previous one. Sends and receives of one NCCL group are one
 * operation with one beginning and one end, so their slices nest.
 */
#include "core/report/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/report/timeline.h"
#include "core/util/json.h"
#include "core/util/macros.h"

#define THREADS_MAX 16u   /* per rank with a track of their own; the others share one */
#define STREAMS_MAX 8u    /* per group of a rank, likewise */
#define NEST_MAX    64u   /* depth of nested slices; viewers support a few hundred */
#define ARROWS_MAX  4096u /* in total */

/* The target of an arrow to a rank: the slice in which it waits. */
struct wait {
    uint32_t track; /* 0: nothing is in flight on the rank */
    int64_t start_ns, end_ns;
    unsigned fit; /* how well it matches the verdict */
};

struct tracing {
    struct ng_json json;
    struct ng_timeline timeline;
    uint32_t last_track;
    uint32_t last_arrow;
    struct wait *waits;       /* per rank of the timeline */
    uint32_t *verdict_tracks; /* per rank; 0 none */
};

/* One track while it is filled. */
struct track {
    uint32_t rank, number;
    int64_t floor_ns; /* end of the previous slice */
    int64_t outer_ns; /* begin and end of the nested slices */
    int64_t outer_end_ns;
    unsigned depth; /* number of nested slices */
};

/* ---- Events ---- */

static void put_ts(struct tracing *tracing, const char *key, int64_t at_ns)
{
    ng_json_us(&tracing->json, key, at_ns - tracing->timeline.begin_ns);
}

/* Opens an event and leaves it open for the fields that the phase needs. */
static void open_event(struct tracing *tracing, const char *phase, uint32_t rank, uint32_t track,
                       const char *name)
{
    struct ng_json *json = &tracing->json;

    ng_json_open_object(json, NULL, NG_JSON_COMPACT);
    ng_json_string(json, "ph", phase);
    ng_json_uint(json, "pid", (uint64_t)rank + 1);
    ng_json_uint(json, "tid", track);
    ng_json_string(json, "name", name);
}

static void open_arguments(struct tracing *tracing)
{
    ng_json_open_object(&tracing->json, "args", NG_JSON_COMPACT);
}

static void close_arguments_and_event(struct tracing *tracing)
{
    ng_json_close_object(&tracing->json);
    ng_json_close_object(&tracing->json);
}

static void put_label(struct tracing *tracing, uint32_t rank, uint32_t track, const char *name,
                      const char *key, const char *text)
{
    open_event(tracing, "M", rank, track, name);
    open_arguments(tracing);
    ng_json_string(&tracing->json, key, text);
    close_arguments_and_event(tracing);
}

static void put_order(struct tracing *tracing, uint32_t rank, uint32_t track, const char *name,
                      int64_t order)
{
    open_event(tracing, "M", rank, track, name);
    open_arguments(tracing);
    ng_json_int(&tracing->json, "sort_index", order);
    close_arguments_and_event(tracing);
}

/* A track's number differs from that of any other track or rank, since some viewers require it. */
static struct track new_track(struct tracing *tracing, uint32_t rank, const char *name)
{
    struct track track = {.rank = rank, .number = ++tracing->last_track, .floor_ns = INT64_MIN};

    put_label(tracing, rank, track.number, "thread_name", "name", name);
    put_order(tracing, rank, track.number, "thread_sort_index", track.number);
    return track;
}

static void open_slice(struct tracing *tracing, const struct track *track, const char *name,
                       const char *category, int64_t start_ns, int64_t end_ns)
{
    open_event(tracing, "X", track->rank, track->number, name);
    ng_json_string(&tracing->json, "cat", category);
    put_ts(tracing, "ts", start_ns);
    ng_json_us(&tracing->json, "dur", end_ns - start_ns);
}

static void open_instant(struct tracing *tracing, const struct track *track, const char *name,
                         const char *category, int64_t at_ns)
{
    open_event(tracing, "i", track->rank, track->number, name);
    ng_json_string(&tracing->json, "cat", category);
    ng_json_string(&tracing->json, "s", "t");
    put_ts(tracing, "ts", at_ns);
}

/* ---- Names of operations ---- */

static const char *const state_texts[] = {
    [NG_SPAN_POINT] = "",
    [NG_SPAN_DONE] = "",
    [NG_SPAN_CALLED] = " (in the call)",
    [NG_SPAN_QUEUED] = " (queued)",
    [NG_SPAN_DEVICE] = " (on the device)",
};

static void name_operation(uint32_t op, uint64_t seq, enum ng_span_state state, char *ret_name,
                           size_t bytes)
{
    if (seq)
        snprintf(ret_name, bytes, "%s #%" PRIu64 "%s", ng_op_name(op), seq, state_texts[state]);
    else
        snprintf(ret_name, bytes, "%s%s", ng_op_name(op), state_texts[state]);
}

static void name_record(const struct ng_view_record *record, enum ng_span_state state,
                        char *ret_name, size_t bytes)
{
    if (ng_view_record_is_p2p(record) && record->signature.root >= 0)
        snprintf(ret_name, bytes, "%s %s %d%s", ng_op_name(record->signature.op),
                 record->signature.op == NG_OP_Send ? "to" : "from", record->signature.root,
                 state_texts[state]);
    else
        name_operation(record->signature.op, ng_view_record_is_p2p(record) ? 0 : record->coll_seq,
                       state, ret_name, bytes);
}

static void put_record_arguments(struct tracing *tracing, const struct ng_view_member *member,
                                 const struct ng_view_record *record, const struct ng_span *span)
{
    struct ng_json *json = &tracing->json;
    const struct ng_view_group *group = &tracing->timeline.view->groups[member->group];
    bool p2p = ng_view_record_is_p2p(record);

    ng_json_count(json, p2p ? "p2p_seq" : "seq", p2p ? record->p2p_seq : record->coll_seq);
    ng_json_string(json, "op", ng_op_name(record->signature.op));
    ng_json_count(json, "count", record->signature.count);
    if (record->signature.dtype >= 0)
        ng_json_string(json, "dtype", ng_dtype_name(record->signature.dtype));
    if (record->signature.redop >= 0)
        ng_json_string(json, "redop", ng_redop_name(record->signature.redop));
    if (record->signature.root >= 0)
        ng_json_int(json, p2p ? "peer" : "root", record->signature.root);
    if (group->name[0])
        ng_json_string(json, "group", group->name);
    ng_json_hex(json, "group_id", group->id);
    ng_json_string(json, "state", ng_dump_record_state_name(record->state));
    ng_json_count(json, "record", record->id);
    put_ts(tracing, "entered_us", span->entered_ns);
    if (span->bounds)
        ng_json_bool(json, "bounds", true);
    if (record->duration_ns)
        ng_json_us(json, "duration_us", record->duration_ns);
    if (record->result)
        ng_json_string(json, "result", ng_result_name(record->result));
}

/* ---- Waits, for the arrows ---- */

static void offer_wait(struct tracing *tracing, const struct track *track, uint64_t group_id,
                       uint64_t seq, int64_t start_ns, int64_t end_ns)
{
    const struct ng_verdict *verdict = tracing->timeline.verdict;
    struct wait *wait = &tracing->waits[track->rank];
    unsigned fit = 1;

    if (verdict && verdict->group_id && verdict->group_id == group_id)
        fit = verdict->seq == seq ? 3 : 2;
    if (fit > wait->fit)
        *wait = (struct wait){track->number, start_ns, end_ns, fit};
}

/* ---- Groups and streams ---- */

static bool is_in_flight(enum ng_span_state state)
{
    return state == NG_SPAN_CALLED || state == NG_SPAN_QUEUED || state == NG_SPAN_DEVICE;
}

/* Finds a position for the slice so that all nest. False: there is none; an instant is enough. */
static bool place_slice(struct track *track, const struct ng_span *span, int64_t *ret_start_ns,
                        int64_t *ret_end_ns)
{
    bool same_end = track->depth && span->end_ns == track->outer_end_ns;

    if (same_end && (span->state == NG_SPAN_QUEUED ? span->start_ns == track->outer_ns
                                                   : span->start_ns >= track->outer_ns)) {
        if (track->depth >= NEST_MAX)
            return false;
        track->depth++;
        track->outer_ns = span->start_ns;
    } else {
        /* Queued behind the operation in flight. */
        if (is_in_flight(span->state) && track->floor_ns >= span->end_ns)
            return false;
        track->outer_ns = span->start_ns > track->floor_ns ? span->start_ns : track->floor_ns;
        track->outer_end_ns = span->end_ns > track->outer_ns ? span->end_ns : track->outer_ns;
        track->depth = 1;
        track->floor_ns = track->outer_end_ns;
    }
    *ret_start_ns = track->outer_ns;
    *ret_end_ns = track->outer_end_ns;
    return true;
}

static void put_record(struct tracing *tracing, struct track *track,
                       const struct ng_view_member *member, const struct ng_view_record *record)
{
    struct ng_span span = ng_timeline_span(&tracing->timeline, member, record);
    const char *category = ng_view_record_is_p2p(record) ? "p2p" : "collective";
    int64_t start_ns, end_ns;
    char name[128];

    name_record(record, span.state, name, sizeof(name));
    if (span.state != NG_SPAN_POINT && place_slice(track, &span, &start_ns, &end_ns)) {
        open_slice(tracing, track, name, category, start_ns, end_ns);
        if (is_in_flight(span.state))
            offer_wait(tracing, track, tracing->timeline.view->groups[member->group].id,
                       record->coll_seq, start_ns, end_ns);
    } else {
        open_instant(tracing, track, name, category, span.entered_ns);
    }
    open_arguments(tracing);
    put_record_arguments(tracing, member, record, &span);
    close_arguments_and_event(tracing);
}

/* Draws an operation in flight without a record: there are no records, or its record was
 * overwritten. */
static void put_pending(struct tracing *tracing, struct track *track,
                        const struct ng_view_member *member)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    const struct ng_view_group *group = &timeline->view->groups[member->group];
    struct ng_span span = {.state = member->pending_started ? NG_SPAN_DEVICE : NG_SPAN_QUEUED};
    uint32_t op = member->pending_seq == member->entered ? member->last.op : NG_OP_NONE;
    int64_t start_ns, end_ns;
    char name[128];

    span.start_ns = ng_timeline_at(timeline, member->process, member->pending_age_ns);
    span.end_ns = ng_timeline_at(timeline, member->process, 0);
    if (!place_slice(track, &span, &start_ns, &end_ns))
        return;
    if (op)
        name_operation(op, member->pending_seq, span.state, name, sizeof(name));
    else
        snprintf(name, sizeof(name), "pending #%" PRIu64 "%s", member->pending_seq,
                 state_texts[span.state]);
    open_slice(tracing, track, name, "collective", start_ns, end_ns);
    open_arguments(tracing);
    ng_json_count(&tracing->json, "seq", member->pending_seq);
    if (group->name[0])
        ng_json_string(&tracing->json, "group", group->name);
    ng_json_hex(&tracing->json, "group_id", group->id);
    close_arguments_and_event(tracing);
    offer_wait(tracing, track, group->id, member->pending_seq, start_ns, end_ns);
}

/* The first few different values of a field; all others count as one more. */
struct few {
    uint64_t values[THREADS_MAX > STREAMS_MAX ? THREADS_MAX : STREAMS_MAX];
    uint32_t count, max;
    bool more;
};

static void few_add(struct few *few, uint64_t value)
{
    for (uint32_t i = 0; i < few->count; i++)
        if (few->values[i] == value)
            return;
    if (few->count < few->max)
        few->values[few->count++] = value;
    else
        few->more = true;
}

/* Does `value` belong to track `index`? The track after the last is for the others. */
static bool few_is(const struct few *few, uint32_t index, uint64_t value)
{
    if (index < few->count)
        return few->values[index] == value;
    return !NG_ANY(known, few->values, few->count, *known == value);
}

static void name_stream(const struct ng_view_group *group, const struct few *streams,
                        uint32_t index, char *ret_name, size_t bytes)
{
    char of[96], on[48] = "";

    if (group->name[0])
        snprintf(of, sizeof(of), "%s", group->name);
    else
        snprintf(of, sizeof(of), "group %016" PRIx64, group->id);
    if (index >= streams->count && streams->count)
        snprintf(on, sizeof(on), ", other streams");
    else if (streams->count && streams->values[index])
        snprintf(on, sizeof(on), ", stream %#" PRIx64, streams->values[index]);
    snprintf(ret_name, bytes, "%s (%d ranks)%s", of, group->nranks, on);
}

static void put_member(struct tracing *tracing, uint32_t rank, const struct ng_view_member *member)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    uint32_t first = ng_timeline_first(timeline, member);
    struct few streams = {.max = STREAMS_MAX};
    bool pending = member->pending_record != 0;
    char name[192];

    for (uint32_t i = first; i < member->record_count; i++)
        few_add(&streams, member->records[i].stream);
    if (!streams.count && !pending)
        return;
    for (uint32_t index = 0; index < streams.count + streams.more || index == 0; index++) {
        name_stream(&timeline->view->groups[member->group], &streams, index, name, sizeof(name));
        struct track track = new_track(tracing, rank, name);
        for (uint32_t i = first; i < member->record_count; i++) {
            const struct ng_view_record *record = &member->records[i];
            if (!ng_timeline_knows(record) || !few_is(&streams, index, record->stream))
                continue;
            put_record(tracing, &track, member, record);
            pending &= record->id != member->pending_record;
        }
        if (pending && index + 1 >= streams.count + streams.more)
            put_pending(tracing, &track, member);
    }
}

/* ---- Threads ---- */

static const struct ng_view_member *member_of(const struct tracing *tracing, uint32_t rank,
                                              uint32_t index)
{
    const struct ng_timeline *timeline = &tracing->timeline;

    return &timeline->view->members[timeline->members[timeline->ranks[rank].first + index]];
}

/* Is the call shown at this rank? Of the ranks of a process, it is shown at the one whose group it
 * is on, otherwise at the first. */
static bool is_call_of(const struct tracing *tracing, uint32_t rank,
                       const struct ng_view_call *call)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    const struct ng_timeline_rank *row = &timeline->ranks[rank];
    bool several = timeline->view->processes[call->process].drives_several;

    if (row->process != call->process)
        return false;
    if (!several)
        return true;
    for (uint32_t i = 0; i < row->count; i++) {
        const struct ng_view_member *member = member_of(tracing, rank, i);
        if (call->group_id && call->group_rank == member->group_rank &&
            call->group_id == timeline->view->groups[member->group].id)
            return true;
    }
    return call->group_rank < 0 &&
           row->first == timeline->view->processes[call->process].first_member;
}

static void put_call(struct tracing *tracing, const struct track *track,
                     const struct ng_view_call *call)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    int64_t start_ns = ng_timeline_at(timeline, call->process, call->age_ns);
    int64_t end_ns = ng_timeline_at(timeline, call->process, 0);
    char name[128];

    name_operation(call->op, call->seq, NG_SPAN_CALLED, name, sizeof(name));
    open_slice(tracing, track, name, "call", start_ns, end_ns);
    open_arguments(tracing);
    if (call->seq)
        ng_json_count(&tracing->json, "seq", call->seq);
    if (call->group_id)
        ng_json_hex(&tracing->json, "group_id", call->group_id);
    ng_json_uint(&tracing->json, "tid", call->tid);
    close_arguments_and_event(tracing);
    offer_wait(tracing, track, call->group_id, call->seq, start_ns, end_ns);
}

static void put_thread(struct tracing *tracing, uint32_t rank, const struct few *threads,
                       uint32_t index)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    char name[64] = "host calls";
    bool inside = false;

    if (index < threads->count && threads->values[index])
        snprintf(name, sizeof(name), "host calls, thread %" PRIu64, threads->values[index]);
    else if (index >= threads->count)
        snprintf(name, sizeof(name), "host calls, other threads");
    struct track track = new_track(tracing, rank, name);
    for (uint32_t i = 0; i < timeline->ranks[rank].count; i++) {
        const struct ng_view_member *member = member_of(tracing, rank, i);
        for (uint32_t k = ng_timeline_first(timeline, member); k < member->record_count; k++) {
            const struct ng_view_record *record = &member->records[k];
            if (!ng_timeline_knows(record) || !few_is(threads, index, record->tid))
                continue;
            name_record(record, NG_SPAN_POINT, name, sizeof(name));
            open_instant(tracing, &track, name, "call",
                         ng_timeline_at(timeline, member->process, record->entered_age_ns));
            ng_json_close_object(&tracing->json);
        }
    }
    /* One call per thread: slices of further calls would overlap. */
    for (uint32_t i = 0; i < timeline->view->call_count && !inside; i++) {
        const struct ng_view_call *call = &timeline->view->calls[i];
        if (is_call_of(tracing, rank, call) && few_is(threads, index, call->tid)) {
            put_call(tracing, &track, call);
            inside = true;
        }
    }
}

static void put_threads(struct tracing *tracing, uint32_t rank)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    struct few threads = {.max = THREADS_MAX};

    /* Threads that are inside a call come first: they matter most. */
    for (uint32_t i = 0; i < timeline->view->call_count; i++)
        if (is_call_of(tracing, rank, &timeline->view->calls[i]))
            few_add(&threads, timeline->view->calls[i].tid);
    for (uint32_t i = 0; i < timeline->ranks[rank].count; i++) {
        const struct ng_view_member *member = member_of(tracing, rank, i);
        for (uint32_t k = ng_timeline_first(timeline, member); k < member->record_count; k++)
            few_add(&threads, member->records[k].tid);
    }
    for (uint32_t index = 0; index < threads.count + threads.more; index++)
        put_thread(tracing, rank, &threads, index);
}

/* ---- Ranks ---- */

static void put_rank_names(struct tracing *tracing, uint32_t rank)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    const struct ng_timeline_rank *row = &timeline->ranks[rank];
    char name[160], labels[160], which[32] = "rank unknown";

    if (row->rank >= 0)
        snprintf(which, sizeof(which), "rank %d", row->rank);
    if (row->process == NG_TIMELINE_NOBODY) {
        snprintf(name, sizeof(name), "%s (no evidence)", which);
        put_label(tracing, rank, 0, "process_name", "name", name);
    } else {
        const struct ng_view_process *process = &timeline->view->processes[row->process];
        snprintf(name, sizeof(name), "%s (%s:%d)", which, process->host, process->pid);
        snprintf(labels, sizeof(labels), "%s%s%s", process->program,
                 process->program[0] ? ", " : "", ng_dump_life_name(process->life));
        put_label(tracing, rank, 0, "process_name", "name", name);
        put_label(tracing, rank, 0, "process_labels", "labels", labels);
    }
    put_order(tracing, rank, 0, "process_sort_index", rank);
}

static void put_rank(struct tracing *tracing, uint32_t rank)
{
    const struct ng_timeline_rank *row = &tracing->timeline.ranks[rank];

    put_rank_names(tracing, rank);
    if (row->culprit)
        tracing->verdict_tracks[rank] = new_track(tracing, rank, "verdict").number;
    if (row->process == NG_TIMELINE_NOBODY)
        return;
    put_threads(tracing, rank);
    for (uint32_t i = 0; i < row->count; i++)
        put_member(tracing, rank, member_of(tracing, rank, i));
}

/* ---- The verdict ---- */

/* When the others began to wait for the culprits; not later than any arrow can end. */
static int64_t blamed_since(const struct tracing *tracing)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    int64_t since_ns =
        timeline->end_ns - (timeline->verdict->stalled_ns > 0 ? timeline->verdict->stalled_ns : 0);

    for (uint32_t i = 0; i < timeline->rank_count; i++)
        if (tracing->waits[i].track && tracing->waits[i].end_ns < since_ns)
            since_ns = tracing->waits[i].end_ns;
    return since_ns > timeline->begin_ns ? since_ns : timeline->begin_ns;
}

static void put_arrow(struct tracing *tracing, uint32_t from, uint32_t to, int64_t since_ns)
{
    const struct wait *wait = &tracing->waits[to];

    if (!tracing->verdict_tracks[from] || !wait->track || from == to ||
        tracing->last_arrow == ARROWS_MAX)
        return;
    uint32_t arrow = ++tracing->last_arrow;
    for (int end = 0; end < 2; end++) {
        open_event(tracing, end ? "f" : "s", end ? to : from,
                   end ? wait->track : tracing->verdict_tracks[from], "is waited for by");
        ng_json_string(&tracing->json, "cat", "verdict");
        ng_json_uint(&tracing->json, "id", arrow);
        put_ts(tracing, "ts", end && wait->start_ns > since_ns ? wait->start_ns : since_ns);
        if (end)
            ng_json_string(&tracing->json, "bp", "e");
        ng_json_close_object(&tracing->json);
    }
}

static uint32_t find_rank(const struct ng_timeline *timeline, int rank, bool culprit)
{
    uint32_t i = 0;

    while (i < timeline->rank_count &&
           (timeline->ranks[i].rank != rank || (culprit && !timeline->ranks[i].culprit)))
        i++;
    return i;
}

static void put_arrows(struct tracing *tracing, int64_t since_ns)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    const struct ng_verdict *verdict = timeline->verdict;
    uint32_t from = 0, count = timeline->rank_count;

    NG_EACH (step, verdict->cycle, verdict->cycle_count) {
        uint32_t awaited = find_rank(timeline, step->waits_for_rank, true);
        uint32_t waits = find_rank(timeline, step->rank, false);
        if (awaited < count && waits < count)
            put_arrow(tracing, awaited, waits, since_ns);
    }
    while (from < count && !timeline->ranks[from].culprit)
        from++;
    for (uint32_t to = 0; to < count && from < count; to++)
        if (timeline->ranks[to].waits)
            put_arrow(tracing, from, to, since_ns);
}

static void put_verdict(struct tracing *tracing)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    const struct ng_verdict *verdict = timeline->verdict;
    const char *kind = ng_verdict_kind_name(verdict->kind);
    int64_t since_ns = blamed_since(tracing);
    char name[64];

    for (uint32_t i = 0; i < timeline->rank_count; i++) {
        struct track track = {.rank = i, .number = tracing->verdict_tracks[i]};
        if (!track.number)
            continue;
        open_slice(tracing, &track, kind, "verdict", since_ns, timeline->end_ns);
        open_arguments(tracing);
        ng_json_string(&tracing->json, "why", timeline->ranks[i].culprit->why);
        ng_json_string(&tracing->json, "confidence", ng_confidence_name(verdict->confidence));
        close_arguments_and_event(tracing);
    }
    put_arrows(tracing, since_ns);
    snprintf(name, sizeof(name), "verdict: %s", kind);
    open_event(tracing, "i", 0, 0, name);
    ng_json_string(&tracing->json, "cat", "verdict");
    ng_json_string(&tracing->json, "s", "g");
    put_ts(tracing, "ts", timeline->end_ns);
    ng_json_close_object(&tracing->json);
}

static void put_clocks(struct tracing *tracing)
{
    struct ng_json *json = &tracing->json;

    ng_json_open_array(json, "clocks", NG_JSON_LINES);
    NG_EACH (host, tracing->timeline.clocks.hosts, tracing->timeline.clocks.host_count) {
        ng_json_open_object(json, NULL, NG_JSON_COMPACT);
        ng_json_string(json, "host", host->name);
        ng_json_uint(json, "processes", host->processes);
        ng_json_uint(json, "samples", host->samples);
        ng_json_us(json, "offset_us", host->offset_ns);
        ng_json_us(json, "scatter_us", host->scatter_ns);
        ng_json_bool(json, "applied", host->applied);
        ng_json_close_object(json);
    }
    ng_json_close_array(json);
}

static void put_other_data(struct tracing *tracing)
{
    const struct ng_timeline *timeline = &tracing->timeline;
    struct ng_json *json = &tracing->json;
    char origin[32];

    snprintf(origin, sizeof(origin), "%" PRId64, timeline->begin_ns);
    ng_json_open_object(json, "otherData", NG_JSON_LINES);
    ng_json_string(json, "schema", NG_TRACE_SCHEMA);
    ng_json_string(json, "guard_version", NG_VERSION);
    ng_json_string(json, "job", timeline->view->job);
    if (timeline->verdict) {
        ng_json_string(json, "verdict", ng_verdict_kind_name(timeline->verdict->kind));
        ng_json_string(json, "confidence", ng_confidence_name(timeline->verdict->confidence));
    }
    ng_json_string(json, "origin_unix_ns", origin);
    ng_json_count(json, "records_left_out", timeline->records_left_out);
    put_clocks(tracing);
    ng_json_close_object(json);
}

static int write_events(struct tracing *tracing, int fd)
{
    struct ng_json *json = &tracing->json;

    ng_json_init(json, fd);
    ng_json_open_object(json, NULL, NG_JSON_LINES);
    ng_json_open_array(json, "traceEvents", NG_JSON_LINES);
    for (uint32_t i = 0; i < tracing->timeline.rank_count; i++)
        put_rank(tracing, i);
    if (tracing->timeline.verdict && tracing->timeline.rank_count)
        put_verdict(tracing);
    ng_json_close_array(json);
    ng_json_string(json, "displayTimeUnit", "ms");
    put_other_data(tracing);
    ng_json_close_object(json);
    return ng_json_finish(json);
}

int ng_trace_write(const struct ng_view *view, const struct ng_verdict *verdict,
                   uint32_t records_max, int fd)
{
    struct tracing tracing;

    int error = ng_timeline_make(view, verdict, records_max, &tracing.timeline);
    if (error)
        return error;
    size_t ranks = (size_t)tracing.timeline.rank_count + 1;
    struct ng_arena *arena = &tracing.timeline.arena;
    tracing.waits = ng_arena_alloc(arena, ranks * sizeof(*tracing.waits));
    tracing.verdict_tracks = ng_arena_alloc(arena, ranks * sizeof(*tracing.verdict_tracks));
    tracing.last_track = tracing.timeline.rank_count;
    tracing.last_arrow = 0;
    if (tracing.waits && tracing.verdict_tracks)
        error = write_events(&tracing, fd);
    else
        error = -ENOMEM;
    ng_timeline_fini(&tracing.timeline);
    return error;
}

struct content {
    const struct ng_view *view;
    const struct ng_verdict *verdict;
};

static int write_content(const void *context, int fd)
{
    const struct content *content = context;
    return ng_trace_write(content->view, content->verdict, NG_TRACE_RECORDS_MAX, fd);
}

int ng_trace_save(const struct ng_view *view, const struct ng_verdict *verdict, const char *folder)
{
    struct content content = {view, verdict};

    return ng_output_save(folder, NG_TRACE_NAME, write_content, &content);
}
