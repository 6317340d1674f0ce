/*
 * The board as tools use it from outside.
 *
 * Entered by tools. Must never change anything except by a command or the report of an end, nor
 * show a password.
 */
#include "store/board/board_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/board/board_multihost.h"
#include "store/board/local.h"
#include "store/kv/kv_open.h"
#include "store/kv/url.h"
#include "store/publish/peer_progress.h"
#include "store/wire/command_record.h"
#include "store/wire/documents.h"
#include "store/wire/incarnation.h"
#include "store/wire/incident_codec.h"
#include "store/wire/progress.h"

#define TTL_NS  (5 * NG_S)
#define KEEP_MS (3600 * 1000)
#define NEWEST  64 /* incidents that are searched for a verdict */

static int explain(int error, char *why, size_t why_bytes, const char *text)
{
    snprintf(why, why_bytes, "%s", text);
    return error;
}

/* 0: `*ret_kv` is open; 1: a local store; or -errno. */
static int open_store(const struct ng_observed_job *job, char *why, size_t why_bytes,
                      struct ng_kv **ret_kv)
{
    struct ng_kv_options options = {.job = job->job, .run = NG_BOARD_RUN};
    struct ng_url url;

    int error = ng_url_parse(job->url, &url, why, why_bytes);
    if (error)
        return error;
    if (url.kind == NG_URL_NONE)
        return explain(-ENOENT, why, why_bytes,
                       "NCCLGUARD_STORE=none: there is no board to look at; name the job's store");
    if (url.kind == NG_URL_LOCAL)
        return job->folder ? 1
                           : explain(-ENOENT, why, why_bytes,
                                     "no folder of black boxes is known for this job");
    options.tls = job->tls;
    if (job->key_file && *job->key_file)
        options.key_file = job->key_file;
    return ng_kv_open(job->url, &options, why, why_bytes, ret_kv);
}

static int close_store(struct ng_kv *kv, int error, char *why, size_t why_bytes)
{
    if (error < 0)
        snprintf(why, why_bytes, "the store %s cannot be used: %s", kv->name,
                 *ng_kv_error(kv) ? ng_kv_error(kv) : strerror(-error));
    ng_kv_destroy(kv);
    return error;
}

/* The incarnation to show: that of the live process that joined last, else of the last of all. */
static uint64_t newest_root(const struct ng_peer_progress *blobs, uint32_t count)
{
    struct ng_progress_head head;
    uint64_t any = 0, living = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0 || !blobs[i].root)
            continue;
        any = blobs[i].root;
        if (ng_peer_progress_is_living(&blobs[i]))
            living = blobs[i].root;
    }
    return living ? living : any;
}

/* Fetch the blobs of a run only; `run` 0: of all. */
static int fetch_run(struct ng_kv *kv, uint64_t run, int64_t deadline_mono_ns,
                     struct ng_arena *arena, struct ng_peer_progress **ret_blobs,
                     uint32_t *ret_count)
{
    uint32_t count;

    int error = ng_peer_progress_fetch(kv, deadline_mono_ns, arena, ret_blobs, &count);
    const uint64_t *runs = error ? NULL : ng_peer_progress_runs(*ret_blobs, count, arena);
    if (!runs)
        return error ?: -ENOMEM;
    NG_KEEP(blob, *ret_blobs, count, !run || runs[blob - *ret_blobs] == run);
    *ret_count = count;
    return 0;
}

/* Count a process in its run. */
static uint32_t add_to_runs(const struct ng_observed_job *job, const struct ng_peer_progress *blob,
                            uint64_t id, struct ng_local_run *runs, uint32_t count, uint32_t room)
{
    struct ng_progress_head head;
    uint32_t at = 0;

    while (at < count && runs[at].id != id)
        at++;
    if (at == room || ng_progress_peek(blob->data, blob->bytes, &head) != 0)
        return count;
    if (at == count)
        runs[count++] = (struct ng_local_run){.id = id};
    if (!runs[at].living) {
        runs[at].pid = head.process.pid;
        snprintf(runs[at].name, sizeof(runs[at].name), "%s", head.process.host);
        snprintf(runs[at].job, sizeof(runs[at].job), "%s", job->job);
    }
    runs[at].processes++;
    runs[at].living += ng_peer_progress_is_living(blob);
    return count;
}

int ng_board_client_runs(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_local_run *ret_runs, uint32_t room, char *why, size_t why_bytes)
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    uint32_t count = 0, found = 0;
    struct ng_kv *kv;

    int error = open_store(job, why, why_bytes, &kv);
    if (error)
        return error == 1 ? 0 : error;
    error = ng_peer_progress_fetch(kv, deadline_mono_ns, &arena, &blobs, &count);
    const uint64_t *runs = error ? NULL : ng_peer_progress_runs(blobs, count, &arena);
    for (uint32_t i = 0; runs && i < count; i++)
        found = add_to_runs(job, &blobs[i], runs[i], ret_runs, found, room);
    error = close_store(kv, error || runs ? error : -ENOMEM, why, why_bytes);
    ng_arena_reset(&arena);
    return error ?: (int)found;
}

int ng_board_client_jobs(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_kv_jobs *ret_jobs, char *why, size_t why_bytes)
{
    struct ng_observed_job unsigned_job = *job;
    struct ng_kv *kv;

    ret_jobs->count = 0;
    unsigned_job.key_file = NULL;
    int error = open_store(&unsigned_job, why, why_bytes, &kv);
    if (error)
        return error == 1 ? 0 : error;
#if NG_HAVE_HIREDIS
    error = ng_kv_redis_jobs(kv, deadline_mono_ns, ret_jobs);
#endif
    return close_store(kv, error, why, why_bytes);
}

int ng_board_client_view(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_view *view, char *why, size_t why_bytes)
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    struct ng_kv *kv;
    uint32_t count;

    int error = open_store(job, why, why_bytes, &kv);
    if (error == 1) {
        int boxes = ng_local_collect(job->folder, job->run, view);
        if (boxes < 0)
            snprintf(why, why_bytes, "%s: %s", job->folder, strerror(-boxes));
        return boxes;
    }
    if (error)
        return error;
    error = fetch_run(kv, job->run, deadline_mono_ns, &arena, &blobs, &count)
                ?: ng_peer_progress_add(blobs, count, newest_root(blobs, count), TTL_NS, view);
    if (!error) {
        snprintf(view->job, sizeof(view->job), "%s", job->job);
        ng_view_seal(view);
    }
    ng_arena_reset(&arena);
    error = close_store(kv, error, why, why_bytes);
    return error ?: (int)view->process_count;
}

/* How many processes of a run are alive, and those of others. It is the one of incarnation `root`,
 * or `run`; both 0: all. */
static int count_living(struct ng_kv *kv, uint64_t root, uint64_t run, int64_t deadline_mono_ns,
                        uint32_t *ret_living, uint32_t *ret_others)
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    uint32_t count = 0, living[2] = {0};

    int error = ng_peer_progress_fetch(kv, deadline_mono_ns, &arena, &blobs, &count);
    const uint64_t *runs = error ? NULL : ng_peer_progress_runs(blobs, count, &arena);
    for (uint32_t i = 0; root && runs && i < count; i++)
        if (blobs[i].root == root)
            run = runs[i];
    for (uint32_t i = 0; runs && i < count; i++)
        living[run && runs[i] != run] += ng_peer_progress_is_living(&blobs[i]);
    ng_arena_reset(&arena);
    if (error || !runs)
        return error ?: -ENOMEM;
    *ret_living = living[0];
    *ret_others = living[1];
    return 0;
}

static int leave_record(struct ng_kv *kv, struct ng_incident *record, int64_t deadline_mono_ns)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    char key[48], text[40];
    struct ng_kv_bytes value;

    /* Without a gap: every process looks for the number after the newest. */
    record->epoch = 0;
    for (int tries = 0; tries < 100; tries++) {
        text[0] = '\0';
        int error = ng_kv_get(kv, "i/last", deadline_mono_ns, &value);
        if (error && error != -ENOENT)
            return error;
        if (!error)
            ng_kv_text(&value, text, sizeof(text));
        uint64_t last = strtoull(text, NULL, 10);
        if (last >= NG_EPOCH_MAX)
            return ng_kv_fail(kv, -EPROTO, "it has %.32s for a count of incidents", text);
        record->epoch = (last > record->epoch ? last : record->epoch) + 1;
        snprintf(key, sizeof(key), "i/%" PRIu64, record->epoch);
        error = ng_kv_put_if_absent(kv, key, bytes, ng_incident_encode(record, bytes), KEEP_MS,
                                    deadline_mono_ns);
        if (error == -EEXIST)
            continue;
        if (error)
            return error;
        int length = snprintf(text, sizeof(text), "%" PRIu64, record->epoch);
        error = ng_kv_queue_set(kv, "i/last", text, (size_t)length, KEEP_MS);
        length = snprintf(text, sizeof(text), "incident %" PRIu64, record->epoch);
        error = error ?: ng_kv_queue_publish(kv, "m", text, (size_t)length);
        return error ?: ng_kv_flush(kv, deadline_mono_ns, NULL);
    }
    return -EBUSY;
}

/* How a process knows its run: the smallest label of a command that it takes for its own. */
static uint64_t address_of(const struct ng_peer_progress *blob, uint64_t *ret_launch_run)
{
    struct ng_progress_head head;

    *ret_launch_run = ng_progress_peek(blob->data, blob->bytes, &head) == 0 ? head.launch_run : 0;
    return blob->root ? blob->root : *ret_launch_run ? *ret_launch_run : NG_PEER_RUN_OPEN;
}

static bool is_among(const uint64_t *labels, uint32_t count, uint64_t label)
{
    return NG_ANY(one, labels, count, *one == label);
}

/* Leave a command for a run while others are alive: its processes may know it by different words,
 * so each gets a label that it takes for its own. */
static int leave_for_run(struct ng_kv *kv, uint64_t run, struct ng_incident *record,
                         int64_t deadline_mono_ns)
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    uint32_t count = 0, used = 0;
    uint64_t launch_run;

    int error = fetch_run(kv, run, deadline_mono_ns, &arena, &blobs, &count);
    uint64_t *labels = error ? NULL : ng_arena_alloc(&arena, (count + 1) * sizeof(*labels));
    if (labels)
        labels[used++] = run;
    for (uint32_t i = 0; labels && i < count; i++) {
        uint64_t address = address_of(&blobs[i], &launch_run);
        if (ng_peer_progress_is_living(&blobs[i]) && !is_among(labels, used, address) &&
            !(launch_run && is_among(labels, used, launch_run)))
            labels[used++] = address;
    }
    for (uint32_t i = 0; i < used && !error; i++) {
        record->label = labels[i];
        error = leave_record(kv, record, deadline_mono_ns);
    }
    ng_arena_reset(&arena);
    return error || labels ? error : -ENOMEM;
}

int ng_board_client_order(const struct ng_observed_job *job, const struct ng_command *command,
                          int64_t deadline_mono_ns, char *why, size_t why_bytes)
{
    struct ng_incident record;
    uint32_t living = 0, others = 0;
    struct ng_kv *kv;

    ng_command_record(command, &record);
    int error = open_store(job, why, why_bytes, &kv);
    if (error == 1) {
        error = ng_local_leave(job->folder, job->run, &record, &living);
        if (error)
            snprintf(why, why_bytes, "%s: %s", job->folder, strerror(-error));
        return error ?: (int)living;
    }
    if (error)
        return error;
    record.source = NG_SOURCE_JOB;
    record.claimant_pid = (int32_t)getpid();
    error = count_living(kv, 0, job->run, deadline_mono_ns, &living, &others);
    if (!error && living)
        error = others ? leave_for_run(kv, job->run, &record, deadline_mono_ns)
                       : leave_record(kv, &record, deadline_mono_ns);
    error = close_store(kv, error, why, why_bytes);
    return error ?: (int)living;
}

/* ---- Verdicts ---- */

/* The label of the run to which the first known one of these groups belongs. 0, -ENOENT or
 * -errno. */
static int find_label(struct ng_kv *kv, const uint64_t *group_ids, uint32_t count,
                      int64_t deadline_mono_ns, uint64_t *ret_label)
{
    uint64_t label;
    int error = -ENOENT;

    for (uint32_t i = 0; error == -ENOENT && i < count; i++)
        error = ng_incarnation_of_group(kv, group_ids[i], deadline_mono_ns, &label);
    return error ?: ng_incarnation_root(kv, label, deadline_mono_ns, ret_label);
}

static int read_verdict(struct ng_kv *kv, uint64_t epoch, uint64_t label, int64_t deadline_mono_ns,
                        struct ng_incident *ret_incident)
{
    struct ng_incident incident;
    struct ng_kv_bytes value;
    uint64_t root;
    char key[48];

    snprintf(key, sizeof(key), "i/%" PRIu64, epoch);
    int error = ng_kv_get(kv, key, deadline_mono_ns, &value);
    if (error)
        return error;
    if (ng_incident_decode(value.data, value.bytes, &incident) != 0 || incident.epoch != epoch ||
        ng_record_is_command(&incident) || incident.state != NG_INCIDENT_JUDGED || !incident.label)
        return -ENOENT;
    error = ng_incarnation_root(kv, incident.label, deadline_mono_ns, &root);
    if (error || root != label)
        return error ?: -ENOENT;
    *ret_incident = incident;
    return 0;
}

static int read_last(struct ng_kv *kv, int64_t deadline_mono_ns, uint64_t *ret_last)
{
    struct ng_kv_bytes value;
    char text[24];

    int error = ng_kv_get(kv, "i/last", deadline_mono_ns, &value);
    if (error)
        return error;
    ng_kv_text(&value, text, sizeof(text));
    uint64_t last = strtoull(text, NULL, 10);
    if (last > NG_EPOCH_MAX)
        return -ENOENT;
    *ret_last = last;
    return 0;
}

/* The newest verdict on a deadline, else the newest on a suspicion. */
static int find_verdict(struct ng_kv *kv, uint64_t label, uint64_t after, int64_t deadline_mono_ns,
                        struct ng_board_client_verdict *ret_verdict)
{
    struct ng_board_client_verdict verdict = {0};
    struct ng_incident incident;
    uint64_t last;

    int error = label ? read_last(kv, deadline_mono_ns, &last) : -ENOENT;
    if (error)
        return error;
    uint64_t first = last > NEWEST ? last - NEWEST : 0;
    for (uint64_t epoch = last;
         epoch > first && epoch > after && verdict.incident.level != NG_INCIDENT_TIMEOUT; epoch--) {
        error = read_verdict(kv, epoch, label, deadline_mono_ns, &incident);
        if (error && error != -ENOENT)
            return error;
        if (!error && incident.level > verdict.incident.level)
            verdict.incident = incident;
    }
    if (!verdict.incident.level)
        return -ENOENT;
    error = ng_documents_read(kv, verdict.incident.epoch, deadline_mono_ns, &verdict.documents);
    if (error) {
        ng_arena_reset(&verdict.documents.arena);
        verdict.documents = (struct ng_documents){0};
    }
    if (error && error != -ENOENT)
        return error;
    *ret_verdict = verdict;
    return 0;
}

int ng_board_client_verdict(const struct ng_observed_job *job, const uint64_t *group_ids,
                            uint32_t group_count, uint64_t epoch, int64_t deadline_mono_ns,
                            struct ng_board_client_verdict *ret_verdict, uint32_t *ret_living,
                            char *why, size_t why_bytes)
{
    uint64_t label = 0;
    uint32_t others;
    struct ng_kv *kv;

    int error = open_store(job, why, why_bytes, &kv);
    if (error)
        return error == 1 ? -ENOENT : error;
    error = find_label(kv, group_ids, group_count, deadline_mono_ns, &label);
    if (ret_living && (!error || error == -ENOENT))
        error = count_living(kv, label, 0, deadline_mono_ns, ret_living, &others);
    /* Only now: the verdict precedes the end. */
    if (!error || error == -ENOENT)
        error = find_verdict(kv, label, epoch, deadline_mono_ns, ret_verdict);
    if (error == -ENOENT) {
        ng_kv_destroy(kv);
        return error;
    }
    return close_store(kv, error, why, why_bytes);
}

/* ---- Ends ---- */

/* The incarnation of the process, as it would have found it itself: by the groups that connect it
 * with others. */
static int find_root(struct ng_kv *kv, const struct ng_box *box, int64_t deadline_mono_ns,
                     uint64_t *ret_root)
{
    uint32_t used = NG_LOAD(box->header->group_used);
    int error = 0;

    *ret_root = 0;
    for (uint32_t i = 0; i < used && i < box->group_capacity && !error; i++) {
        const struct ng_box_group *group = &box->groups[i];
        uint64_t id = NG_LOAD(group->id);
        if (atomic_load(&group->state) != NG_GROUP_FREE && id && !NG_LOAD(group->parent_id) &&
            NG_LOAD(group->nranks) > 1)
            error = ng_incarnation_join(kv, id, *ret_root ? *ret_root : id, KEEP_MS,
                                        deadline_mono_ns, ret_root);
    }
    return error;
}

/* One for ends that are told together: which was first may be a matter of nanoseconds. */
struct moment {
    int64_t mono_ns, unix_ns;
};

/* 0: it is told, or of no interest. */
static int report_end(struct ng_kv *kv, const struct ng_box *box, const struct moment *now,
                      int64_t deadline_mono_ns)
{
    struct ng_progress_limits limits = {.records = NG_PROGRESS_RECORDS_PEACE,
                                        .written_unix_ns = now->unix_ns,
                                        .reason = NG_PROGRESS_BY_NEIGHBOUR,
                                        .launch_run = box->header->launch_run};
    struct ng_view view;
    const void *data;
    size_t bytes;

    if (ng_box_read(box, NG_BOX_ALL) != 0)
        return 0; /* damaged: it must not keep back the ends behind it */
    int error = find_root(kv, box, deadline_mono_ns, &limits.label);
    if (error)
        return error;
    ng_view_init(&view);
    error = ng_view_add_box(&view, box, NG_LIFE_DEAD, now->mono_ns, box->name);
    if (!error && limits.label && ng_life_has_ended_by_itself(view.processes[0].life)) {
        error = ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes)
                    ?: ng_publisher_report_end(kv, limits.label, NG_LOAD(box->header->board_slot),
                                               data, bytes, deadline_mono_ns);
    }
    ng_view_fini(&view);
    return error;
}

int ng_board_client_report_ends(const struct ng_observed_job *job, const char *const *paths,
                                bool *told, size_t count, int64_t deadline_mono_ns, char *why,
                                size_t why_bytes)
{
    const struct moment now = {ng_clock_mono_ns(), ng_clock_unix_ns()};
    struct ng_kv *kv;
    int failed = 0;

    int error = open_store(job, why, why_bytes, &kv);
    if (error)
        return error == 1 ? 0 : error;
    /* A later end may be the consequence of an earlier one, and is not known before that. */
    for (size_t i = 0; i < count && !failed; i++) {
        struct ng_box box;
        if (told[i])
            continue;
        error = ng_box_open(paths[i], &box);
        told[i] = ng_box_is_unreadable(error);
        if (error) {
            failed = told[i] ? 0 : error;
            continue;
        }
        if (strncmp(box.header->job, job->job, sizeof(box.header->job)) == 0) {
            error = report_end(kv, &box, &now, deadline_mono_ns);
            told[i] = !error;
            failed = error ?: failed;
        }
        ng_box_close(&box, NULL);
    }
    return close_store(kv, failed, why, why_bytes);
}
