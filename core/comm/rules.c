/*
 * The grammar of a rules file, and the rules that match a communicator.
 *
 * Any thread: pure. Must never trust the text, which a person wrote, nor match long strings, for
 * which fnmatch would allocate.
 */
#include "core/comm/rules.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/config/config.h"
#include "core/util/macros.h"

#define VALUE_MAX 255u /* bytes of a value */

struct parsing {
    const char *file;
    uint32_t line, mistakes;
    ng_rules_report_fn *report;
    void *context;
};

/* Returns -EINVAL, for the caller to pass on. */
__attribute__((format(printf, 2, 3))) static int mistake(struct parsing *parsing,
                                                         const char *format, ...)
{
    char line[900];
    va_list arguments;

    if (parsing->mistakes++ >= NG_RULES_TOLD)
        return -EINVAL;
    int used = snprintf(line, sizeof(line), "%.200s:%" PRIu32 ": ", parsing->file, parsing->line);
    va_start(arguments, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, arguments);
    va_end(arguments);
    /* The line is logged, so control characters of the file are removed. */
    for (char *at = line; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = '?';
    parsing->report(parsing->context, line);
    return -EINVAL;
}

/* ---- Values ---- */

struct key;
typedef int parse_fn(struct parsing *parsing, const struct key *key, const char *value,
                     struct ng_rule *rule);

struct key {
    const char *name;
    bool is_setting;
    bool of_operation; /* a setting that can be combined with op= */
    parse_fn *parse;
    size_t field;       /* in struct ng_rule */
    const char *option; /* option whose values it takes; NULL none */
};

static void *field_of(const struct key *key, struct ng_rule *rule)
{
    return (char *)rule + key->field;
}

static int parse_text(struct parsing *parsing, const struct key *key, const char *value,
                      struct ng_rule *rule)
{
    *(const char **)field_of(key, rule) = value;
    return 0;
}

static int parse_name(struct parsing *parsing, const struct key *key, const char *value,
                      struct ng_rule *rule)
{
    if (strlen(value) >= NG_RULES_NAME)
        return mistake(parsing, "%s=%s is too long: use at most %u bytes", key->name, value,
                       NG_RULES_NAME - 1);
    for (const char *at = value; *at; at++)
        if (iscntrl((unsigned char)*at))
            return mistake(parsing, "%s=%s holds control characters: leave them out", key->name,
                           value);
    return parse_text(parsing, key, value, rule);
}

/* Read digits from `*at` on; an empty number is `otherwise`. */
static bool read_number(const char **at, int32_t otherwise, int32_t *ret_number)
{
    int64_t number = 0;

    if (!isdigit((unsigned char)**at)) {
        *ret_number = otherwise;
        return true;
    }
    for (; isdigit((unsigned char)**at); (*at)++) {
        number = 10 * number + (**at - '0');
        if (number > INT32_MAX)
            return false;
    }
    *ret_number = (int32_t)number;
    return true;
}

static bool read_range(const char *value, struct ng_rule_range *ret_range)
{
    struct ng_rule_range range;
    const char *at = value;

    if (!read_number(&at, 0, &range.first))
        return false;
    range.last = range.first;
    if (strncmp(at, "..", 2) == 0) {
        at += 2;
        if (!read_number(&at, INT32_MAX, &range.last))
            return false;
    }
    if (*at || range.first > range.last || !strpbrk(value, "0123456789"))
        return false;
    *ret_range = range;
    return true;
}

static int parse_size(struct parsing *parsing, const struct key *key, const char *value,
                      struct ng_rule *rule)
{
    if (read_range(value, &rule->size))
        return 0;
    return mistake(parsing,
                   "%s=%s is not valid: use a number of ranks, or a range: 2..8, 64.., ..4",
                   key->name, value);
}

/* A number or a range; anything with a letter, a colon or a wildcard is a PCI id. */
static int parse_device(struct parsing *parsing, const struct key *key, const char *value,
                        struct ng_rule *rule)
{
    rule->has_device = true;
    if (read_range(value, &rule->device))
        return 0;
    if (!strpbrk(value, ":*?["))
        return mistake(parsing,
                       "%s=%s is not valid: use a number, a range as 0..3, or a pattern of PCI ids "
                       "as 0000:1b:*",
                       key->name, value);
    rule->pci_id = value;
    return 0;
}

static int parse_op(struct parsing *parsing, const struct key *key, const char *value,
                    struct ng_rule *rule)
{
    char pattern[VALUE_MAX + 1];

    rule->has_op = true;
    for (const char *at = value; at;) {
        const char *comma = strchr(at, ',');
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        bool found = false;
        memcpy(pattern, at, length);
        pattern[length] = '\0';
        const char *bare = strncasecmp(pattern, "nccl", 4) == 0 ? pattern + 4 : pattern;
        for (unsigned op = 0; op < NG_OP_LIMIT; op++)
            if (ng_op_table[op].name && fnmatch(bare, ng_op_table[op].name, FNM_CASEFOLD) == 0)
                rule->ops[op] = found = true;
        if (!found)
            return mistake(parsing,
                           "%s=%s: no operation is called so; use NCCL's names, as AllReduce, "
                           "Send or Comm*",
                           key->name, pattern);
        at = comma ? comma + 1 : NULL;
    }
    return 0;
}

static int parse_duration(struct parsing *parsing, const struct key *key, const char *value,
                          struct ng_rule *rule)
{
    char why[256];
    int64_t ns;

    if (ng_config_parse_value(ng_config_find(key->option), value, &ns, why, sizeof(why)) != 0)
        return mistake(parsing, "%s=%s is not valid: %s", key->name, value, why);
    *(int64_t *)field_of(key, rule) = ns ? ns : NG_DEADLINE_NONE;
    return 0;
}

static int parse_policy(struct parsing *parsing, const struct key *key, const char *value,
                        struct ng_rule *rule)
{
    char why[256];
    int choice;

    if (ng_config_parse_value(ng_config_find(key->option), value, &choice, why, sizeof(why)) != 0)
        return mistake(parsing, "%s=%s is not valid: %s", key->name, value, why);
    rule->policy = choice + 1;
    return 0;
}

static int parse_check(struct parsing *parsing, const struct key *key, const char *value,
                       struct ng_rule *rule)
{
    static const char *const words[] = {
        [NG_RULE_CHECK_OFF] = "off",
        [NG_RULE_CHECK_TELL] = "tell",
        [NG_RULE_CHECK_REFUSE] = "refuse",
        [NG_RULE_CHECK_END] = "end",
    };

    for (unsigned i = 1; i < NG_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) {
            rule->check = (enum ng_rule_check)i;
            return 0;
        }
    return mistake(parsing, "%s=%s is not valid: use one of: off, tell, refuse, end", key->name,
                   value);
}

#define FIELD(name) offsetof(struct ng_rule, name)
static const struct key keys[] = {
    {"group", false, false, parse_text, FIELD(group), NULL},
    {"size", false, false, parse_size, FIELD(size), NULL},
    {"parent", false, false, parse_text, FIELD(parent), NULL},
    {"device", false, false, parse_device, FIELD(device), NULL},
    {"op", false, false, parse_op, FIELD(ops), NULL},
    {"timeout", true, true, parse_duration, FIELD(timeout_ns), "NCCLGUARD_TIMEOUT"},
    {"suspect", true, true, parse_duration, FIELD(suspect_ns), "NCCLGUARD_SUSPECT"},
    {"policy", true, true, parse_policy, FIELD(policy), "NCCLGUARD_ON_TIMEOUT"},
    {"name", true, false, parse_name, FIELD(name), NULL},
    {"rename", true, false, parse_name, FIELD(rename), NULL},
    {"check", true, true, parse_check, 0, NULL},
};
#define KEYS NG_COUNT(keys)

/* ---- Lines ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Does the colon at `at` separate conditions from settings, rather than belong to a PCI id? */
static bool is_parting(const char *at)
{
    return *at == ':' && (!at[1] || is_blank(at[1]));
}

/* State of reading a line. */
struct line {
    char *at;
    bool divergence; /* the colon after the last word is returned next */
    bool unclosed;   /* a quote is not closed */
};

/* The next word, its quotes removed in place; ":" by itself; NULL at the end. */
static char *next_word(struct line *line)
{
    static char colon[] = ":";
    bool quoted = false;

    while (is_blank(*line->at))
        line->at++;
    if (!line->divergence && is_parting(line->at)) {
        line->divergence = true;
        line->at++;
    }
    if (line->divergence) {
        line->divergence = false;
        return colon;
    }
    if (!*line->at || *line->at == '#')
        return NULL;
    char *word = line->at, *end = word;
    for (; *line->at; line->at++) {
        if (!quoted && (is_blank(*line->at) || is_parting(line->at)))
            break;
        if (*line->at == '"')
            quoted = !quoted;
        else
            *end++ = *line->at;
    }
    line->unclosed = quoted;
    line->divergence = *line->at == ':';
    if (*line->at)
        line->at++;
    *end = '\0'; /* overwrites at most what has just been read */
    return word;
}

static const char *const known[] = {"group, size, parent, device and op",
                                    "timeout, suspect, policy, check, name and rename"};
static const char *const sides[] = {"left", "right"};

/* A rule being read. */
struct reading {
    struct ng_rule *rule;
    unsigned words[2]; /* conditions, settings */
    bool parted;
    bool seen[KEYS];
};

static int read_word(struct parsing *parsing, struct reading *reading, char *word)
{
    char *equals = strchr(word, '=');
    bool right = reading->parted;

    if (!right && strcmp(word, "*") == 0) {
        reading->words[0]++;
        return 0;
    }
    if (!equals)
        return mistake(parsing,
                       "%.80s is not understood: %s of the colon stand %s, each with = and "
                       "a value",
                       word, sides[right], known[right]);
    *equals = '\0';
    const struct key *key = NG_FIND(one, keys, KEYS, strcmp(one->name, word) == 0);
    if (!key)
        return mistake(parsing, "%.80s= is not known: %s of the colon stand %s", word, sides[right],
                       known[right]);
    if (key->is_setting != right)
        return mistake(parsing, "%s= stands %s of the colon: write it %s of it", key->name,
                       sides[right], sides[!right]);
    if (reading->seen[key - keys])
        return mistake(parsing, "%s= stands there twice: leave one", key->name);
    if (!equals[1])
        return mistake(parsing, "%s= has no value: write one, or leave it out", key->name);
    if (strlen(equals + 1) > VALUE_MAX)
        return mistake(parsing, "%s=%.40s…: longer than %u bytes: use a shorter value", key->name,
                       equals + 1, VALUE_MAX);
    reading->seen[key - keys] = true;
    reading->words[right]++;
    return key->parse(parsing, key, equals + 1, reading->rule);
}

/* Check what only the whole rule shows. */
static int check_rule(struct parsing *parsing, const struct reading *reading)
{
    if (!reading->parted)
        return mistake(parsing, "there is no colon: write conditions : settings, such as "
                                "`size=8 : timeout=30s`");
    if (!reading->words[0])
        return mistake(parsing, "nothing stands left of the colon: write * for every group");
    if (!reading->words[1])
        return mistake(parsing, "nothing stands right of the colon: write a setting, such as "
                                "timeout=30s");
    for (size_t i = 0; reading->rule->has_op && i < KEYS; i++)
        if (reading->seen[i] && keys[i].is_setting && !keys[i].of_operation)
            return mistake(parsing, "%s= is of a whole group: leave op= out, or write two rules",
                           keys[i].name);
    return 0;
}

/* Modifies the line. The rule is added if the line holds one without mistakes. */
static void read_line(struct parsing *parsing, char *text, struct ng_rules *rules)
{
    struct ng_rule rule = {.size = {0, INT32_MAX}};
    struct reading reading = {.rule = &rule};
    struct line line = {.at = text};
    char *word = next_word(&line);

    if (!word)
        return;
    for (; word; word = next_word(&line)) {
        if (line.unclosed) {
            mistake(parsing, "a quote is not closed: write \" at the end of the value");
            return;
        }
        if (strcmp(word, ":") != 0) {
            if (read_word(parsing, &reading, word) != 0)
                return;
        } else if (reading.parted) {
            mistake(parsing, "there are two colons: write each rule on a line of its own");
            return;
        } else {
            reading.parted = true;
        }
    }
    if (check_rule(parsing, &reading) != 0)
        return;
    if (rules->count == NG_RULES_MAX)
        mistake(parsing, "more than %u rules: leave some out", NG_RULES_MAX);
    else
        rules->rules[rules->count++] = rule;
}

uint32_t ng_rules_parse(const char *file, const char *text, size_t bytes,
                        struct ng_rules *ret_rules, ng_rules_report_fn *report, void *context)
{
    struct parsing parsing = {.file = file, .line = 1, .report = report, .context = context};

    ret_rules->count = 0;
    if (bytes > NG_RULES_BYTES_MAX) {
        mistake(&parsing, "the file is larger than %u bytes: use a shorter one",
                NG_RULES_BYTES_MAX);
        return parsing.mistakes;
    }
    memcpy(ret_rules->text, text, bytes);
    ret_rules->text[bytes] = '\0';
    if (strlen(ret_rules->text) < bytes) {
        mistake(&parsing, "the file holds a zero byte: it must be a text");
        return parsing.mistakes;
    }
    for (char *line = ret_rules->text, *next; line; line = next, parsing.line++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        read_line(&parsing, line, ret_rules);
    }
    if (parsing.mistakes > NG_RULES_TOLD) {
        char more[80];
        snprintf(more, sizeof(more), "and %" PRIu32 " more mistakes",
                 parsing.mistakes - NG_RULES_TOLD);
        report(context, more);
    }
    return parsing.mistakes;
}

/* ---- Matching ---- */

static bool is_within(const struct ng_rule_range *range, int value)
{
    return value >= range->first && value <= range->last;
}

bool ng_rules_is_called(const char *pattern, const char *name, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof(text), "%016" PRIx64, id);
    return fnmatch(pattern, name, 0) == 0 || (id && fnmatch(pattern, text, FNM_CASEFOLD) == 0);
}

static bool is_of_any_size(const struct ng_rule *rule)
{
    return rule->size.first == 0 && rule->size.last == INT32_MAX;
}

/* `name`: the group's name so far. */
static bool holds(const struct ng_rule *rule, const struct ng_rules_group *group, const char *name)
{
    if (rule->group && !ng_rules_is_called(rule->group, name, group->id))
        return false;
    if (!is_of_any_size(rule) && (group->nranks <= 0 || !is_within(&rule->size, group->nranks)))
        return false;
    if (rule->parent && (!group->parent_id ||
                         !ng_rules_is_called(rule->parent, group->parent_name, group->parent_id)))
        return false;
    if (rule->pci_id)
        return *group->pci_id && fnmatch(rule->pci_id, group->pci_id, FNM_CASEFOLD) == 0;
    return !rule->has_device || (group->device >= 0 && is_within(&rule->device, group->device));
}

/* Do a rule's times apply to this operation? */
static bool is_for(const struct ng_rule *rule, unsigned op)
{
    return rule->has_op ? rule->ops[op] : !ng_op_is_init(op);
}

static void set_limits(const struct ng_rule *rule, struct ng_deadline_limits *limits)
{
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        if (is_for(rule, op) && rule->timeout_ns)
            limits->timeout_ns[op] = rule->timeout_ns;
        if (is_for(rule, op) && rule->suspect_ns)
            limits->suspect_ns[op] = rule->suspect_ns;
        if (rule->has_op && !rule->ops[op])
            continue;
        if (rule->policy)
            limits->policy[op] = rule->policy;
        if (rule->check)
            limits->check[op] = rule->check;
    }
}

void ng_rules_match(const struct ng_rules *rules, const struct ng_rules_group *group,
                    struct ng_deadline_limits *ret_limits, char ret_name[NG_RULES_NAME])
{
    const char *name = group->name;

    memset(ret_limits, 0, sizeof(*ret_limits));
    NG_EACH (rule, rules->rules, rules->count) {
        if (!holds(rule, group, name))
            continue;
        set_limits(rule, ret_limits);
        if (rule->name && !*group->name)
            name = rule->name;
        if (rule->rename)
            name = rule->rename;
    }
    snprintf(ret_name, NG_RULES_NAME, "%s", name);
}

enum ng_on_timeout ng_rules_gravest(const struct ng_rules *rules, enum ng_op op,
                                    enum ng_on_timeout otherwise)
{
    enum ng_on_timeout gravest = otherwise;

    NG_EACH (rule, rules->rules, rules->count) {
        enum ng_on_timeout policy = (enum ng_on_timeout)(rule->policy - 1);
        if (!rule->policy || (rule->has_op && !rule->ops[op]))
            continue;
        bool every = !rule->group && is_of_any_size(rule) && !rule->parent && !rule->pci_id &&
                     !rule->has_device;
        /* The last matching rule counts. */
        if (every || ng_on_timeout_milder(policy, gravest) == gravest)
            gravest = policy;
    }
    return gravest;
}

enum ng_on_timeout ng_rules_mildest(const struct ng_rules *rules, enum ng_on_timeout otherwise)
{
    enum ng_on_timeout mildest = otherwise;

    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->rules[i].policy)
            mildest =
                ng_on_timeout_milder((enum ng_on_timeout)(rules->rules[i].policy - 1), mildest);
    return mildest;
}
