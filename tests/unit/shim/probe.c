/*
 * A core that only remembers what the shim hands it, and spoils errno on purpose. Any thread.
 */
#include "tests/unit/shim/probe.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "shim/driver.h"
#include "shim/shim.h"

#define EXPORT __attribute__((visibility("default")))
#define KEPT   64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows; innermost */
static struct probe_call calls[KEPT];
static unsigned count;
static char log_text[16384];
static void (*hook)(void);

static void run_hook(void)
{
    void (*function)(void);

    pthread_mutex_lock(&lock);
    function = hook;
    pthread_mutex_unlock(&lock);
    if (function)
        function();
}

void ng_call_enter(struct ng_call *call)
{
    run_hook();
    pthread_mutex_lock(&lock);
    call->record_id = count + 1;
    if (count < KEPT) {
        calls[count].call = *call;
        calls[count].left = false;
        if (call->unique_ids)
            memcpy(calls[count].unique_id, call->unique_ids, sizeof(calls[count].unique_id));
    }
    count++;
    pthread_mutex_unlock(&lock);
    errno = EDOM;
}

void ng_call_leave(struct ng_call *call, int result)
{
    run_hook();
    pthread_mutex_lock(&lock);
    if (call->record_id >= 1 && call->record_id <= KEPT) {
        calls[call->record_id - 1].result = result;
        calls[call->record_id - 1].left = true;
    }
    pthread_mutex_unlock(&lock);
    errno = ERANGE;
}

void ng_log(enum ng_log_level level, const char *format, ...)
{
    size_t used;
    va_list arguments;

    (void)level;
    pthread_mutex_lock(&lock);
    used = strlen(log_text);
    va_start(arguments, format);
    vsnprintf(log_text + used, sizeof(log_text) - used - 1, format, arguments);
    va_end(arguments);
    strcat(log_text, "\n");
    pthread_mutex_unlock(&lock);
}

EXPORT void probe_set_active(bool active)
{
    ng_shim_set_active(active);
}

EXPORT void probe_adopt_thread(void)
{
    ng_shim_adopt_thread();
}

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

EXPORT const char *probe_log(void)
{
    return log_text;
}

EXPORT void probe_set_hook(void (*function)(void))
{
    pthread_mutex_lock(&lock);
    hook = function;
    pthread_mutex_unlock(&lock);
}

EXPORT unsigned probe_nccl_count(void)
{
    return ng_shim_nccl_count();
}

EXPORT const struct ng_nccl *probe_nccl(unsigned index)
{
    return ng_shim_nccl(index);
}

EXPORT bool probe_driver_find(struct ng_cuda *ret_cuda)
{
    return ng_driver_find(ret_cuda);
}
