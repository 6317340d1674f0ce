/*
 * The CUDA driver, for core: found when the program has loaded it, never loaded by us.
 */
#ifndef NCCLGUARD_SHIM_DRIVER_H
#define NCCLGUARD_SHIM_DRIVER_H

#include <stdbool.h>

#include "core/nccl/cuda.h"

/*
 * Fills *ret_cuda and returns true once libcuda.so.1 is in this process with every function that
 * core needs; until then false, and *ret_cuda is untouched. A driver that lacks a function is named
 * in the log, once. Any thread; cheap enough for each creation of a communicator, not for each
 * call. Keeps errno.
 */
bool ng_driver_find(struct ng_cuda *ret_cuda);

/* Whether somebody has initialised the driver in this process, be it shut down again by now. Keeps
 * errno. */
bool ng_driver_was_initialised(void);

#endif
