/*
 * Lines of text as wide as the output.
 *
 * Must never cut a character in two.
 */
#include "tools/render/sheet.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/render/findings.h"

static bool goes_on(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

size_t ng_sheet_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += !goes_on(*text);
    return width;
}

size_t ng_sheet_bytes(const char *text, size_t width)
{
    const char *at = text;

    for (; *at; at++)
        if (!goes_on(*at) && width-- == 0)
            break;
    return (size_t)(at - text);
}

void ng_sheet_cut(char *ret_text, size_t bytes, const char *text)
{
    size_t length = strlen(text);

    if (length >= bytes)
        for (length = bytes - 1; length > 0 && goes_on(text[length]);)
            length--;
    memcpy(ret_text, text, length);
    ret_text[length] = '\0';
}

void ng_sheet_safe(char *ret_text, size_t bytes, const char *text)
{
    char *safe = ng_findings_safe_copy(text);

    ng_sheet_cut(ret_text, bytes, safe ? safe : "?");
    free(safe);
}

void ng_sheet_put_line(struct ng_sheet *sheet, const char *text, const char *colour)
{
    size_t bytes = ng_sheet_bytes(text, sheet->columns);

    if (!sheet->left)
        return;
    sheet->left--;
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    if (colour && sheet->colour)
        fprintf(sheet->file, "\033[%sm%.*s\033[0m\n", colour, (int)bytes, text);
    else
        fprintf(sheet->file, "%.*s\n", (int)bytes, text);
}

void ng_sheet_put(struct ng_sheet *sheet, const char *colour, const char *format, ...)
{
    char line[NG_SHEET_COLUMNS_MAX * 4];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    ng_sheet_put_line(sheet, line, colour);
}

void ng_sheet_put_sentence(struct ng_sheet *sheet, const char *text, const char *indent,
                           const char *colour, unsigned lines)
{
    bool first = true;

    while (*text && lines-- > 0) {
        size_t room = sheet->columns - (first ? 0 : strlen(indent));
        size_t bytes = ng_sheet_bytes(text, room), end = bytes;
        if (text[bytes] && lines > 0) {
            while (end > 0 && text[end] != ' ')
                end--;
            end = end ? end : bytes;
        }
        ng_sheet_put(sheet, colour, "%s%.*s", first ? "" : indent, (int)end, text);
        text += end + strspn(text + end, " ");
        first = false;
    }
}
