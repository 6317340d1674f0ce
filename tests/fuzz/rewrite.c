/*
 * Writers of the library, apart from readers of the same names.
 */
#include "tests/fuzz/rewrite.h"

#include "core/report/dump.h"
#include "core/report/flight.h"

int rewrite_dumps(const struct ng_view *view, int fd)
{
    int error = 0;

    for (uint32_t i = 0; i < view->process_count && !error; i++) {
        error = ng_dump_write_process(view, i, fd);
        if (!error)
            error = ng_flight_write(view, i, ng_dump_rank(view, i), fd);
    }
    return error;
}
