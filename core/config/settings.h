/*
 * What a process is set to, as text for its black box: the guard's own options as they hold, with
 * where each comes from, and the variables of the environment by which NCCL, CUDA and the launcher
 * decide.
 *
 * A line "NAME\tFROM\tVALUE\n" each: first the options, in the order of config.def, with FROM
 * "default", "environment" or "launcher", or "command" of what `ncclguard set` has changed; then
 * the variables by name, with FROM "". What may be a secret is "***". A long value is cut and ends
 * in "..."; if variables do not fit, the last line is "\t\tN\n", with their number. No control
 * character besides these.
 *
 * Pure, except that the writer reads the environment it is given.
 */
#ifndef NCCLGUARD_CORE_CONFIG_SETTINGS_H
#define NCCLGUARD_CORE_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/config/config.h"
#include "core/config/launch.h"
#include "core/config/settable.h"

#define NG_SETTINGS_BYTES 12288u /* of the whole text, with its NUL */

/* Where the values of a process are. */
struct ng_settings_source {
    const struct ng_config *config;
    const struct ng_launch *launch;
    const char *store;          /* NCCLGUARD_STORE without passwords */
    const char *dir, *dump_dir; /* as they hold; "" none */
    char *const *environment;   /* like environ; NULL none */
};

/* Write them all; `bytes` at least 1. Neither allocates nor locks. */
void ng_settings_write(const struct ng_settings_source *source, char *ret_text, size_t bytes);

struct ng_setting {
    char name[64];
    char from[16];   /* "" of a variable */
    char value[256]; /* of the last line: how many variables were left out */
};

/* The next line of such a text, of which *at becomes the end. False: there is no other. Any text
 * may be read: what is no line of that form is skipped. */
bool ng_settings_next(const char **at, struct ng_setting *ret_setting);

/* Such a text with the values that commands have set since it was written, which go at its end if
 * it does not have them. NG_SETTINGS_MORE_BYTES more than `from` has suffice; else the end is
 * missing. */
#define NG_SETTINGS_MORE_BYTES (64u * NG_SETTABLES)
void ng_settings_update(const char *from, const struct ng_settable_values *values, char *ret_text,
                        size_t bytes);

#endif
