/*
 * Commands to Redis, several at a time, and the meaning of their replies.
 *
 * Not thread-safe: a batch belongs to one thread. Commands are assembled word by word, without a
 * format, since values hold any bytes.
 */
#ifndef NCCLGUARD_STORE_KV_REDIS_BATCH_H
#define NCCLGUARD_STORE_KV_REDIS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redisReply;

struct ng_redis_command {
    size_t start;             /* in the batch; it ends where the next one begins */
    struct redisReply *reply; /* NULL: not answered yet, or to be sent again */
    bool answered;            /* the reply is final */
};

struct ng_redis_batch {
    char *text;
    size_t used, room;
    struct ng_redis_command *commands;
    size_t count, command_room;
    bool no_memory;
};

/* Free the replies only; empty it for the next use; and free it. An all-zero batch is empty. */
void ng_redis_free_replies(struct ng_redis_batch *batch);
void ng_redis_empty_batch(struct ng_redis_batch *batch);
void ng_redis_free_batch(struct ng_redis_batch *batch);

/* Begin a command of so many words. It ends where the next one begins. Out of memory, here or
 * below: batch->no_memory. */
void ng_redis_begin(struct ng_redis_batch *batch, const char *name, size_t words);

/* Append its words, each of which begins with a header ('$' and the number of bytes) and ends with
 * CR LF. */
void ng_redis_put_word(struct ng_redis_batch *batch, const char *word);
void ng_redis_put_number(struct ng_redis_batch *batch, int64_t number);
void ng_redis_put_bytes(struct ng_redis_batch *batch, const void *data, size_t bytes);
void ng_redis_put_head(struct ng_redis_batch *batch, char kind, size_t number);
void ng_redis_put(struct ng_redis_batch *batch, const void *data, size_t bytes);

/* Append command `index` of another batch. */
void ng_redis_copy(struct ng_redis_batch *batch, const struct ng_redis_batch *from, size_t index);

/* Distinct from the errors of store/kv/kv.h, and never returned. */
#define NG_REDIS_MOVED (-1000)
#define NG_REDIS_ASK   (-1001)

/* The meaning of a reply: an error of store/kv/kv.h, or one of those above; 0 if it is no error. */
int ng_redis_error_of(const struct redisReply *reply);
bool ng_redis_is_text(const struct redisReply *reply);

#endif
