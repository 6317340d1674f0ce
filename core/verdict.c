/*
 * The verdict engine.
 *
 * Step 9, pure. An essay, since this is what all the rest is for.
 *
 * A stall is seen as *waits* (core/waits.h): operations in which ranks are stuck, each with the
 * ranks that it needs and that have not come. Most waits are victims: their absentees are
 * themselves stuck in another wait. The reason of a stall is a wait that has a cause of its own, so
 * that every chain of victims ends there: an absentee that is dead, lost, left, frozen, or alive
 * and in no wait at all; ranks that called with different arguments; or nobody absent and a device
 * that does not finish. If no wait has a cause that is plain to see, the chains may close upon
 * themselves: a deadlock by order (core/cycle.h), which is one whatever else is not known.
 *
 * Several waits with causes: what cannot be a consequence of anything goes first. A death explains
 * a missing call, a mismatch explains a rank that ran out of step and left; neither is explained by
 * them. Among equals the oldest.
 *
 * What is not known is said: a rank of which no evidence exists is missing evidence, never a
 * culprit, except in the making of a communicator, where not having come is itself the evidence. A
 * host that nobody hears of may be down or cut off: its ranks count as dead, but never for certain.
 * Calls that parted before all records (core/history.h) are a cause only of what is stuck soon
 * after.
 */
#include "core/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/composed.h"
#include "core/cycle.h"
#include "core/history.h"
#include "core/nccl.h"
#include "core/processes.h"
#include "core/signature.h"
#include "core/waits.h"
#include "core/why.h"

/* In rising order of how little can be behind it. */
enum cause {
    CAUSE_ELSEWHERE, /* every absentee is stuck in another wait */
    CAUSE_UNSEEN,    /* absentees without evidence */
    CAUSE_DEVICE,    /* nobody is absent */
    CAUSE_MISSING,
    CAUSE_PARTED, /* calls that nobody has records of any more were not alike */
    CAUSE_FAULT,  /* a device failed for good: its rank may not call any more after that */
    CAUSE_STOPPED,
    CAUSE_LEFT,
    CAUSE_MISMATCH,
    CAUSE_DEAD,
};

/* A death is no consequence of another that came this much later. */
#define DEATHS_TOGETHER_NS (2 * NG_S)

/* A sign of life is renewed this often, or oftener: who is lost may have lived so long after the
 * last one. */
#define SIGN_OF_LIFE_NS (2 * NG_S)

/* A group that went through so many calls alike since they parted does not hang for that reason. */
#define PARTED_LONG_AGO 64

/* Every watchdog measures for itself: waits that differ by less are equally old. */
#define SAME_AGE_NS NG_S

struct judge {
    const struct ng_view *view;
    struct ng_verdict *verdict;
    struct ng_arena scratch;
    struct ng_waits waits;
    struct ng_processes processes;
    enum cause *causes; /* of the waits */
    uint32_t culprit_room;
};

/* Why a wait has the cause that it has, where that takes more than its absentees. */
struct reason {
    struct ng_mismatch mismatch;
    struct ng_parting parting;
    bool parted_long_ago; /* no cause, but to be told of */
};

const char *ng_verdict_kind_name(enum ng_verdict_kind kind)
{
    static const char *const names[] = {
#define NG_VERDICT(id, name, text) [NG_KIND_##id] = name,
#include "core/verdict.def"
#undef NG_VERDICT
    };
    return kind < NG_KIND_COUNT ? names[kind] : "unknown";
}

const char *ng_verdict_kind_text(enum ng_verdict_kind kind)
{
    static const char *const texts[] = {
#define NG_VERDICT(id, name, text) [NG_KIND_##id] = text,
#include "core/verdict.def"
#undef NG_VERDICT
    };
    return kind < NG_KIND_COUNT ? texts[kind] : "";
}

const char *ng_confidence_name(enum ng_confidence confidence)
{
    return confidence == NG_CONFIDENCE_CERTAIN  ? "certain"
           : confidence == NG_CONFIDENCE_LIKELY ? "likely"
                                                : "unknown";
}

void ng_verdict_fini(struct ng_verdict *verdict)
{
    ng_arena_reset(&verdict->arena);
    memset(verdict, 0, sizeof(*verdict));
}

static const struct ng_view_process *process_of(const struct judge *judge,
                                                const struct ng_view_member *member)
{
    return &judge->view->processes[member->process];
}

/* The process of global rank `rank`, rather a living one than one of an earlier run; NULL not on
 * the board. */
static const struct ng_view_process *process_of_rank(const struct judge *judge, int rank)
{
    const struct ng_view_process *found = NULL;

    for (uint32_t i = 0; i < judge->view->process_count; i++) {
        const struct ng_view_process *process = &judge->view->processes[i];
        if (process->rank == rank && (!found || found->life != NG_LIFE_RUNNING))
            found = process;
    }
    return found;
}

/* In a group of the whole world, group rank and global rank are the same. */
static bool is_world(const struct judge *judge, uint32_t group)
{
    for (uint32_t i = 0; i < judge->view->process_count; i++)
        if (judge->view->processes[i].world_size == judge->view->groups[group].nranks)
            return true;
    return false;
}

static struct ng_culprit *add_culprit(struct judge *judge, const struct ng_view_member *member,
                                      int group_rank)
{
    struct ng_verdict *verdict = judge->verdict;

    if (verdict->culprit_count == judge->culprit_room) {
        uint32_t room = judge->culprit_room ? judge->culprit_room * 2 : 8;
        struct ng_culprit *bigger = ng_arena_alloc(&verdict->arena, room * sizeof(*bigger));
        if (!bigger)
            return NULL;
        if (verdict->culprit_count)
            memcpy(bigger, verdict->culprits, verdict->culprit_count * sizeof(*bigger));
        verdict->culprits = bigger;
        judge->culprit_room = room;
    }
    struct ng_culprit *culprit = &verdict->culprits[verdict->culprit_count++];
    culprit->rank = -1;
    culprit->group_rank = group_rank;
    if (member) {
        culprit->rank = judge->processes.ranks[member - judge->view->members];
        culprit->pid = process_of(judge, member)->pid;
        culprit->life = process_of(judge, member)->life;
        culprit->quiet_ns = process_of(judge, member)->quiet_ns;
        snprintf(culprit->host, sizeof(culprit->host), "%s", process_of(judge, member)->host);
    }
    return culprit;
}

/* Processes without a launcher, or with several devices each: ranks are named as in the largest
 * group. */
static bool names_ranks(const struct judge *judge, uint32_t group)
{
    const struct ng_view *view = judge->view;
    bool needed = false;

    for (uint32_t i = 0; i < view->group_count; i++)
        if (view->groups[i].nranks > view->groups[group].nranks)
            return false;
    for (uint32_t i = 0; i < view->process_count; i++)
        needed |= view->processes[i].rank < 0 || view->processes[i].drives_several;
    return needed;
}

/* How the ranks of a group are called globally. */
enum naming { NAMING_NOT_KNOWN, NAMING_BY_GROUP, NAMING_BY_PROCESS };

static enum naming naming_of(const struct judge *judge, uint32_t group)
{
    return names_ranks(judge, group) ? NAMING_BY_GROUP
           : is_world(judge, group)  ? NAMING_BY_PROCESS
                                     : NAMING_NOT_KNOWN;
}

/* Who is to be told of for an absentee that nobody has seen, where a communicator is made. NULL:
 * that is not known. */
static const struct ng_view_process *name_unseen(const struct judge *judge, enum naming naming,
                                                 const struct ng_absentee *absentee,
                                                 struct ng_culprit *culprit)
{
    if (naming == NAMING_NOT_KNOWN)
        return NULL;
    culprit->rank = absentee->group_rank;
    const struct ng_view_process *process =
        naming == NAMING_BY_PROCESS ? process_of_rank(judge, absentee->group_rank) : NULL;
    if (!process)
        return NULL;
    culprit->pid = process->pid;
    culprit->life = process->life;
    culprit->quiet_ns = process->quiet_ns;
    snprintf(culprit->host, sizeof(culprit->host), "%s", process->host);
    return process;
}

static enum cause cause_of_absentee(const struct ng_wait *wait, const struct ng_absentee *absentee)
{
    switch (absentee->absence) {
    case NG_ABSENT_DEAD:
    case NG_ABSENT_LOST:
        return CAUSE_DEAD;
    case NG_ABSENT_EXITED:
        return CAUSE_LEFT;
    case NG_ABSENT_STOPPED:
        return CAUSE_STOPPED;
    case NG_ABSENT_ALIVE:
        /* Who has destroyed its communicator will never come, wherever it is stuck now. */
        return absentee->faulted                                  ? CAUSE_FAULT
               : absentee->stuck_in >= 0 && !absentee->left_group ? CAUSE_ELSEWHERE
                                                                  : CAUSE_MISSING;
    case NG_ABSENT_UNSEEN:
        break;
    }
    return wait->type == NG_WAIT_CREATE ? CAUSE_MISSING : CAUSE_UNSEEN;
}

/* Is an absentee held by another wait than this one, which has this index? */
static bool elsewhere(const struct ng_wait *wait, int32_t index)
{
    for (uint32_t i = 0; i < wait->absentee_count; i++)
        if (wait->absentees[i].stuck_in >= 0 && wait->absentees[i].stuck_in != index)
            return true;
    return false;
}

static enum cause cause_of(struct judge *judge, const struct ng_wait *wait,
                           struct reason *ret_reason)
{
    enum cause worst = wait->absentee_count ? CAUSE_ELSEWHERE : CAUSE_DEVICE;

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        enum cause cause = cause_of_absentee(wait, &wait->absentees[i]);
        if (cause > worst)
            worst = cause;
    }
    if (wait->type == NG_WAIT_COLLECTIVE && worst < CAUSE_MISMATCH &&
        ng_mismatch_find(judge->view, wait->group, wait->seq, &ret_reason->mismatch))
        return CAUSE_MISMATCH;
    if (wait->type == NG_WAIT_COLLECTIVE && worst < CAUSE_PARTED &&
        ng_parting_find(judge->view, wait->group, wait->seq, &judge->scratch,
                        &ret_reason->parting)) {
        if (ret_reason->parting.matched <= PARTED_LONG_AGO)
            return CAUSE_PARTED;
        ret_reason->parted_long_ago = true;
    }
    /* Sends and receives that wait for each other end at one whose peers have all come; or else
     * they go in a round. */
    if (worst == CAUSE_ELSEWHERE && wait->served &&
        !elsewhere(wait, (int32_t)(wait - judge->waits.waits)))
        worst = CAUSE_DEVICE;
    /* Calls that make or end communicators hang on the host, for reasons that are not seen here. */
    bool on_device = wait->type == NG_WAIT_COLLECTIVE || wait->type == NG_WAIT_P2P;
    bool sized = judge->view->groups[wait->group].nranks > 0;
    return worst == CAUSE_DEVICE && (wait->blind || !on_device || !sized) ? CAUSE_UNSEEN : worst;
}

static void set_group(struct judge *judge, uint32_t group)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view_group *in_view = &judge->view->groups[group];

    verdict->group_id = in_view->id;
    verdict->group_nranks = in_view->nranks;
    snprintf(verdict->group_name, sizeof(verdict->group_name), "%s", in_view->name);
}

static void tell_of(struct judge *judge, uint32_t index)
{
    const struct ng_wait *wait = &judge->waits.waits[index];

    set_group(judge, wait->group);
    judge->verdict->seq = wait->seq;
    judge->verdict->op = wait->op;
    judge->verdict->composed = wait->composed;
    judge->verdict->stalled_ns = wait->age_ns;
}

/* When the first of the absentees of a wait died, and when the first that is lost was heard of
 * last, as ages; 0 none. */
struct first_death {
    int64_t dead_ns, lost_ns;
};

static struct first_death first_death(const struct judge *judge, const struct ng_wait *wait)
{
    struct first_death first = {0};

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        const struct ng_absentee *absentee = &wait->absentees[i];
        int64_t *oldest_ns = absentee->absence == NG_ABSENT_DEAD   ? &first.dead_ns
                             : absentee->absence == NG_ABSENT_LOST ? &first.lost_ns
                                                                   : NULL;
        if (oldest_ns && process_of(judge, absentee->member)->life_age_ns > *oldest_ns)
            *oldest_ns = process_of(judge, absentee->member)->life_age_ns;
    }
    return first;
}

/* May this end be the consequence of an earlier one? Of a loss nobody knows when it was, and of
 * several not which was first. */
static bool is_consequence(const struct judge *judge, const struct first_death *first,
                           const struct ng_absentee *absentee)
{
    int64_t age_ns = process_of(judge, absentee->member)->life_age_ns;

    if (age_ns < first->dead_ns - DEATHS_TOGETHER_NS)
        return true;
    return absentee->absence == NG_ABSENT_DEAD &&
           age_ns < first->lost_ns - DEATHS_TOGETHER_NS - SIGN_OF_LIFE_NS;
}

static int blame_absentees(struct judge *judge, const struct ng_wait *wait, enum cause cause)
{
    struct ng_verdict *verdict = judge->verdict;
    struct first_death first = first_death(judge, wait);
    bool died = cause == CAUSE_DEAD, left = cause == CAUSE_LEFT, stopped = cause == CAUSE_STOPPED;

    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    enum naming naming = naming_of(judge, wait->group);
    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        const struct ng_absentee *absentee = &wait->absentees[i];
        if (cause_of_absentee(wait, absentee) != cause ||
            (cause == CAUSE_DEAD && is_consequence(judge, &first, absentee)))
            continue;
        struct ng_culprit *culprit = add_culprit(judge, absentee->member, absentee->group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_why_absent(&judge->processes, wait, absentee, culprit->why, sizeof(culprit->why));
        if (absentee->absence == NG_ABSENT_LOST ||
            (absentee->absence == NG_ABSENT_STOPPED && absentee->came))
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (absentee->absence != NG_ABSENT_UNSEEN)
            continue;
        const struct ng_view_process *process = name_unseen(judge, naming, absentee, culprit);
        if (!process || process->life == NG_LIFE_LOST)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (!process)
            continue;
        died |= process->life == NG_LIFE_DEAD || process->life == NG_LIFE_LOST;
        left |= process->life == NG_LIFE_EXITED;
        stopped |= process->life == NG_LIFE_STOPPED;
        ng_why_not_in_making(&judge->processes, (uint32_t)(process - judge->view->processes),
                             wait->op, culprit->why, sizeof(culprit->why));
    }
    /* One may have failed because of the other, or because of who has not come either. */
    if (cause == CAUSE_FAULT && (verdict->culprit_count > 1 || wait->absentee_count > 1))
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    verdict->kind = died                           ? NG_KIND_DEAD_RANK
                    : left                         ? NG_KIND_LEFT_EARLY
                    : stopped                      ? NG_KIND_STOPPED_RANK
                    : cause == CAUSE_FAULT         ? NG_KIND_GPU_STALL
                    : wait->type == NG_WAIT_CREATE ? NG_KIND_INIT_MISSING_RANK
                                                   : NG_KIND_MISSING_RANK;
    return 0;
}

static int blame_mismatch(struct judge *judge, const struct ng_wait *wait,
                          const struct ng_mismatch *mismatch)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, wait->group, &count);
    struct ng_signature signature;

    verdict->kind = NG_KIND_MISMATCH;
    verdict->seq = mismatch->seq;
    verdict->op = (enum ng_op)mismatch->expected.op;
    verdict->confidence = mismatch->undecided    ? NG_CONFIDENCE_UNKNOWN
                          : mismatch->by_history ? NG_CONFIDENCE_LIKELY
                                                 : NG_CONFIDENCE_CERTAIN;
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) ||
            !ng_signature_at(&members[i], mismatch->seq, &signature) ||
            (!mismatch->undecided && !ng_signature_differ(&signature, &mismatch->expected)))
            continue;
        struct ng_culprit *culprit = add_culprit(judge, &members[i], members[i].group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_why_mismatch(mismatch, &signature, culprit->why, sizeof(culprit->why));
    }
    return 0;
}

/* The minority, where sides were taken. */
static int blame_parted(struct judge *judge, const struct ng_wait *wait,
                        const struct ng_parting *parting)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, wait->group, &count);
    struct ng_signature signature;
    enum ng_op op = NG_OP_NONE;

    for (uint32_t i = 0; i < count && op == NG_OP_NONE; i++)
        if (ng_signature_at(&members[i], parting->seq, &signature))
            op = (enum ng_op)signature.op;
    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = parting->undecided ? NG_CONFIDENCE_UNKNOWN : NG_CONFIDENCE_LIKELY;
    verdict->seq = parting->seq;
    verdict->op = op;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = ng_rolling_hash_at(&members[i], parting->compared);
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) || !hash ||
            (!parting->undecided && hash == parting->expected))
            continue;
        struct ng_culprit *culprit = add_culprit(judge, &members[i], members[i].group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_why_parted(parting, op, culprit->why, sizeof(culprit->why));
    }
    return 0;
}

/* Everybody came. Where some devices have reached the work and some have not, those are held up by
 * what is queued. */
static int blame_device(struct judge *judge, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, wait->group, &count);
    int32_t index = (int32_t)(wait - judge->waits.waits);

    verdict->kind = NG_KIND_GPU_STALL;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    if (wait->not_started == 0 || wait->not_started >= wait->waiter_count)
        return 0;
    verdict->confidence = NG_CONFIDENCE_LIKELY;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_member *member = &members[i];
        if (judge->waits.wait_of_member[member - judge->view->members] != index ||
            member->pending_started || judge->waits.queued[member - judge->view->members] ||
            (wait->seq && member->pending_seq != wait->seq))
            continue;
        struct ng_culprit *culprit = add_culprit(judge, member, member->group_rank);
        if (!culprit)
            return -ENOMEM;
        snprintf(culprit->why, sizeof(culprit->why),
                 "made the call, but its device has not reached it in %.1f s: work queued ahead on "
                 "the stream does "
                 "not finish",
                 (double)member->pending_age_ns / 1e9);
    }
    return 0;
}

/* The rank in another group of the process that `member` belongs to; -1 not in it, or not one. */
static int rank_in(const struct judge *judge, uint32_t group, const struct ng_view_member *member)
{
    const struct ng_processes *processes = &judge->processes;

    for (uint32_t k = processes->first[member->process];
         k < processes->first[member->process + 1] && !process_of(judge, member)->drives_several;
         k++) {
        const struct ng_view_member *other = &judge->view->members[processes->members[k]];
        if (other->group == group)
            return other->group_rank;
    }
    return -1;
}

static int copy_cycle(struct judge *judge, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;

    verdict->cycle = ng_arena_alloc(&verdict->arena, cycle->count * sizeof(*verdict->cycle));
    if (!verdict->cycle)
        return -ENOMEM;
    verdict->cycle_count = cycle->count;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *from = &cycle->steps[i];
        const struct ng_wait *wait = &judge->waits.waits[from->wait];
        struct ng_verdict_step *step = &verdict->cycle[i];
        step->rank = judge->processes.ranks[from->stuck];
        step->group_rank = view->members[from->stuck].group_rank;
        step->group_id = view->groups[wait->group].id;
        snprintf(step->group_name, sizeof(step->group_name), "%s", view->groups[wait->group].name);
        step->op = from->op;
        step->seq = wait->seq;
        step->waits_for_rank = judge->processes.ranks[from->next->member - view->members];
        step->queued = from->next->queued;
    }
    return 0;
}

/* Everyone that is where a step of the cycle is, and so holds up the step before. */
static int blame_order(struct judge *judge, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_wait *told = &judge->waits.waits[cycle->steps[0].wait];

    int error = copy_cycle(judge, cycle);
    if (error)
        return error;
    set_group(judge, told->group);
    verdict->kind = NG_KIND_ORDER_DEADLOCK;
    verdict->confidence = cycle->blurred ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN;
    verdict->seq = told->seq;
    verdict->op = cycle->steps[0].op;
    verdict->stalled_ns = 0;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *step = &cycle->steps[i];
        const struct ng_cycle_step *before = &cycle->steps[i ? i - 1 : cycle->count - 1];
        const struct ng_wait *wait = &judge->waits.waits[before->wait];
        if (wait->age_ns > verdict->stalled_ns)
            verdict->stalled_ns = wait->age_ns;
        for (uint32_t k = 0; k < wait->absentee_count; k++) {
            const struct ng_absentee *absentee = &wait->absentees[k];
            if (!ng_cycle_leads(judge->view, &judge->waits, before, absentee, step))
                continue;
            struct ng_culprit *culprit =
                add_culprit(judge, absentee->member, rank_in(judge, told->group, absentee->member));
            if (!culprit)
                return -ENOMEM;
            ng_why_order(verdict, i, culprit->why, sizeof(culprit->why));
        }
    }
    return 0;
}

/*
 * No wait has a cause that is plain to see: ranks wait for each other in a round, which is a reason
 * whatever else is not known; or nobody is absent where the chains end; or nobody can tell.
 */
static int judge_order(struct judge *judge, uint32_t *best, enum cause cause)
{
    struct ng_verdict *verdict = judge->verdict;
    struct ng_cycle cycle;

    int error = ng_cycle_find(judge->view, &judge->waits, &judge->scratch, &cycle);
    if (error)
        return error;
    if (cycle.count) {
        *best = cycle.steps[0].wait;
        error = blame_order(judge, &cycle);
        if (cause == CAUSE_UNSEEN)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        return error;
    }
    if (cause == CAUSE_ELSEWHERE)
        for (uint32_t w = 0; w < judge->waits.count; w++)
            if (judge->waits.waits[w].served && !judge->waits.waits[w].blind) {
                *best = w;
                cause = CAUSE_DEVICE;
                break;
            }
    tell_of(judge, *best);
    if (cause == CAUSE_DEVICE)
        return blame_device(judge, &judge->waits.waits[*best]);
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    return 0;
}

static void sort_ints(int *values, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < count; i++) {
            int value = values[i];
            uint32_t k = i;
            for (; k >= gap && values[k - gap] > value; k -= gap)
                values[k] = values[k - gap];
            values[k] = value;
        }
}

/* By rank; those that have none come last. */
static bool culprit_comes_before(const struct ng_culprit *a, const struct ng_culprit *b)
{
    if (a->rank != b->rank)
        return (unsigned)a->rank < (unsigned)b->rank;
    return a->group_rank < b->group_rank;
}

static void sort_culprits(struct ng_culprit *culprits, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < count; i++) {
            uint32_t k = i;
            if (!culprit_comes_before(&culprits[k], &culprits[k - gap]))
                continue;
            struct ng_culprit moving = culprits[i];
            for (; k >= gap && culprit_comes_before(&moving, &culprits[k - gap]); k -= gap)
                culprits[k] = culprits[k - gap];
            culprits[k] = moving;
        }
}

/* What is known of those who did not answer is old: they may have ended since. */
static void doubt_the_quiet(struct ng_verdict *verdict)
{
    for (uint32_t i = 0; i < verdict->culprit_count; i++) {
        struct ng_culprit *culprit = &verdict->culprits[i];
        if (!culprit->quiet_ns)
            continue;
        ng_why_quiet(culprit->quiet_ns, culprit->why, sizeof(culprit->why));
        if (verdict->confidence == NG_CONFIDENCE_CERTAIN)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
    }
}

/* Who waits, once each, but not the culprits, which are in order. */
static int list_waiting(struct judge *judge)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;
    uint32_t count = 0, culprit = 0;

    verdict->waiting = ng_arena_alloc(&verdict->arena, (view->member_count + 1) * sizeof(int));
    if (!verdict->waiting)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (judge->waits.wait_of_member[i] >= 0 || judge->waits.held[i])
            verdict->waiting[count++] = judge->processes.ranks[i];
    sort_ints(verdict->waiting, count);
    for (uint32_t i = 0; i < count; i++) {
        int rank = verdict->waiting[i];
        while (culprit < verdict->culprit_count && verdict->culprits[culprit].rank >= 0 &&
               verdict->culprits[culprit].rank < rank)
            culprit++;
        if (culprit < verdict->culprit_count && verdict->culprits[culprit].rank == rank)
            continue;
        if (verdict->waiting_count == 0 || verdict->waiting[verdict->waiting_count - 1] != rank)
            verdict->waiting[verdict->waiting_count++] = rank;
    }
    return 0;
}

/* Runs of ranks without evidence, sends and receives that are recorded no more, and what the view
 * could not read. */
static int list_missing_evidence(struct judge *judge, const struct ng_wait *wait,
                                 const struct reason *reason)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;

    verdict->missing_evidence = ng_arena_alloc(
        &verdict->arena, (wait->absentee_count + view->note_count + 3) * sizeof(char *));
    if (!verdict->missing_evidence)
        return -ENOMEM;
    for (uint32_t i = 0; i < wait->absentee_count;) {
        if (wait->absentees[i].absence != NG_ABSENT_UNSEEN) {
            i++;
            continue;
        }
        uint32_t end = i + 1;
        while (end < wait->absentee_count && wait->absentees[end].absence == NG_ABSENT_UNSEEN &&
               wait->absentees[end].overwritten == wait->absentees[i].overwritten &&
               wait->absentees[end].group_rank == wait->absentees[end - 1].group_rank + 1)
            end++;
        int first = wait->absentees[i].group_rank, last = wait->absentees[end - 1].group_rank;
        const char *what = wait->absentees[i].overwritten
                               ? "records that reach back to the sends and receives"
                               : "evidence";
        char *line = first == last
                         ? ng_arena_printf(&verdict->arena, "no %s of group rank %d", what, first)
                         : ng_arena_printf(&verdict->arena, "no %s of group ranks %d to %d", what,
                                           first, last);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
        i = end;
    }
    if (wait->blind) {
        char *line = ng_arena_strdup(&verdict->arena,
                                     "no records of all the sends and receives that ranks wait in");
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    if (reason->parted_long_ago) {
        char *line = ng_arena_printf(&verdict->arena,
                                     "no records of a collective before #%" PRIu64
                                     " that not all ranks called alike",
                                     reason->parting.seq);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    for (uint32_t i = 0; i < view->note_count; i++) {
        char *line = ng_arena_strdup(&verdict->arena, view->notes[i]);
        if (!line)
            return -ENOMEM;
        verdict->missing_evidence[verdict->missing_evidence_count++] = line;
    }
    return 0;
}

/* The operation that a collective wait is about, from whoever knows. */
static enum ng_op op_of(const struct ng_view *view, const struct ng_wait *wait)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, wait->group, &count);
    struct ng_signature signature;

    for (uint32_t i = 0; i < count && wait->seq; i++)
        if (ng_signature_at(&members[i], wait->seq, &signature))
            return (enum ng_op)signature.op;
    return wait->op;
}

/* The work that a member is stuck in: its place among the works; NG_COMPOSED_NONE one cannot tell. */
static uint32_t stuck_work(const struct ng_view_member *member, const struct ng_composed *composed)
{
    for (uint32_t i = 0; i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (member->pending_record ? record->id == member->pending_record
                                   : ng_view_record_is_p2p(record) &&
                                         !ng_view_record_is_retired(record))
            return composed->work_of[i];
    }
    return NG_COMPOSED_NONE;
}

/* Does what one more rank is stuck in leave `*op` the name of all? First: NG_OP_NONE. */
static bool agree_on(enum ng_op *op, enum ng_op another)
{
    bool exchange = *op == NG_OP_AlltoAll || *op == NG_OP_AllToAllv;

    if (*op == NG_OP_NONE || *op == another) {
        *op = another;
        return another != NG_OP_NONE;
    }
    /* Counts that are equal for one rank need not be for all. */
    *op = NG_OP_AllToAllv;
    return exchange && (another == NG_OP_AlltoAll || another == NG_OP_AllToAllv);
}

/* What the sends and receives of a wait make up: only where that is known of all who wait. */
static int name_composed(struct judge *judge, uint32_t index)
{
    struct ng_wait *wait = &judge->waits.waits[index];
    struct ng_composed_search *search;
    struct ng_composed composed;
    enum ng_op op = NG_OP_NONE;
    uint32_t count;

    if (wait->type != NG_WAIT_P2P || wait->blind)
        return 0;
    const struct ng_view_member *members = ng_view_members(judge->view, wait->group, &count);
    int error = ng_composed_begin(judge->view, wait->group, &judge->scratch, &search);
    for (uint32_t i = 0; i < count && !error; i++) {
        if (judge->waits.wait_of_member[&members[i] - judge->view->members] != (int32_t)index)
            continue;
        error = ng_composed_next(search, &members[i], &composed);
        uint32_t work = error ? NG_COMPOSED_NONE : stuck_work(&members[i], &composed);
        if (work == NG_COMPOSED_NONE || !agree_on(&op, composed.works[work].op))
            return error;
    }
    wait->composed = op;
    return error;
}

static int judge_wait(struct judge *judge, uint32_t *best, enum cause cause,
                      const struct reason *reason)
{
    const struct ng_wait *wait = &judge->waits.waits[*best];

    tell_of(judge, *best);
    switch (cause) {
    case CAUSE_DEAD:
    case CAUSE_LEFT:
    case CAUSE_STOPPED:
    case CAUSE_FAULT:
    case CAUSE_MISSING:
        return blame_absentees(judge, wait, cause);
    case CAUSE_MISMATCH:
        return blame_mismatch(judge, wait, &reason->mismatch);
    case CAUSE_PARTED:
        return blame_parted(judge, wait, &reason->parting);
    case CAUSE_DEVICE:
    case CAUSE_ELSEWHERE:
    case CAUSE_UNSEEN:
        return judge_order(judge, best, cause);
    }
    return 0;
}

/*
 * Has this rank been named: its process, in `processes`, but where that drives several devices; or
 * the rank itself, though it has told nothing of the group that it is missed in?
 */
static bool is_named(const struct judge *judge, const bool *processes,
                     const struct ng_view_member *member)
{
    int rank = judge->processes.ranks[member - judge->view->members];
    bool several = process_of(judge, member)->drives_several;

    if (!several && processes[member->process])
        return true;
    for (uint32_t i = 0; i < judge->verdict->culprit_count; i++)
        if (judge->verdict->culprits[i].rank == rank && (rank >= 0 || several))
            return true;
    return false;
}

/* May other wait `wait` have a culprit that is no consequence of the one that is told of? */
static bool is_as_old(const struct ng_wait *wait, const struct ng_wait *told)
{
    return (wait->type == NG_WAIT_CREATE) == (told->type == NG_WAIT_CREATE) &&
           wait->age_ns - told->age_ns < SAME_AGE_NS && told->age_ns - wait->age_ns < SAME_AGE_NS;
}

/*
 * Ranks that hold up other groups at the same time and in the same way as the culprits of wait
 * `best` hold up theirs: they are no consequence of each other. Ranks that are lost are told of
 * whatever they hold up.
 */
static int blame_others(struct judge *judge, uint32_t best, enum cause cause)
{
    const struct ng_view *view = judge->view;
    const struct ng_wait *told = &judge->waits.waits[best];
    bool *named = ng_arena_alloc(&judge->scratch, view->process_count + 1);
    struct first_death first = first_death(judge, told);

    if (!named)
        return -ENOMEM;
    for (uint32_t i = 0; i < told->absentee_count; i++)
        if (told->absentees[i].member)
            named[told->absentees[i].member->process] = true;
    for (uint32_t w = 0; w < judge->waits.count; w++) {
        const struct ng_wait *wait = &judge->waits.waits[w];
        bool as_old = is_as_old(wait, told);
        if (w == best || (!as_old && cause != CAUSE_DEAD) || judge->causes[w] != cause)
            continue;
        for (uint32_t i = 0; i < wait->absentee_count; i++) {
            const struct ng_absentee *absentee = &wait->absentees[i];
            if (!absentee->member || cause_of_absentee(wait, absentee) != cause ||
                (!as_old && absentee->absence != NG_ABSENT_LOST) ||
                is_named(judge, named, absentee->member) ||
                (cause == CAUSE_DEAD && is_consequence(judge, &first, absentee)))
                continue;
            struct ng_culprit *culprit =
                add_culprit(judge, absentee->member, rank_in(judge, told->group, absentee->member));
            if (!culprit)
                return -ENOMEM;
            ng_why_absent(&judge->processes, wait, absentee, culprit->why, sizeof(culprit->why));
            if (absentee->absence == NG_ABSENT_LOST)
                judge->verdict->confidence = NG_CONFIDENCE_LIKELY;
            named[absentee->member->process] = true;
        }
    }
    return 0;
}

/*
 * Of two waits with causes of one kind, the one to tell of: the older; where they are about as old,
 * the one whose call was made first, which is what the culprit should have done next.
 */
static bool comes_first(const struct ng_wait *a, const struct ng_wait *b)
{
    int64_t between_ns = a->age_ns - b->age_ns;

    if (between_ns < SAME_AGE_NS && between_ns > -SAME_AGE_NS && a->entered_age_ns &&
        b->entered_age_ns)
        return a->entered_age_ns > b->entered_age_ns;
    return between_ns > 0;
}

/* The wait to tell of, and why it does not end. */
static int find_best(struct judge *judge, uint32_t *ret_best, struct reason *ret_reason)
{
    uint32_t best = 0;

    judge->causes =
        ng_arena_alloc(&judge->scratch, (judge->waits.count + 1) * sizeof(*judge->causes));
    if (!judge->causes)
        return -ENOMEM;
    for (uint32_t i = 0; i < judge->waits.count; i++) {
        struct ng_wait *wait = &judge->waits.waits[i];
        struct reason reason = {0};
        wait->op = op_of(judge->view, wait);
        enum cause cause = judge->causes[i] = cause_of(judge, wait, &reason);
        if (i == 0 || cause > judge->causes[best] ||
            (cause == judge->causes[best] && comes_first(wait, &judge->waits.waits[best]))) {
            best = i;
            *ret_reason = reason;
        }
    }
    *ret_best = best;
    return 0;
}

static int judge_all(struct judge *judge)
{
    struct ng_verdict *verdict = judge->verdict;
    struct reason reason = {0};
    uint32_t best;

    int error = ng_processes_find(judge->view, &judge->scratch, &judge->processes);
    if (!error)
        error = find_best(judge, &best, &reason);
    if (error)
        return error;
    enum cause cause = judge->causes[best];
    error = name_composed(judge, best);
    if (!error)
        error = judge_wait(judge, &best, cause, &reason);
    if (!error && (cause == CAUSE_MISSING || cause == CAUSE_FAULT || cause == CAUSE_STOPPED ||
                   cause == CAUSE_DEAD))
        error = blame_others(judge, best, cause);
    sort_culprits(verdict->culprits, verdict->culprit_count);
    doubt_the_quiet(verdict);
    if (!error)
        error = list_waiting(judge);
    if (!error)
        error = list_missing_evidence(judge, &judge->waits.waits[best], &reason);
    /* Others may be absent beside those that are named; that they are not seen makes the rest less
     * sure. */
    if (!error && verdict->missing_evidence_count && verdict->kind == NG_KIND_MISSING_RANK &&
        verdict->confidence == NG_CONFIDENCE_CERTAIN)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return error;
}

/* ---- What NCCL itself reports ---- */

static bool is_error(int result)
{
    return result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS;
}

/* Does this member report an error, its own, or also that of a peer? */
static bool reports(const struct judge *judge, const struct ng_view_member *member, bool own_only)
{
    enum ng_life life = process_of(judge, member)->life;

    return is_error(member->async_error) &&
           !(own_only && member->async_error == NG_NCCL_REMOTE_ERROR) &&
           (member->state == NG_GROUP_CREATING || member->state == NG_GROUP_READY ||
            member->state == NG_GROUP_FINALIZED) &&
           life != NG_LIFE_DEAD && life != NG_LIFE_EXITED && life != NG_LIFE_LOST;
}

static bool is_gone(const struct judge *judge, const struct ng_view_member *member)
{
    enum ng_life life = process_of(judge, member)->life;

    return life == NG_LIFE_DEAD || life == NG_LIFE_EXITED || life == NG_LIFE_LOST;
}

/* A program that ends its communicator by itself makes its peers hear of a remote error. */
static bool was_ended(const struct judge *judge, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        if ((members[i].state == NG_GROUP_ABORTED || members[i].state == NG_GROUP_DESTROYED) &&
            !is_gone(judge, &members[i]))
            return true;
    return false;
}

/* The member to tell of; NULL none. */
static const struct ng_view_member *find_error(const struct judge *judge, bool own_only)
{
    const struct ng_view *view = judge->view;

    for (uint32_t i = 0; i < view->member_count; i++)
        if (reports(judge, &view->members[i], own_only) &&
            (own_only || !was_ended(judge, view->members[i].group)))
            return &view->members[i];
    return NULL;
}

static int blame_error(struct judge *judge, const struct ng_view_member *member, bool gone)
{
    const struct ng_view_process *process = process_of(judge, member);
    struct ng_culprit *culprit = add_culprit(judge, member, member->group_rank);

    if (!culprit)
        return -ENOMEM;
    if (gone)
        ng_why_gone(process, NG_NCCL_REMOTE_ERROR, culprit->why, sizeof(culprit->why));
    else
        ng_why_error(member->async_error, process->error_text, culprit->why, sizeof(culprit->why));
    return 0;
}

/*
 * Who brought it: ranks with an error of their own; else of a remote error those that are gone;
 * else nobody knows, and those that report it are named.
 */
static int blame_errors(struct judge *judge, const struct ng_view_member *told, bool own)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, told->group, &count);
    bool gone = false;
    int error = 0;

    for (uint32_t i = 0; i < count; i++)
        gone |= is_gone(judge, &members[i]);
    gone = gone && !own;
    for (uint32_t i = 0; i < count && !error; i++)
        if (gone ? is_gone(judge, &members[i]) : reports(judge, &members[i], own))
            error = blame_error(judge, &members[i], gone);
    sort_culprits(verdict->culprits, verdict->culprit_count);
    verdict->confidence = own || gone ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    return error;
}

/* The others of the group with work that does not finish. */
static int list_waiting_in(struct judge *judge, uint32_t group)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, group, &count);

    verdict->waiting = ng_arena_alloc(&verdict->arena, (count + 1) * sizeof(int));
    verdict->waiting_count = 0;
    if (!verdict->waiting)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        int rank = judge->processes.ranks[&members[i] - judge->view->members];
        bool blamed = is_gone(judge, &members[i]);
        for (uint32_t k = 0; k < verdict->culprit_count; k++)
            blamed |= verdict->culprits[k].rank == rank;
        if (members[i].pending_record && members[i].pending_age_ns > verdict->stalled_ns)
            verdict->stalled_ns = members[i].pending_age_ns;
        if (!blamed && (members[i].pending_record || members[i].entered > members[i].scheduled))
            verdict->waiting[verdict->waiting_count++] = rank;
    }
    sort_ints(verdict->waiting, verdict->waiting_count);
    return 0;
}

static void tell_of_error(struct judge *judge, const struct ng_view_member *told)
{
    struct ng_verdict *verdict = judge->verdict;
    struct ng_signature signature = {0};

    set_group(judge, told->group);
    verdict->kind = NG_KIND_ASYNC_ERROR;
    verdict->seq = told->pending_seq ? told->pending_seq : told->entered;
    verdict->op = ng_signature_at(told, verdict->seq, &signature) ? (enum ng_op)signature.op
                                                                  : (enum ng_op)told->last.op;
    verdict->stalled_ns = 0;
    verdict->culprit_count = verdict->cycle_count = 0;
}

/*
 * An error that NCCL reports says why a rank does not come, or a device does not finish. That a
 * rank died, left, froze or called something else may be why there is an error.
 */
static int judge_errors(struct judge *judge)
{
    switch (judge->verdict->kind) {
    case NG_KIND_HEALTHY:
    case NG_KIND_MISSING_RANK:
    case NG_KIND_GPU_STALL:
    case NG_KIND_UNKNOWN:
        break;
    default:
        return 0;
    }
    const struct ng_view_member *own = find_error(judge, true);
    const struct ng_view_member *told = own ? own : find_error(judge, false);
    if (!told)
        return 0;
    int error = judge->waits.count
                    ? 0
                    : ng_processes_find(judge->view, &judge->scratch, &judge->processes);
    if (error)
        return error;
    tell_of_error(judge, told);
    error = blame_errors(judge, told, own != NULL);
    return error ? error : list_waiting_in(judge, told->group);
}

/* ---- A watchdog that is stuck ---- */

static bool is_unwatched(const struct ng_view_process *process)
{
    return process->watchdog_stuck_ns > 0 && process->member_count > 0 &&
           (process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_ENDED_BY_GUARD);
}

/* What its device was in when the watchdog saw it last; NULL nothing. */
static const struct ng_view_member *oldest_pending(const struct ng_view *view, uint32_t process)
{
    const struct ng_view_member *oldest = NULL;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        if (member->process == process && member->pending_record &&
            (!oldest || member->pending_age_ns > oldest->pending_age_ns))
            oldest = member;
    }
    return oldest;
}

static void tell_of_member(struct judge *judge, const struct ng_view_member *member)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view_group *group = &judge->view->groups[member->group];
    struct ng_signature signature;

    verdict->group_id = group->id;
    snprintf(verdict->group_name, sizeof(verdict->group_name), "%s", group->name);
    verdict->group_nranks = group->nranks;
    verdict->seq = member->pending_seq;
    if (member->pending_seq && ng_signature_at(member, member->pending_seq, &signature))
        verdict->op = (enum ng_op)signature.op;
}

static int blame_watchdog(struct judge *judge, uint32_t index)
{
    const struct ng_view_process *process = &judge->view->processes[index];
    const struct ng_view_member *member = oldest_pending(judge->view, index);
    struct ng_verdict *verdict = judge->verdict;
    struct ng_culprit *culprit;

    if (!member)
        member = &judge->view->members[judge->view->by_process[process->first_member]];
    else if (!verdict->group_id)
        tell_of_member(judge, member);
    bool in_group = judge->view->groups[member->group].id == verdict->group_id;
    culprit = add_culprit(judge, member, in_group ? member->group_rank : -1);
    if (!culprit)
        return -ENOMEM;
    if (process->watchdog_stuck_ns > verdict->stalled_ns)
        verdict->stalled_ns = process->watchdog_stuck_ns;
    snprintf(culprit->why, sizeof(culprit->why), "the watchdog of its guard has made no round for %.1f s%s%s",
             (double)process->watchdog_stuck_ns / 1e9, process->watchdog_in[0] ? ": it is in " : "",
             process->watchdog_in);
    return 0;
}

/*
 * A watchdog that is stuck: what the devices of its process have finished is not known. So it is the
 * reason of what looks like a device that does not finish, or like nothing; not of what the calls of
 * the ranks explain without it.
 */
static int judge_watchdogs(struct judge *judge, bool asked)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;
    bool healthy = verdict->kind == NG_KIND_HEALTHY;
    bool explained =
        !healthy && verdict->kind != NG_KIND_GPU_STALL && verdict->kind != NG_KIND_UNKNOWN;
    uint32_t stuck = 0;
    int error = 0;

    for (uint32_t i = 0; i < view->process_count; i++)
        stuck += is_unwatched(&view->processes[i]);
    if (!stuck || (explained && !asked))
        return 0;
    if (healthy)
        error = ng_processes_find(view, &judge->scratch, &judge->processes);
    verdict->kind = NG_KIND_WATCHDOG_STUCK;
    verdict->confidence = healthy || asked ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    verdict->group_id = 0;
    verdict->group_name[0] = '\0';
    verdict->group_nranks = 0;
    verdict->seq = 0;
    verdict->op = NG_OP_NONE;
    verdict->stalled_ns = 0;
    verdict->culprit_count = verdict->waiting_count = verdict->cycle_count = 0;
    for (uint32_t i = 0; i < view->process_count && !error; i++)
        if (is_unwatched(&view->processes[i]))
            error = blame_watchdog(judge, i);
    sort_culprits(verdict->culprits, verdict->culprit_count);
    return error ? error : list_waiting(judge);
}

int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict)
{
    struct ng_verdict *verdict = ret_verdict;
    struct judge judge = {.view = view, .verdict = verdict};

    memset(verdict, 0, sizeof(*verdict));
    verdict->kind = NG_KIND_HEALTHY;
    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    verdict->detected_by = -1;
    verdict->action = "none";
    snprintf(verdict->job, sizeof(verdict->job), "%s", view->job);

    int error = ng_waits_find(view, query->stalled_ns, &judge.scratch, &judge.waits);
    if (!error && judge.waits.count)
        error = judge_all(&judge);
    if (!error)
        error = judge_errors(&judge);
    if (!error)
        error = judge_watchdogs(&judge, query->watchdog);
    ng_arena_reset(&judge.scratch);
    if (error)
        ng_verdict_fini(verdict);
    return error;
}
