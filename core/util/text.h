/*
 * Text into an array, cut at its end. For sentences and log lines; no allocation.
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

/* Append "2026-11-25 21:24:00 UTC", with milliseconds behind the seconds if so wished.
 * Async-signal-safe. */
void ng_text_add_utc(struct ng_text *text, int64_t unix_ns, bool milliseconds);

/* The rank of element `index`; so that an array of anything that has a rank can be written down. */
typedef int ng_text_rank_at(const void *ranks, uint32_t index);

/* Append ranks in ranges, "0-3,7,?", in `limit` bytes at most; `rank_at` NULL: `ranks` is an array
 * of int. */
void ng_text_add_ranks(struct ng_text *text, ng_text_rank_at *rank_at, const void *ranks,
                       uint32_t count, size_t limit);

/* Ascending ranks as people write them: "0-2,5"; cut with "..." where they do not fit; "none" for
 * no rank. */
void ng_text_ranks(const int *ranks, uint32_t count, char *ret_text, size_t bytes);

/* Append "340 ms", "12.3 s", "5 min 3 s" or "2 h 1 min": short for a log, exact enough to compare
 * with a deadline. Async-signal-safe. */
void ng_text_add_duration(struct ng_text *text, int64_t ns);

/*
 * In place: what somebody else wrote is fit for a log, a terminal and a file. Control characters
 * and zeros, marks that let a terminal show another text than there is, and bytes that are no UTF-8
 * become '?'; a character that was cut off at the end goes. text[bytes] must be 0; returns the new
 * length, which is no longer. `lines`: of a document, where lines and tabs stay.
 */
size_t ng_text_clean(char *text, size_t bytes, bool lines);

/* Is a character of so many bytes (ng_output_utf8) shown as what it is? */
bool ng_text_is_shown(const char *text, size_t length);

#endif
