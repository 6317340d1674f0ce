/*
 * What this process reports for others of its host, and about its own dumps.
 *
 * Queued by the incident thread, carried out by the store's thread; a tool reports an end itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/progress.h"

#define AGAIN_SOON_NS (200 * NG_MS)

/* False: there is no room at the moment. */
static bool queue_report(struct ng_publisher *p, struct ng_proxy_report *wanted)
{
    pthread_mutex_lock(&p->lock);
    bool taken = p->proxy_reports.count + p->proxy_reports.at_work < PROXY_REPORTS;
    if (taken)
        p->proxy_reports.list[p->proxy_reports.count++] = *wanted;
    pthread_mutex_unlock(&p->lock);
    if (taken)
        ng_publisher_wake(p);
    else
        ng_arena_reset(&wanted->arena);
    return taken;
}

void ng_publisher_report_dump(struct ng_publisher *p, const struct ng_incident *incident)
{
    struct ng_proxy_report ours = {.epoch = incident->epoch};

    queue_report(p, &ours);
}

bool ng_publisher_speak_for(struct ng_publisher *p, uint64_t slot, bool ended, bool frozen,
                            struct ng_arena *arena, const void *data, size_t bytes)
{
    struct ng_proxy_report theirs = {.slot = slot,
                                     .ended = ended,
                                     .frozen = frozen,
                                     .arena = *arena,
                                     .data = data,
                                     .bytes = bytes};

    *arena = (struct ng_arena){0};
    return queue_report(p, &theirs);
}

int ng_publisher_tell_end(struct ng_publisher *p)
{
    int64_t ended;
    int error = ng_kv_add(p->kv, "e", 1, KEEP_MS, ng_publisher_in(CALL_NS), &ended);

    if (!error)
        error = ng_kv_publish(p->kv, "m", "ended", 5, ng_publisher_in(CALL_NS));
    return ng_publisher_failed(p, error);
}

/* A slot for a process that the store does not know, or no longer: it was emptied, and the process
 * could not join again. */
static int find_place(struct ng_publisher *p, uint64_t uid, uint64_t *ret_slot)
{
    char key[KEY_BYTES], text[24];
    int64_t slot;

    ng_publisher_uid_key(key, 'w', uid);
    int error = ng_publisher_read_number(p, key, &slot);
    if (!error && (slot <= 0 || slot > NG_PEER_PROGRESS_SLOTS_MAX)) {
        error = ng_kv_add(p->kv, "n", 1, KEEP_MS, ng_publisher_in(CALL_NS), &slot);
        int length = snprintf(text, sizeof(text), "%" PRId64, slot);
        if (!error)
            error = ng_kv_set(p->kv, key, text, (size_t)length, KEEP_MS, ng_publisher_in(CALL_NS));
    }
    *ret_slot = (uint64_t)slot;
    return error;
}

/*
 * The slot for the report on a neighbour: not one that another process has by now; 0 none is known.
 * 0, or -errno; -EEXIST: it is of another incarnation, or its end has been reported.
 */
static int find_slot(struct ng_publisher *p, const struct ng_proxy_report *what, uint64_t uid,
                     uint64_t *ret_slot)
{
    struct ng_progress_head there;
    char key[KEY_BYTES];
    int64_t found = (int64_t)what->slot;

    *ret_slot = 0;
    int has = ng_publisher_read_slot(p, what->slot, uid, &there);
    if (!has && what->ended) {
        /* Neighbours may have found a slot for it. */
        ng_publisher_uid_key(key, 'w', uid);
        has = ng_publisher_read_number(p, key, &found);
        if (!has && found > 0)
            has = ng_publisher_read_slot(p, (uint64_t)found, uid, &there);
    }
    if (has <= 0)
        return has;
    *ret_slot = (uint64_t)found;
    if (there.process.life != NG_LIFE_RUNNING && there.process.life != NG_LIFE_STOPPED)
        return -EEXIST;
    int ours = ng_publisher_is_ours(p, there.label);
    return ours < 0 ? ours : ours ? 0 : -EEXIST;
}

/* How long no other process reports it. A process that announced its report may lose the store, or
 * die, before it makes it: a launcher ends the neighbours of a rank that died. A report on an end
 * or on a frozen process must arrive before another rank is blamed. */
static int64_t claim_ms(const struct ng_publisher *p, const struct ng_proxy_report *what)
{
    int64_t silent_ms = p->options.ttl_ns / NG_MS / 3;

    if (what->ended)
        return REPORT_MS;
    return what->frozen && silent_ms > REPORT_MS ? REPORT_MS : silent_ms;
}

/* Of all its neighbours, one reports it; a silent one repeatedly. 0: it is us; -EEXIST, or
 * -errno. */
static int claim_telling(struct ng_publisher *p, struct ng_proxy_report *what, uint64_t uid)
{
    char key[KEY_BYTES], own[24];
    int64_t whose = 0;

    ng_publisher_uid_key(key, what->ended ? 'x' : 's', uid);
    int length = snprintf(own, sizeof(own), "%" PRIu64, p->slot.number);
    int error = ng_kv_put_if_absent(p->kv, key, own, (size_t)length, claim_ms(p, what),
                                    ng_publisher_in(CALL_NS));
    if (error != -EEXIST) {
        what->in_doubt = error != 0;
        return error;
    }
    if (!what->in_doubt)
        return error;
    /* The earlier attempt may have succeeded. */
    error = ng_publisher_read_number(p, key, &whose);
    return error ? error : whose == (int64_t)p->slot.number ? 0 : -EEXIST;
}

static int send_report(struct ng_publisher *p, struct ng_proxy_report *what)
{
    struct ng_progress_head head;
    char key[KEY_BYTES];
    uint64_t slot;

    if (!what->data) {
        snprintf(key, sizeof(key), "d/%" PRIu64 "/%" PRIu64, what->epoch, p->slot.number);
        return ng_publisher_failed(p,
                                   ng_kv_set(p->kv, key, "", 0, KEEP_MS, ng_publisher_in(CALL_NS)));
    }
    if (ng_progress_peek(what->data, what->bytes, &head) != 0)
        return 0;
    if (what->stored)
        return ng_publisher_tell_end(p);
    int error = find_slot(p, what, head.process.uid, &slot);
    if (error)
        return error == -EEXIST ? 0 : ng_publisher_failed(p, error);
    error = what->ours_to_tell ? 0 : claim_telling(p, what, head.process.uid);
    if (error == -EEXIST && !what->ended)
        return 0;
    /* Another process has announced a report of this end, which is not there yet. A process that
     * leaves has no time to wait for it, as a tool. */
    if (error == -EEXIST && !what->by_tool && !p->slot.leaving)
        return -EAGAIN;
    if (error && error != -EEXIST)
        return ng_publisher_failed(p, error);
    what->ours_to_tell = true;
    error = slot ? 0 : ng_publisher_failed(p, find_place(p, head.process.uid, &slot));
    if (error)
        return error;
    ng_publisher_number_key(key, 'p', slot);
    error = ng_kv_queue_set(p->kv, key, what->data, what->bytes, KEEP_MS);
    ng_publisher_number_key(key, 'l', slot);
    if (!error && !what->ended && !what->frozen)
        error = ng_kv_queue_set(p->kv, key, "0", 1, p->options.ttl_ns / NG_MS);
    if (!error)
        error = ng_publisher_flush(p);
    what->stored = !error && what->ended;
    return what->stored ? ng_publisher_tell_end(p) : error;
}

int ng_publisher_report_end(struct ng_kv *kv, uint64_t root, uint64_t slot, const void *data,
                            size_t bytes, int64_t deadline_mono_ns)
{
    struct ng_proxy_report theirs = {
        .slot = slot, .ended = true, .by_tool = true, .data = data, .bytes = bytes};
    struct ng_publisher *p = calloc(1, sizeof(*p));
    int error;

    if (!p)
        return -ENOMEM;
    p->kv = kv;
    p->labels.own = p->labels.root = root;
    p->link.warned_ns = ng_clock_mono_ns(); /* the ranks say that the store is lost */
    while ((error = send_report(p, &theirs)) != 0 && error != -ENOMEM &&
           ng_kv_pause(ng_publisher_in(AGAIN_SOON_NS), deadline_mono_ns))
        ;
    free(p);
    return error;
}

/* Those that are to be made again keep their order, and come before what was queued since. */
static void keep_reports(struct ng_publisher *p, const struct ng_proxy_report *again,
                         uint32_t count)
{
    struct ng_publisher_proxy_reports *reports = &p->proxy_reports;

    pthread_mutex_lock(&p->lock);
    reports->at_work = 0;
    memmove(reports->list + count, reports->list, reports->count * sizeof(*again));
    memcpy(reports->list, again, count * sizeof(*again));
    reports->count += count;
    pthread_mutex_unlock(&p->lock);
}

void ng_publisher_send_proxy_reports(struct ng_publisher *p)
{
    struct ng_proxy_report taken[PROXY_REPORTS];
    uint32_t kept = 0;

    pthread_mutex_lock(&p->lock);
    uint32_t count = p->proxy_reports.count;
    memcpy(taken, p->proxy_reports.list, count * sizeof(taken[0]));
    p->proxy_reports.count = 0;
    p->proxy_reports.at_work = count; /* they keep their room */
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < count; i++) {
        /* An end may be the consequence of an earlier one: it is not known before that. */
        int error = kept && taken[i].ended            ? -EAGAIN
                    : p->link.lost || !p->slot.joined ? -EIO
                                                      : send_report(p, &taken[i]);
        if (error && taken[i].ended) {
            taken[kept++] = taken[i];
            continue;
        }
        p->link.dropped += error != 0;
        ng_arena_reset(&taken[i].arena);
    }
    keep_reports(p, taken, kept);
}
