/*
 * Line tables of CPython's code objects: core/unwind/python_lines.h.
 *
 * A sample is the first line and the instruction's place, four bytes each, and the table.
 */
#include <stdlib.h>
#include <string.h>

#include "core/unwind/python_lines.h"
#include "tests/fuzz/parts.h"

#define HEAD_BYTES 8u

/* Of one function, as 3.13 has compiled it. */
static const uint8_t table[] = {
    128, 0,   241, 6,   0,   23,  24,  243, 3,   1,   13,  25,  217, 22,  23,  144, 17,
    243, 3,   0,   14,  15,  217, 22,  23,  240, 3,   0,   5,   10,  240, 0,   1,   13,
    25,  230, 7,   8,   220, 16,  22,  216, 12,  13,  216, 12,  16,  243, 5,   2,   17,
    18,  136, 5,   240, 6,   6,   5,   21,  220, 13,  17,  144, 33,  140, 87,  152, 1,
    216, 12,  16,  247, 3,   0,   14,  21,  244, 10,  0,   9,   14,  136, 101, 140, 12,
    240, 84,  1,   0,   12,  17,  128, 76,  249, 242, 109, 1,   1,   13,  25,  247, 14,
    0,   14,  21,  141, 87,  251, 228, 11,  21,  243, 0,   1,   5};

static size_t make_lines(struct damage_sample samples[PART_SAMPLES_MAX])
{
    static const uint32_t places[] = {0, 2, 60, 100, 142};
    size_t count = sizeof(places) / sizeof(places[0]);

    for (size_t i = 0; i < count; i++) {
        uint8_t *bytes = malloc(HEAD_BYTES + sizeof(table));
        uint32_t first = 3;
        if (!bytes)
            exit(1);
        memcpy(bytes, &first, sizeof(first));
        memcpy(bytes + 4, &places[i], sizeof(places[i]));
        memcpy(bytes + HEAD_BYTES, table, sizeof(table));
        samples[i] = damage_sample_make("table", bytes, HEAD_BYTES + sizeof(table));
    }
    return count;
}

static bool take_lines(const uint8_t *bytes, size_t count)
{
    int32_t first;
    uint32_t place;

    if (count < HEAD_BYTES)
        return false;
    memcpy(&first, bytes, sizeof(first));
    memcpy(&place, bytes + 4, sizeof(place));
    int32_t line = ng_python_line(bytes + HEAD_BYTES, count - HEAD_BYTES, first, place);
    part_promise(line >= 0, "a line before the first");
    part_promise(count > HEAD_BYTES || line == 0, "a line of no table");
    return line > 0;
}

const struct part part_lines = {.name = "lines", .make = make_lines, .take = take_lines};
