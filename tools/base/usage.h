/*
 * Options of a subcommand: one table yields the parser, the --help text and the "did you mean".
 *
 * The command's only thread uses it. A usage error is told in exactly two lines on stderr: the
 * mistake, and the mend.
 */
#ifndef NCCLGUARD_TOOLS_BASE_USAGE_H
#define NCCLGUARD_TOOLS_BASE_USAGE_H

#include <stdbool.h>
#include <stddef.h>

/* At most this many rows in one table; --help is added to each. */
#define NG_USAGE_OPTIONS 16

struct ng_usage_option {
    const char *name;     /* without the dashes */
    const char *argument; /* "DURATION"; NULL: takes none; "URL": may hold a password */
    const char *help;     /* lines are separated by '\n' */
};

struct ng_usage {
    const char *command;  /* "run" */
    const char *synopsis; /* what follows the command's name */
    const char *about;    /* paragraph under the synopsis */
    const struct ng_usage_option *options;
    size_t option_count;
    bool stop_at_operand; /* everything from the first operand on belongs to it */
};

/*
 * Parse argv[1 …]. ret_values has one element per row: NULL not given, "" given (rows without
 * argument), else the argument (the last one wins). Operands are moved to the end of argv, in their
 * order. Values live as long as the process. Of a URL, argv, which anybody can read, keeps only
 * what may be seen. False: the help was printed, or both lines of an error, and the command ends
 * with *ret_status.
 */
bool ng_usage_parse(const struct ng_usage *usage, int argc, char **argv, const char **ret_values,
                    int *ret_operand, int *ret_status);

/* The two lines of a usage error; `command` NULL is ncclguard itself. Returns NG_EXIT_USAGE. */
__attribute__((format(printf, 3, 4))) int ng_usage_error(const char *command, const char *mend,
                                                         const char *mistake, ...);

/* The same for an operand that does not belong there; it may be a URL with a password. */
int ng_usage_unexpected(const char *command, const char *mend, const char *word);

/*
 * The name that `wrong` was probably meant to be: name_of(table, i) for i below `count`; NULL when
 * none is near.
 */
const char *ng_usage_nearest(const char *wrong,
                             const char *(*name_of)(const void *table, size_t index),
                             const void *table, size_t count);

#endif
