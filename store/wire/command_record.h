/*
 * Commands of an operator as records of the board.
 *
 * Pure. A board numbers commands together with incidents and stores them in the same form, so that
 * guards and tools of other releases can read them: levels above those of incidents are kinds of
 * commands. The form is private to store/: in core, a command is a struct ng_command.
 */
#ifndef NCCLGUARD_STORE_WIRE_COMMAND_RECORD_H
#define NCCLGUARD_STORE_WIRE_COMMAND_RECORD_H

#include <stdbool.h>

#include "core/nccl/board.h"

/* Every level of a record, of an incident or a command, is below this. */
#define NG_RECORD_LEVEL_LIMIT (NG_INCIDENT_TIMEOUT + NG_COMMAND_LIMIT)

/* The record of a command, as written: complete, and without a claimant that could end. */
void ng_command_record(const struct ng_command *command, struct ng_incident *ret_record);

static inline bool ng_record_is_command(const struct ng_incident *record)
{
    return record->level > NG_INCIDENT_TIMEOUT;
}

/* For a record from outside that is a command: may a tool have written it? */
bool ng_record_is_sound_command(const struct ng_incident *record);

/* A valid record, of either kind, in core's form. */
void ng_record_news(const struct ng_incident *record, struct ng_news *ret_news);

#endif
