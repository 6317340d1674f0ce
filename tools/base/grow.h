/*
 * Arrays that grow.
 */
#ifndef NCCLGUARD_TOOLS_BASE_GROW_H
#define NCCLGUARD_TOOLS_BASE_GROW_H

#include <stdbool.h>
#include <stdlib.h>

/* Room for one more behind `used` elements of an array that has `room`, a variable of any unsigned
 * type. False: memory is short, and all is as it was. */
#define NG_GROW(array, used, room)                                                                 \
    ({                                                                                             \
        bool ng_fits = (used) < (room);                                                            \
        size_t ng_wanted = (room) ? 2 * (size_t)(room) : 16;                                       \
        void *ng_bigger = ng_fits ? NULL : reallocarray((array), ng_wanted, sizeof(*(array)));     \
        if (ng_bigger) {                                                                           \
            (array) = ng_bigger;                                                                   \
            (room) = (__typeof__(room))ng_wanted;                                                  \
        }                                                                                          \
        ng_fits || ng_bigger;                                                                      \
    })

#endif
