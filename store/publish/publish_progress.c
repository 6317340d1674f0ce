/*
 * What this process publishes of itself on the store.
 *
 * The store's thread only.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/util/clock.h"
#include "store/kv/kv.h"
#include "store/publish/peer_progress.h"
#include "store/publish/publisher.h"
#include "store/wire/progress.h"

int ng_publisher_read_slot(struct ng_publisher *p, uint64_t slot, uint64_t uid,
                           struct ng_progress_head *ret_head)
{
    struct ng_kv_bytes value;
    char key[KEY_BYTES];

    ng_publisher_number_key(key, 'p', slot);
    int error = ng_kv_get(p->kv, key, ng_publisher_in(CALL_NS), &value);
    if (error)
        return error == -ENOENT ? 0 : error;
    return ng_progress_peek(value.data, value.bytes, ret_head) == 0 && ret_head->process.uid == uid;
}

uint64_t ng_publisher_hash_box(const struct ng_box *box)
{
    uint32_t groups = NG_LOAD(box->header->group_used), threads = NG_LOAD(box->header->thread_used);
    uint64_t sum = NG_LOAD(box->header->life) + NG_LOAD(box->header->records_lost);

#define MIX(value) (sum = (sum ^ (uint64_t)(value)) * UINT64_C(0x9e3779b97f4a7c15) + 1)
    MIX(NG_LOAD(box->header->watchdog_stuck_mono_ns));
    MIX(NG_LOAD(box->header->error_text_bytes));
    MIX(NG_LOAD(box->header->nan.found_mono_ns));
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        MIX(NG_LOAD(box->header->set[i]));
    MIX(NG_LOAD(box->header->devices_looked_mono_ns));
    for (uint32_t i = 0; i < groups && i < box->group_capacity; i++) {
        const struct ng_box_group *group = &box->groups[i];
        MIX(atomic_load(&group->state));
        MIX(NG_LOAD(group->id));
        MIX(NG_LOAD(group->derived));
        MIX(NG_LOAD(group->cuda_error));
        MIX(NG_LOAD(group->entered));
        MIX(NG_LOAD(group->scheduled));
        MIX(NG_LOAD(group->started));
        MIX(NG_LOAD(group->completed));
        MIX(NG_LOAD(group->p2p_entered));
        MIX(NG_LOAD(group->p2p_completed));
        MIX(NG_LOAD(group->pending_record));
        MIX(NG_LOAD(group->async_error));
        MIX(NG_LOAD(group->rests));
        for (unsigned j = 0; j < sizeof(group->name) / sizeof(group->name[0]); j++)
            MIX(NG_LOAD(group->name[j]));
    }
    for (uint32_t i = 0; i < threads && i < box->thread_capacity; i++) {
        MIX(NG_LOAD(box->threads[i].op));
        MIX(NG_LOAD(box->threads[i].since_mono_ns));
    }
#undef MIX
    return sum;
}

/* The more processes there are, the fewer records from each. */
static uint32_t records_for(const struct ng_publisher *p, bool suspicion)
{
    uint32_t fair = p->slot.count ? (uint32_t)(32768 / p->slot.count) : NG_PROGRESS_RECORDS_SUSPECT;

    if (!suspicion || fair < NG_PROGRESS_RECORDS_PEACE)
        return NG_PROGRESS_RECORDS_PEACE;
    return fair < NG_PROGRESS_RECORDS_SUSPECT ? fair : NG_PROGRESS_RECORDS_SUSPECT;
}

/* Our own blob, in the arena of `view`. */
int ng_publisher_encode(struct ng_publisher *p, bool suspicion, struct ng_view *view,
                        const void **ret_data, size_t *ret_bytes)
{
    struct ng_progress_limits limits = {.records = records_for(p, suspicion),
                                        .label = p->labels.root,
                                        .written_unix_ns = ng_clock_unix_ns(),
                                        .launch_run = p->options.own_box->header->launch_run};

    ng_view_init(view);
    int error = ng_view_add_box(view, p->options.own_box, NG_LIFE_RUNNING, ng_clock_mono_ns(), "");
    return error ? error : ng_progress_encode(view, 0, &limits, &view->arena, ret_data, ret_bytes);
}

int ng_publisher_queue_progress(struct ng_publisher *p, bool suspicion)
{
    struct ng_view view;
    char key[KEY_BYTES];
    const void *data;
    size_t bytes;

    ng_publisher_number_key(key, 'p', p->slot.number);
    int error = ng_publisher_encode(p, suspicion, &view, &data, &bytes)
                    ?: ng_kv_queue_set(p->kv, key, data, bytes, KEEP_MS);
    ng_view_fini(&view);
    return error;
}

int ng_publisher_queue_sign(struct ng_publisher *p)
{
    char key[KEY_BYTES], text[NG_SIGN_BYTES];

    ng_publisher_number_key(key, 'l', p->slot.number);
    int length = snprintf(text, sizeof(text), "%" PRId64 " %" PRIx64 " %" PRIx64,
                          (ng_clock_mono_ns() - p->progress.published_ns) / NG_MS,
                          p->progress.question, ng_publisher_uid(p));
    return ng_kv_queue_set(p->kv, key, text, (size_t)length, p->options.ttl_ns / NG_MS);
}

int ng_publisher_publish(struct ng_publisher *p, bool suspicion)
{
    uint64_t digest = ng_publisher_hash_box(p->options.own_box);
    int64_t now = ng_clock_mono_ns();

    int error = ng_publisher_queue_progress(p, suspicion);
    if (error)
        return error;
    p->progress.published_ns = now;
    error = ng_publisher_queue_sign(p);
    if (!error)
        error = ng_publisher_flush(p);
    if (error)
        return error;
    p->progress.digest = digest;
    p->progress.told_fully = suspicion;
    p->progress.stored_ns = p->progress.signed_ns = now;
    ng_publisher_signed(p);
    return 0;
}
