/*
 * The rows of nccl_api.def as data, for messages and for `ncclguard apis`.
 *
 * Pure data, built into a separate static library so that the tools get it without the shim.
 */
#include "core/nccl/api.h"

#include <stddef.h>

#include "core/util/macros.h"

#define NG_SINCE(major, minor, patch)                                                              \
    ((minor) <= 8 ? (major)*1000 + (minor)*100 + (patch) : (major)*10000 + (minor)*100 + (patch))
#define NG_SINCE_TEXT(major, minor, patch)                                                         \
    ((major) == 0 ? "RCCL" : (patch) ? #major "." #minor "." #patch : #major "." #minor)

const struct ng_api ng_api_table[] = {
#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    {#name, NG_SINCE(major, minor, patch), NG_SINCE_TEXT(major, minor, patch), true, NG_OP_##op,   \
     NULL},
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    {#name, NG_SINCE(major, minor, patch), NG_SINCE_TEXT(major, minor, patch), false, NG_OP_NONE,  \
     reason},
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
};

const unsigned ng_api_count = NG_COUNT(ng_api_table);
