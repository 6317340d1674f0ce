/*
 * NaN checks: scans on the device, and their findings.
 *
 * Runs on the program's threads, and in the watchdog's rounds. Background:
 *
 * A scan is a launch of the guard's kernel (core/check/nan_kernel.h) on the program's stream,
 * before NCCL's. At its end it writes its answer into pinned memory, which the watchdog reads
 * without calling CUDA. The memory is the guard's own mapping, only registered with CUDA, so that
 * it is readable when the context is gone. Each scan has a slot with an answer, and a ticket that
 * distinguishes it from the previous scan in this slot. A thread that needs a slot may reuse one
 * whose scan found nothing, without the watchdog.
 *
 * If the policy of the group is to kill, the stream then waits for a word that the scan writes if
 * nothing was found. Such a wait depends only on earlier work on the same stream, not on other
 * ranks, streams, groups of calls or the host, so it ends at once, unless something was found: then
 * the data of the call never leave this device, as the guard ends the process. If the policy has
 * changed meanwhile, the watchdog writes the word.
 *
 * The kernel is loaded with the first call on a context: that may wait for the context, but at that
 * time no NCCL kernel that waits for other ranks can be running there. Calls that are captured into
 * a CUDA graph are skipped, as their replays do not pass through here.
 *
 * A NaN spreads: a rank that found one may have received it from another rank that found it before.
 * So an alarm waits until every watchdog has had its rounds.
 */
#include "core/check/nan.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>

#include "core/check/arguments.h"
#include "core/check/nan_image.h"
#include "core/check/nan_kernel.h"
#include "core/comm/comm.h"
#include "core/device/gpu.h"
#include "core/nccl/call.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/util/number.h"

#define SCANNERS_MAX 64u           /* contexts */
#define TRIES        16u           /* slots that a call tries */
#define SPREAD_NS    (500 * NG_MS) /* five rounds of an idle watchdog */
#define BLOCKS       8u            /* per multiprocessor: as many threads as it can hold */
#define BLOCK_BYTES  (NG_NAN_THREADS * NG_NAN_UNROLL << NG_NAN_VECTOR_SHIFT)

/* States of a slot. */
enum {
    FREE,
    TAKEN,  /* owned by a program thread */
    FLYING, /* on the stream */
    HELD,   /* owned by the watchdog: something was found, and the stream waits */
};

struct scan {
    _Atomic uint32_t state;
    _Atomic uint32_t ticket; /* of the newest scan here */
    /* Written while TAKEN, read by the watchdog once something was found. */
    bool held; /* the stream waits for the word */
    int dtype;
    enum ng_op op;
    uint64_t group_id, seq, elements;
};

/* States of a scanner. */
enum { LOADING, READY, BROKEN };

/* The kernel in one context. */
struct scanner {
    CUcontext context;
    uint64_t context_id; /* as in struct ng_gpu */
    _Atomic uint32_t state;
    CUfunction function;
    unsigned blocks_max;
    struct ng_nan_answer *answers; /* NG_NAN_SLOTS */
    CUdeviceptr answers_at;        /* as the device sees them */
    struct scan *scans;            /* NG_NAN_SLOTS */
    _Atomic uint64_t next; /* where the search for a slot begins; above all slots ever used */
};

static struct scanner scanners[SCANNERS_MAX] NG_LARGE;
static NG_FORGOTTEN _Atomic uint32_t scanner_count;
/* Held while a slot of the array is taken. */
static NG_FORGOTTEN atomic_flag adding = ATOMIC_FLAG_INIT;

static atomic_bool told_capture, told_refusal;

/* Used by the watchdog only. */
static NG_FORGOTTEN int64_t alarm_mono_ns; /* when to raise an alarm; 0 none */
static NG_FORGOTTEN bool alarmed, alarmed_held;

bool ng_nan_start(void)
{
    if (!ng_nan_image)
        ng_log(NG_LOG_ERROR, "NCCLGUARD_CHECK asks for nan, and this build of ncclguard has no "
                             "kernel for it, as there was no CUDA "
                             "toolkit when it was built: what is sent is not looked through. Build "
                             "it again where nvcc is found "
                             "(PATH, CUDA_HOME, CUDA_PATH, /usr/local/cuda)");
    return ng_nan_image != NULL;
}

/* ---- The kernel in a context ---- */

static bool map_slots(struct scanner *scanner)
{
    size_t answers = NG_NAN_SLOTS * sizeof(struct ng_nan_answer);
    void *map = mmap(NULL, answers + NG_NAN_SLOTS * sizeof(struct scan), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return false;
    scanner->answers = map;
    scanner->scans = (struct scan *)((char *)map + answers);
    return true;
}

/* In the current context. A CUresult. */
static int load(struct scanner *scanner)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    int processors = 0;
    CUmodule module;
    CUdevice device;

    if (!cuda->module_load_data || !cuda->module_get_function || !cuda->launch_kernel ||
        !cuda->mem_host_register || !cuda->mem_host_get_device_pointer)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!map_slots(scanner))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int result =
        (int)cuda->mem_host_register(scanner->answers, NG_NAN_SLOTS * sizeof(struct ng_nan_answer),
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (!result)
        result = (int)cuda->mem_host_get_device_pointer(&scanner->answers_at, scanner->answers, 0);
    if (!result)
        result = (int)cuda->module_load_data(&module, ng_nan_image);
    if (!result)
        result = (int)cuda->module_get_function(&scanner->function, module, "ng_nan_scan");
    /* Otherwise it would be loaded with the first launch, when other work may be under way. */
    if (!result && cuda->function_load)
        result = (int)cuda->function_load(scanner->function);
    if (!result && cuda->device_get_attribute && cuda->ctx_get_device(&device) == CUDA_SUCCESS)
        cuda->device_get_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    scanner->blocks_max = BLOCKS * (unsigned)(processors > 0 ? processors : 1);
    return result;
}

static void load_told(struct scanner *scanner)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = ng_gpu_relax_thread(&mode); /* must not invalidate another thread's capture */
    int result = load(scanner);

    if (relaxed)
        ng_gpu_relax_thread(&mode);
    if (result)
        ng_log(
            NG_LOG_ERROR,
            "NCCLGUARD_CHECK asks for nan, and the kernel for it cannot be loaded: CUDA error %d "
            "(%s); what is sent from this device is not looked through",
            result, ng_cuda_error_text(result));
    atomic_store_explicit(&scanner->state, result ? BROKEN : READY, memory_order_release);
}

static struct scanner *find_scanner(CUcontext context, uint64_t id)
{
    uint32_t count = atomic_load_explicit(&scanner_count, memory_order_acquire);

    return NG_FIND(scanner, scanners, count,
                   scanner->context == context && scanner->context_id == id);
}

/* The scanner of this context, which is the current one; NULL: not available, or not yet. */
static struct scanner *scanner_of(CUcontext context, uint64_t id)
{
    struct scanner *scanner = find_scanner(context, id);

    if (__builtin_expect(!scanner, 0)) {
        if (atomic_flag_test_and_set_explicit(&adding, memory_order_acquire))
            return NULL;
        uint32_t count = atomic_load(&scanner_count);
        bool added = !(scanner = find_scanner(context, id)) && count < SCANNERS_MAX;
        if (added) {
            scanner = &scanners[count];
            scanner->context = context;
            scanner->context_id = id;
            atomic_store(&scanner->state, LOADING);
            atomic_store_explicit(&scanner_count, count + 1, memory_order_release);
        }
        atomic_flag_clear_explicit(&adding, memory_order_release);
        if (added)
            load_told(scanner);
    }
    return scanner && atomic_load_explicit(&scanner->state, memory_order_acquire) == READY ? scanner
                                                                                           : NULL;
}

/* ---- A call ---- */

/* Has the scan in this slot ended, and found nothing? */
static bool is_clean(const struct scanner *scanner, uint32_t slot)
{
    const struct ng_nan_answer *answer = &scanner->answers[slot];

    return __atomic_load_n(&answer->ticket, __ATOMIC_ACQUIRE) ==
               atomic_load_explicit(&scanner->scans[slot].ticket, memory_order_relaxed) &&
           !__atomic_load_n(&answer->bad, __ATOMIC_RELAXED);
}

/* Take a slot, in state TAKEN; NG_NAN_SLOTS: all slots tried are in use. */
static uint32_t take_slot(struct scanner *scanner)
{
    for (unsigned i = 0; i < TRIES; i++) {
        uint32_t slot =
            (uint32_t)(atomic_fetch_add_explicit(&scanner->next, 1, memory_order_relaxed) %
                       NG_NAN_SLOTS);
        uint32_t state = atomic_load_explicit(&scanner->scans[slot].state, memory_order_acquire);
        if ((state == FREE || (state == FLYING && is_clean(scanner, slot))) &&
            atomic_compare_exchange_strong(&scanner->scans[slot].state, &state, TAKEN))
            return slot;
    }
    return NG_NAN_SLOTS;
}

/* The same value in all lanes of a word. */
static uint64_t in_all_lanes(uint64_t value, unsigned shift)
{
    for (unsigned width = 8u << shift; width < 64; width *= 2)
        value |= value << width;
    return value;
}

static unsigned blocks_for(const struct scanner *scanner, uint64_t bytes)
{
    uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    return blocks < scanner->blocks_max ? (unsigned)(blocks ? blocks : 1) : scanner->blocks_max;
}

/* Put on the call's stream: the scan, and then, if held, the wait for its word. A CUresult. */
static int launch(const struct scanner *scanner, uint32_t slot, const struct ng_call *call,
                  const struct ng_number_type *type, bool *held)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    struct scan *scan = &scanner->scans[slot];
    uint64_t highest = UINT64_C(1) << ((8u << type->shift) - 1);
    CUdeviceptr answer = scanner->answers_at + slot * sizeof(struct ng_nan_answer);
    uint32_t ticket = atomic_load_explicit(&scan->ticket, memory_order_relaxed) + 1;
    struct ng_nan_scan argument = {
        .buffer = call->send_buffer,
        .elements = scan->elements,
        .mask = in_all_lanes(highest - 1, type->shift),
        .addend = in_all_lanes(highest - 1 - type->limit, type->shift),
        .answer = (struct ng_nan_answer *)(uintptr_t)answer,
        .shift = type->shift,
        .slot = slot,
        .ticket = ticket ? ticket : 1,
    };
    void *arguments[] = {&argument};

    atomic_store_explicit(&scan->ticket, argument.ticket, memory_order_relaxed);
    int result = (int)cuda->launch_kernel(scanner->function,
                                          blocks_for(scanner, scan->elements << type->shift), 1, 1,
                                          NG_NAN_THREADS, 1, 1, 0, call->stream, arguments, NULL);
    if (!result && *held)
        *held =
            cuda->stream_wait_value32(call->stream, answer + offsetof(struct ng_nan_answer, gate),
                                      argument.ticket, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    return result;
}

static bool is_to_kill(const struct ng_comm *comm, enum ng_op op)
{
    int ruled = NG_LOAD(comm->deadline.policy[op]);

    return (ruled ? ruled - 1 : ng_guard.config.on_timeout) == NG_ON_TIMEOUT_KILL;
}

static void refuse(int result)
{
    if (!atomic_exchange(&told_refusal, true))
        ng_log(NG_LOG_WARN, "CUDA error %d (%s) at a scan for NaN: not every call is looked at",
               result, ng_cuda_error_text(result));
}

/* In the stream's context. */
static void scan_call(const struct ng_call *call, const struct ng_comm *comm,
                      const struct ng_gpu *gpu, const struct ng_number_type *type, uint64_t seq,
                      uint64_t bytes)
{
    struct scanner *scanner = scanner_of(atomic_load(&gpu->context), atomic_load(&gpu->context_id));
    uint32_t slot = scanner ? take_slot(scanner) : NG_NAN_SLOTS;

    if (slot == NG_NAN_SLOTS)
        return;
    struct scan *scan = &scanner->scans[slot];
    bool held = ng_guard.cuda.stream_wait_value32 && is_to_kill(comm, call->op);
    scan->dtype = call->dtype;
    scan->op = call->op;
    scan->group_id = NG_LOAD(comm->group->id);
    scan->seq = seq;
    scan->elements = bytes >> type->shift;
    int result = launch(scanner, slot, call, type, &held);
    scan->held = held;
    atomic_store_explicit(&scan->state, result ? FREE : FLYING, memory_order_release);
    if (result)
        refuse(result);
}

/* Selects one of a fixed number of calls: the same on all ranks, and at varying positions of a
 * program's iteration. */
static bool is_sampled(uint64_t number)
{
    uint64_t every = (uint64_t)ng_guard.config.nan_every;

    return every <= 1 ||
           number % every == (number / every * UINT64_C(0x9e3779b97f4a7c15) >> 32) % every;
}

void ng_nan_look_at(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                    uint64_t p2p_seq)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUcontext current = NULL, unused;
    struct ng_number_type type;
    bool capturing = false;

    if (!is_sampled(seq ? seq : p2p_seq) ||
        !ng_number_type(call->dtype, ng_guard.config.nan_inf, &type))
        return;
    uint64_t bytes = ng_arguments_sent_bytes(call, comm);
    if (!bytes)
        return;
    struct ng_gpu *gpu = ng_gpu_of(comm, call->stream, &capturing);
    if (capturing && !atomic_exchange(&told_capture, true))
        ng_log(NG_LOG_INFO, "calls that go into CUDA graphs are not looked through for NaN");
    if (!gpu || (uintptr_t)call->send_buffer & ((1u << type.shift) - 1))
        return;
    CUcontext context = atomic_load(&gpu->context);
    bool pushed = cuda->ctx_get_current(&current) != CUDA_SUCCESS || current != context;
    if (pushed && cuda->ctx_push(context) != CUDA_SUCCESS)
        return;
    scan_call(call, comm, gpu, &type, seq, bytes);
    if (pushed)
        cuda->ctx_pop(&unused);
}

/* ---- Findings ---- */

static void tell(const struct scan *scan, const struct ng_nan_answer *answer)
{
    char number[64], seq[32] = "";

    ng_number_text(scan->dtype, answer->bits, number, sizeof(number));
    if (scan->seq)
        snprintf(seq, sizeof(seq), " #%" PRIu64, scan->seq);
    ng_log(NG_LOG_WARN,
           "NaN: of %" PRIu64 " elements of %s that this rank sends in %s%s of group %016" PRIx64
           ", %llu are no numbers, the first is element %llu: %s%s",
           scan->elements, ng_dtype_name(scan->dtype), ng_op_name(scan->op), seq, scan->group_id,
           answer->bad, answer->first, number, scan->held ? "; the call is held back" : "");
}

/* Keep a finding for verdicts. A held call is why others wait, so it takes precedence. */
static void keep(const struct scan *scan, const struct ng_nan_answer *answer, int64_t now_mono_ns)
{
    struct ng_box_nan *nan = &ng_guard.box.header->nan;

    NG_STORE(nan->calls, NG_LOAD(nan->calls) + 1);
    if (NG_LOAD(nan->found_mono_ns) && (NG_LOAD(nan->held) || !scan->held))
        return;
    atomic_store_explicit(&nan->found_mono_ns, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    NG_STORE(nan->group_id, scan->group_id);
    NG_STORE(nan->seq, scan->seq);
    NG_STORE(nan->op, scan->op);
    NG_STORE(nan->dtype, scan->dtype);
    NG_STORE(nan->elements, scan->elements);
    NG_STORE(nan->bad, answer->bad);
    NG_STORE(nan->element, answer->first);
    NG_STORE(nan->bits, answer->bits);
    NG_STORE(nan->held, scan->held);
    atomic_store_explicit(&nan->found_mono_ns, now_mono_ns, memory_order_release);
    tell(scan, answer);
    if (!alarmed || (scan->held && !alarmed_held))
        alarm_mono_ns = now_mono_ns + SPREAD_NS;
}

static void look_at_slot(struct scanner *scanner, uint32_t slot, int64_t now_mono_ns)
{
    struct scan *scan = &scanner->scans[slot];
    struct ng_nan_answer *answer = &scanner->answers[slot];
    uint32_t state = atomic_load_explicit(&scan->state, memory_order_acquire);

    if (state == FLYING) {
        uint32_t ticket = __atomic_load_n(&answer->ticket, __ATOMIC_ACQUIRE);
        uint64_t bad = __atomic_load_n(&answer->bad, __ATOMIC_RELAXED);
        /* A slot whose scan found something is not reused: if the ticket is still the same, it
         * stays the same. */
        atomic_thread_fence(memory_order_acquire);
        if (ticket != atomic_load_explicit(&scan->ticket, memory_order_relaxed) || !bad ||
            ticket != __atomic_load_n(&answer->ticket, __ATOMIC_RELAXED) ||
            atomic_load_explicit(&scan->state, memory_order_acquire) != FLYING)
            return;
        keep(scan, answer, now_mono_ns);
        state = scan->held ? HELD : FREE;
        atomic_store_explicit(&scan->state, state, memory_order_release);
    }
    if (state == HELD && ng_deadline_policy(scan->group_id, scan->op) != NG_ON_TIMEOUT_KILL) {
        __atomic_store_n(&answer->gate, atomic_load(&scan->ticket), __ATOMIC_RELEASE);
        atomic_store_explicit(&scan->state, FREE, memory_order_release);
    }
}

static void raise_alarm(int64_t now_mono_ns, uint32_t restarts)
{
    const struct ng_box_nan *nan = &ng_guard.box.header->nan;
    struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                             .nan = true,
                             .group_id = NG_LOAD(nan->group_id),
                             .seq = NG_LOAD(nan->seq),
                             .op = (enum ng_op)NG_LOAD(nan->op),
                             .age_ns = now_mono_ns - NG_LOAD(nan->found_mono_ns),
                             .restarts = restarts};

    alarm_mono_ns = 0;
    alarmed = true;
    alarmed_held = NG_LOAD(nan->held);
    ng_alarm_raise(&alarm);
}

void ng_nan_report(int64_t now_mono_ns, uint32_t restarts)
{
    uint32_t count = atomic_load_explicit(&scanner_count, memory_order_acquire);

    NG_EACH (scanner, scanners, count) {
        if (atomic_load_explicit(&scanner->state, memory_order_acquire) != READY)
            continue;
        uint64_t used = atomic_load_explicit(&scanner->next, memory_order_relaxed);
        for (uint32_t slot = 0; slot < used && slot < NG_NAN_SLOTS; slot++)
            look_at_slot(scanner, slot, now_mono_ns);
    }
    if (alarm_mono_ns && now_mono_ns >= alarm_mono_ns)
        raise_alarm(now_mono_ns, restarts);
}
