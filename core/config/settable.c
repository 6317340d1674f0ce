/*
 * Options that an operator may change while a job runs.
 *
 * Pure: any thread.
 */
#include "core/config/settable.h"

#include <string.h>

#include "core/config/config.h"
#include "core/util/text.h"

static const struct {
    const char *name, *variable;
} settables[NG_SETTABLES] = {
    [NG_SETTABLE_LOG] = {"log", "NCCLGUARD_LOG"},
    [NG_SETTABLE_TIMING] = {"timing", "NCCLGUARD_TIMING"},
};

const char *ng_settable_name(enum ng_settable settable)
{
    return settables[settable].name;
}

const struct ng_option *ng_settable_option(enum ng_settable settable)
{
    return ng_config_find(settables[settable].variable);
}

enum ng_settable ng_settable_find(const char *name)
{
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (strcmp(name, settables[i].name) == 0 || strcmp(name, settables[i].variable) == 0)
            return (enum ng_settable)i;
    return NG_SETTABLES;
}

bool ng_settable_has_value(enum ng_settable settable, uint64_t value)
{
    uint64_t words = 1;

    for (const char *at = ng_settable_option(settable)->choices; *at; at++)
        words += *at == '|';
    return value <= words;
}

void ng_settable_describe(const struct ng_settable_values *values, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};
    char word[32];

    ret_text[0] = '\0';
    for (unsigned i = 0; i < NG_SETTABLES; i++) {
        if (!values->of[i])
            continue;
        ng_config_choice(ng_settable_option((enum ng_settable)i), values->of[i] - 1, word,
                         sizeof(word));
        ng_text_add(&text, "%s%s=%s", text.used ? ", " : "", settables[i].name, word);
    }
}
