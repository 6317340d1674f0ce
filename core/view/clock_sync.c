/*
 * One clock for the processes of a job: which processes share a clock, and the offsets of the
 * others.
 *
 * Used before a timeline is drawn. Called by the guard's threads and by the command. Must never
 * allocate except from its arena, and must tolerate any times that a damaged black box held.
 */
#include "core/view/clock_sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"

#define SEQS          64u             /* newest collectives of a group that are compared */
#define SAMPLES       256u            /* per host */
#define SAMPLES_LEAST 3u              /* fewer are not significant */
#define ROUNDS        64              /* most hosts on the path between two that share no group */
#define NOISE_NS      NG_MS           /* smaller offsets could be polling delay */
#define TIME_MAX_NS   (INT64_MAX / 4) /* sums of a few cannot overflow */
#define SAME_BOOT_NS  NG_S            /* clock differences within one boot agree to this */

/* The state while samples are collected. */
struct aligning {
    const struct ng_view *view;
    struct ng_clock_offsets *alignment;
    bool *fixed;      /* per host: its offset is known, so others are compared with it */
    int64_t *samples; /* per host: SAMPLES of them */
    uint32_t *counts;
    /* For one group: per host, its index in the group + 1; and the first end of each collective,
     * per host. */
    uint32_t *slots, *hosts;
    int64_t *ends;
    uint32_t host_count;
    uint64_t newest;
};

static int64_t within(int64_t ns)
{
    return ns < -TIME_MAX_NS ? -TIME_MAX_NS : ns > TIME_MAX_NS ? TIME_MAX_NS : ns;
}

static bool is_known(const struct ng_view_process *process)
{
    return process->moment_unix_ns > 0 && process->moment_unix_ns < TIME_MAX_NS;
}

/* Is it the same host? It has the same name and is not another machine or boot of that name. */
static bool shares_clock(const struct ng_view_process *a, const struct ng_view_process *b)
{
    if (strcmp(a->host, b->host) != 0)
        return false;
    if (!is_known(a) || !is_known(b) || a->moment_mono_ns <= 0 || b->moment_mono_ns <= 0)
        return true;
    int64_t difference = (a->moment_unix_ns - within(a->moment_mono_ns)) -
                         (b->moment_unix_ns - within(b->moment_mono_ns));
    return difference > -SAME_BOOT_NS && difference < SAME_BOOT_NS;
}

/*
 * Finds each process's host, by a table of hosts by name, and its moment. All processes of a host
 * are placed by its monotonic clock and one pair of readings, that of the first process that has
 * one.
 */
static int find_hosts(const struct ng_view *view, struct ng_arena *arena,
                      struct ng_clock_offsets *alignment)
{
    uint32_t mask = 15;

    while (mask < 2 * view->process_count)
        mask = mask * 2 + 1;
    uint32_t *slots = ng_arena_alloc(arena, (mask + 1) * sizeof(*slots));
    uint32_t *firsts = ng_arena_alloc(arena, (view->process_count + 1) * sizeof(*firsts));
    if (!slots || !firsts)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        uint32_t at = 2166136261u;
        for (const char *c = process->host; *c; c++)
            at = (at ^ (unsigned char)*c) * 16777619u;
        at &= mask;
        while (slots[at] && !shares_clock(&view->processes[firsts[slots[at] - 1]], process))
            at = (at + 1) & mask;
        if (!slots[at]) {
            firsts[alignment->host_count] = i;
            memcpy(alignment->hosts[alignment->host_count].name, process->host,
                   sizeof(process->host));
            slots[at] = ++alignment->host_count;
        }
        uint32_t host = slots[at] - 1;
        const struct ng_view_process *first = &view->processes[firsts[host]];
        if (!is_known(first) || first->moment_mono_ns <= 0)
            firsts[host] = i;
        alignment->host_of[i] = host;
        alignment->hosts[host].processes++;
    }
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        const struct ng_view_process *first = &view->processes[firsts[alignment->host_of[i]]];
        bool by_mono = is_known(first) && first->moment_mono_ns > 0 && process->moment_mono_ns > 0;
        if (by_mono)
            alignment->moments_ns[i] = first->moment_unix_ns + (within(process->moment_mono_ns) -
                                                                within(first->moment_mono_ns));
        else if (is_known(process))
            alignment->moments_ns[i] = process->moment_unix_ns;
    }
    return 0;
}

/* A process without a known time was inspected no later than the others. */
static void guess_moments(struct ng_clock_offsets *alignment, uint32_t process_count)
{
    int64_t latest = 0;

    for (uint32_t i = 0; i < process_count; i++)
        latest = NG_MAX(latest, alignment->moments_ns[i]);
    for (uint32_t i = 0; i < process_count; i++)
        if (alignment->moments_ns[i] <= 0)
            alignment->moments_ns[i] = latest;
}

/* No rank can finish it before all have joined, and none has much left to do after that. */
static bool ends_together(const struct ng_view_record *record)
{
    uint32_t op = record->signature.op;

    return record->state == NG_RECORD_COMPLETED && record->completed_age_ns > 0 &&
           (op == NG_OP_AllReduce || op == NG_OP_AllGather || op == NG_OP_ReduceScatter ||
            op == NG_OP_AlltoAll || op == NG_OP_AllToAllv || op == NG_OP_AllReduceWithBias);
}

static uint32_t slot_of_host(struct aligning *aligning, uint32_t host)
{
    if (!aligning->slots[host]) {
        aligning->hosts[aligning->host_count] = host;
        memset(&aligning->ends[(size_t)aligning->host_count * SEQS], 0, SEQS * sizeof(int64_t));
        aligning->slots[host] = ++aligning->host_count;
    }
    return aligning->slots[host] - 1;
}

/* Reads when the newest collectives of a group ended on each host: the earliest of its ranks is
 * closest to the true end. */
static void read_ends(struct aligning *aligning, const struct ng_view_member *members,
                      uint32_t count)
{
    for (uint32_t i = 0; i < aligning->host_count; i++)
        aligning->slots[aligning->hosts[i]] = 0;
    aligning->host_count = 0;
    aligning->newest = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = members[i].record_count; k > 0; k--)
            if (ends_together(&members[i].records[k - 1])) {
                aligning->newest = NG_MAX(aligning->newest, members[i].records[k - 1].coll_seq);
                break;
            }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t process = members[i].process;
        uint32_t slot = slot_of_host(aligning, aligning->alignment->host_of[process]);
        for (uint32_t k = members[i].record_count; k > 0; k--) {
            const struct ng_view_record *record = &members[i].records[k - 1];
            if (!ends_together(record) || record->coll_seq > aligning->newest)
                continue;
            if (aligning->newest - record->coll_seq >= SEQS)
                break;
            int64_t end =
                aligning->alignment->moments_ns[process] - within(record->completed_age_ns);
            int64_t *first = &aligning->ends[(size_t)slot * SEQS + record->coll_seq % SEQS];
            if (*first == 0 || end < *first)
                *first = end;
        }
    }
}

/* The host of a group with which the others are compared: one whose own offset is known. */
static uint32_t find_fixed(const struct aligning *aligning)
{
    for (uint32_t i = 0; i < aligning->host_count; i++)
        if (aligning->fixed[aligning->hosts[i]])
            return i;
    return UINT32_MAX;
}

static void take_samples(struct aligning *aligning)
{
    uint32_t reference = find_fixed(aligning);

    if (reference == UINT32_MAX)
        return;
    const struct ng_clock_sync_host *known =
        &aligning->alignment->hosts[aligning->hosts[reference]];
    int64_t offset = known->applied ? known->offset_ns : 0;
    for (uint32_t i = 0; i < aligning->host_count; i++) {
        uint32_t host = aligning->hosts[i];
        for (uint32_t k = 0; k < SEQS && !aligning->fixed[host]; k++) {
            int64_t there = aligning->ends[(size_t)reference * SEQS + k];
            int64_t here = aligning->ends[(size_t)i * SEQS + k];
            if (there && here && aligning->counts[host] < SAMPLES)
                aligning->samples[(size_t)host * SAMPLES + aligning->counts[host]++] =
                    there + offset - here;
        }
    }
}

/* Sorts the values. They are few, so insertion sort is enough; qsort may call malloc. */
static int64_t median(int64_t *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        int64_t value = values[i];
        uint32_t at = i;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
    return values[count / 2];
}

static bool estimate(struct aligning *aligning, uint32_t index)
{
    struct ng_clock_sync_host *host = &aligning->alignment->hosts[index];
    int64_t *samples = &aligning->samples[(size_t)index * SAMPLES];
    uint32_t count = aligning->counts[index];

    if (aligning->fixed[index] || count < SAMPLES_LEAST)
        return false;
    host->samples = count;
    host->offset_ns = median(samples, count);
    for (uint32_t i = 0; i < count; i++)
        samples[i] = llabs(samples[i] - host->offset_ns);
    host->scatter_ns = median(samples, count);
    host->applied = llabs(host->offset_ns) > 2 * host->scatter_ns + NOISE_NS;
    aligning->fixed[index] = true;
    return true;
}

/* Does the group have both hosts with a known offset and hosts without? */
static bool is_of_use(const struct aligning *aligning, const struct ng_view_member *members,
                      uint32_t count)
{
    bool done = false, open = false;

    for (uint32_t i = 0; i < count && !(done && open); i++) {
        bool fixed = aligning->fixed[aligning->alignment->host_of[members[i].process]];
        done |= fixed;
        open |= !fixed;
    }
    return done && open;
}

/* Starts at the host with the most processes, continues with those that share a group with it, and
 * so on. */
static void estimate_all(struct aligning *aligning)
{
    const struct ng_view *view = aligning->view;
    struct ng_clock_offsets *alignment = aligning->alignment;
    uint32_t reference = 0;

    for (uint32_t i = 1; i < alignment->host_count; i++)
        if (alignment->hosts[i].processes > alignment->hosts[reference].processes)
            reference = i;
    aligning->fixed[reference] = true;
    for (int round = 0; round < ROUNDS; round++) {
        memset(aligning->counts, 0, alignment->host_count * sizeof(*aligning->counts));
        for (uint32_t first = 0, end; first < view->member_count; first = end) {
            for (end = first + 1; end < view->member_count &&
                                  view->members[end].group == view->members[first].group;)
                end++;
            if (!is_of_use(aligning, &view->members[first], end - first))
                continue;
            read_ends(aligning, &view->members[first], end - first);
            take_samples(aligning);
        }
        bool any = false;
        for (uint32_t i = 0; i < alignment->host_count; i++)
            any |= estimate(aligning, i);
        if (!any)
            return;
    }
}

int ng_clock_sync(const struct ng_view *view, struct ng_arena *arena,
                  struct ng_clock_offsets *ret_alignment)
{
    struct ng_clock_offsets alignment = {0};
    size_t processes = (size_t)view->process_count + 1;

    alignment.hosts = ng_arena_alloc(arena, processes * sizeof(*alignment.hosts));
    alignment.host_of = ng_arena_alloc(arena, processes * sizeof(*alignment.host_of));
    alignment.moments_ns = ng_arena_alloc(arena, processes * sizeof(*alignment.moments_ns));
    if (!alignment.hosts || !alignment.host_of || !alignment.moments_ns)
        return -ENOMEM;
    int error = find_hosts(view, arena, &alignment);
    if (error)
        return error;
    guess_moments(&alignment, view->process_count);
    if (alignment.host_count > 1) {
        struct ng_arena scratch = {0};
        size_t hosts = alignment.host_count;
        struct aligning aligning = {
            .view = view,
            .alignment = &alignment,
            .fixed = ng_arena_alloc(&scratch, hosts * sizeof(bool)),
            .samples = ng_arena_alloc(&scratch, hosts * SAMPLES * sizeof(int64_t)),
            .counts = ng_arena_alloc(&scratch, hosts * sizeof(uint32_t)),
            .slots = ng_arena_alloc(&scratch, hosts * sizeof(uint32_t)),
            .hosts = ng_arena_alloc(&scratch, hosts * sizeof(uint32_t)),
            .ends = ng_arena_alloc(&scratch, hosts * SEQS * sizeof(int64_t)),
        };
        if (aligning.fixed && aligning.samples && aligning.counts && aligning.slots &&
            aligning.hosts && aligning.ends)
            estimate_all(&aligning);
        else
            error = -ENOMEM;
        ng_arena_reset(&scratch);
    }
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_clock_sync_host *host = &alignment.hosts[alignment.host_of[i]];
        if (host->applied)
            alignment.moments_ns[i] += host->offset_ns;
    }
    if (!error)
        *ret_alignment = alignment;
    return error;
}
