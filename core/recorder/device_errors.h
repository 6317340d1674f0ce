/*
 * What the driver knows of a rank's devices: errors since the first look, and other processes.
 *
 * Written into the black box by the thread that asks NVML (core/device/driver_errors.h), which
 * readers copy.
 */
#ifndef NCCLGUARD_CORE_RECORDER_DEVICE_ERRORS_H
#define NCCLGUARD_CORE_RECORDER_DEVICE_ERRORS_H

#include <stdint.h>

#include "core/nccl/device_error.h"

struct ng_box;

#define NG_DEVICE_ERRORS_MAX    8u
#define NG_DEVICE_PROCESSES_MAX 2u /* of those */

/* Found `count` more of them at `now_mono_ns`. Without room it is dropped, but one that is grave
 * (core/nccl/device_error.h) takes the place of one that is not. One thread at a time. */
void ng_device_errors_add(struct ng_box *box, const struct ng_device_error *found,
                          int64_t now_mono_ns);

/* As the time of the last look: the devices are watched, and nothing was asked yet. */
#define NG_DEVICE_WATCHED_NS 1

/* A look is over: processes that it has not found count as gone. Same thread. */
void ng_device_errors_looked(struct ng_box *box, int64_t now_mono_ns);

/* As many as are known; `ret_looked_mono_ns`: when the last look was, 0 there was none. Any
 * thread. */
uint32_t ng_device_errors_read(const struct ng_box *box, int64_t now_mono_ns,
                               struct ng_device_error ret_errors[NG_DEVICE_ERRORS_MAX],
                               int64_t *ret_looked_mono_ns);

#endif
