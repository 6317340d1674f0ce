/*
 * Reading line tables of CPython's code objects.
 *
 * Entered by readers of black boxes. Must never trust the table: it may be damaged.
 */
#include "core/unwind/python_lines.h"

#include <stdbool.h>

#define UNIT_BYTES 2 /* of code */

/* Kinds of entries; those below LINE_0 keep the line, with one byte for the columns. */
enum {
    KIND_LINE_0 = 10, /* to KIND_LINE_2: 0 to 2 lines further, two bytes for the columns */
    KIND_LINE_2 = 12,
    KIND_NO_COLUMNS = 13,
    KIND_LONG = 14,
    KIND_NONE = 15, /* instructions without a line */
};

/* Six bits a byte, lowest first; the lowest bit of all is the sign. False: it does not end within
 * these bytes. */
static bool read_signed(const uint8_t *at, const uint8_t *end, int64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; at < end && shift < 36; shift += 6, at++) {
        value |= (uint64_t)(*at & 63) << shift;
        if (!(*at & 64)) {
            *ret_value = value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
            return true;
        }
    }
    return false;
}

int32_t ng_python_line(const uint8_t *table, size_t bytes, int32_t first_line, uint32_t offset)
{
    const uint8_t *at = table, *end = bytes ? table + bytes : table;
    int64_t line = first_line, further;
    uint64_t passed = 0;

    while (at < end) {
        uint8_t kind = *at >> 3 & 15;
        passed += ((*at & 7) + 1) * UNIT_BYTES;
        at++;
        further = 0;
        if ((kind == KIND_NO_COLUMNS || kind == KIND_LONG) && !read_signed(at, end, &further))
            return 0;
        if (kind >= KIND_LINE_0 && kind <= KIND_LINE_2)
            further = kind - KIND_LINE_0;
        line += further;
        if (offset < passed)
            return kind == KIND_NONE || line < 1 || line > INT32_MAX ? 0 : (int32_t)line;
        while (at < end && !(*at & 0x80))
            at++;
    }
    return 0;
}
