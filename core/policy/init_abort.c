/*
 * Releases of NCCL in which a blocking init must not be aborted.
 *
 * Pure.
 */
#include "core/policy/init_abort.h"

#include <stddef.h>

#include "core/util/macros.h"

/*
 * Versions as ncclGetVersion returns them. The rows come from reading NCCL's sources release by
 * release (bootstrap.cc, init.cc); none of these releases was tested. Tested and working: 2.28.9,
 * on H200. From 2.16.5 on commReclaim leaves alone a communicator that has not met its peers yet
 * (intraComm0), so an abort of an init with missing ranks frees nothing that the init still uses.
 * No release guarantees an abort between the meeting of all ranks and the return of the init, where
 * NCCL frees what its own thread works on.
 */
static const struct {
    int from, below;
    const char *why;
} rows[] = {
    {0, 21200, "its bootstrap does not look for an abort: the call would not come back"},
    {21200, 21400, "ncclCommAbort frees the communicator while its init still works on it"},
    {21400, 21605,
     "ncclCommAbort frees a communicator whose init has not succeeded, while that is still under "
     "way (mended in 2.16.5)"},
};

const char *ng_init_abort_unsafe(int version)
{
    NG_EACH (row, rows, NG_COUNT(rows))
        if (version > 0 && version >= row->from && version < row->below)
            return row->why;
    return NULL;
}
