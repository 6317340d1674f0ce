/*
 * Options of a subcommand: one table yields the parser, the --help text and the "did you mean".
 *
 * Used by the command's only thread. A usage error is reported in exactly two lines on stderr: the
 * mistake, and the remedy.
 */
#ifndef NCCLGUARD_TOOLS_BASE_USAGE_H
#define NCCLGUARD_TOOLS_BASE_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At most this many rows in one table; --help is added to each. */
#define NG_USAGE_OPTIONS 16

struct ng_usage_option {
    const char *name;     /* without the dashes */
    const char *argument; /* "DURATION"; NULL: none; "URL": may contain a password */
    const char *help;     /* lines are separated by '\n' */
};

struct ng_usage {
    const char *command;  /* "run" */
    const char *synopsis; /* what follows the command's name */
    const char *about;    /* paragraph under the synopsis */
    const struct ng_usage_option *options;
    size_t option_count;
    bool stop_at_operand; /* all arguments from the first operand on belong to it */
    const char *alone;    /* the remedy where an operand stands; NULL: it takes them */
};

/*
 * Parse argv[1 …]. ret_values has one element per row: NULL not given, "" given (rows without
 * argument), else the argument (the last one wins). Operands are moved to the end of argv, in their
 * order. Values live as long as the process. A URL in argv, which any user can read, is replaced by
 * its text without the password. False: the help, or both lines of an error, were printed; the
 * command must exit with *ret_status.
 */
bool ng_usage_parse(const struct ng_usage *usage, int argc, char **argv, const char **ret_values,
                    int *ret_operand, int *ret_status);

/* Print the two lines of a usage error; `command` NULL is ncclguard itself. Returns
 * NG_EXIT_USAGE. */
__attribute__((format(printf, 3, 4))) int ng_usage_error(const char *command, const char *mend,
                                                         const char *mistake, ...);

/* The argument of --NAME, a duration of so many milliseconds or more; NULL leaves *ret_ns. 0, or an
 * exit status after reporting the usage error. */
int ng_usage_duration(const char *command, const char *name, const char *text, int minimum_ms,
                      int64_t *ret_ns);

/*
 * The name that was probably meant by `wrong`: name_of(table, i) for i below `count`; NULL if none
 * is close.
 */
const char *ng_usage_nearest(const char *wrong,
                             const char *(*name_of)(const void *table, size_t index),
                             const void *table, size_t count);

#endif
