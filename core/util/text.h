/*
 * Writes text into an array, truncated at its end. For sentences and log lines; no allocation.
 */
#ifndef NCCLGUARD_CORE_UTIL_TEXT_H
#define NCCLGUARD_CORE_UTIL_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_text {
    char *text; /* NUL-terminated; `bytes` is at least 1 */
    size_t used, bytes;
};

/* Append what fits. Any thread that owns the text. */
__attribute__((format(printf, 2, 3))) void ng_text_add(struct ng_text *text, const char *format,
                                                       ...);
__attribute__((format(printf, 2, 0))) void ng_text_add_list(struct ng_text *text,
                                                            const char *format, va_list arguments);

/* Append "2026-11-25 21:24:00 UTC", optionally with milliseconds. Async-signal-safe. */
void ng_text_add_utc(struct ng_text *text, int64_t unix_ns, bool milliseconds);

/* The rank of element `index`, so that an array of any type with ranks can be written. */
typedef int ng_text_rank_at(const void *ranks, uint32_t index);

/* Append ranks as ranges, "0-3,7,?", at most `limit` bytes; `rank_at` NULL: `ranks` is an array of
 * int. */
void ng_text_add_ranks(struct ng_text *text, ng_text_rank_at *rank_at, const void *ranks,
                       uint32_t count, size_t limit);

/* Ascending ranks as ranges: "0-2,5"; truncated with "..." if they do not fit; "none" for no
 * rank. */
void ng_text_ranks(const int *ranks, uint32_t count, char *ret_text, size_t bytes);

/* What such a text lists: "ranks", or "rank" if it is one. */
const char *ng_text_rank_noun(const char *ranks);

/* Append "340 ms", "12.3 s", "5 min 3 s" or "2 h 1 min": short for a log, exact enough to compare
 * with a deadline. Async-signal-safe. */
void ng_text_add_duration(struct ng_text *text, int64_t ns);

/*
 * Sanitise foreign text in place for a log, a terminal and a file. Control characters, zeros, marks
 * that make a terminal display different text, and invalid UTF-8 become '?'; a character that was
 * cut off at the end is removed. text[bytes] must be 0; returns the new length, which is never
 * greater. `lines`: a document, which keeps newlines and tabs.
 */
size_t ng_text_clean(char *text, size_t bytes, bool lines);

/* Does a character of this length (ng_output_utf8) display as itself? */
bool ng_text_is_shown(const char *text, size_t length);

#endif
