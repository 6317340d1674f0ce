/* Looks at what the driver knows (core/device/driver_errors.h) with communicators, an NVML and a
 * clock of the test's. C, for core's headers with atomics. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_DRIVER_H
#define NCCLGUARD_TESTS_UNIT_CORE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/device_errors.h"

#define DRIVER_DEVICES 2

extern struct driver {
    int64_t now_ms;
    bool absent, refuses;   /* there is no library; nvmlInit fails */
    bool without_events;    /* it lacks nvmlEventSetCreate */
    bool hangs;             /* tasks do not come back until driver_returns */
    unsigned comms;         /* communicators there are */
    unsigned unknown;       /* of those, the last ones whose device is not known yet */
    unsigned opened, asked; /* looks for the library, and questions for ECC errors */
    unsigned tasks;         /* handed to the worker threads */
    unsigned registered;    /* registrations for events */
    unsigned xid;           /* happens to the second device; 0 none */
    unsigned flood;         /* so many Xid 13 happen to it before that */
    int64_t event_ms;       /* an event takes so long */
    int64_t ecc_ms;         /* a question for ECC errors */
    bool ends;              /* the process ends during such a question */
    bool lost;              /* the second device */
    uint64_t ecc, replays;  /* of the second device */
    bool by_link;           /* NVLinks are counted each, and there are two */
    bool unsupported;       /* ECC and NVLinks are */
    unsigned other, self;   /* processes on the first device; 0 none */
} driver;

void driver_begin(void);
void driver_prepare(void);
void driver_look(void);
void driver_begin_look(void);
void driver_returns(void);
void driver_fork(void);
/* Those in the black box; -1 as *ret_age_ms: the driver was never asked. */
uint32_t driver_found(struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX], int64_t *ret_age_ms);
/* Of a box with Xid 201 to 208, what a reader of its file finds if the last one is replaced by Xid
 * 79 before its read number `nth`; 0 never. */
uint32_t driver_found_by_reader(unsigned nth,
                                struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX]);

#endif
