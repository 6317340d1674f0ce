/*
 * The grammar of NCCLGUARD_FAULT.
 *
 * Entered before main, and by the command. Pure. Must never trust the text, which a person wrote,
 * and must match only short strings: fnmatch would allocate for long ones.
 */
#include "core/config/fault_spec.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/config/config.h"
#include "core/config/store_fault.h"
#include "core/util/text.h"

#define VALUE_BYTES 64u /* of a value, with its NUL */

const struct ng_fault_info ng_fault_table[NG_FAULT_KINDS] = {
#define NG_FAULT(id, name, argument, place, help)                                                  \
    {name, NG_FAULT_TAKES_##argument, NG_FAULT_AT_##place, help},
#include "core/config/fault.def"
#undef NG_FAULT
};

struct ng_store_fault ng_store_fault; /* off if NCCLGUARD_FAULT is not set */

/* ---- Mistakes ---- */

struct parsing {
    const char *text, *at;
    struct ng_fault_mistake *mistake;
};

/* Report what is wrong at `where`. Returns -EINVAL, for the caller to pass on; the caller then adds
 * what is possible there. */
__attribute__((format(printf, 3, 4))) static int mistake(struct parsing *parsing, const char *where,
                                                         const char *format, ...)
{
    struct ng_fault_mistake *mistake = parsing->mistake;
    va_list arguments;

    mistake->column = (unsigned)(where - parsing->text) + 1;
    mistake->possible[0] = '\0';
    va_start(arguments, format);
    vsnprintf(mistake->what, sizeof(mistake->what), format, arguments);
    va_end(arguments);
    /* It is logged, so it must not contain control characters of the text. */
    for (char *at = mistake->what; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    return -EINVAL;
}

__attribute__((format(printf, 2, 3))) static int possible(struct parsing *parsing,
                                                          const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(parsing->mistake->possible, sizeof(parsing->mistake->possible), format, arguments);
    va_end(arguments);
    return -EINVAL;
}

/* Add a list of names to what is possible. */
static int possible_name(struct parsing *parsing, const char *name)
{
    struct ng_fault_mistake *mistake = parsing->mistake;
    struct ng_text text = {mistake->possible, strlen(mistake->possible), sizeof(mistake->possible)};

    ng_text_add(&text, "%s%s", text.used ? ", " : "", name);
    return -EINVAL;
}

void ng_fault_mistake_text(const struct ng_fault_mistake *mistake, char *ret_text, size_t bytes)
{
    snprintf(ret_text, bytes, "column %u: %s; possible: %s", mistake->column, mistake->what,
             mistake->possible);
}

/* ---- Words and values ---- */

static void skip_blanks(struct parsing *parsing)
{
    while (*parsing->at == ' ' || *parsing->at == '\t')
        parsing->at++;
}

/* Letters and dashes. */
static size_t word_length(const char *at)
{
    size_t length = 0;

    while (isalnum((unsigned char)at[length]) || at[length] == '-' || at[length] == '_')
        length++;
    return length;
}

/* A value and its position; it ends before one of `ends`. */
struct value {
    const char *at;
    char text[VALUE_BYTES];
};

static int read_value(struct parsing *parsing, const char *ends, struct value *ret_value)
{
    skip_blanks(parsing);
    const char *at = parsing->at, *end;

    ret_value->at = at;
    if (*at == '"') {
        end = strchr(++at, '"');
        if (!end)
            return mistake(parsing, ret_value->at, "a quote is not closed"),
                   possible(parsing, "\" at the end of the value");
        parsing->at = end + 1;
    } else {
        end = at + strcspn(at, ends);
        parsing->at = end;
        while (end > at && isblank((unsigned char)end[-1]))
            end--;
    }
    if ((size_t)(end - at) >= VALUE_BYTES)
        return mistake(parsing, ret_value->at, "the value is too long"),
               possible(parsing, "at most %u bytes", VALUE_BYTES - 1);
    memcpy(ret_value->text, at, (size_t)(end - at));
    ret_value->text[end - at] = '\0';
    return 0;
}

static bool read_uint(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *ret_number)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*end || errno || number < minimum || number > maximum)
        return false;
    *ret_number = number;
    return true;
}

static int read_number(struct parsing *parsing, const struct value *value, const char *key,
                       uint64_t minimum, uint64_t maximum, uint64_t *ret_number)
{
    if (read_uint(value->text, minimum, maximum, ret_number))
        return 0;
    mistake(parsing, value->at, "%s=%s is not valid", key, value->text);
    if (maximum == UINT64_MAX)
        return possible(parsing, "a whole number from %" PRIu64, minimum);
    return possible(parsing, "a whole number from %" PRIu64 " to %" PRIu64, minimum, maximum);
}

/* ---- Places of faults ---- */

static bool is_work(enum ng_op_class op_class)
{
    return op_class == NG_CLASS_COLLECTIVE || op_class == NG_CLASS_P2P;
}

static bool can_happen(enum ng_fault_place place, unsigned op)
{
    enum ng_op_class op_class = ng_op_table[op].op_class;
    uint32_t fields =
        op_class == NG_CLASS_P2P ? NG_F_COUNT | NG_F_DTYPE | NG_F_ROOT : ng_op_table[op].fields;

    switch (place) {
    case NG_FAULT_AT_CALL:
    case NG_FAULT_AT_STORE:
        return true;
    case NG_FAULT_AT_WORK:
        return is_work(op_class);
    case NG_FAULT_AT_COUNT:
        return is_work(op_class) && fields & NG_F_COUNT;
    case NG_FAULT_AT_DTYPE:
        return is_work(op_class) && fields & NG_F_DTYPE;
    case NG_FAULT_AT_ROOT:
        return is_work(op_class) && fields & NG_F_ROOT;
    case NG_FAULT_AT_REDOP:
        return is_work(op_class) && fields & NG_F_REDOP;
    case NG_FAULT_AT_BUFFER:
        return is_work(op_class) && op != NG_OP_Recv && op != NG_OP_AllToAllv;
    case NG_FAULT_AT_SWAP:
        return op_class == NG_CLASS_COLLECTIVE && op != NG_OP_AllToAllv &&
               op != NG_OP_AllReduceWithBias;
    case NG_FAULT_AT_CREATE:
        return op_class == NG_CLASS_CREATE;
    case NG_FAULT_AT_ID:
        return op == NG_OP_CommInitRank || op == NG_OP_CommInitRankConfig ||
               op == NG_OP_CommInitRankScalable;
    case NG_FAULT_AT_ABORT:
        break;
    }
    return false;
}

/* The same, if the specification names no operation. */
static bool happens_unnamed(enum ng_fault_place place, unsigned op)
{
    return can_happen(place, op) &&
           (place != NG_FAULT_AT_CALL || is_work(ng_op_table[op].op_class));
}

static bool is_op(unsigned op, const char *pattern)
{
    const char *bare = strncasecmp(pattern, "nccl", 4) == 0 ? pattern + 4 : pattern;

    return ng_op_table[op].name && fnmatch(bare, ng_op_table[op].name, FNM_CASEFOLD) == 0;
}

/* ---- Conditions ---- */

/* One fault being parsed: the positions of its conditions, for checks of the whole fault. */
struct reading {
    struct ng_fault *fault;
    struct value op; /* .at NULL: not given */
    const char *nth, *every, *prob, *seed;
    bool seen[8];
};

typedef int parse_fn(struct parsing *parsing, const struct value *value, struct reading *reading);

static int parse_rank(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    uint64_t rank = 0;
    int error = read_number(parsing, value, "rank", 0, (1 << 24) - 1, &rank);

    if (!error)
        reading->fault->rank = (int)rank;
    return error;
}

static int parse_op(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    for (unsigned op = 0; op < NG_OP_LIMIT; op++)
        if (is_op(op, value->text)) {
            reading->op = *value;
            return 0;
        }
    mistake(parsing, value->at, "no operation is called %s", value->text);
    for (unsigned op = 0; op < NG_OP_LIMIT; op++)
        if (ng_op_table[op].name)
            possible_name(parsing, ng_op_table[op].name);
    return -EINVAL;
}

static int parse_group(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    if (!value->text[0])
        return mistake(parsing, value->at, "group= has no value"),
               possible(parsing, "a name or an id of 16 hex digits, with * ? [a-z] as a shell has "
                                 "them");
    snprintf(reading->fault->group, sizeof(reading->fault->group), "%s", value->text);
    return 0;
}

static int parse_nth(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    reading->nth = value->at;
    return read_number(parsing, value, "nth", 1, INT64_MAX, &reading->fault->nth);
}

static int parse_every(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    reading->every = value->at;
    return read_number(parsing, value, "every", 1, INT64_MAX, &reading->fault->every);
}

static int parse_prob(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    char *end;
    double prob = strtod(value->text, &end);

    reading->prob = value->at;
    if (end == value->text || *end || !(prob > 0) || !(prob <= 1))
        return mistake(parsing, value->at, "prob=%s is not valid", value->text),
               possible(parsing, "a number above 0, up to 1, such as 0.01");
    reading->fault->chance = prob >= 1 ? UINT64_MAX : (uint64_t)(prob * 0x1p64);
    if (!reading->fault->chance)
        reading->fault->chance = 1;
    return 0;
}

static int parse_seed(struct parsing *parsing, const struct value *value, struct reading *reading)
{
    reading->seed = value->at;
    return read_number(parsing, value, "seed", 0, UINT64_MAX, &reading->fault->seed);
}

const struct ng_fault_condition ng_fault_conditions[] = {
    {"rank", "N", "the rank that it happens to"},
    {"op", "NAME", "the call: AllReduce, Send, CommInitRank, Comm* …"},
    {"group", "NAME|ID", "the communicator, by name or id; * ? [a-z] as a shell has them"},
    {"nth", "N", "the N-th such call of a rank, from 1"},
    {"every", "N", "each N-th such call; with nth= from that one on"},
    {"prob", "P", "with this probability, 0 to 1"},
    {"seed", "N", "of prob=: the same seed, the same places"},
};
#define CONDITIONS (sizeof(ng_fault_conditions) / sizeof(ng_fault_conditions[0]))
const size_t ng_fault_condition_count = CONDITIONS;

/* In the order of the table. */
static parse_fn *const parsers[CONDITIONS] = {parse_rank,  parse_op,   parse_group, parse_nth,
                                              parse_every, parse_prob, parse_seed};

static int unknown_condition(struct parsing *parsing, const char *at, size_t length)
{
    if (length)
        mistake(parsing, at, "%.*s is no condition", (int)(length < 40 ? length : 40), at);
    else
        mistake(parsing, at, "a condition is missing");
    for (size_t i = 0; i < CONDITIONS; i++)
        possible_name(parsing, ng_fault_conditions[i].name);
    possible_name(parsing, "* for every call");
    return -EINVAL;
}

static int read_condition(struct parsing *parsing, struct reading *reading)
{
    struct value value;

    skip_blanks(parsing);
    const char *at = parsing->at;
    if (*at == '*') {
        parsing->at++;
        return 0;
    }
    size_t length = word_length(at), i = 0;
    while (i < CONDITIONS && (strlen(ng_fault_conditions[i].name) != length ||
                              strncmp(ng_fault_conditions[i].name, at, length) != 0))
        i++;
    if (i == CONDITIONS)
        return unknown_condition(parsing, at, length);
    parsing->at += length;
    skip_blanks(parsing);
    if (*parsing->at != '=')
        return mistake(parsing, parsing->at, "%s has no value", ng_fault_conditions[i].name),
               possible(parsing, "=%s", ng_fault_conditions[i].value);
    if (reading->seen[i])
        return mistake(parsing, at, "%s= stands there twice", ng_fault_conditions[i].name),
               possible(parsing, "one of them");
    reading->seen[i] = true;
    parsing->at++;
    return read_value(parsing, ",:;", &value) ?: parsers[i](parsing, &value, reading);
}

static int read_conditions(struct parsing *parsing, struct reading *reading)
{
    for (;;) {
        int error = read_condition(parsing, reading);
        if (error)
            return error;
        skip_blanks(parsing);
        if (*parsing->at == ':')
            return 0;
        if (*parsing->at != ',')
            return mistake(parsing, parsing->at,
                           *parsing->at ? "what follows is not understood" : "no fault is named"),
                   possible(parsing, ", and another condition, or : and a fault, such as :hang");
        parsing->at++;
    }
}

/* ---- The fault ---- */

const char *ng_fault_argument_text(enum ng_fault_argument argument)
{
    static const char *const texts[] = {
        [NG_FAULT_TAKES_NONE] = "",
        [NG_FAULT_TAKES_DURATION] = "a duration, such as 500ms or 2s",
        [NG_FAULT_TAKES_STATUS] = "an exit status from 0 to 255",
        [NG_FAULT_TAKES_RESULT] = "an error of NCCL, such as ncclSystemError",
        [NG_FAULT_TAKES_COUNT] = "a number of elements, or +N or -N",
        [NG_FAULT_TAKES_DTYPE] = "a data type, such as float16",
        [NG_FAULT_TAKES_ROOT] = "a rank of the group, or +N or -N",
        [NG_FAULT_TAKES_REDOP] = "a reduction, such as max",
    };

    return texts[argument];
}

/* Is it this NCCL name, with or without "nccl"? */
static bool is_called(const char *text, const char *name)
{
    return strcasecmp(text, name) == 0 ||
           (strncasecmp(text, "nccl", 4) == 0 && strcasecmp(text + 4, name) == 0) ||
           (strncasecmp(name, "nccl", 4) == 0 && strcasecmp(text, name + 4) == 0);
}

/* The number of a name, by a function that returns "unknown", or "custom", after the last name. */
static int find_named(struct parsing *parsing, const struct value *value, const char *fault,
                      const char *(*name_of)(int), int first, int64_t *ret_number)
{
    for (int i = first; strncmp(name_of(i), "unknown", 7) && strcmp(name_of(i), "custom"); i++)
        if (is_called(value->text, name_of(i)) && strcmp(name_of(i), "ncclInProgress") != 0) {
            *ret_number = i;
            return 0;
        }
    mistake(parsing, value->at, "%s=%s is not known", fault, value->text);
    for (int i = first; strncmp(name_of(i), "unknown", 7) && strcmp(name_of(i), "custom"); i++)
        if (strcmp(name_of(i), "ncclInProgress") != 0)
            possible_name(parsing, name_of(i));
    return -EINVAL;
}

static int parse_duration(struct parsing *parsing, const struct value *value, const char *name,
                          int64_t *ret_ns)
{
    static const struct ng_option duration = {
        .type = NG_CONFIG_DURATION, .minimum = 1, .maximum = INT64_C(1000000) * NG_S};
    char why[256];

    if (ng_config_parse_value(&duration, value->text, ret_ns, why, sizeof(why)) == 0)
        return 0;
    return mistake(parsing, value->at, "%s=%s is not valid", name, value->text),
           possible(parsing, "%s", ng_fault_argument_text(NG_FAULT_TAKES_DURATION));
}

/* A number, or an increment. */
static int parse_change(struct parsing *parsing, const struct value *value,
                        const struct ng_fault_info *info, struct ng_fault *fault)
{
    bool more = value->text[0] == '+', fewer = value->text[0] == '-';
    uint64_t number;

    fault->relative = more || fewer;
    if (!read_uint(value->text + fault->relative, fault->relative ? 1 : 0, INT64_MAX / 4, &number))
        return mistake(parsing, value->at, "%s=%s is not valid", info->name, value->text),
               possible(parsing, "%s", ng_fault_argument_text(info->argument));
    fault->number = fewer ? -(int64_t)number : (int64_t)number;
    return 0;
}

static int parse_argument(struct parsing *parsing, const struct value *value,
                          const struct ng_fault_info *info, struct ng_fault *fault)
{
    uint64_t number = 0;
    int error;

    switch (info->argument) {
    case NG_FAULT_TAKES_NONE:
        break;
    case NG_FAULT_TAKES_DURATION:
        return parse_duration(parsing, value, info->name, &fault->duration_ns);
    case NG_FAULT_TAKES_STATUS:
        error = read_number(parsing, value, info->name, 0, 255, &number);
        fault->number = (int64_t)number;
        return error;
    case NG_FAULT_TAKES_RESULT:
        return find_named(parsing, value, info->name, ng_result_name, 1, &fault->number);
    case NG_FAULT_TAKES_DTYPE:
        return find_named(parsing, value, info->name, ng_dtype_name, 0, &fault->number);
    case NG_FAULT_TAKES_REDOP:
        return find_named(parsing, value, info->name, ng_redop_name, 0, &fault->number);
    case NG_FAULT_TAKES_COUNT:
    case NG_FAULT_TAKES_ROOT:
        return parse_change(parsing, value, info, fault);
    }
    return 0;
}

static int unknown_fault(struct parsing *parsing, const char *at, size_t length)
{
    if (length)
        mistake(parsing, at, "%.*s is no fault", (int)(length < 40 ? length : 40), at);
    else
        mistake(parsing, at, "no fault is named");
    for (size_t i = 0; i < NG_FAULT_KINDS; i++)
        possible_name(parsing, ng_fault_table[i].name);
    return -EINVAL;
}

static int read_name(struct parsing *parsing, struct ng_fault *fault)
{
    struct value value;

    skip_blanks(parsing);
    const char *at = parsing->at;
    size_t length = word_length(at), kind = 0;
    while (kind < NG_FAULT_KINDS && (strlen(ng_fault_table[kind].name) != length ||
                                     strncmp(ng_fault_table[kind].name, at, length) != 0))
        kind++;
    if (kind == NG_FAULT_KINDS)
        return unknown_fault(parsing, at, length);
    const struct ng_fault_info *info = &ng_fault_table[kind];
    fault->kind = (enum ng_fault_kind)kind;
    parsing->at += length;
    skip_blanks(parsing);
    if (*parsing->at != '=' && info->argument != NG_FAULT_TAKES_NONE)
        return mistake(parsing, parsing->at, "%s has no argument", info->name),
               possible(parsing, "= and %s", ng_fault_argument_text(info->argument));
    if (info->argument != NG_FAULT_TAKES_NONE) {
        parsing->at++;
        int error = read_value(parsing, ";", &value);
        error = error ?: parse_argument(parsing, &value, info, fault);
        if (error)
            return error;
        skip_blanks(parsing);
    }
    if (*parsing->at && *parsing->at != ';')
        return mistake(parsing, parsing->at, "what follows %s is not understood", info->name),
               possible(parsing, "the end, or ; and another fault");
    return 0;
}

/* Check what depends on the whole fault. */
static int check(struct parsing *parsing, struct reading *reading)
{
    struct ng_fault *fault = reading->fault;
    const struct ng_fault_info *info = &ng_fault_table[fault->kind];
    const char *counted = reading->nth     ? reading->nth
                          : reading->every ? reading->every
                                           : reading->prob;
    bool any = false;

    if (reading->seed && !reading->prob)
        return mistake(parsing, reading->seed, "seed= stands without prob="),
               possible(parsing, "prob= beside it, or neither");
    if (reading->prob && (reading->nth || reading->every))
        return mistake(parsing, reading->prob, "prob= stands beside %s",
                       reading->nth ? "nth=" : "every="),
               possible(parsing, "one of them");
    if (info->place == NG_FAULT_AT_ABORT && (reading->op.at || counted))
        return mistake(parsing, reading->op.at ? reading->op.at : counted,
                       "%s is of no call of the program", info->name),
               possible(parsing, "rank= and group=");
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        if (!ng_op_table[op].name)
            continue;
        fault->ops[op] = reading->op.at ? is_op(op, reading->op.text) && can_happen(info->place, op)
                                        : happens_unnamed(info->place, op);
        any |= fault->ops[op];
    }
    if (any || info->place == NG_FAULT_AT_ABORT)
        return 0;
    mistake(parsing, reading->op.at, "%s cannot happen to %s", info->name, reading->op.text);
    for (unsigned op = 0; op < NG_OP_LIMIT; op++)
        if (ng_op_table[op].name && can_happen(info->place, op))
            possible_name(parsing, ng_op_table[op].name);
    return -EINVAL;
}

static void keep_text(struct ng_fault *fault, const char *from, const char *end)
{
    while (end > from && isblank((unsigned char)end[-1]))
        end--;
    snprintf(fault->text, sizeof(fault->text), "%.*s", (int)(end - from), from);
    for (char *at = fault->text; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
}

static int read_fault(struct parsing *parsing, struct ng_fault *fault)
{
    struct reading reading = {.fault = fault};

    skip_blanks(parsing);
    const char *from = parsing->at;
    *fault = (struct ng_fault){.rank = -1};
    int error = read_conditions(parsing, &reading);
    if (error)
        return error;
    parsing->at++; /* the colon */
    error = read_name(parsing, fault) ?: check(parsing, &reading);
    keep_text(fault, from, parsing->at);
    return error;
}

int ng_fault_spec_parse(const char *text, struct ng_fault_spec *ret_spec,
                        struct ng_fault_mistake *ret_mistake)
{
    struct parsing parsing = {.text = text, .at = text, .mistake = ret_mistake};

    ret_spec->count = 0;
    for (;;) {
        if (ret_spec->count == NG_FAULTS_MAX)
            return mistake(&parsing, parsing.at, "more than %u faults", NG_FAULTS_MAX),
                   possible(&parsing, "the end");
        int error = read_fault(&parsing, &ret_spec->faults[ret_spec->count]);
        if (error)
            return error;
        ret_spec->count++;
        if (!*parsing.at)
            return 0;
        parsing.at++; /* the semicolon */
    }
}
