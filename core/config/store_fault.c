/*
 * The state of the store's injected faults: of its own, since tools use the store and inject
 * nothing.
 *
 * Must never be anything but off where NCCLGUARD_FAULT is not set.
 */
#include "core/config/store_fault.h"

struct ng_store_fault ng_store_fault;
