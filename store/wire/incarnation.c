/*
 * Labels of incarnations on the store.
 *
 * Entered by the thread that owns the store, or a tool.
 */
#include "store/wire/incarnation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/kv/kv.h"

#define CHAIN_MAX 64 /* labels only ever lead to smaller ones */

void ng_incarnation_key(uint64_t label, char ret_key[NG_INCARNATION_KEY_BYTES])
{
    snprintf(ret_key, NG_INCARNATION_KEY_BYTES, "u/%016" PRIx64, label);
}

static uint64_t parse(const struct ng_kv_bytes *value)
{
    char text[17] = "";

    if (value->bytes != 16)
        return 0;
    memcpy(text, value->data, 16);
    return strtoull(text, NULL, 16);
}

int ng_incarnation_root(struct ng_kv *kv, uint64_t label, int64_t deadline_mono_ns,
                        uint64_t *ret_root)
{
    char key[NG_INCARNATION_KEY_BYTES];
    struct ng_kv_bytes value;

    for (int steps = 0; steps < CHAIN_MAX; steps++) {
        ng_incarnation_key(label, key);
        int error = ng_kv_get(kv, key, deadline_mono_ns, &value);
        if (error && error != -ENOENT)
            return error;
        uint64_t up = error ? 0 : parse(&value);
        if (!up || up >= label)
            break;
        label = up;
    }
    *ret_root = label;
    return 0;
}

/* Link the larger of two roots to the smaller; if another process has linked it elsewhere
 * meanwhile, unite with that. */
static int unite(struct ng_kv *kv, uint64_t a, uint64_t b, int64_t ttl_ms, int64_t deadline_mono_ns,
                 uint64_t *ret_root)
{
    char key[NG_INCARNATION_KEY_BYTES], text[17];

    for (int tries = 0; tries < CHAIN_MAX; tries++) {
        int error = ng_incarnation_root(kv, a, deadline_mono_ns, &a)
                        ?: ng_incarnation_root(kv, b, deadline_mono_ns, &b);
        if (error)
            return error;
        *ret_root = a < b ? a : b;
        if (a == b)
            return 0;
        ng_incarnation_key(a < b ? b : a, key);
        snprintf(text, sizeof(text), "%016" PRIx64, *ret_root);
        error = ng_kv_put_if_absent(kv, key, text, 16, ttl_ms, deadline_mono_ns);
        if (error != -EEXIST)
            return error;
    }
    return -EBUSY;
}

static void group_key(uint64_t group_id, char ret_key[NG_INCARNATION_KEY_BYTES])
{
    snprintf(ret_key, NG_INCARNATION_KEY_BYTES, "g/%016" PRIx64, group_id);
}

int ng_incarnation_of_group(struct ng_kv *kv, uint64_t group_id, int64_t deadline_mono_ns,
                            uint64_t *ret_label)
{
    char key[NG_INCARNATION_KEY_BYTES];
    struct ng_kv_bytes value;

    group_key(group_id, key);
    int error = ng_kv_get(kv, key, deadline_mono_ns, &value);
    if (error)
        return error;
    uint64_t label = parse(&value);
    if (!label)
        return -ENOENT;
    *ret_label = label;
    return 0;
}

int ng_incarnation_join(struct ng_kv *kv, uint64_t group_id, uint64_t label, int64_t ttl_ms,
                        int64_t deadline_mono_ns, uint64_t *ret_root)
{
    char key[NG_INCARNATION_KEY_BYTES], text[17];
    uint64_t theirs;

    group_key(group_id, key);
    snprintf(text, sizeof(text), "%016" PRIx64, label);
    int error = ng_kv_put_if_absent(kv, key, text, 16, ttl_ms, deadline_mono_ns);
    if (!error)
        return ng_incarnation_root(kv, label, deadline_mono_ns, ret_root);
    if (error != -EEXIST)
        return error;
    error = ng_incarnation_of_group(kv, group_id, deadline_mono_ns, &theirs);
    if (error == -ENOENT) /* it has just expired */
        return ng_incarnation_root(kv, label, deadline_mono_ns, ret_root);
    return error ?: unite(kv, label, theirs, ttl_ms, deadline_mono_ns, ret_root);
}
