/*
 * Reading this process's own memory where it may not be there.
 *
 * A wrong address is an error, never a crash: the kernel copies, or refuses. No allocation, no
 * lock; any guard thread, also while all other threads are held still.
 */
#ifndef NCCLGUARD_CORE_UTIL_MEMORY_H
#define NCCLGUARD_CORE_UTIL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copy as many of the `bytes` at `address` as can be read, from the first on: how many. */
size_t ng_memory_read_some(uint64_t address, void *ret_bytes, size_t bytes);

/* All of them or nothing to rely on. */
bool ng_memory_read(uint64_t address, void *ret_bytes, size_t bytes);

#endif
