/*
 * A store in the memory of this process, for tests of what stands on a store.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_MEMORY_KV_H
#define NCCLGUARD_TESTS_UNIT_STORE_MEMORY_KV_H

#include <string>

extern "C" {
#include "store/kv/kv_open.h"
}

/* As ng_kv_open, and "memory:NAME": all that open the same name, job and run share it. */
int open_store(const std::string &url, const struct ng_kv_options &options, char *why,
               size_t why_bytes, struct ng_kv **ret_kv);

/* The table of a backend whose functions are `scope` and the name of the member; without `destroy`.
 */
#define KV_OPS(scope)                                                                              \
    [] {                                                                                           \
        struct ng_kv_ops ops = {};                                                                 \
        ops.get = scope get;                                                                       \
        ops.get_many = scope get_many;                                                             \
        ops.add = scope add;                                                                       \
        ops.put_if_absent = scope put_if_absent;                                                   \
        ops.compare_and_set = scope compare_and_set;                                               \
        ops.remove = scope remove;                                                                 \
        ops.expire = scope expire;                                                                 \
        ops.queue_set = scope queue_set;                                                           \
        ops.queue_publish = scope queue_publish;                                                   \
        ops.flush = scope flush;                                                                   \
        ops.subscribe = scope subscribe;                                                           \
        ops.message_fd = scope message_fd;                                                         \
        ops.next_message = scope next_message;                                                     \
        ops.abandon = scope abandon;                                                               \
        return ops;                                                                                \
    }()

/* Of a store in memory, every job's: how many keys there are; and all of them go. */
size_t keys_in_store(const std::string &url);
void empty_store(const std::string &url);

#endif
