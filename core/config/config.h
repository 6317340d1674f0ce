/*
 * Configuration: one table (config.def), read once from the environment before any guard thread
 * runs.
 *
 * Thread rules: ng_config_parse is pure except for reading the environment; the struct is read-only
 * afterwards.
 */
#ifndef NCCLGUARD_CORE_CONFIG_CONFIG_H
#define NCCLGUARD_CORE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/clock.h"

enum ng_config_type {
    NG_CONFIG_BOOL,
    NG_CONFIG_INTEGER,
    NG_CONFIG_DURATION,
    NG_CONFIG_CHOICE,
    NG_CONFIG_STRING
};

#define NG_TYPE_BOOL     bool
#define NG_TYPE_INTEGER  int64_t
#define NG_TYPE_DURATION int64_t
#define NG_TYPE_CHOICE   int
#define NG_TYPE_STRING   const char *

struct ng_config {
#define NG_OPTION(field, name, type, def, min, max, choices, help) NG_TYPE_##type field;
#define NG_RESERVED(name, harmless, help)
#include "core/config/config.def"
#undef NG_OPTION
#undef NG_RESERVED
    uint64_t given; /* options that the environment has set, a bit each, as in ng_options */
};

/* What NCCLGUARD_SUSPECT is where it is not set, for evidence that does not tell it. */
#define NG_SUSPECT_DEFAULT_NS (5 * NG_S)

/* NCCLGUARD_COLD_SUSPECT likewise. */
#define NG_COLD_SUSPECT_DEFAULT_NS (30 * NG_S)

/* One row of the table as data. */
struct ng_option {
    const char *name;
    enum ng_config_type type;
    const char *default_value; /* NULL none */
    int64_t minimum, maximum;
    const char *choices; /* NULL except for CHOICE */
    const char *help;
    size_t offset; /* of the field in struct ng_config */
};

extern const struct ng_option ng_options[];
extern const size_t ng_option_count;

/* A documented variable that this version does not support yet. */
struct ng_reserved_option {
    const char *name;
    const char *harmless; /* the value that requests nothing */
    const char *help;
};

extern const struct ng_reserved_option ng_reserved_options[];
extern const size_t ng_reserved_option_count;

/* Values of CHOICE options that code tests for. */
enum { NG_REGISTER_OFF, NG_REGISTER_LAZY, NG_REGISTER_EAGER };
enum { NG_ALLOC_KEEP, NG_ALLOC_VMM };
enum { NG_POISON_AUTO, NG_POISON_OFF, NG_POISON_ON };
enum ng_on_timeout {
    NG_ON_TIMEOUT_LOG,
    NG_ON_TIMEOUT_TEARDOWN,
    NG_ON_TIMEOUT_ABORT,
    NG_ON_TIMEOUT_KILL,
};
#define NG_ON_TIMEOUT_LAST NG_ON_TIMEOUT_KILL

/* The milder of two policies; the numbers are PyTorch's, and are not in that order. */
enum ng_on_timeout ng_on_timeout_milder(enum ng_on_timeout a, enum ng_on_timeout b);

/* "log", "kill" …; NULL: no policy has this number. */
const char *ng_on_timeout_name(enum ng_on_timeout policy);

/* Does this policy end processes? `policy` is its number plus 1, as in black boxes; 0 is none. */
static inline bool ng_on_timeout_ends(uint32_t policy)
{
    return policy == NG_ON_TIMEOUT_KILL + 1 || policy == NG_ON_TIMEOUT_TEARDOWN + 1;
}

enum { NG_INIT_WATCH, NG_INIT_NONBLOCKING };
enum { NG_STACKS_OFF, NG_STACKS_INCIDENT, NG_STACKS_CALL };
enum {
    NG_CHECK_OFF,
    NG_CHECK_SIGNATURE,
    NG_CHECK_STRICT,
    NG_CHECK_OFF_ARGS,
    NG_CHECK_SIGNATURE_ARGS,
    NG_CHECK_STRICT_ARGS,
    NG_CHECK_OFF_NAN,
    NG_CHECK_SIGNATURE_NAN,
    NG_CHECK_STRICT_NAN,
    NG_CHECK_OFF_ARGS_NAN,
    NG_CHECK_SIGNATURE_ARGS_NAN,
    NG_CHECK_STRICT_ARGS_NAN,
    NG_CHECK_OFF_NAN_ARGS, /* the same three, with the words swapped */
    NG_CHECK_SIGNATURE_NAN_ARGS,
    NG_CHECK_STRICT_NAN_ARGS,
};
enum { NG_TIMING_OFF, NG_TIMING_SAMPLED, NG_TIMING_ALL };

/* Called for each mistake: `severity` is 'E' (bad value; the default is used) or 'W' (unknown or
 * unsupported name). */
typedef void ng_config_report_fn(void *context, char severity, const char *line);

/*
 * Fill *ret_config from `environment` (like environ; NULL-terminated). Every mistake is reported as
 * one line that names the variable, its value and what is allowed; the option then keeps its
 * default. Returns the number of mistakes of severity 'E'. Strings point into `environment`.
 */
int ng_config_parse(struct ng_config *ret_config, char *const *environment,
                    ng_config_report_fn *report, void *context);

/* The option of this name; NULL none. */
const struct ng_option *ng_config_find(const char *name);

/*
 * Parse one value of an option into *ret_value (of the option's type). Returns 0, or -EINVAL with
 * what is allowed in `why`.
 */
int ng_config_parse_value(const struct ng_option *option, const char *text, void *ret_value,
                          char *why, size_t why_bytes);

/* Word `index` of `choices`, without its number; "" there is none. */
void ng_config_choice(const struct ng_option *option, int index, char *ret_text, size_t bytes);

/* Is `text` a valid NCCLGUARD_EXIT ("abort", "exit:CODE" with 0 <= CODE <= 255)? 0, or -EINVAL. */
int ng_config_parse_exit(const char *text, int *ret_code);

#endif
