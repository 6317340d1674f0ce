/*
 * A store in the memory of this process, for tests of what stands on a store.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_MEMORY_KV_H
#define NCCLGUARD_TESTS_UNIT_STORE_MEMORY_KV_H

#include <string>

extern "C" {
#include "store/kv/kv.h"
}

/* As ng_kv_open, and "memory:NAME": all that open the same name, job and run share it. */
int open_store(const std::string &url, const struct ng_kv_options &options, char *why,
               size_t why_bytes, struct ng_kv **ret_kv);

/* Of a store in memory, every job's: how many keys there are; and all of them go. */
size_t keys_in_store(const std::string &url);
void empty_store(const std::string &url);

#endif
