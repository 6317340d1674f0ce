/* Of a file without a symbol table: what is not exported has no name. */
#include "tests/unit/core/helpers/stuck.h"

__attribute__((noinline)) static int nameless(stuck_call *call, int fd)
{
    return call(fd) + 0;
}

__attribute__((visibility("default"))) int stuck_through_stripped(stuck_call *call, int fd)
{
    return nameless(call, fd);
}
