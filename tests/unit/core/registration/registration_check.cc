/*
 * What is told of a program's own registrations, and of memory that is freed too early.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

extern "C" {
#include "core/registration/registration_check.h"
#include "core/unwind/call_site.h"
}

namespace
{

/* Places in the program: any addresses, each its own. */
const void *place()
{
    static std::atomic<uintptr_t> next{0x1000};
    return reinterpret_cast<const void *>(next += 16);
}

void *at(uintptr_t address)
{
    return reinterpret_cast<void *>(address);
}

struct RegistrationCheck : testing::Test {
    static void SetUpTestSuite()
    {
        made_begin(2000);
    }
    void SetUp() override
    {
        comm_ = made_handle();
        made_init(0, comm_, 2, 0, nullptr, ncclSuccess);
        for (unsigned i = 0; i < NG_REGISTRATION_FAULTS; i++)
            before_[i] = ng_registration_check_found((enum ng_registration_fault)i);
    }
    void TearDown() override
    {
        made_calls.held = false;
    }
    void make(uintptr_t base, size_t bytes, void *handle)
    {
        ng_registration_check_made(made_comm(comm_), at(base), bytes, handle, place());
    }
    void end(void *handle)
    {
        ng_registration_check_ending(made_comm(comm_), handle, place());
    }
    uint64_t found(enum ng_registration_fault fault)
    {
        return ng_registration_check_found(fault) - before_[fault];
    }
    uint64_t found_any()
    {
        uint64_t sum = 0;
        for (unsigned i = 0; i < NG_REGISTRATION_FAULTS; i++)
            sum += found((enum ng_registration_fault)i);
        return sum;
    }
    void *comm_;
    uint64_t before_[NG_REGISTRATION_FAULTS];
};

} // namespace

TEST_F(RegistrationCheck, ARightProgramHearsNothing)
{
    make(0x100000, 4096, at(0x51));
    make(0x200000, 4096, at(0x52));
    end(at(0x51));
    ng_registration_check_freeing(0x100000, 4096, true, place());
    make(0x100000, 4096, at(0x51));
    end(at(0x51));
    end(at(0x52));
    EXPECT_EQ(found_any(), 0u);
}

TEST_F(RegistrationCheck, TheSameRangeTwiceIsTold)
{
    make(0x100000, 4096, at(0x51));
    make(0x100000, 8192, at(0x52)); /* another range */
    EXPECT_EQ(found_any(), 0u);
    make(0x100000, 4096, at(0x51));
    EXPECT_EQ(found(NG_REGISTRATION_AGAIN), 1u);
    end(at(0x51));
    end(at(0x51)); /* NCCL counts: as often as it was registered */
    end(at(0x52));
    EXPECT_EQ(found_any(), 1u);
}

TEST_F(RegistrationCheck, AHandleThatIsNoneOrNoneAnyMoreIsTold)
{
    end(at(0x99));
    EXPECT_EQ(found(NG_REGISTRATION_UNKNOWN), 1u);
    make(0x100000, 4096, at(0x51));
    end(at(0x51));
    end(at(0x51));
    EXPECT_EQ(found(NG_REGISTRATION_UNKNOWN), 2u);
    end(nullptr); /* NCCL takes it */
    EXPECT_EQ(found(NG_REGISTRATION_UNKNOWN), 2u);
}

TEST_F(RegistrationCheck, RegisteredMemoryThatIsFreedIsTold)
{
    make(0x100000, 4096, at(0x51));
    ng_registration_check_freeing(0x101000, 4096, false, place());
    EXPECT_EQ(found_any(), 0u) << "beside it";
    ng_registration_check_freeing(0x0ff000, 0x1800, false, place());
    EXPECT_EQ(found(NG_REGISTRATION_FREED), 1u);
    end(at(0x51));
}

TEST_F(RegistrationCheck, ACommunicatorThatHasEndedKeepsNothingRegistered)
{
    make(0x100000, 4096, at(0x51));
    made_destroy(0, comm_, ncclSuccess);
    ng_registration_check_freeing(0x100000, 4096, true, place());
    EXPECT_EQ(found_any(), 0u);
}

TEST_F(RegistrationCheck, MemoryThatACollectiveUsesIsToldOnlyWhileItIsInFlight)
{
    void *stream = made_stream(0);
    EXPECT_EQ(made_reduce(comm_, stream, at(0x300000), 4096, nullptr, nullptr), ncclSuccess);
    ng_registration_check_freeing(0x300000, 4096, true, place());
    EXPECT_EQ(found_any(), 0u) << "the device is through, whether or not the watchdog has seen it";
    made_calls.held = true;
    EXPECT_EQ(made_reduce(comm_, stream, at(0x300000), 4096, nullptr, nullptr), ncclSuccess);
    ng_registration_check_freeing(0x301000, 4096, true, place());
    ng_registration_check_freeing(0x300000, 4096, false, place());
    EXPECT_EQ(found_any(), 0u) << "other memory, and a free that waits";
    ng_registration_check_freeing(0x300800, 16, true, place());
    EXPECT_EQ(found(NG_REGISTRATION_IN_USE), 1u);
}

TEST(CallSite, NamesFunctionsOfTheirFiles)
{
    char text[NG_CALL_SITE_BYTES];

    /* A return address lies behind the call. */
    ng_call_site_name((uintptr_t)&ng_call_site_name + 4, text);
    EXPECT_EQ(std::string(text), "ng_call_site_name+0x4 (test_registration_check)");
    EXPECT_EQ(std::string(ng_call_site_name(16, text)), "0x10");
    EXPECT_EQ(ng_call_site_find((const void *)16), 16u) << "where there is no way up: as it came";
}
