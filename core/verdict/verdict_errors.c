/*
 * Errors that NCCL itself reports, and those after which CUDA has failed for good.
 *
 * Pure.
 */
#include <errno.h>

#include "core/nccl/nccl.h"
#include "core/nccl/op.h"
#include "core/util/macros.h"
#include "core/verdict/explain.h"
#include "core/verdict/verdict_parts.h"
#include "core/view/signature.h"

static bool is_error(int result)
{
    return result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS;
}

/* Does the process live, and use the communicator? */
static bool is_in_use(const struct ng_verdict_builder *builder, const struct ng_view_member *member)
{
    return ng_group_state_is_alive(member->state) && !ng_verdict_builder_is_gone(builder, member);
}

/* Does this member report an error: a local one or, unless `own_only`, also that of a peer? */
static bool reports(const struct ng_verdict_builder *builder, const struct ng_view_member *member,
                    bool own_only)
{
    return is_error(member->async_error) &&
           !(own_only && member->async_error == NG_NCCL_REMOTE_ERROR) && is_in_use(builder, member);
}

/* Has CUDA failed for good on its device? */
static bool has_lost_device(const struct ng_verdict_builder *builder,
                            const struct ng_view_member *member)
{
    return ng_cuda_error_is_permanent(member->cuda_error) && is_in_use(builder, member);
}

/* The member whose device is lost; of its communicators, one with a call that has not finished. */
static const struct ng_view_member *find_lost_device(const struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;
    const struct ng_view_member *found = NULL;

    NG_EACH (member, view->members, view->member_count) {
        if (!has_lost_device(builder, member))
            continue;
        if (member->completed < member->entered)
            return member;
        found = found ? found : member;
    }
    return found;
}

/* When a program ends its communicator itself, NCCL reports a remote error to its peers. */
static bool was_ended(const struct ng_verdict_builder *builder, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, group, &count);

    return NG_ANY(member, members, count,
                  ng_group_state_is_freed(member->state) &&
                      !ng_verdict_builder_is_gone(builder, member));
}

/* The member whose error is reported; NULL none. */
static const struct ng_view_member *find_error(const struct ng_verdict_builder *builder,
                                               bool own_only)
{
    const struct ng_view *view = builder->view;

    return NG_FIND(one, view->members, view->member_count,
                   reports(builder, one, own_only) &&
                       (own_only || !was_ended(builder, one->group)));
}

bool ng_verdict_builder_has_error_of_gone(const struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;

    if (find_error(builder, true))
        return false;
    for (uint32_t i = 0; i < view->member_count; i++) {
        if (!reports(builder, &view->members[i], false) ||
            was_ended(builder, view->members[i].group))
            continue;
        NG_EACH_MEMBER (member, view, view->members[i].group)
            if (ng_verdict_builder_is_gone(builder, member))
                return true;
    }
    return false;
}

static int blame_error(struct ng_verdict_builder *builder, const struct ng_view_member *member,
                       bool gone)
{
    const struct ng_view_process *process = ng_verdict_builder_process_of(builder, member);
    struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);

    if (gone)
        ng_explain_gone(process, NG_NCCL_REMOTE_ERROR, culprit);
    else
        ng_explain_error(member->async_error, process->error_text, culprit);
    return builder->error;
}

/*
 * Names the origin of the error: ranks with a local error; otherwise, for a remote error, the ranks
 * that are gone; otherwise the origin is not known, and the reporting ranks are named.
 */
static int blame_errors(struct ng_verdict_builder *builder, const struct ng_view_member *told,
                        bool own)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, told->group, &count);
    bool gone = false, quiet = false;
    int error = 0;

    for (uint32_t i = 0; i < count; i++) {
        gone |= ng_verdict_builder_is_gone(builder, &members[i]);
        quiet |= ng_verdict_builder_process_of(builder, &members[i])->quiet_ns > 0;
    }
    gone = gone && !own;
    verdict->may_be_gone = quiet && !gone && !own;
    for (uint32_t i = 0; i < count && !error; i++)
        if (gone ? ng_verdict_builder_is_gone(builder, &members[i])
                 : reports(builder, &members[i], own))
            error = blame_error(builder, &members[i], gone);
    ng_verdict_builder_sort_culprits(verdict->culprits, verdict->culprit_count);
    verdict->confidence = own || gone ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    return error;
}

/* Names the ranks whose devices are lost. Of several, nobody knows which was the first. */
static int blame_lost_devices(struct ng_verdict_builder *builder, const struct ng_view_member *told)
{
    struct ng_verdict *verdict = builder->verdict;

    NG_EACH_MEMBER (member, builder->view, told->group) {
        if (!has_lost_device(builder, member))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        ng_explain_cuda_error(member->cuda_error, culprit);
    }
    ng_verdict_builder_sort_culprits(verdict->culprits, verdict->culprit_count);
    verdict->confidence = verdict->culprit_count > 1 ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN;
    return builder->error;
}

static void tell_of_error(struct ng_verdict_builder *builder, const struct ng_view_member *told,
                          enum ng_verdict_kind kind)
{
    struct ng_verdict *verdict = builder->verdict;
    struct ng_signature signature = {0};
    /* What was pending is no longer watched once the device is lost. */
    uint64_t unfinished = kind == NG_KIND_CUDA_ERROR && told->completed < told->entered
                              ? told->completed + 1
                              : told->entered;

    ng_verdict_builder_set_group(builder, told->group);
    verdict->kind = kind;
    verdict->seq = told->pending_seq ? told->pending_seq : unfinished;
    verdict->op = ng_signature_at(told, verdict->seq, &signature) ? (enum ng_op)signature.op
                                                                  : (enum ng_op)told->last.op;
    verdict->stalled_ns = 0;
    verdict->culprit_count = verdict->cycle_count = 0;
}

/* Absent ranks that do not answer may be gone; then they are the reason. */
static bool names_the_quiet(const struct ng_verdict *verdict)
{
    return NG_ANY(culprit, verdict->culprits, verdict->culprit_count, culprit->quiet_ns);
}

/* At a deadline the ranks of other hosts end, and NCCL reports their end as an error; the reason is
 * what they waited for. Deadlines of hosts differ by less than the grace period of an error; an
 * older error has been reported separately. */
static bool is_of_the_deadline(const struct ng_verdict *verdict, const struct ng_view_member *told)
{
    int64_t since_ns = verdict->stalled_ns - told->timeout_ns;

    return told->timeout_ns && told->error_age_ns && since_ns >= 0 &&
           told->error_age_ns < since_ns + NG_ASYNC_GRACE_NS;
}

/*
 * An error that NCCL reports explains why a rank does not make a call, or why a device does not
 * finish. A rank that died, left, froze or made a different call may in turn explain the error.
 */
int ng_verdict_builder_errors(struct ng_verdict_builder *builder)
{
    switch (builder->verdict->kind) {
    case NG_KIND_HEALTHY:
    case NG_KIND_MISSING_RANK:
    case NG_KIND_GPU_STALL:
    case NG_KIND_UNKNOWN:
        break;
    default:
        return 0;
    }
    const struct ng_view_member *lost = find_lost_device(builder);
    const struct ng_view_member *own = lost ? lost : find_error(builder, true);
    const struct ng_view_member *told = own ? own : find_error(builder, false);
    /* A remote error is the end of a rank that gave up. */
    if (!told || (!own && (builder->verdict->gave_up_ns || names_the_quiet(builder->verdict) ||
                           is_of_the_deadline(builder->verdict, told))))
        return 0;
    int error = builder->waits.count
                    ? 0
                    : ng_view_index_find(builder->view, &builder->scratch, &builder->processes);
    if (error)
        return error;
    tell_of_error(builder, told, lost ? NG_KIND_CUDA_ERROR : NG_KIND_ASYNC_ERROR);
    error = lost ? blame_lost_devices(builder, told) : blame_errors(builder, told, own != NULL);
    return error ? error : ng_verdict_builder_list_waiting_in(builder, told->group);
}
