/*
 * The functions of ncclguard.h, which a program may call explicitly.
 *
 * Beside the life of a call. Entered by the program's threads, which find them with dlsym. Must
 * never call NCCL or CUDA, nor change errno; only functions with a timeout block.
 */
#define NCCLGUARD_IMPLEMENTATION
#include <ncclguard.h>

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/comm/completion.h"
#include "core/comm/deadline.h"
#include "core/device/poison.h"
#include "core/incident/program_requests.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/text.h"
#include "shim/shim.h"

#define EXPORT      __attribute__((visibility("default")))
#define USER_PREFIX "u."
#define ID_NAME_MAX 48

_Static_assert(NCCLGUARD_ABSENT == -ENOSYS && NCCLGUARD_INVALID == -EINVAL &&
                   NCCLGUARD_NO_GROUP == -ENOENT && NCCLGUARD_TIMED_OUT == -ETIMEDOUT &&
                   NCCLGUARD_NOT_SHARED == -EOPNOTSUPP && NCCLGUARD_STORE_LOST == -EIO &&
                   NCCLGUARD_EXISTS == -EEXIST && NCCLGUARD_TOO_LONG == -EMSGSIZE &&
                   NCCLGUARD_BUSY == -EBUSY && NCCLGUARD_NO_ROOM == -ENOSPC &&
                   NCCLGUARD_NO_ACCESS == -EACCES && NCCLGUARD_NO_PHASE == -EPERM &&
                   NCCLGUARD_AMBIGUOUS == -ENOTUNIQ && NCCLGUARD_GOING == -ESHUTDOWN,
               "results are errors");
_Static_assert(NCCLGUARD_NAME_MAX == NG_BOX_NAME_BYTES - 1 &&
                   NCCLGUARD_KEY_MAX + sizeof(USER_PREFIX) - 1 <= NG_BOARD_KEY_MAX &&
                   NCCLGUARD_VALUE_MAX == NG_BOARD_VALUE_MAX,
               "bounds are the board's");

/* Saved errno of the caller. */
static void give_back(const int *saved)
{
    errno = *saved;
}
#define KEEP_ERRNO __attribute__((cleanup(give_back), unused)) const int saved = errno

/* Map to the results that the header promises, and no others. */
static int told(int error)
{
    switch (error) {
    case -ENOMEM:
        return NCCLGUARD_NO_ROOM;
    case -ENAMETOOLONG:
        return NCCLGUARD_TOO_LONG;
    case -EPROTO:
    case -EBADMSG:
        return NCCLGUARD_STORE_LOST;
    default:
        return error;
    }
}

static bool is_present(void)
{
    return ng_shim_is_active() && !ng_shim_is_inert();
}

/* For calls that need the guard's threads before the first communicator is created. */
static bool start(void)
{
    ng_guard_expect_communicator();
    return ng_guard_start();
}

/* The program's time in ms; times too long to represent mean for ever. */
static int64_t ns_of(int64_t ms)
{
    return ms < INT64_MAX / (4 * NG_MS) ? ms * NG_MS : INT64_MAX / 4;
}

static int64_t deadline_in(int64_t ms)
{
    return ng_clock_mono_ns() + ns_of(ms < 0 ? 0 : ms);
}

/* The group to which a communicator belongs, 0 for all if it is NULL: 0, or -ENOENT. */
static int group_of(const void *comm, uint64_t *ret_id)
{
    const struct ng_comm *found = comm ? ng_comm_find(comm) : NULL;

    *ret_id = found ? atomic_load(&found->group->id) : 0;
    return comm && !*ret_id ? NCCLGUARD_NO_GROUP : 0;
}

EXPORT int ncclguard_present(void)
{
    return is_present() ? NCCLGUARD_OK : NCCLGUARD_ABSENT;
}

EXPORT int ncclguard_group_name(void *comm, const char *name)
{
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (!name)
        return NCCLGUARD_INVALID;
    if (strnlen(name, NCCLGUARD_NAME_MAX + 1) > NCCLGUARD_NAME_MAX)
        return NCCLGUARD_TOO_LONG;
    struct ng_comm *found = ng_comm_find(comm);
    if (!found)
        return NCCLGUARD_NO_GROUP;
    ng_comm_rename(found, name);
    return NCCLGUARD_OK;
}

static void fill_status(const struct ng_comm *comm, const void *handle,
                        struct ncclguard_group_status *ret_status)
{
    struct ng_box_group *group = comm->group;
    const char *reason = ng_abort_reason(handle);

    *ret_status = (struct ncclguard_group_status){
        .id = atomic_load(&group->id),
        .nranks = atomic_load(&group->nranks) > 0 ? atomic_load(&group->nranks) : -1,
        .rank = atomic_load(&group->group_rank),
        .entered = atomic_load(&group->entered),
        .started = atomic_load(&group->started),
        .completed = atomic_load(&group->completed),
        .p2p_entered = atomic_load(&group->p2p_entered),
        .p2p_completed = atomic_load(&group->p2p_completed),
        .pending_ns = atomic_load(&group->pending_record) ? NG_LOAD(group->pending_age_ns) : 0,
        .aborted = ng_comm_is_condemned(comm),
    };
    ng_box_read_name(group, ret_status->name);
    snprintf(ret_status->reason, sizeof(ret_status->reason), "%s", reason ? reason : "");
}

EXPORT int ncclguard_group_get_status(void *comm, ncclguard_group_status *ret_status)
{
    struct ncclguard_group_status status;
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (!ret_status || ret_status->size < sizeof(ret_status->size))
        return NCCLGUARD_INVALID;
    const struct ng_comm *found = ng_comm_find(comm);
    if (!found)
        return NCCLGUARD_NO_GROUP;
    size_t size = ret_status->size;
    fill_status(found, comm, &status);
    status.size = size;
    /* Fields that a newer header has and we do not know are set to 0. */
    memset(ret_status, 0, size);
    memcpy(ret_status, &status, size < sizeof(status) ? size : sizeof(status));
    return NCCLGUARD_OK;
}

/* A time for a group that the program sets, in milliseconds. */
static int tell_time(void *comm, int64_t ms, int (*tell)(uint64_t group_id, int64_t ns))
{
    uint64_t id;
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (ms < 0)
        return NCCLGUARD_INVALID;
    return group_of(comm, &id) ?: tell(id, ns_of(ms));
}

EXPORT int ncclguard_timeout_set(void *comm, int64_t timeout_ms)
{
    return tell_time(comm, timeout_ms, ng_deadline_set_timeout);
}

EXPORT int ncclguard_timeout_next(void *comm, int64_t timeout_ms)
{
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (timeout_ms < 0)
        return NCCLGUARD_INVALID;
    struct ng_comm *found = ng_comm_find(comm);
    return found ? ng_deadline_set_next(found, ns_of(timeout_ms)) : NCCLGUARD_NO_GROUP;
}

EXPORT int ncclguard_timeout_extend(void *comm, int64_t more_ms)
{
    return tell_time(comm, more_ms, ng_deadline_extend);
}

/* Text of the program for a line of the log, as much as there is room for. */
static void clean(const char *text, char *ret_text, size_t bytes)
{
    size_t used = strnlen(text, bytes - 1);

    memcpy(ret_text, text, used);
    ret_text[used] = '\0';
    ng_text_clean(ret_text, used, false);
}

EXPORT int ncclguard_phase_begin(void *comm, const char *what)
{
    uint64_t id;
    char name[64] = "";
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    int error = group_of(comm, &id) ?: ng_deadline_rest_begin(id);
    if (error)
        return error;
    clean(what ? what : "", name, sizeof(name));
    ng_log(NG_LOG_INFO, "phase %s: deadlines of %s rest", name, comm ? "a group" : "all groups");
    return 0;
}

EXPORT int ncclguard_phase_end(void *comm)
{
    uint64_t id;
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    int error = group_of(comm, &id) ?: ng_deadline_rest_end(id);
    if (!error)
        ng_log(NG_LOG_INFO, "the phase is over: deadlines run again");
    return error;
}

/* `comm` NULL: any. */
static bool is_pending(const struct ng_comm *comm)
{
    for (uint32_t i = 0, count = comm ? 0 : ng_comm_count(); i < count; i++)
        if (ng_comm_has_works(ng_comm_at(i)))
            return true;
    return comm && ng_comm_has_works(comm);
}

EXPORT int ncclguard_wait_pending(void *comm, int64_t timeout_ms)
{
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (timeout_ms < 0)
        return NCCLGUARD_INVALID;
    const struct ng_comm *found = comm ? ng_comm_find(comm) : NULL;
    if (comm && !found)
        return NCCLGUARD_NO_GROUP;
    int64_t until = deadline_in(timeout_ms);
    while (is_pending(found)) {
        if (ng_clock_mono_ns() >= until)
            return NCCLGUARD_TIMED_OUT;
        ng_clock_sleep(NG_MS);
    }
    return NCCLGUARD_OK;
}

EXPORT int ncclguard_barrier(void *comm, int64_t timeout_ms, int *missing, int missing_room,
                             int *ret_missing)
{
    uint32_t count = 0;
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (ret_missing)
        *ret_missing = 0;
    if (timeout_ms < 0 || missing_room < 0 || (missing_room && !missing))
        return NCCLGUARD_INVALID;
    struct ng_comm *found = ng_comm_find(comm);
    if (!found)
        return NCCLGUARD_NO_GROUP;
    int error = ng_program_request_barrier(found, deadline_in(timeout_ms), missing,
                                           (uint32_t)missing_room, &count);
    if (ret_missing)
        *ret_missing = (int)count;
    return told(error);
}

EXPORT int ncclguard_dump(const char *folder, int64_t timeout_ms)
{
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (timeout_ms < 0)
        return NCCLGUARD_INVALID;
    if (!start())
        return NCCLGUARD_NO_ROOM;
    return told(ng_program_request_dump(folder ? folder : "", deadline_in(timeout_ms)));
}

EXPORT int ncclguard_acknowledge_abort(void)
{
    if (!is_present())
        return NCCLGUARD_ABSENT;
    ng_poison_acknowledge();
    return NCCLGUARD_OK;
}

/* What a call about an entry checks first. 0, with the key as the board has it, where programs'
 * keys have a namespace of their own; or the call's result. */
static int begin_entry(const char *key, const void *data, size_t bytes, int64_t timeout_ms,
                       char ret_key[NG_BOARD_KEY_MAX + 1])
{
    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (timeout_ms < 0 || (bytes && !data) || !key || !*key)
        return NCCLGUARD_INVALID;
    if (strnlen(key, NCCLGUARD_KEY_MAX + 1) > NCCLGUARD_KEY_MAX)
        return NCCLGUARD_TOO_LONG;
    snprintf(ret_key, NG_BOARD_KEY_MAX + 1, "%s%s", USER_PREFIX, key);
    return start() ? 0 : NCCLGUARD_NO_ROOM;
}

EXPORT int ncclguard_put(const char *key, const void *data, size_t bytes, int64_t timeout_ms)
{
    char on_board[NG_BOARD_KEY_MAX + 1];
    KEEP_ERRNO;

    return begin_entry(key, data, bytes, timeout_ms, on_board)
               ?: told(ng_program_request_put(on_board, data, bytes, deadline_in(timeout_ms)));
}

EXPORT int ncclguard_get(const char *key, void *data, size_t room, size_t *ret_bytes,
                         int64_t timeout_ms)
{
    char on_board[NG_BOARD_KEY_MAX + 1];
    size_t bytes = 0;
    KEEP_ERRNO;

    int error = begin_entry(key, data, room, timeout_ms, on_board);
    if (error)
        return error;
    error = told(ng_program_request_get(on_board, data, room, &bytes, deadline_in(timeout_ms)));
    if (ret_bytes && (!error || error == NCCLGUARD_TOO_LONG))
        *ret_bytes = bytes;
    return error;
}

/* A unique id that did not come as it should: the first to know logs it. */
static int check_id(int error, const char *name, size_t there, size_t bytes, int64_t timeout_ms)
{
    char group[ID_NAME_MAX + 1] = "";

    clean(name, group, sizeof(group));
    if (error == NCCLGUARD_TIMED_OUT)
        ng_log(NG_LOG_ERROR,
               "unique id of %s: rank 0 has written none within %.1f s: it has not come to "
               "ncclguard_unique_id_exchange, has ended before, or uses another name",
               group, (double)timeout_ms / 1e3);
    if (error != NCCLGUARD_TOO_LONG && (error || there == bytes))
        return error;
    ng_log(NG_LOG_ERROR, "unique id of %s: rank 0 has written %zu bytes, and %zu are expected",
           group, there, bytes);
    return NCCLGUARD_INVALID;
}

EXPORT int ncclguard_unique_id_exchange(const char *group, int rank, void *id, size_t bytes,
                                        int64_t timeout_ms)
{
    char key[NCCLGUARD_KEY_MAX + 1];
    size_t there = 0;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (!group || !*group || !id || !bytes || rank < 0)
        return NCCLGUARD_INVALID;
    if (strnlen(group, ID_NAME_MAX + 1) > ID_NAME_MAX)
        return NCCLGUARD_TOO_LONG;
    snprintf(key, sizeof(key), "unique id.%s", group);
    if (rank == 0)
        return ncclguard_put(key, id, bytes, timeout_ms);
    int error = ncclguard_get(key, id, bytes, &there, timeout_ms);
    return check_id(error, group, there, bytes, timeout_ms);
}

static void tell(void (*callback)(void), void *context, const struct ng_completion *completion)
{
    bool p2p = ng_op_table[completion->op].op_class == NG_CLASS_P2P;
    struct ncclguard_completion told = {
        .size = sizeof(told),
        .group_id = completion->group_id,
        .group_name = completion->group_name,
        .operation = ng_op_name(completion->op),
        .type = p2p ? NCCLGUARD_SEND_RECV : NCCLGUARD_COLLECTIVE,
        .peer = completion->peer,
        .sequence = completion->seq,
        .bytes = completion->bytes,
        .called_ns = completion->called_ns,
        .started_ns = completion->started_ns,
        .completed_ns = completion->completed_ns,
        .duration_ns = completion->duration_ns,
        .result = completion->result,
    };

    ((ncclguard_completion_fn)callback)(context, &told);
}

EXPORT int ncclguard_on_completion(ncclguard_completion_fn callback, void *context)
{
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (!callback)
        return NCCLGUARD_INVALID;
    int error = ng_completion_begin(tell, (void (*)(void))callback, context);
    /* No thread can be started at the moment. */
    return error == -EAGAIN ? NCCLGUARD_NO_ROOM : told(error);
}

EXPORT int ncclguard_completion_stop(int64_t timeout_ms, uint64_t *ret_dropped)
{
    uint64_t dropped = 0;
    KEEP_ERRNO;

    if (!is_present())
        return NCCLGUARD_ABSENT;
    if (timeout_ms < 0)
        return NCCLGUARD_INVALID;
    int error = ng_completion_end(deadline_in(timeout_ms), &dropped);
    if (ret_dropped)
        *ret_dropped = dropped;
    return error == -ENOENT ? NCCLGUARD_INVALID : told(error);
}
