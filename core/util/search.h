/*
 * Search in sorted arrays.
 */
#ifndef NCCLGUARD_CORE_UTIL_SEARCH_H
#define NCCLGUARD_CORE_UTIL_SEARCH_H

/*
 * Of the indices from 0 to `count`, the first for which `is_before` is false; `count` if it is true
 * for all. `is_before` is an expression of the variable that `index` names; once it is false for an
 * index, it is false for all later ones. About log2(count) evaluations.
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

#endif
