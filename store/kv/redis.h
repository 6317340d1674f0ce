/*
 * The Redis backend of store/kv/kv.h from inside: its connections, and how commands are run on
 * them.
 *
 * Entered by one thread of the guard or of a tool. Nothing waits beyond its deadline. The reason
 * for an error is in redis->kv.why, or in `why` of the connection, as stated.
 */
#ifndef NCCLGUARD_STORE_KV_REDIS_H
#define NCCLGUARD_STORE_KV_REDIS_H

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/descriptor.h"
#include "store/kv/kv.h"
#include "store/kv/redis_batch.h"
#include "store/kv/redis_link.h"
#include "store/kv/tls.h"
#include "store/kv/url.h"

#define NG_REDIS_NODES_MAX      16
#define NG_REDIS_KEYS_AT_ONCE   256
#define NG_REDIS_BACKOFF_MIN_MS 50

struct ng_redis_node {
    char host[NG_URL_PATH_BYTES]; /* a path if the port is 0 */
    uint16_t port;
};

struct ng_redis_connection {
    struct ng_redis_link link;
    struct ng_redis_node at;
    bool open, useful; /* it has answered more than the greeting */
    int64_t opened_mono_ns;
    int64_t retry_mono_ns; /* not before */
    int64_t backoff_ms;
    int error; /* of the last attempt */
    char why[300];
};

struct ng_redis {
    struct ng_kv kv;
    struct ng_url url;
    const struct ng_tls_ops *tls;
    char *prefix;
    size_t prefix_bytes;
    uint64_t random;
    struct ng_redis_connection main, sub;
    struct ng_redis_link helper; /* to sentinels, and to nodes that are queried once */
    unsigned sentinel;           /* the one that answered last */
    struct ng_redis_node home;   /* cluster: the node that has our keys; no host: not known */
    struct ng_redis_node nodes[NG_REDIS_NODES_MAX]; /* cluster: nodes to query if `home` is gone */
    unsigned node_count;
    bool cluster;
    struct ng_redis_batch batch, queue;

    char channels[NG_KV_CHANNELS_MAX][NG_KV_KEY_MAX + 1];
    unsigned channel_count;
    struct ng_descriptor epoll, timer;
    redisReply **pending;
    size_t pending_first, pending_count, pending_room;
    redisReply *message; /* of the last next_message */
    bool missed;
    int64_t ping_ns, pinged_mono_ns;
};

static inline struct ng_redis *ng_redis_of(struct ng_kv *kv)
{
    return (struct ng_redis *)kv;
}

/* ---- Connecting (store/kv/redis_connect.c) ---- */

/* One attempt, whether or not the pause after the last one is over. 0 or -errno, with the reason in
 * `why` of the connection. */
int ng_redis_attempt(struct ng_redis *redis, struct ng_redis_connection *connection,
                     int64_t deadline_mono_ns);

/* Is the host listed by CLUSTER SLOTS? */
bool ng_redis_lists(const redisReply *slots, const char *host);

/* The main connection, established if there is none. The reason is in redis->kv.why. */
int ng_redis_ensure(struct ng_redis *redis, int64_t deadline_mono_ns);

/* An error that a second attempt in the same call would not fix, or has no time for. */
bool ng_redis_is_lasting(int error);

/* The link has been closed, by either side; and: leave a server for another, without a pause. */
void ng_redis_note_loss(struct ng_redis *redis, struct ng_redis_connection *connection, int error);
void ng_redis_move_on(struct ng_redis_connection *connection);

/* A separate link to a node; the reason is in link->why. */
int ng_redis_open_node(struct ng_redis *redis, struct ng_redis_link *link,
                       const struct ng_redis_node *node, int64_t deadline_mono_ns);
void ng_redis_put_auth(struct ng_redis *redis, struct ng_redis_batch *batch);

/* Send a batch on a link and read its replies, once. Replies received are in the batch, also after
 * an error. */
int ng_redis_exchange(struct ng_redis_link *link, struct ng_redis_batch *batch,
                      int64_t deadline_mono_ns, bool *ret_sent);

/* When this node's share of the time ends, with so many nodes left to try. */
int64_t ng_redis_share(int64_t deadline_mono_ns, unsigned left);

/* ---- Running commands (store/kv/redis_run.c) ---- */

/* What a batch may do when its connection is lost. */
enum { NG_REDIS_REPEATABLE = 1, NG_REDIS_ONE_CONNECTION = 2 };

/*
 * Run a batch until every command has its final reply, in batch->commands[].reply. Commands that
 * were refused because the server is the wrong one, or is not ready, are sent again; after a lost
 * connection, only REPEATABLE ones are. 0 or -errno, with the reason in redis->kv.why.
 */
int ng_redis_run(struct ng_redis *redis, struct ng_redis_batch *batch, int flags,
                 int64_t deadline_mono_ns);

/* A new batch for a call; the results of the last one are freed. Its replies, which are kept until
 * then. */
struct ng_redis_batch *ng_redis_fresh(struct ng_redis *redis);
const redisReply *ng_redis_reply(const struct ng_redis *redis, size_t index);
struct ng_kv_bytes ng_redis_bytes_of(const redisReply *reply);
void ng_redis_put_key(struct ng_redis *redis, struct ng_redis_batch *batch, const char *key);

/* Record an error reply, and return its errno. */
int ng_redis_fail_reply(struct ng_redis *redis, const redisReply *reply);

/* ---- Operations of store/kv/kv.h that have their own files ---- */

/* store/kv/redis_messages.c */
int ng_redis_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns);
int ng_redis_message_fd(struct ng_kv *kv);
int ng_redis_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                          struct ng_kv_message *ret_message);

/* Discard messages that arrived while something else was awaited. */
void ng_redis_drop_pending(struct ng_redis *redis);

#endif
