/*
 * Log lines about failed calls.
 *
 * Entered by the program's threads after a call that failed, and by the watchdog.
 */
#include "core/comm/failure.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"
#include "core/nccl/group_id.h"
#include "core/util/log.h"
#include "core/util/text.h"

/* By ncclResult_t. */
static const char *const hints[] = {
    [1] = "a call of CUDA failed: look for an earlier error of the device, and dmesg for Xid",
    [2] = "a system call failed: memory, shared memory, a device file or the network",
    [3] = "a fault inside NCCL, or memory of it that was overwritten",
    [4] = "an argument is not allowed: NCCL_DEBUG=WARN names it",
    [5] = "the call is not allowed here: NCCL_DEBUG=WARN says why",
    [6] = "a peer is gone or cannot be reached: see its own log",
};

const char *ng_failure_hint(int result)
{
    unsigned index = (unsigned)result;

    return index < sizeof(hints) / sizeof(hints[0]) && hints[index] ? hints[index] : "";
}

/* Counts of logged failures. The last entry counts all failures without an entry of their own. */
static struct {
    _Atomic uint64_t key; /* 0 free */
    _Atomic uint64_t count;
} told[64];
#define PLACES (sizeof(told) / sizeof(told[0]))

/* How often this failure has occurred, including now. */
static uint64_t count_up(uint64_t key)
{
    size_t place = 0;

    for (; place < PLACES - 1; place++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&told[place].key, &there, key) || there == key)
            break;
    }
    return atomic_fetch_add(&told[place].count, 1) + 1;
}

bool ng_failure_is_power_of_ten(uint64_t count)
{
    while (count % 10 == 0)
        count /= 10;
    return count == 1;
}

/* How often it has occurred, if that is worth a line; else 0. `op`: an operation, or the hash of a
 * name. */
static uint64_t is_worth_telling(uint64_t op, int result, const struct ng_comm *comm)
{
    uint64_t words[] = {op, (uint64_t)result, comm ? atomic_load(&comm->group->id) : 0};
    uint64_t count = count_up(ng_hash(0, words, sizeof(words)) | 1);

    return ng_failure_is_power_of_ten(count) ? count : 0;
}

static void add_result(struct ng_text *line, const struct ng_nccl *nccl, int result)
{
    const char *text = nccl->get_last_error ? nccl->get_last_error(NULL) : NULL;
    int version = nccl->version;

    ng_text_add(line, "%s", ng_result_name(result));
    if (ng_failure_hint(result)[0])
        ng_text_add(line, " (%s)", ng_failure_hint(result));
    if (version >= 10000)
        ng_text_add(line, "; NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    if (text && text[0])
        ng_text_add(line, "; last error: %.300s", text);
}

static void log_line(struct ng_text *line, uint64_t count)
{
    if (count > 1)
        ng_text_add(line, "; %" PRIu64 " times so far", count);
    for (char *at = line->text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = ' ';
    ng_log(NG_LOG_WARN, "%s", line->text);
}

/* Has the communicator been ended, so that the program knows why its call failed? */
static bool has_ended(const struct ng_comm *comm)
{
    uint32_t state = atomic_load(&comm->group->state);

    return !ng_comm_is_let_live(comm) || ng_group_state_is_freed(state);
}

static void tell(const char *name, uint64_t op, const struct ng_nccl *nccl,
                 const struct ng_comm *comm, uint64_t seq, int result)
{
    char text[900] = "", group[160];
    struct ng_text line = {text, 0, sizeof(text)};

    if (!ng_log_enabled(NG_LOG_WARN) || (comm && has_ended(comm)))
        return;
    uint64_t count = is_worth_telling(op, result, comm);
    if (!count)
        return;
    ng_text_add(&line, "nccl%s", name);
    if (seq)
        ng_text_add(&line, " #%" PRIu64, seq);
    if (comm) {
        ng_comm_describe(comm, group, sizeof(group));
        ng_text_add(&line, " of %s", group);
    }
    ng_text_add(&line, " returned ");
    add_result(&line, nccl, result);
    log_line(&line, count);
}

void ng_failure_tell(const struct ng_call *call, const struct ng_comm *comm, uint64_t seq,
                     int result)
{
    tell(ng_op_name(call->op), call->op, call->nccl, comm, seq, result);
}

void ng_failure_tell_passed(const char *name, const struct ng_nccl *nccl,
                            const struct ng_comm *comm, int result)
{
    tell(name, ng_hash(0, name, strlen(name)), nccl, comm, 0, result);
}

void ng_failure_tell_ended(const char *name, const void *handle, int result)
{
    uint64_t words[] = {ng_hash(0, name, strlen(name)), (uint64_t)result, (uintptr_t)handle};
    char text[200] = "";
    struct ng_text line = {text, 0, sizeof(text)};

    uint64_t count =
        ng_log_enabled(NG_LOG_WARN) ? count_up(ng_hash(0, words, sizeof(words)) | 1) : 0;
    if (!count || !ng_failure_is_power_of_ten(count))
        return;
    ng_text_add(&line, "nccl%s: the program has destroyed or aborted communicator %p: ", name,
                handle);
    if (result == NG_NCCL_SUCCESS)
        ng_text_add(&line, "there is nothing to be done");
    else
        ng_text_add(&line, "the call is refused with %s", ng_result_name(result));
    log_line(&line, count);
}

void ng_failure_tell_async(const struct ng_nccl *nccl, const struct ng_comm *comm, int error)
{
    char text[900] = "", name[160];
    struct ng_text line = {text, 0, sizeof(text)};
    uint64_t entered = NG_LOAD(comm->group->entered);

    uint64_t count = is_worth_telling(NG_OP_NONE, error, comm);
    if (!count)
        return;
    ng_comm_describe(comm, name, sizeof(name));
    ng_text_add(&line, "asynchronous error of %s", name);
    if (entered)
        ng_text_add(&line, " at or before collective #%" PRIu64, entered);
    ng_text_add(&line, ": ");
    add_result(&line, nccl, error);
    log_line(&line, count);
}
