/*
 * Options, help and usage errors of every subcommand, from tables.
 *
 * Must never leave a mistake unnamed: getopt_long's own messages are off; ours include the remedy.
 */
#include "tools/base/usage.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "store/kv/url.h"
#include "tools/base/command.h"

/* Values of getopt_long above any short option. */
#define FIRST_VALUE 256

int ng_usage_error(const char *command, const char *mend, const char *mistake, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, mistake);
    vsnprintf(line, sizeof(line), mistake, arguments);
    va_end(arguments);
    const char *space = command ? " " : "", *name = command ? command : "";
    fprintf(stderr, "ncclguard%s%s: %s\nncclguard%s%s: %s\n", space, name, line, space, name, mend);
    return NG_EXIT_USAGE;
}

int ng_usage_duration(const char *command, const char *name, const char *text, int minimum_ms,
                      int64_t *ret_ns)
{
    const struct ng_option duration = {
        .type = NG_CONFIG_DURATION, .minimum = 1, .maximum = 1000000 * NG_S};
    char why[256], least[32];

    if (text && ng_config_parse_value(&duration, text, ret_ns, why, sizeof(why)) != 0)
        return ng_usage_error(command, why, "--%s %s is not valid", name, text);
    if (text && *ret_ns < minimum_ms * NG_MS) {
        snprintf(least, sizeof(least), "use %dms or more", minimum_ms);
        return ng_usage_error(command, least, "--%s %s is too short", name, text);
    }
    return 0;
}

/* The edit distance of two words: letters to change, add or remove. */
static size_t distance(const char *a, const char *b)
{
    size_t row[64], length = strlen(b);

    if (length >= NG_COUNT(row))
        return length;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= length; j++) {
            size_t above = row[j], best = diagonal + (a[i] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[length];
}

const char *ng_usage_nearest(const char *wrong,
                             const char *(*name_of)(const void *table, size_t index),
                             const void *table, size_t count)
{
    const char *nearest = NULL;
    /* Up to a third of the word may be wrong; beyond that it is another word. */
    size_t limit = strlen(wrong) / 3 + 1, nearest_distance = limit + 1;

    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(table, i);
        size_t d = distance(wrong, name);
        /* An abbreviation is close whatever its length. */
        if (strlen(wrong) >= 2 && strncmp(wrong, name, strlen(wrong)) == 0)
            d = 0;
        if (d < nearest_distance) {
            nearest = name;
            nearest_distance = d;
        }
    }
    return nearest;
}

static const char *option_name(const void *table, size_t index)
{
    return ((const struct ng_usage_option *)table)[index].name;
}

static void print_help(const struct ng_usage *usage)
{
    printf("usage: ncclguard %s %s\n\n%s\n\n", usage->command, usage->synopsis, usage->about);
    for (size_t i = 0; i <= usage->option_count; i++) {
        static const struct ng_usage_option help_row = {"help", NULL, "print this help"};
        const struct ng_usage_option *row =
            i < usage->option_count ? &usage->options[i] : &help_row;
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        const char *line = row->help;
        for (bool first = true; line; first = false) {
            const char *end = strchr(line, '\n');
            printf("  %-22s %.*s\n", first ? left : "", end ? (int)(end - line) : (int)strlen(line),
                   line);
            line = end ? end + 1 : NULL;
        }
    }
}

/* NG_EXIT_USAGE. */
static int unknown_option(const struct ng_usage *usage, const char *word)
{
    char mend[256], name[64], shown[256];

    /* "--timout=5s" is the option "timout"; its value may be a password. */
    size_t length = strcspn(word, "=");
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    ng_url_redact(name, shown, sizeof(shown));
    const char *nearest = ng_usage_nearest(name + strspn(name, "-"), option_name, usage->options,
                                           usage->option_count);
    if (nearest)
        snprintf(mend, sizeof(mend), "did you mean --%s?", nearest);
    else
        snprintf(mend, sizeof(mend), "`ncclguard %s --help` lists the options", usage->command);
    return ng_usage_error(usage->command, mend, "unknown option %s", shown);
}

/* Secrets that were taken out of argv; they stay allocated until the process ends. */
static struct secret {
    struct secret *before;
    char text[];
} * secrets;

/*
 * A working copy; the text in argv, which ps shows to every user, becomes the same without its
 * password, and no longer than before.
 */
static const char *take_secret(char *argument)
{
    size_t length = strlen(argument);
    struct secret *secret = malloc(sizeof(*secret) + length + 1);

    if (!secret)
        abort(); /* a few bytes, at start-up */
    memcpy(secret->text, argument, length + 1);
    secret->before = secrets;
    secrets = secret;
    explicit_bzero(argument, length);
    ng_url_redact(secret->text, argument, length + 1);
    return secret->text;
}

bool ng_usage_parse(const struct ng_usage *usage, int argc, char **argv, const char **ret_values,
                    int *ret_operand, int *ret_status)
{
    struct option rows[NG_USAGE_OPTIONS + 2] = {{0}};
    size_t count = usage->option_count;
    char mend[256], letter[3] = "-?";

    if (count > NG_USAGE_OPTIONS)
        abort(); /* a table of ours is larger than the array */
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct option){usage->options[i].name,
                                  usage->options[i].argument ? required_argument : no_argument,
                                  NULL, FIRST_VALUE + (int)i};
        ret_values[i] = NULL;
    }
    rows[count] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 0; /* GNU: restart the parser, whatever was parsed before */
    opterr = 0;
    for (;;) {
        int value = getopt_long(argc, argv, usage->stop_at_operand ? "+:h" : ":h", rows, NULL);
        if (value == -1)
            break;
        if (value == 'h') {
            print_help(usage);
            *ret_status = NG_EXIT_OK;
            return false;
        }
        if (value == ':') {
            const struct ng_usage_option *row = &usage->options[optopt - FIRST_VALUE];
            snprintf(mend, sizeof(mend), "write --%s %s", row->name, row->argument);
            *ret_status = ng_usage_error(usage->command, mend, "--%s needs a value", row->name);
            return false;
        }
        if (value == '?' &&
            (optopt >= FIRST_VALUE || (optopt == 'h' && argv[optind - 1][1] == '-'))) {
            const char *name = optopt == 'h' ? "help" : usage->options[optopt - FIRST_VALUE].name;
            snprintf(mend, sizeof(mend), "write --%s alone", name);
            *ret_status = ng_usage_error(usage->command, mend, "--%s takes no value", name);
            return false;
        }
        if (value == '?') {
            letter[1] = (char)optopt;
            *ret_status = unknown_option(usage, optopt ? letter : argv[optind - 1]);
            return false;
        }
        const struct ng_usage_option *row = &usage->options[value - FIRST_VALUE];
        bool secret = optarg && strcmp(row->argument, "URL") == 0;
        ret_values[value - FIRST_VALUE] = secret ? take_secret(optarg) : optarg ? optarg : "";
    }
    *ret_operand = optind;
    if (!usage->alone || optind == argc)
        return true;
    ng_url_redact(argv[optind], mend, sizeof(mend)); /* it may have a password */
    *ret_status = ng_usage_error(usage->command, usage->alone, "unexpected argument %s", mend);
    return false;
}
