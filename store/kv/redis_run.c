/*
 * Running commands: repeated if permitted, and redirected as a cluster demands.
 *
 * Must never send a command twice that cannot be repeated.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/redis.h"

#define BUSY_MIN_MS    20 /* pause before a server that cannot serve yet is tried again */
#define BUSY_MAX_MS    250
#define REDIRECTS_FREE 4 /* number of redirections that are followed without a pause */

void ng_redis_put_key(struct ng_redis *redis, struct ng_redis_batch *batch, const char *key)
{
    size_t bytes = strlen(key);

    ng_redis_put_head(batch, '$', redis->prefix_bytes + bytes);
    ng_redis_put(batch, redis->prefix, redis->prefix_bytes);
    ng_redis_put(batch, key, bytes);
    ng_redis_put(batch, "\r\n", 2);
}

int ng_redis_fail_reply(struct ng_redis *redis, const redisReply *reply)
{
    int error = ng_redis_error_of(reply);

    if (error == NG_REDIS_MOVED || error == NG_REDIS_ASK)
        error = -EBUSY;
    error = error ?: -EPROTO;
    return ng_kv_fail(&redis->kv, error, "Redis at %s: %.200s", redis->main.at.host,
                      reply && reply->type == REDIS_REPLY_ERROR ? reply->str
                                                                : "an unexpected answer");
}

/* "MOVED 3999 10.0.0.1:6379". An empty host means the server that sent it. */
static bool parse_redirect(const struct ng_redis *redis, const redisReply *reply,
                           struct ng_redis_node *ret_node)
{
    const char *slot = strchr(reply->str, ' ');
    const char *host = slot ? strchr(slot + 1, ' ') : NULL;
    const char *colon = host ? strrchr(host, ':') : NULL;

    if (!colon || atoi(colon + 1) < 1 || atoi(colon + 1) > 65535)
        return false;
    size_t length = (size_t)(colon - ++host);
    if (length >= sizeof(ret_node->host))
        return false;
    if (length == 0 || (length == 1 && *host == '?')) {
        strcpy(ret_node->host, redis->main.at.host);
    } else {
        memcpy(ret_node->host, host, length);
        ret_node->host[length] = '\0';
    }
    ret_node->port = (uint16_t)atoi(colon + 1);
    return true;
}

/*
 * May a redirection be followed, and its target get the password? Only hosts in the URL, or in the
 * cluster's own list. The current server is trusted: if our list does not contain the host, the
 * server is queried again.
 */
static bool may_follow(struct ng_redis *redis, const struct ng_redis_node *node,
                       int64_t deadline_mono_ns)
{
    struct ng_redis_batch batch = {0};
    bool known = strcmp(node->host, redis->main.at.host) == 0, sent;

    for (unsigned i = 0; i < redis->url.host_count && !known; i++)
        known = strcmp(node->host, redis->url.hosts[i].name) == 0;
    for (unsigned i = 0; i < redis->node_count && !known; i++)
        known = strcmp(node->host, redis->nodes[i].host) == 0;
    if (known)
        return true;
    ng_redis_begin(&batch, "CLUSTER", 2);
    ng_redis_put_word(&batch, "SLOTS");
    if (ng_redis_exchange(&redis->main.link, &batch, ng_redis_share(deadline_mono_ns, 2), &sent) ==
        0)
        known = ng_redis_lists(batch.commands[0].reply, node->host);
    ng_redis_free_batch(&batch);
    return known;
}

/* Run one command at a node that is about to take over the key. Its reply is final unless it is an
 * error that a second try may fix. */
static void ask(struct ng_redis *redis, struct ng_redis_batch *batch, size_t index,
                int64_t deadline_mono_ns)
{
    struct ng_redis_command *command = &batch->commands[index];
    struct ng_redis_batch once = {0};
    struct ng_redis_node node;
    bool sent;

    if (!parse_redirect(redis, command->reply, &node))
        return;
    if (ng_redis_open_node(redis, &redis->helper, &node, ng_redis_share(deadline_mono_ns, 2)) != 0)
        return;
    if (redis->url.password[0])
        ng_redis_put_auth(redis, &once);
    ng_redis_begin(&once, "ASKING", 1);
    ng_redis_copy(&once, batch, index);
    if (ng_redis_exchange(&redis->helper, &once, ng_redis_share(deadline_mono_ns, 2), &sent) == 0) {
        redisReply **reply = &once.commands[once.count - 1].reply;
        int meaning = ng_redis_error_of(*reply);
        if (meaning != NG_REDIS_MOVED && meaning != NG_REDIS_ASK && meaning != -EBUSY) {
            freeReplyObject(command->reply);
            command->reply = *reply;
            command->answered = true;
            *reply = NULL;
        }
    }
    if (once.text)
        explicit_bzero(once.text, once.used);
    ng_redis_free_batch(&once);
    ng_redis_link_close(&redis->helper);
}

/* Send the commands without a reply. */
static int send_rest(struct ng_redis *redis, struct ng_redis_batch *batch, int64_t deadline_mono_ns,
                     bool *ret_sent)
{
    size_t answered = 0, next = 0;

    for (size_t i = 0; i < batch->count; i++)
        answered += batch->commands[i].answered;
    if (!answered)
        return ng_redis_exchange(&redis->main.link, batch, deadline_mono_ns, ret_sent);
    struct ng_redis_batch rest = {0};
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->commands[i].answered)
            continue;
        ng_redis_copy(&rest, batch, i);
    }
    int error = ng_redis_exchange(&redis->main.link, &rest, deadline_mono_ns, ret_sent);
    for (size_t i = 0; next < rest.count && i < batch->count; i++) {
        if (batch->commands[i].answered)
            continue;
        batch->commands[i].reply = rest.commands[next].reply;
        rest.commands[next++].reply = NULL;
    }
    ng_redis_free_batch(&rest);
    return error;
}

/*
 * Examine the replies: final ones stay, others are freed and will be requested again. Returns
 * NG_REDIS_MOVED or -EBUSY if there are such, 0 if all are final; -EACCES: one redirects to a host
 * that is not permitted.
 */
static int sort_replies(struct ng_redis *redis, struct ng_redis_batch *batch, int flags,
                        int64_t deadline_mono_ns, struct ng_redis_node *ret_node)
{
    struct ng_redis_node node;
    int again = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct ng_redis_command *command = &batch->commands[i];
        if (command->answered || !command->reply)
            continue;
        int meaning = ng_redis_error_of(command->reply);
        if ((meaning == NG_REDIS_MOVED || meaning == NG_REDIS_ASK) &&
            parse_redirect(redis, command->reply, &node) &&
            !may_follow(redis, &node, deadline_mono_ns))
            return ng_kv_fail(&redis->kv, -EACCES,
                              "Redis at %s sends us to %.200s, which is neither in the store's URL "
                              "nor a node of its "
                              "cluster",
                              redis->main.at.host, node.host);
        if (meaning == NG_REDIS_ASK && !(flags & NG_REDIS_ONE_CONNECTION))
            ask(redis, batch, i, deadline_mono_ns);
        if (command->answered)
            continue;
        bool elsewhere = meaning == -EROFS &&
                         (redis->cluster || redis->url.kind == NG_URL_SENTINEL) &&
                         strncmp(command->reply->str, "READONLY", 8) == 0;
        if (meaning == NG_REDIS_MOVED && parse_redirect(redis, command->reply, ret_node)) {
            again = NG_REDIS_MOVED;
        } else if (meaning == NG_REDIS_MOVED || meaning == NG_REDIS_ASK || meaning == -EBUSY ||
                   elsewhere) {
            again = again == NG_REDIS_MOVED ? again : -EBUSY;
            ng_kv_fail(&redis->kv, elsewhere ? -EROFS : -EBUSY, "Redis at %s: %.200s",
                       redis->main.at.host, command->reply->str);
            if (elsewhere)
                ng_redis_move_on(&redis->main);
        } else {
            command->answered = true;
            /* The address may refer to another server by now. */
            if (meaning == -EROFS)
                ng_redis_move_on(&redis->main);
        }
    }
    if (again && (flags & NG_REDIS_ONE_CONNECTION)) {
        ng_redis_free_replies(batch);
        return again;
    }
    for (size_t i = 0; again && i < batch->count; i++) {
        if (!batch->commands[i].answered) {
            freeReplyObject(batch->commands[i].reply);
            batch->commands[i].reply = NULL;
        }
    }
    return again;
}

int ng_redis_run(struct ng_redis *redis, struct ng_redis_batch *batch, int flags,
                 int64_t deadline_mono_ns)
{
    int64_t pause_ms = BUSY_MIN_MS;
    unsigned redirects = 0;
    struct ng_redis_node node;

    for (;;) {
        bool sent = false;
        int error = ng_redis_ensure(redis, deadline_mono_ns);
        if (error)
            return error;
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to ask the server");
        error = send_rest(redis, batch, deadline_mono_ns, &sent);
        if (error) {
            if (!redis->main.link.reader)
                ng_redis_note_loss(redis, &redis->main, error);
            /* Replies that arrived before it was lost: not enough to be useful. */
            NG_EACH (command, batch->commands, batch->count) {
                if (command->reply && (!command->answered || (flags & NG_REDIS_ONE_CONNECTION))) {
                    freeReplyObject(command->reply);
                    command->reply = NULL;
                    command->answered = false;
                }
            }
            if (error != -ECONNRESET || (sent && !(flags & NG_REDIS_REPEATABLE)))
                return ng_kv_fail(&redis->kv, error, "%s", redis->main.link.why);
            continue;
        }
        redis->main.useful = true;
        int again = sort_replies(redis, batch, flags, deadline_mono_ns, &node);
        if (!again || again == -EACCES)
            return again;
        if (again == NG_REDIS_MOVED) {
            redis->cluster = true;
            redis->home = node;
            ng_redis_move_on(&redis->main);
            if (++redirects <= REDIRECTS_FREE)
                continue;
            ng_kv_fail(&redis->kv, -EBUSY, "the cluster sends us from node to node");
        }
        if (!ng_kv_pause(ng_clock_mono_ns() + pause_ms * NG_MS, deadline_mono_ns))
            return -EBUSY;
        pause_ms = pause_ms * 2 > BUSY_MAX_MS ? BUSY_MAX_MS : pause_ms * 2;
    }
}

struct ng_redis_batch *ng_redis_fresh(struct ng_redis *redis)
{
    ng_redis_empty_batch(&redis->batch);
    return &redis->batch;
}

const redisReply *ng_redis_reply(const struct ng_redis *redis, size_t index)
{
    return redis->batch.commands[index].reply;
}

struct ng_kv_bytes ng_redis_bytes_of(const redisReply *reply)
{
    return (struct ng_kv_bytes){reply->str, (size_t)reply->len};
}
