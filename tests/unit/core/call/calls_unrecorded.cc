/*
 * Calls on their way through core where the black box has no room for records: only the counters of
 * each communicator tell. A program of its own, since a process has one black box.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

TEST(CallPathWithoutRecords, AreUndoneWhereNcclRefusesThem)
{
    void *stream = made_stream(0);
    char handle;

    made_begin(0);
    made_init(0, &handle, 2, 0, nullptr, ncclSuccess);
    EXPECT_FALSE(made_is_usual()) << "the short way of a call writes a record";
    made_all_reduce(0, &handle, stream, ncclSuccess);
    struct made_group group = group_of(&handle);
    EXPECT_EQ(group.entered, 1u);
    EXPECT_NE(group.last_call, 0u);
    uint64_t hash = group.rolling_hash;
    EXPECT_NE(hash, 0u);

    made_group_start(0);
    for (int i = 0; i < 5; i++) {
        made_all_reduce(0, &handle, stream, ncclSuccess);
        made_send(0, &handle, stream, 1, ncclSuccess);
    }
    made_group_end(0, ncclInvalidArgument);
    group = group_of(&handle);
    EXPECT_EQ(group.entered, 1u);
    EXPECT_EQ(group.scheduled, 1u);
    EXPECT_EQ(group.p2p_entered, 0u);
    EXPECT_EQ(group.rolling_hash, hash);
    EXPECT_EQ(group.last_call, 0u) << "it was that of a call which did not happen";

    made_all_reduce(0, &handle, stream, ncclInvalidArgument);
    group = group_of(&handle);
    EXPECT_EQ(group.entered, 1u);
    EXPECT_EQ(group.last_call, 0u);
    EXPECT_EQ(group.rolling_hash, hash);

    made_all_reduce(0, &handle, stream, ncclSuccess);
    EXPECT_TRUE(made_await_completed(&handle, 2));
    group = group_of(&handle);
    EXPECT_NE(group.last_call, 0u);
    EXPECT_NE(group.rolling_hash, hash);
}
