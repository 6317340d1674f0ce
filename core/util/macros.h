/*
 * Small macros for what C has no words for: the elements of an array, the smaller of two values, a
 * lock until the end of a block.
 */
#ifndef NCCLGUARD_CORE_UTIL_MACROS_H
#define NCCLGUARD_CORE_UTIL_MACROS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* How many elements an array has (not a pointer to its first). */
#define NG_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A loop over `count` elements, read once: `item` points to one after the other. The array may be
 * NULL if it has none. */
#define NG_EACH(item, array, count)                                                                \
    for (__typeof__((array)[0]) *item = (array), *item##_end = item ? item + (count) : item;       \
         item < item##_end; item++)

/* Is `condition`, an expression of the pointer `item`, true for any element? */
#define NG_ANY(item, array, count, condition) (NG_FIND(item, array, count, condition) != NULL)

/* The first element for which `condition`, an expression of the pointer `item`, is true; NULL if
 * there is none. */
#define NG_FIND(item, array, count, condition)                                                     \
    ({                                                                                             \
        __typeof__((array)[0]) *found_ = NULL;                                                     \
        NG_EACH (item, array, count)                                                               \
            if (condition) {                                                                       \
                found_ = item;                                                                     \
                break;                                                                             \
            }                                                                                      \
        found_;                                                                                    \
    })

#define NG_MIN(a, b)                                                                               \
    ({                                                                                             \
        __typeof__(1 ? (a) + 0 : (b) + 0) a_ = (a), b_ = (b);                                      \
        a_ < b_ ? a_ : b_;                                                                         \
    })
#define NG_MAX(a, b)                                                                               \
    ({                                                                                             \
        __typeof__(1 ? (a) + 0 : (b) + 0) a_ = (a), b_ = (b);                                      \
        a_ > b_ ? a_ : b_;                                                                         \
    })

/* For qsort and bsearch: less than 0 if a comes before b, 0 if they are alike, else greater. */
#define NG_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Lock a mutex until the block is left, in whatever way. Once a block. */
#define NG_HOLD(mutex)                                                                             \
    __attribute__((cleanup(ng_mutex_unlock), unused)) pthread_mutex_t *held_ =                     \
        (pthread_mutex_lock(mutex), (mutex))

static inline void ng_mutex_unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

#endif
