/*
 * The thread that owns the store, and the mailbox in front of it.
 *
 * An essay, for what is not obvious here.
 *
 * Everything is done in rounds, twice a second and at every event: publish what has changed, give a
 * sign of life, look for news. News arrives by subscription; the rounds catch what it misses. The
 * job does not need any of this to run: if the store is lost, one line says so, the rounds keep
 * trying, and queries are answered with -EIO at once. When the store is back, everything is
 * published again, since it may be another server, and empty.
 *
 * Other processes of the same host detect a death (the incident thread, by pidfd) and pass what the
 * dead process left to this thread. The loss of a whole host is detected by a ring of neighbours:
 * each process watches the next live one in the order of slots. The processes of a host mostly have
 * adjacent slots, so all of a lost host are found by the process before them. It costs one query a
 * round, however many processes there are.
 *
 * Must never make a program thread wait, nor the incident thread beyond its deadline.
 */
#include "store/publish/publish.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/folder.h"
#include "core/util/log.h"
#include "store/kv/kv.h"
#include "store/publish/publisher.h"

#define ROUND_NS   (500 * NG_MS)
#define PUBLISH_NS NG_S          /* at most once per this interval, except on suspicion */
#define REFRESH_NS (200 * NG_MS) /* and then at most once per this one */

static struct ng_publisher *publisher_of_thread; /* of ng_publisher_start: written before the thread
                                                  * starts */

typedef int answer_fn(struct ng_publisher *p, struct ng_ask *ask);

static int answer(struct ng_publisher *p, struct ng_ask *ask)
{
    static answer_fn *const answers[] = {
        [NG_ASK_BEGIN] = ng_publisher_begin,
        [NG_ASK_FINISH] = ng_publisher_finish,
        [NG_ASK_VIEW] = ng_publisher_fetch_all,
        [NG_ASK_UNITE] = ng_publisher_unite,
        [NG_ASK_CLAIM] = ng_publisher_claim,
        [NG_ASK_JUDGE] = ng_publisher_judge,
        [NG_ASK_VERDICT] = ng_publisher_fetch_verdict,
        [NG_ASK_ALIVE] = ng_publisher_ask_for_claimant,
        [NG_ASK_DUMPS] = ng_publisher_count_dumps,
        [NG_ASK_PUT] = ng_publisher_put,
        [NG_ASK_FETCH] = ng_publisher_fetch,
        [NG_ASK_HAVE] = ng_publisher_have,
        [NG_ASK_LEAVE] = ng_publisher_leave,
    };

    /* After a failure, return at once instead of trying while a query waits. */
    return p->link.lost || !p->slot.joined || p->slot.leaving ? -EIO : answers[ask->kind](p, ask);
}

static void serve(struct ng_publisher *p)
{
    struct ng_ask ask;

    pthread_mutex_lock(&p->lock);
    uint64_t serial = p->mailbox.asked;
    bool any = p->mailbox.answered != serial && p->mailbox.waiting;
    if (any) {
        ask = p->mailbox.ask;
        p->mailbox.ask.arena = (struct ng_arena){0}; /* ours while we work */
    }
    pthread_mutex_unlock(&p->lock);
    if (!any)
        return;
    ask.result = answer(p, &ask);
    pthread_mutex_lock(&p->lock);
    bool heard = p->mailbox.asked == serial && p->mailbox.waiting;
    if (heard) {
        p->mailbox.ask = ask;
        p->mailbox.answered = serial;
        pthread_cond_signal(&p->answer_came);
        ask.arena = (struct ng_arena){0};
    }
    pthread_mutex_unlock(&p->lock);
    ng_arena_reset(&ask.arena); /* the caller no longer waits */
    if (!heard && ask.kind == NG_ASK_CLAIM && ask.result == 0)
        ng_publisher_give_up_claim(p, ask.incident.epoch);
}

int ng_publisher_ask(struct ng_publisher *p, struct ng_ask *ask, int64_t deadline_mono_ns)
{
    struct timespec until = {.tv_sec = deadline_mono_ns / NG_S, .tv_nsec = deadline_mono_ns % NG_S};
    int error = 0;

    ask->deadline_mono_ns = deadline_mono_ns;
    if (atomic_load(&p->state.over))
        return ask->result = answer(p, ask);
    if (!atomic_load(&p->state.up))
        return ask->result = -EIO;
    pthread_mutex_lock(&p->lock);
    uint64_t serial = ++p->mailbox.asked;
    p->mailbox.ask = *ask;
    p->mailbox.waiting = true;
    ng_publisher_wake(p);
    while (p->mailbox.answered != serial && error != ETIMEDOUT &&
           (!p->mailbox.hurried || ask->kind == NG_ASK_LEAVE))
        error = pthread_cond_timedwait(&p->answer_came, &p->lock, &until);
    if (p->mailbox.answered == serial) {
        *ask = p->mailbox.ask;
    } else {
        /* Either it was not taken yet, and its arena is still here, or the thread has it. */
        ask->arena = p->mailbox.ask.arena;
        ask->result = -ETIMEDOUT;
    }
    p->mailbox.ask.arena = (struct ng_arena){0};
    p->mailbox.waiting = false;
    pthread_mutex_unlock(&p->lock);
    return ask->result;
}

void ng_publisher_hurry(struct ng_publisher *p)
{
    pthread_mutex_lock(&p->lock);
    p->mailbox.hurried = true;
    pthread_cond_signal(&p->answer_came);
    pthread_mutex_unlock(&p->lock);
}

static void read_messages(struct ng_publisher *p)
{
    struct ng_kv_message message;
    char text[64];

    /* Our sign of life, and queries, do not wait until all announced messages are read: the rounds
     * catch the rest. */
    for (int64_t until = ng_publisher_in(ROUND_NS); ng_clock_mono_ns() < until;) {
        int error = ng_kv_next_message(p->kv, ng_publisher_in(CALL_NS), &message);
        if (error == -ESTALE)
            p->progress.round_ns = 0; /* read the keys at once */
        if (error && error != -ESTALE)
            return;
        if (error)
            continue;
        ng_kv_text(&message.data, text, sizeof(text));
        if (strncmp(text, "refresh ", 8) == 0) {
            p->progress.question = strtoull(text + 8, NULL, 16);
            p->progress.want_refresh = true;
        } else if (strncmp(text, "incident ", 9) == 0)
            ng_publisher_failed(p, ng_publisher_take_through(p, strtoull(text + 9, NULL, 10)));
        else
            p->progress.round_ns = 0; /* "ended", "unite" */
    }
}

static void round_of(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    /* If it was lost, the kv itself decides when it tries again. */
    if (!p->slot.joined && ng_publisher_join(p) != 0)
        return;
    if (p->slot.connects != p->kv->connects) {
        uint64_t connects = p->kv->connects;
        if (ng_publisher_verify(p) != 0)
            return;
        p->slot.connects = connects;
    }
    uint64_t digest = ng_publisher_hash_box(p->options.own_box);
    bool due = now - p->progress.stored_ns >= AGAIN_NS || !p->progress.stored_ns ||
               (digest != p->progress.digest && now - p->progress.published_ns >= PUBLISH_NS);
    bool signs = now - p->progress.signed_ns >= p->options.ttl_ns / 3;
    if ((due || signs) && ng_publisher_check_slot(p) != 0)
        return;
    if (ng_publisher_label_groups(p) != 0 || ng_publisher_fetch_grown(p) != 0 ||
        (now - p->slot.kept_ns >= AGAIN_NS && ng_publisher_keep_counters(p) != 0))
        return;
    if (due ? ng_publisher_publish(p, false) != 0 : 0)
        return;
    if (!due && signs) {
        p->progress.signed_ns = now;
        if (ng_publisher_queue_sign(p) != 0 || ng_publisher_flush(p) != 0)
            return;
        ng_publisher_signed(p);
    }
    if (ng_publisher_keep_entries(p) != 0 || ng_publisher_compare(p) != 0)
        return;
    if (ng_publisher_poll_incidents(p) == 0 && ng_publisher_check_others(p) == 0)
        ng_publisher_worked(p);
}

/* The store is gone: what would have been published is counted. */
static void count_dropped(struct ng_publisher *p)
{
    uint64_t digest = ng_publisher_hash_box(p->options.own_box);

    if (p->link.lost && digest != p->progress.digest &&
        ng_clock_mono_ns() - p->progress.changed_ns >= PUBLISH_NS) {
        p->progress.digest = digest;
        p->progress.changed_ns = ng_clock_mono_ns();
        p->link.dropped++;
    }
    if (p->link.lost)
        ng_publisher_warn(p);
}

/* Has every other thread of this process ended? Then this one ends with the process. */
static bool is_last_thread(void)
{
    struct ng_folder tasks;
    unsigned count = 0;

    /* The first thread stays in the list as a zombie. */
    if (!ng_proc_first_thread_ended() || ng_folder_open(&tasks, "/proc/self/task", true) != 0)
        return false;
    while (ng_folder_next(&tasks))
        count++;
    ng_folder_close(&tasks);
    return count == 2;
}

static void await(struct ng_publisher *p)
{
    struct pollfd polls[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    int64_t due_ns = p->progress.round_ns + ROUND_NS < p->agree.next_ns
                         ? p->progress.round_ns + ROUND_NS
                         : p->agree.next_ns;
    int64_t left = due_ns - ng_clock_mono_ns();
    uint64_t count;

    if (left <= 0)
        return;
    if (ng_descriptor_ours(&p->wake))
        polls[0].fd = p->wake.fd;
    polls[1].fd = ng_kv_message_fd(p->kv);
    if ((polls[0].fd < 0 || polls[1].fd < 0) && left > 50 * NG_MS)
        left = 50 * NG_MS;
    struct timespec timeout = {.tv_sec = left / NG_S, .tv_nsec = left % NG_S};
    if (ppoll(polls, 2, &timeout, NULL) < 0) {
        ng_clock_sleep(50 * NG_MS);
        return;
    }
    if (polls[0].revents & POLLIN && read(polls[0].fd, &count, sizeof(count)) < 0)
        ng_log(NG_LOG_DEBUG, "the store's thread was called for nothing");
}

/* Another process examines the job. */
static void refresh(struct ng_publisher *p)
{
    /* Without the label of a group that was created since the last round, that process would take
     * us for another run. */
    if (ng_publisher_check_slot(p) != 0 || ng_publisher_label_groups(p) != 0)
        return;
    /* The progress published in normal operation has few records, and the calls may have diverged
     * before them. */
    if (!p->progress.told_fully || !p->progress.stored_ns ||
        ng_clock_mono_ns() - p->progress.published_ns >= REFRESH_NS)
        ng_publisher_publish(p, true);
    else if (ng_publisher_queue_sign(p) == 0)
        ng_publisher_flush(p); /* the progress published a moment ago is still valid */
}

static void *run(void *unused)
{
    struct ng_publisher *p = publisher_of_thread;

    if (p->options.adopt_thread)
        p->options.adopt_thread();
    ng_kv_subscribe(p->kv, "m", ng_publisher_in(CALL_NS));
    while (!p->slot.leaving) {
        read_messages(p);
        serve(p);
        ng_publisher_send_proxy_reports(p);
        int64_t now = ng_clock_mono_ns();
        if (now - p->progress.round_ns >= ROUND_NS) {
            p->progress.round_ns = now;
            round_of(p);
            count_dropped(p);
            if (is_last_thread())
                break;
        }
        if (p->progress.want_refresh && p->slot.joined && !p->link.lost) {
            p->progress.want_refresh = false;
            refresh(p);
        }
        serve(p);
        ng_publisher_agree(p);
        await(p);
    }
    atomic_store(&p->state.up, false);
    atomic_store(&p->state.over, true);
    return unused;
}

int ng_publisher_open(struct ng_kv *kv, const struct ng_publisher_options *options,
                      struct ng_publisher **ret_publisher)
{
    struct ng_publisher *p = calloc(1, sizeof(*p));
    pthread_condattr_t attributes;

    if (!p)
        return -ENOMEM;
    p->options = *options;
    p->kv = kv;
    p->slot.counted = -1;
    p->wake = NG_DESCRIPTOR_NONE;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->answer_came, &attributes);
    pthread_condattr_destroy(&attributes);
    *ret_publisher = p;
    return 0;
}

int ng_publisher_start(struct ng_publisher *p)
{
    p->wake = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    publisher_of_thread = p;
    return p->options.start_thread("ncclguard/store", run);
}

unsigned ng_publisher_news(struct ng_publisher *p)
{
    return atomic_exchange(&p->state.news, 0);
}

uint32_t ng_publisher_ended(const struct ng_publisher *p)
{
    return atomic_load(&p->state.ended);
}

bool ng_publisher_is_up(const struct ng_publisher *p)
{
    return atomic_load(&p->state.up);
}

bool ng_publisher_is_away(const struct ng_publisher *p)
{
    return atomic_load(&p->state.away) || atomic_load(&p->state.over);
}

uint64_t ng_publisher_get_label(const struct ng_publisher *p)
{
    return atomic_load(&p->state.label);
}

void ng_publisher_abandon(struct ng_publisher *p)
{
    ng_kv_abandon(p->kv);
    ng_descriptor_close(&p->wake);
}
