/* Calls of NCCL by ordinary symbols: linked into a program, or into a plugin that is loaded with
 * whatever scope the test asks for. */
#include "tests/programs/doors.h"

#define EXPORT __attribute__((visibility("default")))

/* Exported one by one as well, for callers that are not written in C. */
#define DOOR(type, name, parameters, arguments)                                                    \
    EXPORT type plugin_nccl##name parameters;                                                      \
    type plugin_nccl##name parameters                                                              \
    {                                                                                              \
        return nccl##name arguments;                                                               \
    }
DOORS_NCCL(DOOR)
#undef DOOR

EXPORT void doors_linked(struct doors_nccl *ret_nccl)
{
#define DOOR(type, name, parameters, arguments) ret_nccl->name = plugin_nccl##name;
    DOORS_NCCL(DOOR)
#undef DOOR
}
