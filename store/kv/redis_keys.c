/*
 * All keys of a run: shown one by one, and removed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/kv/names.h"
#include "store/kv/redis.h"

/* "prefix*", with everything that a pattern takes for something else escaped. */
static void put_pattern(struct ng_redis *redis, struct ng_redis_batch *batch, const char *prefix)
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
    ng_redis_put_head(batch, '$', redis->prefix_bytes + used);
    ng_redis_put(batch, redis->prefix, redis->prefix_bytes);
    ng_redis_put(batch, pattern, used);
    ng_redis_put(batch, "\r\n", 2);
}

static int list_keys(struct ng_redis *redis, const char *prefix, int64_t deadline_mono_ns,
                     struct ng_names *names)
{
    char cursor[32] = "0";
    uint64_t connects = 0;

    for (;;) {
        struct ng_redis_batch *batch = ng_redis_fresh(redis);
        /* In a cluster this goes to the node that has our keys, and SCAN follows. */
        ng_redis_begin(batch, "EXISTS", 2);
        ng_redis_put_key(redis, batch, "");
        ng_redis_begin(batch, "SCAN", 6);
        ng_redis_put_word(batch, cursor);
        ng_redis_put_word(batch, "MATCH");
        put_pattern(redis, batch, prefix);
        ng_redis_put_word(batch, "COUNT");
        ng_redis_put_word(batch, "1000");
        int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE | NG_REDIS_ONE_CONNECTION,
                                 deadline_mono_ns);
        if (error)
            return error;
        /* A cursor is one server's own: with another one it begins anew. */
        if (connects && redis->kv.connects != connects) {
            connects = 0;
            strcpy(cursor, "0");
            continue;
        }
        connects = redis->kv.connects;
        const redisReply *reply = ng_redis_reply(redis, 1);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
            !ng_redis_is_text(reply->element[0]) || reply->element[1]->type != REDIS_REPLY_ARRAY ||
            (size_t)reply->element[0]->len >= sizeof(cursor))
            return ng_redis_fail_reply(redis, reply);
        const redisReply *keys = reply->element[1];
        for (size_t i = 0; i < keys->elements; i++) {
            const redisReply *key = keys->element[i];
            size_t bytes = ng_redis_is_text(key) ? (size_t)key->len : 0;
            if (bytes <= redis->prefix_bytes || bytes > redis->prefix_bytes + NG_KV_KEY_MAX ||
                strncmp(key->str, redis->prefix, redis->prefix_bytes) != 0)
                continue;
            error =
                ng_names_add(names, key->str + redis->prefix_bytes, bytes - redis->prefix_bytes);
            if (error)
                return ng_kv_fail(&redis->kv, error, "no memory");
        }
        strcpy(cursor, reply->element[0]->str);
        if (strcmp(cursor, "0") == 0) {
            ng_names_sort(names);
            return 0;
        }
    }
}

struct scan {
    const struct ng_names *names;
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

int ng_redis_scan(struct ng_kv *kv, const char *prefix, int64_t deadline_mono_ns,
                  ng_kv_each_fn *each, void *context)
{
    struct ng_names names = {0};
    struct scan scan = {.names = &names, .each = each, .context = context};
    int error = list_keys(ng_redis_of(kv), prefix, deadline_mono_ns, &names);

    if (!error && names.count)
        error = ng_redis_get_many(kv, (const char *const *)names.list, names.count,
                                  deadline_mono_ns, scanned, &scan);
    ng_names_free(&names);
    return error ? error : scan.result;
}

int ng_redis_clear(struct ng_kv *kv, int64_t deadline_mono_ns)
{
    struct ng_redis *redis = ng_redis_of(kv);
    struct ng_names names = {0};
    int error = list_keys(redis, "", deadline_mono_ns, &names);

    for (size_t first = 0; !error && first < names.count; first += NG_REDIS_KEYS_AT_ONCE) {
        size_t some = names.count - first < NG_REDIS_KEYS_AT_ONCE ? names.count - first
                                                                  : NG_REDIS_KEYS_AT_ONCE;
        struct ng_redis_batch *batch = ng_redis_fresh(redis);
        ng_redis_begin(batch, "DEL", 1 + some);
        for (size_t i = 0; i < some; i++)
            ng_redis_put_key(redis, batch, names.list[first + i]);
        error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE, deadline_mono_ns);
        if (!error && ng_redis_error_of(ng_redis_reply(redis, 0)))
            error = ng_redis_fail_reply(redis, ng_redis_reply(redis, 0));
    }
    ng_names_free(&names);
    return error;
}
