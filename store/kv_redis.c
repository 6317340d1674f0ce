/*
 * Keys and values on a Redis server, a master that sentinels know, or a Redis Cluster.
 *
 * Step 8 across hosts. Entered by one thread of the guard or of a tool. Must never wait beyond the
 * deadline, nor put a password into a text, nor send what cannot be repeated twice.
 *
 * All keys of a run share one hash tag, so in a cluster they live on one node: redirections are
 * followed by moving there.
 */
#include "store/kv.h"

#include <ctype.h>
#include <errno.h>
#include <hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/descriptor.h"
#include "store/redis_link.h"
#include "store/tls.h"
#include "store/url.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 5000
#define SETTLED_NS     NG_S /* a connection that lasted for less is part of the trouble */
#define BUSY_MIN_MS    20   /* pause before a server that cannot serve yet is asked again */
#define BUSY_MAX_MS    250
#define WAIT_MIN_MS    2 /* likewise for a key that is not there yet */
#define WAIT_MAX_MS    50
#define REDIRECTS_FREE 4 /* so many are followed without a pause */
#define NODES_MAX      16
#define KEYS_AT_ONCE   256
#define PENDING_MAX    4096 /* messages that came while something else was waited for */

/* ---- Commands and replies ---- */

struct command {
    size_t start, bytes; /* in the batch */
    redisReply *reply;   /* NULL: not answered yet, or to be asked again */
    bool answered;       /* the reply is final */
};

struct batch {
    char *text;
    size_t used, room;
    struct command *commands;
    size_t count, command_room;
    bool no_memory;
};

/* What a batch may do when its connection is lost. */
enum { REPEATABLE = 1, ONE_CONNECTION = 2 };

static void free_replies(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->commands[i].reply)
            freeReplyObject(batch->commands[i].reply);
        batch->commands[i].reply = NULL;
        batch->commands[i].answered = false;
    }
}

static void empty_batch(struct batch *batch)
{
    free_replies(batch);
    batch->used = batch->count = 0;
    batch->no_memory = false;
    /* One large value must not stay for the life of the job. */
    if (batch->room > (1u << 20)) {
        free(batch->text);
        batch->text = NULL;
        batch->room = 0;
    }
}

static void free_batch(struct batch *batch)
{
    empty_batch(batch);
    free(batch->text);
    free(batch->commands);
    *batch = (struct batch){0};
}

static void put(struct batch *batch, const void *data, size_t bytes)
{
    if (batch->room - batch->used < bytes) {
        size_t room = (batch->used + bytes) * 3 / 2 + 1024;
        char *larger = realloc(batch->text, room);
        if (!larger) {
            batch->no_memory = true;
            return;
        }
        batch->text = larger;
        batch->room = room;
    }
    if (bytes)
        memcpy(batch->text + batch->used, data, bytes);
    batch->used += bytes;
}

static void put_head(struct batch *batch, char kind, size_t number)
{
    char text[32];

    put(batch, text, (size_t)sprintf(text, "%c%zu\r\n", kind, number));
}

static void put_bytes(struct batch *batch, const void *data, size_t bytes)
{
    put_head(batch, '$', bytes);
    put(batch, data, bytes);
    put(batch, "\r\n", 2);
}

static void put_word(struct batch *batch, const char *word)
{
    put_bytes(batch, word, strlen(word));
}

static void put_number(struct batch *batch, int64_t number)
{
    char text[32];

    put_bytes(batch, text, (size_t)sprintf(text, "%" PRId64, number));
}

/* Begin a command of so many words. It ends where the next begins. */
static void begin(struct batch *batch, const char *name, size_t words)
{
    if (batch->count == batch->command_room) {
        size_t room = batch->command_room ? batch->command_room * 2 : 8;
        struct command *larger = realloc(batch->commands, room * sizeof(*larger));
        if (!larger) {
            batch->no_memory = true;
            return;
        }
        batch->commands = larger;
        batch->command_room = room;
    }
    batch->commands[batch->count++] = (struct command){.start = batch->used};
    put_head(batch, '*', words);
    put_word(batch, name);
}

static size_t end_of(const struct batch *batch, size_t index)
{
    return index + 1 < batch->count ? batch->commands[index + 1].start : batch->used;
}

static bool is_text(const redisReply *reply)
{
    return reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
}

/* ---- What errors mean ---- */

/* Told apart from the errors of store/kv.h, and never returned. */
#define MOVED (-1000)
#define ASK   (-1001)

static const struct {
    const char *begins; /* a whole word, or a text that goes on */
    int error;
} meanings[] = {
    {"MOVED", MOVED},
    {"ASK", ASK},
    {"NOAUTH", -EACCES},
    {"WRONGPASS", -EACCES},
    {"NOPERM", -EACCES},
    {"DENIED", -EACCES},
    {"ERR operation not permitted", -EACCES}, /* Redis before 6 */
    {"ERR invalid password", -EACCES},
    {"OOM", -ENOSPC},
    {"READONLY", -EROFS},
    {"MISCONF", -EROFS},
    {"NOREPLICAS", -EROFS},
    {"LOADING", -EBUSY},
    {"MASTERDOWN", -EBUSY},
    {"CLUSTERDOWN", -EBUSY},
    {"TRYAGAIN", -EBUSY},
    {"BUSY", -EBUSY},
    {"ERR max number of clients", -EBUSY},
    {"ERR value is not an integer", -EINVAL},
    {"ERR increment or decrement would overflow", -ERANGE},
};

/* 0 where a reply is no error. */
static int error_of(const redisReply *reply)
{
    if (!reply)
        return -EPROTO;
    if (reply->type != REDIS_REPLY_ERROR)
        return 0;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        size_t length = strlen(meanings[i].begins);
        if (strncmp(reply->str, meanings[i].begins, length) == 0 &&
            (reply->str[length] == ' ' || reply->str[length] == '\0'))
            return meanings[i].error;
    }
    return -EPROTO;
}

/* ---- The backend ---- */

struct node {
    char host[NG_URL_PATH_BYTES]; /* a path where the port is 0 */
    uint16_t port;
};

struct connection {
    struct ng_redis_link link;
    struct node at;
    bool open, useful; /* it has answered more than the greeting */
    int64_t opened_mono_ns;
    int64_t retry_mono_ns; /* not before */
    int64_t backoff_ms;
    int error; /* of the last attempt */
    char why[300];
};

struct redis {
    struct ng_kv kv;
    struct ng_url url;
    const struct ng_tls_ops *tls;
    char *prefix;
    size_t prefix_bytes;
    uint64_t random;
    struct connection main, sub;
    struct ng_redis_link helper;  /* to sentinels, and to nodes that are asked once */
    unsigned sentinel;            /* the one that answered last */
    struct node home;             /* cluster: the node that has our keys; no host: not known */
    struct node nodes[NODES_MAX]; /* cluster: whom to ask when that one is gone */
    unsigned node_count;
    bool cluster;
    struct batch batch, queue;
    redisReply *value; /* of the last call */

    char channels[NG_KV_CHANNELS_MAX][NG_KV_KEY_MAX + 1];
    unsigned channel_count;
    struct ng_descriptor epoll, timer;
    redisReply **pending;
    size_t pending_first, pending_count, pending_room;
    redisReply *message; /* of the last next_message */
    bool missed;
    int64_t ping_ns, pinged_mono_ns;
};

static struct redis *of(struct ng_kv *kv)
{
    return (struct redis *)kv;
}

static void put_key(struct redis *redis, struct batch *batch, const char *key)
{
    size_t bytes = strlen(key);

    put_head(batch, '$', redis->prefix_bytes + bytes);
    put(batch, redis->prefix, redis->prefix_bytes);
    put(batch, key, bytes);
    put(batch, "\r\n", 2);
}

/* Note a reply that is an error, and return what it means. */
static int fail_reply(struct redis *redis, const redisReply *reply)
{
    int error = error_of(reply);

    if (error == MOVED || error == ASK)
        error = -EBUSY;
    if (!error)
        error = -EPROTO;
    return ng_kv_fail(&redis->kv, error, "Redis at %s: %.200s", redis->main.at.host,
                      reply && reply->type == REDIS_REPLY_ERROR ? reply->str
                                                                : "an unexpected answer");
}

/* ---- Connecting ---- */

static uint64_t random_number(struct redis *redis)
{
    redis->random ^= redis->random << 13;
    redis->random ^= redis->random >> 7;
    redis->random ^= redis->random << 17;
    return redis->random;
}

static void put_auth(struct redis *redis, struct batch *batch)
{
    begin(batch, "AUTH", redis->url.user[0] ? 3 : 2);
    if (redis->url.user[0])
        put_word(batch, redis->url.user);
    put_word(batch, redis->url.password);
}

/* Send a batch on a link and read its replies, once. What came is in the batch, with an error too.
 */
static int exchange(struct ng_redis_link *link, struct batch *batch, int64_t deadline_mono_ns,
                    bool *ret_sent)
{
    redisReply *few[8], **replies = few;

    *ret_sent = false;
    if (batch->no_memory) {
        snprintf(link->why, sizeof(link->why), "no memory");
        return -ENOMEM;
    }
    if (batch->count > 8 && !(replies = calloc(batch->count, sizeof(*replies)))) {
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

static void add_node(struct redis *redis, const char *host, long long port)
{
    if (redis->node_count == NODES_MAX || port < 1 || port > 65535 || !host[0] ||
        strlen(host) >= sizeof(redis->nodes[0].host))
        return;
    for (unsigned i = 0; i < redis->node_count; i++)
        if (redis->nodes[i].port == port && strcmp(redis->nodes[i].host, host) == 0)
            return;
    struct node *node = &redis->nodes[redis->node_count++];
    strcpy(node->host, host);
    node->port = (uint16_t)port;
}

/* What a node says of its cluster, so that another can be asked when it is gone. */
static void learn_nodes(struct redis *redis, const redisReply *slots)
{
    if (!slots || slots->type != REDIS_REPLY_ARRAY)
        return; /* no cluster */
    redis->cluster = true;
    redis->node_count = 0;
    for (size_t i = 0; i < slots->elements; i++) {
        const redisReply *range = slots->element[i];
        for (size_t j = 2; range->type == REDIS_REPLY_ARRAY && j < range->elements; j++) {
            const redisReply *node = range->element[j];
            if (node->type == REDIS_REPLY_ARRAY && node->elements >= 2 &&
                is_text(node->element[0]) && node->element[1]->type == REDIS_REPLY_INTEGER)
                add_node(redis, node->element[0]->str, node->element[1]->integer);
        }
    }
}

/* Who we are and what we want to know, in one round trip. 0, or -errno with the reason in
 * link->why; the link is closed then. */
static int introduce(struct redis *redis, struct connection *connection, int64_t deadline_mono_ns)
{
    struct ng_redis_link *link = &connection->link;
    struct batch batch = {0};
    bool sent, is_main = connection == &redis->main;
    size_t auth = SIZE_MAX, choose = SIZE_MAX;

    if (redis->url.password[0]) {
        auth = batch.count;
        put_auth(redis, &batch);
    }
    if (redis->url.db) {
        choose = batch.count;
        begin(&batch, "SELECT", 2);
        put_number(&batch, redis->url.db);
    }
    size_t last = batch.count;
    if (redis->url.kind == NG_URL_SENTINEL) {
        begin(&batch, "ROLE", 1);
    } else if (is_main && !redis->url.db) {
        begin(&batch, "CLUSTER", 2);
        put_word(&batch, "SLOTS");
    } else {
        begin(&batch, "PING", 1);
    }
    int error = exchange(link, &batch, deadline_mono_ns, &sent);
    for (size_t i = 0; i < batch.count; i++) {
        const redisReply *reply = batch.commands[i].reply;
        int meaning = reply ? error_of(reply) : 0;
        if (!meaning)
            continue;
        /* What a server says to AUTH may have our own words in it. */
        if (i == auth && meaning != -EBUSY) {
            error = -EACCES;
            snprintf(link->why, sizeof(link->why), "the server refuses the password%s%s",
                     redis->url.user[0] ? " of user " : "", redis->url.user);
        } else if (i == choose || meaning == -EBUSY ||
                   (meaning == -EACCES && strncmp(reply->str, "NOPERM", 6) != 0)) {
            error = meaning;
            snprintf(link->why, sizeof(link->why), "%.200s", reply->str);
        } else {
            /* Not allowed to know it, or a Redis that does not: then without. */
            continue;
        }
        break;
    }
    const redisReply *answer = error ? NULL : batch.commands[last].reply;
    if (answer && redis->url.kind == NG_URL_SENTINEL && answer->type == REDIS_REPLY_ARRAY &&
        answer->elements && is_text(answer->element[0]) &&
        strcmp(answer->element[0]->str, "master") != 0) {
        error = -EBUSY;
        snprintf(link->why, sizeof(link->why), "the sentinels' master is a %s",
                 answer->element[0]->str);
    }
    if (answer && redis->url.kind == NG_URL_REDIS && is_main)
        learn_nodes(redis, answer);
    if (batch.text)
        explicit_bzero(batch.text, batch.used);
    free_batch(&batch);
    if (error)
        ng_redis_link_close(link);
    return error;
}

static int open_link(struct redis *redis, struct ng_redis_link *link, const struct node *node,
                     int64_t deadline_mono_ns)
{
    const struct ng_tls_options options = {.host = node->host,
                                           .ca = redis->url.ca,
                                           .cert = redis->url.cert,
                                           .key = redis->url.key,
                                           .verify = redis->url.verify};

    return ng_redis_link_open(link, node->host, node->port, redis->url.tls ? redis->tls : NULL,
                              &options, deadline_mono_ns);
}

static int try_node(struct redis *redis, struct connection *connection, const struct node *node,
                    int64_t deadline_mono_ns)
{
    connection->at = *node;
    int error = open_link(redis, &connection->link, node, deadline_mono_ns);
    if (!error)
        error = introduce(redis, connection, deadline_mono_ns);
    if (error)
        snprintf(connection->why, sizeof(connection->why), "%s", connection->link.why);
    return error;
}

/* The end of this one's share of the time, where so many are to be tried. */
static int64_t share(int64_t deadline_mono_ns, unsigned left)
{
    int64_t now = ng_clock_mono_ns();

    return now + (deadline_mono_ns - now) / (int64_t)(left ? left : 1);
}

static bool same_node(const struct node *left, const struct node *right)
{
    return left->port == right->port && strcmp(left->host, right->host) == 0;
}

static int connect_redis(struct redis *redis, struct connection *connection,
                         int64_t deadline_mono_ns)
{
    struct node seed, *candidates[NODES_MAX + 2];
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
        /* What it says of its cluster replaces the list. */
        struct node node = *candidates[i];
        error = try_node(redis, connection, &node, share(deadline_mono_ns, count - i));
        if (!error || error == -EACCES || error == -ENOMEM)
            break;
    }
    return error;
}

/* ---- Sentinels ---- */

/* 0 and the master's address; -EHOSTUNREACH: it does not know it; or another -errno. */
static int ask_sentinel(struct redis *redis, const struct ng_url_host *sentinel,
                        int64_t deadline_mono_ns, struct node *ret_node)
{
    struct ng_redis_link *link = &redis->helper;
    struct batch batch = {0};
    bool sent;
    int error =
        ng_redis_link_open(link, sentinel->name, sentinel->port, NULL, NULL, deadline_mono_ns);

    /* Sentinels often have no password; the one that we know is only given to one that asks. */
    for (bool auth = false; !error; auth = true) {
        empty_batch(&batch);
        if (auth)
            put_auth(redis, &batch);
        begin(&batch, "SENTINEL", 3);
        put_word(&batch, "get-master-addr-by-name");
        put_word(&batch, redis->url.master);
        error = exchange(link, &batch, deadline_mono_ns, &sent);
        if (error)
            break;
        const redisReply *reply = batch.commands[batch.count - 1].reply;
        int meaning = error_of(reply);
        if (meaning == -EACCES && !auth && redis->url.password[0])
            continue;
        if (meaning) {
            error = meaning;
            snprintf(link->why, sizeof(link->why), "the sentinel %s:%u says: %.150s",
                     sentinel->name, sentinel->port, reply->str);
        } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                   is_text(reply->element[0]) && is_text(reply->element[1]) &&
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
    free_batch(&batch);
    ng_redis_link_close(link);
    return error;
}

static int connect_sentinel(struct redis *redis, struct connection *connection,
                            int64_t deadline_mono_ns)
{
    unsigned count = redis->url.host_count;
    int error = -ECONNREFUSED;

    for (unsigned i = 0; i < count; i++) {
        unsigned index = (redis->sentinel + i) % count;
        struct node master;
        int result = ask_sentinel(redis, &redis->url.hosts[index],
                                  share(deadline_mono_ns, count - i + 1), &master);
        if (result)
            snprintf(connection->why, sizeof(connection->why), "%s", redis->helper.why);
        else
            result = try_node(redis, connection, &master, share(deadline_mono_ns, count - i));
        if (!result)
            redis->sentinel = index;
        error = result;
        if (!result || result == -EACCES || result == -ENOMEM)
            break;
    }
    return error;
}

/* ---- Staying connected ---- */

/* The next attempt comes after a pause, twice as long as the one before, and not the same for all.
 */
static void put_off(struct redis *redis, struct connection *connection)
{
    int64_t now = ng_clock_mono_ns();

    connection->backoff_ms = connection->backoff_ms ? connection->backoff_ms * 2 : BACKOFF_MIN_MS;
    if (connection->backoff_ms > BACKOFF_MAX_MS)
        connection->backoff_ms = BACKOFF_MAX_MS;
    int64_t jitter = (int64_t)(random_number(redis) % 512) - 256;
    connection->retry_mono_ns =
        now + connection->backoff_ms * NG_MS + connection->backoff_ms * NG_MS / 1024 * jitter;
}

/* The link has been closed, by whomever. */
static void note_loss(struct redis *redis, struct connection *connection, int error)
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

/* Leave a server for another, without a pause. */
static void move_on(struct connection *connection)
{
    ng_redis_link_close(&connection->link);
    connection->open = false;
    connection->retry_mono_ns = 0;
}

static int attempt(struct redis *redis, struct connection *connection, int64_t deadline_mono_ns)
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

static int fail_connection(struct redis *redis, const struct connection *connection, int error)
{
    return ng_kv_fail(&redis->kv, error, "%s", connection->why);
}

/* What a second attempt in the same call would not mend, or has no time for. */
static bool lasting(int error)
{
    return error == -EACCES || error == -EPROTO || error == -ENOMEM || error == -EINVAL ||
           error == -ETIMEDOUT;
}

/* The main connection, made where there is none. */
static int ensure(struct redis *redis, int64_t deadline_mono_ns)
{
    struct connection *connection = &redis->main;

    if (connection->open && ng_redis_link_usable(&connection->link))
        return 0;
    note_loss(redis, connection, -ECONNRESET);
    for (;;) {
        if (connection->retry_mono_ns > ng_clock_mono_ns() &&
            !ng_kv_pause(connection->retry_mono_ns, deadline_mono_ns))
            return fail_connection(redis, connection, connection->error);
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return connection->error ? fail_connection(redis, connection, connection->error)
                                     : ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to connect");
        int error = attempt(redis, connection, deadline_mono_ns);
        if (!error) {
            redis->kv.connects++;
            return 0;
        }
        if (lasting(error))
            return fail_connection(redis, connection, error);
    }
}

/* ---- Running commands ---- */

/* "MOVED 3999 10.0.0.1:6379". An empty host means the one that says so. */
static bool parse_redirect(const struct redis *redis, const redisReply *reply,
                           struct node *ret_node)
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

/* One command at a node that is about to get the key. Its reply is final unless it is an error that
 * a second try may mend. */
static void ask(struct redis *redis, struct batch *batch, size_t index, int64_t deadline_mono_ns)
{
    struct command *command = &batch->commands[index];
    struct batch once = {0};
    struct node node;
    bool sent;

    if (!parse_redirect(redis, command->reply, &node))
        return;
    if (open_link(redis, &redis->helper, &node, share(deadline_mono_ns, 2)) != 0)
        return;
    if (redis->url.password[0])
        put_auth(redis, &once);
    begin(&once, "ASKING", 1);
    begin(&once, "", 0);
    /* The command itself in the place of the empty one. */
    once.used = once.commands[once.count - 1].start;
    put(&once, batch->text + command->start, end_of(batch, index) - command->start);
    if (exchange(&redis->helper, &once, share(deadline_mono_ns, 2), &sent) == 0) {
        redisReply **reply = &once.commands[once.count - 1].reply;
        int meaning = error_of(*reply);
        if (meaning != MOVED && meaning != ASK && meaning != -EBUSY) {
            freeReplyObject(command->reply);
            command->reply = *reply;
            command->answered = true;
            *reply = NULL;
        }
    }
    if (once.text)
        explicit_bzero(once.text, once.used);
    free_batch(&once);
    ng_redis_link_close(&redis->helper);
}

/* Send what is not answered yet. */
static int send_rest(struct redis *redis, struct batch *batch, int64_t deadline_mono_ns,
                     bool *ret_sent)
{
    size_t answered = 0, next = 0;

    for (size_t i = 0; i < batch->count; i++)
        answered += batch->commands[i].answered;
    if (!answered)
        return exchange(&redis->main.link, batch, deadline_mono_ns, ret_sent);
    struct batch rest = {0};
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->commands[i].answered)
            continue;
        begin(&rest, "", 0);
        if (rest.no_memory)
            break;
        rest.used = rest.commands[rest.count - 1].start;
        put(&rest, batch->text + batch->commands[i].start,
            end_of(batch, i) - batch->commands[i].start);
    }
    int error = exchange(&redis->main.link, &rest, deadline_mono_ns, ret_sent);
    for (size_t i = 0; next < rest.count && i < batch->count; i++) {
        if (batch->commands[i].answered)
            continue;
        batch->commands[i].reply = rest.commands[next].reply;
        rest.commands[next++].reply = NULL;
    }
    free_batch(&rest);
    return error;
}

/*
 * Look at the replies: final ones stay, others are freed and asked for again. Returns MOVED or
 * -EBUSY when there are such, 0 when all are final.
 */
static int sort_replies(struct redis *redis, struct batch *batch, int flags,
                        int64_t deadline_mono_ns, struct node *ret_node)
{
    int again = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct command *command = &batch->commands[i];
        if (command->answered || !command->reply)
            continue;
        int meaning = error_of(command->reply);
        if (meaning == ASK && !(flags & ONE_CONNECTION))
            ask(redis, batch, i, deadline_mono_ns);
        if (command->answered)
            continue;
        bool elsewhere = meaning == -EROFS &&
                         (redis->cluster || redis->url.kind == NG_URL_SENTINEL) &&
                         strncmp(command->reply->str, "READONLY", 8) == 0;
        if (meaning == MOVED && parse_redirect(redis, command->reply, ret_node)) {
            again = MOVED;
        } else if (meaning == MOVED || meaning == ASK || meaning == -EBUSY || elsewhere) {
            again = again == MOVED ? again : -EBUSY;
            ng_kv_fail(&redis->kv, elsewhere ? -EROFS : -EBUSY, "Redis at %s: %.200s",
                       redis->main.at.host, command->reply->str);
            if (elsewhere)
                move_on(&redis->main);
        } else {
            command->answered = true;
            /* The address may stand for another server by now. */
            if (meaning == -EROFS)
                move_on(&redis->main);
        }
    }
    if (again && (flags & ONE_CONNECTION)) {
        free_replies(batch);
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

/*
 * Run a batch until every command has its final reply, in batch->commands[].reply. Where commands
 * were refused because the server is the wrong one, or is not ready, they are sent again; where the
 * connection was lost, only what is REPEATABLE.
 */
static int run(struct redis *redis, struct batch *batch, int flags, int64_t deadline_mono_ns)
{
    int64_t pause_ms = BUSY_MIN_MS;
    unsigned redirects = 0;
    struct node node;

    for (;;) {
        bool sent = false;
        int error = ensure(redis, deadline_mono_ns);
        if (error)
            return error;
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to ask the server");
        error = send_rest(redis, batch, deadline_mono_ns, &sent);
        if (error) {
            if (!redis->main.link.reader)
                note_loss(redis, &redis->main, error);
            /* Replies that came before it was lost: too few to be of use. */
            for (size_t i = 0; i < batch->count; i++) {
                struct command *command = &batch->commands[i];
                if (command->reply && (!command->answered || (flags & ONE_CONNECTION))) {
                    freeReplyObject(command->reply);
                    command->reply = NULL;
                    command->answered = false;
                }
            }
            if (error != -ECONNRESET || (sent && !(flags & REPEATABLE)))
                return ng_kv_fail(&redis->kv, error, "%s", redis->main.link.why);
            continue;
        }
        redis->main.useful = true;
        int again = sort_replies(redis, batch, flags, deadline_mono_ns, &node);
        if (!again)
            return 0;
        if (again == MOVED) {
            redis->cluster = true;
            redis->home = node;
            move_on(&redis->main);
            if (++redirects <= REDIRECTS_FREE)
                continue;
            ng_kv_fail(&redis->kv, -EBUSY, "the cluster sends us from node to node");
        }
        if (!ng_kv_pause(ng_clock_mono_ns() + pause_ms * NG_MS, deadline_mono_ns))
            return -EBUSY;
        pause_ms = pause_ms * 2 > BUSY_MAX_MS ? BUSY_MAX_MS : pause_ms * 2;
    }
}

/* A new batch for a call; what the last one returned is gone. */
static struct batch *fresh(struct redis *redis)
{
    if (redis->value)
        freeReplyObject(redis->value);
    redis->value = NULL;
    empty_batch(&redis->batch);
    return &redis->batch;
}

/* Keep a reply for the caller until the next call. */
static redisReply *keep(struct redis *redis, size_t index)
{
    redis->value = redis->batch.commands[index].reply;
    redis->batch.commands[index].reply = NULL;
    return redis->value;
}

static const redisReply *reply_of(const struct redis *redis, size_t index)
{
    return redis->batch.commands[index].reply;
}

static struct ng_kv_bytes bytes_of(const redisReply *reply)
{
    return (struct ng_kv_bytes){reply->str, (size_t)reply->len};
}

/* ---- Keys ---- */

static void put_set(struct redis *redis, struct batch *batch, const char *key,
                    const struct ng_kv_bytes *value, int64_t ttl_ms, bool if_absent)
{
    begin(batch, "SET", 3u + (ttl_ms ? 2u : 0u) + (if_absent ? 1u : 0u));
    put_key(redis, batch, key);
    put_bytes(batch, value->data, value->bytes);
    if (ttl_ms) {
        put_word(batch, "PX");
        put_number(batch, ttl_ms);
    }
    if (if_absent)
        put_word(batch, "NX");
}

static int redis_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                     int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    put_set(redis, batch, key, value, ttl_ms, false);
    int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    return is_text(reply_of(redis, 0)) ? 0 : fail_reply(redis, reply_of(redis, 0));
}

static int redis_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                     struct ng_kv_bytes *ret_value)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    begin(batch, "GET", 2);
    put_key(redis, batch, key);
    int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    if (reply_of(redis, 0)->type == REDIS_REPLY_NIL)
        return ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
    if (reply_of(redis, 0)->type != REDIS_REPLY_STRING)
        return fail_reply(redis, reply_of(redis, 0));
    *ret_value = bytes_of(keep(redis, 0));
    return 0;
}

static int redis_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                          int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context)
{
    struct redis *redis = of(kv);

    for (size_t first = 0; first < count; first += KEYS_AT_ONCE) {
        size_t some = count - first < KEYS_AT_ONCE ? count - first : KEYS_AT_ONCE;
        struct batch *batch = fresh(redis);
        begin(batch, "MGET", 1 + some);
        for (size_t i = 0; i < some; i++)
            put_key(redis, batch, keys[first + i]);
        int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
        if (error)
            return error;
        const redisReply *reply = reply_of(redis, 0);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != some)
            return fail_reply(redis, reply);
        for (size_t i = 0; i < some; i++) {
            struct ng_kv_bytes value = bytes_of(reply->element[i]);
            each(context, first + i, reply->element[i]->type == REDIS_REPLY_STRING ? &value : NULL);
        }
    }
    return 0;
}

static int redis_wait(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                      struct ng_kv_bytes *ret_value)
{
    int64_t pause_ms = WAIT_MIN_MS;

    for (;;) {
        int error = redis_get(kv, key, deadline_mono_ns, ret_value);
        if (error != -ENOENT)
            return error;
        if (!ng_kv_pause(ng_clock_mono_ns() + pause_ms * NG_MS, deadline_mono_ns)) {
            /* A last look at the deadline itself would come after it. */
            return ng_kv_fail(kv, -ETIMEDOUT, "there still is no key %s", key);
        }
        pause_ms = pause_ms * 2 > WAIT_MAX_MS ? WAIT_MAX_MS : pause_ms * 2;
    }
}

static int redis_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
                     int64_t deadline_mono_ns, int64_t *ret_value)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    begin(batch, "INCRBY", 3);
    put_key(redis, batch, key);
    put_number(batch, delta);
    if (ttl_ms) {
        begin(batch, "PEXPIRE", 3);
        put_key(redis, batch, key);
        put_number(batch, ttl_ms);
    }
    int error = run(redis, batch, 0, deadline_mono_ns);
    if (error)
        return error;
    if (reply_of(redis, 0)->type != REDIS_REPLY_INTEGER)
        return fail_reply(redis, reply_of(redis, 0));
    *ret_value = reply_of(redis, 0)->integer;
    return 0;
}

static int redis_put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                               int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    put_set(redis, batch, key, value, ttl_ms, true);
    int error = run(redis, batch, 0, deadline_mono_ns);
    if (error)
        return error;
    if (reply_of(redis, 0)->type == REDIS_REPLY_NIL)
        return ng_kv_fail(kv, -EEXIST, "%s has a value already", key);
    return is_text(reply_of(redis, 0)) ? 0 : fail_reply(redis, reply_of(redis, 0));
}

/* The second half of compare_and_set, on the connection that watches the key. 0; -EAGAIN: the key
 * was changed meanwhile, or nothing was done for another reason that passes; or -errno. */
static int set_watched(struct redis *redis, const char *key, const struct ng_kv_bytes *value,
                       int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct batch *batch = &redis->batch;
    bool sent;

    empty_batch(batch);
    begin(batch, "MULTI", 1);
    put_set(redis, batch, key, value, ttl_ms, false);
    begin(batch, "EXEC", 1);
    if (ng_clock_mono_ns() >= deadline_mono_ns)
        return ng_kv_fail(&redis->kv, -ETIMEDOUT, "no time to ask the server");
    int error = exchange(&redis->main.link, batch, deadline_mono_ns, &sent);
    if (error) {
        if (!redis->main.link.reader)
            note_loss(redis, &redis->main, error);
        if (error == -ECONNRESET && !sent)
            return -EAGAIN;
        return ng_kv_fail(&redis->kv, error, "%s", redis->main.link.why);
    }
    /* In order: MULTI may be refused, then the change, then all of it. */
    for (size_t i = 0; i < 3; i++) {
        int meaning = error_of(reply_of(redis, i));
        if (meaning == MOVED || meaning == ASK || meaning == -EBUSY)
            return -EAGAIN;
        if (meaning == -EROFS)
            move_on(&redis->main);
        if (meaning)
            return fail_reply(redis, reply_of(redis, i));
    }
    const redisReply *done = reply_of(redis, 2);
    if (done->type == REDIS_REPLY_NIL)
        return -EAGAIN;
    if (done->type != REDIS_REPLY_ARRAY || done->elements != 1)
        return fail_reply(redis, done);
    return is_text(done->element[0]) ? 0 : fail_reply(redis, done->element[0]);
}

/* By WATCH and MULTI: a script would do it in one round trip, but users often may run none. */
static int redis_compare_and_set(struct ng_kv *kv, const char *key,
                                 const struct ng_kv_bytes *expected,
                                 const struct ng_kv_bytes *value, int64_t ttl_ms,
                                 int64_t deadline_mono_ns, struct ng_kv_bytes *ret_current)
{
    struct redis *redis = of(kv);
    int64_t pause_ms = 0;

    for (;;) {
        struct batch *batch = fresh(redis);
        begin(batch, "UNWATCH", 1); /* what an earlier one that did not come so far has left */
        begin(batch, "WATCH", 2);
        put_key(redis, batch, key);
        begin(batch, "GET", 2);
        put_key(redis, batch, key);
        int error = run(redis, batch, REPEATABLE | ONE_CONNECTION, deadline_mono_ns);
        if (error)
            return error;
        for (size_t i = 0; i < 3; i++)
            if (error_of(reply_of(redis, i)))
                return fail_reply(redis, reply_of(redis, i));
        const redisReply *now = reply_of(redis, 2);
        if (now->type == REDIS_REPLY_NIL) {
            if (expected)
                return ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
        } else if (now->type != REDIS_REPLY_STRING) {
            return fail_reply(redis, now);
        } else if (!expected || expected->bytes != (size_t)now->len ||
                   memcmp(expected->data, now->str, expected->bytes) != 0) {
            *ret_current = bytes_of(keep(redis, 2));
            return ng_kv_fail(kv, -EEXIST, "%s has another value", key);
        }
        error = set_watched(redis, key, value, ttl_ms, deadline_mono_ns);
        if (error != -EAGAIN)
            return error;
        if (!ng_kv_pause(ng_clock_mono_ns() + pause_ms * NG_MS, deadline_mono_ns))
            return ng_kv_fail(kv, -EBUSY, "%s is changed by others all the time", key);
        pause_ms = pause_ms * 2 + 1 > WAIT_MAX_MS ? WAIT_MAX_MS : pause_ms * 2 + 1;
    }
}

static int redis_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    begin(batch, "DEL", 2);
    put_key(redis, batch, key);
    int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    if (reply_of(redis, 0)->type != REDIS_REPLY_INTEGER)
        return fail_reply(redis, reply_of(redis, 0));
    return reply_of(redis, 0)->integer ? 0 : ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
}

static int redis_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);
    size_t last = 0;

    if (ttl_ms) {
        begin(batch, "PEXPIRE", 3);
        put_key(redis, batch, key);
        put_number(batch, ttl_ms);
    } else {
        /* PERSIST says the same of a key that lasts for ever already and of none. */
        begin(batch, "PERSIST", 2);
        put_key(redis, batch, key);
        begin(batch, "EXISTS", 2);
        put_key(redis, batch, key);
        last = 1;
    }
    int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    for (size_t i = 0; i <= last; i++)
        if (reply_of(redis, i)->type != REDIS_REPLY_INTEGER)
            return fail_reply(redis, reply_of(redis, i));
    return reply_of(redis, last)->integer ? 0 : ng_kv_fail(kv, -ENOENT, "there is no key %s", key);
}

/* ---- All keys ---- */

struct names {
    char **list;
    size_t count, room;
};

static int add_name(struct names *names, const char *name, size_t bytes)
{
    if (names->count == names->room) {
        size_t room = names->room ? names->room * 2 : 64;
        char **larger = realloc(names->list, room * sizeof(*larger));
        if (!larger)
            return -ENOMEM;
        names->list = larger;
        names->room = room;
    }
    char *copy = strndup(name, bytes);
    if (!copy)
        return -ENOMEM;
    names->list[names->count++] = copy;
    return 0;
}

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct names){0};
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorted, each once: a scan may show a key several times. */
static void sort_names(struct names *names)
{
    size_t kept = 0;

    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), compare_names);
    for (size_t i = 0; i < names->count; i++) {
        if (kept && strcmp(names->list[kept - 1], names->list[i]) == 0)
            free(names->list[i]);
        else
            names->list[kept++] = names->list[i];
    }
    names->count = kept;
}

/* "prefix*", with everything that a pattern takes for something else escaped. */
static void put_pattern(struct redis *redis, struct batch *batch, const char *prefix)
{
    char pattern[NG_KV_KEY_MAX * 2 + 2];
    size_t used = 0;

    for (; *prefix; prefix++) {
        if (strchr("*?[]\\^-", *prefix))
            pattern[used++] = '\\';
        pattern[used++] = *prefix;
    }
    pattern[used++] = '*';
    /* Our own prefix has nothing of that kind: { } : % and what ng_kv_encode lets through, of which
     * "-" means something only in brackets. */
    put_head(batch, '$', redis->prefix_bytes + used);
    put(batch, redis->prefix, redis->prefix_bytes);
    put(batch, pattern, used);
    put(batch, "\r\n", 2);
}

static int list_keys(struct redis *redis, const char *prefix, int64_t deadline_mono_ns,
                     struct names *names)
{
    char cursor[32] = "0";
    uint64_t connects = 0;

    for (;;) {
        struct batch *batch = fresh(redis);
        /* In a cluster this goes to the node that has our keys, and SCAN follows. */
        begin(batch, "EXISTS", 2);
        put_key(redis, batch, "");
        begin(batch, "SCAN", 6);
        put_word(batch, cursor);
        put_word(batch, "MATCH");
        put_pattern(redis, batch, prefix);
        put_word(batch, "COUNT");
        put_word(batch, "1000");
        int error = run(redis, batch, REPEATABLE | ONE_CONNECTION, deadline_mono_ns);
        if (error)
            return error;
        /* A cursor is one server's own: with another one it begins anew. */
        if (connects && redis->kv.connects != connects) {
            connects = 0;
            strcpy(cursor, "0");
            continue;
        }
        connects = redis->kv.connects;
        const redisReply *reply = reply_of(redis, 1);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
            !is_text(reply->element[0]) || reply->element[1]->type != REDIS_REPLY_ARRAY ||
            (size_t)reply->element[0]->len >= sizeof(cursor))
            return fail_reply(redis, reply);
        const redisReply *keys = reply->element[1];
        for (size_t i = 0; i < keys->elements; i++) {
            const redisReply *key = keys->element[i];
            size_t bytes = is_text(key) ? (size_t)key->len : 0;
            if (bytes <= redis->prefix_bytes || bytes > redis->prefix_bytes + NG_KV_KEY_MAX ||
                strncmp(key->str, redis->prefix, redis->prefix_bytes) != 0)
                continue;
            error = add_name(names, key->str + redis->prefix_bytes, bytes - redis->prefix_bytes);
            if (error)
                return ng_kv_fail(&redis->kv, error, "no memory");
        }
        strcpy(cursor, reply->element[0]->str);
        if (strcmp(cursor, "0") == 0) {
            sort_names(names);
            return 0;
        }
    }
}

struct scan {
    const struct names *names;
    ng_kv_each_fn *each;
    void *context;
    int result;
};

static void scanned(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct scan *scan = context;

    if (value && !scan->result)
        scan->result = scan->each(scan->context, scan->names->list[index], value);
}

static int redis_scan(struct ng_kv *kv, const char *prefix, int64_t deadline_mono_ns,
                      ng_kv_each_fn *each, void *context)
{
    struct names names = {0};
    struct scan scan = {.names = &names, .each = each, .context = context};
    int error = list_keys(of(kv), prefix, deadline_mono_ns, &names);

    if (!error && names.count)
        error = redis_get_many(kv, (const char *const *)names.list, names.count, deadline_mono_ns,
                               scanned, &scan);
    free_names(&names);
    return error ? error : scan.result;
}

static int redis_clear(struct ng_kv *kv, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct names names = {0};
    int error = list_keys(redis, "", deadline_mono_ns, &names);

    for (size_t first = 0; !error && first < names.count; first += KEYS_AT_ONCE) {
        size_t some = names.count - first < KEYS_AT_ONCE ? names.count - first : KEYS_AT_ONCE;
        struct batch *batch = fresh(redis);
        begin(batch, "DEL", 1 + some);
        for (size_t i = 0; i < some; i++)
            put_key(redis, batch, names.list[first + i]);
        error = run(redis, batch, REPEATABLE, deadline_mono_ns);
        if (!error && error_of(reply_of(redis, 0)))
            error = fail_reply(redis, reply_of(redis, 0));
    }
    free_names(&names);
    return error;
}

/* ---- Publishing, and the queue ---- */

static void put_publish(struct redis *redis, struct batch *batch, const char *channel,
                        const struct ng_kv_bytes *data)
{
    begin(batch, "PUBLISH", 3);
    put_key(redis, batch, channel);
    put_bytes(batch, data->data, data->bytes);
}

static int redis_publish(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *data,
                         int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    struct batch *batch = fresh(redis);

    put_publish(redis, batch, channel, data);
    int error = run(redis, batch, REPEATABLE, deadline_mono_ns);
    if (error)
        return error;
    return error_of(reply_of(redis, 0)) ? fail_reply(redis, reply_of(redis, 0)) : 0;
}

/* Where memory is short the command that does not fit is taken back, and the others stay. */
static int queued(struct redis *redis, size_t used, size_t count)
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
    struct redis *redis = of(kv);
    size_t used = redis->queue.used, count = redis->queue.count;

    put_set(redis, &redis->queue, key, value, ttl_ms, false);
    return queued(redis, used, count);
}

static int redis_queue_publish(struct ng_kv *kv, const char *channel,
                               const struct ng_kv_bytes *data)
{
    struct redis *redis = of(kv);
    size_t used = redis->queue.used, count = redis->queue.count;

    put_publish(redis, &redis->queue, channel, data);
    return queued(redis, used, count);
}

static int redis_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed)
{
    struct redis *redis = of(kv);
    size_t failed = 0;
    int error = 0;

    fresh(redis);
    if (redis->queue.count)
        error = run(redis, &redis->queue, REPEATABLE, deadline_mono_ns);
    for (size_t i = 0; i < redis->queue.count; i++) {
        const redisReply *reply = redis->queue.commands[i].reply;
        bool done = reply && redis->queue.commands[i].answered && !error_of(reply);
        failed += !done;
        if (!done && !error)
            error = fail_reply(redis, reply);
    }
    empty_batch(&redis->queue);
    *ret_failed = failed;
    return error;
}

/* ---- Subscriptions ---- */

static void drop_pending(struct redis *redis)
{
    while (redis->pending_count) {
        freeReplyObject(redis->pending[redis->pending_first++]);
        redis->pending_count--;
    }
    redis->pending_first = 0;
}

/* Keep a message that came while something else was waited for. */
static void add_pending(struct redis *redis, redisReply *reply)
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
static int channel_of(const struct redis *redis, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !is_text(reply->element[0]) ||
        strcmp(reply->element[0]->str, "message") != 0 || !is_text(reply->element[1]) ||
        !is_text(reply->element[2]) || (size_t)reply->element[1]->len <= redis->prefix_bytes ||
        strncmp(reply->element[1]->str, redis->prefix, redis->prefix_bytes) != 0)
        return -1;
    for (unsigned i = 0; i < redis->channel_count; i++)
        if (strcmp(redis->channels[i], reply->element[1]->str + redis->prefix_bytes) == 0)
            return (int)i;
    return -1;
}

static bool is_confirmation(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements && is_text(reply->element[0]) &&
           strcmp(reply->element[0]->str, "subscribe") == 0;
}

/* What the caller waits for, made anew where the program has closed it. */
static void watch_subscription(struct redis *redis)
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
    /* Already there is fine: a closed socket has left by itself. */
    if (redis->sub.open)
        epoll_ctl(redis->epoll.fd, EPOLL_CTL_ADD, redis->sub.link.socket.fd, &event);
}

/* The descriptor becomes readable then at the latest. */
static void wake_at(struct redis *redis, int64_t mono_ns)
{
    struct itimerspec when = {.it_value = {mono_ns / NG_S, mono_ns % NG_S}};

    if (mono_ns <= 0)
        when.it_value = (struct timespec){0, 1};
    watch_subscription(redis);
    if (redis->timer.fd >= 0)
        timerfd_settime(redis->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void lose_subscription(struct redis *redis, int error)
{
    ng_redis_link_close(&redis->sub.link);
    note_loss(redis, &redis->sub, error);
    redis->missed = true;
}

/* Subscribe to channels from `first` on. */
static int subscribe_from(struct redis *redis, unsigned first, int64_t deadline_mono_ns)
{
    struct ng_redis_link *link = &redis->sub.link;
    struct batch batch = {0};
    unsigned wanted = redis->channel_count - first;
    int error = 0;

    begin(&batch, "SUBSCRIBE", 1 + wanted);
    for (unsigned i = first; i < redis->channel_count; i++)
        put_key(redis, &batch, redis->channels[i]);
    if (batch.no_memory)
        error = -ENOMEM;
    /* It answers each channel, and messages may come in between. */
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
        if (error_of(reply)) {
            error = error_of(reply);
            snprintf(link->why, sizeof(link->why), "%.200s", reply->str);
        }
        wanted -= is_confirmation(reply);
        freeReplyObject(reply);
    }
    free_batch(&batch);
    if (error)
        lose_subscription(redis, error);
    return error;
}

/* One attempt, if it is time for one. */
static int connect_subscription(struct redis *redis, int64_t deadline_mono_ns)
{
    struct connection *connection = &redis->sub;
    int64_t now = ng_clock_mono_ns();

    if (connection->open && ng_descriptor_ours(&connection->link.socket))
        return 0;
    if (connection->open)
        lose_subscription(redis, -ECONNRESET);
    if (connection->retry_mono_ns > now || now >= deadline_mono_ns)
        return connection->error ? connection->error : -EAGAIN;
    drop_pending(redis);
    int error = attempt(redis, connection, deadline_mono_ns);
    if (!error)
        error = subscribe_from(redis, 0, deadline_mono_ns);
    redis->pinged_mono_ns = ng_clock_mono_ns();
    return error;
}

/* Attempts until the deadline, with pauses, as for the main connection. */
static int keep_connecting(struct redis *redis, int64_t deadline_mono_ns)
{
    struct connection *connection = &redis->sub;

    for (;;) {
        if (connection->retry_mono_ns > ng_clock_mono_ns() &&
            !ng_kv_pause(connection->retry_mono_ns, deadline_mono_ns))
            return connection->error;
        if (ng_clock_mono_ns() >= deadline_mono_ns)
            return connection->error ? connection->error : -ETIMEDOUT;
        int error = connect_subscription(redis, deadline_mono_ns);
        if (!error || lasting(error))
            return error;
    }
}

static int redis_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns)
{
    struct redis *redis = of(kv);
    bool open = redis->sub.open && ng_descriptor_ours(&redis->sub.link.socket), wanted = false;
    int error;

    for (unsigned i = 0; i < redis->channel_count; i++)
        wanted |= strcmp(redis->channels[i], channel) == 0;
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
        /* Messages of others may have been lost already; of the first there are none to lose. */
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

static int redis_message_fd(struct ng_kv *kv)
{
    struct redis *redis = of(kv);

    if (!redis->channel_count)
        return -1;
    watch_subscription(redis);
    return redis->epoll.fd;
}

static void deliver(struct redis *redis, redisReply *reply, int channel,
                    struct ng_kv_message *ret_message)
{
    redis->message = reply;
    *ret_message = (struct ng_kv_message){redis->channels[channel], bytes_of(reply->element[2])};
}

/* Is the server still there? It is asked, and given up when it says nothing for too long. */
static int keep_alive(struct redis *redis)
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

static int redis_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                              struct ng_kv_message *ret_message)
{
    struct redis *redis = of(kv);
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
            /* Not at once where the caller left no time for an attempt. */
            int64_t soon = ng_clock_mono_ns() + BACKOFF_MIN_MS * NG_MS;
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

/* ---- Beginning and end ---- */

static void redis_abandon(struct ng_kv *kv)
{
    struct redis *redis = of(kv);

    ng_redis_link_abandon(&redis->main.link);
    ng_redis_link_abandon(&redis->sub.link);
    ng_redis_link_abandon(&redis->helper);
    ng_resolve_abandon();
    ng_descriptor_close(&redis->epoll);
    ng_descriptor_close(&redis->timer);
}

static void redis_destroy(struct ng_kv *kv)
{
    struct redis *redis = of(kv);
    struct ng_redis_link *links[] = {&redis->main.link, &redis->sub.link, &redis->helper};

    for (size_t i = 0; i < 3; i++) {
        ng_redis_link_close(links[i]);
        ng_resolve_forget(&links[i]->lookup);
    }
    ng_descriptor_close(&redis->epoll);
    ng_descriptor_close(&redis->timer);
    if (redis->value)
        freeReplyObject(redis->value);
    if (redis->message)
        freeReplyObject(redis->message);
    drop_pending(redis);
    free(redis->pending);
    free_batch(&redis->batch);
    free_batch(&redis->queue);
    free(redis->prefix);
    explicit_bzero(&redis->url, sizeof(redis->url));
    free(redis);
}

static const struct ng_kv_ops redis_ops = {
    .set = redis_set,
    .get = redis_get,
    .get_many = redis_get_many,
    .wait = redis_wait,
    .add = redis_add,
    .put_if_absent = redis_put_if_absent,
    .compare_and_set = redis_compare_and_set,
    .remove = redis_remove,
    .expire = redis_expire,
    .scan = redis_scan,
    .publish = redis_publish,
    .queue_set = redis_queue_set,
    .queue_publish = redis_queue_publish,
    .flush = redis_flush,
    .subscribe = redis_subscribe,
    .message_fd = redis_message_fd,
    .next_message = redis_next_message,
    .clear = redis_clear,
    .abandon = redis_abandon,
    .destroy = redis_destroy,
};

/* {ncclguard:JOB:RUN}: — the braces make one hash tag of it, so names must not have any. */
static char *make_prefix(const struct ng_kv_options *options, size_t *ret_bytes)
{
    size_t job = ng_kv_encode(options->job, "", NULL, 0);
    size_t run = ng_kv_encode(options->run, "", NULL, 0);
    size_t bytes = strlen("{ncclguard::}:") + job + run;
    char *prefix = malloc(bytes + 1);

    if (!prefix)
        return NULL;
    char *at = prefix + sprintf(prefix, "{ncclguard:");
    at += ng_kv_encode(options->job, "", at, job + 1);
    *at++ = ':';
    at += ng_kv_encode(options->run, "", at, run + 1);
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
    struct redis *redis = calloc(1, sizeof(*redis));
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
