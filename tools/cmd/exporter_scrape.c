/*
 * One scrape: the black boxes of this host, and what a store has of a job.
 *
 * Entered by the thread that serves HTTP. Only reads: takes no lock on a box, and leaves nothing in
 * a job's folder or on a store.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/folder.h"
#include "core/util/macros.h"
#include "store/board/local.h"
#include "tools/base/grow.h"
#include "tools/cmd/exporter.h"
#include "tools/jobs/host_folders.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/job_metrics.h"

#define TIME_NS  (5 * NG_S)
#define RUNS_MAX 64 /* in one folder */

struct scraping {
    struct ng_exporter *exporter;
    struct ng_scrape scrape;
    struct ng_job_metrics **last;
    uint32_t facts_room;
    char boot_id[40];
    int64_t until_mono_ns;
};

static struct ng_job_metrics *new_job(const char *name)
{
    struct ng_job_metrics *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    snprintf(job->job, sizeof(job->job), "%s", name);
    ng_view_init(&job->view);
    return job;
}

static void drop_job(struct ng_job_metrics *job)
{
    ng_view_fini(&job->view);
    free(job);
}

/* Its view is filled: judge it, and keep it. False: it was freed. */
static bool keep_job(struct scraping *scraping, struct ng_job_metrics *job, int64_t stuck_ns)
{
    if (!job->view.job[0])
        snprintf(job->view.job, sizeof(job->view.job), "%s", job->job);
    if (ng_live_verdict_judge(&job->view, 0, stuck_ns, &job->verdict) != 0) {
        drop_job(job);
        return false;
    }
    *scraping->last = job;
    scraping->last = &job->next;
    return true;
}

/* ---- Files of a folder ---- */

static void add_facts(struct scraping *scraping, const struct ng_box_header *header)
{
    struct ng_scrape *scrape = &scraping->scrape;

    if (!NG_GROW(scrape->facts, scrape->facts_count, scraping->facts_room))
        return;
    struct ng_box_facts *facts = &scrape->facts[scrape->facts_count++];
    *facts = (struct ng_box_facts){.uid = ng_box_uid(header),
                                   .records_lost = NG_LOAD(header->records_lost),
                                   .groups_lost = NG_LOAD(header->groups_lost),
                                   .threads_lost = NG_LOAD(header->threads_lost),
                                   .durations_lost = NG_LOAD(header->durations_lost)};
    snprintf(facts->version, sizeof(facts->version), "%.*s", (int)sizeof(header->guard_version),
             header->guard_version);
}

static void look_at_box(struct scraping *scraping, const char *path)
{
    struct ng_box box;
    enum ng_box_result result = NG_BOX_RESULT_READ;

    int error = ng_box_open(path, &box);
    if (error == -ENOENT)
        return; /* its job has ended meanwhile */
    if (error)
        result = error == -EBADMSG  ? NG_BOX_RESULT_FOREIGN
                 : error == -EPROTO ? NG_BOX_RESULT_VERSION
                 : error == -EIO    ? NG_BOX_RESULT_TRUNCATED
                                    : NG_BOX_RESULT_UNREADABLE;
    else if (strncmp(box.header->boot_id, scraping->boot_id, sizeof(box.header->boot_id)) != 0)
        result = NG_BOX_RESULT_STALE;
    scraping->scrape.boxes[result]++;
    if (result == NG_BOX_RESULT_READ)
        add_facts(scraping, box.header);
    if (!error)
        ng_box_close(&box, NULL);
}

/* An incident belongs to the run that has its group. */
static void look_at_incident(const char *path, struct ng_job_metrics *jobs, bool only)
{
    struct ng_incident incident;

    if (ng_local_read_incident(path, &incident) != 0 || incident.state != NG_INCIDENT_JUDGED)
        return;
    for (struct ng_job_metrics *job = jobs; job; job = job->next) {
        if (!only && ng_view_find_group(&job->view, incident.group_id) == UINT32_MAX)
            continue;
        job->incidents[incident.level]++;
        if (incident.epoch > job->last.epoch) {
            job->last = incident;
            job->last_age_ns = ng_clock_mono_ns() - incident.claimed_mono_ns;
        }
        return;
    }
}

static void each_file(const char *folder, const char *prefix, struct scraping *scraping,
                      struct ng_job_metrics *jobs)
{
    struct ng_folder entries;
    char path[PATH_MAX];
    const char *name;

    if (ng_folder_open(&entries, folder, true) != 0)
        return;
    while ((name = ng_folder_next(&entries)))
        if (strncmp(name, prefix, strlen(prefix)) == 0 &&
            snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path)) {
            if (jobs)
                look_at_incident(path, jobs, !jobs->next);
            else
                look_at_box(scraping, path);
        }
    ng_folder_close(&entries);
}

/* ---- Jobs ---- */

static bool is_there(const struct scraping *scraping, const char *name, const char *run)
{
    for (const struct ng_job_metrics *job = scraping->scrape.jobs; job; job = job->next)
        if (strcmp(job->job, name) == 0 && strcmp(job->run, run) == 0)
            return true;
    return false;
}

/* Not a job that was read from the store, nor another than the one that the user named. */
static bool is_wanted(const struct scraping *scraping, const char *job)
{
    const char *only = scraping->exporter->where.job;

    return !is_there(scraping, job, "") && (!only[0] || strcmp(only, job) == 0);
}

/* A box may claim any job and run: no user hides those of others so. */
static void name_run(const struct scraping *scraping, const char *folder, uint64_t id,
                     struct ng_job_metrics *job)
{
    struct stat status;
    int length = snprintf(job->run, sizeof(job->run), "%016" PRIx64, id);

    if (!scraping->exporter->where.folder[0] && stat(folder, &status) == 0 &&
        status.st_uid != geteuid())
        snprintf(job->run + length, sizeof(job->run) - (size_t)length, "-%u",
                 (unsigned)status.st_uid);
}

static void take_run(struct scraping *scraping, const char *folder, const struct ng_local_run *run)
{
    struct ng_job_metrics *job = new_job(run->job);
    struct ng_job of;

    if (!job)
        return;
    name_run(scraping, folder, run->id, job);
    job->has_incidents = true;
    if (is_there(scraping, job->job, job->run) ||
        ng_local_collect(folder, run->id, &job->view) <= 0) {
        drop_job(job);
        return;
    }
    snprintf(of.name, sizeof(of.name), "%s", run->job);
    snprintf(of.folder, sizeof(of.folder), "%s", folder);
    keep_job(scraping, job, ng_jobs_stuck_ns(&of));
}

static void take_folder(void *context, const char *folder)
{
    struct scraping *scraping = context;
    struct ng_local_run runs[RUNS_MAX];

    each_file(folder, NG_BOX_PREFIX, scraping, NULL);
    int count = ng_local_runs(folder, runs, RUNS_MAX);
    struct ng_job_metrics **first = scraping->last;
    for (int i = 0; i < count; i++) {
        if (!is_wanted(scraping, runs[i].job))
            continue;
        if (ng_clock_mono_ns() > scraping->until_mono_ns)
            scraping->scrape.runs_left_out++;
        else
            take_run(scraping, folder, &runs[i]);
    }
    if (*first)
        each_file(folder, NG_INCIDENT_PREFIX, scraping, *first);
}

/* The newest verdict of the guards; none where the store does not answer any more. */
static void take_store_verdict(const struct ng_job *of, int64_t deadline_mono_ns,
                               struct ng_job_metrics *job)
{
    struct ng_board_client_verdict verdict;
    char why[NG_BOARD_CLIENT_WHY_BYTES];
    uint64_t ids[NG_GROUP_SET_MAX];
    uint32_t count = 0;

    for (; count < job->view.group_count && count < NG_GROUP_SET_MAX; count++)
        ids[count] = job->view.groups[count].id;
    if (ng_board_client_verdict(&of->observed, ids, count, 0, deadline_mono_ns, &verdict, NULL, why,
                                sizeof(why)) != 0)
        return;
    job->last = verdict.incident;
    ng_arena_reset(&verdict.documents.arena);
}

/* One line each time that this changes. */
static void report_store(struct ng_exporter *exporter, bool lost)
{
    if (lost && !exporter->store_lost)
        fprintf(stderr, "ncclguard exporter: %s\n", exporter->store_job->why);
    else if (!lost && exporter->store_lost)
        fprintf(stderr, "ncclguard exporter: the store answers again\n");
    exporter->store_lost = lost;
}

static void take_store(struct scraping *scraping)
{
    struct ng_job *of = scraping->exporter->store_job;
    int64_t deadline_mono_ns = ng_clock_mono_ns() + NG_JOBS_WAIT_NS;
    struct ng_job_metrics *job = new_job(of->name);

    scraping->scrape.store_job = of->name;
    if (!job)
        return;
    int count =
        ng_board_client_view(&of->observed, deadline_mono_ns, &job->view, of->why, sizeof(of->why));
    scraping->scrape.store_up = count >= 0;
    report_store(scraping->exporter, count < 0);
    if (count <= 0)
        drop_job(job);
    else if (keep_job(scraping, job, ng_jobs_stuck_ns(of)))
        take_store_verdict(of, deadline_mono_ns, job);
}

static int compare_facts(const void *left, const void *right)
{
    const struct ng_box_facts *a = left, *b = right;

    return NG_ORDER(a->uid, b->uid);
}

int ng_exporter_scrape(struct ng_exporter *exporter, int fd)
{
    int64_t begin_ns = ng_clock_mono_ns();
    struct scraping scraping = {.exporter = exporter, .until_mono_ns = begin_ns + TIME_NS};
    struct ng_scrape *scrape = &scraping.scrape;
    const char *folder = exporter->where.folder;

    scraping.last = &scrape->jobs;
    ng_proc_boot_id(scraping.boot_id, sizeof(scraping.boot_id));
    if (exporter->store_job)
        take_store(&scraping);
    ng_host_folders_each(folder[0] ? folder : NULL, take_folder, &scraping);
    if (scrape->facts_count)
        qsort(scrape->facts, scrape->facts_count, sizeof(*scrape->facts), compare_facts);
    scrape->took_ns = ng_clock_mono_ns() - begin_ns;
    int error = ng_job_metrics_write(scrape, fd);
    for (struct ng_job_metrics *job = scrape->jobs, *next; job; job = next) {
        next = job->next;
        ng_verdict_fini(&job->verdict);
        drop_job(job);
    }
    free(scrape->facts);
    return error;
}
