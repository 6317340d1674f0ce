/*
 * The board seen from outside.
 *
 * Entered by tools. Must never change anything but by an order, nor show a password.
 */
#include "store/board/board_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "store/board/board_multihost.h"
#include "store/board/local.h"
#include "store/kv/kv.h"
#include "store/kv/url.h"
#include "store/publish/peer_progress.h"
#include "store/wire/command_record.h"
#include "store/wire/incident_codec.h"
#include "store/wire/progress.h"

#define TTL_NS  (5 * NG_S)
#define KEEP_MS (3600 * 1000)

static int explain(int error, char *why, size_t why_bytes, const char *text)
{
    snprintf(why, why_bytes, "%s", text);
    return error;
}

/* 0: `*ret_kv` is open; 1: a local store. */
static int open_store(const struct ng_observed_job *job, char *why, size_t why_bytes,
                      struct ng_kv **ret_kv)
{
    struct ng_kv_options options = {.job = job->job, .run = NG_BOARD_RUN};
    struct ng_url url;

    int error = ng_url_parse(job->url, &url, why, why_bytes);
    if (error)
        return error;
    if (url.kind == NG_URL_NONE)
        return explain(-ENOENT, why, why_bytes,
                       "NCCLGUARD_STORE=none: there is no board to look at; name the job's store");
    if (url.kind == NG_URL_LOCAL)
        return job->folder ? 1
                           : explain(-ENOENT, why, why_bytes,
                                     "no folder of black boxes is known for this job");
    options.tls = job->tls;
    if (job->key_file && *job->key_file)
        options.key_file = job->key_file;
    return ng_kv_open(job->url, &options, why, why_bytes, ret_kv);
}

static int close_store(struct ng_kv *kv, int error, char *why, size_t why_bytes)
{
    if (error < 0)
        snprintf(why, why_bytes, "the store %s cannot be used: %s", kv->name,
                 *ng_kv_error(kv) ? ng_kv_error(kv) : strerror(-error));
    ng_kv_destroy(kv);
    return error;
}

/* The incarnation to show: that of the process that joined last of those who live, else of all. */
static uint64_t newest_root(const struct ng_peer_progress *blobs, uint32_t count)
{
    struct ng_progress_head head;
    uint64_t any = 0, living = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) != 0 || !blobs[i].root)
            continue;
        any = blobs[i].root;
        if (blobs[i].lives && head.life == NG_LIFE_RUNNING)
            living = blobs[i].root;
    }
    return living ? living : any;
}

int ng_board_client_view(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_view *view, char *why, size_t why_bytes)
{
    struct ng_arena arena = {0};
    struct ng_peer_progress *blobs;
    struct ng_kv *kv;
    uint32_t count;

    int error = open_store(job, why, why_bytes, &kv);
    if (error == 1) {
        int boxes = ng_local_collect(job->folder, job->run, view);
        if (boxes < 0)
            snprintf(why, why_bytes, "%s: %s", job->folder, strerror(-boxes));
        return boxes;
    }
    if (error)
        return error;
    error = ng_peer_progress_fetch(kv, deadline_mono_ns, &arena, &blobs, &count);
    if (!error)
        error = ng_peer_progress_add(blobs, count, newest_root(blobs, count), TTL_NS, view);
    if (!error) {
        snprintf(view->job, sizeof(view->job), "%s", job->job);
        ng_view_seal(view);
    }
    ng_arena_reset(&arena);
    error = close_store(kv, error, why, why_bytes);
    return error ? error : (int)view->process_count;
}

static int leave_record(struct ng_kv *kv, struct ng_incident *record, int64_t deadline_mono_ns)
{
    unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
    char key[48], text[40];
    struct ng_kv_bytes value;

    /* Without a gap: everybody looks for the number after the newest. */
    record->epoch = 0;
    for (int tries = 0; tries < 100; tries++) {
        text[0] = '\0';
        int error = ng_kv_get(kv, "i/last", deadline_mono_ns, &value);
        if (error && error != -ENOENT)
            return error;
        if (!error && value.bytes < sizeof(text)) {
            memcpy(text, value.data, value.bytes);
            text[value.bytes] = '\0';
        }
        uint64_t last = strtoull(text, NULL, 10);
        if (last >= NG_EPOCH_MAX)
            return ng_kv_fail(kv, -EPROTO, "it has %.32s for a count of incidents", text);
        record->epoch = (last > record->epoch ? last : record->epoch) + 1;
        snprintf(key, sizeof(key), "i/%" PRIu64, record->epoch);
        error = ng_kv_put_if_absent(kv, key, bytes, ng_incident_encode(record, bytes), KEEP_MS,
                                    deadline_mono_ns);
        if (error == -EEXIST)
            continue;
        if (error)
            return error;
        int length = snprintf(text, sizeof(text), "%" PRIu64, record->epoch);
        error = ng_kv_queue_set(kv, "i/last", text, (size_t)length, KEEP_MS);
        length = snprintf(text, sizeof(text), "incident %" PRIu64, record->epoch);
        if (!error)
            error = ng_kv_queue_publish(kv, "m", text, (size_t)length);
        return error ? error : ng_kv_flush(kv, deadline_mono_ns, NULL);
    }
    return -EBUSY;
}

int ng_board_client_order(const struct ng_observed_job *job, const struct ng_command *command,
                          int64_t deadline_mono_ns, char *why, size_t why_bytes)
{
    struct ng_incident record;
    struct ng_arena arena = {0};
    struct ng_progress_head head;
    struct ng_peer_progress *blobs;
    uint32_t count, living = 0;
    struct ng_kv *kv;

    ng_command_record(command, &record);
    int error = open_store(job, why, why_bytes, &kv);
    if (error == 1) {
        error = ng_local_leave(job->folder, job->run, &record, &living);
        if (error)
            snprintf(why, why_bytes, "%s: %s", job->folder, strerror(-error));
        return error ? error : (int)living;
    }
    if (error)
        return error;
    record.source = NG_SOURCE_JOB;
    record.claimant_pid = (int32_t)getpid();
    error = ng_peer_progress_fetch(kv, deadline_mono_ns, &arena, &blobs, &count);
    for (uint32_t i = 0; !error && i < count; i++)
        living += blobs[i].lives && ng_progress_peek(blobs[i].data, blobs[i].bytes, &head) == 0 &&
                  head.life == NG_LIFE_RUNNING;
    ng_arena_reset(&arena);
    if (!error && living)
        error = leave_record(kv, &record, deadline_mono_ns);
    error = close_store(kv, error, why, why_bytes);
    return error ? error : (int)living;
}
