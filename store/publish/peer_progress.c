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
#include "core/util/macros.h"
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
    char text[NG_SIGN_BYTES], *rest;

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
    error = error ?: find_roots(kv, deadline_mono_ns, blobs, count);
    *ret_blobs = blobs;
    *ret_count = count;
    return error;
}

bool ng_peer_progress_is_living(const struct ng_peer_progress *blob)
{
    struct ng_progress_head head;

    return blob->lives && ng_progress_peek(blob->data, blob->bytes, &head) == 0 &&
           head.process.life == NG_LIFE_RUNNING;
}

/* ---- Runs ---- */

#define NOBODY UINT32_MAX

/* By index of its blob. */
struct process {
    const struct ng_peer_progress *blob;
    int error;                      /* of a blob that cannot be read: nothing else is known */
    uint64_t uid, root, launch_run; /* 0 none */
    int64_t written_unix_ns;
    int rank, world_size;
    bool lives, ended, has_rank;
    bool outdated;  /* another blob counts for it */
    bool counts;    /* for all_fit */
    uint32_t run;   /* the first process of its run; what follows is only valid there */
    bool launched;  /* a launcher says something of one of its processes */
    bool ranked;    /* all its processes have ranks */
    unsigned unfit; /* bit 1, 2: it cannot be the same as the run in question */
};

struct run_list {
    struct process *processes; /* NULL: no memory */
    uint32_t count;
    uint32_t *seen; /* a hash table of indices + 1; `room` of them, a power of two */
    uint32_t room;
};

static uint32_t first_of_run(struct run_list *list, uint32_t i)
{
    while (list->processes[i].run != i)
        i = list->processes[i].run = list->processes[list->processes[i].run].run;
    return i;
}

static void put_together(struct run_list *list, uint32_t one, uint32_t other)
{
    one = first_of_run(list, one);
    other = first_of_run(list, other);
    list->processes[one > other ? one : other].run = one > other ? other : one;
}

static void find_facts(struct run_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct process *first = &list->processes[first_of_run(list, i)];
        if (first == &list->processes[i])
            first->ranked = true;
        list->processes[i].run = first->run;
        first->launched |= list->processes[i].launch_run != 0;
        first->ranked &= list->processes[i].has_rank;
    }
}

enum link { BY_UID, BY_ROOT, BY_LAUNCHER, LINKS };

static uint64_t link_of(const struct process *process, enum link link)
{
    return link == BY_UID ? process->uid : link == BY_ROOT ? process->root : process->launch_run;
}

/* The place of a link in `seen`: that of a process with this one, else an empty one. */
static uint32_t place_of_link(const struct run_list *list, enum link link, uint64_t key)
{
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (list->room - 1);

    while (list->seen[at] && link_of(&list->processes[list->seen[at] - 1], link) != key)
        at = (at + 1) & (list->room - 1);
    return at;
}

static void forget_seen(struct run_list *list)
{
    memset(list->seen, 0, list->room * sizeof(*list->seen));
}

static void link_processes(struct run_list *list, enum link link)
{
    forget_seen(list);
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t key = link_of(&list->processes[i], link);
        uint32_t at = place_of_link(list, link, key);
        if (key && list->seen[at])
            put_together(list, i, list->seen[at] - 1);
        else if (key)
            list->seen[at] = i + 1;
    }
}

/*
 * Runs by what holds for good: a communicator in common, and the same word of their launchers.
 * Words that differ prove nothing: one run may have a step of the batch system for each host, or
 * different names of one master. A rank of a world of one says nothing either: each process of a
 * cluster framework that such a step started has it.
 */
static struct run_list list_runs(const struct ng_peer_progress *blobs, uint32_t count,
                                 struct ng_arena *arena)
{
    struct run_list list = {.room = 16, .count = count};

    while (list.room < 2 * (uint64_t)count)
        list.room *= 2;
    list.seen = ng_arena_alloc(arena, list.room * sizeof(*list.seen));
    if (list.seen)
        list.processes = ng_arena_alloc(arena, (count + 1) * sizeof(*list.processes));
    if (!list.processes)
        return list;
    for (uint32_t i = 0; i < count; i++) {
        struct ng_progress_head head = {.process.rank = -1};
        int error = ng_progress_peek(blobs[i].data, blobs[i].bytes, &head);
        bool running = !error && head.process.life == NG_LIFE_RUNNING;
        list.processes[i] =
            (struct process){.blob = &blobs[i],
                             .error = error,
                             .run = i,
                             .root = blobs[i].root,
                             .uid = head.process.uid,
                             .launch_run = head.launch_run,
                             .written_unix_ns = head.written_unix_ns,
                             .rank = head.process.rank,
                             .world_size = head.process.world_size,
                             .has_rank = head.process.rank >= 0 && head.process.world_size != 1,
                             .lives = blobs[i].lives && running,
                             .ended = ng_life_has_ended(head.process.life)};
    }
    for (enum link link = 0; link < LINKS; link++)
        link_processes(&list, link);
    find_facts(&list);
    return list;
}

static uint32_t find_uid(const struct run_list *list, uint64_t uid)
{
    for (uint32_t i = 0; uid && i < list->count; i++)
        if (list->processes[i].uid == uid)
            return i;
    return NOBODY;
}

/* The place of a rank in `seen`: that of a process with this rank, else an empty one. */
static uint32_t place_of_rank(const struct run_list *list, int rank)
{
    uint32_t at = ((uint32_t)rank * UINT32_C(0x9e3779b1)) & (list->room - 1);

    while (list->seen[at] && list->processes[list->seen[at] - 1].rank != rank)
        at = (at + 1) & (list->room - 1);
    return at;
}

/* Do all processes that count fit into one run, by their ranks? */
static bool all_fit(struct run_list *list)
{
    const struct process *first = NULL;

    forget_seen(list);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct process *process = &list->processes[i];
        if (!process->counts)
            continue;
        first = first ? first : process;
        uint32_t at = place_of_rank(list, process->rank);
        if ((process->world_size != first->world_size && process->run != first->run) ||
            (list->seen[at] && list->processes[list->seen[at] - 1].run != process->run))
            return false;
        list->seen[at] = i + 1;
    }
    return true;
}

/* Mark runs that cannot be the same as `run`: all processes count, even if dead by now. */
static void mark_unfit(struct run_list *list, uint32_t run, unsigned bit)
{
    forget_seen(list);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->processes[i].run == run)
            list->seen[place_of_rank(list, list->processes[i].rank)] = i + 1;
    NG_EACH (process, list->processes, list->count)
        if (process->run != run && (process->world_size != list->processes[run].world_size ||
                                    list->seen[place_of_rank(list, process->rank)]))
            list->processes[process->run].unfit |= bit;
}

/* Live processes that count; `by_hand`: only of runs that no launcher has identified. */
static bool all_live_fit(struct run_list *list, bool by_hand)
{
    NG_EACH (process, list->processes, list->count) {
        process->counts = process->lives && process->has_rank &&
                          !(by_hand && list->processes[process->run].launched);
    }
    return all_fit(list);
}

/* As long as no rank is there twice, all live processes are one run. Else those may be one that no
 * launcher has identified. */
static void unite_what_fits(struct run_list *list)
{
    uint32_t first = NOBODY;
    bool all = all_live_fit(list, false);

    if (!all && !all_live_fit(list, true))
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        if (!(all ? list->processes[i].lives : list->processes[i].counts))
            continue;
        first = first == NOBODY ? i : first;
        put_together(list, first, i);
    }
    find_facts(list);
}

/* ---- Views ---- */

static bool has_uid(const struct ng_view *view, uint64_t uid)
{
    return NG_ANY(process, view->processes, view->process_count, process->uid == uid);
}

static bool has_rank(const struct ng_view *view, int rank)
{
    return NG_ANY(process, view->processes, view->process_count, process->rank == rank);
}

static void note_unusable(struct ng_view *view, const struct process *process, int error)
{
    ng_view_note(view, "slot %" PRIu64 " of the board: %s", process->blob->slot,
                 error == -EPROTO ? "of another version of ncclguard" : "damaged");
}

static int add_one(const struct process *added, int64_t ttl_ns, struct ng_view *view)
{
    const struct ng_peer_progress *blob = added->blob;
    uint32_t index;

    int error = ng_progress_decode(view, blob->data, blob->bytes, &index);
    if (error == -ENOMEM)
        return error;
    if (error) {
        note_unusable(view, added, error);
        return 0;
    }
    struct ng_view_process *process = &view->processes[index];
    int64_t since_ns = ng_clock_unix_ns() - added->written_unix_ns;
    snprintf(process->source, sizeof(process->source), "slot %" PRIu64 " of the board", blob->slot);
    process->self = false;
    process->run_word = added->launch_run ? 0 : added->uid;
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

/*
 * A process may be in two slots: because it lost the first, or because it ended so early that its
 * neighbour found no slot to report that in. A report of its end is final, whatever signs of life
 * remain; otherwise its newest report counts, from the slot with a sign of life. Marks those that
 * do not count.
 */
static void mark_outdated(struct run_list *list)
{
    forget_seen(list);
    for (uint32_t i = 0; i < list->count; i++) {
        struct process *process = &list->processes[i], *other;
        if (!process->uid)
            continue;
        uint32_t at = place_of_link(list, BY_UID, process->uid);
        if (list->seen[at]) {
            other = &list->processes[list->seen[at] - 1];
            bool newer = process->ended != other->ended ? process->ended
                         : process->blob->lives != other->blob->lives
                             ? process->blob->lives
                             : process->written_unix_ns >= other->written_unix_ns;
            (newer ? other : process)->outdated = true;
            if (!newer)
                continue;
        }
        list->seen[at] = i + 1;
    }
}

/* A process of this run, and all of it in one run. `near`: processes of the run; a tool knows
 * none. */
static uint32_t find_own(struct run_list *list, uint64_t root, const struct ng_view *near)
{
    uint32_t own = NOBODY;

    for (uint32_t i = 0; i < list->count; i++) {
        const struct process *process = &list->processes[i];
        if (!(process->root == root && (root || !near->process_count)) &&
            !(process->uid && has_uid(near, process->uid)))
            continue;
        if (own == NOBODY)
            own = i;
        else if (root || near->process_count)
            put_together(list, own, i);
    }
    find_facts(list);
    return own;
}

int ng_peer_progress_add(const struct ng_peer_progress *blobs, uint32_t count, uint64_t root,
                         int64_t ttl_ns, struct ng_view *view)
{
    /* Those already in the view are few: the processes of one host. */
    struct ng_view near = {.processes = view->processes, .process_count = view->process_count};
    struct run_list list = list_runs(blobs, count, &view->arena);

    if (!list.processes)
        return -ENOMEM;
    mark_outdated(&list);
    uint32_t own = find_own(&list, root, &near);
    uint64_t launch_run = own == NOBODY ? 0 : list.processes[own].launch_run;
    unite_what_fits(&list);
    bool fit = own != NOBODY || all_live_fit(&list, false);
    for (int strangers = 0; strangers < 2; strangers++)
        for (uint32_t i = 0; i < count; i++) {
            const struct process *process = &list.processes[i];
            bool stranger = process->root != root || (!root && process->launch_run != launch_run);
            if (process->error && !strangers)
                note_unusable(view, process, process->error);
            if (process->error || process->outdated || stranger != (strangers == 1) ||
                (process->uid && has_uid(&near, process->uid)))
                continue;
            if (stranger && (!fit || (own != NOBODY && process->run != list.processes[own].run) ||
                             !process->lives || process->rank < 0 || has_rank(view, process->rank)))
                continue;
            int error = add_one(process, ttl_ns, view);
            if (error)
                return error;
        }
    return 0;
}

static bool is_of(const struct ng_peer_progress *blob, const uint64_t *roots, uint32_t root_count)
{
    return NG_ANY(one, roots, root_count, blob->root == *one);
}

int ng_peer_progress_may_be_one(const struct ng_peer_progress *blobs, uint32_t count,
                                const uint64_t *roots, uint32_t root_count, struct ng_arena *arena)
{
    struct {
        uint64_t uid;
        int rank;
    } *seen = ng_arena_alloc(arena, (count + 1) * sizeof(*seen));
    struct ng_progress_head head;
    uint32_t used = 0;

    if (!seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_of(&blobs[i], roots, root_count) ||
            ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        if (head.process.rank < 0)
            return -EPERM;
        if (NG_ANY(one, seen, used, one->rank == head.process.rank && one->uid != head.process.uid))
            return -EPERM;
        seen[used].uid = head.process.uid;
        seen[used++].rank = head.process.rank;
    }
    return 0;
}

/* Can they only be one: do they fit all live runs by hand that can be the same as either, and these
 * each other? */
static bool must_be_one(struct run_list *list, uint32_t one, uint32_t other)
{
    all_live_fit(list, true);
    for (uint32_t i = 0; i < list->count; i++)
        list->processes[i].counts |=
            list->processes[i].run == one || list->processes[i].run == other;
    if (all_fit(list))
        return true;
    mark_unfit(list, other, 2);
    for (uint32_t i = 0; i < list->count; i++)
        list->processes[i].counts &= list->processes[list->processes[i].run].unfit != 3;
    return all_fit(list);
}

int ng_peer_progress_whose(const struct ng_peer_progress *blobs, uint32_t count, uint64_t own_uid,
                           uint64_t uid, struct ng_arena *arena, enum ng_peer_whose *ret_whose)
{
    struct run_list list = list_runs(blobs, count, arena);

    if (!list.processes)
        return -ENOMEM;
    uint32_t own = find_uid(&list, own_uid), run = find_uid(&list, uid);
    *ret_whose = NG_PEER_UNCLEAR; /* it is known in a moment */
    if (own == NOBODY || run == NOBODY)
        return 0;
    own = list.processes[own].run;
    run = list.processes[run].run;
    mark_unfit(&list, own, 1);
    if (own == run || !list.processes[own].ranked || !list.processes[run].ranked)
        *ret_whose = NG_PEER_OF_OURS; /* without ranks nothing tells */
    else if (list.processes[run].unfit)
        *ret_whose = NG_PEER_OF_ANOTHER;
    else if (must_be_one(&list, own, run))
        *ret_whose = NG_PEER_OF_OURS;
    return 0;
}

/* ---- Names of runs, for tools ---- */

struct name {
    uint64_t root, launch_run; /* the smallest; 0 none */
    bool differ;               /* not all processes have that launch_run */
};

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one && (!other || one < other) ? one : other;
}

const uint64_t *ng_peer_progress_runs(const struct ng_peer_progress *blobs, uint32_t count,
                                      struct ng_arena *arena)
{
    uint64_t *runs = ng_arena_alloc(arena, (count + 1) * sizeof(*runs));
    struct name *names = ng_arena_alloc(arena, (count + 1) * sizeof(*names));
    struct run_list list = list_runs(blobs, count, arena);

    if (!runs || !names || !list.processes)
        return NULL;
    unite_what_fits(&list);
    for (uint32_t i = 0; i < count; i++) {
        const struct process *process = &list.processes[i];
        struct name *name = &names[process->run];
        if (process->run == i)
            *name = (struct name){.launch_run = process->launch_run};
        name->root = smaller(process->root, name->root);
        name->differ |= process->launch_run != name->launch_run;
        name->launch_run = smaller(process->launch_run, name->launch_run);
    }
    /* What all its processes take for theirs, else what most of them do. */
    for (uint32_t i = 0; i < count; i++) {
        const struct name *name = &names[list.processes[i].run];
        runs[i] = name->launch_run && (!name->differ || !name->root) ? name->launch_run
                  : name->root                                       ? name->root
                                                                     : NG_PEER_RUN_OPEN;
    }
    return runs;
}
