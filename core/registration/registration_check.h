/*
 * What a program does wrong with the buffers that it registers itself (ncclCommRegister), and with
 * memory that is in use.
 *
 * Beside the steps of a call; part of `+args` (NCCLGUARD_CHECK). Told in the log, once for each
 * place in the program, with both places: where it was registered or used, and where it was
 * registered again, deregistered or freed. Nothing is changed, and no call is turned down.
 *
 *   again     a range that is registered already with that communicator. NCCL counts, and wants as
 *             many deregistrations
 *   unknown   a handle is deregistered that never was one of that communicator, or is none any more
 *   freed     memory that is still registered is freed or unmapped
 *   in use    memory is unmapped, or freed by ncclMemFree, that a collective uses which is not
 *             through. What cuMemFree frees is not told: it waits for the device; nor what is freed
 * in stream order, which others may have waited for
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

/* Is it wanted (ng_guard.checks_registrations)? The same for the life of the process. */
bool ng_registration_check_on(void);

/* NCCL has registered it, for the program; is about to take a handle back. `caller`: return address
 * in the program. `comm` NULL: not known, nothing. Program threads. */
void ng_registration_check_made(const struct ng_comm *comm, const void *buffer, size_t bytes,
                                const void *handle, const void *caller);
void ng_registration_check_ending(const struct ng_comm *comm, const void *handle,
                                  const void *caller);

/* These addresses are about to be freed. `at_once`: without waiting for the device. Program
 * threads. */
void ng_registration_check_freeing(uintptr_t base, size_t bytes, bool at_once, const void *caller);

/* How often that was found. Any thread. */
uint64_t ng_registration_check_found(enum ng_registration_fault fault);

/* In a forked child. */
void ng_registration_check_after_fork(void);

#endif
