/*
 * Reads memory of this process that may not be mapped.
 *
 * A wrong address is an error, never a crash: the kernel copies the bytes or returns an error. No
 * allocation, no lock; any guard thread, also while all other threads are stopped.
 */
#ifndef NCCLGUARD_CORE_UTIL_MEMORY_H
#define NCCLGUARD_CORE_UTIL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copy as many of the `bytes` at `address` as can be read, from the first on; returns their
 * number. */
size_t ng_memory_read_some(uint64_t address, void *ret_bytes, size_t bytes);

/* Copy all of them; false: the content of ret_bytes is undefined. */
bool ng_memory_read(uint64_t address, void *ret_bytes, size_t bytes);

#endif
