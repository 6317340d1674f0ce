/*
 * Options that an operator may change while a job runs: `ncclguard set`.
 *
 * Pure. Their values travel and are kept as numbers: of each settable option the index of its word
 * in config.def, plus 1; 0: it stays, or nobody has set it.
 */
#ifndef NCCLGUARD_CORE_CONFIG_SETTABLE_H
#define NCCLGUARD_CORE_CONFIG_SETTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers are for ever: other releases read them. */
enum ng_settable { NG_SETTABLE_LOG, NG_SETTABLE_TIMING, NG_SETTABLES };

struct ng_settable_values {
    uint8_t of[NG_SETTABLES];
};

struct ng_option;

/* What a user writes: "log", "timing". */
const char *ng_settable_name(enum ng_settable settable);

/* Its row in config.def, of type CHOICE. */
const struct ng_option *ng_settable_option(enum ng_settable settable);

/* The one of this name, or whose variable has it; NG_SETTABLES: none. */
enum ng_settable ng_settable_find(const char *name);

/* Does an option have this value, or is it 0? For values from outside. */
bool ng_settable_has_value(enum ng_settable settable, uint64_t value);

/* "timing=all, log=debug"; "" nothing is set. Cut to fit; `bytes` at least 1. */
void ng_settable_describe(const struct ng_settable_values *values, char *ret_text, size_t bytes);

#endif
