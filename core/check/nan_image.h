/*
 * The kernel of core/check/nan_kernel.cu as built: PTX, NUL-terminated.
 */
#ifndef NCCLGUARD_CORE_CHECK_NAN_IMAGE_H
#define NCCLGUARD_CORE_CHECK_NAN_IMAGE_H

/* NULL: it was built without the CUDA toolkit. */
extern const char *const ng_nan_image __attribute__((visibility("hidden")));

#endif
