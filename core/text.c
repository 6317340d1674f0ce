/*
 * Text into an array.
 *
 * Steps 9 to 11. Must never write beyond the array, nor leave it without an end.
 */
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

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
