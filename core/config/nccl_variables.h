/*
 * NCCL's own variables, as a text that ranks compare: "NAME=value" of those in
 * core/config/nccl_variables.def that are set, in the order of the table, separated by spaces.
 *
 * Pure, except ng_nccl_variables_read.
 */
#ifndef NCCLGUARD_CORE_CONFIG_NCCL_VARIABLES_H
#define NCCLGUARD_CORE_CONFIG_NCCL_VARIABLES_H

#include <stdbool.h>
#include <stddef.h>

enum ng_variable_at { NG_VARIABLE_MAKING, NG_VARIABLE_WORK };
enum ng_variable_among { NG_VARIABLE_OF_JOB, NG_VARIABLE_OF_HOST, NG_VARIABLE_OF_NOBODY };

struct ng_nccl_variable {
    const char *name, *why;
    enum ng_variable_at at;
    enum ng_variable_among among;
};

/* The table; *ret_count rows. */
const struct ng_nccl_variable *ng_nccl_variables_get_table(size_t *ret_count);

/* The text of this process's environment. If a variable does not fit, the text ends before it.
 * Called once, when the black box is made, before any thread of the guard. */
void ng_nccl_variables_read(char *ret_text, size_t bytes);

/* The value of `name` in such a text, up to its end or `bytes` - 1. False: it was not set. */
bool ng_nccl_variables_find(const char *text, const char *name, char *ret_value, size_t bytes);

#endif
