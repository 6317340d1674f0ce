/*
 * Keys and values: the part common to all backends.
 *
 * Used only for jobs on several hosts. Entered by one thread of the guard or of a tool. Must never
 * be called from a program thread: a store may be slow.
 */
#include "store/kv/kv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/config/store_fault.h"
#include "core/util/clock.h"
#include "core/util/text.h"

int ng_kv_fail(struct ng_kv *kv, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(kv->error, sizeof(kv->error), format, arguments);
    va_end(arguments);
    ng_text_clean(kv->error, strlen(kv->error), false);
    return error;
}

size_t ng_kv_encode(const char *from, char *ret_name, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t length = 0;

    for (; *from; from++) {
        unsigned char character = (unsigned char)*from;
        bool as_is = (character >= 'a' && character <= 'z') ||
                     (character >= 'A' && character <= 'Z') ||
                     (character >= '0' && character <= '9') || strchr("._-", character);
        char text[3] = {(char)character};
        size_t count = 1;
        if (!as_is) {
            text[0] = '%';
            text[1] = digits[character >> 4];
            text[2] = digits[character & 15];
            count = 3;
        }
        for (size_t i = 0; i < count; i++, length++)
            if (length + 1 < bytes)
                ret_name[length] = text[i];
    }
    if (bytes)
        ret_name[length < bytes ? length : bytes - 1] = '\0';
    return length;
}

bool ng_kv_pause(int64_t until_mono_ns, int64_t deadline_mono_ns)
{
    if (until_mono_ns >= deadline_mono_ns)
        return false;
    struct timespec until = {.tv_sec = until_mono_ns / NG_S, .tv_nsec = until_mono_ns % NG_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    return true;
}

void ng_kv_destroy(struct ng_kv *kv)
{
    if (kv)
        kv->ops->destroy(kv);
}

void ng_kv_abandon(struct ng_kv *kv)
{
    if (kv)
        kv->ops->abandon(kv);
}

const char *ng_kv_error(const struct ng_kv *kv)
{
    return kv->error;
}

/* ---- Faults that are injected ---- */

/* 0, or why the store is unreachable. An injected delay is waited for, until the deadline. */
static int reach(struct ng_kv *kv, int64_t deadline_mono_ns)
{
    int64_t delay_ns = atomic_load_explicit(&ng_store_fault.delay_ns, memory_order_relaxed);

    kv->deadline_mono_ns = deadline_mono_ns;
    if (__builtin_expect(atomic_load_explicit(&ng_store_fault.dropped, memory_order_relaxed), 0))
        return ng_kv_fail(kv, -EHOSTUNREACH, "cut off (store-drop of NCCLGUARD_FAULT)");
    if (__builtin_expect(!delay_ns || ng_kv_pause(ng_clock_mono_ns() + delay_ns, deadline_mono_ns),
                         1))
        return 0;
    ng_kv_pause(deadline_mono_ns, INT64_MAX);
    return ng_kv_fail(kv, -ETIMEDOUT, "too slow (store-delay of NCCLGUARD_FAULT)");
}

/* ---- Arguments ---- */

static int check_key(struct ng_kv *kv, const char *key)
{
    size_t length = key ? strlen(key) : 0;

    if (!length)
        return ng_kv_fail(kv, -EINVAL, "a key is empty");
    if (length > NG_KV_KEY_MAX)
        return ng_kv_fail(kv, -EMSGSIZE, "a key has %zu bytes; at most %d", length, NG_KV_KEY_MAX);
    return 0;
}

static int check(struct ng_kv *kv, const char *key, size_t bytes, int64_t ttl_ms)
{
    if (bytes > NG_KV_VALUE_MAX)
        return ng_kv_fail(kv, -EMSGSIZE, "a value has %zu bytes; at most %u", bytes,
                          NG_KV_VALUE_MAX);
    /* Redis rejects a time to live that overflows when added to the current time. */
    if (ttl_ms < 0 || ttl_ms > INT64_C(1000) * 3600 * 24 * 3650)
        return ng_kv_fail(kv, -EINVAL, "a time to live is from 0 to ten years");
    return check_key(kv, key);
}

static int ready(struct ng_kv *kv, const char *key, size_t bytes, int64_t ttl_ms,
                 int64_t deadline_mono_ns)
{
    return check(kv, key, bytes, ttl_ms) ?: reach(kv, deadline_mono_ns);
}

int ng_kv_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes, int64_t ttl_ms,
              int64_t deadline_mono_ns)
{
    return ng_kv_queue_set(kv, key, data, bytes, ttl_ms) ?: ng_kv_flush(kv, deadline_mono_ns, NULL);
}

int ng_kv_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
              struct ng_kv_bytes *ret_value)
{
    return ready(kv, key, 0, 0, deadline_mono_ns)
               ?: kv->ops->get(kv, key, deadline_mono_ns, ret_value);
}

void ng_kv_text(const struct ng_kv_bytes *value, char *ret_text, size_t bytes)
{
    size_t length = value->bytes < bytes ? value->bytes : bytes - 1;

    memcpy(ret_text, value->data, length);
    ret_text[length] = '\0';
}

int ng_kv_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                   int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context)
{
    for (size_t i = 0; i < count; i++) {
        int error = check_key(kv, keys[i]);
        if (error)
            return error;
    }
    int error = count ? reach(kv, deadline_mono_ns) : 0;
    if (error)
        return error;
    return count ? kv->ops->get_many(kv, keys, count, deadline_mono_ns, each, context) : 0;
}

int ng_kv_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
              int64_t deadline_mono_ns, int64_t *ret_value)
{
    return ready(kv, key, 0, ttl_ms, deadline_mono_ns)
               ?: kv->ops->add(kv, key, delta, ttl_ms, deadline_mono_ns, ret_value);
}

int ng_kv_put_if_absent(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                        int64_t ttl_ms, int64_t deadline_mono_ns)
{
    const struct ng_kv_bytes value = {data, bytes};
    return ready(kv, key, bytes, ttl_ms, deadline_mono_ns)
               ?: kv->ops->put_if_absent(kv, key, &value, ttl_ms, deadline_mono_ns);
}

int ng_kv_compare_and_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *expected,
                          const void *data, size_t bytes, int64_t ttl_ms, int64_t deadline_mono_ns,
                          struct ng_kv_bytes *ret_current)
{
    const struct ng_kv_bytes value = {data, bytes};
    struct ng_kv_bytes current;
    int error = ready(kv, key, bytes, ttl_ms, deadline_mono_ns);

    return error
               ?: kv->ops->compare_and_set(kv, key, expected, &value, ttl_ms, deadline_mono_ns,
                                           ret_current ? ret_current : &current);
}

int ng_kv_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns)
{
    return ready(kv, key, 0, 0, deadline_mono_ns) ?: kv->ops->remove(kv, key, deadline_mono_ns);
}

int ng_kv_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns)
{
    return ready(kv, key, 0, ttl_ms, deadline_mono_ns)
               ?: kv->ops->expire(kv, key, ttl_ms, deadline_mono_ns);
}

int ng_kv_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes,
                  int64_t deadline_mono_ns)
{
    return ng_kv_queue_publish(kv, channel, data, bytes) ?: ng_kv_flush(kv, deadline_mono_ns, NULL);
}

int ng_kv_queue_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                    int64_t ttl_ms)
{
    const struct ng_kv_bytes value = {data, bytes};
    int error = check(kv, key, bytes, ttl_ms);

    /* It would be rejected: the flush reports that. */
    if (!error && atomic_load(&ng_store_fault.dropped))
        return 0;
    return error ?: kv->ops->queue_set(kv, key, &value, ttl_ms);
}

int ng_kv_queue_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes)
{
    const struct ng_kv_bytes value = {data, bytes};
    int error = check(kv, channel, bytes, 0);

    /* It would be rejected: the flush reports that. */
    if (!error && atomic_load(&ng_store_fault.dropped))
        return 0;
    return error ?: kv->ops->queue_publish(kv, channel, &value);
}

int ng_kv_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed)
{
    char why[sizeof(kv->error)];
    size_t failed = 0;
    int unreached = reach(kv, deadline_mono_ns);

    memcpy(why, kv->error, sizeof(why));
    /* The queue must be empty in any case. */
    int error = kv->ops->flush(kv, unreached ? 0 : deadline_mono_ns, &failed);
    if (unreached) {
        error = unreached;
        memcpy(kv->error, why, sizeof(why));
    }
    if (ret_failed)
        *ret_failed = failed;
    return error;
}

int ng_kv_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns)
{
    return ready(kv, channel, 0, 0, deadline_mono_ns)
               ?: kv->ops->subscribe(kv, channel, deadline_mono_ns);
}

int ng_kv_message_fd(struct ng_kv *kv)
{
    return atomic_load(&ng_store_fault.dropped) ? -1 : kv->ops->message_fd(kv);
}

int ng_kv_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                       struct ng_kv_message *ret_message)
{
    return reach(kv, deadline_mono_ns) ?: kv->ops->next_message(kv, deadline_mono_ns, ret_message);
}
