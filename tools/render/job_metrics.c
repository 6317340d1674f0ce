/*
 * Jobs as metrics.
 *
 * Entered by the exporter's thread. The format wants all samples of a family together: the loop
 * over families is outside, the one over jobs inside. Two samples must never have the same labels:
 * each rank has one process here, and each rank of a group one communicator.
 */
#include "tools/render/job_metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/report/exposition.h"
#include "core/report/report.h"
#include "core/util/macros.h"
#include "core/verdict/straggler.h"
#include "tools/base/owned.h"

/* A job that is being written. */
struct job {
    const struct ng_scrape *scrape;
    const struct ng_job_metrics *metrics;
    const struct ng_view *view;
    char (*names)[48]; /* label `rank` of each process; "" it is left out */
};

/* ---- Which processes, under which name ---- */

static bool has_ended(const struct ng_view_process *process)
{
    return ng_life_is_gone(process->life) || process->life == NG_LIFE_ENDED_BY_GUARD;
}

/* By rank, those without one last; of one rank the living first, then the one that ended last. */
static int compare_processes(const void *left, const void *right, void *context)
{
    const struct ng_view *view = context;
    const struct ng_view_process *a = &view->processes[*(const uint32_t *)left];
    const struct ng_view_process *b = &view->processes[*(const uint32_t *)right];

    if (a->rank != b->rank)
        return NG_ORDER((unsigned)a->rank, (unsigned)b->rank);
    if (a->rank < 0 && a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (has_ended(a) != has_ended(b))
        return has_ended(a) ? 1 : -1;
    return NG_ORDER(a->life_age_ns, b->life_age_ns) ?: NG_ORDER(a->uid, b->uid);
}

/* As a process names itself in its own file; of other hosts, a number of a process may be the
 * same. */
static void name_process(const struct ng_view_process *process,
                         const struct ng_view_process *before, char *ret_name, size_t bytes)
{
    bool same = before && before->rank == process->rank;

    if (process->rank >= 0 && same)
        ret_name[0] = '\0';
    else if (process->rank >= 0)
        snprintf(ret_name, bytes, "%d", process->rank);
    else if (same && before->pid == process->pid)
        snprintf(ret_name, bytes, "pid-%d-%016" PRIx64, process->pid, process->uid);
    else
        snprintf(ret_name, bytes, "pid-%d", process->pid);
}

static int name_processes(struct job *job)
{
    const struct ng_view *view = job->view;
    const struct ng_view_process *before = NULL;
    NG_FREED uint32_t *order = calloc(view->process_count + 1, sizeof(*order));

    job->names = calloc(view->process_count + 1, sizeof(*job->names));
    if (!order || !job->names)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->process_count; i++)
        order[i] = i;
    qsort_r(order, view->process_count, sizeof(*order), compare_processes, (void *)view);
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[order[i]];
        name_process(process, before, job->names[order[i]], sizeof(*job->names));
        before = process;
    }
    return 0;
}

/* ---- Labels ---- */

static void put_job_labels(struct ng_exposition *out, const struct job *job)
{
    ng_exposition_label(out, "nccl_job", job->metrics->job);
    if (job->metrics->run[0])
        ng_exposition_label(out, "run", job->metrics->run);
}

static void put_job_sample(struct ng_exposition *out, const struct job *job)
{
    ng_exposition_sample(out);
    put_job_labels(out, job);
}

static void put_process_sample(struct ng_exposition *out, const struct job *job, uint32_t process)
{
    ng_exposition_sample(out);
    ng_exposition_label(out, "rank", job->names[process]);
    put_job_labels(out, job);
}

static void put_member_sample(struct ng_exposition *out, const struct job *job,
                              const struct ng_view_member *member)
{
    put_process_sample(out, job, member->process);
    ng_exposition_label_id(out, "group", job->view->groups[member->group].id);
    ng_exposition_label_int(out, "group_rank", member->group_rank);
}

/* ---- Ranks of groups ---- */

typedef void put_member_fn(struct ng_exposition *out, const struct job *job,
                           const struct ng_view_member *member);

static void put_group(struct ng_exposition *out, const struct job *job,
                      const struct ng_view_member *member)
{
    const struct ng_view_group *group = &job->view->groups[member->group];

    put_member_sample(out, job, member);
    ng_exposition_label_int(out, "nranks", group->nranks);
    ng_exposition_label_int(out, "device", member->device);
    ng_exposition_label(out, "name", group->name);
    ng_exposition_value(out, 1);
}

static void put_labelled(struct ng_exposition *out, const struct job *job,
                         const struct ng_view_member *member, const char *label, const char *text,
                         uint64_t value)
{
    put_member_sample(out, job, member);
    ng_exposition_label(out, label, text);
    ng_exposition_value(out, value);
}

static void put_last_collective(struct ng_exposition *out, const struct job *job,
                                const struct ng_view_member *member)
{
    put_labelled(out, job, member, "state", "entered", member->entered);
    put_labelled(out, job, member, "state", "started", member->started);
    put_labelled(out, job, member, "state", "completed", member->completed);
}

static void put_last_send_recv(struct ng_exposition *out, const struct job *job,
                               const struct ng_view_member *member)
{
    put_labelled(out, job, member, "state", "entered", member->p2p_entered);
    put_labelled(out, job, member, "state", "completed", member->p2p_completed);
}

static void put_pending_time(struct ng_exposition *out, const struct job *job,
                             const struct ng_view_member *member)
{
    put_member_sample(out, job, member);
    ng_exposition_seconds(out, (uint64_t)ng_view_age(member->pending_age_ns));
}

static uint64_t held(const struct ng_view_registration *registration)
{
    return registration->made > registration->ended ? registration->made - registration->ended : 0;
}

static void put_registration(struct ng_exposition *out, const struct job *job,
                             const struct ng_view_member *member)
{
    const struct ng_view_registration *count = &member->registration;

    if (!count->known)
        return;
    put_labelled(out, job, member, "what", "made", count->made);
    put_labelled(out, job, member, "what", "ended", count->ended);
    put_labelled(out, job, member, "what", "ended_with_group",
                 ng_group_state_is_freed(member->state) ? held(count) : 0);
    put_labelled(out, job, member, "what", "failed", count->failed);
    put_labelled(out, job, member, "what", "deferred", count->deferred);
}

static void put_held(struct ng_exposition *out, const struct job *job,
                     const struct ng_view_member *member)
{
    if (!member->registration.known)
        return;
    put_member_sample(out, job, member);
    ng_exposition_value(out,
                        ng_group_state_is_freed(member->state) ? 0 : held(&member->registration));
}

static void put_registered_bytes(struct ng_exposition *out, const struct job *job,
                                 const struct ng_view_member *member)
{
    const struct ng_view_registration *count = &member->registration;

    if (!count->known)
        return;
    put_labelled(out, job, member, "registered", "yes", count->registered_bytes);
    put_labelled(out, job, member, "registered", "no",
                 count->bytes > count->registered_bytes ? count->bytes - count->registered_bytes
                                                        : 0);
}

static void put_registration_time(struct ng_exposition *out, const struct job *job,
                                  const struct ng_view_member *member)
{
    if (!member->registration.known)
        return;
    put_member_sample(out, job, member);
    ng_exposition_seconds(out, member->registration.spent_ns);
}

/* Members of one rank of a group stand together, the newest first: older ones are left out. */
static bool is_written(const struct job *job, uint32_t index)
{
    const struct ng_view_member *members = job->view->members, *member = &members[index];

    if (!job->names[member->process][0])
        return false;
    for (uint32_t i = index; i > 0; i--) {
        const struct ng_view_member *before = &members[i - 1];
        if (before->group != member->group || before->group_rank != member->group_rank)
            return true;
        if (before->process == member->process)
            return false;
    }
    return true;
}

static void put_members(struct ng_exposition *out, const struct job *job, put_member_fn *put)
{
    for (uint32_t i = 0; i < job->view->member_count; i++)
        if (is_written(job, i))
            put(out, job, &job->view->members[i]);
}

/* ---- Processes ---- */

static const struct ng_box_facts *facts_of(const struct job *job, uint32_t process)
{
    uint64_t uid = job->view->processes[process].uid;
    uint32_t low = NG_FIRST_INDEX(job->scrape->facts_count, i, job->scrape->facts[i].uid < uid);

    return low < job->scrape->facts_count && job->scrape->facts[low].uid == uid
               ? &job->scrape->facts[low]
               : NULL;
}

typedef void put_process_fn(struct ng_exposition *out, const struct job *job, uint32_t index);

static void put_process(struct ng_exposition *out, const struct job *job, uint32_t index)
{
    const struct ng_view_process *process = &job->view->processes[index];
    const struct ng_box_facts *facts = facts_of(job, index);

    put_process_sample(out, job, index);
    ng_exposition_label(out, "host", process->host);
    ng_exposition_label(out, "program", process->program);
    ng_exposition_label_int(out, "pid", process->pid);
    ng_exposition_label(out, "version", facts ? facts->version : "");
    ng_exposition_value(out, 1);
}

static void put_process_life(struct ng_exposition *out, const struct job *job, uint32_t index)
{
    put_process_sample(out, job, index);
    ng_exposition_label(out, "life", ng_dump_life_name(job->view->processes[index].life));
    ng_exposition_value(out, 1);
}

static void put_lost(struct ng_exposition *out, const struct job *job, uint32_t index)
{
    const struct ng_box_facts *facts = facts_of(job, index);

    if (!facts)
        return;
    const struct {
        const char *what;
        uint64_t count;
    } lost[] = {
        {"records", facts->records_lost},
        {"groups", facts->groups_lost},
        {"threads", facts->threads_lost},
        {"durations", facts->durations_lost},
    };
    for (size_t i = 0; i < NG_COUNT(lost); i++) {
        put_process_sample(out, job, index);
        ng_exposition_label(out, "what", lost[i].what);
        ng_exposition_value(out, lost[i].count);
    }
}

static void put_processes(struct ng_exposition *out, const struct job *job, put_process_fn *put)
{
    for (uint32_t i = 0; i < job->view->process_count; i++)
        if (job->names[i][0])
            put(out, job, i);
}

struct process_of_job {
    const struct job *job;
    uint32_t process;
};

static void put_duration_labels(struct ng_exposition *out, const void *context)
{
    const struct process_of_job *of = context;

    ng_exposition_label(out, "rank", of->job->names[of->process]);
    put_job_labels(out, of->job);
}

static void put_durations(struct ng_exposition *out, const struct job *job)
{
    NG_EACH (duration, job->view->durations, job->view->duration_count) {
        struct process_of_job of = {job, duration->process};
        if (job->names[duration->process][0])
            ng_exposition_duration(out, &duration->duration, put_duration_labels, &of);
    }
}

/* A process that ended inside a call keeps it in its black box: how long, is no longer the case. */
static void put_calls(struct ng_exposition *out, const struct job *job)
{
    const struct ng_view *view = job->view;
    NG_FREED const struct ng_view_call **oldest =
        calloc(view->process_count + 1, sizeof(const void *));

    for (uint32_t i = 0; oldest && i < view->call_count; i++) {
        const struct ng_view_call **of = &oldest[view->calls[i].process];
        if (!*of || view->calls[i].age_ns > (*of)->age_ns)
            *of = &view->calls[i];
    }
    for (uint32_t i = 0; oldest && i < view->process_count; i++) {
        if (!oldest[i] || !job->names[i][0] || has_ended(&view->processes[i]))
            continue;
        put_process_sample(out, job, i);
        ng_exposition_label(out, "op", ng_op_name(oldest[i]->op));
        if (oldest[i]->group_id)
            ng_exposition_label_id(out, "group", oldest[i]->group_id);
        ng_exposition_seconds(out, (uint64_t)ng_view_age(oldest[i]->age_ns));
    }
}

/* ---- The job ---- */

static void put_lives(struct ng_exposition *out, const struct job *job)
{
    for (int life = NG_LIFE_UNKNOWN; life <= NG_LIFE_LOST; life++) {
        uint64_t count = 0;
        for (uint32_t i = 0; i < job->view->process_count; i++)
            count += job->view->processes[i].life == (enum ng_life)life;
        put_job_sample(out, job);
        ng_exposition_label(out, "life", ng_dump_life_name((enum ng_life)life));
        ng_exposition_value(out, count);
    }
}

static void put_stragglers(struct ng_exposition *out, const struct job *job)
{
    const struct ng_view *view = job->view;
    struct ng_straggler straggler;

    for (uint32_t i = 0; i < view->group_count; i++) {
        struct ng_arena arena = {0};
        if (ng_straggler_find(view, i, &arena, &straggler)) {
            put_job_sample(out, job);
            ng_exposition_label_id(out, "group", view->groups[i].id);
            ng_exposition_label_int(out, "straggler", ng_view_rank(view, straggler.member));
            ng_exposition_seconds(out, (uint64_t)ng_view_age(straggler.wait_ns));
        }
        ng_arena_reset(&arena);
    }
}

static const char *level_name(int level)
{
    return level == NG_INCIDENT_TIMEOUT ? "timeout" : "suspect";
}

static void put_incidents(struct ng_exposition *out, const struct job *job)
{
    for (int level = NG_INCIDENT_SUSPECT; job->metrics->has_incidents && level < NG_INCIDENT_LIMIT;
         level++) {
        put_job_sample(out, job);
        ng_exposition_label(out, "level", level_name(level));
        ng_exposition_value(out, job->metrics->incidents[level]);
    }
}

static void put_last_verdict(struct ng_exposition *out, const struct job *job)
{
    const struct ng_incident *last = &job->metrics->last;
    char culprits[80];

    if (!last->level)
        return;
    ng_report_line_culprits(last->line, culprits, sizeof(culprits));
    put_job_sample(out, job);
    ng_exposition_label(out, "kind", ng_verdict_kind_name(last->kind));
    ng_exposition_label(out, "culprits", culprits);
    ng_exposition_label(out, "level", level_name(last->level));
    ng_exposition_value(out, 1);
}

static void put_verdict_age(struct ng_exposition *out, const struct job *job)
{
    if (!job->metrics->last.level || !job->metrics->has_incidents)
        return;
    put_job_sample(out, job);
    ng_exposition_seconds(out, (uint64_t)ng_view_age(job->metrics->last_age_ns));
}

static void put_live_verdict(struct ng_exposition *out, const struct job *job)
{
    const struct ng_verdict *verdict = &job->metrics->verdict;
    char line[NG_REPORT_LINE_BYTES], culprits[80];

    ng_report_line(verdict, line, sizeof(line));
    ng_report_line_culprits(line, culprits, sizeof(culprits));
    put_job_sample(out, job);
    ng_exposition_label(out, "kind", ng_verdict_kind_name(verdict->kind));
    ng_exposition_label(out, "culprits", culprits);
    ng_exposition_label(out, "confidence", ng_confidence_name(verdict->confidence));
    if (verdict->group_id)
        ng_exposition_label_id(out, "group", verdict->group_id);
    if (verdict->op)
        ng_exposition_label(out, "op", ng_op_name(verdict->op));
    ng_exposition_value(out, 1);
}

static void put_culprits(struct ng_exposition *out, const struct job *job)
{
    const struct ng_verdict *verdict = &job->metrics->verdict;

    for (uint32_t i = 0; i < verdict->culprit_count; i++) {
        const struct ng_culprit *culprit = &verdict->culprits[i];
        if (NG_ANY(one, verdict->culprits, i,
                   one->rank == culprit->rank && one->pid == culprit->pid &&
                       strcmp(one->host, culprit->host) == 0))
            continue; /* named already */
        ng_exposition_sample(out);
        if (culprit->rank >= 0)
            ng_exposition_label_int(out, "rank", culprit->rank);
        put_job_labels(out, job);
        ng_exposition_label(out, "kind", ng_verdict_kind_name(verdict->kind));
        ng_exposition_label(out, "host", culprit->host);
        ng_exposition_label_int(out, "pid", culprit->pid);
        ng_exposition_value(out, 1);
    }
}

static void put_waiting(struct ng_exposition *out, const struct job *job)
{
    put_job_sample(out, job);
    ng_exposition_value(out, job->metrics->verdict.waiting_count);
}

static void put_stuck(struct ng_exposition *out, const struct job *job)
{
    const struct ng_verdict *verdict = &job->metrics->verdict;
    bool is_stuck = verdict->kind != NG_KIND_STRAGGLER;

    put_job_sample(out, job);
    ng_exposition_seconds(out, is_stuck ? (uint64_t)ng_view_age(verdict->stalled_ns) : 0);
}

/* ---- All of it ---- */

/* One of the functions: of the job, of each process, or of each rank of a group. */
static const struct {
    enum ng_metric metric;
    void (*of_job)(struct ng_exposition *out, const struct job *job);
    put_process_fn *of_process;
    put_member_fn *of_member;
} families[] = {
    {NG_METRIC_process, .of_process = put_process},
    {NG_METRIC_process_life, .of_process = put_process_life},
    {NG_METRIC_lost_total, .of_process = put_lost},
    {NG_METRIC_group, .of_member = put_group},
    {NG_METRIC_last_collective, .of_member = put_last_collective},
    {NG_METRIC_last_send_recv, .of_member = put_last_send_recv},
    {NG_METRIC_pending_seconds, .of_member = put_pending_time},
    {NG_METRIC_registrations_total, .of_member = put_registration},
    {NG_METRIC_registered_segments, .of_member = put_held},
    {NG_METRIC_send_recv_bytes_total, .of_member = put_registered_bytes},
    {NG_METRIC_registration_seconds_total, .of_member = put_registration_time},
    {NG_METRIC_duration_seconds, .of_job = put_durations},
    {NG_METRIC_call_seconds, .of_job = put_calls},
    {NG_METRIC_processes, .of_job = put_lives},
    {NG_METRIC_straggler_wait_seconds, .of_job = put_stragglers},
    {NG_METRIC_incidents_total, .of_job = put_incidents},
    {NG_METRIC_verdict_info, .of_job = put_last_verdict},
    {NG_METRIC_verdict_age_seconds, .of_job = put_verdict_age},
    {NG_METRIC_live_verdict_info, .of_job = put_live_verdict},
    {NG_METRIC_culprit, .of_job = put_culprits},
    {NG_METRIC_waiting_ranks, .of_job = put_waiting},
    {NG_METRIC_stuck_seconds, .of_job = put_stuck},
};

static void put_exporter(struct ng_exposition *out, const struct ng_scrape *scrape)
{
    static const char *const results[NG_BOX_RESULTS] = {
        [NG_BOX_RESULT_READ] = "read",       [NG_BOX_RESULT_FOREIGN] = "foreign",
        [NG_BOX_RESULT_VERSION] = "version", [NG_BOX_RESULT_TRUNCATED] = "truncated",
        [NG_BOX_RESULT_STALE] = "stale",     [NG_BOX_RESULT_UNREADABLE] = "unreadable",
    };

    if (scrape->store_job) {
        ng_exposition_family(out, NG_METRIC_store_up);
        ng_exposition_sample(out);
        ng_exposition_label(out, "nccl_job", scrape->store_job);
        ng_exposition_value(out, scrape->store_up);
    }
    ng_exposition_family(out, NG_METRIC_exporter_info);
    ng_exposition_sample(out);
    ng_exposition_label(out, "version", NG_VERSION);
    ng_exposition_value(out, 1);
    ng_exposition_family(out, NG_METRIC_exporter_boxes);
    for (int i = 0; i < NG_BOX_RESULTS; i++) {
        ng_exposition_sample(out);
        ng_exposition_label(out, "result", results[i]);
        ng_exposition_value(out, scrape->boxes[i]);
    }
    ng_exposition_family(out, NG_METRIC_exporter_runs_left_out);
    ng_exposition_sample(out);
    ng_exposition_value(out, scrape->runs_left_out);
    ng_exposition_family(out, NG_METRIC_exporter_scrape_seconds);
    ng_exposition_sample(out);
    ng_exposition_seconds(out, (uint64_t)scrape->took_ns);
}

static int write_all(const struct job *jobs, uint32_t count, const struct ng_scrape *scrape, int fd)
{
    struct ng_exposition out;

    ng_exposition_init(&out, fd);
    NG_EACH (family, families, NG_COUNT(families)) {
        ng_exposition_family(&out, family->metric);
        NG_EACH (job, jobs, count) {
            if (family->of_job)
                family->of_job(&out, job);
            else if (family->of_process)
                put_processes(&out, job, family->of_process);
            else
                put_members(&out, job, family->of_member);
        }
    }
    put_exporter(&out, scrape);
    return ng_exposition_finish(&out);
}

int ng_job_metrics_write(const struct ng_scrape *scrape, int fd)
{
    uint32_t count = 0;
    int error = 0;

    for (const struct ng_job_metrics *one = scrape->jobs; one; one = one->next)
        count++;
    struct job *jobs = calloc(count + 1, sizeof(*jobs));
    if (!jobs)
        return -ENOMEM;
    struct job *job = jobs;
    for (const struct ng_job_metrics *one = scrape->jobs; one && !error; one = one->next) {
        *job = (struct job){.scrape = scrape, .metrics = one, .view = &one->view};
        error = name_processes(job++);
    }
    error = error ?: write_all(jobs, count, scrape, fd);
    for (uint32_t i = 0; i < count; i++)
        free(jobs[i].names);
    free(jobs);
    return error;
}
