/*
 * The state of the store's injected faults: a separate file, since tools use the store and inject
 * nothing.
 *
 * Must always be off if NCCLGUARD_FAULT is not set.
 */
#include "core/config/store_fault.h"

struct ng_store_fault ng_store_fault;
