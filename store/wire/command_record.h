/*
 * Commands of an operator as records of the board.
 *
 * Pure. A board keeps commands in one row with incidents, and in the same form, so that guards and
 * tools of other releases read them: the levels above those of incidents are kinds of commands. The
 * form stays below this floor: to core, a command is a struct ng_command.
 */
#ifndef NCCLGUARD_STORE_WIRE_COMMAND_RECORD_H
#define NCCLGUARD_STORE_WIRE_COMMAND_RECORD_H

#include <stdbool.h>

#include "core/nccl/board.h"

/* Every level of a record, of an incident or a command, lies below. */
#define NG_RECORD_LEVEL_LIMIT (NG_INCIDENT_TIMEOUT + NG_COMMAND_LIMIT)

/* The record of a command, as it is written: complete, of nobody who could end. */
void ng_command_record(const struct ng_command *command, struct ng_incident *ret_record);

static inline bool ng_record_is_command(const struct ng_incident *record)
{
    return record->level > NG_INCIDENT_TIMEOUT;
}

/* A record from outside that is a command: is it one that a tool may have written? */
bool ng_record_is_sound_command(const struct ng_incident *record);

/* A sound record, of either sort, for core. */
void ng_record_news(const struct ng_incident *record, struct ng_news *ret_news);

#endif
