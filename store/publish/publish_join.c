/*
 * This process's slot on the store: taken once, kept, released.
 *
 * The store's thread only. Must never take a slot that another process holds.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/log.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/incarnation.h"
#include "store/wire/progress.h"

/* Raise a counter that others may increment meanwhile. */
static int raise_to(struct ng_publisher *p, const char *key, uint64_t least)
{
    struct ng_kv_bytes value;
    char before[24], after[24];
    int length = snprintf(after, sizeof(after), "%" PRIu64, least), error;

    for (int tries = 0; tries < 16; tries++) {
        struct ng_kv_bytes expected = {.data = before};
        error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
        if (error && error != -ENOENT)
            return error;
        memset(before, 0, sizeof(before));
        if (!error && value.bytes < sizeof(before)) {
            memcpy(before, value.data, value.bytes);
            expected.bytes = value.bytes;
        }
        if (strtoull(before, NULL, 10) >= least)
            return 0;
        error = ng_kv_compare_and_set(p->kv, key, error ? NULL : &expected, after, (size_t)length,
                                      KEEP_MS, ng_publisher_in(CALL_NS), NULL);
        if (error != -EEXIST && error != -ENOENT)
            return error;
    }
    return -EBUSY;
}

/* Does the store have this process in a slot? Another server may have taken over. 1, 0 or -errno.
 */
static int holds_us(struct ng_publisher *p, uint64_t slot)
{
    struct ng_progress_head head;

    return slot ? ng_publisher_read_slot(p, slot, ng_publisher_uid(p), &head) : 0;
}

/* The job's counters live as long as the job, and only ever grow. */
int ng_publisher_keep_counters(struct ng_publisher *p)
{
    static const char *const counters[] = {"n", "e", "i/last"};
    char above[NG_INCARNATION_KEY_BYTES];
    uint64_t newest = ng_publisher_newest(p);
    int error = 0;

    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]) && !error; i++) {
        error = ng_kv_expire(p->kv, counters[i], KEEP_MS, ng_publisher_in(CALL_NS));
        error = error == -ENOENT ? 0 : error;
    }
    ng_incarnation_key(p->labels.own, above);
    if (!error)
        error = ng_kv_expire(p->kv, above, KEEP_MS, ng_publisher_in(CALL_NS));
    error = error == -ENOENT ? 0 : error;
    if (!error)
        error = raise_to(p, "n", p->slot.number);
    /* On a store that was emptied, counting continues from the old value. */
    if (!error && newest)
        error = raise_to(p, "i/last", newest);
    if (!error)
        p->slot.kept_ns = ng_clock_mono_ns();
    return ng_publisher_failed(p, error);
}

int ng_publisher_verify(struct ng_publisher *p)
{
    int holds = holds_us(p, p->slot.number);

    if (holds < 0)
        return ng_publisher_failed(p, holds);
    p->labels.count = 0;
    p->progress.stored_ns = 0;
    p->slot.joined = holds;
    return holds ? ng_publisher_keep_counters(p) : ng_publisher_join(p);
}

/* Who wrote a sign of life last: the process that has the slot. 0: nobody, or a neighbour. */
static uint64_t uid_of_sign(const struct ng_kv_bytes *value)
{
    char text[NG_SIGN_BYTES], *rest;

    ng_kv_text(value, text, sizeof(text));
    strtoll(text, &rest, 10);
    strtoull(rest, &rest, 16);
    return strtoull(rest, NULL, 16);
}

/*
 * A store that lost its keys gives out slots anew, and a process whose connection outlived that, or
 * was made anew within a write, does not notice: it goes on writing to a slot that another has
 * been given. Whoever finds the other's sign of life in its slot, and not its own progress, joins
 * again. The last to write progress stays; since each looks before it writes, exactly one of two
 * leaves.
 */
int ng_publisher_check_slot(struct ng_publisher *p)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'l', p->slot.number);
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error && error != -ENOENT)
        return ng_publisher_failed(p, error);
    bool ours = !error && uid_of_sign(&value) == ng_publisher_uid(p);
    return ours ? 0 : ng_publisher_verify(p);
}

/* The slot that is ours already: an earlier attempt succeeded without an answer; or the one that a
 * neighbour found for us. 0 in *ret_slot: none. */
static int find_own_place(struct ng_publisher *p, uint64_t *ret_slot)
{
    char key[KEY_BYTES];
    int64_t found = 0;

    *ret_slot = p->slot.number;
    int holds = holds_us(p, p->slot.number);
    if (holds)
        return holds < 0 ? holds : 0;
    ng_publisher_uid_key(key, 'w', ng_publisher_uid(p));
    int error = ng_publisher_read_number(p, key, &found);
    *ret_slot = found > 0 && found <= NG_PEER_PROGRESS_SLOTS_MAX ? (uint64_t)found : 0;
    holds = error ?: holds_us(p, *ret_slot);
    if (holds <= 0)
        *ret_slot = 0;
    return holds < 0 ? holds : 0;
}

/* Take a new slot, with our blob in it. */
static int take_place(struct ng_publisher *p)
{
    struct ng_view view;
    char key[KEY_BYTES];
    const void *data;
    size_t bytes;
    int64_t slot;
    int error = 0;

    for (int tries = 0; tries < 16; tries++) {
        error = ng_kv_add(p->kv, "n", 1, KEEP_MS, ng_publisher_in(CALL_NS), &slot);
        if (!error && (slot < 1 || slot > NG_PEER_PROGRESS_SLOTS_MAX))
            error = ng_kv_fail(p->kv, -ERANGE, "it has %" PRId64 " for a count of processes", slot);
        if (error)
            break;
        p->slot.number = (uint64_t)slot;
        /* Sign of life first: a process without it counts as lost. */
        p->progress.published_ns = ng_clock_mono_ns();
        error = ng_publisher_queue_sign(p);
        if (!error)
            error = ng_publisher_flush(p);
        if (error)
            break;
        error = ng_publisher_encode(p, false, &view, &data, &bytes);
        ng_publisher_number_key(key, 'p', p->slot.number);
        if (!error)
            error = ng_kv_put_if_absent(p->kv, key, data, bytes, KEEP_MS, ng_publisher_in(CALL_NS));
        ng_view_fini(&view);
        if (error != -EEXIST)
            break; /* else: the counter restarted after a loss, and an earlier process is there */
    }
    return ng_publisher_failed(p, error);
}

/* What happened before our arrival does not concern us. Everything from here on does, however
 * long it takes to get a slot, and also if we have to join again: others may have been back
 * before us. */
static int come(struct ng_publisher *p)
{
    int64_t newest, ended;

    if (p->slot.came)
        return 0;
    int error = ng_publisher_read_number(p, "e", &ended);
    if (!error)
        error = ng_publisher_read_number(p, "i/last", &newest);
    if (error)
        return ng_publisher_failed(p, error);
    p->slot.counted = ended;
    p->entries.ended_before = ended > 0 ? (uint64_t)ended : 0;
    if (newest < 0 || newest > NG_EPOCH_MAX)
        newest = 0; /* no process has counted that far: incidents are read from the first on */
    ng_publisher_pass_over(p, (uint64_t)newest);
    p->slot.came = true;
    return 0;
}

int ng_publisher_join(struct ng_publisher *p)
{
    uint64_t slot;

    /* Before others can know that we are of their run, and their claims concern us. */
    int error = come(p);
    uint64_t connects = p->kv->connects;
    if (!error)
        error = ng_publisher_label_groups(p);
    if (error)
        return error;
    error = find_own_place(p, &slot);
    if (error)
        return ng_publisher_failed(p, error);
    if (slot)
        p->slot.number = slot;
    else if ((error = take_place(p)) != 0)
        return error;
    p->slot.count = p->slot.number;
    error = ng_publisher_keep_counters(p);
    if (error)
        return error;
    p->watch.slot = 0;
    p->slot.joined = true;
    p->slot.connects = connects; /* and not that of a later one: then it is verified again */
    NG_STORE(p->options.own_box->header->board_slot, p->slot.number);
    ng_log(NG_LOG_INFO, "on the board %s, slot %" PRIu64, p->kv->name, p->slot.number);
    return ng_publisher_publish(p, false);
}

/* Publish the final state of this process. */
int ng_publisher_leave(struct ng_publisher *p, struct ng_ask *unused)
{
    char key[KEY_BYTES];
    int64_t ended;

    p->slot.leaving = true;
    /* This end may be the consequence of one that this process has yet to report, and no other
     * process of its host may be left to report that. */
    ng_publisher_send_proxy_reports(p);
    /* For a group created since the last round: a rank that waits in it would take the progress of
     * a process without its label for that of another run. */
    int error = ng_publisher_label_groups(p);
    /* A process whose call was refused may exit because of it, while other hosts wait for its
     * report. */
    if (!error)
        error = ng_publisher_agree(p);
    if (error)
        return error;
    error = ng_publisher_queue_progress(p, false);
    ng_publisher_number_key(key, 'l', p->slot.number);
    if (!error)
        error = ng_kv_queue_set(p->kv, key, "0", 1, 1);
    if (!error)
        error = ng_publisher_flush(p);
    if (!error)
        error = ng_kv_add(p->kv, "e", 1, KEEP_MS, ng_publisher_in(CALL_NS), &ended);
    return error || ended < 0 ? error : ng_publisher_end_entries(p, (uint64_t)ended);
}
