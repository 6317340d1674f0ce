/*
 * Which jobs a Redis server has, by the names of its keys.
 *
 * Entered by tools alone; nothing of the guard asks for it. Must not read what it does not need:
 * names only, in pieces that hold the server up for less than a millisecond.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/kv/kv_open.h"
#include "store/kv/redis.h"

#define PREFIX   "{ncclguard:"
#define AT_ONCE  1000
#define JOB_MAX  128
#define KEYS_MAX 10000000u /* a server that names keys without an end is none */

/* The JOB of {ncclguard:JOB:RUN}:KEY. Names of jobs are encoded (ng_kv_encode); any others, which
 * may hold what a terminal obeys, are not ours. */
static bool job_of(const redisReply *key, char ret_job[JOB_MAX])
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%";
    size_t prefix = strlen(PREFIX);

    if (key->type != REDIS_REPLY_STRING || key->len <= prefix ||
        strncmp(key->str, PREFIX, prefix) != 0)
        return false;
    size_t length = strspn(key->str + prefix, letters);
    if (!length || length >= JOB_MAX || key->str[prefix + length] != ':')
        return false;
    memcpy(ret_job, key->str + prefix, length);
    ret_job[length] = '\0';
    return true;
}

static void take_names(const redisReply *keys, struct ng_kv_jobs *jobs)
{
    char job[JOB_MAX];

    for (size_t i = 0; i < keys->elements; i++) {
        size_t at = 0;
        if (!job_of(keys->element[i], job))
            continue;
        while (at < jobs->count && strcmp(jobs->names[at], job) != 0)
            at++;
        if (at == jobs->count && jobs->count < NG_KV_JOBS_MAX)
            strcpy(jobs->names[jobs->count++], job);
    }
}

int ng_kv_redis_jobs(struct ng_kv *kv, int64_t deadline_mono_ns, struct ng_kv_jobs *ret_jobs)
{
    struct ng_redis *redis = ng_redis_of(kv);
    char cursor[32] = "0";

    ret_jobs->count = 0;
    for (unsigned keys = 0; keys < KEYS_MAX; keys += AT_ONCE) {
        struct ng_redis_batch *batch = ng_redis_fresh(redis);
        ng_redis_begin(batch, "SCAN", 6);
        ng_redis_put_word(batch, cursor);
        ng_redis_put_word(batch, "MATCH");
        ng_redis_put_word(batch, PREFIX "*");
        ng_redis_put_word(batch, "COUNT");
        ng_redis_put_number(batch, AT_ONCE);
        int error = ng_redis_run(redis, batch, NG_REDIS_REPEATABLE, deadline_mono_ns);
        if (error)
            return error;
        const redisReply *reply = ng_redis_reply(redis, 0);
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
            reply->element[0]->type != REDIS_REPLY_STRING ||
            reply->element[1]->type != REDIS_REPLY_ARRAY)
            return ng_redis_fail_reply(redis, reply);
        take_names(reply->element[1], ret_jobs);
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        if (strcmp(cursor, "0") == 0)
            return 0;
    }
    return ng_kv_fail(kv, -EPROTO, "it names keys without an end");
}
