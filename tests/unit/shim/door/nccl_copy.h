/*
 * A NCCL in C that remembers what it was called with, and knows which copy it is.
 *
 * In C, since compilers for other machines come with C first. Its number is that of the folder that
 * it lies in: …/7/libnccl.so.2 is copy 7.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_DOOR_NCCL_COPY_H
#define NCCLGUARD_TESTS_UNIT_SHIM_DOOR_NCCL_COPY_H

#include <stdint.h>

#include "shim/nccl_compat.h"

/* Versions are 2.28.number. */
#define DOOR_NCCL_VERSION(number) (22800 + (number))

struct door_nccl_call {
    const char *name;
    uint64_t values[12]; /* the arguments in order, as far as they are whole numbers or addresses */
    ncclUniqueId id;
    struct ncclTeam team;
};

/* Of this thread. */
typedef const struct door_nccl_call *door_nccl_last_function(void);

#endif
