/*
 * The ring of core/comm/ring.h as C++ tests can call it: its headers have atomics that C++17 cannot
 * read.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_RING_WRITER_H
#define NCCLGUARD_TESTS_UNIT_CORE_RING_WRITER_H

#include <stdbool.h>
#include <stdint.h>

struct ng_box;

/* The box that ring_add writes to, and the slot of its group table that records belong to. */
void ring_use(struct ng_box *box, uint32_t slot);

/* A record in which every field follows from its id, as far as the writer may choose. Returns the
 * id. */
uint64_t ring_add(uint64_t seq);

/* The same as the group's next collective, which it then has made. */
uint64_t ring_call(void);

/* As the watchdog does it, long after. */
bool ring_complete(uint64_t id);

#endif
