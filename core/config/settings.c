/*
 * What a process is set to, as text for its black box.
 *
 * Entered once per process, on a program thread, when the box is made; and by readers of the text.
 * Must never write a secret, nor allocate.
 */
#include "core/config/settings.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/util/macros.h"
#include "core/util/text.h"

#define VALUE_BYTES    200 /* of a value, with its NUL; longer ones are cut */
#define VARIABLES_MAX  512 /* what more there are is only counted */
#define LEFT_OUT_BYTES 16u /* of the last line */

/* Variables that matter, besides those of launchers, by how their names begin. */
static const char *const prefixes[] = {
    "NCCL_", "TORCH_NCCL_", "TORCH_FR_", "CUDA_", "NVIDIA_VISIBLE_DEVICES=", "FI_",
};

/* A name with one of these is that of a secret. NCCL_IB_PKEY is none. */
static const char *const secrets[] = {"_KEY",  "APIKEY", "SECRET",     "TOKEN",
                                      "PASSW", "PASSPH", "CREDENTIAL", "AUTH"};

/* A value with one of these has a secret behind it. */
static const char *const assignments[] = {"key=",        "secret=",     "token=", "passw",
                                          "passphrase=", "credential=", "auth=",  "sig=",
                                          "signature=",  "bearer "};

/* ---- Values ---- */

#define HAS_ONE_OF(text, words) NG_ANY(word, words, NG_COUNT(words), strcasestr(text, *word))

/* Cut, without control characters, and without what a URL has in front of its host. */
static void tidy(const char *name, const char *value, char ret_value[VALUE_BYTES])
{
    const char *scheme = strstr(value, "://"), *at = scheme ? strrchr(scheme, '@') : NULL;
    int used;

    if (*value && (HAS_ONE_OF(name, secrets) || HAS_ONE_OF(value, assignments))) {
        snprintf(ret_value, VALUE_BYTES, "***");
        return;
    }
    if (at)
        used = snprintf(ret_value, VALUE_BYTES, "%.*s***%s", (int)(scheme + 3 - value), value, at);
    else
        used = snprintf(ret_value, VALUE_BYTES, "%s", value);
    size_t length = ng_text_clean(ret_value, strlen(ret_value), false);
    if (used < VALUE_BYTES)
        return;
    length = NG_MIN(length, VALUE_BYTES - 4);
    ret_value[length] = '\0';
    length = ng_text_clean(ret_value, length, false);
    snprintf(ret_value + length, VALUE_BYTES - length, "...");
}

static void put_duration(int64_t ns, char *ret_text, size_t bytes)
{
    bool seconds = ns % NG_S == 0;

    if (ns % NG_MS == 0)
        snprintf(ret_text, bytes, "%" PRId64 "%s", ns / (seconds ? NG_S : NG_MS),
                 seconds ? "s" : "ms");
    else
        snprintf(ret_text, bytes, "%" PRId64 "ns", ns);
}

static void put_value(const struct ng_option *option, const struct ng_config *config,
                      char *ret_text, size_t bytes)
{
    const void *field = (const char *)config + option->offset;
    const char *text;

    switch (option->type) {
    case NG_CONFIG_BOOL:
        snprintf(ret_text, bytes, "%d", *(const bool *)field);
        return;
    case NG_CONFIG_INTEGER:
        snprintf(ret_text, bytes, "%" PRId64, *(const int64_t *)field);
        return;
    case NG_CONFIG_DURATION:
        put_duration(*(const int64_t *)field, ret_text, bytes);
        return;
    case NG_CONFIG_CHOICE:
        ng_config_choice(option, *(const int *)field, ret_text, bytes);
        return;
    case NG_CONFIG_STRING:
        text = *(const char *const *)field;
        snprintf(ret_text, bytes, "%s", text ? text : "");
        return;
    }
}

/* ---- Lines ---- */

/* False, and nothing is written: it does not fit, with room for the last line. */
static bool put_line(struct ng_text *text, const char *name, int name_bytes, const char *from,
                     const char *value)
{
    size_t more = (size_t)name_bytes + strlen(from) + strlen(value) + 3;

    if (text->used + more + LEFT_OUT_BYTES >= text->bytes)
        return false;
    ng_text_add(text, "%.*s\t%s\t%s\n", name_bytes, name, from, value);
    return true;
}

/* The options that something else than their variable decides, or completes. Returns where the
 * value comes from if the environment did not set it. */
static const char *put_held(const struct ng_option *option, const struct ng_settings_source *source,
                            char *ret_text, size_t bytes)
{
    const struct ng_launch *launch = source->launch;
    const char *text = NULL;
    int number = -1;

    if (option->offset == offsetof(struct ng_config, store))
        text = source->store ? source->store : "***";
    else if (option->offset == offsetof(struct ng_config, dir))
        text = source->dir;
    else if (option->offset == offsetof(struct ng_config, dump_dir))
        text = source->dump_dir;
    else if (option->offset == offsetof(struct ng_config, job))
        text = launch->job;
    else if (option->offset == offsetof(struct ng_config, rank))
        number = launch->rank;
    else if (option->offset == offsetof(struct ng_config, world_size))
        number = launch->world_size;
    if (text)
        snprintf(ret_text, bytes, "%s", text);
    else if (number >= 0)
        snprintf(ret_text, bytes, "%d", number);
    return number >= 0 || (text == launch->job && launch->job_is_shared) ? "launcher" : "default";
}

static void put_option(const struct ng_settings_source *source, size_t index, struct ng_text *text)
{
    const struct ng_option *option = &ng_options[index];
    char raw[2 * VALUE_BYTES], value[VALUE_BYTES];

    put_value(option, source->config, raw, sizeof(raw));
    const char *from = put_held(option, source, raw, sizeof(raw));
    tidy(option->name, raw, value);
    put_line(text, option->name, (int)strlen(option->name),
             source->config->given >> index & 1 ? "environment" : from, value);
}

static bool matters(const char *entry)
{
    const char *equals = strchr(entry, '=');

    if (!equals || equals - entry >= (ptrdiff_t)sizeof(((struct ng_setting *)0)->name))
        return false;
    for (const char *at = entry; at < equals; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    NG_EACH (prefix, prefixes, NG_COUNT(prefixes))
        if (strncmp(entry, *prefix, strlen(*prefix)) == 0)
            return true;
    return ng_launch_has_variable(entry, (size_t)(equals - entry));
}

static int compare_entries(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Sorted by insertion: qsort may allocate. */
static void insert(const char **list, size_t count, const char *entry)
{
    for (; count > 0 && compare_entries(&list[count - 1], &entry) > 0; count--)
        list[count] = list[count - 1];
    list[count] = entry;
}

void ng_settings_write(const struct ng_settings_source *source, char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};
    const char *found[VARIABLES_MAX];
    size_t count = 0, left_out = 0;
    char name[64], value[VALUE_BYTES];

    ret_text[0] = '\0';
    for (size_t i = 0; i < ng_option_count; i++)
        put_option(source, i, &text);
    for (char *const *entry = source->environment; entry && *entry; entry++) {
        if (!matters(*entry))
            continue;
        if (count < VARIABLES_MAX)
            insert(found, count++, *entry);
        else
            left_out++;
    }
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(found[i], "=");
        snprintf(name, sizeof(name), "%.*s", (int)length, found[i]);
        tidy(name, found[i] + length + 1, value);
        left_out += !put_line(&text, name, (int)length, "", value);
    }
    if (left_out)
        ng_text_add(&text, "\t\t%zu\n", left_out);
}

/* ---- Reading ---- */

/* Copy up to `end`, cut to fit. */
static void take(const char *from, const char *end, char *ret_text, size_t bytes)
{
    size_t length = (size_t)(end - from) < bytes - 1 ? (size_t)(end - from) : bytes - 1;

    memcpy(ret_text, from, length);
    ret_text[length] = '\0';
    ng_text_clean(ret_text, length, false);
}

/* The settable option of this name that has a value; NG_SETTABLES: none. */
static enum ng_settable find_set(const struct ng_settable_values *values, const char *name)
{
    enum ng_settable settable = ng_settable_find(name);

    return settable < NG_SETTABLES && values->of[settable] ? settable : NG_SETTABLES;
}

static void put_set(struct ng_text *text, const struct ng_settable_values *values,
                    enum ng_settable settable)
{
    const struct ng_option *option = ng_settable_option(settable);
    char word[VALUE_BYTES];

    ng_config_choice(option, values->of[settable] - 1, word, sizeof(word));
    ng_text_add(text, "%s\tcommand\t%s\n", option->name, word);
}

void ng_settings_update(const char *from, const struct ng_settable_values *values, char *ret_text,
                        size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};
    struct ng_settable_values left = *values;
    struct ng_setting setting;

    ret_text[0] = '\0';
    while (ng_settings_next(&from, &setting)) {
        enum ng_settable settable = find_set(&left, setting.name);
        if (settable < NG_SETTABLES) {
            put_set(&text, &left, settable);
            left.of[settable] = 0;
        } else {
            ng_text_add(&text, "%s\t%s\t%s\n", setting.name, setting.from, setting.value);
        }
    }
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (left.of[i])
            put_set(&text, &left, (enum ng_settable)i);
}

bool ng_settings_next(const char **at, struct ng_setting *ret_setting)
{
    while (**at) {
        const char *line = *at, *end = line + strcspn(line, "\n");
        const char *from = memchr(line, '\t', (size_t)(end - line));
        const char *value = from ? memchr(from + 1, '\t', (size_t)(end - from - 1)) : NULL;
        *at = end + (*end == '\n');
        if (!value)
            continue;
        take(line, from, ret_setting->name, sizeof(ret_setting->name));
        take(from + 1, value, ret_setting->from, sizeof(ret_setting->from));
        take(value + 1, end, ret_setting->value, sizeof(ret_setting->value));
        return true;
    }
    return false;
}
