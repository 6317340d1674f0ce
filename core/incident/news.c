/*
 * News from the board: incidents that others claimed, and what an operator commands.
 *
 * Each entry is read once, in the order of its source. A suspicion without a verdict is skipped and
 * examined again later, so that it does not hold up a deadline or a command behind it. Incident
 * thread alone.
 */
#include "core/incident/news.h"

#include <errno.h>
#include <string.h>

#include "core/device/driver_errors.h"
#include "core/incident/alarms.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/operator_commands.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define PASSED_MAX 16u
#define AT_ONCE                                                                                    \
    64u /* the rest is read in the next round: a flood of entries must not occupy the thread */
#define LIFE_NS                                                                                    \
    (500 * NG_MS) /* how often to check that a claimant lives: this may query the store */

/* Suspicions that others had claimed but not judged when they were read. */
struct passed {
    uint64_t epoch;
    int64_t asked_ns; /* when its claimant was last known to live */
};

static NG_FORGOTTEN struct {
    struct passed passed[NG_SOURCES][PASSED_MAX]; /* the oldest first */
    unsigned count[NG_SOURCES];
} own;

/* Has the claimant ended without a verdict? It may have judged just before it ended. */
static bool is_abandoned(struct ng_board *board, struct ng_incident *incident)
{
    return incident->state != NG_INCIDENT_JUDGED && !board->ops->claimant_alive(board, incident) &&
           (board->ops->get(board, incident) != 0 || incident->state != NG_INCIDENT_JUDGED);
}

/* A suspicion: true if there is a verdict, which is then handled, or if there will be none. */
static bool is_over(struct ng_board *board, struct ng_incident *incident)
{
    if (is_abandoned(board, incident))
        return true;
    if (incident->state != NG_INCIDENT_JUDGED)
        return false;
    ng_response_receive(incident);
    ng_alarms_answered(incident);
    return true;
}

static void pass(const struct ng_incident *incident)
{
    unsigned *count = &own.count[incident->source];
    struct passed *passed = own.passed[incident->source];

    if (*count == PASSED_MAX) /* at this age its claimant hardly delivers a verdict */
        memmove(passed, passed + 1, --*count * sizeof(*passed));
    passed[(*count)++] = (struct passed){.epoch = incident->epoch, .asked_ns = ng_clock_mono_ns()};
}

/* Must it be examined again? */
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

void ng_news_read(struct ng_board *board, enum ng_incident_source source)
{
    struct ng_incident *incident;
    struct ng_news news;
    uint64_t epoch = ng_response_seen(source);

    NG_KEEP(passed, own.passed[source], own.count[source], stays(board, source, passed));
    for (unsigned read = 0; board->ops->next(board, source, epoch, &news) == 0; read++) {
        if (news.epoch <= epoch)
            return; /* never follow a board whose epochs go backwards */
        if (read == AT_ONCE) {
            ng_wake_incident();
            return;
        }
        epoch = news.epoch;
        incident = news.is_command || ng_response_is_own(&news.incident) ? NULL : &news.incident;
        /* The verdict may be reached before this rank is late, and tell of its devices. */
        if (incident && !incident->differs)
            ng_driver_errors_begin();
        if (incident && incident->level == NG_INCIDENT_TIMEOUT) {
            ng_claim_join(incident);
            ng_alarms_answered(incident);
            /* That may have taken long: handle the alarms of this process before the rest. */
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
