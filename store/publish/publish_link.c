/*
 * The store's thread and its store: its loss, its return, and the names of keys.
 *
 * The store's thread only; ng_publisher_wake: any thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/log.h"
#include "store/kv/kv.h"
#include "store/publish/publisher.h"

#define WARN_AGAIN_NS (60 * NG_S)
#define RETURN_NS     (5 * NG_S) /* this long after the store's return, every process is back */
#define HELD_UP_NS    (100 * NG_MS)

void ng_publisher_warn(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    if (p->link.told || (p->link.warned_ns && now - p->link.warned_ns <= WARN_AGAIN_NS))
        return;
    p->link.told = true;
    p->link.warned_ns = now;
    ng_log(
        NG_LOG_WARN,
        "the store %s cannot be used: %s; the job runs on, and what is known of it stays on each "
        "host until the store is back",
        p->kv->name, ng_kv_error(p->kv));
}

/* Did this thread stand still beyond the deadline of its call, as that of a stopped process does?
 * Then that no answer came in time says nothing of the store. */
static bool was_held_up(const struct ng_publisher *p, int error)
{
    return error == -ETIMEDOUT && ng_clock_mono_ns() - p->kv->deadline_mono_ns > HELD_UP_NS;
}

/* Every failure passes through here. Returns it. */
int ng_publisher_failed(struct ng_publisher *p, int error)
{
    if (!error || error == -ENOENT || error == -EEXIST || error == -ENOMEM)
        return error;
    if (!p->link.lost && !was_held_up(p, error)) {
        p->link.lost = true;
        p->link.lost_ns = ng_clock_mono_ns();
        p->link.dropped = 0;
        p->link.told = false;
        atomic_store(&p->state.up, false);
        atomic_store(&p->state.away, true);
    }
    if (p->link.lost)
        ng_publisher_warn(p);
    /* The last writes may be lost, and a store that can only be read is not enough: publish
     * everything again. */
    p->progress.stored_ns = 0;
    return error;
}

/* Others may not be back yet: for a while, a missing sign of life proves nothing. */
static void wait_for_others(struct ng_publisher *p)
{
    p->link.settled_ns = ng_publisher_in(p->options.ttl_ns + RETURN_NS);
}

bool ng_publisher_is_settled(const struct ng_publisher *p)
{
    return ng_clock_mono_ns() >= p->link.settled_ns;
}

void ng_publisher_worked(struct ng_publisher *p)
{
    if (p->link.lost) {
        if (p->link.told)
            ng_log(NG_LOG_WARN,
                   "the store %s is back after %.1f s; %" PRIu64 " record(s) were not published",
                   p->kv->name, (double)(ng_clock_mono_ns() - p->link.lost_ns) / 1e9,
                   p->link.dropped);
        wait_for_others(p);
    }
    p->link.lost = false;
    atomic_store(&p->state.away, false);
    atomic_store(&p->state.up, true);
}

/* Our sign of life has been stored. If it had expired because we did not run, others may not have
 * run either. */
void ng_publisher_signed(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    if (p->link.alive_ns && now - p->link.alive_ns > p->options.ttl_ns / 4 * 3)
        wait_for_others(p);
    p->link.alive_ns = now;
    atomic_store(&p->options.own_box->header->published_mono_ns, now);
}

int ng_publisher_flush(struct ng_publisher *p)
{
    int error = ng_kv_flush(p->kv, ng_publisher_in(CALL_NS), NULL);

    if (!error)
        ng_publisher_worked(p);
    return ng_publisher_failed(p, error);
}

void ng_publisher_tell(struct ng_publisher *p, unsigned bits)
{
    atomic_fetch_or(&p->state.news, bits);
    p->options.wake();
}

void ng_publisher_wake(struct ng_publisher *p)
{
    uint64_t one = 1;

    if (!ng_descriptor_ours(&p->wake) || write(p->wake.fd, &one, sizeof(one)) < 0)
        ng_log(NG_LOG_DEBUG, "cannot wake the store's thread: its next round comes without that");
}

void ng_publisher_number_key(char ret_key[KEY_BYTES], char kind, uint64_t number)
{
    snprintf(ret_key, KEY_BYTES, "%c/%" PRIu64, kind, number);
}

void ng_publisher_uid_key(char ret_key[KEY_BYTES], char kind, uint64_t uid)
{
    snprintf(ret_key, KEY_BYTES, "%c/%016" PRIx64, kind, uid);
}

int ng_publisher_read_number(struct ng_publisher *p, const char *key, int64_t *ret_number)
{
    struct ng_kv_bytes value;
    char text[24];

    *ret_number = 0;
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : error;
    ng_kv_text(&value, text, sizeof(text));
    *ret_number = strtoll(text, NULL, 10);
    return 0;
}
