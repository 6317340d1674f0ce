/*
 * Keys and values that the processes of a job share across hosts: one interface, on Redis
 * (kv_redis.c), with signatures in front of it where a key is given (kv_signed.c).
 *
 * One thread uses a kv at a time, a thread of the guard or of a tool: calls allocate, and wait
 * until their deadline, but never beyond it (CLOCK_MONOTONIC, absolute; one that has passed means:
 * what can be had at once). No call ends the process, logs, raises a signal or leaves a thread
 * waiting. Where a store is lost, calls fail; the next ones try again, with growing pauses between
 * attempts, and fail at once in a pause that outlasts their deadline.
 *
 * Every function returns 0 or
 *   -ETIMEDOUT     the deadline has passed; whether a change was made is not known
 *   -ECONNREFUSED  nobody answers at that address
 *   -EHOSTUNREACH  no way to that host, or its name is not known
 *   -ECONNRESET    the connection was lost, and whether a change was made is not known. What can be
 *                  repeated without harm (set, get, remove, expire, publish) is repeated
 *                  inside the call; add, put_if_absent and compare_and_set are not
 *   -EACCES        wrong password, or the user may not do that; TLS: the certificate is not trusted
 *   -ENOSPC        no room: Redis is at its maxmemory, or the disk is full
 *   -EROFS         only reading is possible: a replica, or a Redis that cannot save
 *   -EBUSY         the server is there, but cannot serve yet: loading, electing a master, no slots
 *   -EPROTO        what answers is not such a store, or a file is damaged
 *   -EMSGSIZE, -EINVAL  a key or value that is too long, or no key at all
 *   -ENOMEM
 * and what the function itself names. After a failure ng_kv_error has it in one line.
 *
 * Keys are texts of 1 to NG_KV_KEY_MAX bytes, any bytes but 0; values are bytes. Keys belong to one
 * run of one job: others never see them.
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
struct ng_tls_ops;

struct ng_kv_bytes {
    const void *data;
    size_t bytes;
};

struct ng_kv_message {
    const char *channel;
    struct ng_kv_bytes data;
};

struct ng_kv_options {
    const char *job, *run; /* whose keys; neither is empty */
    const char
        *key_file; /* values are signed with what it holds, others are not there; NULL: neither */
    const struct ng_tls_ops *tls; /* what speaks TLS; NULL: rediss:// is an error */
    int ping_ms; /* a subscription asks this often whether the server is there; it is given up for
                    lost after twice as long without a sign. 0: NG_KV_PING_MS */
};

/* For get_many: the value of keys[index], NULL where there is none. It must not use the kv. */
typedef void ng_kv_many_fn(void *context, size_t index, const struct ng_kv_bytes *value);

/* What a backend provides; see the functions below, which check arguments first. */
struct ng_kv_ops {
    int (*set)(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value, int64_t ttl_ms,
               int64_t deadline_mono_ns);
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
    int (*publish)(struct ng_kv *kv, const char *channel, const struct ng_kv_bytes *data,
                   int64_t deadline_mono_ns);
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
    uint64_t connects; /* connections to a server so far. When it has grown, what was stored may be
                          gone: the server may be a new one. Stays 0 where there is no server */
    char error[384];
    char name[256]; /* the store in words, without its password */
};

/*
 * Open by URL (store/kv/url.h). Touches no network: the first call does. 0; -EINVAL: not a URL of a
 * server, or options are missing; -EOPNOTSUPP: this build has no Redis, or nothing that speaks TLS;
 * -ENOKEY: the key's file holds none; or another
 * -errno. Then `why` has one line for people, with the mend.
 */
int ng_kv_open(const char *url, const struct ng_kv_options *options, char *why, size_t why_bytes,
               struct ng_kv **ret_kv);

/* NULL is fine. What is queued is dropped. */
void ng_kv_destroy(struct ng_kv *kv);

/* In a forked child, which has no part in it: close what was inherited. Async-signal-safe; nothing
 * else is called on it afterwards. */
void ng_kv_abandon(struct ng_kv *kv);

/* What the last failure was, in one line, without passwords; valid until the next call. */
const char *ng_kv_error(const struct ng_kv *kv);

/* The value of a key, whatever it was before. ttl_ms: gone after that time; 0 never. */
int ng_kv_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes, int64_t ttl_ms,
              int64_t deadline_mono_ns);

/* -ENOENT: there is no such key. The value belongs to the kv, until the next call on it, and is
 * copied before it is handed to one. */
int ng_kv_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
              struct ng_kv_bytes *ret_value);

/* Several keys with few round trips, not at one instant. `each` is called for each key in order;
 * after a failure it may have been for some. */
int ng_kv_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                   int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context);

/*
 * Add to a decimal number; a key that is not there counts as 0. ttl_ms 0 leaves the key's time to
 * live as it is, anything else starts it anew. -EINVAL: the value is no number; -ERANGE: the sum is
 * none of 64 bits; then nothing is changed.
 */
int ng_kv_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
              int64_t deadline_mono_ns, int64_t *ret_value);

/* 0 for exactly one of all that try; -EEXIST for the others. */
int ng_kv_put_if_absent(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                        int64_t ttl_ms, int64_t deadline_mono_ns);

/*
 * Set the value where it is `expected`; expected NULL: where there is none. -EEXIST: it is another,
 * which *ret_current (may be NULL) has as with get; -ENOENT: there is none, but one was expected.
 */
int ng_kv_compare_and_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *expected,
                          const void *data, size_t bytes, int64_t ttl_ms, int64_t deadline_mono_ns,
                          struct ng_kv_bytes *ret_current);

/* -ENOENT: there was none (or, where the connection was lost on the way, none any more). */
int ng_kv_remove(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns);

/* Start the key's time to live anew; 0: for ever. -ENOENT: there is no such key. */
int ng_kv_expire(struct ng_kv *kv, const char *key, int64_t ttl_ms, int64_t deadline_mono_ns);

/* To all that are subscribed to the channel now. At most NG_KV_VALUE_MAX bytes; may arrive twice
 * where the connection was lost. */
int ng_kv_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes,
                  int64_t deadline_mono_ns);

/* Queue a set or a publish (copied) for ng_kv_flush. */
int ng_kv_queue_set(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                    int64_t ttl_ms);
int ng_kv_queue_publish(struct ng_kv *kv, const char *channel, const void *data, size_t bytes);

/* Do all that is queued, in order, with one round trip. The queue is empty afterwards; on failure
 * (the first one's) *ret_failed (may be NULL) says how many are not known to be done. */
int ng_kv_flush(struct ng_kv *kv, int64_t deadline_mono_ns, size_t *ret_failed);

/*
 * Messages of a channel from now on; up to NG_KV_CHANNELS_MAX channels (-ENOSPC), each once. After
 * a failure the channel is wanted all the same: next_message goes on trying.
 */
int ng_kv_subscribe(struct ng_kv *kv, const char *channel, int64_t deadline_mono_ns);

/*
 * A descriptor that is readable when next_message has something to do; it stays the same for the
 * kv's life, but look at it anew before each wait: a program may have closed it. -1: none (nothing
 * is subscribed to, or descriptors are short): ask from time to time.
 */
int ng_kv_message_fd(struct ng_kv *kv);

/*
 * The next message, valid until the next call of this function; in order within a channel. Never
 * waits for one: call it until it says -EAGAIN (none now), then wait for the descriptor. The
 * deadline bounds the work on the connection, which is kept alive, and made again, from here: leave
 * it time for that. -ESTALE: messages may have been lost, told once: look at the keys. Another
 * -errno: the subscription is down at the moment; wait for the descriptor as well.
 */
int ng_kv_next_message(struct ng_kv *kv, int64_t deadline_mono_ns,
                       struct ng_kv_message *ret_message);

/* ---- For backends ---- */

/* Note what a failure was, and return `error`. */
__attribute__((format(printf, 3, 4))) int ng_kv_fail(struct ng_kv *kv, int error,
                                                     const char *format, ...);

/*
 * A name of letters, digits, "." "_" and "-"; the rest as %XX. Returns the length that it has or
 * would have; always NUL-terminated.
 */
size_t ng_kv_encode(const char *from, char *ret_name, size_t bytes);

/* Sleep until then; only where it is not beyond the deadline: false, without sleeping. */
bool ng_kv_pause(int64_t until_mono_ns, int64_t deadline_mono_ns);

struct ng_url;

int ng_kv_redis_open(const struct ng_url *url, const struct ng_kv_options *options, char *why,
                     size_t why_bytes, struct ng_kv **ret_kv);

/* In front of another one, which becomes its own where that succeeds. */
int ng_kv_signed_open(struct ng_kv *inner, const struct ng_kv_options *options, char *why,
                      size_t why_bytes, struct ng_kv **ret_kv);

#endif
