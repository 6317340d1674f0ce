/*
 * Releases of NCCL in which a blocking init must not be aborted.
 *
 * Pure.
 */
#include "core/policy/init_abort.h"

#include <stddef.h>

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
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (version > 0 && version >= rows[i].from && version < rows[i].below)
            return rows[i].why;
    return NULL;
}
