/*
 * Compiles only if every row of the table has the prototype of nccl.h and nccl_device.h.
 *
 * The wrappers themselves are compared with nccl.h when the shim is built; the device headers are
 * C++, so their functions are compared here: declaring an extern "C" function twice with different
 * types is an error. Where the headers lack a function, its row only has to make sense as C++, too.
 */
#define NG_WITH_NCCL_DEVICE
#include "shim/nccl_compat.h"

extern "C" {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    ncclResult_t nccl##name prototype;
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    type nccl##name prototype;
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
}
