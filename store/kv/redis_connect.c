/*
 * Connections to a Redis server, to a master that sentinels know, or to a node of a Redis Cluster.
 *
 * Must never put a password into a text.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/redis.h"

#define BACKOFF_MAX_MS 5000
#define SETTLED_NS     NG_S /* a shorter connection counts as a failed attempt */

static uint64_t random_number(struct ng_redis *redis)
{
    redis->random ^= redis->random << 13;
    redis->random ^= redis->random >> 7;
    redis->random ^= redis->random << 17;
    return redis->random;
}

void ng_redis_put_auth(struct ng_redis *redis, struct ng_redis_batch *batch)
{
    ng_redis_begin(batch, "AUTH", redis->url.user[0] ? 3 : 2);
    if (redis->url.user[0])
        ng_redis_put_word(batch, redis->url.user);
    ng_redis_put_word(batch, redis->url.password);
}

int ng_redis_exchange(struct ng_redis_link *link, struct ng_redis_batch *batch,
                      int64_t deadline_mono_ns, bool *ret_sent)
{
    redisReply *few[8], **replies = few;

    *ret_sent = false;
    if (!batch->no_memory && batch->count > NG_COUNT(few))
        replies = calloc(batch->count, sizeof(*replies));
    if (batch->no_memory || !replies) {
        snprintf(link->why, sizeof(link->why), "no memory");
        return -ENOMEM;
    }
    int error = ng_redis_link_exchange(link, batch->text, batch->used, replies, batch->count,
                                       deadline_mono_ns, ret_sent);
    for (size_t i = 0; i < batch->count; i++)
        batch->commands[i].reply = replies[i];
    if (replies != few)
        free(replies);
    return error;
}

static void add_node(struct ng_redis *redis, const char *host, long long port)
{
    if (redis->node_count == NG_REDIS_NODES_MAX || port < 1 || port > 65535 || !host[0] ||
        strlen(host) >= sizeof(redis->nodes[0].host))
        return;
    for (unsigned i = 0; i < redis->node_count; i++)
        if (redis->nodes[i].port == port && strcmp(redis->nodes[i].host, host) == 0)
            return;
    struct ng_redis_node *node = &redis->nodes[redis->node_count++];
    strcpy(node->host, host);
    node->port = (uint16_t)port;
}

/* A node's list of its cluster, so that another node can be queried if it is gone. */
static void learn_nodes(struct ng_redis *redis, const redisReply *slots)
{
    if (!slots || slots->type != REDIS_REPLY_ARRAY)
        return; /* not a cluster */
    redis->cluster = true;
    redis->node_count = 0;
    for (size_t i = 0; i < slots->elements; i++) {
        const redisReply *range = slots->element[i];
        for (size_t j = 2; range->type == REDIS_REPLY_ARRAY && j < range->elements; j++) {
            const redisReply *node = range->element[j];
            if (node->type == REDIS_REPLY_ARRAY && node->elements >= 2 &&
                ng_redis_is_text(node->element[0]) && node->element[1]->type == REDIS_REPLY_INTEGER)
                add_node(redis, node->element[0]->str, node->element[1]->integer);
        }
    }
}

bool ng_redis_lists(const redisReply *slots, const char *host)
{
    for (size_t i = 0; slots && slots->type == REDIS_REPLY_ARRAY && i < slots->elements; i++) {
        const redisReply *range = slots->element[i];
        for (size_t j = 2; range->type == REDIS_REPLY_ARRAY && j < range->elements; j++) {
            const redisReply *node = range->element[j];
            if (node->type == REDIS_REPLY_ARRAY && node->elements &&
                ng_redis_is_text(node->element[0]) && strcmp(node->element[0]->str, host) == 0)
                return true;
        }
    }
    return false;
}

/* Authenticate, select the database and query the server's role or cluster, in one round trip. 0,
 * or -errno with the reason in link->why; then the link is closed. */
static int introduce(struct ng_redis *redis, struct ng_redis_connection *connection,
                     int64_t deadline_mono_ns)
{
    struct ng_redis_link *link = &connection->link;
    struct ng_redis_batch batch = {0};
    bool sent, is_main = connection == &redis->main;
    size_t auth = SIZE_MAX, choose = SIZE_MAX;

    if (redis->url.password[0]) {
        auth = batch.count;
        ng_redis_put_auth(redis, &batch);
    }
    if (redis->url.db) {
        choose = batch.count;
        ng_redis_begin(&batch, "SELECT", 2);
        ng_redis_put_number(&batch, redis->url.db);
    }
    size_t last = batch.count;
    if (redis->url.kind == NG_URL_SENTINEL) {
        ng_redis_begin(&batch, "ROLE", 1);
    } else if (is_main && !redis->url.db) {
        ng_redis_begin(&batch, "CLUSTER", 2);
        ng_redis_put_word(&batch, "SLOTS");
    } else {
        ng_redis_begin(&batch, "PING", 1);
    }
    int error = ng_redis_exchange(link, &batch, deadline_mono_ns, &sent);
    for (size_t i = 0; i < batch.count; i++) {
        const redisReply *reply = batch.commands[i].reply;
        int meaning = reply ? ng_redis_error_of(reply) : 0;
        if (!meaning)
            continue;
        /* A server's answer to AUTH may contain our password. */
        if (i == auth && meaning != -EBUSY) {
            error = -EACCES;
            snprintf(link->why, sizeof(link->why), "the server refuses the password%s%s",
                     redis->url.user[0] ? " of user " : "", redis->url.user);
        } else if (i == choose || meaning == -EBUSY ||
                   (meaning == -EACCES && strncmp(reply->str, "NOPERM", 6) != 0)) {
            error = meaning;
            snprintf(link->why, sizeof(link->why), "%.200s", reply->str);
        } else {
            /* Not permitted, or a Redis that does not know the command: continue without. */
            continue;
        }
        break;
    }
    const redisReply *answer = error ? NULL : batch.commands[last].reply;
    if (answer && redis->url.kind == NG_URL_SENTINEL && answer->type == REDIS_REPLY_ARRAY &&
        answer->elements && ng_redis_is_text(answer->element[0]) &&
        strcmp(answer->element[0]->str, "master") != 0) {
        error = -EBUSY;
        snprintf(link->why, sizeof(link->why), "the sentinels' master is a %s",
                 answer->element[0]->str);
    }
    if (answer && redis->url.kind == NG_URL_REDIS && is_main)
        learn_nodes(redis, answer);
    if (batch.text)
        explicit_bzero(batch.text, batch.used);
    ng_redis_free_batch(&batch);
    if (error)
        ng_redis_link_close(link);
    return error;
}

int ng_redis_open_node(struct ng_redis *redis, struct ng_redis_link *link,
                       const struct ng_redis_node *node, int64_t deadline_mono_ns)
{
    const struct ng_tls_options options = {.host = node->host,
                                           .ca = redis->url.ca,
                                           .cert = redis->url.cert,
                                           .key = redis->url.key,
                                           .verify = redis->url.verify};

    return ng_redis_link_open(link, node->host, node->port, redis->url.tls ? redis->tls : NULL,
                              &options, deadline_mono_ns);
}

static int try_node(struct ng_redis *redis, struct ng_redis_connection *connection,
                    const struct ng_redis_node *node, int64_t deadline_mono_ns)
{
    connection->at = *node;
    int error = ng_redis_open_node(redis, &connection->link, node, deadline_mono_ns)
                    ?: introduce(redis, connection, deadline_mono_ns);
    if (error)
        snprintf(connection->why, sizeof(connection->why), "%s", connection->link.why);
    return error;
}

int64_t ng_redis_share(int64_t deadline_mono_ns, unsigned left)
{
    int64_t now = ng_clock_mono_ns();

    return now + (deadline_mono_ns - now) / (int64_t)(left ? left : 1);
}

static bool same_node(const struct ng_redis_node *left, const struct ng_redis_node *right)
{
    return left->port == right->port && strcmp(left->host, right->host) == 0;
}

static int connect_redis(struct ng_redis *redis, struct ng_redis_connection *connection,
                         int64_t deadline_mono_ns)
{
    struct ng_redis_node seed, *candidates[NG_REDIS_NODES_MAX + 2];
    unsigned count = 0;
    int error = -ECONNREFUSED;

    seed.port = 0;
    if (redis->url.kind == NG_URL_UNIX) {
        strcpy(seed.host, redis->url.path);
    } else {
        strcpy(seed.host, redis->url.hosts[0].name);
        seed.port = redis->url.hosts[0].port;
    }
    if (redis->home.host[0])
        candidates[count++] = &redis->home;
    if (!count || !same_node(&seed, candidates[0]))
        candidates[count++] = &seed;
    for (unsigned i = 0; i < redis->node_count; i++)
        if (!same_node(&redis->nodes[i], &seed) && !same_node(&redis->nodes[i], &redis->home))
            candidates[count++] = &redis->nodes[i];
    for (unsigned i = 0; i < count; i++) {
        /* Its list of the cluster replaces ours. */
        struct ng_redis_node node = *candidates[i];
        error = try_node(redis, connection, &node, ng_redis_share(deadline_mono_ns, count - i));
        if (!error || error == -EACCES || error == -ENOMEM)
            break;
    }
    return error;
}

/* 0 and the master's address; -EHOSTUNREACH: it does not know it; or another -errno. */
static int ask_sentinel(struct ng_redis *redis, const struct ng_url_host *sentinel,
                        int64_t deadline_mono_ns, struct ng_redis_node *ret_node)
{
    struct ng_redis_link *link = &redis->helper;
    struct ng_redis_batch batch = {0};
    bool sent;
    int error =
        ng_redis_link_open(link, sentinel->name, sentinel->port, NULL, NULL, deadline_mono_ns);

    /* Sentinels often have no password; we send ours only to one that requires it. */
    for (bool auth = false; !error; auth = true) {
        ng_redis_empty_batch(&batch);
        if (auth)
            ng_redis_put_auth(redis, &batch);
        ng_redis_begin(&batch, "SENTINEL", 3);
        ng_redis_put_word(&batch, "get-master-addr-by-name");
        ng_redis_put_word(&batch, redis->url.master);
        error = ng_redis_exchange(link, &batch, deadline_mono_ns, &sent);
        if (error)
            break;
        const redisReply *reply = batch.commands[batch.count - 1].reply;
        int meaning = ng_redis_error_of(reply);
        if (meaning == -EACCES && !auth && redis->url.password[0])
            continue;
        if (meaning) {
            error = meaning;
            snprintf(link->why, sizeof(link->why), "the sentinel %s:%u says: %.150s",
                     sentinel->name, sentinel->port, reply->str);
        } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                   ng_redis_is_text(reply->element[0]) && ng_redis_is_text(reply->element[1]) &&
                   atoi(reply->element[1]->str) > 0 && atoi(reply->element[1]->str) <= 65535 &&
                   strlen(reply->element[0]->str) < sizeof(ret_node->host)) {
            strcpy(ret_node->host, reply->element[0]->str);
            ret_node->port = (uint16_t)atoi(reply->element[1]->str);
        } else {
            error = -EHOSTUNREACH;
            snprintf(link->why, sizeof(link->why), "the sentinel %s:%u knows no master %s",
                     sentinel->name, sentinel->port, redis->url.master);
        }
        break;
    }
    if (batch.text)
        explicit_bzero(batch.text, batch.used);
    ng_redis_free_batch(&batch);
    ng_redis_link_close(link);
    return error;
}

static int connect_sentinel(struct ng_redis *redis, struct ng_redis_connection *connection,
                            int64_t deadline_mono_ns)
{
    unsigned count = redis->url.host_count;
    int error = -ECONNREFUSED;

    for (unsigned i = 0; i < count; i++) {
        unsigned index = (redis->sentinel + i) % count;
        struct ng_redis_node master;
        int result = ask_sentinel(redis, &redis->url.hosts[index],
                                  ng_redis_share(deadline_mono_ns, count - i + 1), &master);
        if (result)
            snprintf(connection->why, sizeof(connection->why), "%s", redis->helper.why);
        else
            result =
                try_node(redis, connection, &master, ng_redis_share(deadline_mono_ns, count - i));
        if (!result)
            redis->sentinel = index;
        error = result;
        if (!result || result == -EACCES || result == -ENOMEM)
            break;
    }
    return error;
}

/* The next attempt follows after a pause, twice as long as the previous one, with random
 * variation. */
static void put_off(struct ng_redis *redis, struct ng_redis_connection *connection)
{
    int64_t now = ng_clock_mono_ns();

    connection->backoff_ms =
        connection->backoff_ms ? connection->backoff_ms * 2 : NG_REDIS_BACKOFF_MIN_MS;
    if (connection->backoff_ms > BACKOFF_MAX_MS)
        connection->backoff_ms = BACKOFF_MAX_MS;
    int64_t jitter = (int64_t)(random_number(redis) % 512) - 256;
    connection->retry_mono_ns =
        now + connection->backoff_ms * NG_MS + connection->backoff_ms * NG_MS / 1024 * jitter;
}

void ng_redis_note_loss(struct ng_redis *redis, struct ng_redis_connection *connection, int error)
{
    if (!connection->open)
        return;
    connection->open = false;
    connection->error = error;
    snprintf(connection->why, sizeof(connection->why), "%s", connection->link.why);
    if (connection->useful || ng_clock_mono_ns() - connection->opened_mono_ns >= SETTLED_NS) {
        connection->backoff_ms = 0;
        connection->retry_mono_ns = 0;
    } else {
        put_off(redis, connection);
    }
}

void ng_redis_move_on(struct ng_redis_connection *connection)
{
    ng_redis_link_close(&connection->link);
    connection->open = false;
    connection->retry_mono_ns = 0;
}

int ng_redis_attempt(struct ng_redis *redis, struct ng_redis_connection *connection,
                     int64_t deadline_mono_ns)
{
    int error = redis->url.kind == NG_URL_SENTINEL
                    ? connect_sentinel(redis, connection, deadline_mono_ns)
                    : connect_redis(redis, connection, deadline_mono_ns);

    connection->error = error;
    connection->useful = false;
    if (error) {
        put_off(redis, connection);
        return error;
    }
    connection->open = true;
    connection->opened_mono_ns = ng_clock_mono_ns();
    return 0;
}

static int fail_connection(struct ng_redis *redis, const struct ng_redis_connection *connection,
                           int error)
{
    return ng_kv_fail(&redis->kv, error, "%s", connection->why);
}

bool ng_redis_is_lasting(int error)
{
    return error == -EACCES || error == -EPROTO || error == -ENOMEM || error == -EINVAL ||
           error == -ETIMEDOUT;
}

int ng_redis_ensure(struct ng_redis *redis, int64_t deadline_mono_ns)
{
    struct ng_redis_connection *connection = &redis->main;

    if (connection->open && ng_redis_link_usable(&connection->link))
        return 0;
    ng_redis_note_loss(redis, connection, -ECONNRESET);
    for (;;) {
        if (connection->retry_mono_ns > ng_clock_mono_ns() &&
            !ng_kv_pause(connection->retry_mono_ns, deadline_mono_ns))
            return fail_connection(redis, connection, connection->error);
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return connection->error ? fail_connection(redis, connection, connection->error)
                                     : ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to connect");
        int error = ng_redis_attempt(redis, connection, deadline_mono_ns);
        if (!error) {
            redis->kv.connects++;
            return 0;
        }
        if (ng_redis_is_lasting(error))
            return fail_connection(redis, connection, error);
    }
}
