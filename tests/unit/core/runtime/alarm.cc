/*
 * The queue of alarms: the gravest first, a deadline never lost to suspicions, none from before a
 * restart.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "core/runtime/alarm.h"
}

static struct ng_alarm alarm_of(enum ng_incident_level level, uint64_t group_id)
{
    struct ng_alarm alarm = {.level = level, .group_id = group_id, .restarts = ng_alarm_restarts()};
    return alarm;
}

/* The groups of what is taken, in order, until there is nothing more. */
static std::vector<uint64_t> taken()
{
    std::vector<uint64_t> groups;
    struct ng_alarm alarm;
    while (ng_alarm_take(&alarm))
        groups.push_back(alarm.group_id);
    return groups;
}

static void raise_one(enum ng_incident_level level, uint64_t group_id)
{
    struct ng_alarm alarm = alarm_of(level, group_id);
    ng_alarm_raise(&alarm);
}

TEST(Alarm, TheGravestIsTakenFirstAndElseTheOldest)
{
    raise_one(NG_INCIDENT_SUSPECT, 1);
    raise_one(NG_INCIDENT_TIMEOUT, 2);
    raise_one(NG_INCIDENT_SUSPECT, 3);
    raise_one(NG_INCIDENT_TIMEOUT, 4);
    EXPECT_EQ(taken(), (std::vector<uint64_t>{2, 4, 1, 3}));
}

TEST(Alarm, ADeadlineTakesThePlaceOfASuspicionWhereThereIsNoRoom)
{
    for (unsigned i = 0; i < NG_ALARMS_MAX; i++)
        raise_one(NG_INCIDENT_SUSPECT, i + 1);
    raise_one(NG_INCIDENT_SUSPECT, 1000);
    raise_one(NG_INCIDENT_TIMEOUT, 2000);
    std::vector<uint64_t> groups = taken();
    ASSERT_EQ(groups.size(), NG_ALARMS_MAX);
    EXPECT_EQ(groups[0], 2000u);
    EXPECT_EQ(std::count(groups.begin(), groups.end(), 1000u), 0);
    for (unsigned i = 0; i < NG_ALARMS_MAX; i++)
        raise_one(NG_INCIDENT_TIMEOUT, i + 1);
    raise_one(NG_INCIDENT_TIMEOUT, 3000);
    groups = taken();
    EXPECT_EQ(groups.size(), NG_ALARMS_MAX);
    EXPECT_EQ(std::count(groups.begin(), groups.end(), 3000u), 0);
}

TEST(Alarm, NoneFromBeforeARestartCounts)
{
    raise_one(NG_INCIDENT_TIMEOUT, 1);
    ng_alarm_restart();
    raise_one(NG_INCIDENT_SUSPECT, 2);
    EXPECT_EQ(taken(), std::vector<uint64_t>{2});
}
