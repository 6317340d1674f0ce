/*
 * Text into an array.
 *
 * Steps 9 to 11. Must never write beyond the array, nor leave it without an end.
 */
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/json.h"

void ng_text_add(struct ng_text *text, const char *format, ...)
{
    va_list arguments;
    size_t room = text->bytes - text->used;

    va_start(arguments, format);
    int length = vsnprintf(text->text + text->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->used += (size_t)length < room ? (size_t)length : room - 1;
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
