/*
 * Waiting until a communicator can be freed.
 *
 * Entered by a program's thread that ends a communicator, and by the thread that aborts. Must never
 * wait for a hung driver or NCCL for long.
 */
#include "core/device/release.h"

#include <stdbool.h>
#include <stdint.h>

#include "core/device/async.h"
#include "core/device/connections.h"
#include "core/device/launch_counters.h"
#include "core/util/clock.h"

#define QUERY_NS (2 * NG_S)
#define PAUSE_NS (20 * NG_US)

static bool is_used(const struct ng_comm *comm, int64_t waited_ns)
{
    return (ng_async_asks(comm) && waited_ns <= QUERY_NS) ||
           (ng_launch_counters_copies(comm) && waited_ns <= NG_LAUNCH_COUNTERS_NS) ||
           (ng_connections_copies(comm) && waited_ns <= NG_CONNECTIONS_NS);
}

void ng_release_await(const struct ng_comm *comm)
{
    int64_t begun = 0;

    while (is_used(comm, begun ? ng_clock_mono_ns() - begun : 0)) {
        if (!begun)
            begun = ng_clock_mono_ns();
        ng_clock_sleep(PAUSE_NS);
    }
}
