/* A guard, with a made board. */
#include "tests/unit/core/made_deaths.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "core/alarms.h"
#include "core/clock.h"
#include "core/conduct.h"
#include "core/deaths.h"
#include "core/examine.h"
#include "core/guard.h"
#include "core/look.h"

struct made_deaths made_deaths;

static _Atomic int64_t now_ns = 1000 * NG_S; /* also read by who hears something */

/* The linker gives core these in place of its own. */
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, ret_time);
    int64_t now = now_ns;
    *ret_time = (struct timespec){.tv_sec = now / NG_S, .tv_nsec = now % NG_S};
    return 0;
}

void __wrap_ng_examine_open(const struct ng_incident *wanted, struct ng_view *view, struct ng_verdict *verdict);
void __wrap_ng_examine_open(const struct ng_incident *wanted, struct ng_view *view, struct ng_verdict *verdict)
{
    (void)view;
    made_deaths.opened++;
    made_deaths.kind = verdict->kind;
    made_deaths.group_id = wanted->group_id;
    made_deaths.seq = wanted->seq;
    ng_examine_end(wanted->level, false);
}

static uint32_t ended(struct ng_board *board)
{
    (void)board;
    return made_deaths.ended;
}

static int begin(struct ng_board *board, enum ng_incident_level level, enum ng_look_cause cause)
{
    (void)board;
    (void)level;
    made_deaths.asked_at_ns[made_deaths.asked_count % MADE_ASKED] = now_ns;
    made_deaths.asked[made_deaths.asked_count++ % MADE_ASKED] = cause;
    return made_deaths.answers_busy >> cause & 1 ? -EBUSY : 0;
}

static void finish(struct ng_board *board, enum ng_incident_level level, bool in_vain)
{
    (void)board;
    (void)level;
    made_deaths.in_vain += in_vain;
}

static int view(struct ng_board *board, struct ng_view *to)
{
    (void)board;
    made_deaths.looks++;
    now_ns += made_deaths.look_ns;
    made_deaths.fill(to, false);
    return 0;
}

static int view_host(struct ng_board *board, struct ng_view *to)
{
    (void)board;
    made_deaths.looks_here++;
    made_deaths.fill(to, true);
    return 0;
}

static int read_verdict(struct ng_board *board, const struct ng_incident *incident, struct ng_documents *ret_documents)
{
    (void)board;
    (void)incident;
    (void)ret_documents;
    return -ENOENT;
}

void made_deaths_begin(int64_t pending_age_ns)
{
    static const struct ng_board_ops ops = {.ended = ended,
                                            .begin = begin,
                                            .finish = finish,
                                            .view = view,
                                            .view_host = view_host,
                                            .read_verdict = read_verdict};
    static struct ng_board board = {.ops = &ops};
    static const struct ng_box_identity identity = {.rank = 0, .world_size = 2};

    if (!ng_guard.box.header && ng_box_create(NULL, &identity, 16, &ng_guard.box) != 0)
        abort();
    ng_guard.board = &board;
    ng_guard.config.suspect_ns = 5 * NG_S;
    atomic_store(&ng_guard.running, true);
    NG_STORE(ng_guard.box.header->group_used, 1);
    NG_STORE(ng_guard.box.groups[0].pending_record, 1);
    NG_STORE(ng_guard.box.groups[0].pending_age_ns, pending_age_ns);
    ng_deaths_after_fork();
    ng_conduct_after_fork();
    ng_alarms_after_fork();
    made_deaths = (struct made_deaths){.fill = made_deaths.fill};
    now_ns += 100 * NG_S;
}

void made_deaths_rounds(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        now_ns += NG_MS;
        ng_deaths_check();
    }
}

static void *hear(void *ret_done)
{
    ng_deaths_hear(NULL);
    atomic_store((atomic_bool *)ret_done, true);
    return NULL;
}

unsigned made_deaths_hear(void (*at)(unsigned round))
{
    atomic_bool done = false;
    unsigned rounds = 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, hear, &done) != 0)
        abort();
    while (!done) {
        /* It sleeps by the real clock, and asks the made one. */
        struct timespec pause = {.tv_nsec = 3000000};
        nanosleep(&pause, NULL);
        if (at)
            at(rounds);
        if (!done)
            made_deaths_rounds(1);
        rounds++;
    }
    pthread_join(thread, NULL);
    return rounds;
}

void made_deaths_told(uint64_t group_id, uint64_t seq)
{
    struct ng_incident incident = {.source = NG_SOURCE_HOST,
                                   .level = NG_INCIDENT_SUSPECT,
                                   .group_id = group_id,
                                   .seq = seq,
                                   .line = "left_early: of a test"};

    ng_alarms_answered(&incident);
}

void made_deaths_deadline(uint64_t group_id, uint64_t seq, unsigned op)
{
    struct ng_incident incident = {.epoch = 1,
                                   .source = NG_SOURCE_JOB,
                                   .level = NG_INCIDENT_TIMEOUT,
                                   .state = NG_INCIDENT_JUDGED,
                                   .group_id = group_id,
                                   .seq = seq,
                                   .op = op,
                                   .claimant_pid = -1,
                                   .claimed_mono_ns = now_ns,
                                   .policy = NG_ON_TIMEOUT_LOG + 1,
                                   .line = "missing_rank: of a test"};

    ng_conduct_follow(&incident);
}
