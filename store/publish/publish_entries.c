/*
 * Small data that programs exchange, on the job's store.
 *
 * Beside the life of a call. The store's thread only, for queries of the incident thread. A value
 * begins with the uid of the process that put it, so that a process that repeats a put after a lost
 * connection recognises its own. An entry that lives as long as this process has the time to live
 * of its sign of life, and is stored again as often.
 *
 * Runs of one name have one store. If their launchers tell them apart, so does the name of a key.
 * Else an entry belongs to the run of its process, by the communicators that it has made or, while
 * one of the two has made none, by the ranks of all; another run puts its own beside it. An entry
 * whose process has left counts only for processes that were there by then: it is of an earlier run
 * for the others. An entry that was put with other words of a launcher is ours if a communicator
 * tells so, never by ranks alone: words may differ between the hosts of one run, but complementing
 * ranks may be of two. A hint, h/<key>, leads to it. What has a lifetime of its own has a key that
 * no other run uses, as the id of a communicator is in it: it is always ours, whatever became of
 * the process that put it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/config/launch.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/incarnation.h"

#define ENTRY_KEY_BYTES (NG_BOARD_KEY_MAX + 40)
#define ENTRY_RUNS      8u /* so many runs may use one key */
#define KEPT            ENTRY_RUNS

/* What the ranks of all processes say of an entry with other words is looked at no more often: all
 * ranks that wait for it look, and each reads the progress of all. */
#define FOREIGN_PAUSE_NS NG_S

struct value {
    uint64_t uid;
    uint64_t label; /* of the process: store/wire/incarnation.h; 0: it has no communicator yet */
    uint64_t ended; /* it has left: the number of its end among those of the job; 0 it has not */
    char data[NG_BOARD_VALUE_MAX];
};
#define HEAD_BYTES offsetof(struct value, data)

/* Who has put an entry first, and where it is. */
struct hint {
    uint64_t uid;
    uint64_t launch_run;
    char words[NG_LAUNCH_WORDS_BYTES];
};
#define HINT_KEY_BYTES (NG_BOARD_KEY_MAX + 3)

/* `beside`: 0 for the first run that uses the key; KEPT: for what has a lifetime of its own. */
static void entry_key_of(uint64_t launch_run, unsigned beside, const char *key,
                         char ret_key[ENTRY_KEY_BYTES])
{
    char launcher[20] = "", number[12] = "";

    if (launch_run && beside != KEPT)
        snprintf(launcher, sizeof(launcher), "%016" PRIx64 ".", launch_run);
    if (beside)
        snprintf(number, sizeof(number), "%u/", beside);
    snprintf(ret_key, ENTRY_KEY_BYTES, "k/%s%s%s", launcher, number, key);
}

static uint64_t launch_run_of(const struct ng_publisher *p)
{
    return p->options.own_box->header->launch_run;
}

static void entry_key(const struct ng_publisher *p, unsigned beside, const char *key,
                      char ret_key[ENTRY_KEY_BYTES])
{
    entry_key_of(launch_run_of(p), beside, key, ret_key);
}

/* Read an entry. 0, -ENOENT, or another -errno, which has been reported. */
static int read_value(struct ng_publisher *p, const char *key, int64_t deadline_mono_ns,
                      struct value *ret_value, size_t *ret_bytes)
{
    struct ng_kv_bytes there;

    int error = ng_kv_get(p->kv, key, deadline_mono_ns, &there);
    if (error)
        return error == -ENOENT ? error : ng_publisher_failed(p, error);
    if (there.bytes < HEAD_BYTES || there.bytes > sizeof(*ret_value))
        return -EPROTO;
    memcpy(ret_value, there.data, there.bytes);
    *ret_bytes = there.bytes;
    return 0;
}

/* ---- Whose is it ---- */

/* Has this process a communicator of all ranks of its run? */
static bool has_all_ranks(const struct ng_box *box)
{
    uint32_t used = NG_LOAD(box->header->group_used);

    for (uint32_t i = 0; i < used && i < box->group_capacity; i++)
        if (box->header->world_size > 0 && atomic_load(&box->groups[i].state) != NG_GROUP_FREE &&
            NG_LOAD(box->groups[i].nranks) == box->header->world_size)
            return true;
    return false;
}

/* Once for each query. */
static int fetch_blobs(struct ng_publisher *p, struct ng_ask *ask)
{
    return ask->blobs ? 0
                      : ng_peer_progress_fetch(p->kv, ask->deadline_mono_ns, &ask->arena,
                                               &ask->blobs, &ask->blob_count);
}

/* Its label is not ours. Else the communicators of one run may have no rank in common yet; those of
 * two runs have all ranks twice. */
static int compare_runs(struct ng_publisher *p, uint64_t label, struct ng_ask *ask,
                        enum ng_peer_whose *ret_whose)
{
    uint64_t roots[2] = {p->labels.root};

    if (has_all_ranks(p->options.own_box)) {
        *ret_whose = NG_PEER_OF_ANOTHER;
        return 0;
    }
    int error = ng_incarnation_root(p->kv, label, ask->deadline_mono_ns, &roots[1]);
    if (!error && roots[1] != p->entries.foreign) {
        error = fetch_blobs(p, ask);
        if (!error && ng_peer_progress_may_be_one(ask->blobs, ask->blob_count, roots, 2,
                                                  &ask->arena) == -EPERM)
            p->entries.foreign = roots[1];
    }
    *ret_whose = roots[1] == p->entries.foreign ? NG_PEER_OF_ANOTHER : NG_PEER_OF_OURS;
    return ng_publisher_failed(p, error);
}

static bool is_of_earlier(const struct ng_publisher *p, const struct value *value)
{
    return value->ended && value->ended <= p->entries.ended_before;
}

/* One of the two has no communicator yet. */
static int compare_ranks(struct ng_publisher *p, uint64_t uid, struct ng_ask *ask,
                         enum ng_peer_whose *ret_whose)
{
    int error = fetch_blobs(p, ask)
                    ?: ng_peer_progress_whose(ask->blobs, ask->blob_count, ng_publisher_uid(p), uid,
                                              &ask->arena, ret_whose);

    return ng_publisher_failed(p, error);
}

static int find_whose(struct ng_publisher *p, const struct value *value, struct ng_ask *ask,
                      enum ng_peer_whose *ret_whose)
{
    *ret_whose = NG_PEER_OF_OURS;
    if (value->uid == ng_publisher_uid(p))
        return 0;
    if (is_of_earlier(p, value)) {
        *ret_whose = NG_PEER_OF_ANOTHER;
        return 0;
    }
    if (!p->labels.root || !value->label)
        return launch_run_of(p) ? 0 : compare_ranks(p, value->uid, ask, ret_whose);
    int ours = ng_publisher_is_ours(p, value->label);
    if (ours < 0)
        return ng_publisher_failed(p, ours);
    return ours ? 0 : compare_runs(p, value->label, ask, ret_whose);
}

/* ---- Find ---- */

struct found {
    struct value *values;   /* KEPT + 1 of them */
    size_t bytes[KEPT + 1]; /* 0 there is none */
    struct hint *hint;      /* its uid is 0: there is none */
};

static void take_value(void *context, size_t index, const struct ng_kv_bytes *value)
{
    struct found *found = context;

    if (index > KEPT && value && value->bytes == sizeof(*found->hint))
        memcpy(found->hint, value->data, sizeof(*found->hint));
    if (index > KEPT || !value || value->bytes < HEAD_BYTES ||
        value->bytes > sizeof(found->values[0]))
        return;
    memcpy(&found->values[index], value->data, value->bytes);
    found->bytes[index] = value->bytes;
}

/* The entry of our run; it belongs to the arena of `ask`. *ret_hint is the hint of its key; uid 0:
 * there is none. 0; -ENOENT; -ENOTUNIQ: there is one that may be ours, or another run's; or another
 * -errno, which has been reported. */
static int find_entry(struct ng_publisher *p, struct ng_ask *ask, const struct value **ret_value,
                      size_t *ret_bytes, unsigned *ret_beside, struct hint *ret_hint)
{
    struct found found = {.values = ng_arena_alloc(&ask->arena, (KEPT + 1) * sizeof(struct value)),
                          .hint = ret_hint};
    char keys[KEPT + 1][ENTRY_KEY_BYTES], hint_key[HINT_KEY_BYTES];
    const char *pointers[KEPT + 2];
    bool unclear = false;
    enum ng_peer_whose whose;

    if (!found.values)
        return -ENOMEM;
    ret_hint->uid = 0;
    snprintf(hint_key, sizeof(hint_key), "h/%s", ask->key);
    pointers[KEPT + 1] = hint_key;
    for (unsigned beside = 0; beside <= KEPT; beside++) {
        entry_key(p, beside, ask->key, keys[beside]);
        pointers[beside] = keys[beside];
    }
    int error =
        ng_kv_get_many(p->kv, pointers, KEPT + 2, ask->deadline_mono_ns, take_value, &found);
    if (error)
        return ng_publisher_failed(p, error);
    for (unsigned beside = 0; beside <= KEPT; beside++) {
        if (!found.bytes[beside])
            continue;
        whose = NG_PEER_OF_OURS;
        error = beside == KEPT ? 0 : find_whose(p, &found.values[beside], ask, &whose);
        if (error)
            return error;
        if (whose == NG_PEER_OF_OURS) {
            *ret_value = &found.values[beside];
            *ret_bytes = found.bytes[beside];
            *ret_beside = beside;
            return 0;
        }
        unclear |= whose == NG_PEER_UNCLEAR;
    }
    return unclear ? -ENOTUNIQ : -ENOENT;
}

/* ---- Put ---- */

/* Leave a hint if there is none. 0; -EEXIST; or -errno. */
static int put_hint(struct ng_publisher *p, const struct ng_ask *ask, struct hint *ret_hint,
                    char ret_key[HINT_KEY_BYTES])
{
    *ret_hint = (struct hint){.uid = ng_publisher_uid(p), .launch_run = launch_run_of(p)};
    snprintf(ret_hint->words, sizeof(ret_hint->words), "%s", ask->words ? ask->words : "");
    snprintf(ret_key, HINT_KEY_BYTES, "h/%s", ask->key);
    int error = ng_kv_put_if_absent(p->kv, ret_key, ret_hint, sizeof(*ret_hint),
                                    p->options.ttl_ns / NG_MS, ask->deadline_mono_ns);
    return error == -EEXIST ? error : ng_publisher_failed(p, error);
}

/* From now on ours to keep alive, with its hint. Its memory is freed with the process. */
static int keep(struct ng_publisher *p, const struct ng_ask *ask, const char *key,
                const struct value *value, size_t bytes)
{
    char *own_key = ng_arena_strdup(&p->entries.arena, key);
    char *hint_key = ng_arena_alloc(&p->entries.arena, HINT_KEY_BYTES);
    void *own_value = ng_arena_alloc(&p->entries.arena, bytes);
    struct hint *hint = ng_arena_alloc(&p->entries.arena, sizeof(*hint));

    if (!own_key || !hint_key || !own_value || !hint)
        return -ENOMEM;
    int error = put_hint(p, ask, hint, hint_key);
    if (error && error != -EEXIST)
        return error;
    p->entries.list[p->entries.count].hint = hint;
    p->entries.list[p->entries.count].hint_key = hint_key;
    p->entries.list[p->entries.count].hint_is_ours = !error;
    memcpy(own_value, value, bytes);
    p->entries.list[p->entries.count].key = own_key;
    p->entries.list[p->entries.count].value = own_value;
    p->entries.list[p->entries.count++].bytes = bytes;
    return 0;
}

static bool is_kept(const struct ng_publisher *p, const char *key)
{
    return NG_ANY(one, p->entries.list, p->entries.count, strcmp(one->key, key) == 0);
}

static bool is_same(const struct value *one, const struct value *other, size_t bytes,
                    size_t other_bytes)
{
    return one->uid == other->uid && bytes == other_bytes &&
           memcmp(one->data, other->data, bytes - HEAD_BYTES) == 0;
}

/* Put it under this key. 0; -EEXIST: there is another one, not of an earlier run; or -errno. */
static int put_at(struct ng_publisher *p, const char *key, const struct value *value, size_t bytes,
                  struct ng_ask *ask)
{
    int64_t ttl_ms = (ask->keep_ns ? ask->keep_ns : p->options.ttl_ns) / NG_MS;
    struct value there;
    struct ng_kv_bytes expected = {.data = &there};

    int error = ng_kv_put_if_absent(p->kv, key, value, bytes, ttl_ms, ask->deadline_mono_ns);
    if (error != -EEXIST)
        return ng_publisher_failed(p, error);
    error = read_value(p, key, ask->deadline_mono_ns, &there, &expected.bytes);
    if (error)
        return error == -ENOENT ? -EIO : error;
    if (is_same(value, &there, bytes, expected.bytes))
        return 0; /* ours */
    if (!is_of_earlier(p, &there))
        return -EEXIST;
    error = ng_kv_compare_and_set(p->kv, key, &expected, value, bytes, ttl_ms,
                                  ask->deadline_mono_ns, NULL);
    return error == -EEXIST || error == -ENOENT ? -EIO : ng_publisher_failed(p, error);
}

int ng_publisher_put(struct ng_publisher *p, struct ng_ask *ask)
{
    struct value value = {.uid = ng_publisher_uid(p)};
    size_t bytes = HEAD_BYTES + ask->data_bytes, there_bytes;
    const struct value *there;
    char key[ENTRY_KEY_BYTES];
    struct hint hint;
    unsigned at;

    if (ask->data_bytes > sizeof(value.data))
        return -EMSGSIZE;
    int error = ng_publisher_label_groups(p);
    if (error)
        return error;
    value.label = p->labels.root;
    memcpy(value.data, ask->data, ask->data_bytes);
    entry_key(p, KEPT, ask->key, key);
    if (ask->keep_ns)
        return put_at(p, key, &value, bytes, ask);
    error = -EEXIST;
    for (unsigned beside = 0; error == -EEXIST && beside < ENTRY_RUNS; beside++) {
        error = find_entry(p, ask, &there, &there_bytes, &at, &hint);
        if (error && error != -ENOENT)
            return error;
        if (!error && !is_same(&value, there, bytes, there_bytes))
            return -EEXIST;
        entry_key(p, error ? beside : at, ask->key, key);
        if (!error && is_kept(p, key))
            return 0;
        if (p->entries.count == NG_BOARD_KEEP_MAX)
            return -ENOSPC;
        error = error ? put_at(p, key, &value, bytes, ask) : 0;
    }
    return error ? error : keep(p, ask, key, &value, bytes);
}

/* ---- Fetch ---- */

/* May an entry that was put with other words be of our run? *ret_whose: ours by a communicator
 * alone, which may come to be in common later: only what ranks say is kept, for good if they say
 * that it is another's. */
static int find_foreign_whose(struct ng_publisher *p, const struct value *value, struct ng_ask *ask,
                              enum ng_peer_whose *ret_whose)
{
    int error = 0, ours = 0;
    int64_t now = ng_clock_mono_ns();
    bool labelled = p->labels.root && value->label;

    *ret_whose = NG_PEER_OF_OURS;
    if (labelled)
        ours = ng_publisher_is_ours(p, value->label);
    if (ours)
        return ours < 0 ? ng_publisher_failed(p, ours) : 0;
    *ret_whose = p->entries.foreign_is_another ? NG_PEER_OF_ANOTHER : NG_PEER_UNCLEAR;
    if (value->uid == p->entries.foreign_uid && now < p->entries.foreign_again_ns &&
        (!labelled || p->entries.foreign_again_ns != INT64_MAX))
        return 0;
    error = labelled ? compare_runs(p, value->label, ask, ret_whose)
                     : compare_ranks(p, value->uid, ask, ret_whose);
    if (!error) {
        p->entries.foreign_uid = value->uid;
        p->entries.foreign_is_another = *ret_whose == NG_PEER_OF_ANOTHER;
        p->entries.foreign_again_ns =
            !labelled && *ret_whose == NG_PEER_OF_ANOTHER ? INT64_MAX : now + FOREIGN_PAUSE_NS;
    }
    if (*ret_whose == NG_PEER_OF_OURS)
        *ret_whose = NG_PEER_UNCLEAR;
    return error;
}

/* The entry of a process with other words. 0; -ENOENT; -EXDEV: it may be of our run, and its words
 * are in *ret_value. */
static int find_foreign(struct ng_publisher *p, struct ng_ask *ask, const struct hint *hint,
                        struct value *ret_value, size_t *ret_bytes)
{
    char entry[ENTRY_KEY_BYTES];
    enum ng_peer_whose whose;

    if (!hint->uid || hint->launch_run == launch_run_of(p))
        return -ENOENT;
    entry_key_of(hint->launch_run, 0, ask->key, entry);
    int error = read_value(p, entry, ask->deadline_mono_ns, ret_value, ret_bytes);
    if (error == -EPROTO || (!error && is_of_earlier(p, ret_value)))
        return -ENOENT;
    if (!error)
        error = find_foreign_whose(p, ret_value, ask, &whose);
    if (error || whose == NG_PEER_OF_OURS)
        return error;
    if (whose == NG_PEER_UNCLEAR) {
        size_t bytes = strnlen(hint->words, sizeof(hint->words));
        memcpy(ret_value->data, hint->words, bytes);
        *ret_bytes = HEAD_BYTES + bytes;
        return -EXDEV;
    }
    return -ENOENT;
}

int ng_publisher_fetch(struct ng_publisher *p, struct ng_ask *ask)
{
    const struct value *value;
    struct hint hint;
    unsigned beside;
    size_t bytes;

    int error = ng_publisher_label_groups(p);
    if (!error)
        error = find_entry(p, ask, &value, &bytes, &beside, &hint);
    if (error == -ENOENT) {
        struct value *other = ng_arena_alloc(&ask->arena, sizeof(*other));
        error = other ? find_foreign(p, ask, &hint, other, &bytes) : -ENOMEM;
        value = other;
    }
    if (error && error != -EXDEV)
        return error;
    ask->data = value->data;
    ask->data_bytes = bytes - HEAD_BYTES;
    return error;
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
        entry_key(p, KEPT, key, keys[i]);
        pointers[i] = keys[i];
    }
    ask->there = 0;
    return ng_publisher_failed(
        p, ng_kv_get_many(p->kv, pointers, count, ask->deadline_mono_ns, note_there, ask));
}

/* ---- Keep ---- */

static int store_entries(struct ng_publisher *p, uint64_t ended)
{
    int error = 0;

    for (uint32_t i = 0; i < p->entries.count && !error; i++) {
        struct value *value = p->entries.list[i].value;
        value->label = p->labels.root;
        value->ended = ended;
        error = ng_kv_queue_set(p->kv, p->entries.list[i].key, value, p->entries.list[i].bytes,
                                p->options.ttl_ns / NG_MS);
        if (!error && p->entries.list[i].hint_is_ours)
            error = ng_kv_queue_set(p->kv, p->entries.list[i].hint_key, p->entries.list[i].hint,
                                    sizeof(struct hint), p->options.ttl_ns / NG_MS);
    }
    return error ? error : ng_publisher_flush(p);
}

/* The hint of a process that has left is gone after a while: ours takes its place. */
static int replace_hints(struct ng_publisher *p)
{
    for (uint32_t i = 0; i < p->entries.count; i++) {
        if (p->entries.list[i].hint_is_ours)
            continue;
        int error = ng_kv_put_if_absent(p->kv, p->entries.list[i].hint_key, p->entries.list[i].hint,
                                        sizeof(struct hint), p->options.ttl_ns / NG_MS,
                                        ng_publisher_in(CALL_NS));
        if (error && error != -EEXIST)
            return ng_publisher_failed(p, error);
        p->entries.list[i].hint_is_ours = !error;
    }
    return 0;
}

int ng_publisher_keep_entries(struct ng_publisher *p)
{
    int64_t now = ng_clock_mono_ns();

    if (!p->entries.count || now - p->entries.kept_ns < p->options.ttl_ns / 3)
        return 0;
    p->entries.kept_ns = now;
    int error = store_entries(p, 0);
    return error ? error : replace_hints(p);
}

int ng_publisher_end_entries(struct ng_publisher *p, uint64_t ended)
{
    return p->entries.count ? store_entries(p, ended) : 0;
}
