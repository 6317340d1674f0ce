/*
 * What NCCLGUARD_FAULT does to the store across hosts: `store-drop` and `store-delay`.
 *
 * Set by a program's thread, obeyed by whoever calls the store (store/kv/kv.h). Lock-free; any
 * thread.
 */
#ifndef NCCLGUARD_CORE_CONFIG_STORE_FAULT_H
#define NCCLGUARD_CORE_CONFIG_STORE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ng_store_fault {
    atomic_bool dropped;      /* nothing reaches it, or comes from there */
    _Atomic int64_t delay_ns; /* each call takes so much longer; 0 */
};

extern struct ng_store_fault ng_store_fault __attribute__((visibility("hidden")));

#endif
