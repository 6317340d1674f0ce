/*
 * Stand-ins for several copies of NCCL and two devices: only the functions that core calls.
 */
#include "tests/unit/core/helpers/made_calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/call/work_call.h"
#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/comm/deadline.h"
#include "core/comm/gate.h"
#include "core/comm/in_flight_calls.h"
#include "core/device/async.h"
#include "core/fault/inject.h"
#include "core/lifecycle/lifecycle.h"
#include "core/nccl/call.h"
#include "core/policy/abort.h"
#include "core/recorder/durations.h"
#include "core/recorder/fault_log.h"
#include "core/registration/registration_table.h"
#include "core/registration/registrations.h"
#include "core/runtime/runtime.h"
#include "core/runtime/unusual.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/watchdog/watchdog.h"
#include "tests/unit/core/helpers/answers.h"

#define LIBRARIES 3
#define PATIENCE  (20 * NG_S)

struct made_calls made_calls;

/* ---- Devices ---- */

struct CUctx_st {
    _Atomic unsigned long long id;
    _Atomic int error;
};
struct CUstream_st {
    CUcontext context;
    atomic_bool beside_default; /* it does not wait for the default stream, nor that for it */
};
struct CUevent_st {
    CUcontext context;
    unsigned long long id; /* of the context, when the event was made */
    atomic_bool recorded;
    atomic_bool holds; /* recorded while made_calls.holds_recorded */
    bool timed;
    struct CUevent_st *next; /* of all that were ever made: stale handles are looked at as well */
};

static struct CUctx_st contexts[2] = {{.id = 1}, {.id = 2}};
static struct CUstream_st streams[2] = {{.context = &contexts[0]}, {.context = &contexts[1]}};
static _Atomic unsigned long long next_id = 3;
static _Atomic(struct CUevent_st *) events;
static __thread CUcontext current;

CUDA_ANSWER(ctx_get_current, (CUcontext * context), *context = current)
CUDA_ANSWER(ctx_set_current, (CUcontext context), current = context)
CUDA_ANSWER(ctx_pop, (CUcontext * context), *context = current; current = NULL)
CUDA_ANSWER(ctx_get_device, (CUdevice * device), *device = current == &contexts[1])
CUDA_ANSWER(primary_ctx_retain, (CUcontext * context, CUdevice device),
            *context = &contexts[device == 1])
CUDA_ANSWER(primary_ctx_release, (CUdevice device))
CUDA_ANSWER(stream_get_ctx, (CUstream stream, CUcontext *context), *context = stream->context)
CUDA_ANSWER(stream_get_flags, (CUstream stream, unsigned *flags),
            *flags = atomic_load(&stream->beside_default) ? CU_STREAM_NON_BLOCKING
                                                          : CU_STREAM_DEFAULT)

void made_beside_default(unsigned context, bool beside)
{
    atomic_store(&streams[context].beside_default, beside);
}

void made_enter_context(unsigned context)
{
    current = &contexts[context];
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    errno = EREMOTEIO; /* as a driver may */
    *status = made_calls.captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static __thread CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUresult thread_exchange_capture_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = capture_mode;
    static __thread bool counted;

    made_calls.mode_exchanges++;
    made_calls.relaxed_threads += !counted;
    counted = true;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static _Atomic int elapsed_error;
static _Atomic float elapsed_ms = 1;

static CUresult event_create(CUevent *event, unsigned flags)
{
    bool timed = !(flags & CU_EVENT_DISABLE_TIMING);

    made_calls.timing_events += timed;
    made_calls.plain_events += !timed;
    made_calls.relaxed_events += capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    if (timed && made_calls.timing_refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (current->error)
        return (CUresult)current->error;
    struct CUevent_st *made = calloc(1, sizeof(*made));
    made->context = current;
    made->id = current->id;
    made->timed = timed;
    made->next = events;
    while (!atomic_compare_exchange_weak(&events, &made->next, made))
        ;
    *event = made;
    return CUDA_SUCCESS;
}

CUDA_ANSWER(event_destroy, (CUevent event), event->id = 0)

static CUresult event_state(CUevent event)
{
    if (event->id != event->context->id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)event->context->error;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    CUresult result = event_state(event);

    errno = EREMOTEIO;
    if (result == CUDA_SUCCESS && stream && stream->context != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        made_calls.recorded_events++;
        atomic_store(&event->holds, made_calls.holds_recorded);
        atomic_store(&event->recorded, true);
    }
    return result;
}

CUDA_ANSWER(launch_host_func, (CUstream stream, CUhostFn function, void *argument))

static CUresult event_query(CUevent event)
{
    CUresult result = event_state(event);

    made_calls.event_queries++;
    if (made_calls.query_us)
        usleep(made_calls.query_us);
    if (result != CUDA_SUCCESS)
        return result;
    bool pending = (made_calls.held && atomic_load(&event->recorded)) || atomic_load(&event->holds);
    return pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent start, CUevent end)
{
    CUresult result = event_state(end);

    if (result == CUDA_SUCCESS)
        result = event_state(start);
    if (result != CUDA_SUCCESS)
        return result;
    if (!start->timed || !end->timed || !atomic_load(&start->recorded) ||
        !atomic_load(&end->recorded))
        return CUDA_ERROR_INVALID_HANDLE;
    *ms = atomic_load(&elapsed_ms);
    return (CUresult)atomic_load(&elapsed_error);
}

CUDA_ANSWER(ctx_get_id, (CUcontext context, unsigned long long *id), *id = context->id)
CUDA_ANSWER(device_get_pci_bus_id, (char *text, int bytes, CUdevice device),
            snprintf(text, (size_t)bytes, "0000:%02X:00.0", 0x1a + device))

static bool find_cuda(struct ng_cuda *ret_cuda)
{
    *ret_cuda = (struct ng_cuda){
        .loaded = true,
        .ctx_get_current = ctx_get_current,
        .ctx_set_current = ctx_set_current,
        .ctx_push = ctx_set_current,
        .ctx_pop = ctx_pop,
        .ctx_get_device = ctx_get_device,
        .primary_ctx_retain = primary_ctx_retain,
        .primary_ctx_release = primary_ctx_release,
        .stream_get_ctx = stream_get_ctx,
        .stream_get_flags = stream_get_flags,
        .stream_is_capturing = stream_is_capturing,
        .thread_exchange_capture_mode = thread_exchange_capture_mode,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_query = event_query,
        .launch_host_func = launch_host_func,
        .event_elapsed = event_elapsed,
        .ctx_get_id = ctx_get_id,
        .device_get_pci_bus_id = device_get_pci_bus_id,
    };
    return true;
}

void made_elapsed(int error, float ms)
{
    atomic_store(&elapsed_error, error);
    atomic_store(&elapsed_ms, ms);
}

void *made_stream(unsigned context)
{
    return &streams[context];
}

void made_release_recorded(void)
{
    made_calls.holds_recorded = false;
    for (struct CUevent_st *event = atomic_load(&events); event; event = event->next)
        atomic_store(&event->holds, false);
}

void made_fail(unsigned context, int error)
{
    contexts[context].error = error;
}

void made_reset(unsigned context)
{
    contexts[context].error = 0;
    contexts[context].id = next_id++;
}

void made_number_contexts(bool numbered)
{
    ng_guard.cuda.ctx_get_id = numbered ? ctx_get_id : NULL;
}

/* ---- Libraries ---- */

static void *unfinished; /* the handle that is still in progress */

/* Of one communicator at a time. */
static _Atomic(const void *) erroneous, asked_about;
static _Atomic int async_error;
static _Atomic unsigned asked_count;
static _Atomic bool asked_counted;

void made_set_async_error(const void *comm, int error)
{
    atomic_store(&async_error, error);
    atomic_store(&erroneous, comm);
}

unsigned made_asked(const void *comm)
{
    if (atomic_exchange(&asked_about, comm) != comm)
        atomic_store(&asked_count, 0);
    return atomic_load(&asked_count);
}

bool made_question_was_counted(void)
{
    return atomic_load(&asked_counted);
}

static int get_async_error(void *comm, int *ret_error)
{
    struct timespec pause = {.tv_nsec = NG_MS};

    if (comm == atomic_load(&asked_about))
        atomic_fetch_add(&asked_count, 1);
    if (ng_comm_find(comm))
        atomic_store(&asked_counted, ng_async_asks(ng_comm_find(comm)));
    while (made_calls.answers_held)
        nanosleep(&pause, NULL);
    *ret_error = comm == unfinished                ? NG_NCCL_IN_PROGRESS
                 : comm == atomic_load(&erroneous) ? atomic_load(&async_error)
                                                   : NG_NCCL_SUCCESS;
    return NG_NCCL_SUCCESS;
}

static const char *get_last_error(void *comm)
{
    return "what NCCL said last";
}

/* Aborts that the libraries saw. */
#define ABORTS 4096
static struct {
    void *comm;
    unsigned group;
} aborts[ABORTS];
static _Atomic unsigned abort_count;
static _Atomic unsigned groups_begun;
static __thread unsigned group_now;

/* NCCL frees what is being aborted. */
static void free_aborted(void)
{
    NG_EACH_COMM (comm)
        made_calls.freed_under +=
            atomic_load(&comm->fate) == NG_FATE_ABORTING && ng_in_flight_inside(comm);
}

static int comm_abort(void *comm)
{
    struct timespec pause = {.tv_nsec = NG_MS};
    void (*function)(void *) = made_calls.on_abort;

    unsigned index = atomic_fetch_add(&abort_count, 1);
    aborts[index % ABORTS].group = group_now;
    __atomic_store_n(&aborts[index % ABORTS].comm, comm, __ATOMIC_RELEASE);
    if (function)
        function(comm);
    while (made_calls.aborts_held)
        nanosleep(&pause, NULL);
    if (!group_now)
        free_aborted();
    return NG_NCCL_SUCCESS;
}

NCCL_ANSWER(comm_cu_device, (const void *comm, int *ret_device), *ret_device = 1)
NCCL_ANSWER(group_start, (void), group_now = ++groups_begun)
NCCL_ANSWER(group_end, (void), group_now = 0, free_aborted())

/* Only the guard calls it, in a NCCL group that shall fail. */
static int all_reduce(const void *send, void *receive, size_t count, int dtype, int redop,
                      void *comm, void *stream)
{
    if (comm)
        abort();
    made_calls.spoiled++;
    return NG_NCCL_INVALID_ARGUMENT;
}

unsigned made_aborts(const void *comm)
{
    unsigned count = 0;

    for (unsigned i = 0; i < atomic_load(&abort_count) && i < ABORTS; i++)
        count += __atomic_load_n(&aborts[i].comm, __ATOMIC_ACQUIRE) == comm;
    return count;
}

unsigned made_abort_group(const void *comm)
{
    for (unsigned i = 0; i < atomic_load(&abort_count) && i < ABORTS; i++)
        if (__atomic_load_n(&aborts[i].comm, __ATOMIC_ACQUIRE) == comm)
            return aborts[i].group;
    return 0;
}

unsigned made_abort_place(const void *comm)
{
    for (unsigned i = 0; i < atomic_load(&abort_count) && i < ABORTS; i++)
        if (__atomic_load_n(&aborts[i].comm, __ATOMIC_ACQUIRE) == comm)
            return i + 1;
    return 0;
}

static struct ng_nccl libraries[LIBRARIES];

void made_set_version(unsigned library, int version)
{
    libraries[library].version = version;
}

/* One that nobody else has. */
NCCL_ANSWER(get_unique_id, (struct ng_nccl_unique_id * ret_id), memset(ret_id, 0x5a, 128))

static void adopt_nothing(void)
{
}

void made_begin(int64_t records)
{
    for (unsigned i = 0; i < LIBRARIES; i++)
        libraries[i] = (struct ng_nccl){.index = i,
                                        .version = 22800 + (int)i,
                                        .path = "",
                                        .comm_abort = comm_abort,
                                        .comm_cu_device = comm_cu_device,
                                        .group_start = group_start,
                                        .group_end = group_end,
                                        .all_reduce = all_reduce,
                                        .comm_get_async_error = get_async_error,
                                        .get_last_error = get_last_error,
                                        .get_unique_id = get_unique_id};
    ng_guard.config.trace_size = records;
    ng_guard.launch.rank = 0;
    ng_guard.launch.world_size = 2;
    ng_guard.find_cuda = find_cuda;
    ng_guard.adopt_thread = adopt_nothing;
    ng_guard.start_parts = ng_lifecycle_start;
    ng_guard.forget_parts = ng_lifecycle_after_fork;
}

void made_set_timing(int mode)
{
    ng_guard.config.timing = mode;
    ng_comm_set_timing(mode);
}

struct ng_config *made_settings(void)
{
    return &ng_guard.config;
}

const struct ng_box *made_box(void)
{
    return &ng_guard.box;
}

void *made_handle(void)
{
    static char handles[8192][64];
    static _Atomic unsigned used;

    return handles[used++ % 8192];
}

void made_set_timeout(const void *comm, int64_t timeout_ms)
{
    ng_deadline_set_timeout(ng_comm_find(comm)->group->id, timeout_ms * NG_MS);
}

static __thread struct made_seen seen; /* by this thread */

void made_arm(const char *faults)
{
    ng_inject_configure(faults);
}

struct made_seen made_seen(void)
{
    return seen;
}

uint64_t made_happened(unsigned index, uint64_t *ret_seq)
{
    struct ng_logged_fault fault = {0};

    ng_fault_log_read(&ng_guard.box, index, &fault);
    if (ret_seq)
        *ret_seq = fault.seq;
    return fault.times;
}

static void see(const struct ng_call *call)
{
    seen = (struct made_seen){.op = call->op,
                              .count = call->count,
                              .dtype = call->dtype,
                              .redop = call->redop,
                              .root = call->root,
                              .nranks = call->creation ? call->creation->nranks : 0};
    if (call->creation && call->creation->unique_ids)
        memcpy(seen.unique_id, call->creation->unique_ids, sizeof(seen.unique_id));
}

unsigned made_open_groups(void)
{
    unsigned open = 0;

    for (uint32_t i = 0; i < ng_guard.box.thread_capacity; i++)
        open +=
            NG_LOAD(ng_guard.box.threads[i].tid) && NG_LOAD(ng_guard.box.threads[i].group_depth);
    return open;
}

/* Only for library 0, and while no other has an open group: the wrappers have only one library. */
static bool takes_short_way(const struct ng_call *call, enum ng_op_class op_class)
{
    static _Atomic int wanted = -1;

    if (wanted < 0)
        wanted = getenv("NG_TEST_SHORT_WAY") != NULL;
    if (!wanted || call->nccl->index != 0 || !made_is_usual() ||
        !ng_thread_is_known(ng_this_thread) ||
        ng_this_thread->open_groups != ng_this_thread->first.depth)
        return false;
    return op_class == NG_CLASS_GROUP ||
           ((op_class == NG_CLASS_COLLECTIVE || op_class == NG_CLASS_P2P) &&
            ng_thread_find_comm(ng_this_thread, call->comm) &&
            ng_work_is_short(ng_this_thread, op_class == NG_CLASS_P2P));
}

/* As a wrapper does it, for the start or the end of an NCCL group. */
static int through_short_group(const struct ng_call *call, int result, int (*inside)(void *),
                               void *argument)
{
    struct ng_thread *thread = ng_this_thread;

    int answer = call->op != NG_OP_GroupStart || thread->open_groups
                     ? ng_group_calls_enter(call, thread)
                     : NG_CALL_PROCEED;
    if (answer != NG_CALL_PROCEED)
        return answer;
    made_calls.reached++;
    see(call);
    if (inside)
        result = inside(argument);
    if (call->op != NG_OP_GroupStart || result != NG_NCCL_SUCCESS)
        return ng_group_calls_leave(call, thread, result);
    ng_group_calls_open(&thread->first, thread);
    return result;
}

/* As a wrapper does it, for a usual call. */
static int through_short_way(const struct ng_call *call, bool p2p, int result,
                             int (*inside)(void *), void *argument)
{
    struct ng_thread *thread = ng_this_thread;
    struct ng_call_context context;

    int answer = ng_work_enter(call, p2p, true, thread, ng_thread_find_comm(thread, call->comm),
                               p2p ? &thread->first : NULL, &context);
    if (answer != NG_CALL_PROCEED)
        return answer;
    made_calls.reached++;
    see(call);
    if (inside)
        result = inside(argument);
    if (p2p || context.work)
        return ng_work_leave(call, p2p, true, thread, &context, result);
    NG_WORK_COPY(call, &context, thread);
    return ng_collective_leave(&call_copy, &context_copy, result);
}

/* `inside` runs in NCCL's place, and its value is what NCCL returns; NULL: `result` is. */
static int through_core(const struct ng_call *call, struct ng_injection *injection, int result,
                        int (*inside)(void *), void *argument)
{
    struct ng_call_context context;
    enum ng_op_class op_class = ng_op_table[call->op].op_class;

    if (takes_short_way(call, op_class))
        return op_class == NG_CLASS_GROUP
                   ? through_short_group(call, result, inside, argument)
                   : through_short_way(call, op_class == NG_CLASS_P2P, result, inside, argument);
    int answer = op_class == NG_CLASS_COLLECTIVE ? ng_collective_enter(call, &context)
                 : op_class == NG_CLASS_P2P      ? ng_p2p_enter(call, &context)
                                                 : ng_call_enter(call, &context);
    if (answer != NG_CALL_PROCEED)
        return answer;
    if (!injection || !injection->replaces) {
        made_calls.reached++;
        see(call);
        if (inside)
            result = inside(argument);
    } else {
        result = injection->result;
    }
    if (injection)
        result = ng_inject_result(call, injection, result);
    if (op_class == NG_CLASS_COLLECTIVE)
        return ng_collective_leave(call, &context, result);
    if (op_class == NG_CLASS_P2P)
        return ng_p2p_leave(call, &context, result);
    return ng_call_leave(call, &context, result);
}

static int through_with(const struct ng_call *call, int result, int (*inside)(void *),
                        void *argument)
{
    struct ng_call changed = *call;
    struct ng_injection injection;

    if (!ng_inject_armed)
        return through_core(call, NULL, result, inside, argument);
    int answer = ng_inject_enter(&changed, &injection);
    if (answer == NG_CALL_PROCEED)
        answer = through_core(&changed, &injection, result, inside, argument);
    ng_inject_done(&injection);
    while (ng_inject_following(&injection, &changed))
        ng_inject_followed(&changed, through_core(&changed, NULL, NG_NCCL_SUCCESS, NULL, NULL));
    return answer;
}

static int through(const struct ng_call *call, int result)
{
    return through_with(call, result, NULL, NULL);
}

#define CALL(api, library, ...)                                                                    \
    (&(const struct ng_call){.op = NG_OP_##api,                                                    \
                             .nccl = &libraries[library],                                          \
                             .dtype = -1,                                                          \
                             .redop = -1,                                                          \
                             .root = -1,                                                           \
                             __VA_ARGS__})
#pragma GCC diagnostic ignored "-Woverride-init"

/* A unique id for each handle and library: all are groups of their own. */
static void make_id(char id[128], unsigned library, const void *handle)
{
    static _Atomic unsigned made;
    unsigned number = ++made;

    memset(id, 0, 128);
    memcpy(id, &handle, sizeof(handle));
    memcpy(id + 16, &library, sizeof(library));
    memcpy(id + 32, &number, sizeof(number));
}

/* NCCL writes the handle while the call is under way. */
struct written {
    void *comm, **new_comm;
    int result;
};

static int write_handle(void *argument)
{
    const struct written *written = argument;

    if (written->result == NG_NCCL_SUCCESS)
        *written->new_comm = written->comm;
    return written->result;
}

void made_init(unsigned library, void *comm, int nranks, int rank, const void *config, int result)
{
    char id[128];
    void *handle = NULL;
    struct written written = {comm, &handle, result};

    make_id(id, library, comm);
    struct ng_creation creation = {.unique_ids = id,
                                   .unique_id_count = 1,
                                   .nranks = nranks,
                                   .rank = rank,
                                   .config = config,
                                   .new_comm = &handle};
    through_with(CALL(CommInitRankConfig, library, .creation = &creation), result, write_handle,
                 &written);
}

void made_split(unsigned library, void *parent, void *child)
{
    void *handle = NULL;
    struct written written = {child, &handle, NG_NCCL_SUCCESS};
    struct ng_creation creation = {.rank = -1, .new_comm = &handle};

    through_with(CALL(CommSplit, library, .comm = parent, .creation = &creation), NG_NCCL_SUCCESS,
                 write_handle, &written);
}

void made_init_later(unsigned library, void **comm, void *handle, int nranks)
{
    char id[128];

    make_id(id, library, handle);
    struct ng_creation creation = {
        .unique_ids = id, .unique_id_count = 1, .nranks = nranks, .rank = 0, .new_comm = comm};
    through(CALL(CommInitRank, library, .creation = &creation), NG_NCCL_SUCCESS);
    *comm = handle;
}

struct made_all {
    void **comms, **new_comms;
    int ndev;
};

NCCL_ANSWER(write_handles, (void *argument), const struct made_all *all = argument;
            memcpy(all->new_comms, all->comms, (size_t)all->ndev * sizeof(void *)))

void made_init_all(unsigned library, void **comms, int ndev)
{
    void *handles[16] = {NULL};
    struct made_all all = {comms, handles, ndev};
    struct ng_creation creation = {.nranks = ndev, .rank = -1, .new_comm = handles};

    through_with(CALL(CommInitAll, library, .creation = &creation), NG_NCCL_SUCCESS, write_handles,
                 &all);
}

int made_call(unsigned library, const struct made_call *what)
{
    char id[128];
    struct ng_creation creation = {
        .unique_ids = id, .unique_id_count = 1, .nranks = 2, .rank = 0, .new_comm = what->new_comm};
    struct ng_call call = {.op = (enum ng_op)what->op,
                           .nccl = &libraries[library],
                           .comm = what->comm,
                           .stream = what->stream,
                           .recv_buffer = what->answer,
                           .dtype = 7,
                           .redop = 0,
                           .root = -1,
                           .count = 4};

    make_id(id, library, what->new_comm);
    if (what->new_comm)
        call.creation = &creation;
    if (what->op == NG_OP_Send || what->op == NG_OP_Recv)
        call.root = 1;
    if (what->op == NG_OP_CommSplit)
        creation.unique_ids = NULL;
    return through_with(&call, NG_NCCL_SUCCESS, what->inside, what->argument);
}

int made_passed(const void *comm)
{
    struct ng_comm *guest;
    int answer = ng_gate_visit(comm, &guest);

    ng_gate_leave(guest);
    return answer;
}

const char *made_last_error(const void *comm)
{
    return ng_abort_reason(comm);
}

int made_abort(uint64_t group_id, const char *reason, int64_t wait_ms)
{
    return made_abort_for(group_id, ng_verdict_kind_of_line(reason), reason, wait_ms);
}

int made_abort_for(uint64_t group_id, unsigned kind, const char *reason, int64_t wait_ms)
{
    ng_guard.config.abort_wait_ns = wait_ms * NG_MS;
    struct ng_group_set scope = {.all = !group_id, .count = group_id ? 1 : 0, .groups = {group_id}};
    return ng_abort_groups(&scope, (enum ng_verdict_kind)kind, reason, NG_ABORT_PERSON);
}

int made_abort_state(void)
{
    return (int)ng_abort_state(NG_ABORT_PERSON);
}

int made_policy_abort(const uint64_t *group_ids, unsigned count, const char *reason,
                      int64_t wait_ms)
{
    struct ng_group_set scope = {.all = !count, .count = count};

    if (count)
        memcpy(scope.groups, group_ids, count * sizeof(*group_ids));
    ng_guard.config.abort_wait_ns = wait_ms * NG_MS;
    return ng_abort_groups(&scope, ng_verdict_kind_of_line(reason), reason, NG_ABORT_POLICY);
}

int made_policy_abort_state(void)
{
    return (int)ng_abort_state(NG_ABORT_POLICY);
}

bool made_abort_concerns(uint64_t group_id)
{
    return ng_abort_concerns(group_id);
}

unsigned made_stuck(char *ret_why, unsigned bytes)
{
    struct ng_abort_stuck stuck;

    if (!ng_abort_stuck(&stuck))
        return 0;
    snprintf(ret_why, bytes, "%s", stuck.why);
    return stuck.op;
}

void made_fork_child(void)
{
    ng_guard_after_fork();
}

void made_destroy(unsigned library, void *comm, int result)
{
    through(CALL(CommDestroy, library, .comm = comm), result);
}

void made_all_reduce(unsigned library, void *comm, void *stream, int result)
{
    through(CALL(AllReduce, library, .comm = comm, .stream = stream, .count = 4, .dtype = 7,
                 .redop = 0),
            result);
}

void made_send(unsigned library, void *comm, void *stream, int peer, int result)
{
    through(
        CALL(Send, library, .comm = comm, .stream = stream, .count = 4, .dtype = 7, .root = peer),
        result);
}

void made_group_start(unsigned library)
{
    through(CALL(GroupStart, library), NG_NCCL_SUCCESS);
}

void made_group_end(unsigned library, int result)
{
    through(CALL(GroupEnd, library), result);
}

/* ---- What became of it ---- */

bool made_is_usual(void)
{
    return !(atomic_load(&ng_unusual) & (NG_UNUSUAL_STOPPED | NG_UNUSUAL_CONFIGURED));
}

static void fill_group(const struct ng_comm *comm, struct made_group *ret_group)
{
    const struct ng_box_group *group = comm->group;

    *ret_group = (struct made_group){.slot = comm->slot,
                                     .state = group->state,
                                     .nccl = comm->nccl ? comm->nccl->index : UINT32_MAX,
                                     .creator_tid = group->creator_tid,
                                     .fate = comm->fate,
                                     .id = group->id,
                                     .nranks = group->nranks,
                                     .group_rank = group->group_rank,
                                     .async_error = group->async_error,
                                     .cuda_error = group->cuda_error,
                                     .entered = group->entered,
                                     .scheduled = group->scheduled,
                                     .completed = group->completed,
                                     .p2p_entered = group->p2p_entered,
                                     .last_call = group->last_call,
                                     .rolling_hash = group->rolling_hash};
    ret_group->coll_joined = NG_LOAD(group->coll_joined);
    ret_group->p2p_joined = NG_LOAD(group->p2p_joined);
    ret_group->groups_closed = NG_LOAD(group->groups_closed);
    ret_group->pending_record = atomic_load(&group->pending_record);
    ret_group->pending_seq = ret_group->pending_record ? NG_LOAD(group->pending_seq) : 0;
    ret_group->pending_age_ns = NG_LOAD(group->pending_age_ns);
    ret_group->pending_started = NG_LOAD(group->pending_started);
    ret_group->rests = NG_LOAD(group->rests);
    for (unsigned i = 0; i < 6; i++)
        ret_group->host_entered[i] = NG_LOAD(comm->host_calls->entered[i]);
    ret_group->host_op = NG_LOAD(comm->host_calls->op);
    ret_group->host_tid = NG_LOAD(comm->host_calls->tid);
    ret_group->host_open = NG_LOAD(comm->host_calls->open);
    ng_box_read_name(group, ret_group->name);
    for (unsigned i = 0; i < sizeof(ret_group->pci_id) / sizeof(uint64_t); i++) {
        uint64_t word = NG_LOAD(group->pci_id[i]);
        memcpy(ret_group->pci_id + i * sizeof(word), &word, sizeof(word));
    }
}

bool made_group_of(const void *comm, struct made_group *ret_group)
{
    const struct ng_comm *found = ng_comm_find(comm);

    if (found && ret_group)
        fill_group(found, ret_group);
    return found != NULL;
}

void made_group_at(uint32_t slot, struct made_group *ret_group)
{
    fill_group(ng_comm_at(slot), ret_group);
}

bool made_group_in_making(struct made_group *ret_group)
{
    for (uint32_t i = 0; i < ng_comm_count(); i++)
        if (atomic_load(&ng_comm_at(i)->group->state) == NG_GROUP_CREATING) {
            fill_group(ng_comm_at(i), ret_group);
            return true;
        }
    return false;
}

unsigned made_samples(const void *comm, uint64_t *ret_seqs, unsigned room)
{
    const struct ng_comm *found = ng_comm_find(comm);
    struct ng_duration_sample sample;
    uint64_t number, end;
    unsigned count = 0;

    for (ng_duration_samples(&ng_guard.box, &number, &end); number < end; number++)
        if (ng_duration_sample_read(&ng_guard.box, number, &sample) && count < room &&
            sample.group_id == found->group->id && sample.group_slot == found->slot)
            ret_seqs[count++] = sample.seq;
    return count;
}

uint64_t made_measured(const void *comm, unsigned op, uint64_t *ret_bytes)
{
    const struct ng_comm *found = ng_comm_find(comm);
    struct ng_duration row;
    uint64_t count = 0;

    *ret_bytes = 0;
    for (uint32_t i = 0; i < ng_guard.box.duration_capacity; i++) {
        if (!ng_durations_read(&ng_guard.box, i, &row) || row.group_id != found->group->id ||
            row.op != op)
            continue;
        count += row.count;
        if (UINT64_C(1) << row.size_class > *ret_bytes)
            *ret_bytes = UINT64_C(1) << row.size_class;
    }
    return count;
}

static void count_told(void (*callback)(void), void *told, const struct ng_completion *completion)
{
    atomic_fetch_add((_Atomic uint64_t *)told, 1);
}

static _Atomic uint64_t told;

bool made_tell(void)
{
    atomic_store(&told, 0);
    return ng_completion_begin(count_told, NULL, &told) == 0;
}

bool made_told(uint64_t *ret_told, uint64_t *ret_dropped)
{
    if (ng_completion_end(ng_clock_mono_ns() + 20 * NG_S, ret_dropped) != 0)
        return false;
    *ret_told = atomic_load(&told);
    return true;
}

struct made_record made_newest_record(void)
{
    return made_record_before(0);
}

struct made_record made_record_before(unsigned back)
{
    const struct ng_box *box = &ng_guard.box;
    const struct ng_box_record *record =
        &box->records[ng_record_slot(box->header->record_next - 1 - back, box->record_capacity)];

    return (struct made_record){.state = ng_record_state(record->id_state),
                                .flags = record->flags,
                                .tid = record->tid,
                                .result = record->result,
                                .coll_seq = record->coll_seq,
                                .peer_ordinal = record->peer_ordinal,
                                .rolling_hash = record->rolling_hash,
                                .duration_ns = record->duration_ns};
}

int made_library_of(const void *comm)
{
    const struct ng_nccl *nccl = ng_comm_nccl(comm);

    return nccl ? (int)nccl->index : -1;
}

static bool await(const void *comm, bool (*is_there)(const struct made_group *, uint64_t),
                  uint64_t value)
{
    int64_t until = ng_clock_mono_ns() + PATIENCE;
    struct timespec pause = {.tv_nsec = NG_MS};
    struct made_group group;

    do {
        if (made_group_of(comm, &group) && is_there(&group, value))
            return true;
        ng_wake_watchdog();
        nanosleep(&pause, NULL);
    } while (ng_clock_mono_ns() < until);
    return false;
}

static bool has_completed(const struct made_group *group, uint64_t seq)
{
    return group->completed >= seq;
}

static bool has_failed(const struct made_group *group, uint64_t error)
{
    return group->cuda_error == (int)error;
}

bool made_await_completed(const void *comm, uint64_t seq)
{
    return await(comm, has_completed, seq);
}

static bool is_pending(const struct made_group *group, uint64_t seq)
{
    return group->pending_seq == seq;
}

bool made_await_pending(const void *comm, uint64_t seq)
{
    return await(comm, is_pending, seq);
}

bool made_await_cuda_error(const void *comm, int error)
{
    return await(comm, has_failed, (uint64_t)error);
}

struct ng_comm *made_comm(const void *comm)
{
    return ng_comm_find(comm);
}

bool made_has_ended(const void *comm)
{
    return ng_comm_has_ended(comm);
}

void made_configure_deadlines(int64_t timeout_ns, int64_t init_timeout_ns, int64_t suspect_ns,
                              int64_t cold_suspect_ns)
{
    ng_guard.config.timeout_ns = timeout_ns;
    ng_guard.config.init_timeout_ns = init_timeout_ns;
    ng_guard.config.suspect_ns = suspect_ns;
    ng_guard.config.cold_suspect_ns = cold_suspect_ns;
    ng_guard.config.on_timeout = NG_ON_TIMEOUT_KILL;
}

void made_kill(int64_t timeout_ms, int64_t abort_wait_ms)
{
    made_configure_deadlines(timeout_ms * NG_MS, timeout_ms * NG_MS, 0, 0);
    ng_guard.config.abort_wait_ns = abort_wait_ms * NG_MS;
    ng_guard.config.exit_how = "abort";
}

void made_teardown(int64_t timeout_ms, int64_t abort_wait_ms)
{
    made_kill(timeout_ms, abort_wait_ms);
    ng_guard.config.on_timeout = NG_ON_TIMEOUT_TEARDOWN;
}

int made_ending_policy(void)
{
    return (int)atomic_load(&ng_guard.box.header->ending_policy) - 1;
}

void made_set_rules(const char *path)
{
    snprintf(ng_guard.rules_path, sizeof(ng_guard.rules_path), "%s", path);
}

void made_registrations(int mode,
                        int (*comm_register)(void *comm, void *buffer, size_t bytes, void **handle),
                        int (*comm_deregister)(void *comm, void *handle))
{
    ng_guard.config.register_how = mode;
    for (unsigned i = 0; i < LIBRARIES; i++) {
        libraries[i].comm_register = comm_register;
        libraries[i].comm_deregister = comm_deregister;
    }
}

int made_transfer(void *comm, void *stream, int peer, const void *buffer, uint64_t bytes,
                  int (*inside)(void *argument), void *argument)
{
    return through_with(CALL(Send, 0, .comm = comm, .stream = stream, .send_buffer = buffer,
                             .count = bytes, .dtype = 0, .root = peer),
                        NG_NCCL_SUCCESS, inside, argument);
}

int made_reduce(void *comm, void *stream, const void *buffer, uint64_t bytes,
                int (*inside)(void *argument), void *argument)
{
    return through_with(CALL(AllReduce, 0, .comm = comm, .stream = stream, .send_buffer = buffer,
                             .count = bytes, .dtype = 0, .redop = 0),
                        NG_NCCL_SUCCESS, inside, argument);
}

bool made_registration_count(const void *comm, struct ng_registration_count *ret_count)
{
    return ng_registrations_count(ng_comm_find(comm), ret_count);
}

bool made_registration_count_at(uint32_t slot, struct ng_registration_count *ret_count)
{
    return ng_registrations_count(ng_comm_at(slot), ret_count);
}

struct ng_registration_table *made_registration_table(const void *comm)
{
    return ng_registration_table_of(ng_comm_find(comm));
}

bool made_free_asks(const struct ng_registration_table *table)
{
    return atomic_load(&table->deferred);
}

uint64_t made_frees_unanswered(const struct ng_registration_table *table)
{
    uint64_t done = atomic_load(&table->done), tried = atomic_load(&table->tried);

    return table->asked - (done > tried ? done : tried);
}
