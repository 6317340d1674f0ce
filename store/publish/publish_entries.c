/*
 * Small data that programs exchange, on the job's store.
 *
 * Beside the life of a call. The store's thread only, for queries of the incident thread. A value
 * begins with the uid of the process that put it, so that a process that repeats a put after a lost
 * connection recognises its own. An entry that lives as long as this process has the time to live
 * of its sign of life, and is stored again as often.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "store/kv/kv.h"
#include "store/publish/publisher.h"

#define ENTRY_KEY_BYTES (NG_BOARD_KEY_MAX + 3)

struct value {
    uint64_t uid;
    char data[NG_BOARD_VALUE_MAX];
};

static void entry_key(const char *key, char ret_key[ENTRY_KEY_BYTES])
{
    snprintf(ret_key, ENTRY_KEY_BYTES, "k/%s", key);
}

/* From now on ours to keep alive. Its memory is freed with the process. */
static int keep(struct ng_publisher *p, const char *key, const struct value *value, size_t bytes)
{
    char *own_key = ng_arena_strdup(&p->entries.arena, key);
    void *own_value = ng_arena_alloc(&p->entries.arena, bytes);

    if (!own_key || !own_value)
        return -ENOMEM;
    memcpy(own_value, value, bytes);
    p->entries.list[p->entries.count].key = own_key;
    p->entries.list[p->entries.count].value = own_value;
    p->entries.list[p->entries.count++].bytes = bytes;
    return 0;
}

static bool is_kept(const struct ng_publisher *p, const char *key)
{
    for (uint32_t i = 0; i < p->entries.count; i++)
        if (strcmp(p->entries.list[i].key, key) == 0)
            return true;
    return false;
}

int ng_publisher_put(struct ng_publisher *p, struct ng_ask *ask)
{
    struct value value = {.uid = ng_box_uid(p->options.own_box->header)};
    size_t bytes = offsetof(struct value, data) + ask->data_bytes;
    char key[ENTRY_KEY_BYTES];
    struct ng_kv_bytes there;

    if (ask->data_bytes > sizeof(value.data))
        return -EMSGSIZE;
    entry_key(ask->key, key);
    /* Its own entry counts once already. */
    bool counted = ask->keep_ns || is_kept(p, key);
    if (!counted && p->entries.count == NG_BOARD_KEEP_MAX)
        return -ENOSPC;
    memcpy(value.data, ask->data, ask->data_bytes);
    int64_t ttl_ns = ask->keep_ns ? ask->keep_ns : p->options.ttl_ns;
    int error =
        ng_kv_put_if_absent(p->kv, key, &value, bytes, ttl_ns / NG_MS, ask->deadline_mono_ns);
    if (error == -EEXIST) {
        error = ng_kv_get(p->kv, key, ask->deadline_mono_ns, &there);
        if (!error && there.bytes == bytes && memcmp(there.data, &value, bytes) == 0)
            return 0; /* ours */
        return error == -ENOENT ? -EIO : error ? ng_publisher_failed(p, error) : -EEXIST;
    }
    if (!error && !counted)
        return keep(p, key, &value, bytes);
    return ng_publisher_failed(p, error);
}

int ng_publisher_fetch(struct ng_publisher *p, struct ng_ask *ask)
{
    char key[ENTRY_KEY_BYTES];
    struct ng_kv_bytes there;

    entry_key(ask->key, key);
    int error = ng_kv_get(p->kv, key, ask->deadline_mono_ns, &there);
    if (error)
        return ng_publisher_failed(p, error);
    size_t head = offsetof(struct value, data);
    if (there.bytes < head || there.bytes > sizeof(struct value))
        return -EPROTO;
    void *copy = ng_arena_alloc(&ask->arena, there.bytes - head + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, (const char *)there.data + head, there.bytes - head);
    ask->data = copy;
    ask->data_bytes = there.bytes - head;
    return 0;
}

static void note_there(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct ng_ask *ask = context;

    if (value)
        ask->there |= UINT64_C(1) << index;
}

int ng_publisher_have(struct ng_publisher *p, struct ng_ask *ask)
{
    char keys[NG_BOARD_HAVE_MAX][ENTRY_KEY_BYTES];
    const char *pointers[NG_BOARD_HAVE_MAX];
    uint32_t count = ask->count < NG_BOARD_HAVE_MAX ? ask->count : NG_BOARD_HAVE_MAX;

    for (uint32_t i = 0; i < count; i++) {
        char key[NG_BOARD_KEY_MAX + 1];
        snprintf(key, sizeof(key), "%s%u", ask->key, ask->first + i);
        entry_key(key, keys[i]);
        pointers[i] = keys[i];
    }
    ask->there = 0;
    return ng_publisher_failed(
        p, ng_kv_get_many(p->kv, pointers, count, ask->deadline_mono_ns, note_there, ask));
}

int ng_publisher_keep_entries(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();
    int error = 0;

    if (!p->entries.count || now - p->entries.kept_ns < p->options.ttl_ns / 3)
        return 0;
    p->entries.kept_ns = now;
    for (uint32_t i = 0; i < p->entries.count && !error; i++)
        error = ng_kv_queue_set(p->kv, p->entries.list[i].key, p->entries.list[i].value,
                                p->entries.list[i].bytes, p->options.ttl_ns / NG_MS);
    return error ? error : ng_publisher_flush(p);
}
