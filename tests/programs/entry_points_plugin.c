/* Calls of NCCL by ordinary symbols: linked into a program, or into a plugin that is loaded with
 * whatever scope the test asks for. */
#include "tests/programs/entry_points.h"

#define EXPORT __attribute__((visibility("default")))

/* Exported one by one as well, for callers that are not written in C. */
#define ENTRY_POINT(type, name, parameters, arguments)                                             \
    EXPORT type plugin_nccl##name parameters;                                                      \
    type plugin_nccl##name parameters                                                              \
    {                                                                                              \
        return nccl##name arguments;                                                               \
    }
ENTRY_POINTS_NCCL(ENTRY_POINT)
#undef ENTRY_POINT

EXPORT void entry_points_linked(struct entry_points_nccl *ret_nccl)
{
#define ENTRY_POINT(type, name, parameters, arguments) ret_nccl->name = plugin_nccl##name;
    ENTRY_POINTS_NCCL(ENTRY_POINT)
#undef ENTRY_POINT
}
