/*
 * Kernels that the stand-in can run: for the entry of a PTX text, the same in C.
 */
#ifndef FAKE_CUDA_KERNELS_H
#define FAKE_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

struct kernel {
    const char *entry;
    size_t argument_bytes; /* it has one */
    size_t globals_bytes;  /* of its module; all zero at first */
    /* False: it touched memory that is none. */
    bool (*run)(void *globals, unsigned int blocks, unsigned int threads, const void *argument);
};

/* By its name of so many characters; NULL: there is no such kernel here. */
const struct kernel *fake_kernel_find(const char *entry, size_t length);

#endif
