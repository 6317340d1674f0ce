/*
 * Text into an array, cut at its end. For sentences and log lines; no allocation.
 */
#ifndef NCCLGUARD_CORE_TEXT_H
#define NCCLGUARD_CORE_TEXT_H

#include <stddef.h>

struct ng_text {
    char *text; /* NUL-terminated; `bytes` is at least 1 */
    size_t used, bytes;
};

/* Append what fits. Any thread that owns the text. */
__attribute__((format(printf, 2, 3))) void ng_text_add(struct ng_text *text, const char *format,
                                                       ...);

#endif
