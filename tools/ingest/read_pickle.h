/*
 * A reader of Python pickles that executes nothing: dictionaries, lists, tuples, texts, bytes,
 * numbers, booleans and None, of every protocol from 0 to 5.
 *
 * No tree is built. The elements of a container are passed to a sink as it is filled, and the sink
 * stores a summary in the container's value; a container inside another one is that summary.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_PICKLE_H
#define NCCLGUARD_TOOLS_INGEST_READ_PICKLE_H

#include <stddef.h>
#include <stdint.h>

enum ng_unpickle_kind {
    NG_UNPICKLE_UNSET,
    NG_UNPICKLE_NONE,
    NG_UNPICKLE_BOOL, /* number: 0 or 1 */
    NG_UNPICKLE_INT,  /* number: the nearest that fits into 64 bits */
    NG_UNPICKLE_FLOAT,
    NG_UNPICKLE_TEXT, /* UTF-8 as in the file, without a closing NUL */
    NG_UNPICKLE_BYTES,
    NG_UNPICKLE_LIST,
    NG_UNPICKLE_TUPLE,
    NG_UNPICKLE_DICT,
};

struct ng_unpickle_value {
    uint8_t kind;
    uint8_t shape;   /* of a container: what it is, set by the sink; 0 empty so far */
    uint16_t word;   /* of a text: the sink's number for it; 0 unknown */
    uint32_t length; /* of a text or bytes. Private to the reader in a container */
    union {
        int64_t number;
        double real;
        const char *text; /* within the bytes that are read */
        uint64_t summary; /* of a container: set by the sink; 0 so far */
    };
};

/*
 * Receives the values. `items` and `pairs` may be called more than once for one container, with the
 * elements added since; they set its `shape` and `summary`. They return 0 or -errno, which ends the
 * reading.
 */
struct ng_unpickle_sink {
    /* A number for a text that is compared often; called once for each text in the file. */
    uint16_t (*word)(void *context, const char *text, uint32_t length);
    int (*items)(void *context, struct ng_unpickle_value *container,
                 const struct ng_unpickle_value *items, size_t count);
    /* `count` keys, each followed by its value. */
    int (*pairs)(void *context, struct ng_unpickle_value *dict,
                 const struct ng_unpickle_value *pairs, size_t count);
};

/* State of the reader besides the bytes; kept from one pickle to the next. One thread at a time. */
struct ng_unpickle {
    struct ng_unpickle_value *stack, *memo;
    size_t stack_room, memo_room, memo_used;
};

/* Cannot fail. */
void ng_unpickle_init(struct ng_unpickle *pickle);
void ng_unpickle_fini(struct ng_unpickle *pickle);

/*
 * Read one pickle. `bytes` may be modified (texts of protocol 0 are decoded in place). Memory is
 * bounded whatever the bytes contain: at most 320 MiB, and proportional to the pickle's size.
 *
 * 0; -EBADMSG damaged, or not a pickle of plain data; -EPROTO a later protocol; -E2BIG it would
 * exceed the bounds; -ENOMEM; or what the sink returned. The reason is in `why`, with the byte at
 * which reading ended.
 */
int ng_unpickle_read(struct ng_unpickle *pickle, uint8_t *bytes, size_t count,
                     const struct ng_unpickle_sink *sink, void *context,
                     struct ng_unpickle_value *ret_root, char *why, size_t why_bytes);

#endif
