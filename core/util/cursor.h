/*
 * Sequential reading of DWARF-encoded data.
 *
 * Source: DWARF 5 standard, section 7. Guard threads. The bytes may be damaged: reading past the
 * end gives zero and sets `bad`.
 */
#ifndef NCCLGUARD_CORE_UTIL_CURSOR_H
#define NCCLGUARD_CORE_UTIL_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Copied bytes and their original address. */
struct ng_cursor {
    const uint8_t *at, *end;
    uint64_t address; /* of `at` in memory */
    bool bad;         /* read past the end: the value is zero */
};

static inline void ng_cursor_skip(struct ng_cursor *cursor, uint64_t count)
{
    if (count > (uint64_t)(cursor->end - cursor->at)) {
        cursor->bad = true;
        count = (uint64_t)(cursor->end - cursor->at);
    }
    cursor->at += count;
    cursor->address += count;
}

static inline uint64_t ng_cursor_take(struct ng_cursor *cursor, unsigned bytes)
{
    uint64_t value = 0;

    if ((size_t)(cursor->end - cursor->at) < bytes) {
        cursor->bad = true;
        return 0;
    }
    memcpy(&value, cursor->at, bytes);
    ng_cursor_skip(cursor, bytes);
    return value;
}

static inline int64_t ng_cursor_take_signed(struct ng_cursor *cursor, unsigned bytes)
{
    unsigned unused = 64 - 8 * bytes;

    return (int64_t)(ng_cursor_take(cursor, bytes) << unused) >> unused;
}

static inline uint64_t ng_cursor_take_uleb(struct ng_cursor *cursor)
{
    uint64_t value = 0, byte = 0x80;

    for (unsigned shift = 0; (byte & 0x80) && !cursor->bad; shift += 7) {
        byte = ng_cursor_take(cursor, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    return value;
}

static inline int64_t ng_cursor_take_sleb(struct ng_cursor *cursor)
{
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;

    for (; (byte & 0x80) && !cursor->bad; shift += 7) {
        byte = ng_cursor_take(cursor, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    if ((byte & 0x40) && shift < 64)
        value |= UINT64_MAX << shift;
    return (int64_t)value;
}

#endif
