/*
 * Every function of the table, declared as its row says.
 */
#ifndef NCCLGUARD_TESTS_UNIT_SHIM_DECLARED_H
#define NCCLGUARD_TESTS_UNIT_SHIM_DECLARED_H

#include "shim/nccl_compat.h"

/* ncclResetDebugInit: deprecated, but as long as libraries have it, programs may call it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

extern "C" {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t nccl##name prototype;
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type nccl##name prototype;
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
}

#endif
