/*
 * Options and operands, by lists.
 *
 * Must never take an option that no list has for one that takes nothing: that is for the caller to
 * weigh.
 */
#include "tools/base/argv_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_length(const char *list, const char *word, size_t length)
{
    if (memchr(word, ' ', length))
        return false;
    for (const char *at = list; at && length > 0 && (at = strstr(at, " ")) != NULL; at++)
        if (strncmp(at + 1, word, length) == 0 && at[1 + length] == ' ')
            return true;
    return false;
}

bool ng_argv_scan_has(const char *list, const char *word)
{
    return has_length(list, word, strlen(word));
}

/* The only long option of these lists that begins so; false: none, or several. */
static bool complete(const struct ng_word_rules *rules, const char *word, size_t length,
                     char ret_name[64])
{
    const char *lists[] = {rules->takes, rules->flags};
    size_t found = 0;

    for (size_t i = 0; i < 2; i++) {
        for (const char *at = lists[i]; at && (at = strstr(at, " --")) != NULL; at++) {
            if (strncmp(at + 1, word, length) != 0)
                continue;
            if (found++ > 0)
                return false;
            snprintf(ret_name, 64, "%.*s", (int)strcspn(at + 1, " "), at + 1);
        }
    }
    return found == 1;
}

/* `name` is an option; `attached` what stands in the same word behind it, NULL nothing. */
static bool take(struct ng_words *words, const char *name, const char *attached,
                 struct ng_word *ret_word)
{
    const struct ng_word_rules *rules = words->rules;
    int takes = ng_argv_scan_has(rules->takes, name)       ? 1
                : ng_argv_scan_has(rules->takes_two, name) ? 2
                                                           : 0;

    if (takes == 0 && !ng_argv_scan_has(rules->flags, name))
        return false;
    ret_word->kind = NG_WORD_OPTION;
    memmove(ret_word->name, name, strlen(name) + 1);
    ret_word->value = attached;
    if (!attached && takes > 0)
        ret_word->value = words->argv[words->at + 1];
    for (; !attached && takes > 0 && words->argv[words->at + 1]; takes--)
        words->at++;
    return true;
}

static void take_letter(struct ng_words *words, struct ng_word *ret_word)
{
    const char name[] = {'-', *words->letters++, '\0'};
    const char *rest = *words->letters ? words->letters : NULL;
    bool takes_rest = ng_argv_scan_has(words->rules->takes, name);

    if (!take(words, name, takes_rest ? rest : NULL, ret_word)) {
        ret_word->kind = NG_WORD_UNKNOWN;
        rest = NULL;
    }
    words->letters = takes_rest ? NULL : rest;
}

static void take_option(struct ng_words *words, const char *word, struct ng_word *ret_word)
{
    const struct ng_word_rules *rules = words->rules;
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    char name[sizeof(ret_word->name)] = "";

    if (word[1] != '-' && !rules->single_dash) {
        /* "-ff" may be an option of its own. */
        if (length < 3 || length >= sizeof(name) || !take(words, word, NULL, ret_word)) {
            words->letters = word + 1;
            take_letter(words, ret_word);
        }
        return;
    }
    if (length < sizeof(name))
        memcpy(name, word, length);
    if (rules->abbreviates && !ng_argv_scan_has(rules->takes, name) &&
        !ng_argv_scan_has(rules->flags, name))
        complete(rules, word, length, name);
    if (take(words, name, equals ? equals + 1 : NULL, ret_word))
        return;
    /* What takes its word behind "=" takes no other. */
    ret_word->kind = equals ? NG_WORD_OPTION : NG_WORD_UNKNOWN;
    if (equals) {
        memcpy(ret_word->name, name, sizeof(name));
        ret_word->value = equals + 1;
    }
}

struct ng_word ng_argv_scan_next(struct ng_words *words)
{
    struct ng_word next = {NG_WORD_END, words->at, words->at, "", NULL};

    if (words->letters) {
        take_letter(words, &next);
    } else if (words->argv[words->at] && words->argv[words->at + 1]) {
        const char *word = words->argv[++words->at];
        next.index = words->at;
        if (!words->operands_only && strcmp(word, "--") == 0) {
            words->operands_only = true;
            return ng_argv_scan_next(words);
        }
        if (words->operands_only || word[0] != '-' || !word[1])
            next.kind = NG_WORD_OPERAND;
        else
            take_option(words, word, &next);
    }
    next.past = words->at + 1;
    return next;
}

/* Take the next word off a text as `env -S` does; false: there is none. `to` is moved on. */
static bool split_word(const char **text, char **to)
{
    static const char between[] = " \t\n\v\f\r";
    char quote = '\0';

    *text += strspn(*text, between);
    if (!**text || **text == '#')
        return false;
    for (; **text && (quote || !strchr(between, **text)); ++*text) {
        if (!quote && (**text == '\'' || **text == '"'))
            quote = **text;
        else if (quote == **text)
            quote = '\0';
        else if (**text == '\\' && (*text)[1] && (quote != '\'' || strchr("'\\", (*text)[1])))
            *(*to)++ = *++*text;
        else
            *(*to)++ = **text;
    }
    *(*to)++ = '\0';
    return true;
}

char **ng_argv_scan_split(char *const *argv, const struct ng_word_rules *rules)
{
    struct ng_words words = {.argv = argv, .rules = rules};
    struct ng_word word;
    size_t rest = 0;

    do
        word = ng_argv_scan_next(&words);
    while (word.kind == NG_WORD_OPTION && strcmp(word.name, "-S") != 0 &&
           strcmp(word.name, "--split-string") != 0);
    if (word.kind != NG_WORD_OPTION || !word.value)
        return NULL;
    while (argv[word.past + (int)rest])
        rest++;
    /* At most every other letter begins a word. Options before -S in the same word (-vS) stay. */
    size_t length = strlen(word.value), limit = (size_t)word.past + length / 2 + 2 + rest;
    size_t before = strlen(argv[word.index]);
    char **split = calloc(1, limit * sizeof(*split) + length + before + 8);
    if (!split)
        return NULL;
    char *to = (char *)(split + limit);
    size_t count = 0;
    for (int i = 0; i < word.index; i++)
        split[count++] = argv[i];
    if (argv[word.index][1] != '-') {
        size_t letters = strcspn(argv[word.index] + 1, "S");
        if (letters > 0) {
            split[count++] = to;
            to += sprintf(to, "-%.*s", (int)letters, argv[word.index] + 1) + 1;
        }
    }
    const char *text = word.value;
    for (char *start = to; split_word(&text, &to); start = to)
        split[count++] = start;
    for (size_t i = 0; i < rest; i++)
        split[count++] = argv[word.past + (int)i];
    return split;
}
