/*
 * Commands and replies.
 */
#include "store/kv/redis_batch.h"

#include <errno.h>
#include <hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"

void ng_redis_free_replies(struct ng_redis_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->commands[i].reply)
            freeReplyObject(batch->commands[i].reply);
        batch->commands[i].reply = NULL;
        batch->commands[i].answered = false;
    }
}

void ng_redis_empty_batch(struct ng_redis_batch *batch)
{
    ng_redis_free_replies(batch);
    batch->used = batch->count = 0;
    batch->no_memory = false;
    /* One large value must not occupy memory for the life of the job. */
    if (batch->room > (1u << 20)) {
        free(batch->text);
        batch->text = NULL;
        batch->room = 0;
    }
}

void ng_redis_free_batch(struct ng_redis_batch *batch)
{
    ng_redis_empty_batch(batch);
    free(batch->text);
    free(batch->commands);
    *batch = (struct ng_redis_batch){0};
}

void ng_redis_put(struct ng_redis_batch *batch, const void *data, size_t bytes)
{
    if (batch->room - batch->used < bytes) {
        size_t room = (batch->used + bytes) * 3 / 2 + 1024;
        char *larger = realloc(batch->text, room);
        if (!larger) {
            batch->no_memory = true;
            return;
        }
        batch->text = larger;
        batch->room = room;
    }
    if (bytes)
        memcpy(batch->text + batch->used, data, bytes);
    batch->used += bytes;
}

void ng_redis_put_head(struct ng_redis_batch *batch, char kind, size_t number)
{
    char text[32];

    ng_redis_put(batch, text, (size_t)sprintf(text, "%c%zu\r\n", kind, number));
}

void ng_redis_put_bytes(struct ng_redis_batch *batch, const void *data, size_t bytes)
{
    ng_redis_put_head(batch, '$', bytes);
    ng_redis_put(batch, data, bytes);
    ng_redis_put(batch, "\r\n", 2);
}

void ng_redis_put_word(struct ng_redis_batch *batch, const char *word)
{
    ng_redis_put_bytes(batch, word, strlen(word));
}

void ng_redis_put_number(struct ng_redis_batch *batch, int64_t number)
{
    char text[32];

    ng_redis_put_bytes(batch, text, (size_t)sprintf(text, "%" PRId64, number));
}

/* False: no memory. */
static bool add_command(struct ng_redis_batch *batch)
{
    if (batch->count == batch->command_room) {
        size_t room = batch->command_room ? batch->command_room * 2 : 8;
        struct ng_redis_command *larger = realloc(batch->commands, room * sizeof(*larger));
        if (!larger) {
            batch->no_memory = true;
            return false;
        }
        batch->commands = larger;
        batch->command_room = room;
    }
    batch->commands[batch->count++] = (struct ng_redis_command){.start = batch->used};
    return true;
}

void ng_redis_begin(struct ng_redis_batch *batch, const char *name, size_t words)
{
    if (!add_command(batch))
        return;
    ng_redis_put_head(batch, '*', words);
    ng_redis_put_word(batch, name);
}

void ng_redis_copy(struct ng_redis_batch *batch, const struct ng_redis_batch *from, size_t index)
{
    size_t start = from->commands[index].start;
    size_t end = index + 1 < from->count ? from->commands[index + 1].start : from->used;

    if (add_command(batch))
        ng_redis_put(batch, from->text + start, end - start);
}

bool ng_redis_is_text(const redisReply *reply)
{
    return reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
}

static const struct {
    const char *begins; /* a whole word, or a prefix */
    int error;
} meanings[] = {
    {"MOVED", NG_REDIS_MOVED},
    {"ASK", NG_REDIS_ASK},
    {"NOAUTH", -EACCES},
    {"WRONGPASS", -EACCES},
    {"NOPERM", -EACCES},
    {"DENIED", -EACCES},
    {"ERR operation not permitted", -EACCES}, /* Redis before 6 */
    {"ERR invalid password", -EACCES},
    {"OOM", -ENOSPC},
    {"READONLY", -EROFS},
    {"MISCONF", -EROFS},
    {"NOREPLICAS", -EROFS},
    {"LOADING", -EBUSY},
    {"MASTERDOWN", -EBUSY},
    {"CLUSTERDOWN", -EBUSY},
    {"TRYAGAIN", -EBUSY},
    {"BUSY", -EBUSY},
    {"ERR max number of clients", -EBUSY},
    {"ERR value is not an integer", -EINVAL},
    {"ERR increment or decrement would overflow", -ERANGE},
};

/* 0 if a reply is no error. */
int ng_redis_error_of(const redisReply *reply)
{
    if (!reply)
        return -EPROTO;
    if (reply->type != REDIS_REPLY_ERROR)
        return 0;
    for (size_t i = 0; i < NG_COUNT(meanings); i++) {
        size_t length = strlen(meanings[i].begins);
        if (strncmp(reply->str, meanings[i].begins, length) == 0 &&
            (reply->str[length] == ' ' || reply->str[length] == '\0'))
            return meanings[i].error;
    }
    return -EPROTO;
}
