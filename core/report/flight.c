/*
 * fr/rank_<r>: the evidence in the format of PyTorch's flight recorder.
 *
 * Called by the guard's threads at an incident. Must never allocate except from an arena, or lock;
 * must be able to write a view built from a damaged black box, whatever numbers it holds.
 *
 * Sequence numbers continue from calls that the ring has dropped: the black box counts the calls
 * joined in NCCL groups since the communicator was created, and those that the records still show
 * are subtracted.
 */
#include "core/report/flight.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/recorder/paths.h"
#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/pickle.h"
#include "core/view/p2p_patterns.h"

#define RANKS_MAX  (1 << 17) /* groups that claim more are written with only the known ranks */
#define RANK_BYTES 12u       /* ", 1234567890" */
#define NAME_BYTES 64u

const struct ng_flight_op ng_flight_ops[NG_OP_LIMIT] = {
    [NG_OP_AllReduce] = {"nccl:all_reduce", NG_FLIGHT_COUNT, NG_FLIGHT_COUNT},
    [NG_OP_Broadcast] = {"nccl:broadcast", NG_FLIGHT_COUNT, NG_FLIGHT_COUNT},
    [NG_OP_Reduce] = {"nccl:reduce", NG_FLIGHT_COUNT, NG_FLIGHT_COUNT},
    [NG_OP_AllGather] = {"nccl:all_gather", NG_FLIGHT_COUNT, NG_FLIGHT_TIMES_RANKS},
    [NG_OP_ReduceScatter] = {"nccl:reduce_scatter", NG_FLIGHT_TIMES_RANKS, NG_FLIGHT_COUNT},
    [NG_OP_AlltoAll] = {"nccl:all_to_all", NG_FLIGHT_TIMES_RANKS, NG_FLIGHT_TIMES_RANKS},
    [NG_OP_Gather] = {"nccl:gather", NG_FLIGHT_COUNT, NG_FLIGHT_AT_ROOT_TIMES_RANKS},
    [NG_OP_Scatter] = {"nccl:scatter", NG_FLIGHT_AT_ROOT_TIMES_RANKS, NG_FLIGHT_COUNT},
    [NG_OP_AllToAllv] = {"nccl:all_to_all", NG_FLIGHT_COUNT, NG_FLIGHT_COUNT},
    [NG_OP_AllReduceWithBias] = {"nccl:all_reduce", NG_FLIGHT_COUNT, NG_FLIGHT_COUNT},
    [NG_OP_Send] = {"nccl:send", NG_FLIGHT_COUNT, NG_FLIGHT_ABSENT},
    [NG_OP_Recv] = {"nccl:recv", NG_FLIGHT_ABSENT, NG_FLIGHT_COUNT},
};

/* PyTorch's names, indexed by ncclDataType_t. */
static const char *const dtype_names[] = {
    "Char", "Byte",  "Int",    "UInt32",   "Long",          "UInt64",
    "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn", "Float8_e5m2",
};

enum status { ENQUEUED, STARTED, COMPLETED, STATUS_COUNT };

/* The number of launches on a communicator. */
struct launches {
    uint64_t colls, p2ps;
};

/* The number of calls of one kind, in one direction, so far in the current NCCL group. */
struct repeats {
    uint32_t work; /* index + 1; 0 none yet */
    uint32_t count;
    uint32_t most; /* the maximum over all groups */
};

/* One communicator of the rank being written, and how far its records have been written. */
struct track {
    const struct ng_view_member *member;
    const struct ng_view_group *group;
    const char *name, *desc, *p2p_name, *end_name;
    int *ranks; /* global, by group rank; -1 not known */
    int known;  /* number of known ones */
    const char *ranks_text;
    struct ng_p2p_pattern pattern;
    struct launches before;     /* the oldest record */
    struct launches *after;     /* each work */
    int64_t last[STATUS_COUNT]; /* last launch of collectives; -1 none */
    struct repeats colls;
    struct repeats *sends, *receives; /* by group rank */
    bool blind;          /* the process died, or is frozen: it did not observe later completions */
    uint64_t completed;  /* completed collectives, as far as known */
    bool composes, ends; /* has entries under p2p_name, under end_name */
    uint32_t next;       /* record */
};

struct flight {
    struct ng_pickle pickle;
    struct ng_arena arena;
    const struct ng_view *view;
    uint32_t process;
    struct track *tracks;
    uint32_t track_count;
    uint64_t next_id;
    int64_t moment_unix_ns; /* when ages are 0 */
};

static uint64_t minus(uint64_t value, uint64_t part)
{
    return value > part ? value - part : 0;
}

/* ---- Which ranks ---- */

/* Is it a group of all ranks, in order? Then ranks without evidence have the remaining numbers. */
static bool is_world(const struct ng_view *view, const struct ng_view_group *group,
                     const struct ng_view_process *process)
{
    if (process->world_size > 0)
        return group->nranks == process->world_size;
    return !NG_ANY(one, view->groups, view->group_count, one->nranks > group->nranks);
}

/* The global ranks of a group by group rank; -1 not known. */
static int *ranks_of(struct flight *flight, const struct track *track)
{
    const struct ng_view *view = flight->view;
    int nranks = track->group->nranks;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, track->member->group, &count);
    int *ranks = ng_arena_alloc(&flight->arena, ((size_t)nranks + 1) * sizeof(*ranks));

    if (!ranks)
        return NULL;
    bool in_order = is_world(view, track->group, &view->processes[flight->process]);
    memset(ranks, -1, (size_t)nranks * sizeof(*ranks));
    for (uint32_t i = 0; i < count; i++) {
        int place = members[i].group_rank;
        if (place < 0 || place >= nranks || ranks[place] >= 0)
            continue;
        ranks[place] = ng_view_rank(view, &members[i]);
        in_order &= ranks[place] == place;
    }
    for (int i = 0; in_order && i < nranks; i++)
        ranks[i] = i;
    ranks[track->member->group_rank] = ng_view_rank(view, track->member);
    return ranks;
}

/* "[0, 1]", of the known ranks. */
static const char *text_of_ranks(struct flight *flight, const int *ranks, int count)
{
    size_t room = (size_t)count * RANK_BYTES + 3, used = 1;
    char *text = ng_arena_alloc(&flight->arena, room);

    if (!text)
        return NULL;
    text[0] = '[';
    for (int i = 0; i < count; i++)
        if (ranks[i] >= 0)
            used += (size_t)snprintf(text + used, room - used, used > 1 ? ", %d" : "%d", ranks[i]);
    snprintf(text + used, room - used, "]");
    return text;
}

/* ---- First sequence numbers ---- */

static bool is_open(const struct track *track, const struct ng_p2p_pattern_work *work)
{
    const struct ng_view_record *record = &track->member->records[work->last];

    return record->state == NG_RECORD_ENTERED && (record->flags & NG_RECORD_IN_GROUP);
}

/* Two or more calls, as far as known. */
static bool is_group(const struct ng_p2p_pattern_work *work)
{
    return work->coll_count + work->p2p_count + work->cut > 1;
}

/*
 * Counts what came before the oldest record: calls and closing entries, for the file's record ids,
 * and launches of both kinds, from which the track continues. A work that is cut began earlier.
 */
static uint64_t count_before(struct track *track)
{
    const struct ng_view_member *member = track->member;
    uint64_t colls = 0, p2ps = 0, joined_colls = 0, joined_p2ps = 0, groups = 0;

    NG_EACH (work, track->pattern.works, track->pattern.work_count) {
        colls += work->coll_count;
        p2ps += work->p2p_count;
        if (is_open(track, work))
            continue;
        if (work->coll_count)
            joined_colls += work->coll_count - !work->cut;
        if (work->p2p_count)
            joined_p2ps += work->p2p_count - !work->cut;
        groups += is_group(work);
    }
    uint64_t colls_before = minus(member->entered, colls);
    uint64_t p2ps_before = minus(member->p2p_entered, p2ps);
    track->before.colls = minus(colls_before, minus(member->coll_joined, joined_colls));
    track->before.p2ps = minus(p2ps_before, minus(member->p2p_joined, joined_p2ps));
    return colls_before + p2ps_before + minus(member->groups_closed, groups);
}

/*
 * A process that no longer runs usually did not observe its last completions; but it took part in
 * every collective that all others have finished. If the states differed, the analyzer would report
 * each as a mismatch.
 */
static void find_completed(const struct flight *flight, struct track *track)
{
    const struct ng_view *view = flight->view;
    uint64_t of_others = UINT64_MAX;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, track->member->group, &count);

    track->completed = track->member->completed;
    track->blind = view->processes[flight->process].life != NG_LIFE_RUNNING;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].process != flight->process &&
            view->processes[members[i].process].life == NG_LIFE_RUNNING &&
            members[i].completed < of_others)
            of_others = members[i].completed;
    if (track->blind && of_others != UINT64_MAX && of_others > track->completed)
        track->completed = of_others;
}

static void number_launches(struct track *track)
{
    const struct ng_view_member *member = track->member;
    struct launches launches = track->before;

    for (uint32_t i = 0; i < track->pattern.work_count; i++) {
        const struct ng_p2p_pattern_work *work = &track->pattern.works[i];
        uint64_t seq = member->records[work->last].coll_seq;
        launches.p2ps += work->p2p_count && !work->cut;
        launches.colls += work->coll_count && !work->cut;
        track->after[i] = launches;
        track->composes |= work->op != NG_OP_NONE;
        if (!work->coll_count)
            continue;
        track->last[ENQUEUED] = (int64_t)launches.colls;
        if (seq <= member->started || seq <= track->completed)
            track->last[STARTED] = (int64_t)launches.colls;
        if (seq <= track->completed)
            track->last[COMPLETED] = (int64_t)launches.colls;
    }
    /* The ring has dropped all of them, but their count is known. */
    if (track->last[ENQUEUED] < 0 && member->entered) {
        int64_t last = (int64_t)launches.colls;
        track->last[ENQUEUED] = last;
        track->last[STARTED] = member->started == member->entered ? last : -1;
        track->last[COMPLETED] = member->completed == member->entered ? last : -1;
    }
}

/* The index of this call among the calls of its kind in its NCCL group, from 0. */
static uint32_t repeat_of(struct repeats *repeats, uint32_t work)
{
    if (repeats->work != work + 1)
        repeats->count = 0;
    repeats->work = work + 1;
    if (++repeats->count > repeats->most)
        repeats->most = repeats->count;
    return repeats->count - 1;
}

/* Its peer, if the analyzer can pair it; -1 otherwise: a call with an unknown rank has no group to
 * go in. */
static int told_peer(const struct track *track, const struct ng_view_record *record)
{
    int peer = record->signature.root;

    return peer >= 0 && peer < track->group->nranks && track->ranks[peer] >= 0 ? peer : -1;
}

static struct repeats *repeats_of(struct track *track, const struct ng_view_record *record)
{
    if (!ng_view_record_is_p2p(record))
        return &track->colls;
    int peer = told_peer(track, record);
    struct repeats *repeats = record->signature.op == NG_OP_Send ? track->sends : track->receives;
    return peer < 0 ? NULL : &repeats[peer];
}

/* Finds the process groups that the entries will use: readers need these first. */
static void find_groups(struct track *track)
{
    for (uint32_t i = 0; i < track->member->record_count; i++) {
        uint32_t work = track->pattern.work_of[i];
        if (work == NG_P2P_PATTERN_NONE || track->pattern.works[work].op != NG_OP_NONE)
            continue;
        struct repeats *repeats = repeats_of(track, &track->member->records[i]);
        if (repeats)
            repeat_of(repeats, work);
        const struct ng_p2p_pattern_work *whole = &track->pattern.works[work];
        track->ends |= is_group(whole) && !is_open(track, whole);
    }
    track->colls.work = 0;
    for (int peer = 0; peer < track->group->nranks; peer++)
        track->sends[peer].work = track->receives[peer].work = 0;
}

static int make_track(struct flight *flight, const struct ng_view_member *member,
                      struct track *track)
{
    const struct ng_view_group *group = &flight->view->groups[member->group];
    struct ng_arena *arena = &flight->arena;

    *track = (struct track){.member = member, .group = group, .last = {-1, -1, -1}};
    track->name = ng_arena_printf(arena, "%016" PRIx64, group->id);
    track->p2p_name = ng_arena_printf(arena, "%016" PRIx64 "/p2p", group->id);
    track->desc = group->name[0] ? group->name : "undefined";
    track->end_name = ng_arena_printf(arena, "%016" PRIx64 "/end", group->id);
    track->sends = ng_arena_alloc(arena, (size_t)group->nranks * sizeof(*track->sends));
    track->receives = ng_arena_alloc(arena, (size_t)group->nranks * sizeof(*track->receives));
    int error = ng_p2p_pattern_find(flight->view, member, arena, &track->pattern);
    if (error || !track->name || !track->p2p_name || !track->end_name || !track->sends ||
        !track->receives)
        return -ENOMEM;
    track->after =
        ng_arena_alloc(arena, ((size_t)track->pattern.work_count + 1) * sizeof(*track->after));
    track->ranks = ranks_of(flight, track);
    if (!track->after || !track->ranks)
        return -ENOMEM;
    track->ranks_text = text_of_ranks(flight, track->ranks, group->nranks);
    if (!track->ranks_text)
        return -ENOMEM;
    for (int i = 0; i < group->nranks; i++)
        track->known += track->ranks[i] >= 0;
    flight->next_id += count_before(track);
    find_completed(flight, track);
    number_launches(track);
    find_groups(track);
    return 0;
}

/* ---- Entries ---- */

/* The contents of an entry. */
struct entry {
    const char *group_name, *profiling_name;
    uint64_t record_id, collective_seq_id, p2p_seq_id;
    bool has_input, has_output, is_p2p;
    bool lasts; /* the names stay valid until the file is written */
    uint64_t input, output;
    int64_t duration_ns; /* 0: not measured, or written in the closing entry */
};

static int64_t unix_time(const struct flight *flight, int64_t age_ns)
{
    int64_t time;

    return __builtin_sub_overflow(flight->moment_unix_ns, age_ns, &time) ? 0 : time;
}

static const char *state_of(const struct track *track, const struct ng_view_record *record)
{
    bool counted = !ng_view_record_is_p2p(record) && record->coll_seq <= track->completed;
    bool unseen = record->state == NG_RECORD_UNWATCHED || track->blind;

    /* A completion that was not observed itself can be inferred from a later one. */
    if (record->state == NG_RECORD_COMPLETED || (unseen && counted))
        return "completed";
    if (record->state == NG_RECORD_STARTED || record->started_age_ns > 0)
        return "started";
    return "scheduled";
}

static const char *thread_name(const struct flight *flight, uint32_t tid)
{
    const struct ng_view *view = flight->view;

    for (uint32_t i = 0; tid && i < view->thread_count; i++)
        if (view->threads[i].process == flight->process && view->threads[i].tid == tid)
            return view->threads[i].name;
    return "";
}

/* `stays`: the text stays valid until the file is written. */
static void put_text(struct ng_pickle *pickle, const char *key, const char *text, bool stays)
{
    if (stays)
        ng_pickle_name(pickle, key, text);
    else
        ng_pickle_string(pickle, key, text);
}

static void put_side(struct ng_pickle *pickle, const char *sizes_key, const char *dtypes_key,
                     bool present, uint64_t size, const char *dtype)
{
    ng_pickle_open_list(pickle, sizes_key);
    ng_pickle_open_list(pickle, NULL);
    if (present)
        ng_pickle_uint(pickle, NULL, size);
    ng_pickle_close(pickle);
    ng_pickle_close(pickle);
    ng_pickle_open_list(pickle, dtypes_key);
    if (present)
        ng_pickle_name(pickle, NULL, dtype);
    ng_pickle_close(pickle);
}

static void put_time(struct flight *flight, const char *key, int64_t age_ns)
{
    if (age_ns > 0)
        ng_pickle_int(&flight->pickle, key, unix_time(flight, age_ns));
    else
        ng_pickle_none(&flight->pickle, key);
}

/* Frames in PyTorch's form; if a name is not known, the address in the file. Lines are known only
 * for Python. */
static void put_frames(struct flight *flight, const struct ng_view_record *record)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(flight->view, record);
    struct ng_pickle *pickle = &flight->pickle;
    char address[24];

    if (!stack)
        return;
    ng_pickle_open_list(pickle, "frames");
    NG_EACH (frame, stack->frames, stack->count) {
        snprintf(address, sizeof(address), "%#" PRIx64, frame->offset);
        ng_pickle_open_dict(pickle, NULL);
        put_text(pickle, "name", frame->name ? frame->name : address, frame->name != NULL);
        ng_pickle_name(pickle, "filename", frame->module ? frame->module->path : "??");
        ng_pickle_int(pickle, "line", frame->line);
        ng_pickle_close(pickle);
    }
    ng_pickle_close(pickle);
}

static void put_entry(struct flight *flight, const struct track *track,
                      const struct ng_view_record *record, const struct entry *entry)
{
    struct ng_pickle *pickle = &flight->pickle;
    int dtype = record->signature.dtype;
    bool known = dtype >= 0 && dtype < (int)NG_COUNT(dtype_names);
    char tid[16];

    ng_pickle_open_dict(pickle, NULL);
    ng_pickle_uint(pickle, "record_id", entry->record_id);
    ng_pickle_int(pickle, "pg_id", track - flight->tracks);
    ng_pickle_open_tuple(pickle, "process_group");
    put_text(pickle, NULL, entry->group_name, entry->lasts);
    ng_pickle_name(pickle, NULL, track->desc);
    ng_pickle_close(pickle);
    ng_pickle_uint(pickle, "collective_seq_id", entry->collective_seq_id);
    ng_pickle_uint(pickle, "p2p_seq_id", entry->p2p_seq_id);
    ng_pickle_uint(pickle, "op_id", ng_view_record_op_id(record));
    put_text(pickle, "profiling_name", entry->profiling_name, !entry->is_p2p || entry->lasts);
    ng_pickle_int(pickle, "time_created_ns", unix_time(flight, record->entered_age_ns));
    put_side(pickle, "input_sizes", "input_dtypes", entry->has_input, entry->input,
             known ? dtype_names[dtype] : "Undefined");
    put_side(pickle, "output_sizes", "output_dtypes", entry->has_output, entry->output,
             known ? dtype_names[dtype] : "Undefined");
    ng_pickle_name(pickle, "state", state_of(track, record));
    put_time(flight, "time_discovered_started_ns", record->started_age_ns);
    put_time(flight, "time_discovered_completed_ns", record->completed_age_ns);
    if (entry->duration_ns > 0)
        ng_pickle_double(pickle, "duration_ms", (double)entry->duration_ns / NG_MS);
    ng_pickle_bool(pickle, "retired", ng_view_record_is_retired(record));
    ng_pickle_int(pickle, "timeout_ms", track->member->timeout_ns / NG_MS);
    ng_pickle_bool(pickle, "is_p2p", entry->is_p2p);
    snprintf(tid, sizeof(tid), "%" PRIu32, record->tid);
    ng_pickle_string(pickle, "thread_id", tid);
    ng_pickle_name(pickle, "thread_name", thread_name(flight, record->tid));
    put_frames(flight, record);
    ng_pickle_close(pickle);
}

static void set_side(enum ng_flight_size size, uint64_t count, int nranks, bool at_root,
                     bool *ret_present, uint64_t *ret_size)
{
    uint64_t ranks = nranks > 0 ? (uint64_t)nranks : 1;

    *ret_present = size == NG_FLIGHT_AT_ROOT_TIMES_RANKS ? at_root : size != NG_FLIGHT_ABSENT;
    if (size == NG_FLIGHT_COUNT)
        ranks = 1;
    if (__builtin_mul_overflow(count, ranks, ret_size))
        *ret_size = UINT64_MAX;
}

static void set_sizes(const struct track *track, enum ng_op op, int root, uint64_t count,
                      struct entry *entry)
{
    const struct ng_flight_op *row = &ng_flight_ops[op];
    bool at_root = root == track->member->group_rank;

    /* The analyzer checks sizes against the number of ranks that the group has in the file. */
    set_side(row->input, count, track->known, at_root, &entry->has_input, &entry->input);
    set_side(row->output, count, track->known, at_root, &entry->has_output, &entry->output);
}

/* Names of process groups: core/report/flight.h. */
static void name_repeat(char *name, size_t bytes, uint32_t repeat)
{
    size_t used = strlen(name);

    if (repeat)
        snprintf(name + used, bytes - used, "/%" PRIu32, repeat + 1);
}

static void name_collectives(const struct track *track, uint32_t repeat, char *ret_name,
                             size_t bytes)
{
    snprintf(ret_name, bytes, "%s", track->name);
    name_repeat(ret_name, bytes, repeat);
}

static void name_p2p(const struct track *track, enum ng_op op, int peer, uint32_t repeat,
                     char *ret_name, size_t bytes)
{
    int me = track->member->group_rank;

    if (op == NG_OP_Send)
        snprintf(ret_name, bytes, "%s/%d>%d", track->name, me, peer);
    else
        snprintf(ret_name, bytes, "%s/%d%s%d", track->name, peer, peer == me ? "<" : ">", me);
    name_repeat(ret_name, bytes, repeat);
}

/* The duration of a call that was launched alone. */
static int64_t own_duration(const struct track *track, const struct ng_view_record *record,
                            uint32_t work)
{
    return is_group(&track->pattern.works[work]) ? 0 : record->duration_ns;
}

static void put_collective(struct flight *flight, struct track *track,
                           const struct ng_view_record *record, uint32_t work)
{
    char group_name[NAME_BYTES];
    uint32_t repeat = repeat_of(repeats_of(track, record), work);
    struct entry entry = {
        .group_name = repeat ? group_name : track->name,
        .profiling_name = ng_flight_ops[record->signature.op].name,
        .record_id = flight->next_id++,
        .collective_seq_id = track->after[work].colls,
        .p2p_seq_id = track->after[work].p2ps,
        .lasts = !repeat,
        .duration_ns = own_duration(track, record, work),
    };

    name_collectives(track, repeat, group_name, sizeof(group_name));
    set_sizes(track, (enum ng_op)record->signature.op, record->signature.root,
              record->signature.count, &entry);
    put_entry(flight, track, record, &entry);
}

/* Sends and receives that form one collective: one entry at the position of the first. */
static void put_composed(struct flight *flight, struct track *track,
                         const struct ng_view_record *record, uint32_t index)
{
    const struct ng_p2p_pattern_work *work = &track->pattern.works[index];
    struct entry entry = {.group_name = track->p2p_name,
                          .profiling_name = ng_flight_ops[work->op].name,
                          .record_id = flight->next_id++,
                          .collective_seq_id = track->after[index].p2ps,
                          .p2p_seq_id = track->after[index].p2ps,
                          .lasts = true,
                          .duration_ns = track->member->records[work->last].duration_ns};

    if (record != &track->member->records[work->first])
        return;
    set_sizes(track, work->op, work->root, record->signature.count, &entry);
    if (work->op == NG_OP_AlltoAll || work->op == NG_OP_AllToAllv) {
        entry.input = work->sent;
        entry.output = work->received;
    }
    put_entry(flight, track, record, &entry);
}

static void put_p2p(struct flight *flight, struct track *track, const struct ng_view_record *record,
                    uint32_t work)
{
    enum ng_op op = (enum ng_op)record->signature.op;
    int peer = told_peer(track, record);
    uint64_t record_id = flight->next_id++;
    char profiling_name[48], group_name[NAME_BYTES];

    if (peer < 0)
        return;
    int here = track->ranks[track->member->group_rank], there = track->ranks[peer];
    name_p2p(track, op, peer, repeat_of(repeats_of(track, record), work), group_name,
             sizeof(group_name));
    /* Within the group of two, the lower global rank is 0. */
    snprintf(profiling_name, sizeof(profiling_name), "%s %d%s%d", ng_flight_ops[op].name,
             here > there, op == NG_OP_Send ? "->" : "<-", there > here);
    struct entry entry = {.group_name = group_name,
                          .profiling_name = profiling_name,
                          .record_id = record_id,
                          .p2p_seq_id = track->after[work].p2ps,
                          .is_p2p = true,
                          .duration_ns = own_duration(track, record, work)};
    set_sizes(track, op, peer, record->signature.count, &entry);
    put_entry(flight, track, record, &entry);
}

/* Writes the closing entry of an NCCL group, after its last call. */
static void put_end(struct flight *flight, struct track *track, const struct ng_view_record *record,
                    uint32_t index)
{
    const struct ng_p2p_pattern_work *work = &track->pattern.works[index];
    struct entry entry = {.group_name = track->end_name,
                          .profiling_name = "nccl:coalesced",
                          .record_id = flight->next_id++,
                          .collective_seq_id = work->coll_count ? track->after[index].colls : 0,
                          .p2p_seq_id = track->after[index].p2ps,
                          .is_p2p = !work->coll_count,
                          .lasts = true,
                          .duration_ns = record->duration_ns};

    /* Calls that are written as one call need no closing entry. */
    if (work->op != NG_OP_NONE)
        return;
    put_entry(flight, track, record, &entry);
}

static void put_record(struct flight *flight, struct track *track)
{
    uint32_t index = track->next++, work = track->pattern.work_of[index];
    const struct ng_view_record *record = &track->member->records[index];

    if (work == NG_P2P_PATTERN_NONE || record->signature.op >= NG_OP_LIMIT ||
        !ng_flight_ops[record->signature.op].name)
        return;
    const struct ng_p2p_pattern_work *whole = &track->pattern.works[work];
    if (whole->op != NG_OP_NONE)
        put_composed(flight, track, record, work);
    else if (ng_view_record_is_p2p(record))
        put_p2p(flight, track, record, work);
    else
        put_collective(flight, track, record, work);
    if (index == whole->last && is_group(whole) && !is_open(track, whole))
        put_end(flight, track, record, work);
}

/* In order of record ids, over all communicators. */
static void put_entries(struct flight *flight)
{
    ng_pickle_open_list(&flight->pickle, "entries");
    for (;;) {
        struct track *oldest = NULL;
        NG_EACH (track, flight->tracks, flight->track_count)
            if (track->next < track->member->record_count &&
                (!oldest ||
                 track->member->records[track->next].id < oldest->member->records[oldest->next].id))
                oldest = track;
        if (!oldest)
            break;
        put_record(flight, oldest);
    }
    ng_pickle_close(&flight->pickle);
}

/* ---- The rest of the file ---- */

static void put_group(struct ng_pickle *pickle, const char *name, const char *desc,
                      const char *ranks)
{
    ng_pickle_key(pickle, name);
    ng_pickle_open_dict(pickle, NULL);
    ng_pickle_string(pickle, "name", name);
    ng_pickle_name(pickle, "desc", desc);
    ng_pickle_string(pickle, "ranks", ranks);
    ng_pickle_close(pickle);
}

/* The groups for the data sent in one direction between this rank and a peer. */
static void put_p2p_groups(struct flight *flight, const struct track *track, enum ng_op op,
                           int peer)
{
    const struct repeats *repeats = op == NG_OP_Send ? track->sends : track->receives;
    int here = track->ranks[track->member->group_rank], there = track->ranks[peer];
    int pair[] = {here < there ? here : there, here < there ? there : here};
    char name[NAME_BYTES], text[32];

    snprintf(text, sizeof(text), here == there ? "[%d]" : "[%d, %d]", pair[0], pair[1]);
    for (uint32_t repeat = 0; repeat < repeats[peer].most; repeat++) {
        name_p2p(track, op, peer, repeat, name, sizeof(name));
        put_group(&flight->pickle, name, track->desc, text);
    }
}

static void put_track_groups(struct flight *flight, const struct track *track)
{
    char name[NAME_BYTES], text[16];

    for (uint32_t repeat = 0; repeat == 0 || repeat < track->colls.most; repeat++) {
        name_collectives(track, repeat, name, sizeof(name));
        put_group(&flight->pickle, name, track->desc, track->ranks_text);
    }
    if (track->composes)
        put_group(&flight->pickle, track->p2p_name, track->desc, track->ranks_text);
    for (int peer = 0; peer < track->group->nranks; peer++) {
        put_p2p_groups(flight, track, NG_OP_Send, peer);
        put_p2p_groups(flight, track, NG_OP_Recv, peer);
    }
    snprintf(text, sizeof(text), "[%d]", track->ranks[track->member->group_rank]);
    if (track->ends)
        put_group(&flight->pickle, track->end_name, track->desc, text);
}

static void put_groups(struct flight *flight)
{
    ng_pickle_open_dict(&flight->pickle, "pg_config");
    for (uint32_t i = 0; i < flight->track_count; i++)
        put_track_groups(flight, &flight->tracks[i]);
    ng_pickle_close(&flight->pickle);
}

static void put_status(struct flight *flight)
{
    static const char *const keys[] = {[ENQUEUED] = "last_enqueued_collective",
                                       [STARTED] = "last_started_collective",
                                       [COMPLETED] = "last_completed_collective"};
    char id[16];

    ng_pickle_open_dict(&flight->pickle, "pg_status");
    for (uint32_t i = 0; i < flight->track_count; i++) {
        snprintf(id, sizeof(id), "%" PRIu32, i);
        ng_pickle_key(&flight->pickle, id);
        ng_pickle_open_dict(&flight->pickle, NULL);
        for (int k = 0; k < STATUS_COUNT; k++)
            ng_pickle_int(&flight->pickle, keys[k], flight->tracks[i].last[k]);
        ng_pickle_close(&flight->pickle);
    }
    ng_pickle_close(&flight->pickle);
}

static void put_number(struct ng_pickle *pickle, const char *key, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    ng_pickle_string(pickle, key, text);
}

static void put_communicators(struct flight *flight)
{
    struct ng_pickle *pickle = &flight->pickle;

    ng_pickle_open_dict(pickle, "nccl_comm_state");
    for (uint32_t i = 0; i < flight->track_count; i++) {
        const struct ng_view_member *member = flight->tracks[i].member;
        ng_pickle_key(pickle, flight->tracks[i].name);
        ng_pickle_open_dict(pickle, NULL);
        ng_pickle_name(pickle, "state", ng_dump_group_state_name(member->state));
        ng_pickle_name(pickle, "async_error", ng_result_name(member->async_error));
        put_number(pickle, "rank", member->group_rank);
        put_number(pickle, "nranks", flight->tracks[i].group->nranks);
        put_number(pickle, "device", member->device);
        ng_pickle_string(pickle, "pci_id", member->pci_id);
        ng_pickle_close(pickle);
    }
    ng_pickle_close(pickle);
}

/* "2.28.9": until 2.8 the number had one digit less. */
static void put_version(struct flight *flight)
{
    int version = flight->track_count ? flight->tracks[0].group->nccl_version : 0;
    int major = version >= 10000 ? version / 10000 : version / 1000;
    int minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
    char text[48] = "";

    if (version > 0)
        snprintf(text, sizeof(text), "%d.%d.%d", major, minor, version % 100);
    ng_pickle_string(&flight->pickle, "comm_lib_version", text);
}

/* ---- Files ---- */

/* A group can be written only if its size and the rank's own position in it are known. */
static bool is_reported(const struct ng_view *view, const struct ng_view_member *member,
                        uint32_t process, int rank)
{
    int nranks = view->groups[member->group].nranks;

    return member->process == process && nranks > 0 && nranks <= RANKS_MAX &&
           member->group_rank >= 0 && member->group_rank < nranks &&
           ng_view_rank(view, member) == rank;
}

static int make_tracks(struct flight *flight, int rank)
{
    const struct ng_view *view = flight->view;
    uint32_t count = 0;
    int error = 0;

    for (uint32_t i = 0; i < view->member_count; i++)
        count += is_reported(view, &view->members[i], flight->process, rank);
    flight->tracks = ng_arena_alloc(&flight->arena, ((size_t)count + 1) * sizeof(*flight->tracks));
    if (!flight->tracks)
        return -ENOMEM;
    for (uint32_t i = 0; !error && i < view->member_count; i++)
        if (is_reported(view, &view->members[i], flight->process, rank))
            error = make_track(flight, &view->members[i], &flight->tracks[flight->track_count++]);
    return error;
}

static int write_file(struct flight *flight, int fd)
{
    ng_pickle_init(&flight->pickle, fd);
    ng_pickle_open_dict(&flight->pickle, NULL);
    ng_pickle_string(&flight->pickle, "version", NG_FLIGHT_VERSION);
    put_version(flight);
    ng_pickle_int(&flight->pickle, "time_dumped_ns", flight->moment_unix_ns);
    if (flight->view->on_request)
        ng_pickle_bool(&flight->pickle, "on_request", true);
    put_groups(flight);
    put_entries(flight);
    put_status(flight);
    put_communicators(flight);
    ng_pickle_close(&flight->pickle);
    return ng_pickle_finish(&flight->pickle);
}

int ng_flight_write(const struct ng_view *view, uint32_t process, int rank, int fd)
{
    const struct ng_view_process *told = &view->processes[process];
    struct flight flight = {.view = view,
                            .process = process,
                            .moment_unix_ns =
                                told->moment_unix_ns ? told->moment_unix_ns : ng_clock_unix_ns()};

    int error = make_tracks(&flight, rank) ?: write_file(&flight, fd);
    ng_arena_reset(&flight.arena);
    return error;
}

struct content {
    const struct ng_view *view;
    uint32_t process;
    int rank;
};

static int write_content(const void *context, int fd)
{
    const struct content *content = context;
    return ng_flight_write(content->view, content->process, content->rank, fd);
}

static int save_rank(const struct ng_view *view, uint32_t process, int rank, const char *folder)
{
    struct content content = {view, process, rank};
    char name[32];

    snprintf(name, sizeof(name), NG_FLIGHT_FOLDER "/rank_%d", rank);
    return ng_output_save(folder, name, write_content, &content);
}

/* Does an earlier member of the same process have the same rank? */
static bool is_repeated(const struct ng_view *view, uint32_t index, int rank)
{
    return NG_ANY(one, view->members, index,
                  one->process == view->members[index].process && ng_view_rank(view, one) == rank);
}

int ng_flight_save_process(const struct ng_view *view, uint32_t process, const char *folder)
{
    char path[PATH_MAX];
    bool any = false;

    if (process >= view->process_count)
        return -EINVAL;
    if (snprintf(path, sizeof(path), "%s/" NG_FLIGHT_FOLDER, folder) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int error = ng_paths_make(path);
    for (uint32_t i = 0; !error && i < view->member_count; i++) {
        if (view->members[i].process != process)
            continue;
        int rank = ng_view_rank(view, &view->members[i]);
        if (rank < 0 || is_repeated(view, i, rank))
            continue;
        error = save_rank(view, process, rank, folder);
        any = true;
    }
    /* The analyzer needs a file of every rank, even of one that created no communicator. */
    if (!error && !any && view->processes[process].rank >= 0)
        error = save_rank(view, process, view->processes[process].rank, folder);
    return error;
}
