/*
 * Detects misuse of buffers that the program registers itself (ncclCommRegister), and of memory
 * that is in use.
 *
 * Not in the path of a call; part of `+args` (NCCLGUARD_CHECK). Each misuse is logged once for each
 * call site in the program, with both call sites: where the memory was registered or used, and
 * where it was registered again, deregistered or freed. Nothing is changed, and no call is
 * rejected.
 *
 *   again     a range is registered twice with the same communicator. NCCL counts, and requires as
 *             many deregistrations
 *   unknown   the handle to deregister never belonged to that communicator, or is already released
 *   freed     memory that is still registered is freed or unmapped
 *   in use    memory that an unfinished collective uses is unmapped, or freed by ncclMemFree.
 *             cuMemFree is not reported, since it waits for the device; nor is a free in stream
 *             order, which may have been ordered after the collective
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_CHECK_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_comm;

enum ng_registration_fault {
    NG_REGISTRATION_AGAIN,
    NG_REGISTRATION_UNKNOWN,
    NG_REGISTRATION_FREED,
    NG_REGISTRATION_IN_USE,
    NG_REGISTRATION_FAULTS,
};

/* Is it configured (ng_guard.checks_registrations)? The same for the life of the process. */
bool ng_registration_check_on(void);

/* NCCL has registered a buffer for the program; NCCL is about to deregister a handle. `caller`:
 * return address in the program. `comm` NULL: not known, does nothing. Program threads. */
void ng_registration_check_made(const struct ng_comm *comm, const void *buffer, size_t bytes,
                                const void *handle, const void *caller);
void ng_registration_check_ending(const struct ng_comm *comm, const void *handle,
                                  const void *caller);

/* These addresses are about to be freed. `at_once`: without waiting for the device. Program
 * threads. */
void ng_registration_check_freeing(uintptr_t base, size_t bytes, bool at_once, const void *caller);

/* How often this misuse was found. Any thread. */
uint64_t ng_registration_check_found(enum ng_registration_fault fault);

/* In a forked child. */
void ng_registration_check_after_fork(void);

#endif
