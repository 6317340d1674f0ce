/*
 * Other processes on the store: the whole job at an incident, and one neighbour at all times.
 *
 * The store's thread only.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util/clock.h"
#include "core/util/log.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/incarnation.h"
#include "store/wire/progress.h"

#define FETCH_NS        (3 * NG_S)    /* the whole job */
#define REFRESH_WAIT_NS (100 * NG_MS) /* wait for every process's newest progress */
#define REFRESH_NS      (800 * NG_MS) /* how long, if a process does not answer */
#define LOST_TOLD_MS    60000
#define GAP_NS          (30 * NG_S) /* a process that took a slot is in it by then, or never */
#define WALK            16u         /* slots examined in one step */

/* The store was away, and not all are back: use what they last published. */
static void believe(struct ng_peer_progress *blobs, uint32_t count)
{
    struct ng_progress_head head;

    for (uint32_t i = 0; i < count; i++) {
        if (blobs[i].lives || ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0)
            continue;
        int64_t since_ns = ng_clock_unix_ns() - head.written_unix_ns;
        blobs[i].lives = blobs[i].quiet = true;
        blobs[i].unchanged_ns = since_ns > 0 && since_ns < AGAIN_NS ? since_ns : 0;
    }
}

/* There is no need to wait for its answer. */
static bool tells_an_end(const struct ng_peer_progress *blob)
{
    struct ng_progress_head head;

    return ng_progress_peek(blob->data, blob->bytes, &head) == 0 &&
           ng_life_has_ended(head.process.life);
}

int ng_publisher_fetch_all(struct ng_publisher *p, struct ng_ask *ask)
{
    uint64_t question =
        (uint64_t)ng_clock_unix_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ p->slot.number;
    char text[40];
    int length = snprintf(text, sizeof(text), "refresh %" PRIx64, question);

    /* The newest progress of every process, as of now. */
    int error = ng_kv_publish(p->kv, "m", text, (size_t)length, ng_publisher_in(CALL_NS));
    if (error)
        return ng_publisher_failed(p, error);
    int64_t until = ng_publisher_in(REFRESH_NS);
    int quiet;
    do {
        ng_clock_sleep(REFRESH_WAIT_NS);
        ng_arena_reset(&ask->arena);
        error = ng_peer_progress_fetch(p->kv, ng_publisher_in(FETCH_NS), &ask->arena, &ask->blobs,
                                       &ask->blob_count);
        if (error)
            return ng_publisher_failed(p, error);
        quiet = 0;
        for (uint32_t i = 0; i < ask->blob_count; i++) {
            struct ng_peer_progress *blob = &ask->blobs[i];
            blob->quiet = blob->lives && blob->slot != p->slot.number &&
                          blob->question != question && !tells_an_end(blob);
            quiet += blob->quiet && blob->root == p->labels.root;
        }
    } while (quiet && ng_clock_mono_ns() < until);
    uint64_t root;
    if (ng_incarnation_root(p->kv, p->labels.root, ng_publisher_in(CALL_NS), &root) == 0)
        ng_publisher_set_root(p, root);
    ask->root = p->labels.root;
    if (!ng_publisher_is_settled(p))
        believe(ask->blobs, ask->blob_count);
    return ng_publisher_remember_living(p, ask->blobs, ask->blob_count) ? 0 : -ENOMEM;
}

struct walk {
    struct ng_publisher *p;
    uint64_t first; /* slot of index 0 */
    uint64_t lost[WALK], labels[WALK], found;
    unsigned lost_count;
    bool over, gap; /* an empty slot: a process may just be about to take it */
    struct ng_progress_head head;
    bool known;
};

/* Even indices are blobs, odd ones signs of life. */
static void pass(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct walk *walk = context;
    struct ng_publisher *p = walk->p;
    uint64_t slot = walk->first + index / 2;

    if (walk->over)
        return;
    if (index % 2 == 0) {
        walk->known = value && ng_progress_peek(value->data, value->bytes, &walk->head) == 0;
        return;
    }
    if (slot == p->slot.number) {
        walk->over = true; /* a full round: no other process is alive */
        walk->found = 0;
    } else if (value) {
        walk->over = true;
        walk->found = slot;
    } else if (!walk->known) {
        walk->gap = true;
    } else if (walk->head.process.life == NG_LIFE_RUNNING) {
        walk->labels[walk->lost_count] = walk->head.label;
        walk->lost[walk->lost_count++] = slot;
    }
}

static int tell_lost(struct ng_publisher *p, uint64_t slot)
{
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'y', slot);
    int error = ng_kv_put_if_absent(p->kv, key, "", 0, LOST_TOLD_MS, ng_publisher_in(CALL_NS));
    if (error)
        return error == -EEXIST ? 0 : ng_publisher_failed(p, error);
    ng_log(NG_LOG_INFO, "the process in slot %" PRIu64 " of the board gave no sign of life in time",
           slot);
    return ng_publisher_tell_end(p);
}

/* From the watched slot onwards, to the next live one. */
static int walk_on(struct ng_publisher *p)
{
    char names[2 * WALK][KEY_BYTES];
    const char *keys[2 * WALK];
    uint64_t at = p->watch.slot ? p->watch.slot : p->slot.number + 1;

    p->watch.walked_ns = ng_clock_mono_ns();
    for (int steps = 0; steps < 5; steps++) {
        if (at > p->slot.count)
            at = 1;
        struct walk walk = {.p = p, .first = at};
        uint64_t count = steps ? WALK : 2; /* mostly the next slot is live */
        if (count > p->slot.count - at + 1)
            count = p->slot.count - at + 1;
        for (uint64_t i = 0; i < count; i++) {
            ng_publisher_number_key(names[2 * i], 'p', at + i);
            ng_publisher_number_key(names[2 * i + 1], 'l', at + i);
            keys[2 * i] = names[2 * i];
            keys[2 * i + 1] = names[2 * i + 1];
        }
        int error = ng_kv_get_many(p->kv, keys, 2 * count, ng_publisher_in(CALL_NS), pass, &walk);
        if (error)
            return ng_publisher_failed(p, error);
        for (unsigned i = 0; i < walk.lost_count && !error; i++) {
            int ours = ng_publisher_is_ours(p, walk.labels[i]);
            error = ours < 0 ? ng_publisher_failed(p, ours) : ours ? tell_lost(p, walk.lost[i]) : 0;
        }
        p->watch.slot = walk.over ? walk.found : at + count;
        p->watch.gap |= walk.gap;
        if (walk.over || error)
            return error;
        at = p->watch.slot;
    }
    return 0;
}

enum { ENDED, SLOTS, ABOVE, LAST, SPOKEN, WATCHED, ANSWERS };

struct answers {
    bool there[ANSWERS];
    char text[ANSWERS][24];
};

static void take_answer(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct answers *answers = context;

    if (!value || index >= ANSWERS)
        return;
    answers->there[index] = true;
    ng_kv_text(value, answers->text[index], sizeof(answers->text[index]));
}

/* A process may be between us and the watched one: it arrived after our last full round, or was
 * lost and is back. */
static void look_nearer(struct ng_publisher *p, uint64_t slots)
{
    uint64_t next = p->slot.number < slots ? p->slot.number + 1 : 1;

    if ((slots > p->slot.count && p->watch.slot <= p->slot.number) ||
        (p->watch.slot != next && ng_clock_mono_ns() - p->watch.walked_ns >= 2 * p->options.ttl_ns))
        p->watch.slot = 0;
    p->slot.count = slots;
}

int ng_publisher_check_others(struct ng_publisher *p)
{
    struct answers answers = {0};
    char above[NG_INCARNATION_KEY_BYTES], spoken[KEY_BYTES], watched[KEY_BYTES];
    const char *keys[ANSWERS] = {"e", "n", above, "i/last", spoken, watched};

    ng_incarnation_key(p->labels.root, above);
    ng_publisher_uid_key(spoken, 's', ng_publisher_uid(p));
    ng_publisher_number_key(watched, 'l', p->watch.slot);
    int error =
        ng_kv_get_many(p->kv, keys, ANSWERS, ng_publisher_in(CALL_NS), take_answer, &answers);
    if (error)
        return ng_publisher_failed(p, error);
    int64_t ended = strtoll(answers.text[ENDED], NULL, 10);
    uint64_t slots = strtoull(answers.text[SLOTS], NULL, 10);
    if (slots > NG_PEER_PROGRESS_SLOTS_MAX)
        slots = p->slot.count; /* no process has counted that far */
    uint64_t up = strtoull(answers.text[ABOVE], NULL, 16);
    uint64_t last = strtoull(answers.text[LAST], NULL, 10);
    /* A process that has arrived since may be before the watched one. */
    if (slots > p->slot.count)
        p->watch.grown_ns = ng_clock_mono_ns();
    if (slots > p->slot.count ||
        (p->watch.gap && ng_clock_mono_ns() - p->watch.grown_ns < GAP_NS)) {
        p->watch.slot = 0;
        p->watch.gap = false;
        answers.there[WATCHED] = false;
    }
    if (slots)
        look_nearer(p, slots);
    if (up && up < p->labels.root)
        ng_publisher_set_root(p, up);
    if (answers.there[SPOKEN])
        p->progress.stored_ns = 0; /* a neighbour reported us silent: that report is out of date */
    if (ended != p->slot.counted) {
        p->slot.counted = ended;
        atomic_fetch_add(&p->state.ended, 1);
        ng_publisher_tell(p, NG_BOARD_DEATH);
    }
    /* Those missed are not searched one by one: the numbers before them were never used. */
    if (last > ng_publisher_newest(p)) {
        error = ng_publisher_take_through(p, last);
        if (error && error != -ENOENT)
            return ng_publisher_failed(p, error);
    }
    return (p->watch.slot && answers.there[WATCHED]) || !ng_publisher_is_settled(p) ? 0
                                                                                    : walk_on(p);
}
