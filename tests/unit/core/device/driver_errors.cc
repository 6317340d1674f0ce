/*
 * What the driver is asked about the devices, when, for how long that may take, and what of it gets
 * into the black box.
 */
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/util/text.h"
#include "tests/unit/core/helpers/driver.h"
}

namespace
{

class Driver : public testing::Test
{
  protected:
    void SetUp() override
    {
        driver_begin();
    }
    /* As it is told, with the bus before it. */
    static std::vector<std::string> found()
    {
        struct ng_device_error errors[NG_DEVICE_ERRORS_MAX];
        std::vector<std::string> all;
        int64_t age_ms;
        uint32_t count = driver_found(errors, &age_ms);

        for (uint32_t i = 0; i < count; i++) {
            char words[256] = "";
            struct ng_text text = {words, 0, sizeof(words)};
            ng_device_error_tell(&text, &errors[i]);
            all.push_back(std::string(errors[i].pci_id).substr(5, 2) + " " + words);
        }
        return all;
    }
    static int64_t asked_ms_ago()
    {
        struct ng_device_error errors[NG_DEVICE_ERRORS_MAX];
        int64_t age_ms;

        driver_found(errors, &age_ms);
        return age_ms;
    }
    static std::vector<std::string> look_after(long ms)
    {
        driver.now_ms += ms;
        driver_look();
        return found();
    }
};
using Found = std::vector<std::string>;
} // namespace

TEST_F(Driver, IsAskedNothingUntilSomethingIsSuspected)
{
    driver_prepare();
    EXPECT_EQ(driver.asked, 2u) << "where counting begins";
    for (int round = 0; round < 100; round++)
        driver_prepare();
    EXPECT_EQ(driver.tasks, 1u);
    EXPECT_EQ(driver.asked, 2u);
    EXPECT_EQ(asked_ms_ago(), driver.now_ms - 1) << "nanosecond 1 of the host's clock";
}

TEST_F(Driver, WatchesADeviceOnceItIsKnown)
{
    driver.unknown = 1;
    driver_prepare();
    EXPECT_EQ(driver.tasks, 0u);
    driver.unknown = 0;
    driver_prepare();
    driver.comms = 4; /* on the same devices */
    driver_prepare();
    EXPECT_EQ(driver.tasks, 2u);
    EXPECT_EQ(driver.asked, 2u);
}

TEST_F(Driver, KnowsNothingOfHealthyDevices)
{
    driver_prepare();
    EXPECT_EQ(look_after(5000), Found{});
    driver.now_ms += 700;
    EXPECT_EQ(asked_ms_ago(), 700);
}

TEST_F(Driver, TellsWhatHasHappenedSinceTheFirstQuestion)
{
    driver.ecc = 17;
    driver.replays = 4;
    driver_prepare();
    driver.xid = 79;
    driver.ecc += 3;
    driver.replays += 2;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 79 (the device has fallen off the bus)",
                                       "11 uncorrected ECC errors: 3", "11 NVLink replays: 2"}));
    driver.xid = 79;
    driver.ecc += 1;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 79 (the device has fallen off the bus), 2 times",
                                       "11 uncorrected ECC errors: 4", "11 NVLink replays: 2"}));
}

/* As a Hopper tells them. */
TEST_F(Driver, AddsUpTheCountersOfLinks)
{
    driver.by_link = true;
    driver_prepare();
    driver.replays += 2;
    EXPECT_EQ(look_after(5000), (Found{"11 NVLink replays: 4"})) << "of two links";
}

TEST_F(Driver, AsksWithoutHavingBeenPrepared)
{
    driver.ecc = 17;
    EXPECT_EQ(look_after(0), Found{});
    driver.lost = true;
    EXPECT_EQ(look_after(5000), (Found{"11 NVML says that the device is lost"}));
}

TEST_F(Driver, IsAskedOnceForAllAlarmsOfASecond)
{
    driver_look();
    unsigned asked = driver.asked;
    look_after(500);
    EXPECT_EQ(driver.asked, asked);
    look_after(500);
    EXPECT_EQ(driver.asked, asked + 2);
}

TEST_F(Driver, TellsOfOtherProcessesWhileTheyAreThere)
{
    driver_prepare();
    driver.other = 4711;
    EXPECT_EQ(look_after(5000), (Found{"10 also computes there: process 4711"}));
    driver.other = 4712;
    EXPECT_EQ(look_after(5000), (Found{"10 also computes there: process 4712"}));
    driver.other = 0;
    EXPECT_EQ(look_after(5000), Found{});
}

/* In a container NVML may number processes as the host does. */
TEST_F(Driver, TellsOfNoProcessWhereItDoesNotFindItself)
{
    driver.other = 4711;
    driver.self = 99999999;
    EXPECT_EQ(look_after(0), Found{});
    driver.self = 0;
    EXPECT_EQ(look_after(5000), Found{});
}

TEST_F(Driver, MayLackWhatItIsAsked)
{
    driver.unsupported = driver.without_events = true;
    driver_prepare();
    driver.xid = 79;
    EXPECT_EQ(look_after(5000), Found{});
    driver.unsupported = false;
    driver.ecc = 5;
    EXPECT_EQ(look_after(5000), Found{}) << "counting begins with the first answer";
    driver.ecc = 6;
    EXPECT_EQ(look_after(5000), (Found{"11 uncorrected ECC errors: 1"}));
}

TEST_F(Driver, IsNotLookedForAgainIfThereIsNone)
{
    for (bool absent : {true, false}) {
        driver_begin();
        (absent ? driver.absent : driver.refuses) = true;
        driver_prepare();
        look_after(5000);
        look_after(5000);
        EXPECT_EQ(driver.opened, 1u);
        EXPECT_EQ(driver.asked, 0u);
        EXPECT_EQ(asked_ms_ago(), -1);
    }
}

TEST_F(Driver, HoldsNobodyUpForLongIfItHangs)
{
    driver_prepare();
    driver.hangs = true;
    int64_t begun = driver.now_ms;
    driver_begin_look();
    EXPECT_EQ(driver.now_ms, begun);
    driver_look();
    EXPECT_EQ(driver.now_ms - begun, 200);
    unsigned tasks = driver.tasks;
    begun = driver.now_ms += 5000;
    driver_look();
    EXPECT_EQ(driver.now_ms - begun, 200);
    EXPECT_EQ(driver.tasks, tasks) << "never twice at once";
    for (int i = 0; i < 10; i++) {
        begun = driver.now_ms += 5000;
        driver_look();
        EXPECT_EQ(driver.now_ms, begun) << "after two, nobody waits";
    }
}

TEST_F(Driver, WhoseAnswerComesLateIsHeard)
{
    driver_prepare();
    driver.hangs = true;
    driver_look();
    driver.xid = 119;
    driver_returns();
    EXPECT_EQ(found(), (Found{"11 Xid 119 (its system processor (GSP) does not answer)"}));
}

TEST_F(Driver, OfAParentIsNotUsed)
{
    driver_look();
    unsigned asked = driver.asked;
    driver_fork();
    driver_prepare();
    look_after(5000);
    EXPECT_EQ(driver.asked, asked);
}

TEST_F(Driver, IsHeardUntilItHasNoMoreToTell)
{
    driver_prepare();
    driver.flood = 1000;
    driver.xid = 79;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 13 (exception of a kernel), 1000 times",
                                       "11 Xid 79 (the device has fallen off the bus)"}));
}

TEST_F(Driver, IsHeardForABoundedTimeAndNumberOfEvents)
{
    driver_prepare();
    driver.flood = 2000;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 13 (exception of a kernel), 1024 times"}));
    driver.event_ms = 1;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 13 (exception of a kernel), 1074 times"}));
}

TEST_F(Driver, IsAskedNoMoreAfterASlowAnswer)
{
    driver_prepare();
    driver.ecc_ms = 100;
    unsigned asked = driver.asked;
    driver.other = 4711;
    EXPECT_EQ(look_after(5000), (Found{"10 also computes there: process 4711"}));
    EXPECT_EQ(driver.asked, asked + 2);
    driver.ecc_ms = 101;
    EXPECT_EQ(look_after(5000), Found{});
    EXPECT_EQ(driver.asked, asked + 3);
    EXPECT_EQ(asked_ms_ago(), 101) << "it was asked, so nobody waits for it";
    driver.ecc_ms = 0;
    driver.ecc++;
    EXPECT_EQ(look_after(5000),
              (Found{"10 also computes there: process 4711", "11 uncorrected ECC errors: 1"}));
}

/* To register takes as long as it takes; where a look does it, the next one begins anew. */
TEST_F(Driver, WatchesADeviceThatAnswersSlowly)
{
    driver.ecc_ms = 500;
    driver_prepare();
    EXPECT_EQ(driver.registered, 2u);
    driver_begin();
    driver.ecc_ms = 500;
    EXPECT_EQ(look_after(5000), Found{});
    EXPECT_EQ(driver.asked, 1u);
    EXPECT_EQ(driver.registered, 0u);
    driver.ecc_ms = 0;
    look_after(5000);
    EXPECT_EQ(driver.registered, 2u);
    driver.xid = 79;
    EXPECT_EQ(look_after(5000), (Found{"11 Xid 79 (the device has fallen off the bus)"}));
}

TEST_F(Driver, IsAskedNoMoreWhenTheProcessEnds)
{
    driver.ends = true;
    driver_prepare();
    EXPECT_EQ(driver.asked, 1u);
    EXPECT_EQ(driver.registered, 0u);
}

TEST_F(Driver, AnErrorThatStopsTheDeviceTakesThePlaceOfOneThatDoesNot)
{
    driver_prepare();
    for (unsigned xid : {201, 202, 203, 204, 205, 206, 95, 208, 79, 120, 209}) {
        driver.xid = xid;
        look_after(5000);
    }
    EXPECT_EQ(found(), (Found{"11 Xid 201", "11 Xid 202", "11 Xid 203", "11 Xid 204", "11 Xid 205",
                              "11 Xid 120 (error of its system processor (GSP))",
                              "11 Xid 95 (uncorrectable memory error, not contained)",
                              "11 Xid 79 (the device has fallen off the bus)"}));
}

/* More than there is room for: the first are kept, and errors keep processes out, not the other way
 * round. */
TEST_F(Driver, ErrorsThatHaveNoRoomAreDropped)
{
    driver_prepare();
    for (unsigned xid = 201; xid < 220; xid++) {
        driver.xid = xid;
        look_after(5000);
    }
    Found all = found();
    ASSERT_EQ(all.size(), (size_t)NG_DEVICE_ERRORS_MAX);
    EXPECT_EQ(all.front(), "11 Xid 201");
    EXPECT_EQ(all.back(), "11 Xid 208");
}

/* A reader copies the header thrice. */
TEST_F(Driver, AnErrorThatIsReplacedWhileAReaderCopiesItIsLeftOut)
{
    struct ng_device_error errors[NG_DEVICE_ERRORS_MAX];
    ASSERT_EQ(driver_found_by_reader(0, errors), 8u);
    EXPECT_EQ(errors[7].number, 208u);
    ASSERT_EQ(driver_found_by_reader(1, errors), 8u);
    EXPECT_EQ(errors[7].number, 79u);
    for (unsigned nth : {2, 3}) {
        ASSERT_EQ(driver_found_by_reader(nth, errors), 7u);
        EXPECT_EQ(errors[6].number, 207u);
    }
}

TEST(DeviceErrors, AreGraveIfTheDeviceWorksNoMore)
{
    const std::pair<struct ng_device_error, bool> rows[] = {
        {{NG_DEVICE_ERROR_XID, 79, 1, 0, ""}, true},
        {{NG_DEVICE_ERROR_XID, 95, 1, 0, ""}, true},
        {{NG_DEVICE_ERROR_XID, 119, 1, 0, ""}, true},
        {{NG_DEVICE_ERROR_XID, 120, 1, 0, ""}, true},
        {{NG_DEVICE_ERROR_XID, 9999, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_LOST, 0, 1, 0, ""}, true},
        {{NG_DEVICE_ERROR_XID, 31, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_XID, 48, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_XID, 63, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_XID, 74, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_XID, 94, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_XID, 140, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_ECC, 0, 9, 0, ""}, false},
        {{NG_DEVICE_ERROR_PROCESS, 79, 1, 0, ""}, false},
        {{NG_DEVICE_ERROR_NVLINK_REPLAY, 0, 9, 0, ""}, false}};

    for (const auto &[error, grave] : rows)
        EXPECT_EQ(ng_device_error_is_grave(&error), grave) << error.kind << " " << error.number;
}

TEST(DeviceErrors, HaveNamesThatAreReadBack)
{
    for (uint32_t kind = 1; kind < NG_DEVICE_ERROR_KINDS; kind++)
        EXPECT_EQ(ng_device_error_of_name(ng_device_error_name(kind)), (int)kind);
    EXPECT_EQ(ng_device_error_name(NG_DEVICE_ERROR_NONE), nullptr);
    EXPECT_EQ(ng_device_error_name(NG_DEVICE_ERROR_KINDS), nullptr);
    EXPECT_EQ(ng_device_error_of_name("xyz"), NG_DEVICE_ERROR_NONE);
    EXPECT_EQ(ng_device_error_of_name(nullptr), NG_DEVICE_ERROR_NONE);
}
