/*
 * Growable arrays.
 */
#ifndef NCCLGUARD_TOOLS_BASE_GROW_H
#define NCCLGUARD_TOOLS_BASE_GROW_H

#include <stdbool.h>
#include <stdlib.h>

/* Make room for one more after `used` elements of an array that has `room`, a variable of any
 * unsigned type. False: out of memory, and nothing has changed. */
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

/* A new, empty element at the end of a short array of `count`, which counts it. NULL: out of
 * memory, and nothing has changed. */
#define NG_APPEND(array, count)                                                                    \
    ({                                                                                             \
        __typeof__(array) ng_longer =                                                              \
            reallocarray((array), (size_t)(count) + 1, sizeof(*(array)));                          \
        if (ng_longer) {                                                                           \
            (array) = ng_longer;                                                                   \
            ng_longer += (count)++;                                                                \
            *ng_longer = (__typeof__(*(array))){0};                                                \
        }                                                                                          \
        ng_longer;                                                                                 \
    })

#endif
