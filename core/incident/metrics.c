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
#include "core/report/report.h"
#include "core/runtime/runtime.h"
#include "core/util/json.h"
#include "core/watchdog/watchdog.h"

#define PREFIX "ncclguard_"

/* Protects the last verdict. Nests inside nothing; held only to copy, by guard threads alone. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct last_verdict {
    enum ng_verdict_kind kind; /* healthy: no verdict yet */
    bool timeout;
    char culprits[80];
} last_verdict;

/* ---- Pieces of the format ---- */

static void put_family(struct ng_output *output, const char *name, const char *type,
                       const char *help)
{
    ng_output_format(output, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name,
                     type);
}

/* Write name="text", escaped; invalid UTF-8 becomes U+FFFD. */
static void put_label(struct ng_output *output, const char *name, const char *text)
{
    ng_output_format(output, ",%s=\"", name);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "\\\"\n");
        char piece[256];
        if (length >= sizeof(piece))
            length = sizeof(piece) - 1;
        if (!length) {
            ng_output_bytes(output, *at == '\n' ? "\\n" : *at == '"' ? "\\\"" : "\\\\", 2);
            at++;
            continue;
        }
        memcpy(piece, at, length);
        piece[length] = '\0';
        ng_output_safe(output, piece);
        at += length;
    }
    ng_output_bytes(output, "\"", 1);
}

/* Write the name of a sample and the labels common to all; put_value closes them. */
static void put_sample(struct ng_output *output, const char *name)
{
    const struct ng_box_header *header = ng_guard.box.header;

    ng_output_format(output, PREFIX "%s{rank=\"", name);
    /* If the rank is unknown, use the pid: several processes would share -1. */
    if (ng_guard.launch.rank >= 0)
        ng_output_format(output, "%d\"", ng_guard.launch.rank);
    else
        ng_output_format(output, "pid-%d\"", header->pid);
    put_label(output, "nccl_job", ng_guard.launch.job);
}

static void put_group_sample(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    put_sample(output, name);
    ng_output_format(output, ",group=\"%016" PRIx64 "\",group_rank=\"%d\"",
                     NG_LOAD(comm->group->id), NG_LOAD(comm->group->group_rank));
}

static void put_value(struct ng_output *output, uint64_t value)
{
    ng_output_format(output, "} %" PRIu64 "\n", value);
}

static void put_seconds(struct ng_output *output, uint64_t ns)
{
    ng_output_format(output, "} %" PRIu64 ".%09" PRIu64 "\n", ns / NG_S, ns % NG_S);
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
    uint32_t count = ng_comm_count();

    if (state == NG_GROUP_FREE || state == NG_GROUP_FAILED || !NG_LOAD(comm->group->id))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_comm *other = ng_comm_at(i);
        /* If several are being created at once, none knows its rank yet. */
        bool goes_first = has_ended(comm) ? !has_ended(other) || other->slot > comm->slot
                                          : !has_ended(other) && other->slot < comm->slot;
        if (other != comm && goes_first && NG_LOAD(other->group->id) == NG_LOAD(comm->group->id) &&
            NG_LOAD(other->group->group_rank) == NG_LOAD(comm->group->group_rank))
            return false;
    }
    return true;
}

typedef void put_group_fn(struct ng_output *output, const char *name, const struct ng_comm *comm);

static void put_group(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    char text[NG_BOX_NAME_BYTES];

    ng_box_read_name(comm->group, text);
    put_group_sample(output, name, comm);
    ng_output_format(output, ",nranks=\"%d\",device=\"%d\"", NG_LOAD(comm->group->nranks),
                     NG_LOAD(comm->group->device));
    put_label(output, "name", text);
    put_value(output, 1);
}

static void put_counts(struct ng_output *output, const char *name, const struct ng_comm *comm,
                       bool bytes)
{
    for (unsigned op = 0; op < NG_COMM_COUNTED_OPS; op++) {
        if (!NG_LOAD(comm->totals.ops[op].calls))
            continue;
        put_group_sample(output, name, comm);
        ng_output_format(output, ",op=\"%s\"", ng_op_name(op));
        put_value(output, bytes ? NG_LOAD(comm->totals.ops[op].bytes)
                                : NG_LOAD(comm->totals.ops[op].calls));
    }
}

static void put_operations(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    put_counts(output, name, comm, false);
}

static void put_bytes(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    put_counts(output, name, comm, true);
}

static void put_uncounted(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    put_group_sample(output, name, comm);
    put_value(output, NG_LOAD(comm->totals.unseen));
}

static void put_state(struct ng_output *output, const char *name, const struct ng_comm *comm,
                      const char *state, uint64_t value)
{
    put_group_sample(output, name, comm);
    ng_output_format(output, ",state=\"%s\"", state);
    put_value(output, value);
}

static void put_last_collective(struct ng_output *output, const char *name,
                                const struct ng_comm *comm)
{
    put_state(output, name, comm, "entered", NG_LOAD(comm->group->entered));
    put_state(output, name, comm, "started", NG_LOAD(comm->group->started));
    put_state(output, name, comm, "completed", NG_LOAD(comm->group->completed));
}

static void put_last_send_recv(struct ng_output *output, const char *name,
                               const struct ng_comm *comm)
{
    put_state(output, name, comm, "entered", NG_LOAD(comm->group->p2p_entered));
    put_state(output, name, comm, "completed", NG_LOAD(comm->group->p2p_completed));
}

static void put_pending_time(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    int64_t age = NG_LOAD(comm->group->pending_record) ? NG_LOAD(comm->group->pending_age_ns) : 0;

    put_group_sample(output, name, comm);
    put_seconds(output, (uint64_t)(age > 0 ? age : 0));
}

static void put_pending_works(struct ng_output *output, const char *name,
                              const struct ng_comm *comm)
{
    put_group_sample(output, name, comm);
    put_value(output, NG_LOAD(comm->group->pending_works));
}

static void put_stalls(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    put_group_sample(output, name, comm);
    ng_output_format(output, ",level=\"suspect\"");
    put_value(output, NG_LOAD(comm->totals.stalls.suspects));
    put_group_sample(output, name, comm);
    ng_output_format(output, ",level=\"timeout\"");
    put_value(output, NG_LOAD(comm->totals.stalls.timeouts));
}

static void put_straggler(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    struct ng_slow_rank late;

    if (!ng_straggler_monitor_find(NG_LOAD(comm->group->id), &late))
        return;
    put_group_sample(output, name, comm);
    ng_output_format(output, ",straggler=\"%d\"", late.rank);
    put_seconds(output, (uint64_t)(late.wait_ns > 0 ? late.wait_ns : 0));
}

/* Writes nothing for a group that never sent or received, or if nothing is registered for the
 * program. */
static void put_registration(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    const struct {
        const char *what;
        uint64_t value;
    } values[] = {
        {"made", count.made},
        {"ended", count.ended},
        {"ended_with_group", count.ended_with_group},
        {"failed", count.failed},
        {"deferred", count.deferred},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        put_group_sample(output, name, comm);
        ng_output_format(output, ",what=\"%s\"", values[i].what);
        put_value(output, values[i].value);
    }
}

static void put_held(struct ng_output *output, const char *name, const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_group_sample(output, name, comm);
    put_value(output, count.held);
}

static void put_registered_bytes(struct ng_output *output, const char *name,
                                 const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_group_sample(output, name, comm);
    ng_output_format(output, ",registered=\"yes\"");
    put_value(output, count.registered_bytes);
    put_group_sample(output, name, comm);
    ng_output_format(output, ",registered=\"no\"");
    put_value(output, count.bytes - count.registered_bytes);
}

static void put_registration_time(struct ng_output *output, const char *name,
                                  const struct ng_comm *comm)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(comm, &count))
        return;
    put_group_sample(output, name, comm);
    put_seconds(output, count.spent_ns);
}

/* The samples of each group. */
static const struct {
    const char *name, *type;
    put_group_fn *put;
    const char *help;
} group_families[] = {
    {"group", "gauge", put_group, "A group that this process is part of; always 1."},
    {"operations_total", "counter", put_operations, "Operations whose end was seen."},
    {"moved_bytes_total", "counter", put_bytes,
     "Bytes of those operations, as the callers passed them."},
    {"uncounted_total", "counter", put_uncounted,
     "Operations that ended after their records were overwritten."},
    {"last_collective", "gauge", put_last_collective,
     "Sequence number of the group's last collective in a state."},
    {"last_send_recv", "gauge", put_last_send_recv, "The same of its sends and receives."},
    {"pending_seconds", "gauge", put_pending_time,
     "How long the oldest work has been due; 0 where none is in flight."},
    {"pending_works", "gauge", put_pending_works, "Works in flight."},
    {"stalls_total", "counter", put_stalls,
     "Alarms: suspect, and deadlines that passed (timeout)."},
    {"straggler_wait_seconds", "gauge", put_straggler,
     "How long the group's others wait for the rank that comes last, each time; none: nobody "
     "does."},
    {"registrations_total", "counter", put_registration,
     "Segments that the guard registered with NCCL (NCCLGUARD_REGISTER), and gave back, or NCCL "
     "when the group "
     "ended."},
    {"registered_segments", "gauge", put_held, "Those of them that are registered now."},
    {"send_recv_bytes_total", "counter", put_registered_bytes,
     "Bytes of sends and receives, by whether their buffers were registered by the guard."},
    {"registration_seconds_total", "counter", put_registration_time,
     "Time that the program spent in registering and giving back."},
};

static void put_groups(struct ng_output *output)
{
    uint32_t count = ng_comm_count();

    for (size_t i = 0; i < sizeof(group_families) / sizeof(group_families[0]); i++) {
        put_family(output, group_families[i].name, group_families[i].type, group_families[i].help);
        for (uint32_t j = 0; j < count; j++)
            if (is_reported(ng_comm_at(j)))
                group_families[i].put(output, group_families[i].name, ng_comm_at(j));
    }
}

/* ---- Durations ---- */

static void put_duration_sample(struct ng_output *output, const char *name,
                                const struct ng_duration *duration)
{
    put_sample(output, name);
    ng_output_format(output, ",group=\"%016" PRIx64 "\",op=\"%s\",size=\"%" PRIu64 "\"",
                     duration->group_id, ng_op_name(duration->op),
                     UINT64_C(1) << (duration->size_class < 64 ? duration->size_class : 63));
}

/* Write all buckets, even empty ones: sums over ranks and time need the same buckets everywhere. */
static void put_duration(struct ng_output *output, const struct ng_duration *duration)
{
    uint64_t below = 0;

    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++) {
        int64_t end = ng_duration_bucket_end_ns(i);
        below += duration->histogram[i];
        put_duration_sample(output, "duration_seconds_bucket", duration);
        if (end == INT64_MAX)
            ng_output_format(output, ",le=\"+Inf\"");
        else
            ng_output_format(output, ",le=\"%" PRId64 ".%06" PRId64 "\"", end / NG_S,
                             end % NG_S / NG_US);
        put_value(output, below);
    }
    put_duration_sample(output, "duration_seconds_count", duration);
    put_value(output, below);
    put_duration_sample(output, "duration_seconds_sum", duration);
    put_seconds(output, duration->sum_ns);
}

static void put_durations(struct ng_output *output)
{
    struct ng_duration duration;

    put_family(output, "duration_seconds", "histogram",
               "Time that the device took, of the operations that were measured.");
    for (uint32_t i = 0; i < ng_guard.box.duration_capacity; i++)
        if (ng_durations_read(&ng_guard.box, i, &duration))
            put_duration(output, &duration);
}

/* ---- The process ---- */

static void put_process(struct ng_output *output)
{
    const struct ng_box_header *header = ng_guard.box.header;

    put_family(output, "process", "gauge", "This process; always 1.");
    put_sample(output, "process");
    put_label(output, "host", header->host);
    put_label(output, "program", header->program);
    ng_output_format(output, ",pid=\"%d\",version=\"" NG_VERSION "\"", header->pid);
    put_value(output, 1);
}

static void put_verdict(struct ng_output *output)
{
    pthread_mutex_lock(&lock);
    struct last_verdict last = last_verdict;
    pthread_mutex_unlock(&lock);

    put_family(output, "verdict_info", "gauge",
               "The last verdict of the job, as this process has it; always 1.");
    if (last.kind == NG_KIND_HEALTHY)
        return;
    put_sample(output, "verdict_info");
    put_label(output, "kind", ng_verdict_kind_name(last.kind));
    put_label(output, "culprits", last.culprits);
    put_label(output, "level", last.timeout ? "timeout" : "suspect");
    put_value(output, 1);
}

static void put_lost(struct ng_output *output)
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

    put_family(
        output, "lost_total", "counter",
        "What there was no room for, or no event: records whose end was not seen, groups and "
        "threads without a place, completions that the program was not told of, durations.");
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        put_sample(output, "lost_total");
        ng_output_format(output, ",what=\"%s\"", lost[i].what);
        put_value(output, lost[i].count);
    }
}

/* The line may come from another host. */
void ng_metrics_keep_verdict(enum ng_verdict_kind kind, const char *line, bool timeout)
{
    struct last_verdict last = {.kind = kind, .timeout = timeout};

    ng_report_line_culprits(line, last.culprits, sizeof(last.culprits));
    pthread_mutex_lock(&lock);
    last_verdict = last;
    pthread_mutex_unlock(&lock);
}

void ng_metrics_after_fork(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    last_verdict = (struct last_verdict){0};
}

int ng_metrics_write(int fd)
{
    struct ng_output output;

    ng_output_init(&output, fd);
    put_process(&output);
    put_groups(&output);
    put_durations(&output);
    put_verdict(&output);
    put_lost(&output);
    ng_output_format(&output, "# EOF\n");
    return ng_output_flush(&output);
}

static int write_for_all(const void *unused, int fd)
{
    (void)unused;
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
