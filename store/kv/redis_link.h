/*
 * One connection to one Redis server: bytes by a deadline, replies by hiredis.
 *
 * hiredis only writes and parses the protocol here. Sockets are ours: we never wait for them beyond
 * the deadline, whatever the server or the network does (hiredis' own timeout applies to each read,
 * so a server that sends a byte at a time outlasts it), and never raise SIGPIPE. One thread at a
 * time.
 *
 * After any error the connection is closed, so that a late reply is never taken for another
 * command's.
 */
#ifndef NCCLGUARD_STORE_KV_REDIS_LINK_H
#define NCCLGUARD_STORE_KV_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/descriptor.h"
#include "store/kv/kv.h"
#include "store/kv/resolve.h"
#include "store/kv/tls.h"

struct redisReply;
struct redisReader;

struct ng_redis_link {
    struct ng_descriptor socket; /* fd -1: closed */
    struct redisReader *reader;
    const struct ng_tls_ops *tls_ops; /* NULL: without TLS */
    struct ng_tls *tls;
    struct ng_lookup *lookup;
    int64_t heard_mono_ns; /* when bytes last arrived */
    size_t unparsed;       /* bytes since the last complete reply, or more */
    char why[256];         /* the last error */
};

#define NG_REDIS_LINK_CLOSED ((struct ng_redis_link){.socket = {.fd = -1}})

/*
 * Connect to `host` (a path if `port` is 0), with a TLS handshake if tls_ops is not NULL. 0, or
 * -errno as in store/kv/kv.h.
 */
int ng_redis_link_open(struct ng_redis_link *link, const char *host, uint16_t port,
                       const struct ng_tls_ops *tls_ops, const struct ng_tls_options *tls_options,
                       int64_t deadline_mono_ns);

void ng_redis_link_close(struct ng_redis_link *link);

/* In a forked child. Async-signal-safe. */
void ng_redis_link_abandon(struct ng_redis_link *link);

/* Is it open, as far as can be seen without a request, with no unsolicited bytes received? */
bool ng_redis_link_usable(struct ng_redis_link *link);

/*
 * Send commands and read `count` replies into `ret_replies`, which the caller frees, also after an
 * error: those received are set, the others NULL. *ret_sent: whether the server may have received
 * any of it. 0, -ETIMEDOUT, -ECONNRESET, -EPROTO, -EACCES (TLS), -ENOMEM.
 */
int ng_redis_link_exchange(struct ng_redis_link *link, const char *commands, size_t bytes,
                           struct redisReply **ret_replies, size_t count, int64_t deadline_mono_ns,
                           bool *ret_sent);

/* A longer reply fails with -EPROTO: the value read may have been stored by another program. */
#define NG_REDIS_REPLY_MAX (2u * NG_KV_VALUE_MAX)

/* An unsolicited reply: 0 and *ret_reply; -EAGAIN: nothing complete yet; or as above. Never
 * waits. */
int ng_redis_link_next(struct ng_redis_link *link, struct redisReply **ret_reply);

/* Send a few bytes without waiting. 0; -EAGAIN: the server does not read; -ECONNRESET. */
int ng_redis_link_send(struct ng_redis_link *link, const char *commands, size_t bytes);

#endif
