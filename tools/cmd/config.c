/*
 * `ncclguard config`: every variable, from the option table in core.
 *
 * The table in docs/configuration.md is this command's --markdown output; a test compares them.
 */
#include <stdio.h>
#include <string.h>

#include "core/config/config.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"

enum { OPTION_MARKDOWN, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_MARKDOWN] = {"markdown", NULL, "print the table as docs/configuration.md has it"},
};

static const struct ng_usage usage = {
    .command = "config",
    .synopsis = "[--markdown]",
    .about = "Print every variable: name, type, default and meaning. The environment sets them;\n"
             "they are read once, when a process starts. NCCLGUARD_LIB, which says where the\n"
             "library is, is of this command alone.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard config`",
};

/* The permitted values: "duration", "off, error, warn". */
static void type_text(const struct ng_option *option, char *ret_text, size_t bytes)
{
    static const char *const names[] = {[NG_CONFIG_BOOL] = "0 or 1",
                                        [NG_CONFIG_INTEGER] = "number",
                                        [NG_CONFIG_DURATION] = "duration",
                                        [NG_CONFIG_CHOICE] = NULL,
                                        [NG_CONFIG_STRING] = "text"};
    size_t used = 0;

    if (option->type != NG_CONFIG_CHOICE) {
        snprintf(ret_text, bytes, "%s", names[option->type]);
        return;
    }
    ret_text[0] = '\0';
    for (const char *word = option->choices; word;) {
        int length = (int)strcspn(word, "=|");
        int written =
            snprintf(ret_text + used, bytes - used, "%s%.*s", used ? ", " : "", length, word);
        if (written < 0 || (size_t)written >= bytes - used)
            return;
        used += (size_t)written;
        word = strchr(word, '|');
        word = word ? word + 1 : NULL;
    }
}

static void print_row(bool markdown, const char *name, const char *type, const char *value,
                      const char *help, const char *remark)
{
    if (!markdown)
        printf("%-28s %-32s %-10s %s%s\n", name, type, *value ? value : "-", help, remark);
    else if (*value)
        printf("| `%s` | %s | `%s` | %s%s |\n", name, type, value, help, remark);
    else
        printf("| `%s` | %s | none | %s%s |\n", name, type, help, remark);
}

int ng_command_config(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    bool markdown = values[OPTION_MARKDOWN];
    if (markdown)
        printf("| name | type | default | meaning |\n|---|---|---|---|\n");
    else
        printf("%-28s %-32s %-10s %s\n", "name", "type", "default", "meaning");
    for (size_t i = 0; i < ng_option_count; i++) {
        char type[512];
        type_text(&ng_options[i], type, sizeof(type));
        print_row(markdown, ng_options[i].name, type,
                  ng_options[i].default_value ? ng_options[i].default_value : "",
                  ng_options[i].help, "");
    }
    for (size_t i = 0; i < ng_reserved_option_count; i++)
        print_row(markdown, ng_reserved_options[i].name, "-", ng_reserved_options[i].harmless,
                  ng_reserved_options[i].help, " (not in this version)");
    return NG_EXIT_OK;
}
