/*
 * Keys and values on a Redis server, a master that sentinels know, or a Redis Cluster.
 *
 * All keys of a run share one hash tag, so in a cluster they live on one node: redirections are
 * followed by moving there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "store/kv/kv_open.h"
#include "store/kv/redis.h"

#define PAUSE_MAX_MS 50 /* pause before a change is retried that lost to another one */

static void put_set(struct ng_redis *redis, struct ng_redis_batch *batch, const char *key,
                    const struct ng_kv_bytes *value, int64_t ttl_ms, bool if_absent)
{
    ng_redis_begin(batch, "SET", 3u + (ttl_ms ? 2u : 0u) + (if_absent ? 1u : 0u));
    ng_redis_put_key(redis, batch, key);
    ng_redis_put_bytes(batch, value->data, value->bytes);
    if (ttl_ms) {
        ng_redis_put_word(batch, "PX");
        ng_redis_put_number(batch, ttl_ms);
    }
    if (if_absent)
        ng_redis_put_word(batch, "NX");
}

/* Run the commands; the first reply must be of this type. */
static int run_for(struct ng_redis *redis, unsigned flags, int type, int64_t deadline_mono_ns)
{
    int error = ng_redis_run(redis, &redis->batch, flags, deadline_mono_ns);
    if (error || ng_redis_reply(redis, 0)->type == type)
        return error;
    return ng_redis_fail_reply(redis, ng_redis_reply(redis, 0));
}

/* 0 if the server has done what it was told. */
static int done(struct ng_redis *redis, const redisReply *reply)
{
    return ng_redis_is_text(reply) ? 0 : ng_redis_fail_reply(redis, reply);
}

static int redis_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                     struct ng_kv_bytes *ret_value)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_batch *batch = ng_redis_fresh(redis);

    ng_redis_begin(batch, "GET", 2);
    ng_redis_put_key(redis, batch, key);
    int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    if (ng_redis_reply(redis, 0)->type == REDIS_REPLY_NIL)
        return ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
    if (ng_redis_reply(redis, 0)->type != REDIS_REPLY_STRING)
        return ng_redis_fail_reply(redis, ng_redis_reply(redis, 0));
    *ret_value = ng_redis_bytes_of(ng_redis_reply(redis, 0));
    return 0;
}

static int redis_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                          int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context)
{
    struct ng_redis *redis = ng_redis_of(kv);

    for (size_t first = 0; first < count; first += NG_REDIS_KEYS_AT_ONCE) {
        size_t some = count - first < NG_REDIS_KEYS_AT_ONCE ? count - first : NG_REDIS_KEYS_AT_ONCE;
        struct ng_redis_batch *batch = ng_redis_fresh(redis);
        ng_redis_begin(batch, "MGET", 1 + some);
        for (size_t i = 0; i < some; i++)
            ng_redis_put_key(redis, batch, keys[first + i]);
        int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE, deadline_mono_ns);
        if (error)
            return error;
        const redisReply *reply = ng_redis_reply(redis, 0);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != some)
            return ng_redis_fail_reply(redis, reply);
        for (size_t i = 0; i < some; i++) {
            struct ng_kv_bytes value = ng_redis_bytes_of(reply->element[i]);
            each(context, first + i, reply->element[i]->type == REDIS_REPLY_STRING ? &value : NULL);
        }
    }
    return 0;
}

static int redis_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
                     int64_t deadline_mono_ns, int64_t *ret_value)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_batch *batch = ng_redis_fresh(redis);

    ng_redis_begin(batch, "INCRBY", 3);
    ng_redis_put_key(redis, batch, key);
    ng_redis_put_number(batch, delta);
    if (ttl_ms) {
        ng_redis_begin(batch, "PEXPIRE", 3);
        ng_redis_put_key(redis, batch, key);
        ng_redis_put_number(batch, ttl_ms);
    }
    int error = run_for(redis, 0, REDIS_REPLY_INTEGER, deadline_mono_ns);
    if (!error)
        *ret_value = ng_redis_reply(redis, 0)->integer;
    return error;
}

static int redis_put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                               int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_batch *batch = ng_redis_fresh(redis);

    put_set(redis, batch, key, value, ttl_ms, true);
    int error = ng_redis_run(redis, batch, 0, deadline_mono_ns);
    if (error)
        return error;
    if (ng_redis_reply(redis, 0)->type == REDIS_REPLY_NIL)
        return ng_kv_fail(kv, -EEXIST, "%s has a value already", key);
    return done(redis, ng_redis_reply(redis, 0));
}

/* The second half of compare_and_set, on the connection that watches the key. 0; -EAGAIN: the key
 * was changed meanwhile, or the change was not made for another temporary reason; or -errno. */
static int set_watched(struct ng_redis *redis, const char *key, const struct ng_kv_bytes *value,
                       int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_redis_batch *batch = &redis->batch;
    bool sent;

    ng_redis_empty_batch(batch);
    ng_redis_begin(batch, "MULTI", 1);
    put_set(redis, batch, key, value, ttl_ms, false);
    ng_redis_begin(batch, "EXEC", 1);
    if (ng_clock_mono_ns() >= deadline_mono_ns)
        return ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to ask the server");
    int error = ng_redis_exchange(&redis->main.link, batch, deadline_mono_ns, &sent);
    if (error) {
        if (!redis->main.link.reader)
            ng_redis_note_loss(redis, &redis->main, error);
        if (error == -ECONNRESET && !sent)
            return -EAGAIN;
        return ng_kv_fail(&redis->kv, error, "%s", redis->main.link.why);
    }
    /* In order: MULTI may be refused, then the change, then all of it. */
    for (size_t i = 0; i < 3; i++) {
        int meaning = ng_redis_error_of(ng_redis_reply(redis, i));
        if (meaning == NG_REDIS_MOVED || meaning == NG_REDIS_ASK || meaning == -EBUSY)
            return -EAGAIN;
        if (meaning == -EROFS)
            ng_redis_move_on(&redis->main);
        if (meaning)
            return ng_redis_fail_reply(redis, ng_redis_reply(redis, i));
    }
    const redisReply *reply = ng_redis_reply(redis, 2);
    if (reply->type == REDIS_REPLY_NIL)
        return -EAGAIN;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1)
        return ng_redis_fail_reply(redis, reply);
    return done(redis, reply->element[0]);
}

/* With WATCH and MULTI: a script would need one round trip, but users often may not run any. */
static int redis_compare_and_set(struct ng_kv *kv, const char *key,
                                 const struct ng_kv_bytes *expected,
                                 const struct ng_kv_bytes *value, int64_t ttl_ms,
                                 int64_t deadline_mono_ns, struct ng_kv_bytes *ret_current)
{
    struct ng_redis *redis = ng_redis_of(kv);
    int64_t pause_ms = 0;

    for (;;) {
        struct ng_redis_batch *batch = ng_redis_fresh(redis);
        ng_redis_begin(batch, "UNWATCH",
                       1); /* left by an earlier attempt that failed before this point */
        ng_redis_begin(batch, "WATCH", 2);
        ng_redis_put_key(redis, batch, key);
        ng_redis_begin(batch, "GET", 2);
        ng_redis_put_key(redis, batch, key);
        int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE | NG_REDIS_ONE_CONNECTION,
                                 deadline_mono_ns);
        if (error)
            return error;
        for (size_t i = 0; i < 3; i++)
            if (ng_redis_error_of(ng_redis_reply(redis, i)))
                return ng_redis_fail_reply(redis, ng_redis_reply(redis, i));
        const redisReply *now = ng_redis_reply(redis, 2);
        if (now->type == REDIS_REPLY_NIL) {
            if (expected)
                return ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
        } else if (now->type != REDIS_REPLY_STRING) {
            return ng_redis_fail_reply(redis, now);
        } else if (!expected || expected->bytes != (size_t)now->len ||
                   memcmp(expected->data, now->str, expected->bytes) != 0) {
            *ret_current = ng_redis_bytes_of(now);
            return ng_kv_fail(kv, -EEXIST, "%s has another value", key);
        }
        error = set_watched(redis, key, value, ttl_ms, deadline_mono_ns);
        if (error != -EAGAIN)
            return error;
        if (!ng_kv_pause(ng_clock_mono_ns() + pause_ms * NG_MS, deadline_mono_ns))
            return ng_kv_fail(kv, -EBUSY, "%s is changed by others all the time", key);
        pause_ms = pause_ms * 2 + 1 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause_ms * 2 + 1;
    }
}

static int redis_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_batch *batch = ng_redis_fresh(redis);

    ng_redis_begin(batch, "DEL", 2);
    ng_redis_put_key(redis, batch, key);
    int error = run_for(redis, NG_REDIS_REPEATABLE, REDIS_REPLY_INTEGER, deadline_mono_ns);
    if (error)
        return error;
    return ng_redis_reply(redis, 0)->integer ? 0
                                             : ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
}

static int redis_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_batch *batch = ng_redis_fresh(redis);
    size_t last = 0;

    if (ttl_ms) {
        ng_redis_begin(batch, "PEXPIRE", 3);
        ng_redis_put_key(redis, batch, key);
        ng_redis_put_number(batch, ttl_ms);
    } else {
        /* PERSIST returns the same for a key without a time to live and for a missing one. */
        ng_redis_begin(batch, "PERSIST", 2);
        ng_redis_put_key(redis, batch, key);
        ng_redis_begin(batch, "EXISTS", 2);
        ng_redis_put_key(redis, batch, key);
        last = 1;
    }
    int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    for (size_t i = 0; i <= last; i++)
        if (ng_redis_reply(redis, i)->type != REDIS_REPLY_INTEGER)
            return ng_redis_fail_reply(redis, ng_redis_reply(redis, i));
    return ng_redis_reply(redis, last)->integer
               ? 0
               : ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
}

/* If memory is short, only the command that does not fit is rejected; the others take effect. */
static int queued(struct ng_redis *redis, size_t used, size_t count)
{
    if (!redis->queue.no_memory)
        return 0;
    redis->queue.no_memory = false;
    redis->queue.used = used;
    redis->queue.count = count;
    return ng_kv_fail(&redis->kv, -ENOMEM, "no memory");
}

static int redis_queue_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                           int64_t ttl_ms)
{
    struct ng_redis *redis = ng_redis_of(kv);
    size_t used = redis->queue.used, count = redis->queue.count;

    put_set(redis, &redis->queue, key, value, ttl_ms, false);
    return queued(redis, used, count);
}

static int redis_queue_publish(struct ng_kv *kv, const char *channel,
                               const struct ng_kv_bytes *data)
{
    struct ng_redis *redis = ng_redis_of(kv);
    size_t used = redis->queue.used, count = redis->queue.count;

    ng_redis_begin(&redis->queue, "PUBLISH", 3);
    ng_redis_put_key(redis, &redis->queue, channel);
    ng_redis_put_bytes(&redis->queue, data->data, data->bytes);
    return queued(redis, used, count);
}

static int redis_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed)
{
    struct ng_redis *redis = ng_redis_of(kv);
    size_t failed = 0;
    int error = 0;

    ng_redis_fresh(redis);
    if (redis->queue.count)
        error = ng_redis_run(redis, &redis->queue, NG_REDIS_REPEATABLE, deadline_mono_ns);
    for (size_t i = 0; i < redis->queue.count; i++) {
        const redisReply *reply = redis->queue.commands[i].reply;
        bool done = reply && redis->queue.commands[i].answered && !ng_redis_error_of(reply);
        failed += !done;
        if (!done && !error)
            error = ng_redis_fail_reply(redis, reply);
    }
    ng_redis_empty_batch(&redis->queue);
    *ret_failed = failed;
    return error;
}

static void redis_abandon(struct ng_kv *kv)
{
    struct ng_redis *redis = ng_redis_of(kv);

    ng_redis_link_abandon(&redis->main.link);
    ng_redis_link_abandon(&redis->sub.link);
    ng_redis_link_abandon(&redis->helper);
    ng_resolve_abandon();
    ng_descriptor_close(&redis->epoll);
    ng_descriptor_close(&redis->timer);
}

static void redis_destroy(struct ng_kv *kv)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_redis_link *links[] = {&redis->main.link, &redis->sub.link, &redis->helper};

    for (size_t i = 0; i < 3; i++) {
        ng_redis_link_close(links[i]);
        ng_resolve_forget(&links[i]->lookup);
    }
    ng_descriptor_close(&redis->epoll);
    ng_descriptor_close(&redis->timer);
    if (redis->message)
        freeReplyObject(redis->message);
    ng_redis_drop_pending(redis);
    free(redis->pending);
    ng_redis_free_batch(&redis->batch);
    ng_redis_free_batch(&redis->queue);
    free(redis->prefix);
    explicit_bzero(&redis->url, sizeof(redis->url));
    free(redis);
}

static const struct ng_kv_ops redis_ops = {
    .get = redis_get,
    .get_many = redis_get_many,
    .add = redis_add,
    .put_if_absent = redis_put_if_absent,
    .compare_and_set = redis_compare_and_set,
    .remove = redis_remove,
    .expire = redis_expire,
    .queue_set = redis_queue_set,
    .queue_publish = redis_queue_publish,
    .flush = redis_flush,
    .subscribe = ng_redis_subscribe,
    .message_fd = ng_redis_message_fd,
    .next_message = ng_redis_next_message,
    .abandon = redis_abandon,
    .destroy = redis_destroy,
};

/* {ncclguard:JOB:RUN}: — the braces mark the hash tag, so names must not contain any. */
static char *make_prefix(const struct ng_kv_options *options, size_t *ret_bytes)
{
    size_t job = ng_kv_encode(options->job, NULL, 0);
    size_t run = ng_kv_encode(options->run, NULL, 0);
    size_t bytes = strlen("{ncclguard::}:") + job + run;
    char *prefix = malloc(bytes + 1);

    if (!prefix)
        return NULL;
    char *at = prefix + sprintf(prefix, "{ncclguard:");
    at += ng_kv_encode(options->job, at, job + 1);
    *at++ = ':';
    at += ng_kv_encode(options->run, at, run + 1);
    strcpy(at, "}:");
    *ret_bytes = bytes;
    return prefix;
}

int ng_kv_redis_open(const struct ng_url *url, const struct ng_kv_options *options, char *why,
                     size_t why_bytes, struct ng_kv **ret_kv)
{
    char shown[256];

    ng_url_print(url, shown, sizeof(shown));
    if (url->tls && !options->tls) {
        snprintf(why, why_bytes,
                 "store \"%s\": this build of ncclguard has no TLS: use redis://, or build it "
                 "where OpenSSL's headers are (libssl-dev)",
                 shown);
        return -EOPNOTSUPP;
    }
    struct ng_redis *redis = calloc(1, sizeof(*redis));
    if (redis)
        redis->prefix = make_prefix(options, &redis->prefix_bytes);
    if (!redis || !redis->prefix) {
        free(redis);
        snprintf(why, why_bytes, "no memory");
        return -ENOMEM;
    }
    redis->kv.ops = &redis_ops;
    redis->url = *url;
    redis->tls = options->tls;
    redis->main.link = redis->sub.link = redis->helper = NG_REDIS_LINK_CLOSED;
    redis->epoll = redis->timer = NG_DESCRIPTOR_NONE;
    redis->ping_ns = (options->ping_ms > 0 ? options->ping_ms : NG_KV_PING_MS) * NG_MS;
    redis->random = ((uint64_t)ng_clock_mono_ns() ^ ((uint64_t)getpid() << 32)) | 1;
    *ret_kv = &redis->kv;
    return 0;
}
