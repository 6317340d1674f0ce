/*
 * NCCL's own variables, as a text that ranks compare.
 *
 * Must never write to the environment.
 */
#include "core/config/nccl_variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ng_nccl_variable table[] = {
#define NG_VARIABLE(name, at, among, why) {name, why, NG_VARIABLE_##at, NG_VARIABLE_OF_##among},
#include "core/config/nccl_variables.def"
#undef NG_VARIABLE
};
#define ROWS (sizeof(table) / sizeof(table[0]))

const struct ng_nccl_variable *ng_nccl_variables_get_table(size_t *ret_count)
{
    *ret_count = ROWS;
    return table;
}

/* Make a value safe for a text separated by spaces. */
static void make_plain(char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value <= ' ' || *value == 127)
            *value = '_';
}

void ng_nccl_variables_read(char *ret_text, size_t bytes)
{
    size_t used = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < ROWS; i++) {
        const char *value = getenv(table[i].name);
        if (!value)
            continue;
        int length = snprintf(ret_text + used, bytes - used, "%s%s=%s", used ? " " : "",
                              table[i].name, value);
        if (length < 0 || (size_t)length >= bytes - used) {
            ret_text[used] = '\0';
            return;
        }
        make_plain(ret_text + used + (used ? 1 : 0));
        used += (size_t)length;
    }
}

bool ng_nccl_variables_find(const char *text, const char *name, char *ret_value, size_t bytes)
{
    size_t length = strlen(name);

    for (const char *at = text; *at;) {
        size_t whole = strcspn(at, " ");
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(ret_value, bytes, "%.*s", (int)(whole - length - 1), at + length + 1);
            return true;
        }
        at += whole;
        at += strspn(at, " ");
    }
    return false;
}
