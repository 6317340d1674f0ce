/* Time, and figures in their order. */
#ifndef NCCLGUARD_TESTS_BENCH_FIGURES_H
#define NCCLGUARD_TESTS_BENCH_FIGURES_H

#include <stdlib.h>
#include <time.h>

static inline double bench_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), bench_by_value);
}

/* Sorts them. */
static inline double bench_median(double *values, size_t count)
{
    bench_sort(values, count);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#endif
