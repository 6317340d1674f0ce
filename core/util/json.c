/*
 * Writes text and JSON to a file descriptor, through a fixed buffer.
 *
 * Entered by the guard's threads and by the command, one thread per writer. Must never allocate,
 * lock, or depend on the program's locale.
 */
#include "core/util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util/macros.h"

#define FULL_PIPE_WAIT_MS 10000

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Waits for a nonblocking descriptor (a terminal shared with a program that made it so), but not
 * for ever. */
static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
            continue;
        }
        if (written == 0)
            return -EIO;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        int ready = poll(&room, 1, FULL_PIPE_WAIT_MS);
        if (ready == 0)
            return -EAGAIN;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
    return 0;
}

void ng_output_init(struct ng_output *output, int fd)
{
    output->fd = fd;
    output->error = 0;
    output->used = 0;
}

int ng_output_flush(struct ng_output *output)
{
    if (!output->error && output->used)
        output->error = write_all(output->fd, output->buffer, output->used);
    output->used = 0;
    return output->error;
}

void ng_output_bytes(struct ng_output *output, const void *bytes, size_t count)
{
    const char *from = bytes;

    while (count > 0 && !output->error) {
        size_t room = sizeof(output->buffer) - output->used;
        size_t part = count < room ? count : room;
        memcpy(output->buffer + output->used, from, part);
        output->used += part;
        from += part;
        count -= part;
        if (output->used == sizeof(output->buffer))
            ng_output_flush(output);
    }
}

void ng_output_format(struct ng_output *output, const char *format, ...)
{
    char text[1001];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    length = NG_MIN(length, (int)sizeof(text) - 1);
    if (length > 0)
        ng_output_bytes(output, text, (size_t)length);
}

size_t ng_output_utf8(const char *text, size_t *ret_skip)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t length;
    unsigned lowest = 0x80,
             highest = 0xbf; /* for the second byte: no overlong forms, no surrogates */

    *ret_skip = 1;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] >= 0xc2 && byte[0] <= 0xdf) {
        length = 2;
    } else if (byte[0] >= 0xe0 && byte[0] <= 0xef) {
        length = 3;
        lowest = byte[0] == 0xe0 ? 0xa0 : lowest;
        highest = byte[0] == 0xed ? 0x9f : highest;
    } else if (byte[0] >= 0xf0 && byte[0] <= 0xf4) {
        length = 4;
        lowest = byte[0] == 0xf0 ? 0x90 : lowest;
        highest = byte[0] == 0xf4 ? 0x8f : highest;
    } else {
        return 0;
    }
    for (size_t i = 1; i < length; i++, lowest = 0x80, highest = 0xbf) {
        /* The terminating zero is not a continuation byte: this never reads past it. */
        if (byte[i] < lowest || byte[i] > highest) {
            *ret_skip = i;
            return 0;
        }
    }
    return length;
}

void ng_output_safe(struct ng_output *output, const char *text)
{
    for (const char *at = text ? text : ""; *at;) {
        size_t skip, length = ng_output_utf8(at, &skip);
        const unsigned char *byte = (const unsigned char *)at;
        /* The terminal's control characters: C0, DEL, and C1 (U+0080 to U+009F). */
        bool control = length == 1 ? byte[0] < 0x20 || byte[0] == 0x7f
                                   : length == 2 && byte[0] == 0xc2 && byte[1] < 0xa0;
        if (control)
            ng_output_bytes(output, "?", 1);
        else if (length)
            ng_output_bytes(output, at, length);
        else
            ng_output_bytes(output, REPLACEMENT, strlen(REPLACEMENT));
        at += length ? length : skip;
    }
}

/* Hidden, so that programs that list the folder for evidence skip it; the number avoids leftovers
 * of dead processes. */
static int open_temporary(int folder_fd, const char *name, char *ret_name, size_t bytes)
{
    const char *slash = strrchr(name, '/');

    name = slash ? slash + 1 : name;
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        if (snprintf(ret_name, bytes, ".%s.%ld-%u", name, (long)syscall(SYS_gettid), attempt) >=
            (int)bytes)
            return -ENAMETOOLONG;
        int fd =
            openat(folder_fd, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

int ng_output_save(const char *folder, const char *name,
                   int (*write_content)(const void *context, int fd), const void *context)
{
    char temporary[256];

    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return -errno;
    int fd = open_temporary(folder_fd, name, temporary, sizeof(temporary));
    if (fd < 0) {
        close(folder_fd);
        return fd;
    }
    int error = write_content(context, fd);
    /* Network file systems report a full disk only here. */
    if (close(fd) != 0 && !error && errno != EINTR)
        error = -errno;
    if (!error && renameat(folder_fd, temporary, folder_fd, name) != 0)
        error = -errno;
    if (error)
        unlinkat(folder_fd, temporary, 0);
    close(folder_fd);
    return error;
}

void ng_json_init(struct ng_json *json, int fd)
{
    ng_output_init(&json->output, fd);
    json->depth = 0;
    json->objects = json->lines = json->filled = 0;
}

static void fail(struct ng_json *json, int error)
{
    if (!json->output.error)
        json->output.error = error;
}

static void put(struct ng_json *json, const char *text)
{
    ng_output_bytes(&json->output, text, strlen(text));
}

static void put_newline(struct ng_json *json)
{
    put(json, "\n");
    for (unsigned i = 0; i < json->depth; i++)
        put(json, "  ");
}

static void put_quoted(struct ng_json *json, const char *text)
{
    put(json, "\"");
    while (*text) {
        size_t skip, length = ng_output_utf8(text, &skip);
        if (length == 0)
            put(json, REPLACEMENT);
        else if (*text == '"')
            put(json, "\\\"");
        else if (*text == '\\')
            put(json, "\\\\");
        else if (*text == '\n')
            put(json, "\\n");
        else if (*text == '\t')
            put(json, "\\t");
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            ng_output_format(&json->output, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            ng_output_bytes(&json->output, text, length);
        text += length ? length : skip;
    }
    put(json, "\"");
}

/* Write what separates this value from the previous one: comma, newline, key. False: no value may
 * follow. */
static bool begin_value(struct ng_json *json, const char *key)
{
    if (json->output.error)
        return false;
    if (json->depth == 0) {
        /* A document has exactly one value. */
        if (key || (json->filled & 1u)) {
            fail(json, -EINVAL);
            return false;
        }
        json->filled = 1;
        return true;
    }
    uint32_t bit = 1u << (json->depth - 1);
    bool in_object = (json->objects & bit) != 0, lines = (json->lines & bit) != 0;
    if (in_object != (key != NULL)) {
        fail(json, -EINVAL);
        return false;
    }
    if (json->filled & bit)
        put(json, lines ? "," : ", ");
    if (lines)
        put_newline(json);
    json->filled |= bit;
    if (key) {
        put_quoted(json, key);
        put(json, ": ");
    }
    return true;
}

static void open_container(struct ng_json *json, const char *key, enum ng_json_style style,
                           bool object)
{
    if (!begin_value(json, key))
        return;
    if (json->depth == NG_JSON_DEPTH) {
        fail(json, -EINVAL);
        return;
    }
    uint32_t bit = 1u << json->depth;
    bool lines = style == NG_JSON_LINES && (json->depth == 0 || (json->lines & (bit >> 1)));
    json->objects = object ? json->objects | bit : json->objects & ~bit;
    json->lines = lines ? json->lines | bit : json->lines & ~bit;
    json->filled &= ~bit;
    json->depth++;
    put(json, object ? "{" : "[");
}

static void close_container(struct ng_json *json, bool object)
{
    if (json->output.error)
        return;
    uint32_t bit = json->depth ? 1u << (json->depth - 1) : 0;
    if (!bit || object != ((json->objects & bit) != 0)) {
        fail(json, -EINVAL);
        return;
    }
    json->depth--;
    if ((json->lines & bit) && (json->filled & bit))
        put_newline(json);
    put(json, object ? "}" : "]");
    /* At depth 0, bit 0 means that the document has its value. */
    if (json->depth == 0)
        json->filled = 1;
}

void ng_json_open_object(struct ng_json *json, const char *key, enum ng_json_style style)
{
    open_container(json, key, style, true);
}

void ng_json_open_array(struct ng_json *json, const char *key, enum ng_json_style style)
{
    open_container(json, key, style, false);
}

void ng_json_close_object(struct ng_json *json)
{
    close_container(json, true);
}

void ng_json_close_array(struct ng_json *json)
{
    close_container(json, false);
}

void ng_json_string(struct ng_json *json, const char *key, const char *text)
{
    if (!text)
        ng_json_null(json, key);
    else if (begin_value(json, key))
        put_quoted(json, text);
}

void ng_json_int(struct ng_json *json, const char *key, int64_t value)
{
    if (begin_value(json, key))
        ng_output_format(&json->output, "%" PRId64, value);
}

void ng_json_uint(struct ng_json *json, const char *key, uint64_t value)
{
    if (begin_value(json, key))
        ng_output_format(&json->output, "%" PRIu64, value);
}

void ng_json_double(struct ng_json *json, const char *key, double value)
{
    char text[64], clean[64];
    size_t used = 0;
    bool whole = true;

    if (!isfinite(value)) {
        ng_json_null(json, key);
        return;
    }
    if (!begin_value(json, key))
        return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* Replace the decimal point of the program's locale, which may have several bytes. */
    for (const char *c = text; *c; c++) {
        if (strchr("0123456789+-", *c)) {
            clean[used++] = *c;
            continue;
        }
        whole = false;
        if (*c == 'e')
            clean[used++] = 'e';
        else if (used && clean[used - 1] != '.')
            clean[used++] = '.';
    }
    clean[used] = '\0';
    put(json, clean);
    if (whole)
        put(json, ".0");
}

void ng_json_us(struct ng_json *json, const char *key, int64_t ns)
{
    uint64_t magnitude = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

    if (begin_value(json, key))
        ng_output_format(&json->output, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", magnitude / 1000,
                         (unsigned)(magnitude % 1000));
}

void ng_json_bool(struct ng_json *json, const char *key, bool value)
{
    if (begin_value(json, key))
        put(json, value ? "true" : "false");
}

void ng_json_null(struct ng_json *json, const char *key)
{
    if (begin_value(json, key))
        put(json, "null");
}

void ng_json_hex(struct ng_json *json, const char *key, uint64_t value)
{
    if (begin_value(json, key))
        ng_output_format(&json->output, "\"%016" PRIx64 "\"", value);
}

void ng_json_count(struct ng_json *json, const char *key, uint64_t value)
{
    ng_json_uint(json, key, value <= INT64_MAX ? value : INT64_MAX);
}

void ng_json_id(struct ng_json *json, const char *key, uint64_t id)
{
    if (id)
        ng_json_hex(json, key, id);
    else
        ng_json_null(json, key);
}

void ng_json_strings(struct ng_json *json, const char *key, char *const *texts, uint32_t count)
{
    ng_json_open_array(json, key, NG_JSON_LINES);
    for (uint32_t i = 0; i < count; i++)
        ng_json_string(json, NULL, texts[i]);
    ng_json_close_array(json);
}

void ng_json_ints(struct ng_json *json, const char *key, const int *values, uint32_t count)
{
    ng_json_open_array(json, key, NG_JSON_COMPACT);
    for (uint32_t i = 0; i < count; i++)
        ng_json_int(json, NULL, values[i]);
    ng_json_close_array(json);
}

int ng_json_finish(struct ng_json *json)
{
    if (json->depth != 0 || !json->filled)
        fail(json, -EINVAL);
    put(json, "\n");
    return ng_output_flush(&json->output);
}
