/*
 * Commands as records, and back.
 *
 * Pure: any thread. Must never change the form: other releases read and write it.
 */
#include "store/wire/command_record.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((struct ng_command *)0)->path) == sizeof(((struct ng_incident *)0)->line) &&
                   sizeof(((struct ng_command *)0)->line) ==
                       sizeof(((struct ng_incident *)0)->line),
               "a record has one text, and room for either");

void ng_command_record(const struct ng_command *command, struct ng_incident *ret_record)
{
    /* A dump has a folder and no text to log, the others the reverse. */
    const char *text = command->kind == NG_COMMAND_DUMP ? command->path : command->line;

    *ret_record =
        (struct ng_incident){.source = command->source,
                             .level = (enum ng_incident_level)(NG_INCIDENT_TIMEOUT + command->kind),
                             .state = NG_INCIDENT_JUDGED,
                             .group_id = command->group_id,
                             .claimant_rank = -1,
                             .claimed_mono_ns = command->given_mono_ns,
                             .stalled_ns = command->for_ns};
    if (command->kind == NG_COMMAND_DUMP)
        ret_record->seq = (uint64_t)(command->rank + 1);
    memcpy(ret_record->line, text, strnlen(text, sizeof(ret_record->line) - 1));
}

bool ng_record_is_sound_command(const struct ng_incident *record)
{
    return ng_record_is_command(record) && record->level < NG_RECORD_LEVEL_LIMIT &&
           record->state == NG_INCIDENT_JUDGED && record->seq <= INT32_MAX &&
           record->stalled_ns >= 0;
}

void ng_record_news(const struct ng_incident *record, struct ng_news *ret_news)
{
    ret_news->epoch = record->epoch;
    ret_news->is_command = ng_record_is_command(record);
    if (!ret_news->is_command) {
        ret_news->incident = *record;
        return;
    }
    struct ng_command *command = &ret_news->command;
    *command =
        (struct ng_command){.kind = (enum ng_command_kind)(record->level - NG_INCIDENT_TIMEOUT),
                            .source = record->source,
                            .group_id = record->group_id,
                            .rank = (int32_t)record->seq - 1,
                            .for_ns = record->stalled_ns,
                            .given_mono_ns = record->claimed_mono_ns};
    memcpy(command->kind == NG_COMMAND_DUMP ? command->path : command->line, record->line,
           sizeof(record->line));
}
