/*
 * Writes text into an array.
 *
 * Must never write beyond the array, nor leave it without a NUL.
 */
#include "core/util/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/json.h"

void ng_text_add_list(struct ng_text *text, const char *format, va_list arguments)
{
    size_t room = text->bytes - text->used;
    int length = vsnprintf(text->text + text->used, room, format, arguments);

    if (length > 0)
        text->used += (size_t)length < room ? (size_t)length : room - 1;
}

void ng_text_add(struct ng_text *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    ng_text_add_list(text, format, arguments);
    va_end(arguments);
}

/* By arithmetic: the C library's conversions take the lock of the time zone. */
void ng_text_add_utc(struct ng_text *text, int64_t unix_ns, bool milliseconds)
{
    int64_t seconds = unix_ns / NG_S, day = seconds / 86400, of_day = seconds % 86400;
    /* Eras of 400 years that begin on 1 March, so that the leap day is the last one. */
    int64_t shifted = day + 719468, era = shifted / 146097, of_era = shifted % 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153, of_month = of_year - (153 * month + 2) / 5 + 1;

    month = month < 10 ? month + 3 : month - 9;
    year += era * 400 + (month <= 2);
    ng_text_add(text,
                "%04" PRId64 "-%02" PRId64 "-%02" PRId64 " %02" PRId64 ":%02" PRId64 ":%02" PRId64,
                year, month, of_month, of_day / 3600, of_day / 60 % 60, of_day % 60);
    if (milliseconds)
        ng_text_add(text, ".%03" PRId64, unix_ns / NG_MS % 1000);
    ng_text_add(text, " UTC");
}

/* No %f: the locale would choose the point. */
void ng_text_add_duration(struct ng_text *text, int64_t ns)
{
    int64_t ms = ns > 0 ? ns / NG_MS : 0, s = ms / 1000;

    if (ms < 1000)
        ng_text_add(text, "%" PRId64 " ms", ms);
    else if (s < 120)
        ng_text_add(text, "%" PRId64 ".%" PRId64 " s", s, ms % 1000 / 100);
    else if (s < 7200)
        ng_text_add(text, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
    else
        ng_text_add(text, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
}

bool ng_text_is_shown(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;

    if (length == 1)
        return bytes[0] >= ' ' && bytes[0] != 127;
    if (length == 2)
        return bytes[0] != 0xc2 || bytes[1] >= 0xa0; /* U+0080 to U+009F */
    /* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069 */
    if (length == 3 && bytes[0] == 0xe2)
        return !((bytes[1] == 0x80 && (bytes[2] == 0x8e || bytes[2] == 0x8f ||
                                       (bytes[2] >= 0xa8 && bytes[2] <= 0xae))) ||
                 (bytes[1] == 0x81 && bytes[2] >= 0xa6 && bytes[2] <= 0xa9));
    return true;
}

size_t ng_text_clean(char *text, size_t bytes, bool lines)
{
    const char *end = text + bytes;
    char *to = text;

    for (const char *at = text; at < end;) {
        size_t skip, length = ng_output_utf8(at, &skip);
        bool begins = (unsigned char)*at >= 0xc2 && (unsigned char)*at <= 0xf4;
        if (!length && begins && at + skip == end)
            break; /* cut off */
        if (length && (ng_text_is_shown(at, length) || (lines && (*at == '\n' || *at == '\t'))))
            for (size_t i = 0; i < length; i++)
                *to++ = at[i];
        else
            *to++ = '?';
        at += length ? length : skip;
    }
    *to = '\0';
    return (size_t)(to - text);
}

static int number_at(ng_text_rank_at *rank_at, const void *ranks, uint32_t index)
{
    return rank_at ? rank_at(ranks, index) : ((const int *)ranks)[index];
}

void ng_text_add_ranks(struct ng_text *line, ng_text_rank_at *rank_at, const void *ranks,
                       uint32_t count, size_t limit)
{
    size_t end = line->used + limit < line->bytes ? line->used + limit : line->bytes;

    if (count == 0) {
        ng_text_add(line, "none");
        return;
    }
    for (uint32_t i = 0; i < count;) {
        int first = number_at(rank_at, ranks, i), last = first;
        const char *comma = i ? "," : "";
        char piece[32];
        for (i++; i < count; i++) {
            int next = number_at(rank_at, ranks, i);
            if (next != last && (next != last + 1 || first < 0))
                break;
            last = next;
        }
        if (first < 0)
            snprintf(piece, sizeof(piece), "%s?", comma); /* -1: rank not known */
        else if (first == last)
            snprintf(piece, sizeof(piece), "%s%d", comma, first);
        else
            snprintf(piece, sizeof(piece), "%s%d%s%d", comma, first, last == first + 1 ? "," : "-",
                     last);
        /* Keep 4 bytes for the dots, and one for the NUL. */
        if (line->used + strlen(piece) + (i < count ? 4 : 0) + 1 > end) {
            ng_text_add(line, "%s...", comma);
            return;
        }
        ng_text_add(line, "%s", piece);
    }
}

void ng_text_ranks(const int *ranks, uint32_t count, char *ret_text, size_t bytes)
{
    struct ng_text line = {ret_text, 0, bytes};

    if (!bytes)
        return;
    ret_text[0] = '\0';
    ng_text_add_ranks(&line, NULL, ranks, count, bytes);
}

const char *ng_text_rank_noun(const char *ranks)
{
    return strpbrk(ranks, "-,") ? "ranks" : "rank";
}
