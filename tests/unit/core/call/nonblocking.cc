/*
 * Communicators that the guard makes nonblocking: what NCCL is asked for, and what the program
 * sees.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"
#include "tests/unit/core/helpers/made_nonblocking.h"

#include <nccl.h>

namespace
{

unsigned seen_inside;

struct Nonblocking : testing::Test {
    static void SetUpTestSuite()
    {
        made_begin(2000);
    }
    void SetUp() override
    {
        static uintptr_t next = 100;
        handle_ = reinterpret_cast<void *>(next++ << 12);
        unsetenv("NCCL_COMM_BLOCKING");
        made_settings()->init = NG_INIT_NONBLOCKING;
        made_progress(0, ncclSuccess);
    }
    void TearDown() override
    {
        made_questions_tell(nullptr);
        made_progress(0, ncclSuccess);
    }
    void *handle_, *comm_ = nullptr;
};

} // namespace

TEST_F(Nonblocking, WithoutAConfigurationNcclGetsTheHeadThatAllReleasesKnow)
{
    ASSERT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSuccess);
    size_t bytes;
    auto config = static_cast<const ncclConfig_t *>(made_config(&bytes));
    EXPECT_EQ(bytes, offsetof(ncclConfig_t, cgaClusterSize));
    EXPECT_EQ(config->magic, 0xcafebeefu);
    EXPECT_EQ(config->version, 21400u);
    EXPECT_EQ(config->blocking, 0);
    EXPECT_TRUE(made_nb_is_converted(comm_));
}

TEST_F(Nonblocking, ACallersConfigurationIsCopiedByItsOwnSizeAndVersion)
{
    struct {
        ncclConfig_t known;
        unsigned char newer[64]; /* of a release newer than any that is known here */
    } config;
    config.known = NCCL_CONFIG_INITIALIZER;
    memset(config.newer, 0x5a, sizeof(config.newer));
    config.known.size = sizeof(config);
    config.known.version = 29900;
    config.known.minCTAs = 3;
    ASSERT_EQ(made_nb_init(&comm_, handle_, &config), ncclSuccess);
    size_t bytes;
    const void *seen = made_config(&bytes);
    ASSERT_EQ(bytes, sizeof(config));
    auto wanted = config;
    wanted.known.blocking = 0;
    EXPECT_EQ(memcmp(seen, &wanted, offsetof(ncclConfig_t, netName)), 0);
    EXPECT_EQ(memcmp(static_cast<const char *>(seen) + sizeof(ncclConfig_t), config.newer,
                     sizeof(config.newer)),
              0);
    EXPECT_NE(config.known.blocking, 0) << "the program's own is left as it was";
}

TEST_F(Nonblocking, InProgressIsHiddenAndTheThreadIsSeenInsideItsCall)
{
    made_progress(300, ncclSuccess);
    seen_inside = 0;
    made_questions_tell([] { seen_inside = made_nb_op_inside(); });
    unsigned before = made_questions();
    EXPECT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSuccess);
    EXPECT_GE(made_questions() - before, 301u);
    EXPECT_NE(seen_inside, 0u);
    EXPECT_EQ(made_nb_op_inside(), 0u);
    made_progress(100, ncclSuccess);
    EXPECT_EQ(made_nb_all_reduce(comm_), ncclSuccess);
    EXPECT_TRUE(made_await_completed(comm_, 1));
}

TEST_F(Nonblocking, AnErrorThatComesLaterIsWhatTheCallReturns)
{
    made_progress(10, ncclRemoteError);
    EXPECT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclRemoteError);
}

TEST_F(Nonblocking, WhatTheProgramMakesNonblockingItselfIsLeftAlone)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    made_progress(1, ncclSuccess);
    EXPECT_EQ(made_nb_init(&comm_, handle_, &config), ncclInProgress);
    EXPECT_NE(made_nb_op_inside(), 0u) << "it is seen inside until it hears";
    int state = -1;
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_NE(made_nb_op_inside(), 0u);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_EQ(made_nb_op_inside(), 0u);
    EXPECT_FALSE(made_nb_is_converted(comm_));
    EXPECT_EQ(made_nb_all_reduce(comm_), ncclInProgress);
    EXPECT_EQ(made_newest_record().state, NG_RECORD_ENTERED);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_TRUE(made_await_completed(comm_, 1));
}

TEST_F(Nonblocking, ASplitThatReturnsSuccessWhileItIsUnderWayIsKnownOnceItsHandleIs)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    void *child = nullptr;
    int state = -1;
    ASSERT_EQ(made_nb_init(&comm_, handle_, &config), ncclInProgress);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    made_progress(1, ncclSuccess);
    EXPECT_EQ(made_nb_split_later(comm_, &child), ncclSuccess);
    child = static_cast<char *>(handle_) + 64; /* NCCL's thread */
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    EXPECT_TRUE(made_group_of(child, nullptr)) << "without any call on it";
}

TEST_F(Nonblocking, TheEnvironmentOverrules)
{
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    EXPECT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSuccess);
    EXPECT_FALSE(made_nb_is_converted(comm_));
}

TEST_F(Nonblocking, ChildrenAreWhatTheirParentIs)
{
    void *child = nullptr, *other = nullptr, *second = nullptr;
    ASSERT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSuccess);
    EXPECT_EQ(made_nb_split(comm_, &child, static_cast<char *>(handle_) + 64), ncclSuccess);
    EXPECT_TRUE(made_nb_is_converted(child));
    made_settings()->init = NG_INIT_WATCH;
    ASSERT_EQ(made_nb_init(&other, static_cast<char *>(handle_) + 128, nullptr), ncclSuccess);
    made_settings()->init = NG_INIT_NONBLOCKING;
    made_nb_split(other, &second, static_cast<char *>(handle_) + 192);
    EXPECT_FALSE(made_nb_is_converted(second));
}

TEST_F(Nonblocking, WhoAsksForTheStateNeverHearsOfProgress)
{
    int state = -1;
    ASSERT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSuccess);
    made_progress(1, ncclSuccess);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    made_progress(0, ncclSystemError);
    EXPECT_EQ(made_nb_state(comm_, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSystemError);
}

TEST_F(Nonblocking, AnAbortEndsTheWait)
{
    made_progress(-1, ncclSuccess);
    unsigned before = made_questions();
    std::thread other([before] {
        while (made_questions() < before + 200)
            std::this_thread::yield();
        EXPECT_EQ(made_nb_abort("an order"), 0);
    });
    EXPECT_EQ(made_nb_init(&comm_, handle_, nullptr), ncclSystemError);
    other.join();
    made_progress(0, ncclSuccess);
    void *next = nullptr;
    EXPECT_EQ(made_nb_init(&next, static_cast<char *>(handle_) + 64, nullptr), ncclSuccess)
        << "a second attempt works";
}

/* The last: nothing is converted in this process any more. */
TEST_F(Nonblocking, ZAfterInitAllNewOnesBlock)
{
    void *next = nullptr;
    ASSERT_EQ(made_nb_init_all(&comm_, handle_), ncclSuccess);
    ASSERT_EQ(made_nb_init(&next, static_cast<char *>(handle_) + 64, nullptr), ncclSuccess);
    EXPECT_FALSE(made_nb_is_converted(next));
}
