/*
 * News of a board as the records that they were, in which tests compare them.
 */
#ifndef NCCLGUARD_TESTS_UNIT_STORE_BOARD_RECORD_H
#define NCCLGUARD_TESTS_UNIT_STORE_BOARD_RECORD_H

#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "store/wire/command_record.h"
}

/* The level of a record that commands an abort. */
constexpr auto RECORD_ABORT = (enum ng_incident_level)(NG_INCIDENT_TIMEOUT + NG_COMMAND_ABORT);

static inline struct ng_incident record_of(const struct ng_news &news)
{
    if (!news.is_command)
        return news.incident;
    struct ng_incident record;
    ng_command_record(&news.command, &record);
    record.epoch = news.epoch;
    return record;
}

#endif
