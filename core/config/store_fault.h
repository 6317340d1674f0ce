/*
 * Faults that NCCLGUARD_FAULT injects into the store across hosts: `store-drop` and `store-delay`.
 *
 * Set by a thread of the program, applied by threads that call the store (store/kv/kv.h).
 * Lock-free; any thread.
 */
#ifndef NCCLGUARD_CORE_CONFIG_STORE_FAULT_H
#define NCCLGUARD_CORE_CONFIG_STORE_FAULT_H

#include <stdatomic.h>
#include <stdint.h>

struct ng_store_fault {
    atomic_bool dropped;      /* nothing is sent to it or received from it */
    _Atomic int64_t delay_ns; /* delay added to each call; 0 none */
};

extern struct ng_store_fault ng_store_fault __attribute__((visibility("hidden")));

#endif
