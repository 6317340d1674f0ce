/*
 * Writes Python's pickle format, protocol 2, to a file descriptor, through a fixed buffer.
 *
 * For evidence that PyTorch's tools read: dictionaries, lists, tuples and plain values; nothing
 * that a reader would have to execute. Like core/util/json.h: no malloc, no lock; the first error
 * is remembered and nothing is written after it, so that a caller checks once, at the end. One
 * owner at a time.
 */
#ifndef NCCLGUARD_CORE_UTIL_PICKLE_H
#define NCCLGUARD_CORE_UTIL_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/json.h"

#define NG_PICKLE_DEPTH 32
#define NG_PICKLE_NAMES 128

/* About 5 KiB: fit for a stack. */
struct ng_pickle {
    struct ng_output output;
    unsigned depth; /* open containers */
    unsigned char kinds[NG_PICKLE_DEPTH];
    bool filled;                        /* the document already has its value */
    const char *names[NG_PICKLE_NAMES]; /* written once, then referred to */
    unsigned name_count;
};

/* Write to `fd` from now on; it stays the caller's. */
void ng_pickle_init(struct ng_pickle *pickle, int fd);

/*
 * One value each. `key` is its name in a dictionary, and NULL in a list, in a tuple and at the top.
 * The error is -EINVAL for a key in a wrong place, a missing key, a close that does not match, or
 * more than NG_PICKLE_DEPTH levels.
 *
 * Keys, and the texts of ng_pickle_name, are remembered by address: they must not change until
 * ng_pickle_finish, as string literals never do. From the second use on they cost two bytes.
 */
void ng_pickle_open_dict(struct ng_pickle *pickle, const char *key);
void ng_pickle_open_list(struct ng_pickle *pickle, const char *key);
void ng_pickle_open_tuple(struct ng_pickle *pickle, const char *key);
/* Close the innermost container. */
void ng_pickle_close(struct ng_pickle *pickle);

/* Invalid UTF-8 becomes U+FFFD, so that every reader accepts it; cut before 4 GiB. */
void ng_pickle_string(struct ng_pickle *pickle, const char *key, const char *text);
void ng_pickle_name(struct ng_pickle *pickle, const char *key, const char *text);
/* A dictionary's key that is not a literal; its value follows with `key` NULL. */
void ng_pickle_key(struct ng_pickle *pickle, const char *text);
void ng_pickle_int(struct ng_pickle *pickle, const char *key, int64_t value);
void ng_pickle_uint(struct ng_pickle *pickle, const char *key, uint64_t value);
void ng_pickle_double(struct ng_pickle *pickle, const char *key, double value);
void ng_pickle_bool(struct ng_pickle *pickle, const char *key, bool value);
void ng_pickle_none(struct ng_pickle *pickle, const char *key);

/* End the document, and flush. 0, or the first error; -EINVAL if a container is still open. */
int ng_pickle_finish(struct ng_pickle *pickle);

#endif
