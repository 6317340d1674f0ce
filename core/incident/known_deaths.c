/*
 * Ends of other processes that were reported, and the clock that runs from the first report.
 */
#include "core/incident/known_deaths.h"

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/runtime/runtime.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define CLOCK_STEP_NS                                                                              \
    (2 * NG_S) /* a round of this thread including its work; a longer gap means the process was    \
                  stopped */
#define CLOCKS_NS NG_S /* ages differ by less between watchdogs and hosts */

static NG_FORGOTTEN struct {
    uint32_t seen, covered;   /* ended processes of the job: as far as known; at the last verdict */
    uint64_t group, seq;      /* of the last verdict on a death */
    int64_t reported_mono_ns; /* when it was reported; 0 never */
} own;

/* The NCCLGUARD_DEATH_TIMEOUT clock: runs from the first report of an end that others wait for. It
 * pauses when deadlines pause. */
static NG_FORGOTTEN struct {
    bool runs;
    bool rested;         /* when it was last read */
    uint64_t group, seq; /* of the call in which they wait */
    uint32_t op;
    int64_t read_ns, waited_ns, due_ns; /* last read; time counted so far; time to reach */
} death_clock;

bool ng_known_deaths_see(uint32_t ended)
{
    bool more = ended != own.seen;

    own.seen = ended;
    return more;
}

bool ng_known_deaths_are_open(void)
{
    return own.seen && own.seen != own.covered;
}

void ng_known_deaths_cover(void)
{
    own.covered = own.seen;
}

void ng_known_deaths_report(uint64_t group, uint64_t seq)
{
    own.group = group;
    own.seq = seq;
    own.reported_mono_ns = ng_clock_mono_ns();
}

bool ng_known_deaths_reported(uint64_t group, uint64_t seq)
{
    return group == own.group && seq == own.seq;
}

int64_t ng_known_deaths_reported_mono_ns(void)
{
    return own.reported_mono_ns;
}

void ng_known_deaths_start_clock(uint64_t group, uint64_t seq, uint32_t op)
{
    if (death_clock.runs || !ng_guard.config.death_timeout_ns)
        return;
    death_clock.runs = true;
    death_clock.rested = false;
    death_clock.group = group;
    death_clock.seq = seq;
    death_clock.op = op;
    death_clock.read_ns = ng_clock_mono_ns();
    death_clock.waited_ns = 0;
    death_clock.due_ns = ng_guard.config.death_timeout_ns;
}

void ng_known_deaths_note(const struct ng_incident *incident)
{
    if (!ng_known_deaths_is_end(incident->kind))
        return;
    ng_known_deaths_report(incident->group_id, incident->seq);
    if (incident->level == NG_INCIDENT_SUSPECT)
        ng_known_deaths_start_clock(incident->group_id, incident->seq, incident->op);
}

/* Are deadlines paused for the group or, if this process is not a member, for the job? */
static bool clock_rests(void)
{
    NG_EACH_COMM (comm)
        if (NG_LOAD(comm->group->id) == death_clock.group)
            return ng_deadline_rests(comm);
    return ng_deadline_rests(NULL);
}

bool ng_known_deaths_tend_clock(struct ng_alarm *ret_alarm)
{
    int64_t now = ng_clock_mono_ns(), step = now - death_clock.read_ns;

    if (!death_clock.runs)
        return false;
    death_clock.read_ns = now;
    bool rests = clock_rests();
    /* A step from a pause into the time after it may be of the pause for the most part. */
    if (!rests && !death_clock.rested)
        death_clock.waited_ns += step < CLOCK_STEP_NS ? step : CLOCK_STEP_NS;
    death_clock.rested = rests;
    if (death_clock.waited_ns < death_clock.due_ns)
        return false;
    *ret_alarm = (struct ng_alarm){.level = NG_INCIDENT_TIMEOUT,
                                   .death = true,
                                   .group_id = death_clock.group,
                                   .seq = death_clock.seq,
                                   .op = (enum ng_op)death_clock.op,
                                   .age_ns = death_clock.waited_ns,
                                   .restarts = ng_alarm_restarts()};
    death_clock.due_ns = death_clock.waited_ns + NG_S;
    return true;
}

/* How long the call has waited for a rank that ended: call and rank may differ from those that
 * started the clock. */
static int64_t waited_for_end(const struct ng_verdict *verdict)
{
    int64_t gone_ns = verdict->gave_up_ns;

    for (uint32_t i = 0; i < verdict->culprit_count; i++)
        gone_ns = NG_MAX(gone_ns, verdict->culprits[i].gone_ns);
    return gone_ns && gone_ns < verdict->stalled_ns ? gone_ns : verdict->stalled_ns;
}

bool ng_known_deaths_may_act(const struct ng_verdict *verdict)
{
    int64_t timeout_ns = ng_guard.config.death_timeout_ns;
    bool certain = !verdict->may_be_gone &&
                   (verdict->confidence == NG_CONFIDENCE_CERTAIN || verdict->end_is_certain);
    int64_t waited_ns = certain ? waited_for_end(verdict) : 0;

    if (!death_clock.runs)
        return false;
    death_clock.runs = (ng_known_deaths_is_end(verdict->kind) || verdict->gave_up_ns) &&
                       ng_op_table[verdict->op].op_class != NG_CLASS_END;
    if (!death_clock.runs)
        return false;
    death_clock.runs = !certain || waited_ns + CLOCKS_NS < timeout_ns;
    death_clock.due_ns =
        death_clock.waited_ns + (timeout_ns - waited_ns > NG_S ? timeout_ns - waited_ns : NG_S);
    return !death_clock.runs;
}

void ng_known_deaths_stop_clock(void)
{
    death_clock.runs = false;
}

int64_t ng_known_deaths_clock_due_ns(void)
{
    return death_clock.runs ? death_clock.read_ns + death_clock.due_ns - death_clock.waited_ns
                            : INT64_MAX;
}
