/*
 * Releases of NCCL in which a blocking init must not be aborted.
 *
 * Pure.
 */
#include "core/policy/init_abort.h"

#include <stddef.h>

#include "core/util/macros.h"

static const struct {
    int from, below;
    const char *why;
} rows[] = {
#define NG_INIT_ABORT(from, below, why) {from, below, why},
#include "core/policy/init_abort.def"
#undef NG_INIT_ABORT
};

const char *ng_init_abort_unsafe(int version)
{
    NG_EACH (row, rows, NG_COUNT(rows))
        if (version > 0 && version >= row->from && version < row->below)
            return row->why;
    return NULL;
}
