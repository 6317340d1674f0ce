/*
 * A core that only remembers what the shim hands it, and spoils errno on purpose. Any thread.
 */
#include "tests/unit/shim/probe.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/call/nonblocking.h"
#include "core/comm/comm.h"
#include "core/comm/failure.h"
#include "core/comm/gate.h"
#include "core/comm/thread.h"
#include "core/fault/inject.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "core/runtime/unusual.h"
#include "core/util/fast_clock.h"
#include "core/util/log.h"
#include "shim/instance.h"
#include "shim/memory_calls.h"
#include "shim/parts.h"
#include "shim/shim.h"

#define EXPORT __attribute__((visibility("default")))
#define KEPT   64

/* No communicator is known to this core. */
static struct ng_comm_entry no_entries[NG_COMM_PLACES];
struct ng_comm_entry *_Atomic ng_comm_table = no_entries;

/* Nor does its guard run, so that every call takes the long way. */
struct ng_guard ng_guard;
atomic_uint ng_unusual = NG_UNUSUAL_FIRST;
__thread struct ng_thread *ng_this_thread;
struct ng_fast_clock_scale *_Atomic ng_fast_clock_scale;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows; innermost */
static struct probe_call calls[KEPT];
static unsigned count;
static char log_text[16384];
static void (*hook)(void);
/* What enter and visit say: NG_CALL_PROCEED, or that the communicator is aborted. */
static atomic_int answer = NG_CALL_PROCEED;

static void run_hook(void)
{
    void (*function)(void);

    pthread_mutex_lock(&lock);
    function = hook;
    pthread_mutex_unlock(&lock);
    if (function)
        function();
}

/* A function of core that only answers. */
#define ANSWER(type, name, parameters, value)                                                      \
    type name parameters                                                                           \
    {                                                                                              \
        return value;                                                                              \
    }

/* Nothing is registered. */
ANSWER(void *, ng_memory_call,
       (enum ng_api_id id, const struct ng_instance *instance, struct ng_comm *guest,
        const void *caller),
       NULL)

static void enter(const struct ng_call *call, enum ng_op_class way,
                  struct ng_call_context *ret_context)
{
    run_hook();
    pthread_mutex_lock(&lock);
    ret_context->record_id = count;
    if (count < KEPT) {
        struct probe_call *kept = &calls[count];

        kept->call = *call;
        kept->way = way;
        if (call->creation) {
            kept->creation = *call->creation;
            if (call->creation->unique_ids)
                memcpy(kept->unique_id, call->creation->unique_ids, sizeof(kept->unique_id));
        }
    }
    count++;
    pthread_mutex_unlock(&lock);
    errno = EDOM;
}

static void leave(const struct ng_call *call, enum ng_op_class way, struct ng_call_context *context,
                  int result)
{
    run_hook();
    pthread_mutex_lock(&lock);
    if (context->record_id < KEPT) {
        struct probe_call *kept = &calls[context->record_id];

        kept->result = result;
        kept->way_out = way;
        kept->left = call->op == kept->call.op;
    }
    pthread_mutex_unlock(&lock);
    errno = ERANGE;
}

#define WAY(name, of_class)                                                                        \
    int ng_##name##_enter(const struct ng_call *call, struct ng_call_context *ret_context)         \
    {                                                                                              \
        enter(call, of_class, ret_context);                                                        \
        return atomic_load(&answer);                                                               \
    }                                                                                              \
    int ng_##name##_leave(const struct ng_call *call, struct ng_call_context *context, int result) \
    {                                                                                              \
        leave(call, of_class, context, result);                                                    \
        return result;                                                                             \
    }

WAY(call, NG_CLASS_NONE)
WAY(collective, NG_CLASS_COLLECTIVE)
WAY(p2p, NG_CLASS_P2P)

/* This core knows no communicator, but one may be said to be aborted. */
int ng_gate_visit(const void *handle, struct ng_comm **ret_guest)
{
    *ret_guest = NULL;
    return atomic_load(&answer);
}

ANSWER(int, ng_ended_passed, (const void *handle, const char *name, int result), result)
ANSWER(void, ng_thread_refuse, (const struct ng_nccl *nccl, int result), )
ANSWER(void, ng_gate_leave, (struct ng_comm * guest), )
ANSWER(const char *, ng_abort_reason, (const void *handle),
       atomic_load(&answer) == NG_CALL_PROCEED || !handle ? NULL : PROBE_REASON)
/* No communicator is converted. */
ANSWER(int, ng_nonblocking_finish_passed, (struct ng_comm * comm, int result), result)

void ng_failure_tell_passed(const char *name, const struct ng_nccl *nccl,
                            const struct ng_comm *comm, int result)
{
    ng_log(NG_LOG_WARN, "failed: nccl%s of %s: %d", name, nccl->path, result);
    errno = EDOM;
}

/* Nothing is injected but what a test says. */
bool ng_inject_armed;
static void (*change)(struct ng_call *call);

int ng_inject_enter(struct ng_call *call, struct ng_injection *ret_injection)
{
    *ret_injection = (struct ng_injection){0};
    change(call);
    return NG_CALL_PROCEED;
}

ANSWER(int, ng_inject_result,
       (const struct ng_call *call, struct ng_injection *injection, int result), result)
ANSWER(void, ng_inject_done, (const struct ng_injection *injection), )
ANSWER(bool, ng_inject_following, (struct ng_injection * injection, struct ng_call *ret_call),
       false)
ANSWER(void, ng_inject_followed, (const struct ng_call *call, int result), )
ANSWER(int, ng_inject_answer, (const void *handle, int error), error)

EXPORT void probe_inject(void (*function)(struct ng_call *call))
{
    change = function;
    ng_inject_armed = function != NULL;
}

void ng_log(enum ng_log_level level, const char *format, ...)
{
    size_t used;
    va_list arguments;

    pthread_mutex_lock(&lock);
    used = strlen(log_text);
    va_start(arguments, format);
    vsnprintf(log_text + used, sizeof(log_text) - used - 1, format, arguments);
    va_end(arguments);
    strcat(log_text, "\n");
    pthread_mutex_unlock(&lock);
}

EXPORT ANSWER(void, probe_set_active, (bool active), ng_shim_set_active(active)) EXPORT
    ANSWER(unsigned, probe_unusual, (void), atomic_load(&ng_unusual)) EXPORT
    ANSWER(void, probe_adopt_thread, (void), ng_shim_adopt_thread()) EXPORT
    ANSWER(void, probe_set_answer, (int wanted), atomic_store(&answer, wanted)) EXPORT
    ANSWER(const char *, probe_log, (void), log_text)
EXPORT ANSWER(unsigned, probe_nccl_count, (void), atomic_load(&ng_instance_count)) EXPORT
    ANSWER(const struct ng_nccl *, probe_nccl, (unsigned index),
           index < atomic_load(&ng_instance_count) ? &ng_instances[index].nccl : NULL) EXPORT
    ANSWER(bool, probe_driver_find, (struct ng_cuda * ret_cuda), ng_driver_find(ret_cuda))

        EXPORT void probe_clear(void)
{
    pthread_mutex_lock(&lock);
    memset(calls, 0, sizeof(calls));
    count = 0;
    log_text[0] = '\0';
    pthread_mutex_unlock(&lock);
}

EXPORT unsigned probe_call_count(void)
{
    unsigned result;

    pthread_mutex_lock(&lock);
    result = count;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT struct probe_call probe_call_at(unsigned index)
{
    struct probe_call result;

    pthread_mutex_lock(&lock);
    result = calls[index];
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT void probe_set_hook(void (*function)(void))
{
    pthread_mutex_lock(&lock);
    hook = function;
    pthread_mutex_unlock(&lock);
}
