/*
 * Reads the words of another program's command line: which are its options, which take a word.
 *
 * Lists of options are texts with a space on both sides of each: " -n --nodes ".
 */
#ifndef NCCLGUARD_TOOLS_BASE_ARGV_SCAN_H
#define NCCLGUARD_TOOLS_BASE_ARGV_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct ng_word_rules {
    const char *takes;     /* options that take a word */
    const char *takes_two; /* or two */
    const char *flags;     /* or none */
    bool single_dash;      /* -name is one option, not letters in a row */
    bool abbreviates;      /* the lists are complete, and --na means --name */
};

enum ng_word_kind {
    NG_WORD_END,
    NG_WORD_OPTION,
    NG_WORD_UNKNOWN, /* an option that is in no list; it may or may not take the next word */
    NG_WORD_OPERAND,
};

struct ng_word {
    enum ng_word_kind kind;
    int index;         /* in argv; of an option that took words: where it stands */
    int past;          /* index behind it and the words that it took */
    char name[64];     /* of an option that is known: as the list has it */
    const char *value; /* what such an option took; NULL none */
};

/* A reading position; `argv[0]` is the program. {.argv = …, .rules = …} begins. */
struct ng_words {
    char *const *argv;
    const struct ng_word_rules *rules;
    int at;              /* the word read last */
    const char *letters; /* of options in one word that are still to come; NULL none */
    bool operands_only;
};

/* The next option or operand. Options that stand in one word (-iv) come one by one. */
struct ng_word ng_argv_scan_next(struct ng_words *words);

/* Whether `word` stands in a list. */
bool ng_argv_scan_has(const char *list, const char *word);

/*
 * The first word of `argv` that leads `env` to take a text apart (-S) is replaced by the words of
 * it: a new argv in one piece of memory, to be freed; it points into the old one, too. NULL: there
 * is none (or no memory).
 */
char **ng_argv_scan_split(char *const *argv, const struct ng_word_rules *rules);

#endif
