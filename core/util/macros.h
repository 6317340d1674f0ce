/*
 * Small macros for what C has no words for: the elements of an array, in order or in search of one,
 * the smaller of two values, a lock until the end of a block.
 */
#ifndef NCCLGUARD_CORE_UTIL_MACROS_H
#define NCCLGUARD_CORE_UTIL_MACROS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Keep, in their order, the elements for which `condition`, an expression of the pointer `item`, is
 * true; `count`, a variable, becomes their number. */
#define NG_KEEP(item, array, count, condition)                                                     \
    do {                                                                                           \
        __typeof__((count) + 0) kept_ = 0;                                                         \
        NG_EACH (item, array, count)                                                               \
            if (condition)                                                                         \
                (array)[kept_++] = *item;                                                          \
        (count) = kept_;                                                                           \
    } while (0)

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

/*
 * In a sorted array: of the indices from 0 to `count`, the first for which `is_before` is false;
 * `count` if it is true for all. `is_before` is an expression of the variable that `index` names;
 * once it is false for an index, it is false for all later ones. About log2(count) evaluations.
 */
#define NG_FIRST_INDEX(count, index, is_before)                                                    \
    ({                                                                                             \
        __typeof__((count) + 0) low_ = 0, high_ = (count);                                         \
        while (low_ < high_) {                                                                     \
            __typeof__(low_) index = low_ + (high_ - low_) / 2;                                    \
            if (is_before)                                                                         \
                low_ = index + 1;                                                                  \
            else                                                                                   \
                high_ = index;                                                                     \
        }                                                                                          \
        low_;                                                                                      \
    })

/* Shell sort of `count` elements, in place: qsort may call malloc, which the guard's threads must
 * not. `before` is an expression: does the element at pointer `a` come before that at pointer `b`?
 * Equal elements may end in any order. */
#define NG_SORT(array, count, before)                                                              \
    for (uint32_t gap_ = (count) / 2; gap_ > 0; gap_ /= 2)                                         \
        for (uint32_t i_ = gap_; i_ < (count); i_++) {                                             \
            const __typeof__((array)[0]) moving_ = (array)[i_];                                    \
            uint32_t k_ = i_;                                                                      \
            for (const __typeof__((array)[0]) *a = &moving_, *b;                                   \
                 k_ >= gap_ && (b = &(array)[k_ - gap_], (before)); k_ -= gap_)                    \
                (array)[k_] = (array)[k_ - gap_];                                                  \
            (array)[k_] = moving_;                                                                 \
        }

/* Lock a mutex until the block is left, in whatever way. Once a block. */
#define NG_HOLD(mutex)                                                                             \
    __attribute__((cleanup(ng_mutex_unlock), unused)) pthread_mutex_t *held_ =                     \
        (pthread_mutex_lock(mutex), (mutex))

static inline void ng_mutex_unlock(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

#endif
