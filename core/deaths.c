/*
 * Ends of other processes.
 *
 * Step 9.
 */
#include "core/deaths.h"

#include <errno.h>
#include <string.h>

#include "core/agreement.h"
#include "core/alarms.h"
#include "core/board.h"
#include "core/clock.h"
#include "core/conduct.h"
#include "core/examine.h"
#include "core/guard.h"
#include "core/look.h"
#include "core/op.h"
#include "core/verdict.h"

#define DEATH_CHECK_NS (100 * NG_MS)
#define DEATH_CHECKS   20            /* at this pace after a death, then once a second */
#define DEATH_STALL_NS (200 * NG_MS) /* work pending this long, and a rank it needs is gone */

static struct {
    uint32_t ended_seen;   /* processes of the job that had ended */
    uint32_t deaths_dealt; /* so many of them when somebody last reached a verdict */
    unsigned death_checks;
    int64_t next_death_check_ns;
    uint64_t death_group, death_seq; /* what the last verdict about a death was about */
} own;

/* Has anything of this process waited for so long: work on a device, or a thread inside a call? */
static bool something_pending(int64_t for_ns)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();
    uint32_t groups = NG_LOAD(box->header->group_used), threads = NG_LOAD(box->header->thread_used);

    for (uint32_t i = 0; i < groups; i++)
        if (NG_LOAD(box->groups[i].pending_record) &&
            NG_LOAD(box->groups[i].pending_age_ns) >= for_ns)
            return true;
    for (uint32_t i = 0; i < threads; i++)
        if (NG_LOAD(box->threads[i].op) && now - NG_LOAD(box->threads[i].since_mono_ns) >= for_ns)
            return true;
    return false;
}

/* Has a process ended that pending work needs? */
void ng_deaths_check(void)
{
    const struct ng_verdict_query query = {.stalled_ns = DEATH_STALL_NS};
    struct ng_board *board = ng_guard.board;
    int64_t now = ng_clock_mono_ns();
    uint32_t ended = board->ops->ended(board);
    struct ng_verdict verdict;
    struct ng_view view;

    if (own.deaths_dealt == ended && ended != 0) {
        own.ended_seen = ended;
        return;
    }
    if (ended != own.ended_seen) {
        own.ended_seen = ended;
        own.death_checks = 0;
        own.next_death_check_ns = now;
    }
    if (!ended || ng_guard.config.suspect_ns == 0 || now < own.next_death_check_ns)
        return;
    own.next_death_check_ns = now + (own.death_checks++ < DEATH_CHECKS ? DEATH_CHECK_NS : NG_S);
    if (!something_pending(DEATH_STALL_NS))
        return;
    if (!ng_alarms_may_try())
        return;
    if (board->ops->begin(board, NG_INCIDENT_SUSPECT) == -EBUSY) {
        ng_alarms_try_later();
        return;
    }
    bool opened = false;
    if (ng_look(NG_LOOK_JOB, &view) == 0 && ng_look_judge(&view, &query, "none", &verdict) == 0) {
        /* Who leaves while others still tidy up has done its part; who dies there too. And who
         * leaves a group whose calls differ was told to. */
        bool tidying = ng_op_table[verdict.op].op_class == NG_CLASS_END ||
                       ng_agreement_is_told(verdict.group_id);
        bool death =
            !tidying && (verdict.kind == NG_KIND_DEAD_RANK || verdict.kind == NG_KIND_LEFT_EARLY);
        struct ng_incident wanted = {.level = NG_INCIDENT_SUSPECT,
                                     .group_id = verdict.group_id,
                                     .seq = verdict.seq,
                                     .op = verdict.op,
                                     .stalled_ns = DEATH_STALL_NS,
                                     .since_mono_ns = ng_clock_mono_ns() - verdict.stalled_ns};
        /* Whoever goes after the deadline goes because of the verdict, which stays what it is. */
        if (death && !ng_conduct_has_told_call(&wanted) &&
            (verdict.group_id != own.death_group || verdict.seq != own.death_seq)) {
            own.death_group = verdict.group_id;
            own.death_seq = verdict.seq;
            opened = true;
            ng_examine_open(&wanted, &view, &verdict);
        }
        ng_verdict_fini(&verdict);
    }
    if (!opened)
        ng_examine_end(NG_INCIDENT_SUSPECT, false);
    ng_view_fini(&view);
}

void ng_deaths_are_told(void)
{
    own.deaths_dealt = own.ended_seen;
}

bool ng_deaths_are_due(int64_t *ret_due_ns)
{
    *ret_due_ns = own.next_death_check_ns;
    return own.ended_seen && ng_guard.config.suspect_ns;
}

void ng_deaths_after_fork(void)
{
    memset(&own, 0, sizeof(own));
}
