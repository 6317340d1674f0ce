/*
 * The option table and its parser: config.def becomes data, the environment becomes a struct.
 *
 * Entered once per process before any guard thread runs, and by the command. Must never end the
 * process because of a bad value: the caller decides how serious a mistake is.
 */
#include "core/config/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/util/macros.h"

const struct ng_option ng_options[] = {
#define NG_OPTION(field, name, type, def, min, max, choices, help)                                 \
    {name, NG_CONFIG_##type, def, min, max, choices, help, offsetof(struct ng_config, field)},
#define NG_RESERVED(name, harmless, help)
#include "core/config/config.def"
#undef NG_OPTION
#undef NG_RESERVED
};
const size_t ng_option_count = NG_COUNT(ng_options);
_Static_assert(NG_COUNT(ng_options) <= 64, "struct ng_config has a bit each");

const struct ng_reserved_option ng_reserved_options[] = {
#define NG_OPTION(field, name, type, def, min, max, choices, help)
#define NG_RESERVED(name, harmless, help) {name, harmless, help},
#include "core/config/config.def"
#undef NG_OPTION
#undef NG_RESERVED
};
const size_t ng_reserved_option_count = NG_COUNT(ng_reserved_options);

/* Names under our prefix that are set by the command for the library, not by users. */
static const char *const internal_names[] = {"NCCLGUARD_RUN_ID", "NCCLGUARD_LIB"};

static int parse_bool(const char *text, bool *ret_value, char *why, size_t why_bytes)
{
    static const char *const yes[] = {"1", "on", "true", "yes"}, *const no[] = {"0", "off", "false",
                                                                                "no"};

    for (size_t i = 0; i < NG_COUNT(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *ret_value = true;
            return 0;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *ret_value = false;
            return 0;
        }
    }
    snprintf(why, why_bytes, "use 0 or 1");
    return -EINVAL;
}

static int parse_integer(const struct ng_option *option, const char *text, int64_t *ret_value,
                         char *why, size_t why_bytes)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < option->minimum || value > option->maximum) {
        snprintf(why, why_bytes, "use a whole number from %" PRId64 " to %" PRId64, option->minimum,
                 option->maximum);
        return -EINVAL;
    }
    *ret_value = value;
    return 0;
}

static int parse_duration(const struct ng_option *option, const char *text, int64_t *ret_value,
                          char *why, size_t why_bytes)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"", 1e9}};
    char *end;
    double scale = 0, value = strtod(text, &end);

    for (size_t i = 0; i < NG_COUNT(units); i++)
        if (strcmp(end, units[i].unit) == 0)
            scale = units[i].ns;
    if (end == text || scale == 0 || !(value * scale >= option->minimum) ||
        !(value * scale <= option->maximum)) {
        bool seconds = option->minimum % NG_S == 0;
        /* A minimum below a millisecond means any value but zero. */
        snprintf(why, why_bytes,
                 "use seconds, or a number with ms, s, m or h, such as %s, from %" PRId64
                 "%s to %" PRId64 "s",
                 option->default_value ? option->default_value : "10s",
                 option->minimum / (seconds ? NG_S : NG_MS),
                 option->minimum < NG_MS ? ""
                 : seconds               ? "s"
                                         : "ms",
                 option->maximum / NG_S);
        return -EINVAL;
    }
    *ret_value = (int64_t)(value * scale);
    return 0;
}

/* `choices` is "word|word" or "word=number|word=number"; the number is an alias of its word. */
static int parse_choice(const char *choices, const char *text, int *ret_value, char *why,
                        size_t why_bytes)
{
    char allowed[256];
    size_t used = 0;
    int index = 0;

    allowed[0] = '\0';
    for (const char *word = choices; word; index++) {
        const char *next = strchr(word, '|');
        size_t length = next ? (size_t)(next - word) : strlen(word);
        const char *number = memchr(word, '=', length);
        size_t word_length = number ? (size_t)(number - word) : length;
        if ((strlen(text) == word_length && strncasecmp(text, word, word_length) == 0) ||
            (number && strlen(text) == length - word_length - 1 &&
             strncmp(text, number + 1, strlen(text)) == 0)) {
            *ret_value = index;
            return 0;
        }
        int written = snprintf(allowed + used, sizeof(allowed) - used, "%s%.*s", used ? ", " : "",
                               (int)word_length, word);
        if (written > 0 && (size_t)written < sizeof(allowed) - used)
            used += (size_t)written;
        word = next ? next + 1 : NULL;
    }
    snprintf(why, why_bytes, "use one of: %s", allowed);
    return -EINVAL;
}

int ng_config_parse_value(const struct ng_option *option, const char *text, void *ret_value,
                          char *why, size_t why_bytes)
{
    switch (option->type) {
    case NG_CONFIG_BOOL:
        return parse_bool(text, ret_value, why, why_bytes);
    case NG_CONFIG_INTEGER:
        return parse_integer(option, text, ret_value, why, why_bytes);
    case NG_CONFIG_DURATION:
        return parse_duration(option, text, ret_value, why, why_bytes);
    case NG_CONFIG_CHOICE:
        return parse_choice(option->choices, text, ret_value, why, why_bytes);
    case NG_CONFIG_STRING:
        *(const char **)ret_value = text;
        return 0;
    }
    return -EINVAL;
}

void ng_config_choice(const struct ng_option *option, int index, char *ret_text, size_t bytes)
{
    const char *word = option->choices;

    for (; index > 0 && word; index--) {
        word = strchr(word, '|');
        word = word ? word + 1 : NULL;
    }
    snprintf(ret_text, bytes, "%.*s", word ? (int)strcspn(word, "|=") : 0, word ? word : "");
}

/* Edit distance, bounded by the length of option names. */
static int distance(const char *a, const char *b)
{
    int row[64];
    int length_b = (int)strlen(b);

    if (length_b >= 64)
        return 99;
    for (int j = 0; j <= length_b; j++)
        row[j] = j;
    for (int i = 0; a[i]; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 1; j <= length_b; j++) {
            int above = row[j];
            int best = diagonal + (a[i] != b[j - 1]);
            best = NG_MIN(best, above + 1);
            best = NG_MIN(best, row[j - 1] + 1);
            row[j] = best;
            diagonal = above;
        }
    }
    return row[length_b];
}

static void report_unknown(const char *name, ng_config_report_fn *report, void *context)
{
    char line[512];
    const char *nearest = NULL;
    int nearest_distance =
        (int)(strlen(name) - strlen("NCCLGUARD_")) / 3 + 2; /* more would be a guess */

    for (size_t i = 0; i < ng_option_count + ng_reserved_option_count; i++) {
        const char *known = i < ng_option_count ? ng_options[i].name
                                                : ng_reserved_options[i - ng_option_count].name;
        int d = distance(name, known);
        if (d < nearest_distance) {
            nearest = known;
            nearest_distance = d;
        }
    }
    if (nearest)
        snprintf(line, sizeof(line), "%s is not a variable of ncclguard; did you mean %s?", name,
                 nearest);
    else
        snprintf(line, sizeof(line),
                 "%s is not a variable of ncclguard; `ncclguard config` lists them", name);
    report(context, 'W', line);
}

/* Is `name` a documented variable that this version does not support? */
static bool report_reserved(const char *name, const char *value, ng_config_report_fn *report,
                            void *context)
{
    char line[512];

    NG_EACH (option, ng_reserved_options, ng_reserved_option_count) {
        if (strcmp(option->name, name) != 0)
            continue;
        if (*value && strcmp(value, option->harmless) != 0) {
            snprintf(line, sizeof(line),
                     "%s=%s: this version does not have %s; the setting has no effect", name, value,
                     option->help);
            report(context, 'W', line);
        }
        return true;
    }
    return false;
}

const struct ng_option *ng_config_find(const char *name)
{
    for (size_t i = 0; i < ng_option_count; i++)
        if (strcmp(ng_options[i].name, name) == 0)
            return &ng_options[i];
    return NULL;
}

static void set_default(const struct ng_option *option, struct ng_config *config)
{
    char why[256];
    void *field = (char *)config + option->offset;

    if (!option->default_value) {
        *(const char **)field = NULL; /* only STRING options have no default */
        return;
    }
    if (ng_config_parse_value(option, option->default_value, field, why, sizeof(why)) != 0)
        abort(); /* a row of config.def with a bad default: cannot pass the unit test */
}

int ng_config_parse(struct ng_config *ret_config, char *const *environment,
                    ng_config_report_fn *report, void *context)
{
    const struct ng_option *cold = ng_config_find("NCCLGUARD_COLD_SUSPECT");
    bool cold_is_set = false;
    int mistakes = 0;

    memset(ret_config, 0, sizeof(*ret_config));
    for (size_t i = 0; i < ng_option_count; i++)
        set_default(&ng_options[i], ret_config);

    for (char *const *entry = environment; entry && *entry; entry++) {
        char name[64], line[512], why[256];
        const char *equals = strchr(*entry, '=');
        /* "NCCLGUARD" itself and "NCCLGUARD_…" are ours. */
        if (!equals || strncmp(*entry, "NCCLGUARD", 9) != 0 ||
            ((*entry)[9] != '_' && (*entry)[9] != '='))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *entry), *entry);
        const char *value = equals + 1;
        const struct ng_option *option = ng_config_find(name);
        bool internal =
            NG_ANY(one, internal_names, NG_COUNT(internal_names), strcmp(*one, name) == 0);
        if (internal || (!option && report_reserved(name, value, report, context)))
            continue;
        if (!option) {
            report_unknown(name, report, context);
            continue;
        }
        /* Empty means not set, as launchers and batch scripts use it. */
        if (!*value)
            continue;
        if (ng_config_parse_value(option, value, (char *)ret_config + option->offset, why,
                                  sizeof(why)) != 0) {
            snprintf(line, sizeof(line), "%s=%s is not valid: %s", name, value, why);
            report(context, 'E', line);
            set_default(option, ret_config);
            mistakes++;
        } else {
            ret_config->given |= UINT64_C(1) << (option - ng_options);
        }
        cold_is_set |= option == cold;
    }
    if (!cold_is_set && ret_config->suspect_ns > ret_config->cold_suspect_ns)
        ret_config->cold_suspect_ns = ret_config->suspect_ns;
    return mistakes;
}

const char *ng_on_timeout_name(enum ng_on_timeout policy)
{
    static const char *const names[] = {[NG_ON_TIMEOUT_LOG] = "log",
                                        [NG_ON_TIMEOUT_TEARDOWN] = "teardown",
                                        [NG_ON_TIMEOUT_ABORT] = "abort",
                                        [NG_ON_TIMEOUT_KILL] = "kill"};

    return (unsigned)policy <= NG_ON_TIMEOUT_LAST ? names[policy] : NULL;
}

enum ng_on_timeout ng_on_timeout_milder(enum ng_on_timeout a, enum ng_on_timeout b)
{
    static const unsigned char gravity[] = {[NG_ON_TIMEOUT_LOG] = 0,
                                            [NG_ON_TIMEOUT_ABORT] = 1,
                                            [NG_ON_TIMEOUT_TEARDOWN] = 2,
                                            [NG_ON_TIMEOUT_KILL] = 3};

    return gravity[a] <= gravity[b] ? a : b;
}

int ng_config_parse_exit(const char *text, int *ret_code)
{
    char *end;

    if (strcmp(text, "abort") == 0) {
        *ret_code = -1;
        return 0;
    }
    if (strncmp(text, "exit:", 5) != 0)
        return -EINVAL;
    long code = strtol(text + 5, &end, 10);
    if (end == text + 5 || *end || code < 0 || code > 255)
        return -EINVAL;
    *ret_code = (int)code;
    return 0;
}
