/*
 * Jobs that tests of verdicts begin with.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_VERDICT_JOBS_H
#define NCCLGUARD_TESTS_UNIT_CORE_VERDICT_JOBS_H

#include "tests/unit/core/helpers/job.h"

constexpr uint64_t WORLD = 0xd;

inline std::vector<int> all_but(int ranks, const std::vector<int> &left_out)
{
    std::vector<int> rest;
    for (int rank = 0; rank < ranks; rank++)
        if (std::find(left_out.begin(), left_out.end(), rank) == left_out.end())
            rest.push_back(rank);
    return rest;
}

/* Six rounds done by all; in the seventh everybody but `absent` waits. */
inline Job waiting_for(int ranks, const std::vector<int> &absent)
{
    Job job(ranks, WORLD, "dp", 6);
    job.wait(WORLD, all_but(ranks, absent));
    return job;
}

/* Sizes, and a first, a middle and a last rank of each. */
inline std::vector<std::pair<int, int>> sizes_and_culprits()
{
    std::vector<std::pair<int, int>> pairs;
    for (int ranks : {2, 4, 8, 64})
        for (int culprit : std::set<int>{0, ranks / 2, ranks - 1})
            pairs.push_back({ranks, culprit});
    return pairs;
}

#endif
