/*
 * Groups on the store: which processes are of one incarnation, and the name of a grown group.
 *
 * The store's thread; ng_publisher_find_grown: the incident thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util/macros.h"
#include "core/view/grow_id.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/incarnation.h"

void ng_publisher_set_root(struct ng_publisher *p, uint64_t root)
{
    if (p->labels.root == root)
        return;
    p->labels.root = root;
    p->progress.stored_ns = 0; /* our blob contains it */
    atomic_store(&p->state.label, root);
}

/* Does it belong to our incarnation: 1, or 0, or -errno. */
int ng_publisher_is_ours(struct ng_publisher *p, uint64_t label)
{
    uint64_t root, own;

    if (!label || label == p->labels.root || label == p->labels.own)
        return 1;
    if (!p->labels.root)
        return 0;
    int error = ng_incarnation_root(p->kv, label, ng_publisher_in(CALL_NS), &root);
    if (error || root == p->labels.root)
        return error ? error : 1;
    /* Our label may have been united meanwhile. */
    error = ng_incarnation_root(p->kv, p->labels.root, ng_publisher_in(CALL_NS), &own);
    if (error)
        return error;
    ng_publisher_set_root(p, own);
    return root == own;
}

static bool is_labelled(const struct ng_publisher *p, uint64_t id)
{
    return NG_ANY(one, p->labels.groups, p->labels.count, *one == id);
}

/* Members of this group are of our incarnation. */
static int label_group(struct ng_publisher *p, uint64_t id)
{
    if (!p->labels.own) {
        p->labels.own = id;
        ng_publisher_set_root(p, id);
    }
    uint64_t before = p->labels.root, root = before;
    int error =
        ng_incarnation_join(p->kv, id, p->labels.root, KEEP_MS, ng_publisher_in(CALL_NS), &root);
    if (error)
        return ng_publisher_failed(p, error);
    ng_publisher_set_root(p, root);
    if (p->labels.count < LABELLED)
        p->labels.groups[p->labels.count++] = id;
    else
        p->labels.groups[id % LABELLED] = id;
    if (p->labels.root != before && p->labels.count > 1)
        ng_kv_queue_publish(p->kv, "m", "unite", 5);
    return 0;
}

bool ng_publisher_remember_living(struct ng_publisher *p, const struct ng_peer_progress *blobs,
                                  uint32_t count)
{
    if (p->labels.living_room < count) {
        uint64_t *larger = realloc(p->labels.living, count * sizeof(*larger));
        if (!larger)
            return false;
        p->labels.living = larger;
        p->labels.living_room = count;
    }
    p->labels.living_count = 0;
    NG_EACH (blob, blobs, count)
        if (blob->root == p->labels.root && blob->slot != p->slot.number &&
            ng_peer_progress_is_living(blob))
            p->labels.living[p->labels.living_count++] = blob->slot;
    return true;
}

/* Each once. */
static void gather(uint64_t *roots, uint32_t *count, uint64_t root)
{
    if (!NG_ANY(one, roots, *count, *one == root))
        roots[(*count)++] = root;
}

/*
 * Ranks with another unique id than the rest are detected by a process that examines the whole job,
 * and may have a label that no group connects with ours. Two overlapping runs of the job may look
 * alike for a while, if ranks of one are present where those of the other are still missing; but
 * then the missing ranks have been there, too, or will arrive.
 */
int ng_publisher_unite(struct ng_publisher *p, struct ng_ask *ask)
{
    const uint64_t *ids = ask->data;
    uint32_t count = (uint32_t)(ask->data_bytes / sizeof(*ids)), root_count = 0;
    uint64_t *roots = ng_arena_alloc(&ask->arena, (count + 1) * sizeof(*roots));
    uint64_t label, root;

    if (!roots)
        return -ENOMEM;
    gather(roots, &root_count, p->labels.root);
    for (uint32_t i = 0; i < count; i++) {
        int error = ng_incarnation_of_group(p->kv, ids[i], ng_publisher_in(CALL_NS), &label);
        if (!error)
            error = ng_incarnation_root(p->kv, label, ng_publisher_in(CALL_NS), &root);
        if (error)
            return error == -ENOENT ? error : ng_publisher_failed(p, error);
        gather(roots, &root_count, root);
    }
    if (root_count < 2)
        return 0;
    int error = ng_peer_progress_fetch(p->kv, ng_publisher_in(CALL_NS), &ask->arena, &ask->blobs,
                                       &ask->blob_count);
    if (error)
        return ng_publisher_failed(p, error);
    error =
        ng_peer_progress_may_be_one(ask->blobs, ask->blob_count, roots, root_count, &ask->arena);
    for (uint32_t i = 0; i < count && !error; i++)
        error = label_group(p, ids[i]);
    if (error)
        return error;
    NG_EACH (blob, ask->blobs, ask->blob_count)
        if (NG_ANY(one, roots, root_count, blob->root == *one))
            blob->root = p->labels.root;
    return ng_publisher_remember_living(p, ask->blobs, ask->blob_count) ? 0 : -ENOMEM;
}

static void grown_key(char ret_key[KEY_BYTES], uint64_t joined_id)
{
    snprintf(ret_key, KEY_BYTES, "a/%016" PRIx64, joined_id);
}

/*
 * Groups created from a unique id connect processes that may not have met before; groups derived
 * from them have the same members, except for a group that others joined: those ranks have its
 * other id. A group that could not be created counts, too: others may still wait for it, and their
 * result concerns us.
 */
int ng_publisher_label_groups(struct ng_publisher *p)
{
    const struct ng_box *box = p->options.own_box;
    uint32_t groups = NG_LOAD(box->header->group_used);
    char key[KEY_BYTES], text[24];
    int error = 0;

    for (uint32_t i = 0; i < groups && i < box->group_capacity && !error; i++) {
        const struct ng_box_group *group = &box->groups[i];
        uint32_t state = atomic_load(&group->state);
        uint64_t id = NG_LOAD(group->id), joined_id = NG_LOAD(group->joined_id);
        if (state == NG_GROUP_FREE || !id || (NG_LOAD(group->parent_id) && !joined_id) ||
            NG_LOAD(group->nranks) < 2 || is_labelled(p, joined_id ? joined_id : id))
            continue;
        if (NG_LOAD(group->parent_id)) {
            id = ng_grow_id_find(box, joined_id);
            if (!id)
                continue; /* not for good yet */
            grown_key(key, joined_id);
            int length = snprintf(text, sizeof(text), "%016" PRIx64, id);
            error = ng_publisher_failed(
                p, ng_kv_set(p->kv, key, text, (size_t)length, KEEP_MS, ng_publisher_in(CALL_NS)));
        }
        if (!error)
            error = label_group(p, joined_id ? joined_id : id);
    }
    return error;
}

/* The ids that others use for groups that this process joined and no process of this host
 * created. */
int ng_publisher_fetch_grown(struct ng_publisher *p)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES], text[24];

    for (uint32_t i = 0; i < GROWN; i++) {
        pthread_mutex_lock(&p->lock);
        uint64_t joined_id =
            i < p->grown.count && !p->grown.list[i].id ? p->grown.list[i].joined_id : 0;
        pthread_mutex_unlock(&p->lock);
        if (!joined_id)
            continue;
        grown_key(key, joined_id);
        int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
        if (error == -ENOENT)
            continue;
        if (error)
            return ng_publisher_failed(p, error);
        ng_kv_text(&value, text, sizeof(text));
        pthread_mutex_lock(&p->lock);
        p->grown.list[i].id = strtoull(text, NULL, 16);
        pthread_mutex_unlock(&p->lock);
    }
    return 0;
}

int ng_publisher_find_grown(struct ng_publisher *p, uint64_t joined_id, uint64_t *ret_id)
{
    uint32_t at = 0;
    NG_HOLD(&p->lock);

    while (at < p->grown.count && p->grown.list[at].joined_id != joined_id)
        at++;
    if (at < p->grown.count) {
        if (!p->grown.list[at].id)
            return -ENOENT;
        *ret_id = p->grown.list[at].id;
        return 0;
    }
    /* An id that was answered is not queried any more; else the oldest. */
    for (at = 0; at < p->grown.count && p->grown.count == GROWN && !p->grown.list[at].id;)
        at++;
    at = p->grown.count < GROWN ? p->grown.count++ : at % GROWN;
    p->grown.list[at].joined_id = joined_id;
    p->grown.list[at].id = 0;
    return -ENOENT;
}
