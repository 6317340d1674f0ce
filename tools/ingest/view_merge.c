/*
 * One view of many processes, with as many records as a verdict needs.
 *
 * Used by `ncclguard analyze`, by one thread. A verdict uses: operations in flight, the newest
 * ones, sends and receives that may be the counterpart of another rank's, the calls in which ranks
 * differ with those just before, and, if rolling hashes diverged, the whole history of one rank of
 * each side. Dropping any other record must never change a verdict; tests compare.
 */
#include "tools/ingest/view_merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/recorder/signature.h"
#include "core/util/macros.h"
#include "core/verdict/divergence.h"
#include "core/verdict/usual.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/ingest/read_dump.h"

#define KEEP_NEWEST                                                                                \
    NG_USUAL_RECORDS        /* records of a member; more than HASH_EVERY of the histories */
#define KEEP_IN_FLIGHT 512u /* sends and receives of a member */
#define KEEP_PAIRS     64u  /* (peer, direction) of a member, whose newest call is kept */
#define SIDES_MAX      8u   /* distinct rolling hashes of one group */
#define HISTORY        257u /* collectives before a difference that has no majority */

void ng_view_merge_init(struct ng_view_merge *merge, struct ng_view *view, uint64_t records_whole)
{
    *merge = (struct ng_view_merge){
        .view = view, .records_whole = records_whole, .records_left = records_whole};
    ng_histories_init(&merge->histories);
}

void ng_view_merge_fini(struct ng_view_merge *merge)
{
    ng_histories_fini(&merge->histories);
    free(merge->kept_whole);
    free(merge->call_stacks);
    free(merge->marks);
    *merge = (struct ng_view_merge){0};
}

void ng_view_merge_restart(struct ng_view_merge *merge)
{
    struct ng_view *view = merge->view;
    uint64_t records_whole = merge->records_whole;

    ng_view_merge_fini(merge);
    ng_view_fini(view);
    ng_view_init(view);
    ng_view_merge_init(merge, view, records_whole);
}

/* --- which records to keep --- */

/* Newest send or receive of each (peer, direction), while records are visited newest first. */
struct pairs {
    struct {
        int peer;
        uint32_t op;
    } seen[KEEP_PAIRS];
    uint32_t count;
};

static bool is_newest_of_pair(struct pairs *pairs, const struct ng_view_record *record)
{
    if (NG_ANY(other, pairs->seen, pairs->count,
               other->peer == record->signature.root && other->op == record->signature.op))
        return false;
    if (pairs->count == KEEP_PAIRS)
        return true; /* rather one too many */
    pairs->seen[pairs->count].peer = record->signature.root;
    pairs->seen[pairs->count++].op = record->signature.op;
    return true;
}

static bool is_done(const struct ng_view_record *record)
{
    return record->state == NG_RECORD_COMPLETED || record->state == NG_RECORD_FAILED ||
           record->state == NG_RECORD_CAPTURED || record->state == NG_RECORD_UNWATCHED;
}

static bool is_near(uint64_t seq, uint64_t other)
{
    return seq + 1 >= other && seq <= other + 1;
}

/* The collectives that the verdict engine may request by their numbers. */
static bool is_at_the_front(const struct ng_view_member *member,
                            const struct ng_view_record *record)
{
    uint64_t seq = record->coll_seq;

    return is_near(seq, member->completed) || is_near(seq, member->scheduled) ||
           is_near(seq, member->entered) ||
           (member->pending_seq && is_near(seq, member->pending_seq));
}

/* Mark the records to keep; returns how many. */
static uint32_t choose(const struct ng_view_member *member, uint8_t *marks, uint32_t *ret_p2p,
                       uint32_t *ret_p2p_kept)
{
    struct pairs pairs = {.count = 0};
    uint32_t kept = 0, p2p_in_flight = 0;

    *ret_p2p = *ret_p2p_kept = 0;
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        bool p2p = ng_view_record_is_p2p(record);
        bool keep = member->record_count - i < KEEP_NEWEST;
        if (p2p) {
            keep |= !is_done(record) && p2p_in_flight++ < KEEP_IN_FLIGHT;
            keep |= is_newest_of_pair(&pairs, record);
            ++*ret_p2p;
            *ret_p2p_kept += keep;
        } else {
            keep |= is_at_the_front(member, record);
        }
        marks[i - 1] = keep;
        kept += keep;
    }
    return kept;
}

static int copy_all(struct ng_view *view, const struct ng_view_member *from,
                    struct ng_view_member *member)
{
    member->records = NULL;
    if (!from->record_count)
        return 0;
    member->records = ng_arena_alloc(&view->arena, from->record_count * sizeof(*from->records));
    if (!member->records)
        return -ENOMEM;
    memcpy(member->records, from->records, from->record_count * sizeof(*from->records));
    return 0;
}

static int make_marks(struct ng_view_merge *merge, uint32_t count)
{
    if (count <= merge->mark_room)
        return 0;
    uint8_t *bigger = realloc(merge->marks, count);
    if (!bigger)
        return -ENOMEM;
    merge->marks = bigger;
    merge->mark_room = count;
    return 0;
}

static int copy_chosen(struct ng_view_merge *merge, const struct ng_view_member *from,
                       struct ng_view_member *member)
{
    uint32_t p2p, p2p_kept;

    if (make_marks(merge, from->record_count) != 0)
        return -ENOMEM;
    uint32_t kept = choose(from, merge->marks, &p2p, &p2p_kept);
    struct ng_view_record *records = NULL;
    uint32_t used = 0;
    if (kept) {
        records = ng_arena_alloc(&merge->view->arena, kept * sizeof(*records));
        if (!records)
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < from->record_count; i++)
        if (merge->marks[i])
            records[used++] = from->records[i];
    /* A member with records of all its sends and receives also shows what it never called. */
    if (p2p >= from->p2p_entered)
        member->p2p_entered = p2p_kept;
    member->records = records;
    member->record_count = used;
    return 0;
}

/* --- adding --- */

static int add_member(struct ng_view_merge *merge, const struct ng_view_member *from,
                      uint32_t process, uint32_t group)
{
    struct ng_view_member *member =
        ng_view_add_member(merge->view, process, group, from->group_rank);
    uint32_t index = merge->view->member_count - 1;

    if (!member)
        return -ENOMEM;
    *member = *from;
    member->process = process;
    member->group = group;
    member->sample_count = 0;
    if (!ng_view_set_edges(merge->view, member, from->edges, from->edge_count, from->edges_age_ns))
        return -ENOMEM;
    for (uint32_t i = 0; i < from->sample_count; i++)
        if (!ng_view_add_sample(merge->view, member, &from->samples[i]))
            return -ENOMEM;
    if (!NG_GROW(merge->kept_whole, index, merge->member_room))
        return -ENOMEM;
    merge->records += from->record_count;
    merge->kept_whole[index] = from->record_count <= merge->records_left;
    if (merge->kept_whole[index])
        merge->records_left -= from->record_count;
    int error = merge->kept_whole[index] ? copy_all(merge->view, from, member)
                                         : copy_chosen(merge, from, member);
    for (uint32_t i = 0; !error && i < member->record_count; i++)
        if (member->records[i].call_stack)
            member->records[i].call_stack = merge->call_stacks[member->records[i].call_stack - 1];
    return error ?: ng_histories_tell(&merge->histories, merge->view, index, from);
}

static int add_process(struct ng_view_merge *merge, const struct ng_view_process *from)
{
    struct ng_view_process *process = ng_view_add_process(merge->view);

    if (!process)
        return -ENOMEM;
    *process = *from;
    process->settings = NULL; /* they end with the file's view, and no verdict needs them */
    return 0;
}

/* The process in `view` that this one is; NULL not found. Another process may have had its id on
 * the same host before: compare what distinguishes those, if both have it. Dumps of PyTorch contain
 * neither host nor process id, only the rank. */
static const struct ng_view_process *find_process(const struct ng_view *view,
                                                  const struct ng_view_process *told)
{
    if (told->pid > 0)
        return NG_FIND(process, view->processes, view->process_count,
                       process->pid == told->pid &&
                           (!process->uid || !told->uid || process->uid == told->uid) &&
                           strcmp(process->host, told->host) == 0);
    if (told->pid < 0 || told->rank < 0)
        return NULL;
    return NG_FIND(process, view->processes, view->process_count, process->rank == told->rank);
}

static int add_call_stacks(struct ng_view_merge *merge, const struct ng_view *told, uint32_t first)
{
    if (!told->call_stack_count)
        return 0;
    uint32_t *bigger =
        realloc(merge->call_stacks, told->call_stack_count * sizeof(*merge->call_stacks));
    if (!bigger)
        return -ENOMEM;
    merge->call_stacks = bigger;
    for (uint32_t i = 0; i < told->call_stack_count; i++) {
        const struct ng_view_call_stack *from = &told->call_stacks[i];
        bigger[i] = ng_view_copy_call_stack(merge->view, from, first + from->process);
        if (!bigger[i])
            return -ENOMEM;
    }
    return 0;
}

static int add_notes(struct ng_view_merge *merge, const struct ng_view *told)
{
    struct ng_view *view = merge->view;

    for (uint32_t i = 0; i < told->note_count; i++)
        ng_view_note(view, "%s", told->notes[i] ? told->notes[i] : "");
    if (!told->job[0])
        return 0;
    if (view->job[0] && strcmp(view->job, told->job) != 0)
        ng_view_note(view, "%s: of another job, %s (the others: %s)",
                     told->process_count ? told->processes[0].source : "a file", told->job,
                     view->job);
    if (!view->job[0])
        memcpy(view->job, told->job, sizeof(view->job));
    return 0;
}

/* Communicators that could not be created, and faults that were injected. */
static int add_failures_and_faults(struct ng_view *view, const struct ng_view *told, uint32_t first)
{
    NG_EACH (from, told->failures, told->failure_count) {
        struct ng_view_failure *failure = ng_view_add_failure(
            view, first + from->member.process, from->group_id, from->member.group_rank);
        if (!failure)
            return -ENOMEM;
        uint32_t process = failure->member.process;
        failure->member = from->member;
        failure->member.process = process;
    }
    NG_EACH (from, told->faults, told->fault_count) {
        struct ng_view_fault *fault = ng_view_add_fault(view, first + from->process, &from->fault);
        if (!fault)
            return -ENOMEM;
        fault->first_age_ns = from->first_age_ns;
        fault->last_age_ns = from->last_age_ns;
    }
    return 0;
}

int ng_view_merge_add(struct ng_view_merge *merge, const struct ng_view *told, char *why,
                      size_t why_bytes)
{
    struct ng_view *view = merge->view;
    uint32_t first = view->process_count;
    int error = 0;

    NG_EACH (process, told->processes, told->process_count) {
        const struct ng_view_process *same = find_process(view, process);
        if (!same)
            continue;
        if (!process->pid && same->pid)
            return -EALREADY;
        snprintf(why, why_bytes, "%s tells of the same %s", same->source,
                 process->pid ? "process" : "rank");
        return -EEXIST;
    }
    for (uint32_t i = 0; !error && i < told->process_count; i++)
        error = add_process(merge, &told->processes[i]);
    for (uint32_t i = 0; !error && i < told->group_count; i++)
        if (ng_view_tell_group(view, &told->groups[i]) == UINT32_MAX)
            error = -ENOMEM;
    error = error ?: add_call_stacks(merge, told, first);
    for (uint32_t i = 0; !error && i < told->member_count; i++) {
        const struct ng_view_member *member = &told->members[i];
        uint32_t group = ng_view_intern_group(view, told->groups[member->group].id);
        error = group == UINT32_MAX ? -ENOMEM
                                    : add_member(merge, member, first + member->process, group);
    }
    for (uint32_t i = 0; !error && i < told->call_count; i++) {
        struct ng_view_call *call = ng_view_add_call(view, first + told->calls[i].process);
        error = call ? 0 : -ENOMEM;
        if (call) {
            uint32_t process = call->process;
            *call = told->calls[i];
            call->process = process;
        }
    }
    for (uint32_t i = 0; !error && i < told->thread_count; i++) {
        const struct ng_view_thread *from = &told->threads[i];
        struct ng_view_thread *thread = ng_view_add_thread(view, first + from->process, from->tid);
        error = thread ? 0 : -ENOMEM;
        if (thread)
            memcpy(thread->name, from->name, sizeof(thread->name));
    }
    for (uint32_t i = 0; !error && i < told->duration_count; i++)
        if (!ng_view_add_duration(view, first + told->durations[i].process,
                                  &told->durations[i].duration))
            error = -ENOMEM;
    error = error ?: add_failures_and_faults(view, told, first);
    for (uint32_t i = 0; i < told->ras_count && !error; i++)
        error = ng_view_add_ras(view, &told->ras[i]) ? 0 : -ENOMEM;
    error = error ?: add_notes(merge, told);
    if (error)
        snprintf(why, why_bytes, "%s", strerror(-error));
    return error;
}

/* --- reconstructed records --- */

/* Collectives of a group whose records are needed; ordered, without overlaps. */
struct window {
    uint64_t from, to;
};

struct windows {
    struct window *windows;
    size_t count, room;
};

static int want(struct windows *windows, uint64_t from, uint64_t to)
{
    struct window *last = windows->count ? &windows->windows[windows->count - 1] : NULL;

    /* They arrive in order of their ends. */
    while (last && from <= last->to + 1 && windows->count) {
        from = last->from < from ? last->from : from;
        to = last->to > to ? last->to : to;
        windows->count--;
        last = windows->count ? last - 1 : NULL;
    }
    if (!NG_GROW(windows->windows, windows->count, windows->room))
        return -ENOMEM;
    windows->windows[windows->count++] = (struct window){from, to};
    return 0;
}

/* Does the member still have a record of this collective? */
static bool has_record(const struct ng_view_member *member, uint64_t seq)
{
    return NG_ANY(record, member->records, member->record_count,
                  record->coll_seq == seq && !ng_view_record_is_p2p(record) &&
                      ng_view_record_counts(record));
}

static struct window within(const struct window *window, const struct ng_told *told)
{
    return (struct window){NG_MAX(window->from, told->from), NG_MIN(window->to, told->to)};
}

/* The records of a member, with those of the windows inserted between the ones that it kept. */
static int fill_windows(struct ng_view_merge *merge, uint32_t index, const struct windows *windows)
{
    struct ng_view *view = merge->view;
    struct ng_view_member *member = &view->members[index];
    const struct ng_told *told = &merge->histories.told[index];
    uint64_t room = member->record_count;
    uint32_t used = 0, next = 0;

    for (size_t i = 0; i < windows->count; i++) {
        struct window part = within(&windows->windows[i], told);
        room += part.from <= part.to ? part.to - part.from + 1 : 0;
    }
    if (room == member->record_count)
        return 0;
    struct ng_view_record *records = ng_arena_alloc(&view->arena, room * sizeof(*records));
    if (!records)
        return -ENOMEM;
    for (size_t i = 0; i < windows->count; i++) {
        struct window part = within(&windows->windows[i], told);
        for (uint64_t seq = part.from; seq <= part.to; seq++) {
            struct ng_signature signature;
            while (next < member->record_count && member->records[next].coll_seq < seq)
                records[used++] = member->records[next++];
            if (!has_record(member, seq) &&
                ng_histories_at(&merge->histories, view, index, seq, &signature))
                records[used++] = (struct ng_view_record){
                    .state = NG_RECORD_COMPLETED, .signature = signature, .coll_seq = seq};
        }
    }
    while (next < member->record_count)
        records[used++] = member->records[next++];
    member->records = records;
    member->record_count = used;
    return 0;
}

/* Rolling hashes of reconstructed records, computed backwards from the oldest known one: each step
 * is reversible. */
static void undo_hashes(struct ng_view_member *member)
{
    uint64_t hash = 0, next_seq = 0;
    const struct ng_view_record *after = NULL;

    for (uint32_t i = member->record_count; i > 0; i--) {
        struct ng_view_record *record = &member->records[i - 1];
        if (ng_view_record_is_p2p(record) || !ng_view_record_counts(record))
            continue;
        if (!record->rolling_hash && after && hash && record->coll_seq + 1 == next_seq)
            record->rolling_hash = ng_signature_unroll(hash, &after->signature);
        hash = record->rolling_hash;
        next_seq = record->coll_seq;
        after = record;
    }
}

/* --- finishing --- */

/* Per member: whether it counts among the handles that its rank has of its group. */
static bool *find_counting(const struct ng_view *view)
{
    bool *counts = calloc((size_t)view->member_count + 1, sizeof(*counts));
    size_t places = 64;

    while (places < 2 * (size_t)view->member_count)
        places *= 2;
    /* Member index + 1, by group and rank. */
    NG_FREED uint32_t *first = calloc(places, sizeof(*first));
    for (uint32_t i = 0; counts && first && i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        uint64_t hash = ((uint64_t)member->group << 32 | (uint32_t)member->group_rank) *
                        UINT64_C(0x9e3779b97f4a7c15);
        size_t at = (size_t)(hash >> 20) & (places - 1);
        const struct ng_view_member *other = NULL;
        for (; first[at]; at = (at + 1) & (places - 1)) {
            other = &view->members[first[at] - 1];
            if (other->group == member->group && other->group_rank == member->group_rank)
                break;
        }
        if (first[at] && ng_histories_counts(other, member))
            continue;
        if (first[at])
            counts[first[at] - 1] = false;
        counts[i] = true;
        first[at] = i + 1;
    }
    if (!first) {
        free(counts);
        return NULL;
    }
    return counts;
}

/* The windows needed for one group, from difference `first` on; *ret_end: the end of its
 * differences. */
static int want_of_group(const struct ng_histories *histories, uint32_t first,
                         struct windows *windows, uint32_t *ret_end)
{
    uint32_t at = first;
    int error = 0;

    windows->count = 0;
    for (; !error && at < histories->difference_count &&
           histories->differences[at].group == histories->differences[first].group;
         at++) {
        const struct ng_difference *difference = &histories->differences[at];
        uint64_t back = difference->undecided ? HISTORY : 1;
        if (difference->undecided && at == first)
            error = want(windows, 1, 1);
        if (!error)
            error =
                want(windows, difference->seq > back ? difference->seq - back : 1, difference->seq);
    }
    *ret_end = at;
    return error;
}

/* For a group with differences, the members whose calls reach back furthest and forward furthest;
 * index + 1, 0 none. */
struct ends {
    uint32_t oldest, newest;
};

static void find_ends(const struct ng_view_merge *merge, const bool *counts,
                      const struct windows *of_group, struct ends *ret_ends)
{
    const struct ng_told *told = merge->histories.told;
    const struct ng_view *view = merge->view;

    for (uint32_t i = 0; i < view->member_count; i++) {
        uint32_t group = view->members[i].group;
        struct ends *ends = &ret_ends[group];
        if (!counts[i] || !of_group[group].count || !told[i].to)
            continue;
        if (!ends->oldest || told[i].from < told[ends->oldest - 1].from)
            ends->oldest = i + 1;
        if (!ends->newest || told[i].to > told[ends->newest - 1].to)
            ends->newest = i + 1;
    }
}

/*
 * Every member gets the collectives that differ. Two members get all from the first of them on: the
 * verdict engine treats a sequence of calls longer than the total of all records as damage.
 */
static int fill_differences(struct ng_view_merge *merge, const bool *counts)
{
    const struct ng_histories *histories = &merge->histories;
    const struct ng_view *view = merge->view;
    NG_FREED struct windows *of_group = calloc((size_t)view->group_count + 1, sizeof(*of_group));
    NG_FREED struct ends *ends = calloc((size_t)view->group_count + 1, sizeof(*ends));
    int error = of_group && ends ? 0 : -ENOMEM;

    for (uint32_t i = 0; !error && i < histories->difference_count;) {
        uint32_t group = histories->differences[i].group;
        error = want_of_group(histories, i, &of_group[group], &i);
    }
    if (!error)
        find_ends(merge, counts, of_group, ends);
    for (uint32_t i = 0; !error && i < view->member_count; i++) {
        uint32_t group = view->members[i].group;
        const struct windows *windows = &of_group[group];
        if (!counts[i] || merge->kept_whole[i] || !windows->count)
            continue;
        struct window all = {windows->windows[0].from, histories->told[i].to};
        if (ends[group].oldest == i + 1 || ends[group].newest == i + 1)
            error = fill_windows(merge, i, &(struct windows){&all, 1, 1});
        else
            error = fill_windows(merge, i, windows);
    }
    for (uint32_t g = 0; of_group && g < view->group_count; g++)
        free(of_group[g].windows);
    return error;
}

/* The collective at which sides are determined, as in core/verdict/divergence.c: the newest one
 * covered by most members; 0 none. Of `count` members, whose indices are in `members`. */
static uint64_t most_told(const struct ng_histories *histories, const uint32_t *members,
                          uint32_t count)
{
    uint32_t most = 1;
    uint64_t found = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t seq = histories->told[members[i]].to;
        uint32_t told = 0;
        for (uint32_t k = 0; k < count; k++)
            told +=
                histories->told[members[k]].from <= seq && histories->told[members[k]].to >= seq;
        if (told > most || (told == most && told > 1 && seq > found)) {
            most = told;
            found = seq;
        }
    }
    return found;
}

/* Where the rolling hashes of a group diverged: the records that the engine needs. */
static int fill_parted_group(struct ng_view_merge *merge, const uint32_t *members, uint32_t count)
{
    const struct ng_histories *histories = &merge->histories;
    struct ng_view *view = merge->view;
    uint64_t compared = most_told(histories, members, count);
    /* For each hash present, the members reaching back furthest; the engine determines the
     * majority. */
    uint32_t oldest[SIDES_MAX];
    uint64_t hashes[SIDES_MAX];
    size_t sides = 0;

    for (uint32_t i = 0; compared && i < count; i++) {
        uint32_t index = members[i];
        const struct ng_told *told = &histories->told[index];
        struct ng_view_member *member = &view->members[index];
        /* From there to its own records, since hashes are reversed one by one. */
        struct window back = {compared, member->record_count ? told->to : 0};
        if (told->from > compared || told->to < compared || merge->kept_whole[index])
            continue;
        int error = fill_windows(merge, index, &(struct windows){&back, 1, 1});
        if (error)
            return error;
        undo_hashes(member);
        uint64_t hash = ng_rolling_hash_at(member, compared);
        size_t side = 0;
        while (side < sides && hashes[side] != hash)
            side++;
        if (side < sides) {
            if (told->from < histories->told[oldest[side]].from)
                oldest[side] = index;
        } else if (hash && sides < SIDES_MAX) {
            hashes[sides] = hash;
            oldest[sides++] = index;
        }
    }
    for (size_t side = 0; side < sides; side++) {
        const struct ng_told *told = &histories->told[oldest[side]];
        struct window all = {told->from, told->to};
        int error = fill_windows(merge, oldest[side], &(struct windows){&all, 1, 1});
        if (error)
            return error;
        undo_hashes(&view->members[oldest[side]]);
    }
    return 0;
}

static int fill_parted(struct ng_view_merge *merge, const bool *counts)
{
    const struct ng_histories *histories = &merge->histories;
    const struct ng_view *view = merge->view;
    NG_FREED bool *parted = calloc((size_t)view->group_count + 1, sizeof(*parted));
    NG_FREED uint32_t *members = calloc((size_t)view->member_count + 1, sizeof(*members));
    int error = parted && members ? 0 : -ENOMEM;

    for (uint32_t i = 0; !error && i < view->member_count; i++)
        parted[view->members[i].group] |= counts[i] && histories->told[i].parted;
    for (uint32_t g = 0; !error && g < view->group_count; g++) {
        uint32_t count = 0;
        for (uint32_t i = 0; parted[g] && i < view->member_count; i++)
            if (counts[i] && view->members[i].group == g && histories->told[i].to)
                members[count++] = i;
        if (count > 1)
            error = fill_parted_group(merge, members, count);
    }
    return error;
}

/*
 * Not all records could be kept, so no member keeps all. A verdict compares ranks wherever two of
 * them have records, and takes its time for it.
 */
static int even_out(struct ng_view_merge *merge)
{
    struct ng_view *view = merge->view;
    bool all_whole = true;
    int error = 0;

    for (uint32_t i = 0; i < view->member_count; i++)
        all_whole &= merge->kept_whole[i];
    for (uint32_t i = 0; !error && !all_whole && i < view->member_count; i++) {
        struct ng_view_member whole = view->members[i];
        if (!merge->kept_whole[i])
            continue;
        error = copy_chosen(merge, &whole, &view->members[i]);
        merge->kept_whole[i] = false;
    }
    return error;
}

int ng_view_merge_finish(struct ng_view_merge *merge)
{
    NG_FREED bool *counts = find_counting(merge->view);

    int error = counts ? ng_histories_compare(&merge->histories, merge->view, counts) : -ENOMEM;
    error = error ?: even_out(merge);
    error = error ?: fill_differences(merge, counts);
    return error ?: fill_parted(merge, counts);
}
