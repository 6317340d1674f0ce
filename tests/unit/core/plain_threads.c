/*
 * What core/guard.h has is C's.
 */
#include "tests/unit/core/plain_threads.h"

#include "core/guard.h"

static void adopt_nothing(void)
{
}

void allow_plain_threads(void)
{
    ng_guard.adopt_thread = adopt_nothing;
}
