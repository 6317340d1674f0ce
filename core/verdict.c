/*
 * The verdict engine.
 *
 * Step 9, pure. An essay, since this is what all the rest is for.
 *
 * A stall is seen as *waits* (core/waits.h): operations in which ranks are stuck, each with the
 * ranks that it needs and that have not come. Most waits are victims: their absentees are
 * themselves stuck in another wait. The reason of a stall is a wait that has a cause of its own, so
 * that every chain of victims ends there: an absentee that is dead, left, frozen, or alive and in
 * no wait at all; ranks that called with different arguments; or nobody absent and a device that
 * does not finish. If no wait has a cause of its own, the chains close upon themselves: a deadlock
 * by order.
 *
 * Several waits with causes: what cannot be a consequence of anything goes first. A death explains
 * a missing call, a mismatch explains a rank that ran out of step and left; neither is explained by
 * them. Among equals the oldest.
 *
 * What is not known is said: a rank of which no evidence exists is missing evidence, never a
 * culprit, except in the making of a communicator, where not having come is itself the evidence.
 */
#include "core/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/signature.h"
#include "core/waits.h"

/* In rising order of how little can be behind it. */
enum cause {
    CAUSE_ELSEWHERE, /* every absentee is stuck in another wait */
    CAUSE_UNSEEN,    /* absentees without evidence */
    CAUSE_DEVICE,    /* nobody is absent */
    CAUSE_MISSING,
    CAUSE_FAULT, /* a device failed for good: its rank may not call any more after that */
    CAUSE_STOPPED,
    CAUSE_LEFT,
    CAUSE_MISMATCH,
    CAUSE_DEAD,
};

/* A death is no consequence of another that came this much later. */
#define DEATHS_TOGETHER_NS (2 * NG_S)

/* Every watchdog measures for itself: waits that differ by less are equally old. */
#define SAME_AGE_NS NG_S

struct judge {
    const struct ng_view *view;
    struct ng_verdict *verdict;
    struct ng_arena scratch;
    struct ng_waits waits;
    struct ng_mismatch mismatch; /* of the wait that is judged */
    uint32_t culprit_room;
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
        culprit->rank = ng_view_rank(judge->view, member);
        culprit->pid = process_of(judge, member)->pid;
        snprintf(culprit->host, sizeof(culprit->host), "%s", process_of(judge, member)->host);
    }
    return culprit;
}

/* A phrase for what a member did last in its group. */
static void last_words(const struct judge *judge, const struct ng_view_member *member,
                       char *ret_text, size_t bytes)
{
    int64_t age_ns = -1;

    if (!member->entered) {
        snprintf(ret_text, bytes, "it has made no collective in this group");
        return;
    }
    for (uint32_t i = member->record_count; i > 0 && age_ns < 0; i--)
        if (!ng_view_record_is_p2p(&member->records[i - 1]) &&
            member->records[i - 1].coll_seq == member->entered)
            age_ns = member->records[i - 1].entered_age_ns;
    int used = snprintf(ret_text, bytes, "its last was %s #%" PRIu64, ng_op_name(member->last.op),
                        member->entered);
    if (age_ns >= 0 && used > 0 && (size_t)used < bytes)
        snprintf(ret_text + used, bytes - (size_t)used, ", %.1f s ago", (double)age_ns / 1e9);
    (void)judge;
}

/* What the process of an alive absentee is inside now. */
static void present_words(const struct judge *judge, const struct ng_view_member *member,
                          char *ret_text, size_t bytes)
{
    snprintf(ret_text, bytes, "and it is inside no NCCL call");
    for (uint32_t i = 0; i < judge->view->call_count; i++) {
        const struct ng_view_call *call = &judge->view->calls[i];
        if (call->process == member->process) {
            snprintf(ret_text, bytes, "it has been inside %s for %.1f s", ng_op_name(call->op),
                     (double)call->age_ns / 1e9);
            return;
        }
    }
}

/* How a process ended that had done with its communicators, or said why. */
static void end_words(const struct ng_view_process *process, char *ret_text, size_t bytes)
{
    if (process->exit_status == NG_EXIT_STATUS_EXEC)
        snprintf(ret_text, bytes, "became another program (exec)");
    else if (process->exit_status == NG_EXIT_STATUS_NOT_TOLD)
        snprintf(ret_text, bytes, "ended (quick_exit)");
    else
        snprintf(ret_text, bytes, "ended with exit status %d", process->exit_status);
}

static void describe_absentee(const struct judge *judge, const struct ng_wait *wait,
                              const struct ng_absentee *absentee, struct ng_culprit *culprit)
{
    char last[128] = "", what[96], present[128] = "";
    const struct ng_view_process *process =
        absentee->member ? process_of(judge, absentee->member) : NULL;

    if (absentee->member)
        last_words(judge, absentee->member, last, sizeof(last));
    if (wait->type == NG_WAIT_COLLECTIVE)
        snprintf(what, sizeof(what), "%s #%" PRIu64, ng_op_name(wait->op), wait->seq);
    else if (wait->type == NG_WAIT_P2P)
        snprintf(what, sizeof(what), "the %s that group rank %d waits for",
                 absentee->send ? "send" : "receive", absentee->for_rank);
    else
        snprintf(what, sizeof(what), "%s", ng_op_name(wait->op));

    switch (absentee->absence) {
    case NG_ABSENT_DEAD:
        snprintf(culprit->why, sizeof(culprit->why),
                 "ended without a word (killed, crashed or _exit) %s %s; %s",
                 absentee->came ? "inside" : "before", what, last);
        break;
    case NG_ABSENT_EXITED:
        end_words(process, present, sizeof(present));
        snprintf(culprit->why, sizeof(culprit->why), "%s %s %s; %s", present,
                 absentee->came ? "inside" : "without", what, last);
        break;
    case NG_ABSENT_STOPPED:
        snprintf(culprit->why, sizeof(culprit->why),
                 "is frozen (stopped by a signal or a debugger) %s %s; %s",
                 absentee->came ? "inside" : "before", what, last);
        break;
    case NG_ABSENT_ALIVE:
        present_words(judge, absentee->member, present, sizeof(present));
        if (absentee->faulted)
            snprintf(culprit->why, sizeof(culprit->why),
                     "made the call, but CUDA error %d (%s) on its device ended all work there, %s",
                     absentee->member->cuda_error, ng_cuda_error_text(absentee->member->cuda_error),
                     present);
        else if (absentee->open_group)
            snprintf(culprit->why, sizeof(culprit->why),
                     "called %s inside ncclGroupStart and has not reached ncclGroupEnd", what);
        else if (absentee->left_group)
            snprintf(culprit->why, sizeof(culprit->why),
                     "destroyed or aborted its communicator without %s; %s", what, last);
        else
            snprintf(culprit->why, sizeof(culprit->why), "is alive but never called %s; %s, %s",
                     what, last, present);
        break;
    case NG_ABSENT_UNSEEN:
        snprintf(culprit->why, sizeof(culprit->why), "has not come to %s", what);
        break;
    }
    size_t used = strlen(culprit->why);
    if (absentee->member && absentee->member->cuda_error && !absentee->faulted)
        snprintf(culprit->why + used, sizeof(culprit->why) - used,
                 "; CUDA error %d (%s) on its device", absentee->member->cuda_error,
                 ng_cuda_error_text(absentee->member->cuda_error));
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

/* Who is to be told of for an absentee that nobody has seen, where a communicator is made. */
static enum ng_absence name_unseen(const struct judge *judge, enum naming naming,
                                   const struct ng_absentee *absentee, struct ng_culprit *culprit)
{
    if (naming == NAMING_NOT_KNOWN)
        return NG_ABSENT_UNSEEN;
    culprit->rank = absentee->group_rank;
    const struct ng_view_process *process =
        naming == NAMING_BY_PROCESS ? process_of_rank(judge, absentee->group_rank) : NULL;
    if (!process)
        return NG_ABSENT_UNSEEN;
    culprit->pid = process->pid;
    snprintf(culprit->host, sizeof(culprit->host), "%s", process->host);
    return process->life == NG_LIFE_DEAD      ? NG_ABSENT_DEAD
           : process->life == NG_LIFE_EXITED  ? NG_ABSENT_EXITED
           : process->life == NG_LIFE_STOPPED ? NG_ABSENT_STOPPED
                                              : NG_ABSENT_ALIVE;
}

static enum cause cause_of_absentee(const struct ng_wait *wait, const struct ng_absentee *absentee)
{
    switch (absentee->absence) {
    case NG_ABSENT_DEAD:
        return CAUSE_DEAD;
    case NG_ABSENT_EXITED:
        return CAUSE_LEFT;
    case NG_ABSENT_STOPPED:
        return CAUSE_STOPPED;
    case NG_ABSENT_ALIVE:
        return absentee->faulted         ? CAUSE_FAULT
               : absentee->stuck_in >= 0 ? CAUSE_ELSEWHERE
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
                           struct ng_mismatch *ret_mismatch)
{
    enum cause worst = wait->absentee_count ? CAUSE_ELSEWHERE : CAUSE_DEVICE;

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        enum cause cause = cause_of_absentee(wait, &wait->absentees[i]);
        if (cause > worst)
            worst = cause;
    }
    if (wait->type == NG_WAIT_COLLECTIVE && worst < CAUSE_MISMATCH &&
        ng_mismatch_find(judge->view, wait->group, wait->seq, ret_mismatch))
        return CAUSE_MISMATCH;
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

/* The oldest death among the absentees; 0 none. */
static int64_t oldest_death_ns(const struct judge *judge, const struct ng_wait *wait)
{
    int64_t oldest_ns = 0;

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        const struct ng_absentee *absentee = &wait->absentees[i];
        if (absentee->absence == NG_ABSENT_DEAD &&
            process_of(judge, absentee->member)->life_age_ns > oldest_ns)
            oldest_ns = process_of(judge, absentee->member)->life_age_ns;
    }
    return oldest_ns;
}

static int blame_absentees(struct judge *judge, const struct ng_wait *wait, enum cause cause)
{
    struct ng_verdict *verdict = judge->verdict;
    int64_t oldest_ns = oldest_death_ns(judge, wait);
    bool died = cause == CAUSE_DEAD, left = cause == CAUSE_LEFT, stopped = cause == CAUSE_STOPPED;

    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    enum naming naming = naming_of(judge, wait->group);
    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        const struct ng_absentee *absentee = &wait->absentees[i];
        if (cause_of_absentee(wait, absentee) != cause)
            continue;
        if (died &&
            process_of(judge, absentee->member)->life_age_ns < oldest_ns - DEATHS_TOGETHER_NS)
            continue;
        struct ng_culprit *culprit = add_culprit(judge, absentee->member, absentee->group_rank);
        if (!culprit)
            return -ENOMEM;
        describe_absentee(judge, wait, absentee, culprit);
        if (absentee->absence == NG_ABSENT_STOPPED && absentee->came)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (absentee->absence == NG_ABSENT_UNSEEN) {
            struct ng_absentee known = *absentee;
            known.absence = name_unseen(judge, naming, absentee, culprit);
            died |= known.absence == NG_ABSENT_DEAD;
            left |= known.absence == NG_ABSENT_EXITED;
            stopped |= known.absence == NG_ABSENT_STOPPED;
            if (known.absence == NG_ABSENT_UNSEEN)
                verdict->confidence = NG_CONFIDENCE_LIKELY;
            else
                snprintf(culprit->why, sizeof(culprit->why), "%s %s",
                         known.absence == NG_ABSENT_DEAD ? "ended without a word before it called"
                         : known.absence == NG_ABSENT_EXITED  ? "ended without calling"
                         : known.absence == NG_ABSENT_STOPPED ? "is frozen and has not called"
                                                              : "is alive but has not called",
                         ng_op_name(wait->op));
        }
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
    char theirs[128], expected[128];

    verdict->kind = NG_KIND_MISMATCH;
    verdict->seq = mismatch->seq;
    verdict->op = (enum ng_op)mismatch->expected.op;
    verdict->confidence = mismatch->undecided    ? NG_CONFIDENCE_UNKNOWN
                          : mismatch->by_history ? NG_CONFIDENCE_LIKELY
                                                 : NG_CONFIDENCE_CERTAIN;
    ng_signature_text(&mismatch->expected, expected, sizeof(expected));
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) ||
            !ng_signature_at(&members[i], mismatch->seq, &signature) ||
            (!mismatch->undecided && !ng_signature_differ(&signature, &mismatch->expected)))
            continue;
        struct ng_culprit *culprit = add_culprit(judge, &members[i], members[i].group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_signature_text(&signature, theirs, sizeof(theirs));
        uint32_t differ = ng_signature_differ(&signature, &mismatch->expected);
        const char *field = differ & NG_F_OP      ? "operation"
                            : differ & NG_F_COUNT ? "count"
                            : differ & NG_F_DTYPE ? "data type"
                            : differ & NG_F_REDOP ? "reduction"
                                                  : "root";
        if (mismatch->undecided)
            snprintf(culprit->why, sizeof(culprit->why),
                     "called %s as #%" PRIu64 "; the ranks disagree and nothing tells who is wrong",
                     theirs, mismatch->seq);
        else
            snprintf(culprit->why, sizeof(culprit->why),
                     "%s differs: called %s as #%" PRIu64 " where %s called %s", field, theirs,
                     mismatch->seq,
                     mismatch->by_history ? "the other side, as in earlier rounds," : "the others",
                     expected);
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

/* Follow the waits until one comes again; everyone on that round holds up the next. */
static int blame_order(struct judge *judge, uint32_t start)
{
    struct ng_verdict *verdict = judge->verdict;
    struct ng_waits *waits = &judge->waits;
    uint8_t *visits = ng_arena_alloc(&judge->scratch, waits->count + 1);
    uint32_t at = start;

    if (!visits)
        return -ENOMEM;
    verdict->kind = NG_KIND_ORDER_DEADLOCK;
    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    while (visits[at] < 2) {
        const struct ng_wait *wait = &waits->waits[at];
        int32_t next = -1;
        for (uint32_t i = 0; i < wait->absentee_count && next < 0; i++)
            next = wait->absentees[i].stuck_in;
        if (next < 0) {
            verdict->kind = NG_KIND_UNKNOWN;
            verdict->confidence = NG_CONFIDENCE_UNKNOWN;
            return 0;
        }
        if (visits[at]++ == 1) {
            if (verdict->culprit_count == 0) {
                set_group(judge, wait->group);
                verdict->seq = wait->seq;
                verdict->op = wait->op;
            }
            for (uint32_t i = 0; i < wait->absentee_count; i++) {
                const struct ng_absentee *absentee = &wait->absentees[i];
                if (absentee->stuck_in != next)
                    continue;
                const struct ng_wait *holds = &waits->waits[next];
                struct ng_culprit *culprit =
                    add_culprit(judge, absentee->member, absentee->group_rank);
                if (!culprit)
                    return -ENOMEM;
                snprintf(culprit->why, sizeof(culprit->why),
                         "is in %s #%" PRIu64 " of group %016" PRIx64 " (%s), and %s %s #%" PRIu64
                         " of group %016" PRIx64 " (%s)",
                         ng_op_name(holds->op), holds->seq, judge->view->groups[holds->group].id,
                         judge->view->groups[holds->group].name,
                         absentee->queued ? "behind it on the device waits" : "has not come to",
                         ng_op_name(wait->op), wait->seq, judge->view->groups[wait->group].id,
                         judge->view->groups[wait->group].name);
            }
        }
        at = (uint32_t)next;
    }
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

static int list_waiting(struct judge *judge)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;
    uint32_t count = 0;

    verdict->waiting = ng_arena_alloc(&verdict->arena, (view->member_count + 1) * sizeof(int));
    if (!verdict->waiting)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (judge->waits.wait_of_member[i] >= 0 || judge->waits.held[i])
            verdict->waiting[count++] = ng_view_rank(view, &view->members[i]);
    sort_ints(verdict->waiting, count);
    for (uint32_t i = 0; i < count; i++) {
        bool culprit = false;
        for (uint32_t k = 0; k < verdict->culprit_count; k++)
            culprit |= verdict->culprits[k].rank == verdict->waiting[i];
        if (!culprit && (verdict->waiting_count == 0 ||
                         verdict->waiting[verdict->waiting_count - 1] != verdict->waiting[i]))
            verdict->waiting[verdict->waiting_count++] = verdict->waiting[i];
    }
    return 0;
}

/* Runs of ranks without evidence, sends and receives that are recorded no more, and what the view
 * could not read. */
static int list_missing_evidence(struct judge *judge, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;

    verdict->missing_evidence = ng_arena_alloc(
        &verdict->arena, (wait->absentee_count + view->note_count + 2) * sizeof(char *));
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
                               : "black box";
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

static int judge_wait(struct judge *judge, uint32_t index, enum cause cause,
                      const struct ng_mismatch *mismatch)
{
    struct ng_wait *wait = &judge->waits.waits[index];
    struct ng_verdict *verdict = judge->verdict;

    set_group(judge, wait->group);
    verdict->seq = wait->seq;
    verdict->op = wait->op;
    verdict->stalled_ns = wait->age_ns;
    switch (cause) {
    case CAUSE_DEAD:
    case CAUSE_LEFT:
    case CAUSE_STOPPED:
    case CAUSE_FAULT:
    case CAUSE_MISSING:
        return blame_absentees(judge, wait, cause);
    case CAUSE_MISMATCH:
        return blame_mismatch(judge, wait, mismatch);
    case CAUSE_DEVICE:
        return blame_device(judge, wait);
    case CAUSE_ELSEWHERE:
        return blame_order(judge, index);
    case CAUSE_UNSEEN:
        verdict->kind = NG_KIND_UNKNOWN;
        verdict->confidence = NG_CONFIDENCE_UNKNOWN;
        return 0;
    }
    return 0;
}

/* Has this rank been named? `processes` says it for all but those that drive several devices. */
static bool is_named(const struct judge *judge, const bool *processes,
                     const struct ng_view_member *member)
{
    if (!process_of(judge, member)->drives_several)
        return processes[member->process];
    int rank = ng_view_rank(judge->view, member);
    for (uint32_t i = 0; i < judge->verdict->culprit_count; i++)
        if (judge->verdict->culprits[i].rank == rank)
            return true;
    return false;
}

/* The rank in another group of the process that `member` belongs to; -1 not in it, or not one. */
static int rank_in(const struct judge *judge, uint32_t group, const struct ng_view_member *member)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(judge->view, group, &count);

    for (uint32_t i = 0; i < count && !process_of(judge, member)->drives_several; i++)
        if (members[i].process == member->process)
            return members[i].group_rank;
    return -1;
}

/*
 * Ranks that hold up other groups at the same time and in the same way as the culprits of wait
 * `best` hold up theirs: they are no consequence of each other.
 */
static int blame_others(struct judge *judge, uint32_t best, enum cause cause)
{
    const struct ng_view *view = judge->view;
    const struct ng_wait *told = &judge->waits.waits[best];
    bool *named = ng_arena_alloc(&judge->scratch, view->process_count + 1);
    int64_t oldest_ns = oldest_death_ns(judge, told);
    struct ng_mismatch mismatch;

    if (!named)
        return -ENOMEM;
    for (uint32_t i = 0; i < told->absentee_count; i++)
        if (told->absentees[i].member)
            named[told->absentees[i].member->process] = true;
    for (uint32_t w = 0; w < judge->waits.count; w++) {
        const struct ng_wait *wait = &judge->waits.waits[w];
        if (w == best || (wait->type == NG_WAIT_CREATE) != (told->type == NG_WAIT_CREATE) ||
            wait->age_ns - told->age_ns >= SAME_AGE_NS ||
            told->age_ns - wait->age_ns >= SAME_AGE_NS || cause_of(judge, wait, &mismatch) != cause)
            continue;
        for (uint32_t i = 0; i < wait->absentee_count; i++) {
            const struct ng_absentee *absentee = &wait->absentees[i];
            if (!absentee->member || cause_of_absentee(wait, absentee) != cause ||
                is_named(judge, named, absentee->member) ||
                (cause == CAUSE_DEAD &&
                 process_of(judge, absentee->member)->life_age_ns < oldest_ns - DEATHS_TOGETHER_NS))
                continue;
            struct ng_culprit *culprit =
                add_culprit(judge, absentee->member, rank_in(judge, told->group, absentee->member));
            if (!culprit)
                return -ENOMEM;
            describe_absentee(judge, wait, absentee, culprit);
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

int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict)
{
    struct ng_verdict *verdict = ret_verdict;
    struct judge judge = {.view = view, .verdict = verdict};
    struct ng_mismatch best_mismatch = {0};
    enum cause best_cause = CAUSE_ELSEWHERE;
    uint32_t best = 0;

    memset(verdict, 0, sizeof(*verdict));
    verdict->kind = NG_KIND_HEALTHY;
    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    verdict->detected_by = -1;
    verdict->action = "none";
    snprintf(verdict->job, sizeof(verdict->job), "%s", view->job);

    int error = ng_waits_find(view, query->stalled_ns, &judge.scratch, &judge.waits);
    for (uint32_t i = 0; !error && i < judge.waits.count; i++) {
        struct ng_wait *wait = &judge.waits.waits[i];
        struct ng_mismatch mismatch = {0};
        wait->op = op_of(view, wait);
        enum cause cause = cause_of(&judge, wait, &mismatch);
        if (i == 0 || cause > best_cause ||
            (cause == best_cause && comes_first(wait, &judge.waits.waits[best]))) {
            best = i;
            best_cause = cause;
            best_mismatch = mismatch;
        }
    }
    if (!error && judge.waits.count) {
        error = judge_wait(&judge, best, best_cause, &best_mismatch);
        if (!error && (best_cause == CAUSE_MISSING || best_cause == CAUSE_FAULT ||
                       best_cause == CAUSE_STOPPED || best_cause == CAUSE_DEAD))
            error = blame_others(&judge, best, best_cause);
        if (!error)
            error = list_waiting(&judge);
        if (!error)
            error = list_missing_evidence(&judge, &judge.waits.waits[best]);
        /* Others may be absent beside those that are named; that they are not seen makes the rest
         * less sure. */
        if (!error && verdict->missing_evidence_count && verdict->kind == NG_KIND_MISSING_RANK &&
            verdict->confidence == NG_CONFIDENCE_CERTAIN)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
    }
    ng_arena_reset(&judge.scratch);
    if (error)
        ng_verdict_fini(verdict);
    return error;
}
