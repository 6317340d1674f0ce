/*
 * Blobs of a job, read together.
 *
 * Must never trust what a blob says about its own length or meaning: store/wire/progress_read.c
 * checks it.
 */
#include "store/publish/peer_progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "store/kv/kv.h"
#include "store/wire/incarnation.h"
#include "store/wire/progress.h"

#define SLOTS_AT_ONCE 256
#define LABELS_MAX    64
#define KEY_BYTES     32
#define TOGETHER_MAX                                                                               \
    (256u << 20) /* bytes of all processes: about 20,000 of them at the size used for a verdict */
#define LOST_AGE_MAX_NS (24 * 3600 * NG_S) /* beyond it, clocks differ */

struct fetching {
    struct ng_arena *arena;
    struct ng_peer_progress *blobs; /* first slot of this chunk */
    size_t *together;               /* total bytes so far */
    bool no_memory;
};

/* Even indices are blobs, odd ones signs of life. */
static void take(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct fetching *fetching = context;
    struct ng_peer_progress *blob = &fetching->blobs[index / 2];
    char text[48], *rest;

    if (!value)
        return;
    if (index % 2) {
        blob->lives = true;
        ng_kv_text(value, text, sizeof(text));
        int64_t unchanged_ms = strtoll(text, &rest, 10);
        blob->unchanged_ns =
            unchanged_ms > 0 && unchanged_ms < LOST_AGE_MAX_NS / NG_MS ? unchanged_ms * NG_MS : 0;
        blob->question = strtoull(rest, NULL, 16);
        return;
    }
    if (value->bytes > NG_PROGRESS_BYTES_MAX)
        return; /* not ours */
    *fetching->together += value->bytes;
    void *copy = *fetching->together > TOGETHER_MAX
                     ? NULL
                     : ng_arena_alloc(fetching->arena, value->bytes + 1);
    if (!copy) {
        fetching->no_memory = true;
        return;
    }
    memcpy(copy, value->data, value->bytes);
    blob->data = copy;
    blob->bytes = value->bytes;
}

/* Incarnations are few: each label is queried once. */
static int find_roots(struct ng_kv *kv, int64_t deadline_mono_ns, struct ng_peer_progress *blobs,
                      uint32_t count)
{
    struct {
        uint64_t label, root;
    } known[LABELS_MAX];
    struct ng_progress_head head;
    unsigned used = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        unsigned k = 0;
        while (k < used && known[k].label != head.label)
            k++;
        if (k == used) {
            if (used == LABELS_MAX)
                continue; /* its root stays unknown: it belongs to no incarnation */
            known[k].label = known[k].root = head.label;
            int error = head.label
                            ? ng_incarnation_root(kv, head.label, deadline_mono_ns, &known[k].root)
                            : 0;
            if (error)
                return error;
            used++;
        }
        blobs[i].root = known[k].root;
    }
    return 0;
}

int ng_peer_progress_fetch(struct ng_kv *kv, int64_t deadline_mono_ns, struct ng_arena *arena,
                           struct ng_peer_progress **ret_blobs, uint32_t *ret_count)
{
    static const struct ng_peer_progress nothing;
    char(*names)[KEY_BYTES];
    const char **keys;
    struct ng_kv_bytes value;
    char text[24];
    uint32_t count = 0;
    size_t together = 0;

    *ret_blobs = NULL;
    *ret_count = 0;
    int error = ng_kv_get(kv, "n", deadline_mono_ns, &value);
    if (error)
        return error == -ENOENT ? 0 : error;
    ng_kv_text(&value, text, sizeof(text));
    uint64_t slots = strtoull(text, NULL, 10);
    if (slots > NG_PEER_PROGRESS_SLOTS_MAX)
        return -EPROTO;
    struct ng_peer_progress *blobs = ng_arena_alloc(arena, (slots + 1) * sizeof(*blobs));
    names = ng_arena_alloc(arena, 2 * SLOTS_AT_ONCE * sizeof(*names));
    keys = ng_arena_alloc(arena, 2 * SLOTS_AT_ONCE * sizeof(*keys));
    if (!blobs || !names || !keys)
        return -ENOMEM;
    for (uint64_t first = 1; first <= slots && !error; first += SLOTS_AT_ONCE) {
        uint64_t part = slots - first + 1 < SLOTS_AT_ONCE ? slots - first + 1 : SLOTS_AT_ONCE;
        struct fetching fetching = {.arena = arena, .blobs = &blobs[count], .together = &together};
        for (uint64_t i = 0; i < part; i++) {
            blobs[count + i] = nothing;
            blobs[count + i].slot = first + i;
            snprintf(names[2 * i], KEY_BYTES, "p/%" PRIu64, first + i);
            snprintf(names[2 * i + 1], KEY_BYTES, "l/%" PRIu64, first + i);
            keys[2 * i] = names[2 * i];
            keys[2 * i + 1] = names[2 * i + 1];
        }
        error = ng_kv_get_many(kv, keys, 2 * part, deadline_mono_ns, take, &fetching);
        if (fetching.no_memory)
            error = -ENOMEM;
        /* Slots of processes that ended long ago are empty. */
        uint32_t kept = 0;
        for (uint64_t i = 0; i < part; i++)
            if (blobs[count + i].data)
                blobs[count + kept++] = blobs[count + i];
        count += kept;
    }
    if (!error)
        error = find_roots(kv, deadline_mono_ns, blobs, count);
    *ret_blobs = blobs;
    *ret_count = count;
    return error;
}

static int add_one(const struct ng_peer_progress *blob, const struct ng_progress_head *head,
                   int64_t ttl_ns, struct ng_view *view)
{
    uint32_t index;

    int error = ng_progress_decode(view, blob->data, blob->bytes, &index);
    if (error == -ENOMEM)
        return error;
    if (error) {
        ng_view_note(view, "slot %" PRIu64 " of the board: %s", blob->slot,
                     error == -EPROTO ? "of another version of ncclguard" : "damaged");
        return 0;
    }
    struct ng_view_process *process = &view->processes[index];
    int64_t since_ns = ng_clock_unix_ns() - head->written_unix_ns;
    snprintf(process->source, sizeof(process->source), "slot %" PRIu64 " of the board", blob->slot);
    process->self = false;
    if (process->life == NG_LIFE_RUNNING && !blob->lives) {
        process->life = NG_LIFE_LOST;
        process->life_age_ns = since_ns > ttl_ns && since_ns < LOST_AGE_MAX_NS ? since_ns : ttl_ns;
    } else if (process->life == NG_LIFE_RUNNING) {
        int64_t old_ns = blob->unchanged_ns;
        if (blob->quiet) {
            if (since_ns > old_ns && since_ns < LOST_AGE_MAX_NS)
                old_ns = since_ns;
            process->quiet_ns = old_ns > 0 ? old_ns : 1;
        }
        ng_progress_age(view, index, old_ns);
    } else if (since_ns > 0 && since_ns < LOST_AGE_MAX_NS) {
        process->life_age_ns += since_ns;
        if (process->alive_age_ns > 0)
            process->alive_age_ns += since_ns;
    }
    return 0;
}

static bool has_uid(const struct ng_view *view, uint64_t uid)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].uid == uid)
            return true;
    return false;
}

static bool has_rank(const struct ng_view *view, int rank)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].rank == rank)
            return true;
    return false;
}

struct seen {
    uint64_t uid; /* 0 none */
    int64_t written_unix_ns;
    uint32_t blob;
    bool lives, ended;
};

/*
 * A process may be in two slots: because it lost the first, or because it ended so early that its
 * neighbour found no slot to report that in. A report of its end is final, whatever signs of life
 * remain; otherwise its newest report counts, from the slot with a sign of life. Returns for each
 * blob whether it counts, in the view's arena; NULL without memory.
 */
static const bool *choose(const struct ng_peer_progress *blobs, uint32_t count,
                          struct ng_arena *arena)
{
    struct ng_progress_head head;
    uint32_t room = 16;

    while (room < 2 * (uint64_t)count)
        room *= 2;
    struct seen *seen = ng_arena_alloc(arena, room * sizeof(*seen));
    bool *counts = ng_arena_alloc(arena, count + 1);
    if (!seen || !counts)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        counts[i] = true;
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0 || !head.uid)
            continue;
        uint32_t at = (uint32_t)((head.uid * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (room - 1);
        while (seen[at].uid && seen[at].uid != head.uid)
            at = (at + 1) & (room - 1);
        bool ended = ng_life_has_ended(head.life);
        if (seen[at].uid) {
            bool newer = ended != seen[at].ended ? ended
                         : blobs[i].lives != seen[at].lives
                             ? blobs[i].lives
                             : head.written_unix_ns >= seen[at].written_unix_ns;
            counts[newer ? seen[at].blob : i] = false;
            if (!newer)
                continue;
        }
        seen[at] = (struct seen){.uid = head.uid,
                                 .written_unix_ns = head.written_unix_ns,
                                 .blob = i,
                                 .lives = blobs[i].lives,
                                 .ended = ended};
    }
    return counts;
}

/* ---- Runs that no launcher has identified ---- */

struct by_hand {
    uint64_t run; /* the root of its label, else its uid */
    uint64_t uid;
    int rank, world_size;
    bool lives; /* and has a rank */
};

struct by_hand_list {
    struct by_hand *processes; /* NULL: no memory */
    uint32_t count;
    uint32_t *seen; /* of all_fit: by rank, index + 1; `room` of them, a power of two */
    uint32_t room;
};

static struct by_hand_list list_by_hand(const struct ng_peer_progress *blobs, uint32_t count,
                                        struct ng_arena *arena)
{
    struct by_hand_list list = {.room = 16};
    struct ng_progress_head head;

    while (list.room < 2 * (uint64_t)count)
        list.room *= 2;
    list.seen = ng_arena_alloc(arena, list.room * sizeof(*list.seen));
    if (list.seen)
        list.processes = ng_arena_alloc(arena, (count + 1) * sizeof(*list.processes));
    for (uint32_t i = 0; list.processes && i < count; i++)
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) == 0 && !head.launch_run &&
            head.uid)
            list.processes[list.count++] = (struct by_hand){
                .run = blobs[i].root ? blobs[i].root : head.uid,
                .uid = head.uid,
                .rank = head.rank,
                .world_size = head.world_size,
                .lives = blobs[i].lives && head.life == NG_LIFE_RUNNING && head.rank >= 0};
    return list;
}

/* The run of a process; 0: it is not there. */
static uint64_t run_of(const struct by_hand_list *list, uint64_t uid)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->processes[i].uid == uid)
            return list->processes[i].run;
    return 0;
}

static bool has_ranks(const struct by_hand_list *list, uint64_t run)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->processes[i].run == run && list->processes[i].rank < 0)
            return false;
    return true;
}

static bool fit_together(const struct by_hand *a, const struct by_hand *b)
{
    return a->run == b->run || a->uid == b->uid ||
           (a->rank != b->rank && a->world_size == b->world_size);
}

/* Can the two runs be one, by the ranks of their processes? */
static bool can_be_one(const struct by_hand_list *list, uint64_t one, uint64_t other)
{
    for (uint32_t i = 0; i < list->count; i++)
        for (uint32_t k = 0; list->processes[i].run == one && k < list->count; k++)
            if (list->processes[k].run == other &&
                !fit_together(&list->processes[i], &list->processes[k]))
                return false;
    return true;
}

/* Do all live processes fit into one run? */
static bool all_fit(const struct by_hand_list *list)
{
    const struct by_hand *first = NULL;

    memset(list->seen, 0, list->room * sizeof(*list->seen));
    for (uint32_t i = 0; i < list->count; i++) {
        const struct by_hand *process = &list->processes[i], *other = NULL;
        uint32_t at = ((uint32_t)process->rank * UINT32_C(0x9e3779b1)) & (list->room - 1);
        if (!process->lives)
            continue;
        first = first ? first : process;
        for (; list->seen[at]; at = (at + 1) & (list->room - 1)) {
            other = &list->processes[list->seen[at] - 1];
            if (other->rank == process->rank)
                break;
        }
        if (process->world_size != first->world_size ||
            (list->seen[at] && !fit_together(process, other)))
            return false;
        list->seen[at] = i + 1;
    }
    return true;
}

/* Can they only be one: do they fit all live runs that can be the same as either, and these each
 * other? */
static bool must_be_one(struct by_hand_list *list, uint64_t one, uint64_t other)
{
    for (uint32_t i = 0; i < list->count; i++)
        list->processes[i].lives |=
            list->processes[i].run == one || list->processes[i].run == other;
    if (all_fit(list))
        return true;
    for (uint32_t i = 0; i < list->count; i++)
        list->processes[i].lives =
            list->processes[i].lives && (can_be_one(list, list->processes[i].run, one) ||
                                         can_be_one(list, list->processes[i].run, other));
    return all_fit(list);
}

/* ---- Views ---- */

/* What the launcher of this run says of it. `near`: processes of the run; a tool knows none. 0:
 * nothing. */
static uint64_t launch_run_of(const struct ng_peer_progress *blobs, uint32_t count, uint64_t root,
                              const struct ng_view *near)
{
    struct ng_progress_head head;

    for (uint32_t i = 0; i < count; i++)
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) == 0 &&
            ((blobs[i].root == root && (root || !near->process_count)) ||
             (head.uid && has_uid(near, head.uid))))
            return head.launch_run;
    return 0;
}

int ng_peer_progress_add(const struct ng_peer_progress *blobs, uint32_t count, uint64_t root,
                         int64_t ttl_ns, struct ng_view *view)
{
    struct ng_progress_head head;
    const bool *counts = choose(blobs, count, &view->arena);
    /* Those already in the view are few: the processes of one host. */
    struct ng_view near = {.processes = view->processes, .process_count = view->process_count};
    uint64_t launch_run = launch_run_of(blobs, count, root, &near);
    struct by_hand_list by_hand = list_by_hand(blobs, count, &view->arena);

    if (!counts || !by_hand.processes)
        return -ENOMEM;
    bool fit = launch_run || all_fit(&by_hand);
    for (int strangers = 0; strangers < 2; strangers++)
        for (uint32_t i = 0; i < count; i++) {
            int error = ng_progress_peek(blobs[i].data, blobs[i].bytes, &head);
            if (error) {
                if (!strangers)
                    ng_view_note(view, "slot %" PRIu64 " of the board: %s", blobs[i].slot,
                                 error == -EPROTO ? "of another version of ncclguard" : "damaged");
                continue;
            }
            bool stranger = blobs[i].root != root || (!root && head.launch_run != launch_run);
            if (!counts[i] || stranger != (strangers == 1) ||
                (head.uid && has_uid(&near, head.uid)))
                continue;
            if (stranger &&
                (!fit || head.launch_run != launch_run || !blobs[i].lives ||
                 head.life != NG_LIFE_RUNNING || head.rank < 0 || has_rank(view, head.rank)))
                continue;
            error = add_one(&blobs[i], &head, ttl_ns, view);
            if (error)
                return error;
        }
    return 0;
}

static bool is_of(const struct ng_peer_progress *blob, const uint64_t *roots, uint32_t root_count)
{
    for (uint32_t i = 0; i < root_count; i++)
        if (blob->root == roots[i])
            return true;
    return false;
}

int ng_peer_progress_may_be_one(const struct ng_peer_progress *blobs, uint32_t count,
                                const uint64_t *roots, uint32_t root_count, struct ng_arena *arena)
{
    struct {
        uint64_t uid;
        int rank;
    } *seen = ng_arena_alloc(arena, (count + 1) * sizeof(*seen));
    struct ng_progress_head head;
    uint64_t launch_run = 0;
    uint32_t used = 0;

    if (!seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_of(&blobs[i], roots, root_count) ||
            ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        if (used && head.launch_run != launch_run)
            return -EPERM;
        launch_run = head.launch_run;
        if (head.rank < 0)
            return -EPERM;
        for (uint32_t k = 0; k < used; k++)
            if (seen[k].rank == head.rank && seen[k].uid != head.uid)
                return -EPERM;
        seen[used].uid = head.uid;
        seen[used++].rank = head.rank;
    }
    return 0;
}

int ng_peer_progress_whose(const struct ng_peer_progress *blobs, uint32_t count, uint64_t own_uid,
                           uint64_t uid, struct ng_arena *arena, enum ng_peer_whose *ret_whose)
{
    struct by_hand_list list = list_by_hand(blobs, count, arena);

    if (!list.processes)
        return -ENOMEM;
    uint64_t own = run_of(&list, own_uid), run = run_of(&list, uid);
    if (!own || !run)
        *ret_whose = NG_PEER_UNCLEAR; /* it is known in a moment */
    else if (own == run || !has_ranks(&list, own) || !has_ranks(&list, run))
        *ret_whose = NG_PEER_OF_OURS; /* without ranks nothing tells */
    else if (!can_be_one(&list, own, run))
        *ret_whose = NG_PEER_OF_ANOTHER;
    else
        *ret_whose = must_be_one(&list, own, run) ? NG_PEER_OF_OURS : NG_PEER_UNCLEAR;
    return 0;
}

/* The smallest run of the live processes by hand, if these are one. 0: there are several, or
 * none. */
static uint64_t only_by_hand(const struct by_hand_list *list)
{
    uint64_t only = 0;

    if (!all_fit(list))
        return 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->processes[i].lives && (!only || list->processes[i].run < only))
            only = list->processes[i].run;
    return only;
}

const uint64_t *ng_peer_progress_runs(const struct ng_peer_progress *blobs, uint32_t count,
                                      struct ng_arena *arena)
{
    uint64_t *runs = ng_arena_alloc(arena, (count + 1) * sizeof(*runs));
    struct by_hand_list list = list_by_hand(blobs, count, arena);
    struct ng_progress_head head;

    if (!runs || !list.processes)
        return NULL;
    uint64_t only = only_by_hand(&list);
    for (uint32_t i = 0; i < count; i++) {
        runs[i] = blobs[i].root ? blobs[i].root : NG_PEER_RUN_OPEN;
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        if (head.launch_run)
            runs[i] = head.launch_run;
        else
            for (uint32_t k = 0; only && k < list.count; k++)
                if (list.processes[k].lives &&
                    list.processes[k].run == (blobs[i].root ? blobs[i].root : head.uid))
                    runs[i] = only;
    }
    return runs;
}
