/*
 * Memory of this process: large tables, and reading what may not be mapped.
 *
 * No lock; any thread, also while all other threads are stopped, perhaps inside malloc.
 */
#ifndef NCCLGUARD_CORE_UTIL_MEMORY_H
#define NCCLGUARD_CORE_UTIL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * For a static variable of 2 KiB or more, mostly a table of which few pages are ever touched. It is
 * placed apart, so that the small variables, which all are touched, share few pages. Compilers take
 * a section of this name for one of zeros that needs no room in the file.
 */
#define NG_LARGE __attribute__((section(".sbss.large")))

/*
 * For a static variable that a forked child must not have from its parent, such as what a thread
 * does that the child does not have, or a lock that it may hold. Its first value must be zero, as
 * that of a mutex is. Large tables are not placed here: they would need room in the file.
 */
#define NG_FORGOTTEN __attribute__((section("ng_forgotten")))

/* In a forked child: all of these are zero again. Async-signal-safe. */
void ng_memory_forget(void);

/* Zeroed pages, each of which costs nothing until it is touched. NULL: no memory. Freed with
 * munmap. */
void *ng_memory_reserve(size_t bytes);

/* Read: a wrong address is an error, never a crash, since the kernel copies the bytes or returns an
 * error. */

/* Copy as many of the `bytes` at `address` as can be read, from the first on; returns their
 * number. */
size_t ng_memory_read_some(uint64_t address, void *ret_bytes, size_t bytes);

/* Copy all of them; false: the content of ret_bytes is undefined. */
bool ng_memory_read(uint64_t address, void *ret_bytes, size_t bytes);

#endif
