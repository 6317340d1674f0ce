/*
 * Waiting for the device on the program's behalf.
 *
 * Entered by the program's threads, any number at once; the incident thread provides the verdict.
 * Must never hold a lock, nor sleep in a cancellation point: a thread must leave a call by
 * returning.
 */
#include "core/device/device_wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/gate.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define QUICK_LOOKS     16 /* queries before sleep: small collectives take some microseconds */
#define SLEEP_MIN_NS    (20 * NG_US)
#define SLEEP_MAX_NS    NG_MS
#define STEP_MAX_NS     NG_S /* of the time counted between two queries; the rest was a standstill */
#define VERDICT_WAIT_NS (5 * NG_S) /* beyond the wait for dumps */

/* ---- The newest verdict ---- */

#define LINE_WORDS (NG_COMM_REASON_BYTES / 8)

/* Written only by the incident thread. Odd while it writes; else twice the number of verdicts. */
static NG_FORGOTTEN _Atomic uint32_t told;
static _Atomic uint64_t told_line[LINE_WORDS];
static _Atomic uint32_t told_kind;   /* enum ng_verdict_kind */
static _Atomic uint32_t told_policy; /* enum ng_on_timeout */
/* The process is to be ended: all waits that began before the verdict with this number return it; 0
 * none. And the number of the verdict that a call has returned as its error. */
static NG_FORGOTTEN _Atomic uint32_t notice, taken;
static _Atomic int64_t notice_mono_ns;

uint32_t ng_device_wait_newest(void)
{
    return atomic_load(&told);
}

void ng_device_wait_tell(enum ng_verdict_kind kind, const char *line, enum ng_on_timeout policy)
{
    uint64_t words[LINE_WORDS] = {0};
    uint32_t before = atomic_load_explicit(&told, memory_order_relaxed);

    memcpy(words, line, strnlen(line, sizeof(words) - 1));
    atomic_store(&told, before + 1);
    for (size_t i = 0; i < LINE_WORDS; i++)
        atomic_store(&told_line[i], words[i]);
    atomic_store(&told_kind, (uint32_t)kind);
    atomic_store(&told_policy, (uint32_t)policy);
    atomic_store(&told, before + 2);
}

bool ng_device_wait_get_verdict(uint32_t before, struct ng_comm_reason *ret_verdict,
                                enum ng_on_timeout *ret_policy)
{
    uint64_t words[LINE_WORDS];
    uint32_t now = atomic_load(&told);

    if (now == before || now % 2)
        return false;
    for (size_t i = 0; i < LINE_WORDS; i++)
        words[i] = atomic_load(&told_line[i]);
    uint32_t kind = atomic_load(&told_kind), policy = atomic_load(&told_policy);
    if (atomic_load(&told) != now)
        return false;
    *ret_policy = (enum ng_on_timeout)policy;
    ret_verdict->kind = (enum ng_verdict_kind)kind;
    memcpy(ret_verdict->text, words, sizeof(words));
    return true;
}

void ng_device_wait_fail_all(enum ng_verdict_kind kind, const char *line)
{
    ng_device_wait_tell(kind, line, NG_ON_TIMEOUT_KILL);
    atomic_store(&notice_mono_ns, ng_clock_mono_ns());
    atomic_store(&notice, ng_device_wait_newest());
}

void ng_device_wait_note_error(const struct ng_comm *comm)
{
    uint32_t number = atomic_load(&notice);

    if (number && comm && ng_comm_is_condemned(comm) &&
        comm->abort.until_mono_ns >= atomic_load(&notice_mono_ns) + ng_guard.config.abort_wait_ns)
        atomic_store(&taken, number);
}

bool ng_device_wait_is_taken(void)
{
    uint32_t number = atomic_load(&notice);

    return number && atomic_load(&taken) == number;
}

/* ---- One wait ---- */

void ng_device_wait_expire(uint32_t slot, int64_t entered_mono_ns)
{
    if (slot < ng_comm_count())
        atomic_store(&ng_comm_at(slot)->wait.overdue_mono_ns, entered_mono_ns);
}

struct wait {
    struct ng_comm *comm;
    int64_t entered_mono_ns;
    uint32_t told_before;
    int64_t looked_mono_ns, sleep_ns;
    int64_t waited_ns;  /* in this thread's own running time */
    int64_t overdue_ns; /* part of it since the deadline was seen to have passed */
    unsigned looks;
};

struct ng_async_op *ng_device_wait_begin(struct ng_gpu *gpu, void *stream)
{
    struct ng_async_op *waiter = ng_gpu_take(gpu);

    if (waiter && !ng_gpu_record(gpu, waiter->end, stream)) {
        ng_gpu_give(waiter);
        waiter = NULL;
    }
    return waiter;
}

static void sleep_some(struct wait *wait)
{

    if (wait->looks++ < QUICK_LOOKS)
        return;
    ng_clock_sleep(wait->sleep_ns);
    wait->sleep_ns += wait->sleep_ns / 2;
    wait->sleep_ns = NG_MIN(wait->sleep_ns, SLEEP_MAX_NS);
}

/*
 * Has the watchdog raised the alarm for this work, or for one before it? It ages only the oldest
 * work: work behind one that is already past its deadline is timed by this thread's own clock,
 * which also applies if the watchdog itself is stuck.
 */
static bool is_overdue(const struct wait *wait)
{
    int64_t overdue = atomic_load(&wait->comm->wait.overdue_mono_ns);

    if (wait->entered_mono_ns <= overdue)
        return true;
    int64_t timeout_ns = NG_LOAD(wait->comm->group->timeout_ns);
    return (overdue || NG_LOAD(ng_guard.box.header->watchdog_stuck_mono_ns)) && timeout_ns > 0 &&
           wait->waited_ns >= timeout_ns;
}

static void keep_time(struct wait *wait)
{
    int64_t now = ng_clock_mono_ns(), step = now - wait->looked_mono_ns;

    wait->looked_mono_ns = now;
    step = NG_MIN(step, STEP_MAX_NS);
    if (NG_LOAD(wait->comm->group->rests))
        step = 0;
    wait->waited_ns += step;
    if (wait->overdue_ns || is_overdue(wait))
        wait->overdue_ns += step + 1;
}

/* Is the process to be ended, and did this wait begin before that was announced? */
static bool is_given_notice(const struct wait *wait)
{
    uint32_t number = atomic_load(&notice);

    return number && (int32_t)(number - wait->told_before) > 0;
}

/* Has the deadline passed, and is returning an error the only consequence, or the first one? */
static bool has_failed(const struct wait *wait, struct ng_comm_reason *ret_reason)
{
    int64_t bound_ns = ng_guard.config.dump_wait_ns + VERDICT_WAIT_NS;
    enum ng_on_timeout policy = ng_deadline_policy(NG_LOAD(wait->comm->group->id), NG_OP_NONE);

    if (!wait->overdue_ns && !is_given_notice(wait))
        return false;
    bool heard = ng_device_wait_get_verdict(wait->told_before, ret_reason, &policy);
    if (heard && is_given_notice(wait))
        return true;
    if (!heard && atomic_load(&wait->comm->wait.failed)) {
        /* The verdict on the work that is still ahead of it. */
        *ret_reason = wait->comm->wait.reason;
        heard = true;
    }
    if (heard && policy == NG_ON_TIMEOUT_LOG)
        return true;
    /* It may be about another group, whose abort does not unblock this one. */
    if (policy != NG_ON_TIMEOUT_LOG)
        bound_ns += ng_guard.config.abort_wait_ns;
    if (wait->overdue_ns < bound_ns)
        return false;
    if (heard)
        return true;
    ret_reason->kind = NG_KIND_HEALTHY;
    snprintf(ret_reason->text, sizeof(ret_reason->text),
             "a call on group %016" PRIx64 " has not finished within its deadline; no verdict came",
             NG_LOAD(wait->comm->group->id));
    return true;
}

static int fail(struct ng_comm *comm, const struct ng_comm_reason *reason)
{
    atomic_store(&comm->wait.failed, false);
    comm->wait.reason = *reason;
    atomic_store(&comm->wait.failed, true);
    atomic_store(&taken, atomic_load(&notice));
    return ng_gate_result(comm, reason->kind, reason->text);
}

/* The error of an abort is one as well: whoever has it needs no end. */
static int fail_aborted(const struct wait *wait)
{
    if (is_given_notice(wait))
        atomic_store(&taken, atomic_load(&notice));
    return wait->comm->abort.result;
}

static int wait_for(struct wait *wait, const struct ng_async_op *waiter)
{
    struct ng_comm_reason reason;

    for (;; sleep_some(wait)) {
        /* Order matters: an abort also ends the work on the device, but sets its flag before. */
        enum ng_gpu_state state = ng_gpu_ended(waiter);
        uint32_t fate = atomic_load(&wait->comm->fate);
        if (fate == NG_FATE_ABORTED)
            return fail_aborted(wait);
        if (state != NG_GPU_PENDING && fate < NG_FATE_CONDEMNED) {
            if (atomic_load(&wait->comm->wait.failed))
                atomic_store(&wait->comm->wait.failed, false);
            return NG_NCCL_SUCCESS;
        }
        if (fate >= NG_FATE_CONDEMNED && ng_clock_mono_ns() > wait->comm->abort.until_mono_ns)
            return fail_aborted(wait);
        if (wait->looks < QUICK_LOOKS)
            continue;
        keep_time(wait);
        if (has_failed(wait, &reason))
            return fail(wait->comm, &reason);
    }
}

int ng_device_wait_end(struct ng_comm *comm, struct ng_async_op *waiter, int64_t entered_mono_ns,
                       uint32_t newest)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct wait wait = {.comm = comm,
                        .entered_mono_ns = entered_mono_ns,
                        .told_before = newest,
                        .looked_mono_ns = ng_clock_mono_ns(),
                        .sleep_ns = SLEEP_MIN_NS};

    if (!waiter)
        return NG_NCCL_SUCCESS;
    /* Another thread may be capturing: this thread's queries must not invalidate that. */
    bool relaxed = ng_gpu_relax_thread(&mode);
    bool entered = ng_gpu_enter_context(waiter->gpu);
    int result = wait_for(&wait, waiter);
    if (entered)
        ng_gpu_leave_context();
    if (relaxed)
        ng_gpu_relax_thread(&mode);
    ng_gpu_give(waiter);
    return result;
}

const char *ng_device_wait_reason(const struct ng_comm *comm)
{
    return atomic_load(&comm->wait.failed) ? comm->wait.reason.text : NULL;
}
