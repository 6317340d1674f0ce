/*
 * A function that the library lacks fails with one clear line in the log, and nothing else happens.
 */
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/shim/declared.h"
#include "tests/unit/shim/probe.h"
#include "tests/unit/shim/recording_nccl.h"

struct Missing : testing::Test {
    void SetUp() override
    {
        probe_set_active(true);
        probe_clear();
    }

    static bool logged(const char *text)
    {
        return strstr(probe_log(), text) != nullptr;
    }
};

TEST_F(Missing, FailsWithInvalidUsageAndOneLine)
{
    EXPECT_EQ(ncclCommRevoke(nullptr, 0), ncclInvalidUsage);
    EXPECT_TRUE(logged("ncclCommRevoke came with NCCL 2.28.7")) << probe_log();
    EXPECT_TRUE(logged("libnccl.so.2 (NCCL 2.28.9) lacks it")) << probe_log();

    std::string before = probe_log();
    EXPECT_EQ(ncclCommRevoke(nullptr, 0), ncclInvalidUsage);
    EXPECT_EQ(before, probe_log());
}

TEST_F(Missing, NamesRcclFunctions)
{
    EXPECT_EQ(ncclAllToAllv(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, ncclInt8, nullptr,
                            nullptr),
              ncclInvalidUsage);
    EXPECT_TRUE(logged("ncclAllToAllv exists only in RCCL")) << probe_log();
}

TEST_F(Missing, WithoutAResultReturnsNothing)
{
    struct ncclTeam team = ncclTeamWorld(nullptr);

    EXPECT_EQ(team.nRanks, 0);
    EXPECT_EQ(team.rank, 0);
    EXPECT_EQ(team.stride, 0);
    EXPECT_EQ(ncclTeamRankToLsa(nullptr, team, 1), 0);
    EXPECT_NE(ncclGetLastError(nullptr), nullptr);
    ncclResetDebugInit();
    EXPECT_TRUE(logged("ncclTeamWorld came with NCCL 2.28.3")) << probe_log();
    EXPECT_TRUE(logged("ncclTeamRankToLsa came with NCCL 2.28.3")) << probe_log();
    EXPECT_TRUE(logged("ncclGetLastError came with NCCL 2.13")) << probe_log();
    EXPECT_TRUE(logged("ncclResetDebugInit came with NCCL 2.24")) << probe_log();
}

TEST_F(Missing, TheRestWorks)
{
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr), ncclSuccess);
    EXPECT_EQ(recording_of(RECORDING_AllReduce).calls, 1u);
    EXPECT_STREQ(probe_log(), "");
}
