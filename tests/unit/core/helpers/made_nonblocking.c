/* NCCL as far as nonblocking communicators need it. */
#include "tests/unit/core/helpers/made_nonblocking.h"

#include <stdatomic.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/thread.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "tests/unit/core/helpers/answers.h"
#include "tests/unit/core/helpers/made_calls.h"

static atomic_int left, then_state;
static atomic_uint questions;
static __thread void (*tell)(void); /* the guard asks, too */
static __thread bool is_test;       /* the watchdog's questions, of any communicator, take nothing
                                       from what the test set */
static char config_seen[2048];
static size_t config_bytes;
static void *next_handle;
static struct ng_nccl_unique_id next_id;

static int keep(void **comm, void *config)
{
    config_bytes = config ? ((struct ng_nccl_config *)config)->size : 0;
    if (config)
        memcpy(config_seen, config, config_bytes);
    *comm = next_handle;
    return NG_NCCL_IN_PROGRESS;
}

NCCL_ANSWER(init_rank, (void **comm, int nranks, struct ng_nccl_unique_id id, int rank),
            keep(comm, NULL))

static int init_rank_config(void **comm, int nranks, struct ng_nccl_unique_id id, int rank,
                            void *config)
{
    return keep(comm, config);
}

static int split(void *comm, int color, int key, void **child, void *config)
{
    return keep(child, config);
}

static int get_async_error(void *comm, int *state)
{
    if (!is_test) {
        *state = NG_NCCL_SUCCESS;
        return NG_NCCL_SUCCESS;
    }
    atomic_fetch_add(&questions, 1);
    if (tell)
        tell();
    int now = atomic_load(&left);
    if (now > 0)
        atomic_fetch_sub(&left, 1);
    *state = now ? NG_NCCL_IN_PROGRESS : atomic_load(&then_state);
    return NG_NCCL_SUCCESS;
}

NCCL_ANSWER(abort_comm, (void *comm))
NCCL_ANSWER(answer_number, (const void *comm, int *number), *number = 0)

static const struct ng_nccl nccl = {
    .version = 22809,
    .path = "",
    .comm_init_rank = init_rank,
    .comm_init_rank_config = init_rank_config,
    .comm_split = split,
    .comm_abort = abort_comm,
    .comm_get_async_error = get_async_error,
    .comm_count = answer_number,
    .comm_user_rank = answer_number,
    .comm_cu_device = answer_number,
};

void made_progress(int count, int then)
{
    is_test = true;
    atomic_store(&then_state, then);
    atomic_store(&left, count);
}

unsigned made_questions(void)
{
    return atomic_load(&questions);
}

void made_questions_tell(void (*function)(void))
{
    tell = function;
}

const void *made_config(size_t *ret_bytes)
{
    *ret_bytes = config_bytes;
    return config_seen;
}

/* As the shim does it: NCCL itself is called where core says so. */
static int make(struct ng_call *call, const struct ng_creation *creation)
{
    struct ng_call_context context;

    call->nccl = &nccl;
    call->creation = creation;
    int answer = ng_call_enter(call, &context);
    if (answer != NG_CALL_PROCEED)
        return answer;
    if (call->op == NG_OP_CommInitRank)
        answer = init_rank(creation->new_comm, 0, next_id, 0);
    else
        answer = keep(creation->new_comm, (void *)(uintptr_t)creation->config);
    return ng_call_leave(call, &context, call->op == NG_OP_CommInitAll ? NG_NCCL_SUCCESS : answer);
}

int made_nb_init(void **comm, void *handle, const void *config)
{
    struct ng_creation creation = {.unique_ids = &next_id,
                                   .unique_id_count = 1,
                                   .nranks = 2,
                                   .new_comm = comm,
                                   .config = config};
    struct ng_call call = {.op = config ? NG_OP_CommInitRankConfig : NG_OP_CommInitRank};

    next_handle = handle;
    next_id.bytes[0]++;
    return make(&call, &creation);
}

int made_nb_init_all(void **comm, void *handle)
{
    struct ng_creation creation = {.nranks = 1, .rank = -1, .new_comm = comm};
    struct ng_call call = {.op = NG_OP_CommInitAll};

    next_handle = handle;
    return make(&call, &creation);
}

int made_nb_split(void *parent, void **comm, void *handle)
{
    struct ng_creation creation = {.rank = -1, .new_comm = comm};
    struct ng_call call = {.op = NG_OP_CommSplit, .comm = parent};

    next_handle = handle;
    return make(&call, &creation);
}

int made_nb_split_later(void *parent, void **comm)
{
    struct ng_creation creation = {.rank = -1, .new_comm = comm};
    struct ng_call call = {
        .nccl = &nccl, .op = NG_OP_CommSplit, .comm = parent, .creation = &creation};
    struct ng_call_context context;
    int answer = ng_call_enter(&call, &context);

    return answer == NG_CALL_PROCEED ? ng_call_leave(&call, &context, NG_NCCL_SUCCESS) : answer;
}

int made_nb_all_reduce(void *comm)
{
    struct ng_call call = {.nccl = &nccl,
                           .op = NG_OP_AllReduce,
                           .comm = comm,
                           .stream = made_stream(0),
                           .count = 1,
                           .dtype = 7,
                           .redop = 0,
                           .root = -1};
    struct ng_call_context context;
    int answer = ng_collective_enter(&call, &context);

    return answer == NG_CALL_PROCEED ? ng_collective_leave(&call, &context, NG_NCCL_IN_PROGRESS)
                                     : answer;
}

int made_nb_state(void *comm, int *ret_state)
{
    struct ng_call call = {
        .nccl = &nccl, .op = NG_OP_CommGetAsyncError, .comm = comm, .recv_buffer = ret_state};
    struct ng_call_context context;
    int answer = ng_call_enter(&call, &context);

    return answer == NG_CALL_PROCEED
               ? ng_call_leave(&call, &context, get_async_error(comm, ret_state))
               : answer;
}

bool made_nb_is_converted(const void *comm)
{
    const struct ng_comm *found = ng_comm_find(comm);

    return found && atomic_load(&found->mode.converted);
}

unsigned made_nb_op_inside(void)
{
    return NG_LOAD(ng_thread_get()->slot->op);
}

int made_nb_abort(const char *reason)
{
    struct ng_group_set scope = NG_GROUP_SET_ALL;

    return ng_abort_groups(&scope, NG_KIND_HEALTHY, reason, NG_ABORT_PERSON);
}
