/*
 * Sorting in place, without memory: qsort may call malloc, which the guard's threads must not.
 *
 * Pure.
 */
#ifndef NCCLGUARD_CORE_UTIL_SORT_H
#define NCCLGUARD_CORE_UTIL_SORT_H

#include <stdint.h>

/* Shell sort of `count` elements. `before` is an expression: does the element at pointer `a` come
 * before that at pointer `b`? Equal elements may end in any order. */
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

#endif
