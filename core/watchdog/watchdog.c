/*
 * The watchdog's thread.
 *
 * Background:
 *
 * A stall can occur in three places, each with its own clock. Inside a host call (init, split,
 * group end, the first collective of a cold communicator): the time since the call was entered. On
 * the stream but not begun, and begun but not finished: the time since the work became the oldest
 * of its communicator, that is, since the later of its call and the end of the work before it; so
 * waiting in a deep queue does not count.
 *
 * All these clocks are credited: they advance by the time between two rounds of this thread, but
 * never by more than the planned pause and a second. When the process was stopped, was in a
 * debugger or its machine slept, no round took place, and that time does not count. While the
 * program is in a phase, or an operator has suspended the job, the clocks are suspended
 * (core/comm/deadline.h).
 *
 * Work on one communicator finishes in call order, since NCCL orders it, so the newest work in a
 * communicator's queue is queried first: if it has finished, everything has. Otherwise a binary
 * search finds the newest finished work. A round costs one or two queries for each busy
 * communicator, however fast it is.
 *
 * The pause between rounds is 100 ms when little is in flight and shrinks to half a millisecond
 * when the pool of works runs low; program threads can ask for an early round. When nothing at all
 * has been under way for two seconds, the watchdog rests: it looks once a second, and makes no CUDA
 * call, until a thread enters NCCL and wakes it.
 */
#include "core/watchdog/watchdog.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/check/nan.h"
#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/comm/deadline.h"
#include "core/comm/ring.h"
#include "core/device/async.h"
#include "core/device/capture.h"
#include "core/device/device_wait.h"
#include "core/device/gpu.h"
#include "core/device/graph.h"
#include "core/device/work.h"
#include "core/recorder/durations.h"
#include "core/registration/segments.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/fast_clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define PAUSE_MAX_NS (100 * NG_MS)
#define PAUSE_MIN_NS (NG_MS / 2)
#define SPAN_WALKED  1024         /* calls of an NCCL group whose numbers are read */
#define REST_NS      NG_S         /* the pause while it rests */
#define QUIET_ROUNDS 20           /* so many in a row: then it rests */
#define GRACE_NS     NG_S         /* a round that is late by less is not considered a stop */
#define RECALL_NS    NG_S         /* a replay that lasts longer is recalled */
#define CUT_OFF_NS   (50 * NG_MS) /* for two rounds of a watchdog that is not stuck */
#define MEET_NS      (100 * NG_MS)

/* Held during a round: the exit path runs the last round itself, and a program thread that finds
 * no free work the part of one that it needs. Never taken while another lock is held. */
static pthread_mutex_t round_lock = PTHREAD_MUTEX_INITIALIZER;
static bool finished;        /* under round_lock */
static atomic_bool quitting; /* the thread ends although `finished` is not set */
static uint32_t
    restarts_seen; /* under round_lock: taken into account by all ages and alarm marks */

/* The watchdog's own view of a thread inside a call. */
struct watched_call {
    int64_t since_mono_ns; /* identifies the call: a thread never enters two at the same time */
    int64_t age_ns, mark;
    unsigned alarmed;
};
#define WATCHED_CALLS 256
static struct watched_call watched_calls[WATCHED_CALLS] NG_LARGE;
static uint32_t retired_in_round;

static const char own_tables[] = "its own tables", own_pause[] = "its pause";
static _Atomic(const char *) activity = "its first round"; /* what the thread is doing */
static atomic_int thread_id;
static atomic_bool is_new; /* nobody has waited for its first round with a communicator yet */

static void be_at(const char *what)
{
    atomic_store_explicit(&activity, what, memory_order_relaxed);
}

void ng_watchdog_restart(void)
{
    ng_alarm_restart();
    ng_wake_watchdog();
}

/* Append what program threads pushed (newest first) to the queue, in call order. */
static void take_incoming(struct ng_comm *comm)
{
    struct ng_async_op *work =
                           atomic_exchange_explicit(&comm->incoming, NULL, memory_order_acquire),
                       *oldest = NULL;

    while (work) {
        struct ng_async_op *next = work->next;
        work->mark = ng_deadline_mark(comm, work->entered_mono_ns);
        work->next = oldest;
        oldest = work;
        work = next;
        comm->watch.length++;
    }
    if (!oldest)
        return;
    if (comm->watch.last)
        comm->watch.last->next = oldest;
    else
        comm->watch.first = oldest;
    while (oldest->next)
        oldest = oldest->next;
    comm->watch.last = oldest;
}

/* The record if it may still be written to, or is kept; NULL if it is about to be overwritten. */
static struct ng_box_record *far_from_overwritten(uint64_t id)
{
    const struct ng_box *box = &ng_guard.box;
    uint64_t next = NG_LOAD(box->header->record_next);
    struct ng_box_record *record = ng_ring_find(id);

    return record && record < box->records + box->record_capacity &&
                   next - id + box->record_capacity / 8 >= box->record_capacity
               ? NULL
               : record;
}

/* Count a record that has reached its final state. */
static void count_record(struct ng_comm *comm, const struct ng_box_record *record,
                         enum ng_record_state state)
{
    uint32_t op = NG_LOAD(record->op);

    if (state == NG_RECORD_COMPLETED && op < NG_COMM_COUNTED_OPS) {
        uint64_t bytes = NG_LOAD(record->count) * ng_dtype_bytes(NG_LOAD(record->dtype));
        NG_STORE(comm->totals.ops[op].calls, NG_LOAD(comm->totals.ops[op].calls) + 1);
        NG_STORE(comm->totals.ops[op].bytes, NG_LOAD(comm->totals.ops[op].bytes) + bytes);
    }
    if (state == NG_RECORD_COMPLETED || state == NG_RECORD_FAILED)
        ng_completion_note(comm, record, state);
    else if (state == NG_RECORD_UNWATCHED)
        ng_completion_lose(1);
}

/* Account for the rest of a work's records, `seen` of which were counted: they are overwritten, or
 * about to be. */
static void lose_records(struct ng_comm *comm, const struct ng_async_op *work, uint64_t seen,
                         enum ng_record_state state)
{
    uint64_t all = ng_async_op_operations(work), lost = all > seen ? all - seen : 0;

    if (state == NG_RECORD_STARTED)
        return;
    if (state == NG_RECORD_COMPLETED)
        NG_STORE(comm->totals.unseen, NG_LOAD(comm->totals.unseen) + lost);
    ng_completion_lose(lost);
}

/* Change the state of a work's records up to `newest`; records about to be overwritten are left
 * alone. */
static void mark_records_up_to(struct ng_comm *comm, const struct ng_async_op *work,
                               uint64_t newest, enum ng_record_state state, int64_t now_mono_ns)
{
    uint64_t id = newest, counted = 0;

    while (id && id != work->done_record) {
        struct ng_box_record *record = far_from_overwritten(id);
        if (!record)
            break;
        uint64_t previous = NG_LOAD(record->work_previous);
        /* The round may have begun before the call did. */
        int64_t entered = NG_LOAD(record->entered_mono_ns);
        int64_t seen = now_mono_ns > entered ? now_mono_ns : entered;
        if (state == NG_RECORD_STARTED ||
            (state == NG_RECORD_COMPLETED && !NG_LOAD(record->started_mono_ns)))
            NG_STORE(record->started_mono_ns, seen);
        if (state == NG_RECORD_COMPLETED)
            NG_STORE(record->completed_mono_ns, seen);
        /* If the program aborts it: the result that NCCL returns from interrupted calls. */
        if (state == NG_RECORD_FAILED)
            NG_STORE(record->result,
                     ng_comm_is_condemned(comm) ? comm->abort.result : NG_NCCL_INTERNAL_ERROR);
        ng_ring_set_state(id, state);
        count_record(comm, record, state);
        counted++;
        id = previous;
    }
    if ((id && id != work->done_record) || !work->last_record)
        lose_records(comm, work, counted, state);
    /* Those may still be kept. */
    for (struct ng_box_record *record;
         id && id != work->done_record && (record = ng_ring_find(id));) {
        uint64_t previous = NG_LOAD(record->work_previous);
        ng_ring_set_state(id, state);
        id = previous;
    }
}

static void mark_records(struct ng_comm *comm, const struct ng_async_op *work,
                         enum ng_record_state state, int64_t now_mono_ns)
{
    mark_records_up_to(comm, work, work->last_record, state, now_mono_ns);
    if (work->part && work->recalled)
        ng_ring_set_state(work->recalled, state);
}

/* A timed work has ended: store its duration, if available, in its newest record and in the tables
 * of the box. */
static void keep_duration(const struct ng_comm *comm, const struct ng_async_op *work)
{
    struct ng_box *box = &ng_guard.box;
    int64_t duration_ns = ng_gpu_duration_ns(work);
    uint64_t group_id = NG_LOAD(comm->group->id);

    if (!duration_ns)
        return;
    struct ng_box_record *record = far_from_overwritten(work->last_record);
    if (record)
        NG_STORE(record->duration_ns, duration_ns);
    ng_durations_add(box, group_id, work->op, work->bytes, duration_ns);
    if (work->symmetric && work->last_seq)
        ng_duration_sample_add(box, &(struct ng_duration_sample){.group_id = group_id,
                                                                 .seq = work->last_seq,
                                                                 .calls = work->calls,
                                                                 .group_slot = comm->slot,
                                                                 .duration_ns = duration_ns});
}

/* The same for the measured calls of a replay. Calls in the middle of a graph give no samples for
 * comparing ranks, since on each rank the next launch hides different replays. */
static void keep_replay_durations(const struct ng_comm *comm, const struct ng_async_op *work)
{
    uint64_t group_id = NG_LOAD(comm->group->id), id = work->last_record;
    struct ng_graph_measure measure;

    for (uint32_t call = ng_graph_calls(work); call-- > 0;) {
        struct ng_box_record *record = id ? far_from_overwritten(id) : NULL;
        if (ng_graph_measured(work, call, &measure)) {
            ng_durations_add(&ng_guard.box, group_id, measure.op, measure.bytes,
                             measure.duration_ns);
            if (record)
                NG_STORE(record->duration_ns, measure.duration_ns);
        }
        id = record ? NG_LOAD(record->work_previous) : 0;
    }
}

static void add_history(struct ng_comm *comm, int64_t age_ns)
{
    uint64_t us = age_ns > 0 ? (uint64_t)age_ns / 1000 : 0;
    unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

    comm->watch.history[bucket < NG_HISTORY_BUCKETS ? bucket : NG_HISTORY_BUCKETS - 1]++;
    comm->watch.history_count++;
}

/* Upper edge of the bucket that holds the 99th percentile; 0 without history. */
static int64_t usual_ns(const struct ng_comm *comm)
{
    uint32_t above = comm->watch.history_count / 100;

    for (int bucket = NG_HISTORY_BUCKETS - 1; bucket >= 0 && comm->watch.history_count; bucket--) {
        if (comm->watch.history[bucket] > above)
            return (INT64_C(1) << bucket) * 1000;
        above -= comm->watch.history[bucket];
    }
    return 0;
}

/*
 * Remove and return the queue's works up to and including `last`. State: NG_RECORD_COMPLETED: they
 * have finished; UNWATCHED: it will never be known; FAILED: an abort has cut them off.
 */
static void retire(struct ng_comm *comm, struct ng_async_op *last, enum ng_record_state state,
                   int64_t now_mono_ns)
{
    struct ng_box_group *group = comm->group;
    bool finished_work = state == NG_RECORD_COMPLETED;

    for (bool more = true; more;) {
        struct ng_async_op *work = comm->watch.first;
        more = work != last;
        comm->watch.first = work->next;
        if (!comm->watch.first)
            comm->watch.last = NULL;
        /* Before the records say that it is done. */
        if (work->timed && finished_work)
            keep_duration(comm, work);
        if (work->part && finished_work && ng_graph_measures(work))
            keep_replay_durations(comm, work);
        mark_records(comm, work, state, now_mono_ns);
        if (work->last_seq && finished_work) {
            NG_STORE(group->started, work->last_seq);
            NG_STORE(group->completed, work->last_seq);
            NG_STORE(group->completed_mono_ns, now_mono_ns);
        }
        if (finished_work)
            atomic_fetch_add_explicit(&group->p2p_completed, work->p2p_count, memory_order_relaxed);
        else
            ng_deadline_lose(comm, work->last_seq, work->p2p_count);
        if (state == NG_RECORD_UNWATCHED)
            atomic_fetch_add_explicit(&ng_guard.box.header->records_lost, 1, memory_order_relaxed);
        comm->watch.length--;
        retired_in_round++;
        if (work->part)
            ng_graph_forget(work);
        ng_gpu_give(work);
    }
}

/* The newest work of the queue that has finished; NULL none. *ret_lost: CUDA fails, and all of them
 * count as finished. */
static struct ng_async_op *newest_finished(struct ng_comm *comm, bool *ret_lost)
{
    enum ng_gpu_state state = ng_gpu_ended(comm->watch.last);

    *ret_lost = state == NG_GPU_LOST;
    if (state != NG_GPU_PENDING)
        return comm->watch.last;
    if (comm->watch.first == comm->watch.last || ng_gpu_ended(comm->watch.first) != NG_GPU_DONE)
        return NULL;
    /* `low` has finished, the one `distance` behind it has not. */
    struct ng_async_op *low = comm->watch.first;
    for (uint32_t distance = comm->watch.length - 1; distance > 1;) {
        struct ng_async_op *middle = low;
        for (uint32_t i = 0; i < distance / 2; i++)
            middle = middle->next;
        if (ng_gpu_ended(middle) == NG_GPU_DONE) {
            low = middle;
            distance -= distance / 2;
        } else {
            distance /= 2;
        }
    }
    return low;
}

/* How long something may last; 0 without limit. */
struct bounds {
    int64_t timeout_ns, suspect_ns;
};

/* Does NCCL connect ranks in any call of this work, here or on another rank that is still inside
 * it? */
static bool is_cold_work(const struct ng_async_op *work)
{
    uint64_t id = work->last_record;

    while (id && id != work->done_record && !work->part) {
        struct ng_box_record *record = ng_ring_find(id);
        if (!record)
            break;
        if (ng_ring_is_cold(record))
            return true;
        id = NG_LOAD(record->work_previous);
    }
    return work->first_seq == 1;
}

/* Is it so old that it matters whether a call is cold? */
static bool may_be_suspect(int64_t age_ns)
{
    return age_ns >= ng_guard.config.suspect_ns || age_ns >= ng_guard.config.cold_suspect_ns;
}

/* The number of a call on its communicator, by its record; 0 not known, or no call has a deadline
 * of its own. */
static uint64_t number_of_record(const struct ng_comm *comm, uint64_t id)
{
    struct ng_box_record *record =
        comm && id && NG_LOAD(comm->deadline.has_next) ? ng_ring_find(id) : NULL;

    return record ? NG_LOAD(record->coll_seq) + NG_LOAD(record->p2p_seq) : 0;
}

/*
 * How many calls of its communicator lie from the oldest of a work to its newest, which has number
 * `last`. More than are in the work where one NCCL group takes turns between streams: the work of
 * each stream has the deadline that the program gave to one of those calls.
 */
static uint64_t span_of(const struct ng_async_op *work, uint64_t last)
{
    uint64_t calls = ng_async_op_operations(work), span = calls, id = work->last_record;

    for (uint64_t i = 0; last && !work->part && id && i < calls && i < SPAN_WALKED; i++) {
        struct ng_box_record *record = ng_ring_find(id);
        if (!record)
            break;
        uint64_t number = NG_LOAD(record->coll_seq) + NG_LOAD(record->p2p_seq);
        if (number && number <= last && last - number >= span)
            span = last - number + 1;
        id = NG_LOAD(record->work_previous);
    }
    return span;
}

/* Of a call, or a work of `calls` calls; `last`: the number of the last of them on the
 * communicator. 0 not known. */
static struct bounds bounds_of(const struct ng_comm *comm, enum ng_op op, bool cold, int64_t mark,
                               uint64_t last, uint64_t calls)
{
    struct bounds bounds = {ng_deadline_of_work(comm, op, last, calls),
                            ng_deadline_suspect(comm, op, cold)};
    int64_t more_ns = ng_deadline_extension(comm, mark);

    if (bounds.timeout_ns)
        bounds.timeout_ns += more_ns;
    if (bounds.suspect_ns)
        bounds.suspect_ns += more_ns;
    return bounds;
}

/* Of a call that a thread is inside. The end of an NCCL group is about all calls of the
 * communicator that are not finished. */
static struct bounds bounds_of_call(const struct ng_comm *comm, const struct ng_box_thread *thread,
                                    enum ng_op op, bool cold, int64_t mark)
{
    uint64_t last = number_of_record(comm, NG_LOAD(thread->record_id)), calls = 1;

    if (comm && ng_op_table[op].op_class == NG_CLASS_GROUP) {
        last = NG_LOAD(comm->group->entered) + NG_LOAD(comm->group->p2p_entered);
        uint64_t over = ng_deadline_calls_over(comm);
        calls = last > over ? last - over : 0;
    }
    return bounds_of(comm, op, cold, mark, last, calls);
}

/* The oldest work is another one, or its clock starts again: earlier alarms are void. */
static void forget_alarms(struct ng_comm_watch *watch)
{
    watch->alarmed = 0;
    watch->looked = false;
}

/* This rank does not suspect its work yet, since calls of the communicator usually last long here.
 * Others may, and need to know what its devices show. */
static void ask_to_look(struct ng_comm_watch *watch, int64_t looks_ns, const struct ng_alarm *what)
{
    struct ng_alarm alarm = *what;

    if (!looks_ns || watch->age_ns < looks_ns || watch->looked || watch->alarmed)
        return;
    watch->looked = true;
    alarm.level = NG_INCIDENT_SUSPECT;
    alarm.looks = true;
    alarm.restarts = restarts_seen;
    ng_alarm_raise(&alarm);
}

static void raise_if_due(unsigned *alarmed, const struct bounds *bounds,
                         const struct ng_alarm *what, struct ng_stall_count *counts)
{
    struct ng_alarm alarm = *what;

    alarm.restarts = restarts_seen;
    if (bounds->timeout_ns && alarm.age_ns >= bounds->timeout_ns && *alarmed < NG_INCIDENT_TIMEOUT)
        alarm.level = NG_INCIDENT_TIMEOUT;
    else if (bounds->suspect_ns && alarm.age_ns >= bounds->suspect_ns &&
             *alarmed < NG_INCIDENT_SUSPECT)
        alarm.level = NG_INCIDENT_SUSPECT;
    else
        return;
    *alarmed = alarm.level;
    if (counts) { /* NULL: the call belongs to no communicator yet */
        _Atomic uint64_t *stalls =
            alarm.level == NG_INCIDENT_TIMEOUT ? &counts->timeouts : &counts->suspects;
        atomic_fetch_add_explicit(stalls, 1, memory_order_relaxed);
    }
    ng_alarm_raise(&alarm);
}

static enum ng_op op_of_record(uint64_t id)
{
    struct ng_box_record *record = ng_ring_find(id);
    return record ? (enum ng_op)NG_LOAD(record->op) : NG_OP_NONE;
}

/* The record of a call of a replay, counted back from its last; 0: overwritten. */
static uint64_t record_of_call(const struct ng_async_op *work, uint32_t call)
{
    uint64_t id = work->last_record;

    for (uint32_t at = ng_graph_calls(work) - 1; id && at > call; at--) {
        struct ng_box_record *record = ng_ring_find(id);
        id = record ? NG_LOAD(record->work_previous) : 0;
    }
    return ng_ring_find(id) ? id : 0;
}

/*
 * Retire the finished calls of a replay, as if each were a separate work: ranks may be stuck in the
 * remaining ones, which have their own clock. Queried from the second round on, so that quick
 * replays cost nothing.
 */
static void follow_replay(struct ng_comm *comm, struct ng_async_op *work, int64_t now_mono_ns)
{
    struct ng_box_group *group = comm->group;
    struct ng_graph_progress progress = ng_graph_progress(work);

    NG_STORE(group->pending_doubt, progress.vague ? NG_PENDING_VAGUE : 0);
    if (progress.done > work->done) {
        uint64_t newest = record_of_call(work, progress.done - 1);
        mark_records_up_to(comm, work, newest, NG_RECORD_COMPLETED, now_mono_ns);
        work->done = progress.done;
        if (newest)
            work->done_record = newest;
        if (progress.collectives) {
            work->first_seq += progress.collectives;
            NG_STORE(group->started, work->first_seq - 1);
            NG_STORE(group->completed, work->first_seq - 1);
            NG_STORE(group->completed_mono_ns, now_mono_ns);
        }
        if (work->first_seq > work->last_seq)
            work->first_seq = work->last_seq = 0;
        work->p2p_count -= progress.p2p;
        atomic_fetch_add_explicit(&group->p2p_completed, progress.p2p, memory_order_relaxed);
        comm->watch.age_ns = 0;
        forget_alarms(&comm->watch);
        work->recalled = 0;
    }
    if (comm->watch.age_ns >= RECALL_NS && !work->recalled && !record_of_call(work, work->done)) {
        work->recalled = ng_graph_recall(work, 0);
        if (work->recalled && NG_LOAD(group->pending_started))
            ng_ring_set_state(work->recalled, NG_RECORD_STARTED);
    }
}

/* The age of something seen for the first time: at most the time since the previous round. It may
 * have begun after this round did. */
static int64_t first_age(int64_t since_mono_ns, int64_t now_mono_ns, int64_t step_ns)
{
    int64_t waited = now_mono_ns - since_mono_ns;

    return waited < 0 ? 0 : waited < step_ns ? waited : step_ns;
}

/* The part of a step in which the oldest work was that already: another thread may have looked
 * since the round before. */
static int64_t since_aged(struct ng_comm *comm, int64_t step_ns, int64_t now_mono_ns)
{
    int64_t since_ns = now_mono_ns - comm->watch.aged_mono_ns;

    if (step_ns)
        comm->watch.aged_mono_ns = now_mono_ns;
    return since_ns < step_ns ? since_ns : step_ns;
}

/* Publish the oldest work of a communicator, and check whether it is overdue. */
static void age_oldest(struct ng_comm *comm, int64_t step_ns, int64_t now_mono_ns)
{
    struct ng_box_group *group = comm->group;
    struct ng_async_op *work = comm->watch.first;

    if (!work) {
        NG_STORE(group->pending_record, 0);
        NG_STORE(group->timeout_ns, ng_deadline_shown(comm));
        comm->watch.entered_ns = 0;
        return;
    }
    if (comm->watch.entered_ns != work->entered_mono_ns) {
        comm->watch.entered_ns = work->entered_mono_ns;
        comm->watch.aged_mono_ns = now_mono_ns;
        comm->watch.age_ns = first_age(work->entered_mono_ns, now_mono_ns, step_ns);
        forget_alarms(&comm->watch);
        NG_STORE(group->pending_started, 0);
        NG_STORE(group->pending_doubt, 0);
    } else {
        comm->watch.age_ns += since_aged(comm, step_ns, now_mono_ns);
        if (work->part)
            follow_replay(comm, work, now_mono_ns);
    }
    if (!NG_LOAD(group->pending_started) && ng_gpu_started(work) == NG_GPU_DONE) {
        NG_STORE(group->pending_started, work->has_start ? NG_START_SEEN : NG_START_INFERRED);
        if (work->last_seq)
            NG_STORE(group->started, work->last_seq);
        mark_records(comm, work, NG_RECORD_STARTED, now_mono_ns);
    }
    NG_STORE(group->pending_doubt, NG_LOAD(group->pending_doubt) & ~NG_PENDING_UNWATCHED);
    NG_STORE(group->pending_seq, work->first_seq);
    NG_STORE(group->pending_age_ns, comm->watch.age_ns);
    atomic_store_explicit(&group->pending_record,
                          work->last_record ? work->last_record : UINT64_MAX, memory_order_release);
    struct ng_alarm alarm = {.group_id = NG_LOAD(group->id),
                             .seq = work->first_seq,
                             .op = work->part ? ng_graph_op(work) : op_of_record(work->last_record),
                             .age_ns = comm->watch.age_ns,
                             .record = NG_LOAD(group->pending_record)};
    uint64_t last = number_of_record(comm, work->last_record);
    struct bounds bounds =
        bounds_of(comm, alarm.op, may_be_suspect(comm->watch.age_ns) && is_cold_work(work),
                  work->mark, last, span_of(work, last));
    int64_t looks_ns = bounds.suspect_ns;
    if (bounds.suspect_ns && bounds.suspect_ns < 10 * usual_ns(comm))
        bounds.suspect_ns = 10 * usual_ns(comm);
    NG_STORE(group->timeout_ns, bounds.timeout_ns ? bounds.timeout_ns : NG_DEADLINE_NONE);
    if (NG_LOAD(group->rests)) {
        forget_alarms(&comm->watch);
    } else {
        raise_if_due(&comm->watch.alarmed, &bounds, &alarm, &comm->totals.stalls);
        ask_to_look(&comm->watch, looks_ns, &alarm);
    }
    if (comm->watch.alarmed >= NG_INCIDENT_TIMEOUT)
        ng_device_wait_expire(comm->slot, work->entered_mono_ns);
}

static void watch_comm(struct ng_comm *comm, int64_t step_ns, int64_t now_mono_ns)
{
    bool lost;

    if (NG_LOAD(comm->group->rests))
        step_ns = 0;
    if (comm->watch.generation != NG_LOAD(comm->group->generation)) {
        /* A new communicator in a reused record. */
        comm->watch.generation = NG_LOAD(comm->group->generation);
        comm->watch.entered_ns = 0;
        comm->watch.age_ns = 0;
        memset(comm->watch.history, 0, sizeof(comm->watch.history));
        comm->watch.history_count = 0;
    }
    /* Never zero while anything is in flight, since the record must not be reused then. */
    NG_STORE(comm->group->pending_works, comm->watch.length + 1);
    take_incoming(comm);
    if (comm->watch.first) {
        struct ng_async_op *finished_work = newest_finished(comm, &lost);
        /* An abort also ends the work on the device, without results. Read only now: what the
         * device reports after the abort does not count. */
        bool cut_off = atomic_load(&comm->cut_off);
        if (finished_work && !cut_off && atomic_load(&comm->fate) < NG_FATE_ABORTING) {
            int64_t entered = comm->watch.first->entered_mono_ns;
            add_history(comm, comm->watch.entered_ns == entered
                                  ? comm->watch.age_ns + step_ns / 2
                                  : first_age(entered, now_mono_ns, step_ns) / 2);
            retire(comm, finished_work, lost ? NG_RECORD_UNWATCHED : NG_RECORD_COMPLETED,
                   now_mono_ns);
        }
        if (comm->watch.first && (cut_off || ng_comm_is_condemned(comm)))
            retire(comm, comm->watch.last, NG_RECORD_FAILED, now_mono_ns);
    }
    age_oldest(comm, step_ns, now_mono_ns);
    atomic_store_explicit(&comm->group->pending_works, comm->watch.length, memory_order_release);
}

static struct ng_comm *comm_of_slot(uint32_t slot)
{
    return slot < ng_comm_count() ? ng_comm_at(slot) : NULL;
}

static uint64_t group_id_of_slot(uint32_t slot)
{
    const struct ng_comm *comm = comm_of_slot(slot);

    return comm ? NG_LOAD(comm->group->id) : 0;
}

/* Did the group have this id when the alarm was raised? Its id may have changed since, when ranks
 * joined: core/view/grow_id.h. */
static bool is_called(const struct ng_box_group *group, uint64_t id)
{
    return NG_LOAD(group->id) == id || (id && NG_LOAD(group->former_id) == id);
}

static bool is_being_aborted(const struct ng_comm *comm)
{
    uint32_t fate = comm ? atomic_load(&comm->fate) : NG_FATE_LIVES;

    return fate == NG_FATE_CONDEMNED || fate == NG_FATE_ABORTING;
}

/* NCCL ends a communicator only once no graph holds calls of it, and logs nothing while it
 * waits. */
static void tell_held(const struct ng_comm *comm, uint32_t op)
{
    if (comm && ng_op_table[op].op_class == NG_CLASS_END && op != NG_OP_CommRevoke &&
        !NG_LOAD(comm->group->pending_record) && ng_capture_holds(comm))
        ng_log(NG_LOG_WARN,
               "%s of group %016" PRIx64
               " waits for CUDA graphs that hold calls of it: destroy the graphs, and what "
               "was instantiated of them, before the communicator (PyTorch: drop its CUDAGraph "
               "objects, and call "
               "torch._dynamo.reset())",
               ng_op_name((enum ng_op)op), NG_LOAD(comm->group->id));
}

/* Threads inside a NCCL call. False: there is none. */
static bool watch_calls(int64_t step_ns, int64_t now_mono_ns)
{
    struct ng_box *box = &ng_guard.box;
    uint32_t used = NG_LOAD(box->header->thread_used);
    bool any = false;

    for (uint32_t i = 0; i < used && i < WATCHED_CALLS; i++) {
        struct ng_box_thread *thread = &box->threads[i];
        struct watched_call *watched = &watched_calls[i];
        uint32_t op = atomic_load_explicit(&thread->op, memory_order_acquire);
        int64_t since = NG_LOAD(thread->since_mono_ns);
        struct ng_comm *comm = comm_of_slot(NG_LOAD(thread->group_slot));
        /* A thread inside a communicator that the guard aborts is covered by the abort's own
         * timer. */
        any |= op != 0;
        if (!op || !NG_LOAD(thread->tid) || is_being_aborted(comm)) {
            watched->since_mono_ns = 0;
            continue;
        }
        bool rests = ng_deadline_rests(comm);
        int64_t step = rests ? 0 : step_ns;
        if (watched->since_mono_ns != since) {
            *watched = (struct watched_call){.since_mono_ns = since,
                                             .age_ns = first_age(since, now_mono_ns, step),
                                             .mark = ng_deadline_mark(comm, since)};
        } else {
            watched->age_ns += step;
        }
        struct ng_alarm alarm = {.group_id = group_id_of_slot(NG_LOAD(thread->group_slot)),
                                 .seq = NG_LOAD(thread->seq),
                                 .op = (enum ng_op)op,
                                 .age_ns = watched->age_ns,
                                 .since_mono_ns = since};
        bool cold = may_be_suspect(alarm.age_ns) && ng_ring_is_cold_call(thread, alarm.op);
        struct bounds bounds = bounds_of_call(comm, thread, alarm.op, cold, watched->mark);
        if (rests) {
            watched->alarmed = 0;
            continue;
        }
        unsigned before = watched->alarmed;
        raise_if_due(&watched->alarmed, &bounds, &alarm, comm ? &comm->totals.stalls : NULL);
        if (!before && watched->alarmed)
            tell_held(comm, op);
    }
    return any;
}

/* Has the communicator been given up since the alarm's clock began to run? Threads inside are
 * already leaving; if one is not, the abort's own timer will catch it. */
static bool was_given_up_since(const struct ng_comm *comm, const struct ng_alarm *alarm)
{
    int64_t begun = ng_clock_mono_ns() - alarm->age_ns + 2 * PAUSE_MAX_NS;

    return ng_comm_is_condemned(comm) && NG_LOAD(comm->group->ended_mono_ns) >= begun;
}

static bool is_in_call(const struct ng_alarm *alarm)
{
    struct ng_box *box = &ng_guard.box;
    uint32_t threads = NG_LOAD(box->header->thread_used);

    for (uint32_t i = 0; i < threads && i < box->thread_capacity; i++) {
        struct ng_box_thread *thread = &box->threads[i];
        const struct ng_comm *comm = comm_of_slot(NG_LOAD(thread->group_slot));
        if (NG_LOAD(thread->op) && NG_LOAD(thread->since_mono_ns) == alarm->since_mono_ns &&
            !(comm && was_given_up_since(comm, alarm)))
            return true;
    }
    return false;
}

/* Without records, sends and receives can be distinguished only by their age. */
static bool is_same_work(const struct ng_box_group *group, const struct ng_alarm *alarm)
{
    return NG_LOAD(group->pending_record) == alarm->record &&
           NG_LOAD(group->pending_seq) == alarm->seq &&
           (alarm->record != UINT64_MAX || alarm->seq ||
            NG_LOAD(group->pending_age_ns) + GRACE_NS >= alarm->age_ns);
}

bool ng_watchdog_still(const struct ng_alarm *alarm)
{
    if (alarm->watchdog)
        return NG_LOAD(ng_guard.box.header->watchdog_stuck_mono_ns) != 0;
    if (alarm->since_mono_ns)
        return is_in_call(alarm);
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        if (alarm->record && is_called(comm->group, alarm->group_id) &&
            is_same_work(comm->group, alarm) && !was_given_up_since(comm, alarm))
            return true;
    }
    return false;
}

/* Restart every clock. */
static void restart_clocks(void)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        struct ng_comm *comm = ng_comm_at(i);
        comm->watch.age_ns = 0;
        forget_alarms(&comm->watch);
        comm->async.raised = false;
    }
    for (uint32_t i = 0; i < WATCHED_CALLS; i++) {
        watched_calls[i].age_ns = 0;
        watched_calls[i].alarmed = 0;
    }
}

/* The works of all communicators. Under round_lock. `relaxed`: this thread may query events. False:
 * none is in flight. */
static bool look_at_works(int64_t step_ns, int64_t now_mono_ns, bool relaxed)
{
    uint32_t count = ng_comm_count();
    bool busy = false;

    for (uint32_t i = 0; i < count && relaxed; i++) {
        struct ng_comm *comm = ng_comm_at(i);
        if (comm->watch.first || atomic_load_explicit(&comm->incoming, memory_order_relaxed) ||
            comm->watch.entered_ns) {
            watch_comm(comm, step_ns, now_mono_ns);
            busy = true;
        }
    }
    return busy;
}

/* One round over everything. Under round_lock. `relaxed`: this thread may query events. False:
 * nothing is under way. */
static bool look(int64_t step_ns, bool relaxed)
{
    int64_t now = ng_clock_mono_ns();

    retired_in_round = 0;
    ng_deadline_expire_suspensions(now);
    uint32_t asked = ng_alarm_restarts();
    if (asked != restarts_seen)
        restart_clocks();
    restarts_seen = asked;
    be_at("cuEventQuery");
    bool busy = look_at_works(step_ns, now, relaxed);
    be_at(own_tables);
    busy |= watch_calls(step_ns, now);
    NG_STORE(ng_guard.box.header->watchdog_mono_ns, now);
    if (ng_guard.follows_memory)
        ng_segments_tell(ng_guard.box.header);
    ng_completion_flush();
    ng_wake_end_round();
    return busy;
}

void ng_watchdog_cut_off(struct ng_comm *comm)
{
    if (NG_LOAD(comm->group->pending_works) || atomic_load(&comm->incoming))
        ng_wake_await_rounds(ng_clock_mono_ns() + CUT_OFF_NS);
    atomic_store(&comm->cut_off, true);
}

void ng_watchdog_meet(void)
{
    if (atomic_exchange(&is_new, false))
        ng_wake_await_rounds(ng_clock_mono_ns() + MEET_NS);
}

static void *watch(void *unused)
{
    int64_t before = ng_clock_mono_ns(), pause = PAUSE_MAX_NS;
    bool relaxed = false;
    uint32_t generation = atomic_load(&ng_guard.generation), quiet_rounds = 0;

    ng_guard.adopt_thread();
    atomic_store(&thread_id, (int)syscall(SYS_gettid));
    while (atomic_load(&ng_guard.generation) == generation) {
        uint32_t seen = ng_wake_watchdog_calls();
        int64_t now = ng_clock_mono_ns(), step = now - before;
        before = now;
        ng_fast_clock_keep(now);
        if (step > pause + GRACE_NS)
            step = pause + GRACE_NS;
        /* Only once there is something to watch: the look-up takes the locks of the dynamic linker
         * and of malloc, and a child created at that moment without fork handlers would find them
         * locked. */
        be_at("the dynamic linker, looking for the CUDA driver");
        if (ng_comm_count() > 0)
            ng_guard_find_cuda();
        be_at("cuThreadExchangeStreamCaptureMode");
        if (!relaxed) {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            relaxed = ng_gpu_relax_thread(&mode);
        }
        be_at("a lock of the guard");
        pthread_mutex_lock(&round_lock);
        bool stop = finished || atomic_load(&quitting), rests = quiet_rounds >= QUIET_ROUNDS;
        /* Before it looks: what begins afterwards wakes it. */
        ng_wake_rest(rests);
        quiet_rounds = stop || look(step, relaxed) ? 0 : quiet_rounds + 1;
        be_at("ncclCommGetAsyncError");
        if (!stop)
            ng_async_look(now, restarts_seen);
        if (!stop)
            ng_nan_report(now, restarts_seen);
        uint32_t retired = retired_in_round;
        pthread_mutex_unlock(&round_lock);
        if (stop)
            break;
        rests = rests && quiet_rounds;
        ng_wake_rest(rests);
        if (pause > PAUSE_MAX_NS)
            pause = PAUSE_MAX_NS;
        /* The number of works finished per pause shows how fast the pools drain: keep it well below
         * their size. */
        if (rests)
            pause = REST_NS;
        else if (retired > NG_GPU_WORKS_MAX / 4)
            pause = pause / 8 > PAUSE_MIN_NS ? pause / 8 : PAUSE_MIN_NS;
        else if (retired < NG_GPU_WORKS_MAX / 16)
            pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
        be_at(own_pause);
        ng_wake_watchdog_await(seen, pause);
    }
    return unused;
}

/* pthread_mutex_timedlock follows the wall clock, which can be set; pthread_mutex_clocklock came
 * with glibc 2.30. */
static bool lock_round(int64_t wait_ns)
{
    int64_t until = ng_clock_mono_ns() + wait_ns;

    while (pthread_mutex_trylock(&round_lock) != 0) {
        if (ng_clock_mono_ns() >= until)
            return false;
        ng_clock_sleep(NG_MS);
    }
    return true;
}

/* Of a round the part that finds finished works, on a program thread. */
static bool look_here(int64_t wait_ns)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (!lock_round(wait_ns))
        return false;
    bool relaxed = !finished && ng_gpu_relax_thread(&mode);
    look_at_works(0, ng_clock_mono_ns(), relaxed);
    if (relaxed)
        ng_gpu_relax_thread(&mode);
    pthread_mutex_unlock(&round_lock);
    return true;
}

int ng_watchdog_start(void)
{
    ng_wake_set_look(look_here);
    int error = ng_guard_thread("ncclguard/watch", watch);

    atomic_store(&is_new, !error);
    return error;
}

bool ng_watchdog_finish(void)
{
    if (!lock_round(NG_S))
        return false;
    if (!finished) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        bool relaxed = ng_gpu_relax_thread(&mode);
        look(0, relaxed);
        ng_nan_report(ng_clock_mono_ns(), restarts_seen); /* at least for its log line */
        if (relaxed)
            ng_gpu_relax_thread(&mode);
    }
    finished = true;
    pthread_mutex_unlock(&round_lock);
    return true;
}

void ng_watchdog_quit(void)
{
    atomic_store(&quitting, true);
    ng_wake_watchdog();
}

void ng_watchdog_where(struct ng_watchdog_activity *ret_activity)
{
    ret_activity->tid = atomic_load(&thread_id);
    ret_activity->what = atomic_load_explicit(&activity, memory_order_relaxed);
    ret_activity->own = ret_activity->what == own_tables || ret_activity->what == own_pause;
}

void ng_watchdog_after_fork(void)
{
    atomic_store(&thread_id, 0);
    atomic_store(&is_new, false);
    atomic_store(&quitting, false);
    round_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    finished = false;
    restarts_seen = ng_alarm_restarts();
    memset(watched_calls, 0, sizeof(watched_calls));
}
