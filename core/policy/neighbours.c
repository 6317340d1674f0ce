/*
 * Ends ranks of this host that cannot end themselves.
 *
 * Incident thread. All ranks get here at about the same time; the first of them stays until the
 * others have begun to end or have been ended, and the rest leave the work to it. Must never end a
 * process outside the job and the incident, nor wait beyond its bounds, which the bound of
 * core/policy/policy.c encloses.
 */
#include "core/policy/neighbours.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/config/config.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"

#define PATIENCE_NS (2 * NG_S) /* for running ranks to begin to end themselves */
#define ABORT_NS    NG_S       /* between SIGABRT and SIGKILL */
#define ALONE_NS    NG_S       /* if the others have not received the verdict */
#define NAMED                                                                                      \
    64 /* more ranks than one process ever has to end; any ranks beyond get only SIGKILL */

/* A process that was sent SIGABRT. */
struct aborted {
    int pid;
    uint64_t start_ticks;
    int64_t since_mono_ns;
};

struct round {
    struct ng_board *board;
    const struct ng_box_header *own;
    uint64_t pid_namespace;
    int64_t began_mono_ns, since_mono_ns, now_mono_ns;
    struct aborted aborted[NAMED];
    unsigned aborted_count;
    unsigned left, running;
    bool told, stopped_may_end; /* as of the round before */
    bool another_stays;
};

static bool comes_before(const struct ng_box_header *a, const struct ng_box_header *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pid < b->pid;
}

static bool is_stopped(const struct ng_box *box)
{
    const struct ng_box_header *header = box->header;
    int64_t before = ng_clock_mono_ns();
    uint64_t start_ticks;
    char state;

    return ng_proc_stat(header->pid, &state, &start_ticks) == 0 &&
           start_ticks == header->start_ticks && ng_box_shows_stopped(box, state, before);
}

/* When the process was sent SIGABRT, 0 not yet; NULL: no room to record it. */
static int64_t *aborted_at(struct round *round, const struct ng_box_header *header)
{
    NG_EACH (entry, round->aborted, round->aborted_count)
        if (entry->pid == header->pid && entry->start_ticks == header->start_ticks)
            return &entry->since_mono_ns;
    if (round->aborted_count == NAMED)
        return NULL;
    struct aborted *one = &round->aborted[round->aborted_count++];
    *one = (struct aborted){.pid = header->pid, .start_ticks = header->start_ticks};
    return &one->since_mono_ns;
}

static void send(struct round *round, const struct ng_box *box, bool stopped)
{
    const struct ng_box_header *header = box->header;
    int64_t *at = aborted_at(round, header);
    bool kills = !at || *at != 0;

    if (at && *at && round->now_mono_ns - *at < ABORT_NS)
        return;
    int error = round->board->ops->signal(round->board, box, kills ? SIGKILL : SIGABRT);
    if (!error && !kills && stopped)
        round->board->ops->signal(round->board, box, SIGCONT);
    if (at)
        *at = round->now_mono_ns;
    ng_log(NG_LOG_ERROR, "%s rank %d (pid %d) for the verdict: %s: %s",
           error ? "cannot end" : "ended", header->rank, header->pid,
           stopped ? "it is stopped" : "it does not end itself",
           error   ? strerror(-error)
           : kills ? "SIGKILL"
                   : "SIGABRT");
    /* The signal failed: no rank of this host can end it. */
    round->left -= error != 0;
}

static void visit(void *context, const struct ng_box *box)
{
    struct round *round = context;
    const struct ng_box_header *header = box->header;

    bool later = header->origin_mono_ns >= round->began_mono_ns;
    if (header->pid_namespace != round->pid_namespace || later ||
        !ng_on_timeout_ends(atomic_load(&header->mildest_policy)) ||
        round->board->ops->signal(round->board, box, 0) == -EPERM)
        return;
    bool stopped = is_stopped(box);
    if (!stopped && atomic_load(&header->ending_policy)) {
        round->another_stays |= comes_before(header, round->own);
        return;
    }
    if (!stopped && header->takes_errors)
        return;
    round->left++;
    round->running += !stopped;
    bool over = round->told && round->now_mono_ns - round->since_mono_ns >= PATIENCE_NS;
    if (stopped ? round->stopped_may_end : over)
        send(round, box, stopped);
}

void ng_neighbours_end(struct ng_board *board, const struct ng_box *own, int64_t began_mono_ns,
                       bool told)
{
    struct round round = {.board = board,
                          .own = own->header,
                          .pid_namespace = own->header->pid_namespace,
                          .began_mono_ns = began_mono_ns,
                          .since_mono_ns = ng_clock_mono_ns(),
                          .told = told,
                          .stopped_may_end = told};
    int64_t patience_ns = (told ? PATIENCE_NS : ALONE_NS) + 2 * ABORT_NS;

    if (!board || !board->ops->each || !board->ops->signal)
        return;
    for (;;) {
        round.left = round.running = 0;
        round.another_stays = false;
        round.now_mono_ns = ng_clock_mono_ns();
        board->ops->each(board, visit, &round);
        int64_t waited_ns = round.now_mono_ns - round.since_mono_ns;
        if (!round.left || round.another_stays || waited_ns >= patience_ns ||
            (round.running && !told && waited_ns >= ALONE_NS))
            return;
        round.stopped_may_end = told || !round.running;
        ng_clock_sleep(20 * NG_MS);
    }
}
