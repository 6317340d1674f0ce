/*
 * What core/runtime/runtime.h has is C's.
 */
#include "tests/unit/core/helpers/plain_threads.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/evidence/dump_pipe.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/log_writer.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"

static void adopt_nothing(void)
{
}

/* Once: threads of an earlier test may be reading it. */
static void let_adopt(void)
{
    if (ng_guard.adopt_thread != adopt_nothing)
        ng_guard.adopt_thread = adopt_nothing;
}

void start_tasks(void)
{
    static bool started;

    let_adopt();
    ng_guard.box = NG_BOX_NONE; /* another test may have left one that is gone */
    if (!started && ng_io_workers_start() != 0)
        abort();
    started = true;
}

void start_log_writer(void)
{
    let_adopt();
    if (ng_log_writer_start() != 0)
        abort();
    ng_log_writer_adopt();
}

static void end(void *under_way)
{
    ng_io_workers_end(under_way, 1);
}

void make_dump_pipe(const char *prefix, int rank)
{
    _Atomic uint32_t under_way = 1;
    char path[PATH_MAX + 16];

    start_tasks();
    snprintf(ng_guard.dump_pipe, sizeof(ng_guard.dump_pipe), "%s", prefix);
    ng_guard.launch.rank = rank;
    ng_dump_pipe_start();
    /* Tasks of one place are done in order. */
    snprintf(path, sizeof(path), "%s%d.pipe", prefix, rank);
    if (ng_io_workers_add(path, end, &under_way) != 0 ||
        !ng_io_workers_await(&under_way, 1, ng_clock_mono_ns() + 60 * NG_S))
        abort();
}
