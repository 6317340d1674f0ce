/*
 * nccl.h, and the types of newer releases that the installed one lacks, so that the table compiles
 * against every header from 2.18 on.
 *
 * Only what a prototype in nccl_api.def needs: structures passed by address stay incomplete; those
 * passed by value are defined in full, since their layout is part of NCCL's ABI. With
 * NG_WITH_NCCL_DEVICE (C++ only, since the device headers are not C), nccl_device.h is included and
 * its declarations are compared with the table, too.
 */
#ifndef NCCLGUARD_SHIM_NCCL_COMPAT_H
#define NCCLGUARD_SHIM_NCCL_COMPAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "ncclguard is built with nccl.h of NCCL 2.18 or newer; it guards older libraries, too"
#endif

#ifdef NG_WITH_NCCL_DEVICE
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#include <nccl_device.h>
#endif
#define NG_DEVICE_HEADER_LACKS(major, minor, patch)                                                \
    (NCCL_VERSION_CODE < NCCL_VERSION(major, minor, patch))
#else
#define NG_DEVICE_HEADER_LACKS(major, minor, patch) 1
#endif

/* From 2.31 on nccl.h hides this function behind an empty macro, though the library exports it. */
#undef ncclResetDebugInit

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 22, 0)
typedef struct ncclSimInfo_v22200 ncclSimInfo_t;
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef struct ncclWindow_vidmem *ncclWindow_t;
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
typedef int ncclCommMemStat_t;
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2)
typedef struct ncclCollConfig ncclCollConfig_t;
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 32, 3)
typedef struct ncclEncryptionConfig_v23200 ncclEncryptionConfig_t;
#endif

struct ncclParamHandle;
struct ncclCommProperties;
struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclLLA2AHandle;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclCftBarrierHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;

#if NG_DEVICE_HEADER_LACKS(2, 28, 0)
struct ncclTeam {
    int nRanks, rank, stride;
};

struct ncclMultimemHandle {
    void *mcBasePtr;
};
#endif

#if NG_DEVICE_HEADER_LACKS(2, 31, 2)
typedef int ncclCftTeamMode_t; /* an enumeration in the header */
#endif

#endif
