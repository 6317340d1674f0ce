/*
 * Lines of text as wide as the output: cut at whole characters, sentences broken between words.
 *
 * Names come from programs: a text passes ng_sheet_safe before it becomes part of a line.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_SHEET_H
#define NCCLGUARD_TOOLS_RENDER_SHEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define NG_SHEET_COLUMNS_MAX 2000

/* The output while it is written. Colours are parameters of SGR, "1;31"; NULL: none. */
struct ng_sheet {
    FILE *file;
    unsigned columns;
    unsigned left; /* lines */
    bool colour;
};

/* In columns of a terminal, counting each character as one. */
size_t ng_sheet_width(const char *text);

/* How many bytes the first `width` characters take. */
size_t ng_sheet_bytes(const char *text, size_t width);

/* Cut at a whole character. */
void ng_sheet_cut(char *ret_text, size_t bytes, const char *text);

/* Likewise, without what a terminal must not get. */
void ng_sheet_safe(char *ret_text, size_t bytes, const char *text);

/* One line, no longer than the output is wide; none if no line is left. */
void ng_sheet_put_line(struct ng_sheet *sheet, const char *text, const char *colour);
__attribute__((format(printf, 3, 4))) void ng_sheet_put(struct ng_sheet *sheet, const char *colour,
                                                        const char *format, ...);

/* A sentence over as many lines as it needs, `lines` at most, broken between words. */
void ng_sheet_put_sentence(struct ng_sheet *sheet, const char *text, const char *indent,
                           const char *colour, unsigned lines);

#endif
