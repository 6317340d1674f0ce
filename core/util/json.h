/*
 * Writes text and JSON to a file descriptor, through a fixed buffer.
 *
 * For evidence written by a process that is stuck: no malloc, no stdio stream, no lock, no locale.
 * Both writers remember the first error and write nothing after it, so that a caller checks once,
 * at the end. One owner at a time. SIGPIPE is the caller's matter (the guard's threads block it).
 */
#ifndef NCCLGUARD_CORE_UTIL_JSON_H
#define NCCLGUARD_CORE_UTIL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Buffered bytes. About 4 KiB: fit for a stack. */
struct ng_output {
    int fd;
    int error; /* first one, as -errno; 0 none */
    size_t used;
    char buffer[4096];
};

/* Write to `fd` from now on; it stays the caller's. */
void ng_output_init(struct ng_output *output, int fd);

void ng_output_bytes(struct ng_output *output, const void *bytes, size_t count);

/* Formatted text; a single piece is cut at 1,000 bytes. Integers and strings only: other formats
 * depend on the locale. */
__attribute__((format(printf, 2, 3))) void ng_output_format(struct ng_output *output,
                                                            const char *format, ...);

/* `text` made safe for a terminal and a log: control characters become '?', invalid UTF-8 U+FFFD.
 * NULL: "". */
void ng_output_safe(struct ng_output *output, const char *text);

/* Write the buffered bytes. 0, or the first error of this output as -errno. */
int ng_output_flush(struct ng_output *output);

/*
 * The next character of `text` (not at its end): its length in bytes if it is valid UTF-8, else 0
 * and *ret_skip bytes to skip.
 */
size_t ng_output_utf8(const char *text, size_t *ret_skip);

/*
 * Write the file `name` in `folder` by `write_content`, which returns 0 or -errno: under a hidden
 * temporary name (mode 0600), renamed when complete. 0; or -errno, and then no new file is left in
 * the folder, and an older file of this name is unchanged. Not synced to the disk. `name` may begin
 * with an existing folder in `folder`; the temporary file is nevertheless created in `folder`, so
 * that programs that take every file from the inner folder never see it.
 */
int ng_output_save(const char *folder, const char *name,
                   int (*write_content)(const void *context, int fd), const void *context);

/* Each member on its own line, or all on one line. Everything inside a compact container is
 * compact. */
enum ng_json_style { NG_JSON_COMPACT, NG_JSON_LINES };

#define NG_JSON_DEPTH 32

struct ng_json {
    struct ng_output output;
    unsigned depth;                  /* open containers */
    uint32_t objects, lines, filled; /* one bit per open container */
};

void ng_json_init(struct ng_json *json, int fd);

/*
 * One value each. `key` is its name in an object, and NULL in an array and at the top. The error is
 * -EINVAL for a key in a wrong place, a missing key, a close that does not match, or more than
 * NG_JSON_DEPTH levels.
 */
void ng_json_open_object(struct ng_json *json, const char *key, enum ng_json_style style);
void ng_json_open_array(struct ng_json *json, const char *key, enum ng_json_style style);
void ng_json_close_object(struct ng_json *json);
void ng_json_close_array(struct ng_json *json);

/* NULL is null. Escaped; invalid UTF-8 becomes U+FFFD, so that the file always parses. */
void ng_json_string(struct ng_json *json, const char *key, const char *text);
void ng_json_int(struct ng_json *json, const char *key, int64_t value);
/* Values above INT64_MAX are written in full, although many parsers reject them. */
void ng_json_uint(struct ng_json *json, const char *key, uint64_t value);
/* A count from evidence: larger values than INT64_MAX are damage, and written as that. */
void ng_json_count(struct ng_json *json, const char *key, uint64_t value);
/* Shortest form that reads back the same, always with a point or an exponent; nan and infinities
 * are null. */
void ng_json_double(struct ng_json *json, const char *key, double value);
/* Nanoseconds as microseconds, exactly: 1234567 is 1234.567. */
void ng_json_us(struct ng_json *json, const char *key, int64_t ns);
void ng_json_bool(struct ng_json *json, const char *key, bool value);
void ng_json_null(struct ng_json *json, const char *key);
/* A string of 16 hex digits: for ids, which are not used as numbers. */
void ng_json_hex(struct ng_json *json, const char *key, uint64_t value);
/* The same; 0 is null. */
void ng_json_id(struct ng_json *json, const char *key, uint64_t id);

/* An array of strings, each on a line of its own; and one of numbers, on one line. */
void ng_json_strings(struct ng_json *json, const char *key, char *const *texts, uint32_t count);
void ng_json_ints(struct ng_json *json, const char *key, const int *values, uint32_t count);

/* End the document with a newline, and flush. 0, or the first error; -EINVAL if a container is
 * still open. */
int ng_json_finish(struct ng_json *json);

#endif
