/*
 * Writes Python's pickle format, protocol 2, to a file descriptor, through a fixed buffer.
 *
 * Entered by the guard's threads and by the command, one thread per writer. Must never allocate or
 * lock.
 *
 * Python's pickletools documents the opcodes.
 */
#include "core/util/pickle.h"

#include <errno.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

enum kind { DICT, DICT_AFTER_KEY, LIST, TUPLE };

/* How a container of each kind begins and ends. A mark lets its end be written before its length is
 * known. */
static const struct {
    const char *open, *close;
} brackets[] = {
    [DICT] = {"}(", "u"}, /* EMPTY_DICT MARK … SETITEMS */
    [DICT_AFTER_KEY] = {"", ""},
    [LIST] = {"](", "e"}, /* EMPTY_LIST MARK … APPENDS */
    [TUPLE] = {"(", "t"}, /* MARK … TUPLE */
};

static void put(struct ng_pickle *pickle, const char *text)
{
    ng_output_bytes(&pickle->output, text, strlen(text));
}

static void put_byte(struct ng_pickle *pickle, unsigned byte)
{
    unsigned char value = (unsigned char)byte;

    ng_output_bytes(&pickle->output, &value, 1);
}

/* Write the lowest `bytes` bytes, little-endian. */
static void put_little(struct ng_pickle *pickle, uint64_t value, unsigned bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        put_byte(pickle, value & 0xff);
}

static void fail(struct ng_pickle *pickle, int error)
{
    if (!pickle->output.error)
        pickle->output.error = error;
}

void ng_pickle_init(struct ng_pickle *pickle, int fd)
{
    ng_output_init(&pickle->output, fd);
    pickle->depth = 0;
    pickle->filled = false;
    pickle->name_count = 0;
    put(pickle, "\x80\x02"); /* PROTO 2 */
}

/* BINUNICODE. Readers reject invalid UTF-8, and the length comes first: so it is measured
 * before. */
static void put_text(struct ng_pickle *pickle, const char *text)
{
    uint64_t bytes = 0;
    size_t skip;

    for (const char *at = text; *at;) {
        size_t length = ng_output_utf8(at, &skip);
        size_t written = length ? length : strlen(REPLACEMENT);
        if (bytes + written > UINT32_MAX)
            break;
        bytes += written;
        at += length ? length : skip;
    }
    put(pickle, "X");
    put_little(pickle, bytes, 4);
    for (const char *at = text; bytes > 0;) {
        size_t length = ng_output_utf8(at, &skip);
        size_t written = length ? length : strlen(REPLACEMENT);
        ng_output_bytes(&pickle->output, length ? at : REPLACEMENT, written);
        bytes -= written;
        at += length ? length : skip;
    }
}

static void put_name(struct ng_pickle *pickle, const char *name)
{
    for (unsigned i = 0; i < pickle->name_count; i++)
        if (pickle->names[i] == name) {
            put(pickle, "h"); /* BINGET */
            put_byte(pickle, i);
            return;
        }
    put_text(pickle, name);
    if (pickle->name_count == NG_PICKLE_NAMES)
        return;
    put(pickle, "q"); /* BINPUT */
    put_byte(pickle, pickle->name_count);
    pickle->names[pickle->name_count++] = name;
}

/* May a value follow here, with this key or without? Writes the key. */
static bool begin_value(struct ng_pickle *pickle, const char *key)
{
    if (pickle->output.error)
        return false;
    unsigned char *kind = pickle->depth ? &pickle->kinds[pickle->depth - 1] : NULL;
    bool wants_key = kind && *kind == DICT;
    if (wants_key != (key != NULL) || (!kind && pickle->filled)) {
        fail(pickle, -EINVAL);
        return false;
    }
    if (kind && *kind == DICT_AFTER_KEY)
        *kind = DICT;
    if (key)
        put_name(pickle, key);
    pickle->filled = true;
    return true;
}

static void open_container(struct ng_pickle *pickle, const char *key, enum kind kind)
{
    if (!begin_value(pickle, key))
        return;
    if (pickle->depth == NG_PICKLE_DEPTH) {
        fail(pickle, -EINVAL);
        return;
    }
    pickle->kinds[pickle->depth++] = (unsigned char)kind;
    put(pickle, brackets[kind].open);
}

void ng_pickle_open_dict(struct ng_pickle *pickle, const char *key)
{
    open_container(pickle, key, DICT);
}

void ng_pickle_open_list(struct ng_pickle *pickle, const char *key)
{
    open_container(pickle, key, LIST);
}

void ng_pickle_open_tuple(struct ng_pickle *pickle, const char *key)
{
    open_container(pickle, key, TUPLE);
}

void ng_pickle_close(struct ng_pickle *pickle)
{
    if (!pickle->depth || pickle->kinds[pickle->depth - 1] == DICT_AFTER_KEY) {
        fail(pickle, -EINVAL);
        return;
    }
    put(pickle, brackets[pickle->kinds[--pickle->depth]].close);
}

void ng_pickle_string(struct ng_pickle *pickle, const char *key, const char *text)
{
    if (begin_value(pickle, key))
        put_text(pickle, text);
}

void ng_pickle_name(struct ng_pickle *pickle, const char *key, const char *text)
{
    if (begin_value(pickle, key))
        put_name(pickle, text);
}

void ng_pickle_key(struct ng_pickle *pickle, const char *text)
{
    if (pickle->output.error)
        return;
    if (!pickle->depth || pickle->kinds[pickle->depth - 1] != DICT) {
        fail(pickle, -EINVAL);
        return;
    }
    put_text(pickle, text);
    pickle->kinds[pickle->depth - 1] = DICT_AFTER_KEY;
}

void ng_pickle_int(struct ng_pickle *pickle, const char *key, int64_t value)
{
    if (!begin_value(pickle, key))
        return;
    if (value >= 0 && value <= UINT8_MAX) {
        put(pickle, "K"); /* BININT1 */
        put_little(pickle, (uint64_t)value, 1);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put(pickle, "J"); /* BININT: signed, 4 bytes */
        put_little(pickle, (uint64_t)value, 4);
    } else {
        put(pickle, "\x8a\x08"); /* LONG1, 8 bytes of two's complement */
        put_little(pickle, (uint64_t)value, 8);
    }
}

void ng_pickle_uint(struct ng_pickle *pickle, const char *key, uint64_t value)
{
    if (value <= INT64_MAX) {
        ng_pickle_int(pickle, key, (int64_t)value);
        return;
    }
    if (!begin_value(pickle, key))
        return;
    put(pickle, "\x8a\x09"); /* one more byte, for the sign */
    put_little(pickle, value, 8);
    put_byte(pickle, 0);
}

void ng_pickle_double(struct ng_pickle *pickle, const char *key, double value)
{
    uint64_t bits;

    if (!begin_value(pickle, key))
        return;
    memcpy(&bits, &value, sizeof(bits));
    put(pickle, "G"); /* BINFLOAT: big-endian */
    put_little(pickle, __builtin_bswap64(bits), 8);
}

void ng_pickle_bool(struct ng_pickle *pickle, const char *key, bool value)
{
    if (begin_value(pickle, key))
        put(pickle, value ? "\x88" : "\x89"); /* NEWTRUE, NEWFALSE */
}

void ng_pickle_none(struct ng_pickle *pickle, const char *key)
{
    if (begin_value(pickle, key))
        put(pickle, "N");
}

int ng_pickle_finish(struct ng_pickle *pickle)
{
    if (pickle->depth != 0 || !pickle->filled)
        fail(pickle, -EINVAL);
    put(pickle, ".");
    return ng_output_flush(&pickle->output);
}
