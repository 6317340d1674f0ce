/*
 * What a guarded process tells the `ncclguard run` above it when it starts, in one datagram: it has
 * no black box before its first communicator, and may end before that.
 */
#ifndef NCCLGUARD_CORE_RECORDER_LOADED_H
#define NCCLGUARD_CORE_RECORDER_LOADED_H

#include <stdint.h>

#define NG_LOADED_MAGIC UINT32_C(0x444c474e) /* "NGLD" */

/* Name of the socket, in the abstract name space: this and NCCLGUARD_RUN_ID. */
#define NG_LOADED_SOCKET "ncclguard-"

struct ng_loaded {
    uint32_t magic, bytes;
    int32_t rank, world_size, local_rank; /* from the launcher; the rank is known */
    uint64_t launch_run;                  /* as in struct ng_box_header */
    char job[128], program[64];
};

#endif
