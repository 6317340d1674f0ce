/*
 * Hooks by which the guard follows streams and events, and denies results that an abort has cut
 * off: core/device/poison.h.
 *
 * Beside the steps of a call.
 */
#ifndef NCCLGUARD_SHIM_CUDA_POISON_H
#define NCCLGUARD_SHIM_CUDA_POISON_H

/* Enable them: in the constructor, before anybody looks a function of the driver up. */
void ng_cuda_poison_enable(void) __attribute__((visibility("hidden")));

#endif
