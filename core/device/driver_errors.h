/*
 * Asks the driver, through NVML, what it knows of the devices of this process: Xid errors,
 * uncorrected ECC errors, errors of NVLinks, and other processes that compute there.
 *
 * When the first communicator is known, a worker thread opens NVML, mostly the one that NCCL has
 * loaded by then, registers for Xid events, which the driver keeps from then on, and reads the
 * counters. Nothing more is asked until something is suspected. A call of NVML may hang when the
 * driver does: only a worker thread makes them, one look at a time. A look asks no more after an
 * answer that took longer than NG_DRIVER_ANSWER_NS. After two looks that took too long nobody waits
 * for one any more, though what it finds late is kept. NCCLGUARD_NVML=0 switches it off.
 *
 * Xid events have no time of their own: one was noticed by the first look after it.
 */
#ifndef NCCLGUARD_CORE_DEVICE_DRIVER_ERRORS_H
#define NCCLGUARD_CORE_DEVICE_DRIVER_ERRORS_H

#include "core/util/clock.h"

#define NG_DRIVER_ERRORS_NS (200 * NG_MS) /* no thread waits longer for a look */
#define NG_DRIVER_ANSWER_NS (100 * NG_MS) /* a look is over after a slower answer */

/* Register the devices of new communicators. Never waits. Incident thread, each round. */
void ng_driver_errors_prepare(void);

/* Something is suspected, here or by another rank: begin a look, unless one was begun less than a
 * second ago. It writes what it finds into the black box (core/recorder/device_errors.h). Never
 * waits. Incident thread. */
void ng_driver_errors_begin(void);

/* Begin a look, and wait for it. Incident thread. */
void ng_driver_errors_look(void);

/* The process ends: look no more, and wait for a look that is under way, which asks about no
 * further device. */
void ng_driver_errors_finish(void);

/* As before the first look. No thread may be in one. */
void ng_driver_errors_forget(void);

/* In a forked child: it uses neither the NVML of its parent nor one of its own, since the library
 * is not made for that. */
void ng_driver_errors_after_fork(void);

#endif
