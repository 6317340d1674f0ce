/*
 * Bounds of time in tests. A bound that was passed says something of the machine, too: tests/gate
 * repeats such a failure alone, and lets it pass then, as it does no other.
 */
#ifndef NCCLGUARD_TESTS_GTEST_IN_TIME_H
#define NCCLGUARD_TESTS_GTEST_IN_TIME_H

#include <gtest/gtest.h>

/* `took` is less than `bound`, in whatever unit both have. More may follow with <<. */
#define EXPECT_IN_TIME(took, bound) EXPECT_LT(took, bound) << "late: "

#endif
