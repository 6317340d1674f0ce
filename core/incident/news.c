/*
 * News from the board: incidents that others claimed, and what an operator commands.
 *
 * Each is read once, in the order of its source; a suspicion that has no verdict yet is passed, and
 * looked at again, so that it holds up nothing that comes after it, a deadline or a command.
 * Incident thread alone.
 */
#include "core/incident/news.h"

#include <errno.h>
#include <string.h>

#include "core/incident/alarms.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/operator_commands.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"

#define PASSED_MAX 16u
#define AT_ONCE                                                                                    \
    64u /* more have their turn in the next round: nobody who writes without end keeps the thread  \
         */
#define LIFE_NS                                                                                    \
    (500 * NG_MS) /* how often it is asked whether a claimant lives: the store may have to tell */

/* Suspicions that others have claimed and had not judged when they were read. */
struct passed {
    uint64_t epoch;
    int64_t asked_ns; /* when its claimant was known to live */
};

static struct {
    struct passed passed[NG_SOURCES][PASSED_MAX]; /* the oldest first */
    unsigned count[NG_SOURCES];
} own;

/* Has who claimed it ended without a verdict? It may have judged it just before. */
static bool is_abandoned(struct ng_board *board, struct ng_incident *incident)
{
    return incident->state != NG_INCIDENT_JUDGED && !board->ops->claimant_alive(board, incident) &&
           (board->ops->get(board, incident) != 0 || incident->state != NG_INCIDENT_JUDGED);
}

/* A suspicion: true where there is a verdict, which is heard, or will be none. */
static bool is_over(struct ng_board *board, struct ng_incident *incident)
{
    if (is_abandoned(board, incident))
        return true;
    if (incident->state != NG_INCIDENT_JUDGED)
        return false;
    ng_response_hear(incident);
    ng_alarms_answered(incident);
    return true;
}

static void pass(const struct ng_incident *incident)
{
    unsigned *count = &own.count[incident->source];
    struct passed *passed = own.passed[incident->source];

    if (*count == PASSED_MAX) /* so old, its claimant hardly comes through */
        memmove(passed, passed + 1, --*count * sizeof(*passed));
    passed[(*count)++] = (struct passed){.epoch = incident->epoch, .asked_ns = ng_clock_mono_ns()};
}

/* Is it still to be looked at again? */
static bool stays(struct ng_board *board, enum ng_incident_source source, struct passed *passed)
{
    struct ng_incident incident = {.source = source, .epoch = passed->epoch};
    int64_t now = ng_clock_mono_ns();
    int error = board->ops->get(board, &incident);

    if (error)
        return error != -ENOENT;
    if (incident.state != NG_INCIDENT_JUDGED) {
        if (now - passed->asked_ns < LIFE_NS)
            return true;
        passed->asked_ns = now;
    }
    return !is_over(board, &incident);
}

static void look_again(struct ng_board *board, enum ng_incident_source source)
{
    struct passed *passed = own.passed[source];
    unsigned kept = 0;

    for (unsigned i = 0; i < own.count[source]; i++)
        if (stays(board, source, &passed[i]))
            passed[kept++] = passed[i];
    own.count[source] = kept;
}

void ng_news_read(struct ng_board *board, enum ng_incident_source source)
{
    struct ng_incident *incident;
    struct ng_news news;
    uint64_t epoch = ng_response_seen(source);

    look_again(board, source);
    for (unsigned read = 0; board->ops->next(board, source, epoch, &news) == 0; read++) {
        if (news.epoch <= epoch)
            return; /* a board that counts down is none to follow */
        if (read == AT_ONCE) {
            ng_wake_incident();
            return;
        }
        epoch = news.epoch;
        incident = news.is_command || ng_response_is_own(&news.incident) ? NULL : &news.incident;
        if (incident && incident->level == NG_INCIDENT_TIMEOUT) {
            ng_claim_join(incident);
            ng_alarms_answered(incident);
            /* That may have taken long: the alarms of this process have their turn before the rest.
             */
            ng_wake_incident();
            return;
        }
        if (news.is_command)
            ng_operator_commands_obey(&news.command);
        else if (incident && !is_over(board, incident))
            pass(incident);
        ng_response_done(source, epoch);
    }
}

void ng_news_finish(struct ng_board *board)
{
    int64_t until = ng_clock_mono_ns() + NG_NEWS_LAST_NS;
    struct ng_news news;

    for (int source = 0; source < NG_SOURCES; source++) {
        uint64_t epoch = ng_response_seen((enum ng_incident_source)source);
        for (unsigned read = 0; read < AT_ONCE; read++) {
            if (board->ops->next(board, (enum ng_incident_source)source, epoch, &news) != 0 ||
                news.epoch <= epoch)
                break;
            epoch = news.epoch;
            if (!news.is_command && news.incident.level == NG_INCIDENT_TIMEOUT &&
                !ng_response_is_own(&news.incident))
                ng_response_keep(&news.incident, until);
        }
    }
}

void ng_news_after_fork(void)
{
    memset(&own, 0, sizeof(own));
}
