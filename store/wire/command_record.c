/*
 * Commands as records, and back.
 *
 * Pure: any thread. Must never change the form: other releases read and write it.
 */
#include "store/wire/command_record.h"

#include <string.h>

#include "core/config/settable.h"

_Static_assert(sizeof(((struct ng_command *)0)->path) == sizeof(((struct ng_incident *)0)->line) &&
                   sizeof(((struct ng_command *)0)->line) ==
                       sizeof(((struct ng_incident *)0)->line),
               "a record has one text, and room for either");

_Static_assert(NG_SETTABLES <= NG_COMMAND_SETTABLES, "a command has a value for each");

/* The values of a command as one number, 0 that of no value; and back. */
static uint64_t pack_set(const uint8_t set[NG_COMMAND_SETTABLES])
{
    uint64_t packed = 0;

    for (unsigned i = 0; i < NG_COMMAND_SETTABLES; i++)
        packed |= (uint64_t)set[i] << 8 * i;
    return packed;
}

static void unpack_set(uint64_t packed, uint8_t ret_set[NG_COMMAND_SETTABLES])
{
    for (unsigned i = 0; i < NG_COMMAND_SETTABLES; i++)
        ret_set[i] = (uint8_t)(packed >> 8 * i);
}

/* Some option is set, and each to one of its values? */
static bool is_sound_set(uint64_t packed)
{
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (!ng_settable_has_value((enum ng_settable)i, packed >> 8 * i & UINT8_MAX))
            return false;
    return packed && packed >> 8 * NG_SETTABLES == 0;
}

static enum ng_command_kind kind_of(const struct ng_incident *record)
{
    return (enum ng_command_kind)(record->level - NG_INCIDENT_TIMEOUT);
}

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
    if (command->kind == NG_COMMAND_SET)
        ret_record->seq = pack_set(command->set);
    memcpy(ret_record->line, text, strnlen(text, sizeof(ret_record->line) - 1));
}

bool ng_record_is_sound_command(const struct ng_incident *record)
{
    return ng_record_is_command(record) && record->level < NG_RECORD_LEVEL_LIMIT &&
           record->state == NG_INCIDENT_JUDGED && record->seq <= INT32_MAX &&
           record->stalled_ns >= 0 &&
           (kind_of(record) != NG_COMMAND_SET || is_sound_set(record->seq));
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
    *command = (struct ng_command){.kind = kind_of(record),
                                   .source = record->source,
                                   .group_id = record->group_id,
                                   .rank = (int32_t)record->seq - 1,
                                   .for_ns = record->stalled_ns,
                                   .given_mono_ns = record->claimed_mono_ns};
    if (command->kind == NG_COMMAND_SET) {
        command->rank = -1;
        unpack_set(record->seq, command->set);
    }
    memcpy(command->kind == NG_COMMAND_DUMP ? command->path : command->line, record->line,
           sizeof(record->line));
}
