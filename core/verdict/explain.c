/*
 * The one sentence that says why a rank is a culprit.
 *
 * Pure. The sentence begins with a verb, since the report puts the rank before it.
 */
#include "core/verdict/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/nccl/nccl.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/number.h"
#include "core/util/text.h"
#include "core/view/p2p_patterns.h"

/* An empty sentence; and what is there, to add to it. */
static struct ng_text begin(struct ng_culprit *culprit)
{
    culprit->why[0] = '\0';
    return (struct ng_text){culprit->why, 0, sizeof(culprit->why)};
}

static struct ng_text go_on(struct ng_culprit *culprit)
{
    return (struct ng_text){culprit->why, strlen(culprit->why), sizeof(culprit->why)};
}

/* No %f: the locale would choose the point. */
static void add_seconds(struct ng_text *text, int64_t ns)
{
    int64_t tenths = ns > 0 ? (ns + NG_S / 20) / (NG_S / 10) : 0;

    ng_text_add(text, "%" PRId64 ".%" PRId64 " s", tenths / 10, tenths % 10);
}

static const struct ng_view_process *process_of(const struct ng_view_index *processes,
                                                const struct ng_view_member *member)
{
    return &processes->view->processes[member->process];
}

/* The call that the wait needs from the absentee. */
static void add_what(struct ng_text *text, const struct ng_wait *wait,
                     const struct ng_absentee *absentee)
{
    if (wait->type == NG_WAIT_COLLECTIVE)
        ng_text_add(text, "%s #%" PRIu64 "%s", ng_op_name(wait->op), wait->seq,
                    wait->cold ? ", the first, in which NCCL connects the ranks inside the call"
                               : "");
    else if (wait->type == NG_WAIT_P2P)
        ng_text_add(text, "the %s that group rank %d waits for%s%s",
                    absentee->send ? "send" : "receive", absentee->for_rank,
                    wait->pattern ? " in the " : "",
                    wait->pattern ? ng_p2p_pattern_words(wait->pattern) : "");
    else
        ng_text_add(text, "%s", ng_op_name(wait->op));
}

/* The last call of a member in its group. */
static void add_last(struct ng_text *text, const struct ng_view_member *member)
{
    if (!member->entered) {
        ng_text_add(text, "it has made no collective in this group");
        return;
    }
    ng_text_add(text, "its last was %s #%" PRIu64, ng_op_name(member->last.op), member->entered);
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (ng_view_record_is_p2p(record) || record->coll_seq != member->entered ||
            !ng_view_record_counts(record))
            continue;
        if (record->graph)
            ng_text_add(text, " in replay %" PRIu64 " of graph %" PRIu64, record->replay,
                        record->graph);
        ng_text_add(text, ", ");
        add_seconds(text, record->entered_age_ns);
        ng_text_add(text, " ago");
        return;
    }
}

/* The call that a live process is inside now. */
static void add_present(struct ng_text *text, const struct ng_view_index *processes,
                        uint32_t process)
{
    const struct ng_view_call *call = ng_view_index_call(processes, process);

    if (!call && processes->view->processes[process].life == NG_LIFE_UNKNOWN) {
        ng_text_add(text, "and what it was doing is not known");
        return;
    }
    if (!call) {
        ng_text_add(text, "and it is inside no NCCL call");
        return;
    }
    ng_text_add(text, "it has been inside %s for ", ng_op_name(call->op));
    add_seconds(text, call->age_ns);
}

/* How a process died that did not report its end: as the kernel told a neighbour, if the neighbour
 * could still query it. */
static void add_death(struct ng_text *text, const struct ng_view_process *process)
{
    int status = process->exit_status, number = status - NG_EXIT_STATUS_SIGNAL;

    if (number == 9 || number == 15)
        ng_text_add(text, "was killed (signal %d)", number);
    else if (number > 0 && number < 65)
        ng_text_add(text, "crashed (signal %d)", number);
    else if (status >= NG_EXIT_STATUS_SILENT && status < NG_EXIT_STATUS_SILENT + 256)
        ng_text_add(text, "ended without reporting it (_exit with status %d)",
                    status - NG_EXIT_STATUS_SILENT);
    else
        ng_text_add(text, "ended without reporting it (killed, crashed or _exit)");
}

/* Such a rank has nothing by which it could report a status. */
static void add_early_end(struct ng_text *text, const struct ng_view_process *process)
{
    int status = process->exit_status - NG_EXIT_STATUS_SILENT;

    if (status >= 0 && status < 256)
        ng_text_add(text, "ended with exit status %d", status);
    else
        add_death(text, process);
    ng_text_add(text, " before its first communicator");
}

/* How a process ended that had finished with its communicators or reported its status. */
static void add_end(struct ng_text *text, const struct ng_view_process *process)
{
    if (process->exit_status == NG_EXIT_STATUS_EXEC)
        ng_text_add(text, "became another program (exec)");
    else if (process->exit_status == NG_EXIT_STATUS_NOT_TOLD)
        ng_text_add(text, "ended (quick_exit)");
    else
        ng_text_add(text, "ended with exit status %d", process->exit_status);
}

/* The communicators that it left open when it ended. */
static void add_remains(struct ng_text *text, const struct ng_view_index *processes,
                        uint32_t process)
{
    struct ng_remains remains;

    ng_view_index_remains(processes, process, &remains);
    if (remains.pending)
        ng_text_add(text,
                    "; it had work pending in %" PRIu32 " of its communicators, %" PRIu32 " open",
                    remains.pending, remains.open);
    else if (remains.open)
        ng_text_add(text, "; it had no work pending, but %" PRIu32 " communicator%s open",
                    remains.open, remains.open == 1 ? "" : "s");
    else
        ng_text_add(text, "; it had no work pending and no communicator open");
}

/* A host that is down cannot be distinguished from one that is cut off, nor either from the loss of
 * the only process there. */
static void add_loss(struct ng_text *text, const struct ng_view_index *processes, uint32_t process)
{
    const struct ng_view_process *lost = &processes->view->processes[process];
    const struct ng_view_host *host = &processes->hosts[processes->host[process]];
    char ranks[64];
    uint32_t count;

    ng_view_index_lost_ranks(processes, host, ranks, sizeof(ranks), &count);
    if (host->silent && lost->host[0])
        ng_text_add(text, "host %.63s%s%s has sent no message for ", lost->host,
                    count == 0   ? ""
                    : count == 1 ? " with rank "
                                 : " with ranks ",
                    count ? ranks : "");
    else
        ng_text_add(text, "has sent no message for ");
    add_seconds(text, lost->life_age_ns);
    if (host->silent)
        ng_text_add(text, ": it may be down or cut off, or its process%s frozen or gone",
                    host->count == 1 ? "" : "es");
    else if (host->answers)
        ng_text_add(text,
                    ", though others on its host %.63s have: it may be frozen or gone, or may not "
                    "reach the "
                    "store",
                    lost->host);
    else
        ng_text_add(
            text,
            ", and others on its host %.63s do not answer: it may be down or cut off, or its "
            "processes frozen or gone",
            lost->host);
}

static void add_cuda_error(struct ng_text *text, int error)
{
    ng_text_add(text, "CUDA error %d (%s) on its device", error, ng_cuda_error_text(error));
}

static void add_living(struct ng_text *text, const struct ng_view_index *processes,
                       const struct ng_wait *wait, const struct ng_absentee *absentee)
{
    const struct ng_view_member *member = absentee->member;

    if (absentee->faulted) {
        ng_text_add(text, "made the call, but ");
        add_cuda_error(text, member->cuda_error);
        ng_text_add(text, " ended all work there, ");
        add_present(text, processes, member->process);
    } else if (absentee->open_group) {
        ng_text_add(text, "called ");
        add_what(text, wait, absentee);
        ng_text_add(text, " inside ncclGroupStart and has not reached ncclGroupEnd");
    } else if (absentee->failed) {
        ng_text_add(text, "called ");
        add_what(text, wait, absentee);
        ng_text_add(text, ", where NCCL reported that it failed, ");
        add_present(text, processes, member->process);
    } else if (absentee->left_group) {
        ng_text_add(text, "destroyed or aborted its communicator without ");
        add_what(text, wait, absentee);
        ng_text_add(text, "; ");
        add_last(text, member);
    } else {
        if (ng_absentee_has_left(absentee))
            ng_text_add(text, "called %s without ", ng_op_name(absentee->leaving));
        else
            ng_text_add(text, "is alive but never called ");
        add_what(text, wait, absentee);
        ng_text_add(text, "; ");
        add_last(text, member);
        ng_text_add(text, ", ");
        add_present(text, processes, member->process);
    }
}

void ng_explain_absent(const struct ng_view_index *processes, const struct ng_wait *wait,
                       const struct ng_absentee *absentee, struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);
    const struct ng_view_member *member = absentee->member;
    const char *before = absentee->failed ? "after a failure of"
                         : absentee->came ? "inside"
                                          : "before";

    switch (absentee->absence) {
    case NG_ABSENT_DEAD:
        add_death(&text, process_of(processes, member));
        break;
    case NG_ABSENT_EXITED:
        add_end(&text, process_of(processes, member));
        before = absentee->failed ? before : absentee->came ? "inside" : "without";
        break;
    case NG_ABSENT_STOPPED:
        ng_text_add(&text,
                    "is frozen (stopped by a signal or a debugger, or its guard no longer runs)");
        break;
    case NG_ABSENT_LOST:
        add_loss(&text, processes, member->process);
        before = absentee->came ? "; it was inside" : "; it had not told of";
        break;
    case NG_ABSENT_ALIVE:
        add_living(&text, processes, wait, absentee);
        break;
    case NG_ABSENT_UNSEEN:
        ng_text_add(&text, "has not come to ");
        add_what(&text, wait, absentee);
        break;
    }
    if (absentee->absence != NG_ABSENT_ALIVE && absentee->absence != NG_ABSENT_UNSEEN) {
        ng_text_add(&text, "%s%s ", before[0] == ';' ? "" : " ", before);
        add_what(&text, wait, absentee);
        if (!absentee->failed) {
            ng_text_add(&text, "; ");
            add_last(&text, member);
        }
        if (absentee->absence == NG_ABSENT_EXITED)
            add_remains(&text, processes, member->process);
    }
    if (member && member->cuda_error && !absentee->faulted) {
        ng_text_add(&text, "; ");
        add_cuda_error(&text, member->cuda_error);
    }
}

void ng_explain_outside(const struct ng_wait *wait, const struct ng_absentee *absentee,
                        struct ng_culprit *culprit)
{
    const struct ng_view_ras *ras = absentee->ras;
    struct ng_text text = begin(culprit);

    switch (ras->rank.state) {
    case NG_RAS_UNREACHABLE:
        ng_text_add(&text, "cannot be reached, as NCCL's RAS said: it has ended, is frozen or is "
                           "cut off; ranks wait for it in ");
        break;
    case NG_RAS_DEAD:
        ng_text_add(&text, "is dead, as NCCL's RAS said, which could not reach it for long; ranks "
                           "wait for it in ");
        break;
    case NG_RAS_ENDING:
        ng_text_add(&text, "has begun to end this communicator, as NCCL's RAS said, while ranks "
                           "wait for it in ");
        break;
    case NG_RAS_NO_MEMBER:
        ng_text_add(&text, "does not have this communicator any more, as NCCL's RAS said, while "
                           "ranks wait for it in ");
        break;
    default:
        ng_text_add(&text,
                    "is alive but had launched only %" PRIu64 " of %" PRIu64
                    " collectives, as NCCL's RAS said, and so not ",
                    ras->rank.launched, ras->others);
    }
    add_what(&text, wait, absentee);
    ng_text_add(&text, "; its own guard does not report");
}

void ng_explain_same_process(const struct ng_view_index *processes,
                             const struct ng_view_member *member, int rank,
                             struct ng_culprit *culprit)
{
    const struct ng_view_process *process = process_of(processes, member);
    struct ng_text text = begin(culprit);

    switch (process->life) {
    case NG_LIFE_EXITED:
        add_end(&text, process);
        break;
    case NG_LIFE_STOPPED:
        ng_text_add(&text, "is frozen");
        break;
    case NG_LIFE_LOST:
        add_loss(&text, processes, member->process);
        break;
    default:
        add_death(&text, process);
    }
    ng_text_add(&text, ": it is of the same process as ");
    if (rank >= 0)
        ng_text_add(&text, "rank %d", rank);
    else
        ng_text_add(&text, "another culprit");
}

void ng_explain_not_in_making(const struct ng_view_index *processes, uint32_t process,
                              enum ng_op op, bool by_number, struct ng_culprit *culprit)
{
    const struct ng_view_process *in_view = &processes->view->processes[process];
    struct ng_text text = begin(culprit);
    bool early = in_view->life == NG_LIFE_DEAD && !in_view->member_count;

    switch (in_view->life) {
    case NG_LIFE_DEAD:
        if (early) {
            add_early_end(&text, in_view);
            break;
        }
        add_death(&text, in_view);
        ng_text_add(&text, " before it called");
        break;
    case NG_LIFE_EXITED:
        add_end(&text, in_view);
        ng_text_add(&text, " without calling");
        break;
    case NG_LIFE_LOST:
        add_loss(&text, processes, process);
        ng_text_add(&text, "; it had not told of");
        break;
    case NG_LIFE_STOPPED:
        ng_text_add(&text, "is frozen and has not called");
        break;
    default:
        ng_text_add(&text, "is alive but has not called");
    }
    if (!early)
        ng_text_add(&text, " %s", ng_op_name(op));
    if (in_view->life == NG_LIFE_EXITED)
        add_remains(&text, processes, process);
    if (by_number)
        ng_text_add(&text, "; nothing but its rank says that it is of this run");
}

void ng_explain_mismatch(const struct ng_mismatch *mismatch, const struct ng_signature *theirs,
                         char *ret_why, size_t bytes)
{
    uint32_t differ = ng_signature_differ(theirs, &mismatch->expected);
    const char *field = differ & NG_F_OP      ? "operation"
                        : differ & NG_F_COUNT ? "count"
                        : differ & NG_F_DTYPE ? "data type"
                        : differ & NG_F_REDOP ? "reduction"
                                              : "root";
    char called[128], expected[128];

    ng_signature_text(theirs, called, sizeof(called));
    ng_signature_text(&mismatch->expected, expected, sizeof(expected));
    if (mismatch->undecided)
        snprintf(ret_why, bytes,
                 "called %s as #%" PRIu64
                 "; the ranks disagree and it is not known which are wrong",
                 called, mismatch->seq);
    else
        snprintf(ret_why, bytes, "%s differs: called %s as #%" PRIu64 " where %s called %s", field,
                 called, mismatch->seq,
                 mismatch->by_history ? "the other side, as in earlier rounds," : "the others",
                 expected);
}

void ng_explain_disagreement(const struct ng_disagreement *disagreement, int other_group_rank,
                             struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);
    uint64_t first = disagreement->difference.after + 1, last = disagreement->difference.seq;

    if (first == last)
        ng_text_add(&text, "called something else than group rank %d as #%" PRIu64,
                    other_group_rank, last);
    else if (first > 1)
        ng_text_add(&text,
                    "called something else than group rank %d in one of #%" PRIu64 " to #%" PRIu64,
                    other_group_rank, first, last);
    else
        ng_text_add(&text,
                    "called something else than group rank %d in one of the collectives up "
                    "to #%" PRIu64,
                    other_group_rank, last);
    ng_text_add(&text, ", of which no records are left: the rolling hashes of their calls differ; "
                       "it is not known which are wrong");
}

void ng_explain_parted(const struct ng_divergence *divergence, enum ng_op op,
                       struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);
    uint64_t first = divergence->after + 1, last = divergence->seq - 1;

    ng_text_add(&text, "called something else than %s ",
                divergence->undecided ? "others" : "most others");
    if (divergence->after && first == last)
        ng_text_add(&text, "as #%" PRIu64, first);
    else if (divergence->after)
        ng_text_add(&text, "in one of #%" PRIu64 " to #%" PRIu64, first, last);
    else
        ng_text_add(&text, "in some collective before #%" PRIu64, divergence->seq);
    ng_text_add(&text,
                ", of which no records are left: it called %s #%" PRIu64 " as they did, but the "
                "rolling hash of its calls differs",
                ng_op_name(op), divergence->seq);
    if (divergence->undecided)
        ng_text_add(&text, "; it is not known which are wrong");
}

static void add_call(struct ng_text *text, const struct ng_wait *wait)
{
    ng_text_add(text, "called %s",
                wait->pattern ? ng_p2p_pattern_words(wait->pattern) : ng_op_name(wait->op));
    if (wait->seq)
        ng_text_add(text, " #%" PRIu64, wait->seq);
}

void ng_explain_stray(const struct ng_wait *wait, const struct ng_wait *other, bool undecided,
                      struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);

    add_call(&text, wait);
    ng_text_add(&text, " where %s ", undecided ? "as many" : "the others");
    add_call(&text, other);
    if (undecided)
        ng_text_add(&text, "; it is not known which are wrong");
}

void ng_explain_surplus(const struct ng_wait *wait, bool of_two, struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);
    uint32_t ended = 0;

    for (uint32_t i = 0; i < wait->absentee_count; i++)
        ended += wait->absentees[i].absence == NG_ABSENT_EXITED ||
                 ng_absentee_has_left(&wait->absentees[i]);
    add_call(&text, wait);
    if (of_two)
        ng_text_add(&text, ", a call too many: after the same calls before it called something "
                           "else, and the other came to its end without it");
    else
        ng_text_add(&text, ", a call too many: %" PRIu32 " others came to their end without it",
                    ended);
}

void ng_explain_of_two(int waiting, struct ng_culprit *culprit)
{
    struct ng_text text = go_on(culprit);

    if (waiting >= 0)
        ng_text_add(&text,
                    "; or rank %d made a call too many: with two sides it is not known which",
                    waiting);
    else
        ng_text_add(
            &text,
            "; or the rank that waits made a call too many: with two sides it is not known which");
}

/* Group names come from the program and may not be unique. */
static void add_group(struct ng_text *text, const struct ng_verdict *verdict,
                      const struct ng_verdict_step *step)
{
    bool alike = NG_ANY(other, verdict->cycle, NG_MIN(verdict->cycle_count, 64u),
                        other->group_id != step->group_id &&
                            strcmp(other->group_name, step->group_name) == 0);

    if (!step->group_name[0])
        ng_text_add(text, "group %016" PRIx64, step->group_id);
    else if (alike)
        ng_text_add(text, "group \"%.63s\" (%016" PRIx64 ")", step->group_name, step->group_id);
    else
        ng_text_add(text, "group \"%.63s\"", step->group_name);
}

static bool is_p2p(const struct ng_verdict_step *step)
{
    return step->op == NG_OP_Send || step->op == NG_OP_Recv;
}

/* "is in AllReduce #5 of group "a" and has not entered AllReduce #3 of group "b"" */
static void add_step(struct ng_text *text, const struct ng_verdict *verdict, uint32_t at)
{
    const struct ng_verdict_step *step = &verdict->cycle[at];
    const struct ng_verdict_step *before = &verdict->cycle[at ? at - 1 : verdict->cycle_count - 1];

    ng_text_add(text, "is in %s", ng_op_name(step->op));
    if (step->seq)
        ng_text_add(text, " #%" PRIu64, step->seq);
    if (is_p2p(step))
        ng_text_add(text, " %s rank %d", step->op == NG_OP_Send ? "to" : "from",
                    step->waits_for_rank);
    ng_text_add(text, " of ");
    add_group(text, verdict, step);
    ng_text_add(text, before->queued    ? ", and behind it on its device waits "
                      : before->closing ? ", and in the same ncclGroupEnd waits "
                                        : " and has not entered ");
    if (is_p2p(before))
        ng_text_add(text, "%s rank %d", before->op == NG_OP_Send ? "Recv from" : "Send to",
                    before->rank);
    else
        ng_text_add(text, "%s", ng_op_name(before->op));
    if (before->seq)
        ng_text_add(text, " #%" PRIu64, before->seq);
    /* If both steps are in one group, its name is needed only once. */
    if (before->group_id != step->group_id) {
        ng_text_add(text, " of ");
        add_group(text, verdict, before);
    }
}

void ng_explain_order(const struct ng_verdict *verdict, uint32_t at, struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);

    add_step(&text, verdict, at);
    for (uint32_t i = 1; i < verdict->cycle_count; i++) {
        uint32_t next = (at + i) % verdict->cycle_count;
        size_t before = text.used;
        ng_text_add(&text, "; rank %d ", verdict->cycle[next].rank);
        add_step(&text, verdict, next);
        if (text.used + sizeof("; ...") >= text.bytes && i + 1 < verdict->cycle_count) {
            /* Drops a partial step; the verdict has all of them. */
            text.used =
                before < text.bytes - sizeof("; ...") ? before : text.bytes - sizeof("; ...");
            ng_text_add(&text, "; ...");
            return;
        }
    }
}

void ng_explain_departs(struct ng_culprit *culprit)
{
    struct ng_text text = go_on(culprit);

    ng_text_add(&text, "; of these it alone did not call as in earlier rounds");
}

void ng_explain_nan(const struct ng_view_nan *nan, struct ng_culprit *culprit)
{
    char number[64];

    ng_number_text(nan->dtype, nan->bits, number, sizeof(number));
    snprintf(culprit->why, sizeof(culprit->why),
             "of %" PRIu64 " elements of %s that it sends, %" PRIu64
             " are no numbers, the first is "
             "element %" PRIu64 ": %s%s",
             nan->elements, ng_dtype_name(nan->dtype), nan->bad, nan->element, number,
             nan->held ? "; nothing of it was sent" : "");
}

void ng_explain_error(int error, const char *text, struct ng_culprit *culprit)
{
    snprintf(culprit->why, sizeof(culprit->why), "NCCL reports %s%s%s%s", ng_result_name(error),
             error == NG_NCCL_REMOTE_ERROR ? ", of a peer that the evidence does not name" : "",
             text[0] ? ": " : "", text);
}

void ng_explain_cuda_error(int error, struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);

    add_cuda_error(&text, error);
}

void ng_explain_gone(const struct ng_view_process *process, int error, struct ng_culprit *culprit)
{
    const char *end = process->life == NG_LIFE_EXITED ? "ended"
                      : process->life == NG_LIFE_DEAD ? "died"
                                                      : "sends no messages any more";

    snprintf(culprit->why, sizeof(culprit->why), "%s, and NCCL reports %s to ranks of its group",
             end, ng_result_name(error));
}

void ng_explain_crash(const struct ng_view_process *process, const struct ng_view_member *member,
                      struct ng_culprit *culprit)
{
    struct ng_text text = begin(culprit);

    add_death(&text, process);
    ng_text_add(&text, "; ");
    add_last(&text, member);
}

void ng_explain_quiet(struct ng_culprit *culprit)
{
    struct ng_text text = go_on(culprit);

    ng_text_add(&text, "; all this as of ");
    add_seconds(&text, culprit->quiet_ns);
    ng_text_add(&text, " ago: it did not answer a later request");
}

void ng_explain_unwatched(int unwatched, bool alone, struct ng_culprit *culprit)
{
    struct ng_text text = go_on(culprit);

    ng_text_add(&text, "; the watchdog of ");
    if (culprit->rank == unwatched)
        ng_text_add(&text, "its guard hangs");
    else if (unwatched >= 0)
        ng_text_add(&text, "rank %d hangs", unwatched);
    else
        ng_text_add(&text, "another rank hangs");
    ng_text_add(&text, alone
                           ? ", and only its last look shows that the rank waits: that may be over"
                       : culprit->rank == unwatched
                           ? ", too"
                           : ": what its device is in is not known, but this call cannot end "
                             "without this rank");
}
