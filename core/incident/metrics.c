/*
 * The metrics file.
 *
 * Entered by the status thread. Reads counters of other threads; must never write to them, nor
 * allocate. Counters may change meanwhile: each figure is correct only by itself.
 */
#include "core/incident/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/incident/straggler_monitor.h"
#include "core/nccl/op.h"
#include "core/recorder/durations.h"
#include "core/registration/registrations.h"
#include "core/report/exposition.h"
#include "core/report/report.h"
#include "core/runtime/runtime.h"
#include "core/util/json.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

/* Protects the last verdict. Nests inside nothing; held only to copy, by guard threads alone. */
static NG_FORGOTTEN pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static NG_FORGOTTEN struct last_verdict {
    enum ng_verdict_kind kind; /* healthy: no verdict yet */
    bool timeout;
    char culprits[80];
} last_verdict;

/* Begin a sample, with the labels common to all. */
static void put_process_labels(struct ng_exposition *out, const void *unused)
{
    char pid[32];

    /* If the rank is unknown, use the pid: several processes would share -1. */
    snprintf(pid, sizeof(pid), "pid-%d", ng_guard.box.header->pid);
    if (ng_guard.launch.rank >= 0)
        ng_exposition_label_int(out, "rank", ng_guard.launch.rank);
    else
        ng_exposition_label(out, "rank", pid);
    ng_exposition_label(out, "nccl_job", ng_guard.launch.job);
}

static void put_sample(struct ng_exposition *out)
{
    ng_exposition_sample(out);
    put_process_labels(out, NULL);
}

static void put_group_sample(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_sample(out);
    ng_exposition_label_id(out, "group", NG_LOAD(comm->group->id));
    ng_exposition_label_int(out, "group_rank", NG_LOAD(comm->group->group_rank));
}

/* ---- Groups ---- */

static bool has_ended(const struct ng_comm *comm)
{
    uint32_t state = atomic_load_explicit(&comm->group->state, memory_order_acquire);

    return state != NG_GROUP_CREATING && state != NG_GROUP_READY && state != NG_GROUP_FINALIZED;
}

/* An ended communicator with the same labels as another one in the table must not be written
 * twice. */
static bool is_reported(const struct ng_comm *comm)
{
    uint32_t state = atomic_load_explicit(&comm->group->state, memory_order_acquire);

    if (state == NG_GROUP_FREE || state == NG_GROUP_FAILED || !NG_LOAD(comm->group->id))
        return false;
    NG_EACH_COMM (other) {
        /* If several are being created at once, none knows its rank yet. */
        bool goes_first = has_ended(comm) ? !has_ended(other) || other->slot > comm->slot
                                          : !has_ended(other) && other->slot < comm->slot;
        if (other != comm && goes_first && NG_LOAD(other->group->id) == NG_LOAD(comm->group->id) &&
            NG_LOAD(other->group->group_rank) == NG_LOAD(comm->group->group_rank))
            return false;
    }
    return true;
}

typedef void put_group_fn(struct ng_exposition *out, const struct ng_comm *comm);

static void put_group(struct ng_exposition *out, const struct ng_comm *comm)
{
    char text[NG_BOX_NAME_BYTES];

    ng_box_read_name(comm->group, text);
    put_group_sample(out, comm);
    ng_exposition_label_int(out, "nranks", NG_LOAD(comm->group->nranks));
    ng_exposition_label_int(out, "device", NG_LOAD(comm->group->device));
    ng_exposition_label(out, "name", text);
    ng_exposition_value(out, 1);
}

/* A sample of a group with one more label. */
static void put_value(struct ng_exposition *out, const struct ng_comm *comm, const char *label,
                      const char *text, uint64_t value)
{
    put_group_sample(out, comm);
    ng_exposition_label(out, label, text);
    ng_exposition_value(out, value);
}

static void put_counts(struct ng_exposition *out, const struct ng_comm *comm, bool bytes)
{
    for (unsigned op = 0; op < NG_COMM_COUNTED_OPS; op++) {
        const struct ng_comm_count *count = &comm->totals.ops[op];
        if (NG_LOAD(count->calls))
            put_value(out, comm, "op", ng_op_name(op),
                      bytes ? NG_LOAD(count->bytes) : NG_LOAD(count->calls));
    }
}

static void put_operations(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_counts(out, comm, false);
}

static void put_bytes(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_counts(out, comm, true);
}

static void put_uncounted(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_group_sample(out, comm);
    ng_exposition_value(out, NG_LOAD(comm->totals.unseen));
}

static void put_last_collective(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_value(out, comm, "state", "entered", NG_LOAD(comm->group->entered));
    put_value(out, comm, "state", "started", NG_LOAD(comm->group->started));
    put_value(out, comm, "state", "completed", NG_LOAD(comm->group->completed));
}

static void put_last_send_recv(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_value(out, comm, "state", "entered", NG_LOAD(comm->group->p2p_entered));
    put_value(out, comm, "state", "completed", NG_LOAD(comm->group->p2p_completed));
}

static void put_pending_time(struct ng_exposition *out, const struct ng_comm *comm)
{
    int64_t age = NG_LOAD(comm->group->pending_record) ? NG_LOAD(comm->group->pending_age_ns) : 0;

    put_group_sample(out, comm);
    ng_exposition_seconds(out, (uint64_t)(age > 0 ? age : 0));
}

static void put_pending_works(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_group_sample(out, comm);
    ng_exposition_value(out, NG_LOAD(comm->group->pending_works));
}

static void put_stalls(struct ng_exposition *out, const struct ng_comm *comm)
{
    put_value(out, comm, "level", "suspect", NG_LOAD(comm->totals.stalls.suspects));
    put_value(out, comm, "level", "timeout", NG_LOAD(comm->totals.stalls.timeouts));
}

static void put_straggler(struct ng_exposition *out, const struct ng_comm *comm)
{
    struct ng_slow_rank late;

    if (!ng_straggler_monitor_find(NG_LOAD(comm->group->id), &late))
        return;
    put_group_sample(out, comm);
    ng_exposition_label_int(out, "straggler", late.rank);
    ng_exposition_seconds(out, (uint64_t)(late.wait_ns > 0 ? late.wait_ns : 0));
}

/* Writes nothing for a group that never sent or received, or if nothing is registered for the
 * program. */
static void put_registration(struct ng_exposition *out, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_value(out, comm, "what", "made", count.made);
    put_value(out, comm, "what", "ended", count.ended);
    put_value(out, comm, "what", "ended_with_group", count.ended_with_group);
    put_value(out, comm, "what", "failed", count.failed);
    put_value(out, comm, "what", "deferred", count.deferred);
}

static void put_held(struct ng_exposition *out, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_group_sample(out, comm);
    ng_exposition_value(out, count.held);
}

static void put_registered_bytes(struct ng_exposition *out, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_value(out, comm, "registered", "yes", count.registered_bytes);
    put_value(out, comm, "registered", "no", count.bytes - count.registered_bytes);
}

static void put_registration_time(struct ng_exposition *out, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_group_sample(out, comm);
    ng_exposition_seconds(out, count.spent_ns);
}

/* The samples of each group. */
static const struct {
    enum ng_metric metric;
    put_group_fn *put;
} group_families[] = {
    {NG_METRIC_group, put_group},
    {NG_METRIC_operations_total, put_operations},
    {NG_METRIC_moved_bytes_total, put_bytes},
    {NG_METRIC_uncounted_total, put_uncounted},
    {NG_METRIC_last_collective, put_last_collective},
    {NG_METRIC_last_send_recv, put_last_send_recv},
    {NG_METRIC_pending_seconds, put_pending_time},
    {NG_METRIC_pending_works, put_pending_works},
    {NG_METRIC_stalls_total, put_stalls},
    {NG_METRIC_straggler_wait_seconds, put_straggler},
    {NG_METRIC_registrations_total, put_registration},
    {NG_METRIC_registered_segments, put_held},
    {NG_METRIC_send_recv_bytes_total, put_registered_bytes},
    {NG_METRIC_registration_seconds_total, put_registration_time},
};

static void put_groups(struct ng_exposition *out)
{
    NG_EACH (family, group_families, NG_COUNT(group_families)) {
        ng_exposition_family(out, family->metric);
        NG_EACH_COMM (comm)
            if (is_reported(comm))
                family->put(out, comm);
    }
}

static void put_durations(struct ng_exposition *out)
{
    struct ng_duration duration;

    ng_exposition_family(out, NG_METRIC_duration_seconds);
    for (uint32_t i = 0; i < ng_guard.box.duration_capacity; i++)
        if (ng_durations_read(&ng_guard.box, i, &duration))
            ng_exposition_duration(out, &duration, put_process_labels, NULL);
}

/* ---- The process ---- */

static void put_process(struct ng_exposition *out)
{
    const struct ng_box_header *header = ng_guard.box.header;

    ng_exposition_family(out, NG_METRIC_process);
    put_sample(out);
    ng_exposition_label(out, "host", header->host);
    ng_exposition_label(out, "program", header->program);
    ng_exposition_label_int(out, "pid", header->pid);
    ng_exposition_label(out, "version", NG_VERSION);
    ng_exposition_value(out, 1);
}

static void put_verdict(struct ng_exposition *out)
{
    pthread_mutex_lock(&lock);
    struct last_verdict last = last_verdict;
    pthread_mutex_unlock(&lock);

    ng_exposition_family(out, NG_METRIC_verdict_info);
    if (last.kind == NG_KIND_HEALTHY)
        return;
    put_sample(out);
    ng_exposition_label(out, "kind", ng_verdict_kind_name(last.kind));
    ng_exposition_label(out, "culprits", last.culprits);
    ng_exposition_label(out, "level", last.timeout ? "timeout" : "suspect");
    ng_exposition_value(out, 1);
}

static void put_lost(struct ng_exposition *out)
{
    const struct ng_box_header *header = ng_guard.box.header;
    const struct {
        const char *what;
        uint64_t count;
    } lost[] = {
        {"records", NG_LOAD(header->records_lost)},     {"groups", NG_LOAD(header->groups_lost)},
        {"threads", NG_LOAD(header->threads_lost)},     {"completions", ng_completion_dropped()},
        {"durations", NG_LOAD(header->durations_lost)},
    };

    ng_exposition_family(out, NG_METRIC_lost_total);
    for (size_t i = 0; i < NG_COUNT(lost); i++) {
        put_sample(out);
        ng_exposition_label(out, "what", lost[i].what);
        ng_exposition_value(out, lost[i].count);
    }
}

/* The line may come from another host. */
void ng_metrics_keep_verdict(enum ng_verdict_kind kind, const char *line, bool timeout)
{
    struct last_verdict last = {.kind = kind, .timeout = timeout};

    ng_report_line_culprits(line, last.culprits, sizeof(last.culprits));
    NG_HOLD(&lock);
    last_verdict = last;
}

int ng_metrics_write(int fd)
{
    struct ng_exposition out;

    ng_exposition_init(&out, fd);
    put_process(&out);
    put_groups(&out);
    put_durations(&out);
    put_verdict(&out);
    put_lost(&out);
    return ng_exposition_finish(&out);
}

static int write_for_all(const void *unused, int fd)
{
    /* The collector usually runs as another user. */
    if (fchmod(fd, 0644) != 0)
        return -errno;
    return ng_metrics_write(fd);
}

int ng_metrics_save(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash || strlen(path) >= sizeof(folder))
        return slash ? -ENAMETOOLONG : -EINVAL;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash > path ? slash - path : 1), path);
    return ng_output_save(folder, slash + 1, write_for_all, NULL);
}
