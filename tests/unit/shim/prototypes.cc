/*
 * Compiles only if every row of the table has the prototype of nccl.h and nccl_device.h.
 *
 * The wrappers themselves are compared with nccl.h when the shim is built; the device headers are
 * C++, so their functions are compared here: declaring an extern "C" function twice with different
 * types is an error. Where the headers lack a function, its row only has to make sense as C++, too.
 */
#define NG_WITH_NCCL_DEVICE
#include "tests/unit/shim/declared.h"
