/*
 * The status thread.
 *
 * Reads counters of other threads. Must never touch CUDA or NCCL, nor hold anything that other
 * threads wait for.
 */
#include "core/incident/status_log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/ring.h"
#include "core/incident/metrics.h"
#include "core/incident/straggler_monitor.h"
#include "core/registration/registrations.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define METRICS_NS   (5 * NG_S)
#define LATE_NS      (60 * NG_S) /* straggler interval if only metrics are wanted */
#define LAST_WORD_NS (300 * NG_MS)
#define LINES        16    /* at most, one per group */
#define RECORDS_READ 4096u /* for each number of a line */

static _Atomic uint32_t bell; /* futex word */
static NG_FORGOTTEN atomic_bool there, saving, finishing, quitting;
static _Atomic uint32_t saves; /* futex word: requested writes of the file that are done */
static NG_FORGOTTEN _Atomic uint32_t over; /* futex word: 1 the thread is finished */

/* Status thread alone. */
static struct {
    struct {
        uint32_t generation;
        uint64_t calls;
    } before[NG_COMM_CAPACITY]; /* calls of each group as of its last line */
    int64_t told_ns;
    bool failed; /* the file could not be written; logged once */
} own NG_LARGE;

static void tell(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    ng_futex_wake(word, 1);
}

/* ---- Lines ---- */

static bool is_alive(const struct ng_comm *comm)
{
    return ng_group_state_is_alive(atomic_load_explicit(&comm->group->state, memory_order_acquire));
}

/* Calls per minute since the last line. */
static uint64_t pace(uint32_t slot, const struct ng_box_group *group, int64_t since_ns)
{
    uint64_t calls = NG_LOAD(group->entered) + NG_LOAD(group->p2p_entered);
    uint32_t generation = NG_LOAD(group->generation);
    uint64_t before = own.before[slot].generation == generation ? own.before[slot].calls : 0;

    own.before[slot].generation = generation;
    own.before[slot].calls = calls;
    if (since_ns < NG_MS || calls < before)
        return 0;
    return (uint64_t)((double)(calls - before) * 60e9 / (double)since_ns + 0.5);
}

static void describe_registrations(uint32_t slot, char *ret_text, size_t bytes)
{
    struct ng_registration_count count;

    if (!ng_registrations_count(ng_comm_at(slot), &count) || !count.bytes)
        return;
    snprintf(ret_text, bytes,
             "; %.0f%% of their bytes registered, %" PRIu64 " segments, %.3f s spent%s",
             100.0 * (double)count.registered_bytes / (double)count.bytes, count.held,
             (double)count.spent_ns / 1e9, count.closed ? ", no more" : "");
}

/* The record of collective `seq`; NULL overwritten, too long ago, or none are kept. */
static struct ng_box_record *find_collective(uint32_t slot, const struct ng_box_group *group,
                                             uint64_t seq)
{
    uint64_t capacity = ng_guard.box.record_capacity, newest = NG_LOAD(group->entered_record);
    uint64_t most = capacity < RECORDS_READ ? capacity : RECORDS_READ;

    for (uint64_t id = newest; seq && id && newest - id < most; id--) {
        struct ng_box_record *record = ng_ring_find(id);
        if (record && NG_LOAD(record->group_slot) == slot && NG_LOAD(record->coll_seq) == seq &&
            !(NG_LOAD(record->flags) & NG_RECORD_P2P))
            return record;
    }
    return NULL;
}

/* "#7 (AllReduce, 1024 elements)" */
static void describe_collective(uint32_t slot, const struct ng_box_group *group, uint64_t seq,
                                char *ret_text, size_t bytes)
{
    struct ng_box_record *record = find_collective(slot, group, seq);
    int used = snprintf(ret_text, bytes, "#%" PRIu64, seq);

    if (record)
        snprintf(ret_text + used, bytes - (size_t)used, " (%s, %" PRIu64 " elements)",
                 ng_op_name((enum ng_op)NG_LOAD(record->op)), NG_LOAD(record->count));
}

static void tell_group(uint32_t slot, const struct ng_box_group *group, uint64_t per_minute)
{
    char name[NG_BOX_NAME_BYTES], pending[80] = "nothing is pending", p2p[80] = "", late[120] = "",
                                  registered[120] = "";
    char entered[80], started[80], completed[80];
    struct ng_slow_rank straggler;
    uint64_t sends = NG_LOAD(group->p2p_entered);
    int64_t age = NG_LOAD(group->pending_age_ns);

    describe_registrations(slot, registered, sizeof(registered));
    ng_box_read_name(group, name);
    if (NG_LOAD(group->pending_record))
        snprintf(pending, sizeof(pending), "the oldest pending for %.1f s",
                 (double)(age > 0 ? age : 0) / 1e9);
    if (sends)
        snprintf(p2p, sizeof(p2p), ", sends and receives: called #%" PRIu64 ", ended %" PRIu64,
                 sends, NG_LOAD(group->p2p_completed));
    if (ng_straggler_monitor_find(NG_LOAD(group->id), &straggler))
        snprintf(
            late, sizeof(late),
            "; the others wait for rank %d, each time %.3f ms, last in %" PRIu32 " of %" PRIu32,
            straggler.rank, (double)straggler.wait_ns / 1e6, straggler.last, straggler.samples);
    describe_collective(slot, group, NG_LOAD(group->entered), entered, sizeof(entered));
    describe_collective(slot, group, NG_LOAD(group->started), started, sizeof(started));
    describe_collective(slot, group, NG_LOAD(group->completed), completed, sizeof(completed));
    ng_log(NG_LOG_INFO,
           "status: group %s%s%s%016" PRIx64
           " (rank %d of %d): called %s, begun %s, ended %s%s%s; %s; %" PRIu64 " calls a minute%s",
           name[0] ? "\"" : "", name, name[0] ? "\" " : "", NG_LOAD(group->id),
           NG_LOAD(group->group_rank), NG_LOAD(group->nranks), entered, started, completed, p2p,
           registered, pending, per_minute, late);
}

static void tell_groups(int64_t now)
{
    uint32_t count = ng_comm_count(), told = 0, more = 0;
    int64_t since = now - own.told_ns;

    own.told_ns = now;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        if (!is_alive(comm))
            continue;
        uint64_t per_minute = pace(i, comm->group, since);
        if (told < LINES) {
            tell_group(i, comm->group, per_minute);
            told++;
        } else {
            more++;
        }
    }
    if (more)
        ng_log(NG_LOG_INFO, "status: and %" PRIu32 " more groups", more);
}

/* ---- The file ---- */

static void save_metrics(void)
{
    char path[PATH_MAX];

    ng_log_expand(ng_guard.metrics_file, ng_guard.launch.rank, path, sizeof(path));
    int error = ng_metrics_save(path);
    if (error && !own.failed)
        ng_log(NG_LOG_WARN, "cannot write the metrics to %s (NCCLGUARD_METRICS): %s", path,
               strerror(-error));
    own.failed = error != 0;
}

/* ---- The thread ---- */

static int64_t status_interval(void)
{
    return ng_log_enabled(NG_LOG_INFO) ? ng_guard.config.status_interval_ns : 0;
}

static void *attend(void *unused)
{
    uint32_t generation = atomic_load(&ng_guard.generation);
    int64_t next_file = ng_clock_mono_ns();

    ng_guard.adopt_thread();
    own.told_ns = ng_clock_mono_ns();
    while (!atomic_load(&quitting) && atomic_load(&ng_guard.generation) == generation) {
        uint32_t seen = atomic_load(&bell);
        bool last = atomic_load(&finishing), awaited = atomic_exchange(&saving, false);
        int64_t now = ng_clock_mono_ns(), interval = status_interval();
        if (ng_guard.metrics_file[0] && (last || awaited || now >= next_file)) {
            save_metrics();
            next_file = ng_clock_mono_ns() + METRICS_NS;
        }
        if (awaited)
            tell(&saves);
        if (last)
            break;
        if (interval && now - own.told_ns >= interval)
            tell_groups(now);
        int64_t until = ng_guard.metrics_file[0] ? next_file : INT64_MAX;
        if (interval && own.told_ns + interval < until)
            until = own.told_ns + interval;
        ng_futex_wait_until(&bell, seen, until);
    }
    tell(&over);
    return unused;
}

/* Wait until the thread has changed `word` from `seen`, for some tenths of a second at most. */
static void await(_Atomic uint32_t *word, uint32_t seen)
{
    int64_t until = ng_clock_mono_ns() + LAST_WORD_NS;

    tell(&bell);
    while (atomic_load(word) == seen && ng_clock_mono_ns() < until)
        ng_futex_wait_until(word, seen, until);
}

void ng_status_log_start(void)
{
    ng_straggler_monitor_start(status_interval()          ? status_interval()
                               : ng_guard.metrics_file[0] ? LATE_NS
                                                          : 0);
    if (!ng_guard.metrics_file[0] && !status_interval())
        return;
    if (atomic_exchange(&there, true)) {
        tell(&bell);
        return;
    }
    int error = ng_guard_thread("ncclguard/status", attend);
    if (!error)
        return;
    ng_log(NG_LOG_WARN, "cannot start the status thread: %s; no metrics are written",
           strerror(-error));
    atomic_store(&there, false);
}

void ng_status_log_save(void)
{
    uint32_t seen = atomic_load(&saves);

    if (!ng_guard.metrics_file[0] || !atomic_load(&there))
        return;
    atomic_store(&saving, true);
    await(&saves, seen);
}

void ng_status_log_finish(void)
{
    if (!atomic_load(&there))
        return;
    atomic_store(&finishing, true);
    await(&over, 0);
}

void ng_status_log_quit(void)
{
    atomic_store(&quitting, true);
    tell(&bell);
}

void ng_status_log_after_fork(void)
{
    memset(&own, 0, sizeof(own));
}
