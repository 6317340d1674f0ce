/*
 * The cause of a wait.
 *
 * Pure.
 */
#include "core/verdict/wait_cause.h"

#include <string.h>

#include "core/nccl/nccl.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/verdict/usual.h"
#include "core/verdict/verdict_builder.h"

/* The clocks of different hosts differ by less than this. */
#define CLOCKS_APART_NS NG_S

/* A group whose ranks made this many equal calls since they diverged does not hang because of the
 * divergence. */
#define PARTED_LONG_AGO 64

/* Had NCCL already reported that a peer is gone when this rank left? */
static bool has_heard(const struct ng_absentee *absentee)
{
    return absentee->followed || absentee->member->async_error == NG_NCCL_REMOTE_ERROR;
}

void ng_wait_cause_find_leaver(struct ng_verdict_builder *builder)
{
    NG_EACH (wait, builder->waits.waits, builder->waits.count) {
        for (uint32_t i = 0; i < wait->absentee_count && wait->type != NG_WAIT_END; i++) {
            const struct ng_absentee *absentee = &wait->absentees[i];
            if (absentee->absence != NG_ABSENT_EXITED)
                continue;
            const struct ng_view_process *process =
                ng_verdict_builder_process_of(builder, absentee->member);
            bool heard = has_heard(absentee);
            bool older = !builder->leaver || process->life_age_ns > builder->leaver->life_age_ns;
            if (builder->leaver && heard != builder->leaver_heard ? heard : !older)
                continue;
            builder->leaver = process;
            builder->leaver_heard = heard;
        }
    }
}

/* Was it still alive when an awaited rank left? Then its end is not the cause of the stall: a
 * process that waits in vain is ended by its launcher, by an operator, or by itself. */
static bool outlived_leaver(const struct ng_verdict_builder *builder,
                            const struct ng_absentee *absentee)
{
    if (!builder->leaver)
        return false;
    const struct ng_view_process *process =
        ng_verdict_builder_process_of(builder, absentee->member);
    bool same_host = strcmp(process->host, builder->leaver->host) == 0;
    int64_t alive_ns = process->life == NG_LIFE_LOST ? process->life_age_ns : process->alive_age_ns;
    return alive_ns &&
           builder->leaver->life_age_ns > ng_view_age(alive_ns) + (same_host ? 0 : CLOCKS_APART_NS);
}

/* Did it join, wait in vain for a rank that had left, and then leave, too, as programs do after an
 * error? */
static bool followed_leaver(const struct ng_verdict_builder *builder, const struct ng_wait *wait,
                            const struct ng_absentee *absentee)
{
    const struct ng_view_process *process =
                                     ng_verdict_builder_process_of(builder, absentee->member),
                                 *leaver = builder->leaver;

    if (!leaver || leaver == process || !wait->seq || absentee->member->entered < wait->seq ||
        !process->life_age_ns)
        return false;
    if (has_heard(absentee) && !builder->leaver_heard)
        return true;
    bool same_host = strcmp(process->host, leaver->host) == 0;
    return leaver->life_age_ns > process->life_age_ns + (same_host ? 0 : CLOCKS_APART_NS);
}

enum ng_cause ng_wait_cause_by_ras(const struct ng_wait *wait, const struct ng_absentee *absentee)
{
    const struct ng_view_ras *ras = absentee->ras;

    if (!ras || wait->type == NG_WAIT_CREATE)
        return NG_CAUSE_UNSEEN;
    switch (ras->rank.state) {
    case NG_RAS_UNREACHABLE:
    case NG_RAS_DEAD:
        return NG_CAUSE_DEAD;
    case NG_RAS_ENDING:
    case NG_RAS_NO_MEMBER:
        return wait->type == NG_WAIT_END ? NG_CAUSE_UNSEEN : NG_CAUSE_LEFT;
    case NG_RAS_MEMBER:
    case NG_RAS_STATES:
        break;
    }
    return wait->type == NG_WAIT_COLLECTIVE && ras->behind && !ras->waits ? NG_CAUSE_MISSING
                                                                          : NG_CAUSE_UNSEEN;
}

enum ng_cause ng_wait_cause_of_absentee(const struct ng_verdict_builder *builder,
                                        const struct ng_wait *wait,
                                        const struct ng_absentee *absentee)
{
    switch (absentee->absence) {
    case NG_ABSENT_DEAD:
    case NG_ABSENT_LOST:
        return outlived_leaver(builder, absentee) ? NG_CAUSE_ELSEWHERE : NG_CAUSE_DEAD;
    case NG_ABSENT_EXITED:
        return absentee->followed || followed_leaver(builder, wait, absentee) ? NG_CAUSE_ELSEWHERE
                                                                              : NG_CAUSE_LEFT;
    case NG_ABSENT_STOPPED:
        return NG_CAUSE_STOPPED;
    case NG_ABSENT_ALIVE:
        return absentee->faulted                                            ? NG_CAUSE_FAULT
               : absentee->stuck_in >= 0 && !ng_absentee_has_left(absentee) ? NG_CAUSE_ELSEWHERE
                                                                            : NG_CAUSE_MISSING;
    case NG_ABSENT_UNSEEN:
        break;
    }
    if (wait->type == NG_WAIT_CREATE)
        return NG_CAUSE_MISSING;
    return ng_wait_cause_by_ras(wait, absentee) == NG_CAUSE_UNSEEN ? NG_CAUSE_UNSEEN
                                                                   : NG_CAUSE_OUTSIDE;
}

/* Has it finished its work: has it ended its communicator, or itself, and not because of an
 * error? */
static bool is_at_end(const struct ng_verdict_builder *builder, const struct ng_absentee *absentee)
{
    const struct ng_view_process *process =
        ng_verdict_builder_process_of(builder, absentee->member);

    if (absentee->came || absentee->followed || absentee->may_follow ||
        absentee->member->async_error)
        return false;
    if (absentee->absence == NG_ABSENT_EXITED)
        return process->exit_status == 0;
    return absentee->absence == NG_ABSENT_ALIVE && ng_absentee_has_left(absentee);
}

/* Is it one rank that waits, or one process, for ranks of others? It makes the calls of its devices
 * together. */
static bool waits_alone(const struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    int32_t index = (int32_t)(wait - builder->waits.waits);
    uint32_t count, process = UINT32_MAX;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);

    for (uint32_t i = 0; i < count && wait->waiter_count > 1; i++) {
        if (builder->waits.wait_of_member[&members[i] - builder->view->members] != index)
            continue;
        if (process != UINT32_MAX && process != members[i].process)
            return false;
        process = members[i].process;
    }
    for (uint32_t i = 0; i < wait->absentee_count && process != UINT32_MAX; i++)
        if (wait->absentees[i].member && wait->absentees[i].member->process == process)
            return false;
    return wait->waiter_count > 0;
}

bool ng_wait_cause_is_of_two(const struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    bool p2p = wait->type == NG_WAIT_P2P;

    if ((wait->type != NG_WAIT_COLLECTIVE && !p2p) || wait->of_leavers || wait->blind ||
        !wait->absentee_count ||
        (!p2p && (int64_t)wait->waiter_count + wait->absentee_count !=
                     builder->view->groups[wait->group].nranks))
        return false;
    NG_EACH (absentee, wait->absentees, wait->absentee_count)
        if (!absentee->member || absentee->member->process != wait->absentees[0].member->process ||
            (!p2p && absentee->member->entered + 1 != wait->seq) || !is_at_end(builder, absentee))
            return false;
    return waits_alone(builder, wait);
}

uint32_t ng_wait_cause_waiter(const struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    int32_t index = (int32_t)(wait - builder->waits.waits);

    NG_EACH_MEMBER (member, builder->view, wait->group)
        if (builder->waits.wait_of_member[member - builder->view->members] == index)
            return (uint32_t)(member - builder->view->members);
    return UINT32_MAX;
}

/* If one of two ranks waits in a collective: did it previously make a different call after the same
 * preceding calls? */
static bool departs_of_two(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    uint32_t waiter = ng_wait_cause_waiter(builder, wait);
    int departures = 0;

    return wait->type == NG_WAIT_COLLECTIVE && waiter != UINT32_MAX &&
           ng_wait_cause_is_of_two(builder, wait) &&
           ng_usual_look(&builder->processes, waiter, 0, &builder->scratch, &departures) == 0 &&
           departures > 0;
}

/*
 * Does a single process wait in a call that the others finished their work without making? Then it
 * made one call too many. For a collective, "the others" are most ranks of the group, which
 * finished right before it; the remaining ranks may be blocked elsewhere, for example by this one.
 * For sends and receives they are all peers, of which there must be several.
 */
static bool is_surplus(const struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    bool p2p = wait->type == NG_WAIT_P2P;
    int64_t ended = 0;

    if ((wait->type != NG_WAIT_COLLECTIVE && !p2p) || wait->of_leavers || wait->blind)
        return false;
    NG_EACH (absentee, wait->absentees, wait->absentee_count) {
        const struct ng_view_member *member = absentee->member;
        if (member && (p2p || member->entered + 1 == wait->seq) && is_at_end(builder, absentee))
            ended++;
        else if (p2p || ng_wait_cause_of_absentee(builder, wait, absentee) != NG_CAUSE_ELSEWHERE)
            return false;
    }
    return (p2p ? ended > 1 : 2 * ended > builder->view->groups[wait->group].nranks) &&
           waits_alone(builder, wait);
}

/* Is an absentee stuck in another wait than this one, which has index `index`? */
static bool elsewhere(const struct ng_wait *wait, int32_t index)
{
    return NG_ANY(one, wait->absentees, wait->absentee_count,
                  one->followed || (one->stuck_in >= 0 && one->stuck_in != index));
}

/* Does the group belong to the mismatch of unique ids that was found? */
static bool is_of_ids(const struct ng_verdict_builder *builder, uint32_t group)
{
    if (!builder->ids.other_id_count)
        return false;
    NG_EACH (other_id, builder->ids.other_ids, builder->ids.other_id_count)
        if (*other_id == builder->view->groups[group].id)
            return true;
    return builder->ids.group == group;
}

/* Did the ranks that joined mean different communicators, or set variables with which NCCL
 * hangs? */
static int find_init_mismatch(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                              struct ng_reason *ret_reason)
{
    uint32_t index = (uint32_t)(wait - builder->waits.waits);
    int result = 1;

    if (is_of_ids(builder, wait->group))
        ret_reason->init = builder->ids;
    else
        result = ng_init_mismatch_find(&builder->processes, &builder->waits, index,
                                       &builder->scratch, &ret_reason->init);
    if (result > 0 && ret_reason->init.other_id_count)
        builder->ids = ret_reason->init;
    ret_reason->by_init = result > 0;
    return result;
}

enum ng_cause ng_wait_cause_of(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                               struct ng_reason *ret_reason)
{
    enum ng_cause worst = wait->absentee_count ? NG_CAUSE_ELSEWHERE : NG_CAUSE_DEVICE;

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        enum ng_cause cause = ng_wait_cause_of_absentee(builder, wait, &wait->absentees[i]);
        worst = NG_MAX(worst, cause);
    }
    if (wait->type == NG_WAIT_COLLECTIVE && worst < NG_CAUSE_MISMATCH &&
        ng_mismatch_find(builder->view, wait->group, wait->seq, &ret_reason->mismatch))
        return NG_CAUSE_MISMATCH;
    if (worst < NG_CAUSE_MISMATCH && is_surplus(builder, wait))
        return NG_CAUSE_SURPLUS;
    if (worst < NG_CAUSE_MISMATCH && departs_of_two(builder, wait))
        return NG_CAUSE_SURPLUS;
    if (worst < NG_CAUSE_MISMATCH && find_init_mismatch(builder, wait, ret_reason) > 0)
        return ret_reason->init.differ == NG_INIT_VARIABLE ? NG_CAUSE_VARIABLE : NG_CAUSE_MISMATCH;
    if (wait->type == NG_WAIT_COLLECTIVE && worst < NG_CAUSE_PARTED &&
        ng_divergence_find(builder->view, wait->group, wait->seq, &builder->scratch,
                           &ret_reason->divergence)) {
        if (ret_reason->divergence.matched <= PARTED_LONG_AGO)
            return NG_CAUSE_PARTED;
        ret_reason->parted_long_ago = true;
    }
    /* A chain of sends and receives that wait for each other ends at one whose peers have all made
     * their calls; otherwise it is a cycle. */
    if (worst == NG_CAUSE_ELSEWHERE && wait->served &&
        !elsewhere(wait, (int32_t)(wait - builder->waits.waits)))
        worst = NG_CAUSE_DEVICE;
    /* Calls that create or end communicators hang on the host, for reasons that are not visible
     * here. */
    bool on_device = wait->type == NG_WAIT_COLLECTIVE || wait->type == NG_WAIT_P2P;
    bool sized = builder->view->groups[wait->group].nranks > 0;
    return worst == NG_CAUSE_DEVICE && (wait->blind || !on_device || !sized) ? NG_CAUSE_UNSEEN
                                                                             : worst;
}
