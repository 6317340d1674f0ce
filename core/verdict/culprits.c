/*
 * Culprit selection for missing ranks, calls that differ, and devices that do not finish.
 *
 * Pure.
 */
#include "core/verdict/culprits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/verdict/explain.h"

/* A death is not a consequence of another that came this much later. */
#define DEATHS_TOGETHER_NS (2 * NG_S)

/* Longest interval between signs of life: a lost process may have lived this long after its last
 * one. */
#define SIGN_OF_LIFE_NS (2 * NG_S)

/* True for processes without a launcher, or with several devices each: ranks are named by the
 * largest group. */
static bool names_ranks(const struct ng_verdict_builder *builder, uint32_t group)
{
    const struct ng_view *view = builder->view;

    return !NG_ANY(other, view->groups, view->group_count,
                   other->nranks > view->groups[group].nranks) &&
           NG_ANY(process, view->processes, view->process_count,
                  process->rank < 0 || process->drives_several);
}

/* How the global ranks of a group are named. */
enum naming { NAMING_NOT_KNOWN, NAMING_BY_GROUP, NAMING_BY_PROCESS };

/* What is known of ranks that have not reported their group. */
struct unseen {
    enum naming naming;
    bool are_processes; /* NAMING_BY_GROUP: all of them are processes in the view */
    uint32_t only;      /* the process, if there is only one; otherwise UINT32_MAX */
};

/*
 * For a group under creation that is not of the whole job: the only process of the job that ended
 * before its first communicator, if all others are known, and each has come or waits elsewhere.
 * UINT32_MAX: none.
 */
static uint32_t ended_before_all(const struct ng_verdict_builder *builder, uint32_t group)
{
    const struct ng_view *view = builder->view;
    uint32_t found = UINT32_MAX;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        bool accounted = ng_view_index_call(&builder->processes, i) != NULL ||
                         builder->waits.stuck_first[i + 1] > builder->waits.stuck_first[i];
        for (uint32_t k = builder->processes.first[i]; k < builder->processes.first[i + 1]; k++)
            accounted |= view->members[builder->processes.members[k]].group == group;
        if (process->rank < 0 || (int64_t)process->world_size != view->process_count)
            return UINT32_MAX;
        if (accounted)
            continue;
        if (found != UINT32_MAX || process->member_count || process->life != NG_LIFE_DEAD)
            return UINT32_MAX;
        found = i;
    }
    return found;
}

static enum naming naming_of(const struct ng_verdict_builder *builder, uint32_t group)
{
    return names_ranks(builder, group)                          ? NAMING_BY_GROUP
           : ng_view_index_is_world(&builder->processes, group) ? NAMING_BY_PROCESS
                                                                : NAMING_NOT_KNOWN;
}

/*
 * For a group under creation that is to have as many ranks as the job has processes: the processes
 * that have not reported it are its absentees. *ret_only: the process, if there is only one;
 * otherwise UINT32_MAX. False: there are other processes, or fewer.
 */
static bool all_are_processes(const struct ng_verdict_builder *builder, uint32_t group,
                              uint32_t *ret_only)
{
    const struct ng_view *view = builder->view;
    uint32_t found = 0, only = UINT32_MAX;

    if ((int64_t)view->process_count != view->groups[group].nranks)
        return false;
    for (uint32_t i = 0; i < view->process_count; i++) {
        bool in_group = false;
        for (uint32_t k = builder->processes.first[i];
             k < builder->processes.first[i + 1] && !in_group; k++)
            in_group = view->members[builder->processes.members[k]].group == group;
        if (!in_group)
            only = found++ ? UINT32_MAX : i;
    }
    /* No process drives two ranks, and none joined twice. */
    if (view->process_count - found != view->groups[group].member_count)
        return false;
    *ret_only = only;
    return true;
}

/* Does nothing but the number of its rank say that this process is of the run of the group's
 * members? Two runs that were started by hand under one name may complement each other. */
static bool is_by_number_alone(const struct ng_verdict_builder *builder, uint32_t group,
                               uint32_t process)
{
    const struct ng_view *view = builder->view;
    const struct ng_view_index *index = &builder->processes;
    uint64_t word = view->processes[process].run_word;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count && word; i++) {
        uint32_t other = members[i].process;
        if (view->processes[other].run_word == word)
            return false;
        for (uint32_t k = index->first[process]; k < index->first[process + 1]; k++)
            for (uint32_t j = index->first[other]; j < index->first[other + 1]; j++)
                if (view->members[index->members[k]].group ==
                    view->members[index->members[j]].group)
                    return false;
    }
    return word != 0;
}

/* Names an absentee without evidence. `process`: NULL not known. */
static void name_unseen(const struct ng_verdict_builder *builder, const struct unseen *unseen,
                        const struct ng_absentee *absentee, const struct ng_view_process *process,
                        struct ng_culprit *culprit)
{
    if (unseen->naming == NAMING_NOT_KNOWN && !process)
        return;
    culprit->rank = unseen->naming == NAMING_NOT_KNOWN ? process->rank : absentee->group_rank;
    if (!process)
        return;
    culprit->pid = process->pid;
    culprit->life = process->life;
    culprit->quiet_ns = process->quiet_ns;
    culprit->gone_ns = process->life_age_ns;
    snprintf(culprit->host, sizeof(culprit->host), "%s", process->host);
}

/* What is known of the process of an absentee, be it that it has not reported the group. */
struct absence {
    const struct ng_view_process *process; /* NULL: not known */
    enum ng_cause cause;                   /* that the wait would have by this absentee alone */
};

static struct absence absence_of(const struct ng_verdict_builder *builder,
                                 const struct unseen *unseen, const struct ng_wait *wait,
                                 const struct ng_absentee *absentee)
{
    struct absence absence = {.cause = ng_wait_cause_of_absentee(builder, wait, absentee)};

    if (absentee->absence != NG_ABSENT_UNSEEN || wait->type != NG_WAIT_CREATE) {
        if (absentee->member)
            absence.process = ng_verdict_builder_process_of(builder, absentee->member);
        return absence;
    }
    uint32_t index = unseen->naming == NAMING_BY_PROCESS
                         ? ng_view_index_of_rank(&builder->processes, absentee->group_rank)
                         : unseen->only;
    if (index == UINT32_MAX)
        return absence;
    absence.process = &builder->view->processes[index];
    enum ng_life life = absence.process->life;
    if (unseen->naming != NAMING_NOT_KNOWN)
        absence.cause = life == NG_LIFE_DEAD || life == NG_LIFE_LOST ? NG_CAUSE_DEAD
                        : life == NG_LIFE_EXITED                     ? NG_CAUSE_LEFT
                        : life == NG_LIFE_STOPPED                    ? NG_CAUSE_STOPPED
                                                                     : absence.cause;
    return absence;
}

/* *ret_absences: one for each absentee of the wait. */
static int find_absences(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                         struct unseen *ret_unseen, struct absence **ret_absences)
{
    struct unseen unseen = {.naming = naming_of(builder, wait->group), .only = UINT32_MAX};
    struct absence *absences =
        ng_arena_alloc(&builder->scratch, (wait->absentee_count + 1) * sizeof(*absences));

    if (!absences)
        return -ENOMEM;
    if (unseen.naming == NAMING_BY_GROUP)
        unseen.are_processes = all_are_processes(builder, wait->group, &unseen.only);
    else if (unseen.naming == NAMING_NOT_KNOWN && wait->absentee_count == 1)
        unseen.only = ended_before_all(builder, wait->group);
    for (uint32_t i = 0; i < wait->absentee_count; i++)
        absences[i] = absence_of(builder, &unseen, wait, &wait->absentees[i]);
    *ret_unseen = unseen;
    *ret_absences = absences;
    return 0;
}

/* For the absentees of a wait, as ages: the first death, and the last message of the first lost
 * one; 0 none. */
struct first_death {
    int64_t dead_ns, lost_ns;
    const struct ng_view_process *own; /* the first that died without being told to; NULL none */
};

static struct first_death first_death(const struct absence *absences, uint32_t count)
{
    struct first_death first = {0};

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_process *process = absences[i].process;
        int64_t *oldest_ns = !process                        ? NULL
                             : process->life == NG_LIFE_DEAD ? &first.dead_ns
                             : process->life == NG_LIFE_LOST ? &first.lost_ns
                                                             : NULL;
        if (!oldest_ns)
            continue;
        *oldest_ns = NG_MAX(*oldest_ns, process->life_age_ns);
        if (process->life == NG_LIFE_DEAD && process->exit_status >= NG_EXIT_STATUS_SIGNAL &&
            !ng_told_to_end(process->exit_status) &&
            (!first.own || process->life_age_ns > first.own->life_age_ns))
            first.own = process;
    }
    return first;
}

/* May this end be the consequence of an earlier one? The time of a loss is not known, nor which of
 * several losses was first. */
static bool is_consequence(const struct first_death *first, const struct ng_view_process *process)
{
    bool dead = process->life == NG_LIFE_DEAD;
    int64_t age_ns = process->life_age_ns;

    if (age_ns < first->dead_ns - DEATHS_TOGETHER_NS)
        return true;
    /* Its launcher ended it because of the other; clocks of two hosts do not tell which was
     * first, unless one was long before: a launcher that has waited in vain kills what is left. */
    if (dead && first->own && ng_told_to_end(process->exit_status) &&
        (age_ns < first->own->life_age_ns ||
         (age_ns <= first->own->life_age_ns + DEATHS_TOGETHER_NS &&
          strcmp(process->host, first->own->host) != 0)))
        return true;
    return dead && age_ns < first->lost_ns - DEATHS_TOGETHER_NS - SIGN_OF_LIFE_NS;
}

/* Is a rank lost, while another process of its host does not answer? Each process has a sign of
 * life of its own, so those of a host are not lost at the same moment. */
static bool more_may_be_lost(const struct ng_verdict_builder *builder,
                             const struct absence *absences, uint32_t count)
{
    const struct ng_view_index *index = &builder->processes;

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_process *process = absences[i].process;
        if (process && process->life == NG_LIFE_LOST &&
            index->hosts[index->host[process - builder->view->processes]].quiet)
            return true;
    }
    return false;
}

int ng_culprits_absentees(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                          enum ng_cause cause)
{
    struct ng_verdict *verdict = builder->verdict;
    struct absence *absences;
    struct unseen unseen;
    enum ng_cause worst = cause;

    int error = find_absences(builder, wait, &unseen, &absences);
    if (error)
        return error;
    verdict->confidence = NG_CONFIDENCE_CERTAIN;
    for (uint32_t i = 0; i < wait->absentee_count; i++)
        worst = NG_MAX(worst, absences[i].cause);
    struct first_death first = first_death(absences, wait->absentee_count);
    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        struct ng_absentee *absentee = &wait->absentees[i];
        const struct ng_view_process *process = absences[i].process;
        bool without_evidence = absentee->absence == NG_ABSENT_UNSEEN;
        if (without_evidence)
            absentee->process_seen = process ? process->life != NG_LIFE_LOST : unseen.are_processes;
        /* What ended a rank before its first communicator may be one of which nothing is known. */
        if (without_evidence && !process && worst > cause)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (absences[i].cause != worst ||
            (worst == NG_CAUSE_DEAD && is_consequence(&first, process)))
            continue;
        struct ng_culprit *culprit =
            ng_verdict_builder_add_culprit(builder, absentee->member, absentee->group_rank);
        ng_explain_absent(&builder->processes, wait, absentee, culprit);
        verdict->may_be_gone |= worst == NG_CAUSE_LEFT && absentee->may_follow;
        if (absentee->absence == NG_ABSENT_LOST ||
            (absentee->absence == NG_ABSENT_STOPPED && absentee->came))
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (!without_evidence)
            continue;
        name_unseen(builder, &unseen, absentee, process, culprit);
        if (!process || process->life == NG_LIFE_LOST || unseen.naming != NAMING_BY_PROCESS)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        if (!process)
            continue;
        uint32_t index = (uint32_t)(process - builder->view->processes);
        bool by_number = is_by_number_alone(builder, wait->group, index);
        if (by_number)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        ng_explain_not_in_making(&builder->processes, index, wait->op, by_number, culprit);
    }
    if (ng_wait_cause_is_of_two(builder, wait)) {
        uint32_t waiter = ng_wait_cause_waiter(builder, wait);
        for (uint32_t i = 0; i < verdict->culprit_count && waiter != UINT32_MAX; i++)
            ng_explain_of_two(builder->processes.ranks[waiter], &verdict->culprits[i]);
        verdict->end_is_certain = true;
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    }
    /* In some releases ranks end it alone. */
    if (wait->type == NG_WAIT_HOST && worst == NG_CAUSE_MISSING &&
        !(ng_op_table[wait->op].fields & NG_F_MEETS))
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    /* One may have failed because of the other, or because of another absentee. */
    if (worst == NG_CAUSE_FAULT && (verdict->culprit_count > 1 || wait->absentee_count > 1))
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    verdict->more_may_be_lost =
        worst == NG_CAUSE_DEAD && more_may_be_lost(builder, absences, wait->absentee_count);
    verdict->kind = worst == NG_CAUSE_DEAD         ? NG_KIND_DEAD_RANK
                    : worst == NG_CAUSE_LEFT       ? NG_KIND_LEFT_EARLY
                    : worst == NG_CAUSE_STOPPED    ? NG_KIND_STOPPED_RANK
                    : worst == NG_CAUSE_FAULT      ? NG_KIND_GPU_STALL
                    : wait->type == NG_WAIT_CREATE ? NG_KIND_INIT_MISSING_RANK
                                                   : NG_KIND_MISSING_RANK;
    return builder->error;
}

int ng_culprits_outside(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    bool named = naming_of(builder, wait->group) != NAMING_NOT_KNOWN;
    enum ng_cause worst = NG_CAUSE_UNSEEN;

    for (uint32_t i = 0; i < wait->absentee_count; i++) {
        enum ng_cause cause = ng_wait_cause_by_ras(wait, &wait->absentees[i]);
        worst = NG_MAX(worst, cause);
    }
    NG_EACH (absentee, wait->absentees, wait->absentee_count) {
        if (ng_wait_cause_by_ras(wait, absentee) != worst)
            continue;
        struct ng_culprit *culprit =
            ng_verdict_builder_add_culprit(builder, NULL, absentee->group_rank);
        if (named)
            culprit->rank = absentee->group_rank;
        culprit->pid = absentee->ras->rank.pid;
        snprintf(culprit->host, sizeof(culprit->host), "%s", absentee->ras->rank.host);
        ng_explain_outside(wait, absentee, culprit);
    }
    verdict->kind = worst == NG_CAUSE_DEAD   ? NG_KIND_DEAD_RANK
                    : worst == NG_CAUSE_LEFT ? NG_KIND_LEFT_EARLY
                                             : NG_KIND_MISSING_RANK;
    verdict->confidence = NG_CONFIDENCE_LIKELY;
    return builder->error;
}

/*
 * Is this rank already a culprit? Either its process is in `processes` and does not drive several
 * devices; or the rank itself was named, though it has not reported the group in which it is
 * missing.
 */
static bool is_named(const struct ng_verdict_builder *builder, const bool *processes,
                     const struct ng_view_member *member)
{
    int rank = builder->processes.ranks[member - builder->view->members];
    bool several = ng_verdict_builder_process_of(builder, member)->drives_several;

    if (!several && processes[member->process])
        return true;
    return (rank >= 0 || several) && NG_ANY(culprit, builder->verdict->culprits,
                                            builder->verdict->culprit_count, culprit->rank == rank);
}

/* May `wait` have a culprit that is not a consequence of the reported wait, `told`? */
static bool is_as_old(const struct ng_wait *wait, const struct ng_wait *told)
{
    return (wait->type == NG_WAIT_CREATE) == (told->type == NG_WAIT_CREATE) &&
           wait->age_ns - told->age_ns < NG_VERDICT_BUILDER_SAME_AGE_NS &&
           told->age_ns - wait->age_ns < NG_VERDICT_BUILDER_SAME_AGE_NS;
}

/*
 * Adds ranks that block other groups at the same time and in the same way as the culprits of wait
 * `best` block theirs: neither is a consequence of the other. Lost ranks are added whatever they
 * block.
 */
int ng_culprits_others(struct ng_verdict_builder *builder, uint32_t best, enum ng_cause cause)
{
    const struct ng_view *view = builder->view;
    const struct ng_wait *told = &builder->waits.waits[best];
    bool *named = ng_arena_alloc(&builder->scratch, view->process_count + 1);
    struct absence *absences;
    struct unseen unseen;

    int error = find_absences(builder, told, &unseen, &absences);
    if (!named || error)
        return -ENOMEM;
    struct first_death first = first_death(absences, told->absentee_count);
    for (uint32_t i = 0; i < told->absentee_count; i++)
        if (told->absentees[i].member)
            named[told->absentees[i].member->process] = true;
    for (uint32_t w = 0; w < builder->waits.count; w++) {
        const struct ng_wait *wait = &builder->waits.waits[w];
        bool as_old = is_as_old(wait, told);
        if (w == best || (!as_old && cause != NG_CAUSE_DEAD) || builder->causes[w] != cause)
            continue;
        NG_EACH (absentee, wait->absentees, wait->absentee_count) {
            if (!absentee->member || ng_wait_cause_of_absentee(builder, wait, absentee) != cause ||
                (!as_old && absentee->absence != NG_ABSENT_LOST) ||
                is_named(builder, named, absentee->member) ||
                (cause == NG_CAUSE_DEAD &&
                 is_consequence(&first, ng_verdict_builder_process_of(builder, absentee->member))))
                continue;
            struct ng_culprit *culprit = ng_verdict_builder_add_culprit(
                builder, absentee->member,
                ng_verdict_builder_rank_in(builder, told->group, absentee->member));
            ng_explain_absent(&builder->processes, wait, absentee, culprit);
            if (absentee->absence == NG_ABSENT_LOST)
                builder->verdict->confidence = NG_CONFIDENCE_LIKELY;
            named[absentee->member->process] = true;
        }
    }
    return builder->error;
}

/* The group rank of a global rank of a process in the group of the verdict; -1 none. */
static int rank_in_told(const struct ng_verdict_builder *builder, uint32_t process, int rank)
{
    const struct ng_view *view = builder->view;

    for (uint32_t m = 0; m < view->member_count; m++)
        if (view->members[m].process == process && builder->processes.ranks[m] == rank &&
            view->groups[view->members[m].group].id == builder->verdict->group_id)
            return view->members[m].group_rank;
    return -1;
}

int ng_culprits_of_processes(struct ng_verdict_builder *builder)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view *view = builder->view;
    uint32_t named = verdict->culprit_count;

    for (uint32_t i = 0; i < named; i++)
        for (uint32_t m = 0; m < view->member_count; m++) {
            const struct ng_view_member *member = &view->members[m];
            const struct ng_view_process *process = ng_verdict_builder_process_of(builder, member);
            int rank = builder->processes.ranks[m];
            bool known = rank < 0 || !process->drives_several ||
                         !ng_culprit_is_of(&verdict->culprits[i], process);
            if (known ||
                NG_ANY(culprit, verdict->culprits, verdict->culprit_count, culprit->rank == rank))
                continue;
            struct ng_culprit *culprit = ng_verdict_builder_add_culprit(
                builder, member, rank_in_told(builder, member->process, rank));
            ng_explain_same_process(&builder->processes, member, verdict->culprits[i].rank,
                                    culprit);
        }
    return builder->error;
}

enum ng_confidence ng_mismatch_confidence(const struct ng_mismatch *mismatch)
{
    return mismatch->undecided                         ? NG_CONFIDENCE_UNKNOWN
           : mismatch->by_history || mismatch->is_open ? NG_CONFIDENCE_LIKELY
                                                       : NG_CONFIDENCE_CERTAIN;
}

int ng_culprits_mismatch(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                         const struct ng_mismatch *mismatch)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);
    struct ng_signature signature;

    verdict->kind = NG_KIND_MISMATCH;
    verdict->seq = mismatch->seq;
    verdict->op = (enum ng_op)mismatch->expected.op;
    verdict->confidence = ng_mismatch_confidence(mismatch);
    verdict->others_may_tell = mismatch->is_open;
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) ||
            !ng_mismatch_call_at(builder->view, &members[i], mismatch->seq, &signature) ||
            (!mismatch->undecided && !ng_signature_differ(&signature, &mismatch->expected)))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, &members[i]);
        ng_explain_mismatch(mismatch, &signature, culprit->why, sizeof(culprit->why));
    }
    return builder->error;
}

int ng_culprits_surplus(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    int32_t index = (int32_t)(wait - builder->waits.waits);

    builder->verdict->kind = NG_KIND_MISMATCH;
    bool of_two = ng_wait_cause_is_of_two(builder, wait);
    builder->verdict->confidence =
        wait->type == NG_WAIT_COLLECTIVE && !of_two ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    NG_EACH_MEMBER (member, builder->view, wait->group) {
        if (builder->waits.wait_of_member[member - builder->view->members] != index)
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        ng_explain_surplus(wait, of_two, culprit);
    }
    return builder->error;
}

int ng_culprits_init(struct ng_verdict_builder *builder, const struct ng_init_mismatch *mismatch)
{
    struct ng_verdict *verdict = builder->verdict;

    ng_verdict_builder_set_group(builder, mismatch->group);
    verdict->group_nranks = mismatch->nranks;
    verdict->kind = NG_KIND_INIT_MISMATCH;
    verdict->confidence = mismatch->undecided ? NG_CONFIDENCE_UNKNOWN
                          : mismatch->likely  ? NG_CONFIDENCE_LIKELY
                                              : NG_CONFIDENCE_CERTAIN;
    for (uint32_t i = 0; i < mismatch->odd_count; i++) {
        const struct ng_view_member *member = mismatch->odds[i].member;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        snprintf(culprit->why, sizeof(culprit->why), "%s", mismatch->odds[i].why);
    }
    verdict->other_ids = ng_arena_alloc(&verdict->arena, (mismatch->other_id_count + 1) *
                                                             sizeof(*verdict->other_ids));
    if (!verdict->other_ids)
        return -ENOMEM;
    if (mismatch->other_id_count)
        memcpy(verdict->other_ids, mismatch->other_ids,
               mismatch->other_id_count * sizeof(*verdict->other_ids));
    verdict->other_id_count = mismatch->other_id_count;
    return builder->error;
}

/* Adds the minority at the collective at which the hashes were compared. */
int ng_culprits_parted(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                       const struct ng_divergence *divergence)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);
    struct ng_signature signature;
    enum ng_op op = NG_OP_NONE;

    for (uint32_t i = 0; i < count && op == NG_OP_NONE; i++)
        if (ng_signature_at(&members[i], divergence->seq, &signature))
            op = (enum ng_op)signature.op;
    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = divergence->undecided ? NG_CONFIDENCE_UNKNOWN : NG_CONFIDENCE_LIKELY;
    verdict->seq = divergence->seq;
    verdict->op = op;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = ng_rolling_hash_at(&members[i], divergence->compared);
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) || !hash ||
            (!divergence->undecided && hash == divergence->expected))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, &members[i]);
        ng_explain_parted(divergence, op, culprit);
    }
    return builder->error;
}

/* Do NCCL's own counters show that the device of every rank that waits is in this collective? */
static bool is_counted(const struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    uint32_t count, counted = 0;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);
    int32_t index = (int32_t)(wait - builder->waits.waits);

    for (uint32_t i = 0; i < count && wait->seq; i++)
        counted += builder->waits.wait_of_member[&members[i] - builder->view->members] == index &&
                   members[i].counted && members[i].counted_seq + 1 == wait->seq;
    return counted && counted == wait->waiter_count;
}

/* Has the device of another rank done its part of what `member` waits for: the collective, or the
 * other side of a send or receive? Then this rank's device alone holds it up. */
static bool others_are_done(const struct ng_verdict_builder *builder, const struct ng_wait *wait,
                            const struct ng_view_member *member)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);

    for (uint32_t i = 0; i < count && wait->seq; i++)
        if (members[i].completed >= wait->seq)
            return true;
    const struct ng_view_record *record = wait->seq ? NULL : ng_view_pending_record(member);
    if (!record || !record->peer_ordinal)
        return false;
    const struct ng_view_member *peer =
        ng_view_member_among(members, count, record->signature.root);
    return peer && peer != member &&
           NG_ANY(theirs, peer->records, peer->record_count,
                  ng_view_record_is_p2p(theirs) && theirs->state == NG_RECORD_COMPLETED &&
                      theirs->signature.op != record->signature.op &&
                      theirs->signature.root == member->group_rank &&
                      theirs->peer_ordinal == record->peer_ordinal);
}

/* By NCCL's progress counters: the kernels of some ranks run, and wait for those of others, which
 * have not begun. */
static void blame_not_begun(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    int32_t index = (int32_t)(wait - builder->waits.waits);
    uint32_t runs = 0, not_begun = 0;

    NG_EACH_MEMBER (member, builder->view, wait->group) {
        if (builder->waits.wait_of_member[member - builder->view->members] != index)
            continue;
        runs += member->kernel == NG_KERNEL_RUNS;
        not_begun += member->kernel == NG_KERNEL_NOT_BEGUN;
    }
    if (!is_counted(builder, wait) || !runs || !not_begun || runs + not_begun < wait->waiter_count)
        return;
    builder->verdict->confidence = NG_CONFIDENCE_LIKELY;
    NG_EACH_MEMBER (member, builder->view, wait->group) {
        if (builder->waits.wait_of_member[member - builder->view->members] != index ||
            member->kernel != NG_KERNEL_NOT_BEGUN)
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        snprintf(culprit->why, sizeof(culprit->why),
                 "made the call, but its kernel has not begun, by NCCL's progress counters; those "
                 "of others run");
    }
}

/* All ranks made the call. If only some devices have reached the operation, the others are blocked
 * by work queued before it, and their ranks are the culprits. */
int ng_culprits_device(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    int32_t index = (int32_t)(wait - builder->waits.waits);

    verdict->kind = NG_KIND_GPU_STALL;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->counted = is_counted(builder, wait);
    verdict->connection_count = 0; /* another wait may have been judged before */
    if (wait->not_started == 0) {
        blame_not_begun(builder, wait);
        return builder->error ?: ng_culprits_edges(builder, wait);
    }
    bool none_started = wait->not_started >= wait->waiter_count;
    if (!none_started)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    NG_EACH_MEMBER (member, builder->view, wait->group) {
        if (builder->waits.wait_of_member[member - builder->view->members] != index ||
            !member->pending_record || member->pending_started ||
            builder->waits.queued[member - builder->view->members] ||
            (wait->seq && member->pending_seq != wait->seq) ||
            (none_started && !others_are_done(builder, wait, member)))
            continue;
        verdict->confidence = NG_CONFIDENCE_LIKELY;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        snprintf(culprit->why, sizeof(culprit->why),
                 "made the call, but its device has not reached it in %.1f s: work queued ahead on "
                 "the stream does "
                 "not finish",
                 (double)member->pending_age_ns / 1e9);
    }
    if (builder->error || !none_started || verdict->culprit_count)
        return builder->error;
    return ng_culprits_edges(builder, wait);
}
