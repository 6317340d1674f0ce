/*
 * A store whose values are signed: NCCLGUARD_STORE_KEY.
 *
 * In front of another backend. A value begins with its HMAC over the key's name and the value, with
 * a key derived from the file, the job and the run; so a value cannot be moved to another name, job
 * or run. A value without a valid signature counts as absent, and is replaced by a process that
 * creates the key. Counters that all processes increment are not signed: their readers bound them.
 * Neither are messages, which only say when to read. A writer can put an old signed value back
 * under its own name: a label, a slot or an epoch distinguishes it from a new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/hmac.h"
#include "core/util/small_file.h"
#include "store/kv/kv_open.h"

#define KEY_MIN 16 /* bytes */
#define KEY_MAX 4096

struct signed_kv {
    struct ng_kv kv;
    struct ng_kv *inner;
    struct ng_hmac hmac; /* with the key */
};

static struct signed_kv *of(struct ng_kv *kv)
{
    return (struct signed_kv *)kv;
}

/* A call on the inner kv has ended. */
static int done(struct ng_kv *kv, int error)
{
    kv->connects = of(kv)->inner->connects;
    if (error)
        memcpy(kv->error, of(kv)->inner->error, sizeof(kv->error));
    return error;
}

/* Incremented by ng_kv_add. */
static bool is_counter(const char *key)
{
    return (*key == 'n' || *key == 'e') && !key[1];
}

static void make_mac(struct ng_kv *kv, const char *key, const void *data, size_t bytes,
                     unsigned char ret_mac[NG_HMAC_BYTES])
{
    struct ng_hmac hmac = of(kv)->hmac;

    ng_hmac_add(&hmac, key, strlen(key) + 1);
    ng_hmac_add(&hmac, data, bytes);
    ng_hmac_finish(&hmac, ret_mac);
}

/* The content of a value as stored. False: it was not written with the key. */
static bool open_value(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *stored,
                       struct ng_kv_bytes *ret_value)
{
    unsigned char mac[NG_HMAC_BYTES];
    const unsigned char *data = stored->data;

    if (is_counter(key)) {
        *ret_value = *stored;
        return true;
    }
    if (stored->bytes < NG_HMAC_BYTES)
        return false;
    make_mac(kv, key, data + NG_HMAC_BYTES, stored->bytes - NG_HMAC_BYTES, mac);
    if (!ng_hmac_same(mac, data))
        return false;
    *ret_value = (struct ng_kv_bytes){data + NG_HMAC_BYTES, stored->bytes - NG_HMAC_BYTES};
    return true;
}

/* The value with its signature, to be freed; NULL: no memory. */
static void *seal(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                  struct ng_kv_bytes *ret_stored)
{
    size_t head = is_counter(key) ? 0 : NG_HMAC_BYTES;
    unsigned char *stored = malloc(head + value->bytes + 1);

    if (!stored) {
        ng_kv_fail(kv, -ENOMEM, "no memory");
        return NULL;
    }
    if (head)
        make_mac(kv, key, value->data, value->bytes, stored);
    if (value->bytes)
        memcpy(stored + head, value->data, value->bytes);
    *ret_stored = (struct ng_kv_bytes){stored, head + value->bytes};
    return stored;
}

/* A copy, to be freed, of the stored value if it was not written with the key; NULL: it was, or it
 * is gone. */
static void *copy_unsigned(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                           struct ng_kv_bytes *ret_stored)
{
    struct ng_kv *inner = of(kv)->inner;
    struct ng_kv_bytes stored, value;

    if (inner->ops->get(inner, key, deadline_mono_ns, &stored) != 0 ||
        open_value(kv, key, &stored, &value))
        return NULL;
    void *copy = malloc(stored.bytes + 1);
    if (copy && stored.bytes)
        memcpy(copy, stored.data, stored.bytes);
    *ret_stored = (struct ng_kv_bytes){copy, stored.bytes};
    return copy;
}

/* A value that was read. */
static int read_value(struct ng_kv *kv, const char *key, int error,
                      const struct ng_kv_bytes *stored, struct ng_kv_bytes *ret_value)
{
    if (done(kv, error))
        return error;
    return open_value(kv, key, stored, ret_value)
               ? 0
               : ng_kv_fail(kv, -ENOENT, "%s is not signed with the key of NCCLGUARD_STORE_KEY",
                            key);
}

static int signed_get(struct ng_kv *kv, const char *key, int64_t deadline_mono_ns,
                      struct ng_kv_bytes *ret_value)
{
    struct ng_kv *inner = of(kv)->inner;
    struct ng_kv_bytes stored;
    int error = inner->ops->get(inner, key, deadline_mono_ns, &stored);

    return read_value(kv, key, error, &stored, ret_value);
}

struct many {
    struct ng_kv *kv;
    const char *const *keys;
    ng_kv_many_fn *take;
    void *context;
};

static void take_one(void *context, size_t index, const struct ng_kv_bytes *stored)
{
    struct many *many = context;
    struct ng_kv_bytes value;
    bool there = stored && open_value(many->kv, many->keys[index], stored, &value);

    many->take(many->context, index, there ? &value : NULL);
}

static int signed_get_many(struct ng_kv *kv, const char *const *keys, size_t count,
                           int64_t deadline_mono_ns, ng_kv_many_fn *each, void *context)
{
    struct ng_kv *inner = of(kv)->inner;
    struct many many = {kv, keys, each, context};

    return done(kv, inner->ops->get_many(inner, keys, count, deadline_mono_ns, take_one, &many));
}

static int signed_add(struct ng_kv *kv, const char *key, int64_t delta, int64_t ttl_ms,
                      int64_t deadline_mono_ns, int64_t *ret_value)
{
    struct ng_kv *inner = of(kv)->inner;

    if (!is_counter(key))
        return ng_kv_fail(kv, -EINVAL, "%s is signed, and cannot be added to", key);
    return done(kv, inner->ops->add(inner, key, delta, ttl_ms, deadline_mono_ns, ret_value));
}

/* The first value of a key, replacing one without a signature. */
static int put_first(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *stored,
                     int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_kv *inner = of(kv)->inner;
    struct ng_kv_bytes theirs, current;
    int error = inner->ops->put_if_absent(inner, key, stored, ttl_ms, deadline_mono_ns);
    void *copy = error == -EEXIST ? copy_unsigned(kv, key, deadline_mono_ns, &theirs) : NULL;

    if (copy)
        error = inner->ops->compare_and_set(inner, key, &theirs, stored, ttl_ms, deadline_mono_ns,
                                            &current);
    free(copy);
    return done(kv, copy && error == -ENOENT ? -EEXIST : error);
}

static int signed_put_if_absent(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                                int64_t ttl_ms, int64_t deadline_mono_ns)
{
    struct ng_kv_bytes stored;
    void *memory = seal(kv, key, value, &stored);

    if (!memory)
        return -ENOMEM;
    int error = put_first(kv, key, &stored, ttl_ms, deadline_mono_ns);
    free(memory);
    return error;
}

static int signed_compare_and_set(struct ng_kv *kv, const char *key,
                                  const struct ng_kv_bytes *expected,
                                  const struct ng_kv_bytes *value, int64_t ttl_ms,
                                  int64_t deadline_mono_ns, struct ng_kv_bytes *ret_current)
{
    struct ng_kv *inner = of(kv)->inner;
    struct ng_kv_bytes stored, before, current = {0};
    void *memory = seal(kv, key, value, &stored),
         *memory_before = expected ? seal(kv, key, expected, &before) : NULL;
    int error = -ENOMEM;

    if (memory && expected && memory_before)
        error = done(kv, inner->ops->compare_and_set(inner, key, &before, &stored, ttl_ms,
                                                     deadline_mono_ns, &current));
    else if (memory && !expected)
        error = put_first(kv, key, &stored, ttl_ms, deadline_mono_ns);
    if (error == -EEXIST && !expected) /* put_if_absent does not return the existing value */
        error = inner->ops->get(inner, key, deadline_mono_ns, &current) == 0 ? -EEXIST : -EBUSY;
    if (error == -EEXIST && !open_value(kv, key, &current, ret_current))
        error =
            ng_kv_fail(kv, -ENOENT, "%s is not signed with the key of NCCLGUARD_STORE_KEY", key);
    free(memory);
    free(memory_before);
    return error;
}

static int signed_queue_set(struct ng_kv *kv, const char *key, const struct ng_kv_bytes *value,
                            int64_t ttl_ms)
{
    struct ng_kv *inner = of(kv)->inner;
    struct ng_kv_bytes stored;
    void *memory = seal(kv, key, value, &stored);

    if (!memory)
        return -ENOMEM;
    int error = done(kv, inner->ops->queue_set(inner, key, &stored, ttl_ms));
    free(memory);
    return error;
}

/* A key without a signed value. */
#define PASSED_ON(name, parameters, ...)                                                           \
    static int signed_##name parameters                                                            \
    {                                                                                              \
        struct ng_kv *inner = of(kv)->inner;                                                       \
        return done(kv, inner->ops->name(inner, __VA_ARGS__));                                     \
    }
PASSED_ON(remove, (struct ng_kv * kv, const char *key, int64_t deadline), key, deadline)
PASSED_ON(expire, (struct ng_kv * kv, const char *key, int64_t ttl_ms, int64_t deadline), key,
          ttl_ms, deadline)
PASSED_ON(queue_publish, (struct ng_kv * kv, const char *channel, const struct ng_kv_bytes *data),
          channel, data)
PASSED_ON(flush, (struct ng_kv * kv, int64_t deadline, size_t *ret_failed), deadline, ret_failed)
PASSED_ON(subscribe, (struct ng_kv * kv, const char *channel, int64_t deadline), channel, deadline)
PASSED_ON(next_message, (struct ng_kv * kv, int64_t deadline, struct ng_kv_message *ret_message),
          deadline, ret_message)

static int signed_message_fd(struct ng_kv *kv)
{
    return of(kv)->inner->ops->message_fd(of(kv)->inner);
}

static void signed_abandon(struct ng_kv *kv)
{
    of(kv)->inner->ops->abandon(of(kv)->inner);
}

static void signed_destroy(struct ng_kv *kv)
{
    ng_kv_destroy(of(kv)->inner);
    explicit_bzero(of(kv), sizeof(*of(kv)));
    free(kv);
}

static const struct ng_kv_ops signed_ops = {
    .get = signed_get,
    .get_many = signed_get_many,
    .add = signed_add,
    .put_if_absent = signed_put_if_absent,
    .compare_and_set = signed_compare_and_set,
    .remove = signed_remove,
    .expire = signed_expire,
    .queue_set = signed_queue_set,
    .queue_publish = signed_queue_publish,
    .flush = signed_flush,
    .subscribe = signed_subscribe,
    .message_fd = signed_message_fd,
    .next_message = signed_next_message,
    .abandon = signed_abandon,
    .destroy = signed_destroy,
};

/* The content of the file, without its trailing newline. How many bytes, or -errno. */
static ssize_t read_key(const char *path, unsigned char ret_key[KEY_MAX + 1])
{
    ssize_t used = ng_small_file_read(AT_FDCWD, path, ret_key, KEY_MAX + 1);

    if (used == -EISDIR || used == -ENOTSUP || used > KEY_MAX)
        return -EINVAL;
    while (used > 0 && (ret_key[used - 1] == '\n' || ret_key[used - 1] == '\r'))
        used--;
    return used >= 0 && used < KEY_MIN ? -EINVAL : used;
}

int ng_kv_signed_open(struct ng_kv *inner, const struct ng_kv_options *options, char *why,
                      size_t why_bytes, struct ng_kv **ret_kv)
{
    static const char purpose[] = "ncclguard store 1";
    unsigned char key[KEY_MAX + 1];
    struct signed_kv *own = calloc(1, sizeof(*own));
    ssize_t bytes = own ? read_key(options->key_file, key) : -ENOMEM;

    if (bytes < 0) {
        snprintf(why, why_bytes, "NCCLGUARD_STORE_KEY: %s: %s", options->key_file,
                 bytes == -EINVAL ? "it must be a file with a key of 16 to 4096 bytes"
                                  : strerror((int)-bytes));
        free(own);
        return bytes == -ENOMEM ? -ENOMEM : -ENOKEY;
    }
    /* A key for this run of this job. */
    ng_hmac_init(&own->hmac, key, (size_t)bytes);
    ng_hmac_add(&own->hmac, purpose, sizeof(purpose));
    ng_hmac_add(&own->hmac, options->job, strlen(options->job) + 1);
    ng_hmac_add(&own->hmac, options->run, strlen(options->run) + 1);
    ng_hmac_finish(&own->hmac, key);
    ng_hmac_init(&own->hmac, key, NG_HMAC_BYTES);
    explicit_bzero(key, sizeof(key));
    own->kv.ops = &signed_ops;
    own->inner = inner;
    *ret_kv = &own->kv;
    return 0;
}
