/*
 * Keys and values that the processes of a job share across hosts: the interface of every backend.
 * store/kv/kv_open.h opens one.
 *
 * One thread uses a kv at a time, a thread of the guard or of a tool. Calls allocate, and block
 * until their deadline but never beyond it (CLOCK_MONOTONIC, absolute; a deadline in the past
 * means: return what is available at once). No call ends the process, logs, raises a signal or
 * leaves a thread waiting. If the store is lost, calls fail; the next ones reconnect, with growing
 * pauses between attempts, and fail at once if the pause outlasts their deadline.
 *
 * Every function returns 0 or
 *   -ETIMEDOUT     the deadline has passed; whether a change was made is not known
 *   -ECONNREFUSED  nothing listens at that address
 *   -EHOSTUNREACH  no route to that host, or its name is not known
 *   -ECONNRESET    the connection was lost, and whether a change was made is not known. Operations
 *                  that can be repeated without harm (set, get, remove, expire, publish) are
 *                  repeated inside the call; add, put_if_absent and compare_and_set are not
 *   -EACCES        wrong password, or the user lacks the permission; TLS: untrusted certificate
 *   -ENOSPC        no room: Redis is at its maxmemory, or the disk is full
 *   -EROFS         only reading is possible: a replica, or a Redis that cannot save
 *   -EBUSY         the server is up, but cannot serve yet: loading, electing a master, no slots
 *   -EPROTO        the peer is not such a store, or a file is damaged
 *   -EMSGSIZE, -EINVAL  a key or value that is too long, or an empty key
 *   -ENOMEM
 * and what the function itself names. After a failure ng_kv_error returns it as one line.
 *
 * Keys are texts of 1 to NG_KV_KEY_MAX bytes, any bytes but 0; values are bytes. Keys belong to one
 * run of one job and are not visible to others.
 */
#ifndef NCCLGUARD_STORE_KV_KV_H
#define NCCLGUARD_STORE_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NG_KV_KEY_MAX      200
#define NG_KV_VALUE_MAX    (64u << 20)
#define NG_KV_CHANNELS_MAX 8
#define NG_KV_PING_MS      2000

struct ng_kv;

struct ng_kv_bytes {
    const void *data;
    size_t bytes;
};

struct ng_kv_message {
    const char *channel;
    struct ng_kv_bytes data;
};

/* For get_many: the value of keys[index], NULL if there is none. It must not use the kv. */
typedef void ng_kv_many_fn(void *context, size_t index, const struct ng_kv_bytes *value);

/* What a backend provides; the functions below, which check arguments first, document it. */
struct ng_kv_ops {
    int (*get)(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
               struct ng_kv_bytes *ret_value);
    int (*get_many)(struct ng_kv *kv, const char *const *keys, size_t count,
                    int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context);
    int (*add)(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
               int64_t deadline_mono_ns, int64_t *ret_value);
    int (*put_if_absent)(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                         int64_t ttl_ms, int64_t deadline_mono_ns);
    int (*compare_and_set)(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *expected,
                           const struct ng_kv_bytes *value, int64_t ttl_ms,
                           int64_t deadline_mono_ns, struct ng_kv_bytes *ret_current);
    int (*remove)(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns);
    int (*expire)(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns);
    int (*queue_set)(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                     int64_t ttl_ms);
    int (*queue_publish)(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *data);
    int (*flush)(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed);
    int (*subscribe)(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns);
    int (*message_fd)(struct ng_kv *kv);
    int (*next_message)(struct ng_kv *kv, int64_t deadline_mono_ns,
                        struct ng_kv_message *ret_message);
    void (*abandon)(struct ng_kv *kv);
    void (*destroy)(struct ng_kv *kv);
};

struct ng_kv {
    const struct ng_kv_ops *ops;
    uint64_t connects; /* connections to a server so far. If it has grown, what was stored may be
                        * gone: the server may be a new one. Stays 0 without a server */
    int64_t deadline_mono_ns; /* of the newest call that asks the store */
    char error[384];
    char name[256]; /* the store as text, without its password */
};

/* NULL is allowed. Queued operations are dropped. */
void ng_kv_destroy(struct ng_kv *kv);

/* In a forked child, which must not use it: close what was inherited. Async-signal-safe; nothing
 * else may be called on it afterwards. */
void ng_kv_abandon(struct ng_kv *kv);

/* The last failure as one line, without passwords; valid until the next call. */
const char *ng_kv_error(const struct ng_kv *kv);

/* Set the value of a key, whatever it was before, after all that is queued. ttl_ms: time to live; 0
 * for ever. */
int ng_kv_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes, int64_t ttl_ms,
              int64_t deadline_mono_ns);

/* -ENOENT: there is no such key. The value belongs to the kv until the next call on it; a call that
 * receives it as an argument copies it first. */
int ng_kv_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
              struct ng_kv_bytes *ret_value);

/* A value that is a short text, cut to the size of `ret_text`, with a NUL at its end. */
void ng_kv_text(const struct ng_kv_bytes *value, char *ret_text, size_t bytes);

/* Several keys with few round trips, not atomically. `each` is called for each key in order; after
 * a failure it may have been called for some. */
int ng_kv_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                   int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context);

/*
 * Add to a decimal number; a missing key counts as 0. ttl_ms 0 leaves the key's time to live as it
 * is; any other value restarts it. -EINVAL: the value is not a number; -ERANGE: the sum does not
 * fit into 64 bits; in both cases nothing is changed.
 */
int ng_kv_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
              int64_t deadline_mono_ns, int64_t *ret_value);

/* 0 for exactly one of all callers; -EEXIST for the others. */
int ng_kv_put_if_absent(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                        int64_t ttl_ms, int64_t deadline_mono_ns);

/*
 * Set the value if it is `expected`; expected NULL: if there is none. -EEXIST: it differs, and
 * *ret_current (may be NULL) has it as with get; -ENOENT: there is none, but one was expected.
 */
int ng_kv_compare_and_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *expected,
                          const void *data, size_t bytes, int64_t ttl_ms, int64_t deadline_mono_ns,
                          struct ng_kv_bytes *ret_current);

/* -ENOENT: there was none (or, if the connection was lost meanwhile, it is gone already). */
int ng_kv_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns);

/* Restart the key's time to live; 0: for ever. -ENOENT: there is no such key. */
int ng_kv_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns);

/* Send to all current subscribers of the channel, after all that is queued. At most NG_KV_VALUE_MAX
 * bytes; may arrive twice if the connection was lost. */
int ng_kv_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes,
                  int64_t deadline_mono_ns);

/* Queue a set or a publish (copied) for ng_kv_flush. */
int ng_kv_queue_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                    int64_t ttl_ms);
int ng_kv_queue_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes);

/* Run all queued operations, in order, with one round trip. The queue is empty afterwards; on
 * failure (the first one's) *ret_failed (may be NULL) says how many are not known to be done. */
int ng_kv_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed);

/*
 * Subscribe to the messages of a channel from now on; up to NG_KV_CHANNELS_MAX channels (-ENOSPC),
 * each once. The channel stays subscribed even after a failure: next_message keeps trying.
 */
int ng_kv_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns);

/*
 * A descriptor that is readable when next_message has something to do. It stays the same for the
 * kv's life, but query it before each wait: a program may have closed it. -1: none (no
 * subscription, or no descriptor left): poll instead.
 */
int ng_kv_message_fd(struct ng_kv *kv);

/*
 * The next message, valid until the next call of this function; in order within a channel. Never
 * waits for a message: call it until it returns -EAGAIN (none now), then wait for the descriptor.
 * The deadline bounds the work on the connection, which this function keeps alive and
 * re-establishes: leave it time for that. -ESTALE: messages may have been lost, reported once: read
 * the keys again. Another -errno: the subscription is down at the moment; wait for the descriptor
 * as well.
 */
int ng_kv_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                       struct ng_kv_message *ret_message);

/* ---- For backends ---- */

/* Record a failure, and return `error`. */
__attribute__((format(printf, 3, 4))) int ng_kv_fail(struct ng_kv *kv, int error,
                                                     const char *format, ...);

/*
 * A name of letters, digits, "." "_" and "-"; other bytes as %XX. Returns the length that it has or
 * would have; always NUL-terminated.
 */
size_t ng_kv_encode(const char *from, char *ret_name, size_t bytes);

/* Sleep until then, unless that is beyond the deadline: then return false without sleeping. */
bool ng_kv_pause(int64_t until_mono_ns, int64_t deadline_mono_ns);

#endif
