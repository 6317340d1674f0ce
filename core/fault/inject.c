/*
 * Applies injected faults to a call.
 *
 * Entered by the program's threads, by the guard's abort threads, and once before main. A fault is
 * written into the black box and the log before it happens, since it may end this process.
 */
#include "core/fault/inject.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/comm/thread.h"
#include "core/config/fault_spec.h"
#include "core/config/store_fault.h"
#include "core/device/burst.h"
#include "core/fault/fault_match.h"
#include "core/fault/inject_state.h"
#include "core/nccl/group_id.h"
#include "core/nccl/nccl.h"
#include "core/recorder/fault_log.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"

bool ng_inject_armed;

static struct ng_fault_spec spec NG_LARGE;
static char mistake[600]; /* "" none */
static struct ng_fault_counts counts NG_LARGE;
static atomic_bool
    drives_several; /* several devices: then the launcher's rank is not that of the devices */
static _Atomic int largest_group; /* largest group created so far, in ranks */

/* The call was postponed, and other faults were already applied to it. */
static __thread bool following __attribute__((tls_model("initial-exec")));

/* ---- Arming ---- */

void ng_inject_configure(const char *text)
{
    struct ng_fault_mistake found;

    if (!text)
        return;
    if (ng_fault_spec_parse(text, &spec, &found) == 0) {
        ng_inject_armed = true;
        return;
    }
    ng_fault_mistake_text(&found, mistake, sizeof(mistake));
    spec.count = 0;
}

uint32_t ng_inject_count(void)
{
    return spec.count;
}

static bool may_concern_process(const struct ng_fault *fault)
{
    return fault->rank < 0 || ng_guard.launch.rank < 0 || ng_guard.launch.world_size <= 1 ||
           fault->rank == ng_guard.launch.rank;
}

void ng_inject_start(struct ng_box *box)
{
    int world_size = ng_guard.launch.world_size;

    if (mistake[0])
        ng_log(NG_LOG_ERROR, "NCCLGUARD_FAULT: %s; nothing is injected", mistake);
    for (uint32_t i = 0; i < spec.count; i++) {
        const struct ng_fault *fault = &spec.faults[i];
        ng_fault_log_arm(box, i, fault->text);
        if (may_concern_process(fault))
            ng_log(NG_LOG_WARN, "rehearsal: NCCLGUARD_FAULT has armed %s", fault->text);
        if (world_size > 1 && fault->rank >= world_size && ng_guard.launch.rank <= 0)
            ng_log(NG_LOG_WARN, "rehearsal: there is no rank %d among %d: %s cannot happen",
                   fault->rank, world_size, fault->text);
    }
}

/* ---- Identifying the call ---- */

/* The rank of the device that `comm` is on, in the largest group that it is in; -1 not known. */
static int rank_in_largest(const struct ng_comm *comm)
{
    int device = NG_LOAD(comm->group->device), rank = NG_LOAD(comm->group->group_rank);
    int nranks = NG_LOAD(comm->group->nranks);

    NG_EACH_COMM (other) {
        const struct ng_box_group *group = other->group;
        if (!ng_group_state_is_open(NG_LOAD(group->state)) || NG_LOAD(group->nranks) <= nranks ||
            NG_LOAD(group->group_rank) < 0 ||
            (device >= 0 && NG_LOAD(group->device) >= 0 && NG_LOAD(group->device) != device))
            continue;
        rank = NG_LOAD(group->group_rank);
        nranks = NG_LOAD(group->nranks);
    }
    return rank;
}

static int rank_of(const struct ng_call *call, const struct ng_comm *comm)
{
    if (ng_guard.launch.rank >= 0 && !atomic_load(&drives_several))
        return ng_guard.launch.rank;
    if (comm)
        return rank_in_largest(comm);
    if (call && call->creation && call->creation->rank >= 0)
        return call->creation->rank;
    return ng_guard.launch.rank;
}

/* Two ranks of one group in this process mean that it drives several devices. */
static void note_devices(const struct ng_call *call)
{
    const struct ng_creation *creation = call->creation;

    if (call->op == NG_OP_CommInitAll && creation->nranks > 1)
        atomic_store(&drives_several, true);
    if (!creation->unique_ids || atomic_load(&drives_several))
        return;
    uint64_t id = ng_group_id_unique(creation->unique_ids, creation->unique_id_count);
    NG_EACH_COMM (comm) {
        const struct ng_box_group *group = comm->group;
        if (NG_LOAD(group->id) == id && NG_LOAD(group->group_rank) != creation->rank &&
            ng_group_state_is_open(NG_LOAD(group->state)))
            atomic_store(&drives_several, true);
    }
}

/* Everything that a fault is matched against; the name is stored in `ret_name`. */
static struct ng_fault_call describe(const struct ng_call *call, const struct ng_comm *comm,
                                     char ret_name[NG_BOX_NAME_BYTES])
{
    struct ng_fault_call described = {.op = call ? call->op : NG_OP_CommAbort,
                                      .rank = rank_of(call, comm),
                                      .group_name = ret_name};
    const struct ng_creation *creation = call ? call->creation : NULL;

    ret_name[0] = '\0';
    if (comm) {
        described.group_id = NG_LOAD(comm->group->id);
        described.group_number = ng_inject_state_number(comm, described.rank);
        ng_box_read_name(comm->group, ret_name);
    } else if (creation && creation->unique_ids) {
        described.group_id = ng_group_id_unique(creation->unique_ids, creation->unique_id_count);
        snprintf(ret_name, NG_BOX_NAME_BYTES, "%s", ng_creation_name(creation));
    }
    return described;
}

/* ---- Logging ---- */

/* Does the fault end the program, now or soon? */
static bool is_final(enum ng_fault_kind kind)
{
    return kind == NG_FAULT_HANG || kind == NG_FAULT_EXIT || kind == NG_FAULT_KILL ||
           kind == NG_FAULT_STOP || kind == NG_FAULT_SEGV || kind == NG_FAULT_INIT_HANG ||
           kind == NG_FAULT_ABORT_HANG;
}

/* A fault happens now. Each is logged once; those that end something, each time. */
static void tell(uint32_t index, const struct ng_fault_call *described, const struct ng_comm *comm)
{
    static atomic_bool told[NG_FAULTS_MAX];
    const struct ng_fault *fault = &spec.faults[index];
    bool collective = ng_op_table[described->op].op_class == NG_CLASS_COLLECTIVE;
    struct ng_logged_fault now = {.rank = described->rank,
                                  .op = described->op,
                                  .group_id = described->group_id,
                                  .seq =
                                      comm && collective ? NG_LOAD(comm->group->entered) + 1 : 0};
    char group[160] = "", number[24] = "";

    ng_fault_log_add(&ng_guard.box, index, &now, ng_clock_mono_ns());
    if (atomic_exchange(&told[index], true) && !is_final(fault->kind))
        return;
    if (comm)
        ng_comm_describe(comm, group, sizeof(group));
    if (now.seq)
        snprintf(number, sizeof(number), " #%" PRIu64, now.seq);
    ng_log(NG_LOG_WARN,
           "rehearsal: %s happens to rank %d at %s%s%s%s: injected by NCCLGUARD_FAULT (%s)",
           ng_fault_table[fault->kind].name, described->rank, ng_op_name(described->op), number,
           comm ? " of " : "", group, fault->text);
}

static void tell_refusal(uint32_t index, const char *why)
{
    static atomic_bool told[NG_FAULTS_MAX];

    if (!atomic_exchange(&told[index], true))
        ng_log(NG_LOG_WARN, "rehearsal: %s cannot happen here: %s", spec.faults[index].text, why);
}

/* ---- Faults on the host ---- */

/* Named so that a native stack explains it. Nothing ends it: neither an abort nor a thread's
 * cancellation. */
__attribute__((noinline, noreturn)) static void ng_injected_hang(void)
{
    int unused;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &unused);
    for (;;)
        pause();
}

__attribute__((noinline, no_sanitize("undefined", "address"))) static void ng_injected_segv(void)
{
    int *volatile nowhere = NULL;

    *(volatile int *)nowhere = 1;
}

static void end_process(const struct ng_fault *fault)
{
    switch (fault->kind) {
    case NG_FAULT_EXIT:
        exit((int)fault->number);
    case NG_FAULT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case NG_FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    default:
        ng_injected_segv();
    }
}

/* ---- Changed arguments ---- */

static void change_arguments(const struct ng_fault *fault, const struct ng_comm *comm,
                             struct ng_call *call)
{
    int64_t nranks = comm ? NG_LOAD(comm->group->nranks) : 0, value = fault->number;

    switch (fault->kind) {
    case NG_FAULT_COUNT:
        if (fault->relative)
            value += (int64_t)call->count;
        call->count = value > 0 ? (uint64_t)value : 0;
        break;
    case NG_FAULT_DTYPE:
        call->dtype = (int)value;
        break;
    case NG_FAULT_REDOP:
        call->redop = (int)value;
        break;
    default:
        if (fault->relative)
            value += call->root;
        if (fault->relative && nranks > 0)
            value = (value % nranks + nranks) % nranks;
        call->root = (int)value;
    }
}

/* A modifiable copy of what a creating call points to: the program's own data stay unchanged.
 * Except for ncclCommInitRankScalable, the unique id is already a copy, made by the wrapper. */
#define IDS_MAX 16
struct scratch {
    struct ng_creation creation;
    char unique_ids[IDS_MAX][NG_UNIQUE_ID_BYTES];
};

static bool change_creation(uint32_t index, struct ng_call *call, struct ng_injection *injection)
{
    const struct ng_creation *before = call->creation;
    int ids = before->unique_id_count;

    if (!before->unique_ids || ids < 1 || ids > IDS_MAX || !call->nccl->get_unique_id) {
        tell_refusal(index, "too many unique ids, or no ncclGetUniqueId");
        return false;
    }
    struct scratch *scratch = injection->scratch;
    if (!scratch) {
        scratch = mmap(NULL, sizeof(*scratch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
        if (scratch == MAP_FAILED)
            return false;
        scratch->creation = *before;
        memcpy(scratch->unique_ids, before->unique_ids, (size_t)ids * NG_UNIQUE_ID_BYTES);
        if (call->op == NG_OP_CommInitRankScalable)
            scratch->creation.unique_ids = scratch->unique_ids;
        injection->scratch = scratch;
        call->creation = &scratch->creation;
    }
    if (spec.faults[index].kind == NG_FAULT_BAD_NRANKS)
        scratch->creation.nranks++;
    /* A valid id that no other rank has: as after a launcher's mistake. */
    for (int i = 0; i < ids && spec.faults[index].kind == NG_FAULT_BAD_ID; i++)
        call->nccl->get_unique_id((struct ng_nccl_unique_id *)scratch->creation.unique_ids + i);
    return true;
}

/* ---- A call ---- */

/* Apply a fault on the device; reported only if it succeeded. */
static bool put_on_device(uint32_t index, const struct ng_call *call)
{
    char why[96];
    int error = spec.faults[index].kind == NG_FAULT_NAN ? ng_inject_gpu_nan(call)
                                                        : ng_inject_gpu_stall(call);

    if (ng_this_thread)
        ng_burst_end(ng_this_thread);
    if (!error)
        return true;
    if (error < 0)
        snprintf(why, sizeof(why), "there is no buffer, or %s has no NaN",
                 ng_dtype_name(call->dtype));
    else
        snprintf(why, sizeof(why), "CUDA error %d", error);
    tell_refusal(index, why);
    return false;
}

static bool is_nonblocking(const struct ng_call *call, const struct ng_comm *comm)
{
    return (comm && atomic_load(&comm->mode.nonblocking)) || call->creation;
}

/* Can it be applied to this call now? Logs it if not. Faults on the device are applied here. */
static bool prepare(uint32_t index, struct ng_call *call, const struct ng_comm *comm,
                    struct ng_injection *injection)
{
    switch (spec.faults[index].kind) {
    case NG_FAULT_GPU_STALL:
    case NG_FAULT_NAN:
        return put_on_device(index, call);
    case NG_FAULT_ASYNC_ERROR:
        return comm != NULL;
    case NG_FAULT_IN_PROGRESS:
        if (is_nonblocking(call, comm))
            return true;
        tell_refusal(index, "the communicator is a blocking one");
        return false;
    case NG_FAULT_BAD_ID:
    case NG_FAULT_BAD_NRANKS:
        return change_creation(index, call, injection);
    case NG_FAULT_STORE_DROP:
    case NG_FAULT_STORE_DELAY:
        if (!ng_guard.config.store || strncmp(ng_guard.config.store, "redis", 5) == 0)
            return true;
        tell_refusal(index, "there is no store across hosts (NCCLGUARD_STORE)");
        return false;
    case NG_FAULT_SWAP:
        return ng_inject_state_put_off(call);
    default:
        return true;
    }
}

static bool closes_group(enum ng_op op)
{
    return op == NG_OP_GroupEnd || op == NG_OP_GroupSimulateEnd;
}

/* Apply the fault. NG_CALL_PROCEED, or the result that the program gets at once. */
static int happen(const struct ng_fault *fault, struct ng_call *call, const struct ng_comm *comm,
                  struct ng_injection *injection)
{
    switch (fault->kind) {
    case NG_FAULT_HANG:
    case NG_FAULT_INIT_HANG:
        ng_injected_hang();
    case NG_FAULT_DELAY:
        ng_clock_sleep(fault->duration_ns);
        break;
    case NG_FAULT_SKIP:
    case NG_FAULT_SWAP:
        return NG_NCCL_SUCCESS;
    case NG_FAULT_EXIT:
    case NG_FAULT_KILL:
    case NG_FAULT_STOP:
    case NG_FAULT_SEGV:
        end_process(fault);
        break;
    case NG_FAULT_ERROR:
        injection->result = (int)fault->number;
        /* NCCL has to see the end of a group, to close it; nothing in it is launched. */
        injection->replaces = !closes_group(call->op);
        if (ng_op_table[call->op].op_class != NG_CLASS_QUERY)
            ng_thread_refuse(call->nccl, injection->result);
        break;
    case NG_FAULT_ASYNC_ERROR:
        ng_inject_state_fail(comm, (int)fault->number);
        break;
    case NG_FAULT_COUNT:
    case NG_FAULT_DTYPE:
    case NG_FAULT_ROOT:
    case NG_FAULT_REDOP:
        change_arguments(fault, comm, call);
        break;
    case NG_FAULT_IN_PROGRESS:
        injection->in_progress_ns = fault->duration_ns;
        break;
    case NG_FAULT_STORE_DROP:
        atomic_store(&ng_store_fault.dropped, true);
        break;
    case NG_FAULT_STORE_DELAY:
        atomic_store(&ng_store_fault.delay_ns, fault->duration_ns);
        break;
    default: /* already done */
        break;
    }
    return NG_CALL_PROCEED;
}

/* Faults of place CREATE and similar are distinguished by the operations that they name. */
static int inject(struct ng_call *call, struct ng_injection *injection)
{
    struct ng_comm *comm = call->comm ? ng_comm_find(call->comm) : NULL;
    char name[NG_BOX_NAME_BYTES];
    struct ng_fault_call described = describe(call, comm, name);
    int answer = NG_CALL_PROCEED;

    for (uint32_t i = 0; i < spec.count && answer == NG_CALL_PROCEED; i++) {
        const struct ng_fault *fault = &spec.faults[i];
        if (!ng_fault_match(fault, i, &described, &counts) || !prepare(i, call, comm, injection))
            continue;
        tell(i, &described, comm);
        answer = happen(fault, call, comm, injection);
    }
    return answer;
}

/* A postponed call can no longer be made. */
static void drop_put_off(const struct ng_call *call)
{
    uint32_t number = ng_inject_state_waiting(call->comm);
    struct ng_call dropped;

    if (!number)
        return;
    ng_inject_state_take(number, &dropped);
    ng_log(NG_LOG_WARN, "rehearsal: no collective followed %s, which was postponed: it is skipped",
           ng_op_name(dropped.op));
}

int ng_inject_enter(struct ng_call *call, struct ng_injection *ret_injection)
{
    enum ng_op_class op_class = ng_op_table[call->op].op_class;

    *ret_injection = (struct ng_injection){0};
    if (following)
        return NG_CALL_PROCEED;
    /* The black box must record it, and a forked child that creates no communicator is left
     * alone. */
    if (op_class == NG_CLASS_CREATE)
        ng_guard_expect_communicator();
    if (!ng_guard_start())
        return NG_CALL_PROCEED;
    if (call->creation) {
        note_devices(call);
        ret_injection->creation = *call->creation;
        ret_injection->creation.injection = ret_injection;
        call->creation = &ret_injection->creation;
    }
    if (op_class == NG_CLASS_END)
        drop_put_off(call);
    uint32_t waiting = op_class == NG_CLASS_COLLECTIVE ? ng_inject_state_waiting(call->comm) : 0;
    int answer = inject(call, ret_injection);
    ret_injection->follows = waiting;
    return answer;
}

/* A group larger than any before was created: do the ranks that faults name exist? */
static void check_ranks(const struct ng_creation *creation)
{
    int nranks = creation->nranks, before = atomic_load(&largest_group);
    int world_size = ng_guard.launch.world_size;

    while (nranks > before)
        if (atomic_compare_exchange_weak(&largest_group, &before, nranks))
            break;
    if (nranks <= before || world_size > 1 || creation->rank > 0)
        return;
    for (uint32_t i = 0; i < spec.count; i++)
        if (spec.faults[i].rank >= nranks)
            ng_log(NG_LOG_WARN,
                   "rehearsal: there is no rank %d in the largest group, of %d ranks: %s cannot "
                   "happen",
                   spec.faults[i].rank, nranks, spec.faults[i].text);
}

/* The communicator of a call, or the one that it has created. */
static const void *handle_of(const struct ng_call *call)
{
    const struct ng_creation *creation = call->creation;

    return !creation ? call->comm : creation->new_comm ? *(void *const *)creation->new_comm : NULL;
}

bool ng_inject_replaces(struct ng_injection *injection)
{
    bool replaces = injection->replaces;

    injection->replaces = false;
    return replaces;
}

/* NCCL also reports the creation of a child through its parent. False: there is no communicator to
 * query. */
static bool delay_answers(const struct ng_call *call, const struct ng_injection *injection)
{
    const void *handles[] = {handle_of(call), call->creation ? call->comm : NULL};
    bool delayed = false;

    for (unsigned i = 0; i < 2; i++)
        if (handles[i])
            delayed |=
                ng_inject_state_delay(handles[i], ng_clock_mono_ns() + injection->in_progress_ns);
    return delayed;
}

int ng_inject_result(const struct ng_call *call, struct ng_injection *injection, int result)
{

    if (call->creation && result == NG_NCCL_SUCCESS)
        check_ranks(call->creation);
    if (call->op == NG_OP_CommGetAsyncError && result == NG_NCCL_SUCCESS && call->recv_buffer)
        *(int *)call->recv_buffer = ng_inject_answer(call->comm, *(int *)call->recv_buffer);
    if (injection->in_progress_ns &&
        (result == NG_NCCL_IN_PROGRESS || (result == NG_NCCL_SUCCESS && !call->creation)) &&
        delay_answers(call, injection))
        result = NG_NCCL_IN_PROGRESS;
    if (closes_group(call->op) && injection->result != NG_NCCL_SUCCESS)
        result = injection->result;
    return result;
}

void ng_inject_done(const struct ng_injection *injection)
{
    if (injection->scratch)
        munmap(injection->scratch, sizeof(struct scratch));
}

bool ng_inject_following(struct ng_injection *injection, struct ng_call *ret_call)
{
    if (!injection->follows)
        return false;
    ng_inject_state_take(injection->follows, ret_call);
    injection->follows = 0;
    following = true;
    return true;
}

void ng_inject_followed(const struct ng_call *call, int result)
{
    following = false;
    if (result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS)
        ng_log(NG_LOG_WARN, "rehearsal: %s, which was postponed, has failed: %s",
               ng_op_name(call->op), ng_result_name(result));
}

int ng_inject_answer(const void *handle, int error)
{
    return ng_inject_state_answer(handle, error);
}

void ng_inject_abort(struct ng_comm *comm)
{
    char name[NG_BOX_NAME_BYTES];
    struct ng_fault_call described = describe(NULL, comm, name);

    for (uint32_t i = 0; i < spec.count; i++) {
        const struct ng_fault *fault = &spec.faults[i];
        if (fault->kind != NG_FAULT_ABORT_HANG || !ng_fault_concerns(fault, &described))
            continue;
        tell(i, &described, comm);
        ng_injected_hang();
    }
}

void ng_inject_after_fork(void)
{
    if (!ng_inject_armed)
        return;
    memset((void *)&counts, 0, sizeof(counts));
    atomic_store(&drives_several, false);
    atomic_store(&largest_group, 0);
    atomic_store(&ng_store_fault.dropped, false);
    atomic_store(&ng_store_fault.delay_ns, 0);
    following = false;
    ng_inject_state_after_fork();
}
