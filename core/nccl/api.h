/*
 * The public functions of NCCL, as data: what `ncclguard apis` prints and the shim's messages
 * quote.
 *
 * Generated from the rows of shim/nccl_api.def (the static library ng_api). Pure data; any thread.
 */
#ifndef NCCLGUARD_CORE_NCCL_API_H
#define NCCLGUARD_CORE_NCCL_API_H

#include <stdbool.h>

#include "core/nccl/op.h"

struct ng_api {
    const char *name; /* without "nccl" */
    int since;        /* first release that has it, as NCCL_VERSION_CODE: 22807; 0: RCCL only */
    const char *since_text; /* "2.28.7"; "2.7" if the patch level is not recorded; "RCCL" */
    bool tracked;           /* recorded, as `op`; else only forwarded, for `reason` */
    enum ng_op op;          /* NG_OP_NONE if not tracked */
    const char *reason;     /* NULL if tracked */
};

/* In the order of the table. */
extern const struct ng_api ng_api_table[];
extern const unsigned ng_api_count;

#endif
