/*
 * Subscriptions, on a separate connection.
 *
 * A possible loss of messages is reported, never hidden.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/redis.h"

#define PENDING_MAX 4096 /* messages that arrived while something else was awaited */

void ng_redis_drop_pending(struct ng_redis *redis)
{
    while (redis->pending_count) {
        freeReplyObject(redis->pending[redis->pending_first++]);
        redis->pending_count--;
    }
    redis->pending_first = 0;
}

/* Keep a message that arrived while something else was awaited. */
static void add_pending(struct ng_redis *redis, redisReply *reply)
{
    if (redis->pending_first + redis->pending_count == redis->pending_room) {
        if (redis->pending_first) {
            memmove(redis->pending, redis->pending + redis->pending_first,
                    redis->pending_count * sizeof(reply));
            redis->pending_first = 0;
        } else {
            size_t room = redis->pending_room ? redis->pending_room * 2 : 16;
            redisReply **larger =
                room > PENDING_MAX ? NULL : realloc(redis->pending, room * sizeof(reply));
            if (!larger) {
                freeReplyObject(reply);
                redis->missed = true;
                return;
            }
            redis->pending = larger;
            redis->pending_room = room;
        }
    }
    redis->pending[redis->pending_first + redis->pending_count++] = reply;
}

/* The index of its channel, or -1: not a message. */
static int channel_of(const struct ng_redis *redis, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        !ng_redis_is_text(reply->element[0]) || strcmp(reply->element[0]->str, "message") != 0 ||
        !ng_redis_is_text(reply->element[1]) || !ng_redis_is_text(reply->element[2]) ||
        (size_t)reply->element[1]->len <= redis->prefix_bytes ||
        strncmp(reply->element[1]->str, redis->prefix, redis->prefix_bytes) != 0)
        return -1;
    for (unsigned i = 0; i < redis->channel_count; i++)
        if (strcmp(redis->channels[i], reply->element[1]->str + redis->prefix_bytes) == 0)
            return (int)i;
    return -1;
}

static bool is_confirmation(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements &&
           ng_redis_is_text(reply->element[0]) && strcmp(reply->element[0]->str, "subscribe") == 0;
}

/* The descriptor on which the caller waits, created anew if the program has closed it. */
static void watch_subscription(struct ng_redis *redis)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (!ng_descriptor_ours(&redis->epoll) || !ng_descriptor_ours(&redis->timer)) {
        ng_descriptor_close(&redis->epoll);
        ng_descriptor_close(&redis->timer);
        redis->timer =
            ng_descriptor_keep(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
        redis->epoll = ng_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
        if (redis->epoll.fd < 0 || redis->timer.fd < 0)
            return;
        epoll_ctl(redis->epoll.fd, EPOLL_CTL_ADD, redis->timer.fd, &event);
    }
    /* EEXIST is fine: a closed socket has removed itself. */
    if (redis->sub.open)
        epoll_ctl(redis->epoll.fd, EPOLL_CTL_ADD, redis->sub.link.socket.fd, &event);
}

/* The descriptor becomes readable at this time at the latest. */
static void wake_at(struct ng_redis *redis, int64_t mono_ns)
{
    struct itimerspec when = {.it_value = {mono_ns / NG_S, mono_ns % NG_S}};

    if (mono_ns <= 0)
        when.it_value = (struct timespec){0, 1};
    watch_subscription(redis);
    if (redis->timer.fd >= 0)
        timerfd_settime(redis->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void lose_subscription(struct ng_redis *redis, int error)
{
    ng_redis_link_close(&redis->sub.link);
    ng_redis_note_loss(redis, &redis->sub, error);
    redis->missed = true;
}

/* Subscribe to channels from `first` on. */
static int subscribe_from(struct ng_redis *redis, unsigned first, int64_t deadline_mono_ns)
{
    struct ng_redis_link *link = &redis->sub.link;
    struct ng_redis_batch batch = {0};
    unsigned wanted = redis->channel_count - first;
    int error = 0;

    ng_redis_begin(&batch, "SUBSCRIBE", 1 + wanted);
    for (unsigned i = first; i < redis->channel_count; i++)
        ng_redis_put_key(redis, &batch, redis->channels[i]);
    if (batch.no_memory)
        error = -ENOMEM;
    /* There is an answer for each channel, and messages may arrive in between. */
    const char *text = batch.text;
    size_t bytes = batch.used;
    while (!error && wanted) {
        redisReply *reply = NULL;
        bool sent;
        error = ng_redis_link_exchange(link, text, bytes, &reply, 1, deadline_mono_ns, &sent);
        bytes = 0;
        if (error) {
            if (reply)
                freeReplyObject(reply);
            break;
        }
        if (channel_of(redis, reply) >= 0) {
            add_pending(redis, reply);
            continue;
        }
        if (ng_redis_error_of(reply)) {
            error = ng_redis_error_of(reply);
            snprintf(link->why, sizeof(link->why), "%.200s", reply->str);
        }
        wanted -= is_confirmation(reply);
        freeReplyObject(reply);
    }
    ng_redis_free_batch(&batch);
    if (error)
        lose_subscription(redis, error);
    return error;
}

/* One attempt, if it is due. */
static int connect_subscription(struct ng_redis *redis, int64_t deadline_mono_ns)
{
    struct ng_redis_connection *connection = &redis->sub;
    int64_t now = ng_clock_mono_ns();

    if (connection->open && ng_descriptor_ours(&connection->link.socket))
        return 0;
    if (connection->open)
        lose_subscription(redis, -ECONNRESET);
    if (connection->retry_mono_ns > now || now >= deadline_mono_ns)
        return connection->error ? connection->error : -EAGAIN;
    ng_redis_drop_pending(redis);
    int error = ng_redis_attempt(redis, connection, deadline_mono_ns)
                    ?: subscribe_from(redis, 0, deadline_mono_ns);
    redis->pinged_mono_ns = ng_clock_mono_ns();
    return error;
}

/* Attempts until the deadline, with pauses, as for the main connection. */
static int keep_connecting(struct ng_redis *redis, int64_t deadline_mono_ns)
{
    struct ng_redis_connection *connection = &redis->sub;

    for (;;) {
        if (connection->retry_mono_ns > ng_clock_mono_ns() &&
            !ng_kv_pause(connection->retry_mono_ns, deadline_mono_ns))
            return connection->error;
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return connection->error ? connection->error : -ETIMEDOUT;
        int error = connect_subscription(redis, deadline_mono_ns);
        if (!error || ng_redis_is_lasting(error))
            return error;
    }
}

int ng_redis_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns)
{
    struct ng_redis *redis = ng_redis_of(kv);
    bool open = redis->sub.open && ng_descriptor_ours(&redis->sub.link.socket);
    bool wanted = NG_ANY(one, redis->channels, redis->channel_count, strcmp(*one, channel) == 0);
    int error;

    if (wanted && open)
        return 0;
    if (!wanted && redis->channel_count == NG_KV_CHANNELS_MAX)
        return ng_kv_fail(kv, -ENOSPC, "at most %d channels", NG_KV_CHANNELS_MAX);
    if (!wanted)
        strcpy(redis->channels[redis->channel_count++], channel);
    if (open) {
        error = ng_clock_mono_ns() >= deadline_mono_ns
                    ? -ETIMEDOUT
                    : subscribe_from(redis, redis->channel_count - 1, deadline_mono_ns);
    } else {
        /* Messages of other channels may have been lost; a new subscription has none to lose. */
        bool missed = redis->missed || redis->channel_count > 1;
        error = keep_connecting(redis, deadline_mono_ns);
        redis->missed = error ? true : missed;
    }
    wake_at(redis, error ? redis->sub.retry_mono_ns : redis->pinged_mono_ns + redis->ping_ns);
    if (error == -EAGAIN)
        error = -ETIMEDOUT;
    if (error)
        ng_kv_fail(kv, error, "%s", redis->sub.why[0] ? redis->sub.why : "no time to subscribe");
    return error;
}

int ng_redis_message_fd(struct ng_kv *kv)
{
    struct ng_redis *redis = ng_redis_of(kv);

    if (!redis->channel_count)
        return -1;
    watch_subscription(redis);
    return redis->epoll.fd;
}

static void deliver(struct ng_redis *redis, redisReply *reply, int channel,
                    struct ng_kv_message *ret_message)
{
    redis->message = reply;
    *ret_message =
        (struct ng_kv_message){redis->channels[channel], ng_redis_bytes_of(reply->element[2])};
}

/* Is the server still there? It is pinged, and given up after too long without an answer. */
static int keep_alive(struct ng_redis *redis)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    struct ng_redis_link *link = &redis->sub.link;
    int64_t now = ng_clock_mono_ns();
    int error = 0;

    if (redis->pinged_mono_ns > link->heard_mono_ns &&
        now - redis->pinged_mono_ns >= redis->ping_ns) {
        snprintf(link->why, sizeof(link->why), "the server has not answered for %" PRId64 " ms",
                 (now - link->heard_mono_ns) / NG_MS);
        error = -ECONNRESET;
    } else if (redis->pinged_mono_ns <= link->heard_mono_ns &&
               now - link->heard_mono_ns >= redis->ping_ns) {
        error = ng_redis_link_send(link, ping, sizeof(ping) - 1);
        error = error == -EAGAIN ? 0 : error;
        redis->pinged_mono_ns = now;
    }
    if (error)
        return error;
    int64_t since =
        redis->pinged_mono_ns > link->heard_mono_ns ? redis->pinged_mono_ns : link->heard_mono_ns;
    wake_at(redis, since + redis->ping_ns);
    return 0;
}

int ng_redis_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                          struct ng_kv_message *ret_message)
{
    struct ng_redis *redis = ng_redis_of(kv);
    int error;

    if (redis->message)
        freeReplyObject(redis->message);
    redis->message = NULL;
    if (!redis->channel_count)
        return -EAGAIN;
    if (!redis->sub.open || !ng_descriptor_ours(&redis->sub.link.socket)) {
        redis->missed = true;
        error = connect_subscription(redis, deadline_mono_ns);
        if (error) {
            /* Not at once if the caller left no time for an attempt. */
            int64_t soon = ng_clock_mono_ns() + NG_REDIS_BACKOFF_MIN_MS * NG_MS;
            wake_at(redis, redis->sub.retry_mono_ns > soon ? redis->sub.retry_mono_ns : soon);
            return error == -EAGAIN ? error : ng_kv_fail(kv, error, "%s", redis->sub.why);
        }
        watch_subscription(redis);
    }
    if (redis->missed) {
        redis->missed = false;
        wake_at(redis, 0);
        return ng_kv_fail(kv, -ESTALE, "messages may have been lost");
    }
    if (redis->pending_count) {
        redisReply *reply = redis->pending[redis->pending_first++];
        redis->pending_count--;
        deliver(redis, reply, channel_of(redis, reply), ret_message);
        return 0;
    }
    for (;;) {
        redisReply *reply;
        error = ng_redis_link_next(&redis->sub.link, &reply);
        if (error)
            break;
        int channel = channel_of(redis, reply);
        if (channel >= 0) {
            deliver(redis, reply, channel, ret_message);
            return 0;
        }
        freeReplyObject(reply); /* an answer to a ping */
    }
    if (error == -EAGAIN) {
        error = keep_alive(redis);
        if (!error)
            return -EAGAIN;
    }
    lose_subscription(redis, error);
    wake_at(redis, redis->sub.retry_mono_ns);
    return ng_kv_fail(kv, error, "%s", redis->sub.why);
}
