/*
 * A reader of Python pickles that executes nothing.
 *
 * Used by `ncclguard analyze`, from several threads with a struct ng_unpickle each. A pickle is a
 * program for a small stack machine; of its instructions only those are here that make plain data.
 * What would import, call or build an object is refused by name: a file that somebody sent must
 * never run. No number of the file is trusted before it is compared with what is left of the file.
 */
#include "tools/ingest/read_pickle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL_MAX 5
#define STACK_MAX    ((size_t)1 << 22)
#define MEMO_MAX     ((size_t)1 << 24)
#define DEPTH_MAX    256 /* open marks; PyTorch's files have 6 */
#define DIGITS_MAX   400 /* of a number written as text */

/*
 * The instructions of all protocols: OP(code, name, what). TAKEN is read; LOADED refers to
 * something outside of the data; RUN would execute something; ODD makes data that is not plain.
 */
#define OPCODES(OP)                                                                                \
    OP('(', MARK, TAKEN)                                                                           \
    OP('.', STOP, TAKEN)                                                                           \
    OP('0', POP, TAKEN)                                                                            \
    OP('1', POP_MARK, TAKEN)                                                                       \
    OP('2', DUP, TAKEN)                                                                            \
    OP('F', FLOAT, TAKEN)                                                                          \
    OP('I', INT, TAKEN)                                                                            \
    OP('J', BININT, TAKEN)                                                                         \
    OP('K', BININT1, TAKEN)                                                                        \
    OP('L', LONG, TAKEN)                                                                           \
    OP('M', BININT2, TAKEN)                                                                        \
    OP('N', NONE, TAKEN)                                                                           \
    OP('P', PERSID, LOADED)                                                                        \
    OP('Q', BINPERSID, LOADED)                                                                     \
    OP('R', REDUCE, RUN)                                                                           \
    OP('S', STRING, TAKEN)                                                                         \
    OP('T', BINSTRING, TAKEN)                                                                      \
    OP('U', SHORT_BINSTRING, TAKEN)                                                                \
    OP('V', UNICODE, TAKEN)                                                                        \
    OP('X', BINUNICODE, TAKEN)                                                                     \
    OP('a', APPEND, TAKEN)                                                                         \
    OP('b', BUILD, RUN)                                                                            \
    OP('c', GLOBAL, LOADED)                                                                        \
    OP('d', DICT, TAKEN)                                                                           \
    OP('}', EMPTY_DICT, TAKEN)                                                                     \
    OP('e', APPENDS, TAKEN)                                                                        \
    OP('g', GET, TAKEN)                                                                            \
    OP('h', BINGET, TAKEN)                                                                         \
    OP('i', INST, RUN)                                                                             \
    OP('j', LONG_BINGET, TAKEN)                                                                    \
    OP('l', LIST, TAKEN)                                                                           \
    OP(']', EMPTY_LIST, TAKEN)                                                                     \
    OP('o', OBJ, RUN)                                                                              \
    OP('p', PUT, TAKEN)                                                                            \
    OP('q', BINPUT, TAKEN)                                                                         \
    OP('r', LONG_BINPUT, TAKEN)                                                                    \
    OP('s', SETITEM, TAKEN)                                                                        \
    OP('t', TUPLE, TAKEN)                                                                          \
    OP(')', EMPTY_TUPLE, TAKEN)                                                                    \
    OP('u', SETITEMS, TAKEN)                                                                       \
    OP('G', BINFLOAT, TAKEN)                                                                       \
    OP(0x80, PROTO, TAKEN)                                                                         \
    OP(0x81, NEWOBJ, RUN)                                                                          \
    OP(0x82, EXT1, LOADED)                                                                         \
    OP(0x83, EXT2, LOADED)                                                                         \
    OP(0x84, EXT4, LOADED)                                                                         \
    OP(0x85, TUPLE1, TAKEN)                                                                        \
    OP(0x86, TUPLE2, TAKEN)                                                                        \
    OP(0x87, TUPLE3, TAKEN)                                                                        \
    OP(0x88, NEWTRUE, TAKEN)                                                                       \
    OP(0x89, NEWFALSE, TAKEN)                                                                      \
    OP(0x8a, LONG1, TAKEN)                                                                         \
    OP(0x8b, LONG4, TAKEN)                                                                         \
    OP('B', BINBYTES, TAKEN)                                                                       \
    OP('C', SHORT_BINBYTES, TAKEN)                                                                 \
    OP(0x8c, SHORT_BINUNICODE, TAKEN)                                                              \
    OP(0x8d, BINUNICODE8, TAKEN)                                                                   \
    OP(0x8e, BINBYTES8, TAKEN)                                                                     \
    OP(0x8f, EMPTY_SET, ODD)                                                                       \
    OP(0x90, ADDITEMS, ODD)                                                                        \
    OP(0x91, FROZENSET, ODD)                                                                       \
    OP(0x92, NEWOBJ_EX, RUN)                                                                       \
    OP(0x93, STACK_GLOBAL, LOADED)                                                                 \
    OP(0x94, MEMOIZE, TAKEN)                                                                       \
    OP(0x95, FRAME, TAKEN)                                                                         \
    OP(0x96, BYTEARRAY8, ODD)                                                                      \
    OP(0x97, NEXT_BUFFER, LOADED)                                                                  \
    OP(0x98, READONLY_BUFFER, LOADED)

enum opcode {
#define OP(code, name, what) OPCODE_##name = (code),
    OPCODES(OP)
#undef OP
};

enum treatment { NO_OPCODE, TAKEN, LOADED, RUN, ODD };

static const struct {
    const char *name;
    enum treatment treatment;
} opcodes[256] = {
#define OP(code, name, what) [(code)] = {#name, what},
    OPCODES(OP)
#undef OP
};

struct machine {
    struct ng_unpickle *pickle;
    const struct ng_unpickle_sink *sink;
    void *context;
    uint8_t *begin, *at, *end;
    struct ng_unpickle_value *stack; /* as pickle->stack: kept at hand */
    size_t used;                     /* values on the stack */
    size_t floor;                    /* values below the innermost mark */
    uint32_t marks[DEPTH_MAX];
    unsigned depth;
    uint8_t opcode; /* that is being done */
    char *why;
    size_t why_bytes;
};

__attribute__((format(printf, 3, 4), cold)) static int fail(const struct machine *machine,
                                                            int error, const char *format, ...)
{
    char reason[160];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    snprintf(machine->why, machine->why_bytes, "%s at byte %zu", reason,
             (size_t)(machine->at - machine->begin));
    return error;
}

__attribute__((cold)) static int cut_off(const struct machine *machine)
{
    return fail(machine, -EBADMSG, "cut off inside %s", opcodes[machine->opcode].name);
}

__attribute__((cold)) static int out_of_order(const struct machine *machine)
{
    return fail(machine, -EBADMSG, "damaged: %s has not what it needs",
                opcodes[machine->opcode].name);
}

static size_t left(const struct machine *machine)
{
    return (size_t)(machine->end - machine->at);
}

static bool grow(struct ng_unpickle_value **values, size_t *room, size_t wanted)
{
    size_t bigger = *room ? *room : 1024;

    while (bigger < wanted)
        bigger *= 2;
    struct ng_unpickle_value *moved = reallocarray(*values, bigger, sizeof(*moved));
    if (!moved)
        return false;
    memset(moved + *room, 0, (bigger - *room) * sizeof(*moved));
    *values = moved;
    *room = bigger;
    return true;
}

__attribute__((cold)) static int grow_stack(struct machine *machine)
{
    if (machine->used >= STACK_MAX)
        return fail(machine, -E2BIG, "it holds more at once than any flight recorder writes");
    if (!grow(&machine->pickle->stack, &machine->pickle->stack_room, machine->used + 1))
        return fail(machine, -ENOMEM, "out of memory");
    machine->stack = machine->pickle->stack;
    return 0;
}

static inline int push(struct machine *machine, struct ng_unpickle_value value)
{
    if (__builtin_expect(machine->used == machine->pickle->stack_room, 0)) {
        int error = grow_stack(machine);
        if (error)
            return error;
    }
    machine->stack[machine->used++] = value;
    return 0;
}

static inline int push_int(struct machine *machine, int64_t number)
{
    return push(machine, (struct ng_unpickle_value){.kind = NG_UNPICKLE_INT, .number = number});
}

static inline int push_empty(struct machine *machine, enum ng_unpickle_kind kind)
{
    return push(machine, (struct ng_unpickle_value){.kind = (uint8_t)kind});
}

/* A little-endian number of `bytes` bytes, which are there. */
static inline uint64_t take(struct machine *machine, unsigned bytes)
{
    uint64_t number = 0;

    memcpy(&number, machine->at, bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    machine->at += bytes;
    return number;
}

/* `bytes` is the width of the length that stands before the text. */
static int take_text(struct machine *machine, unsigned bytes, enum ng_unpickle_kind kind)
{
    if (left(machine) < bytes)
        return cut_off(machine);
    uint64_t length = take(machine, bytes);
    if (length > left(machine) || length > UINT32_MAX)
        return cut_off(machine);
    const char *text = (const char *)machine->at;
    machine->at += length;
    return push(machine, (struct ng_unpickle_value){
                             .kind = (uint8_t)kind,
                             .word = machine->sink->word(machine->context, text, (uint32_t)length),
                             .length = (uint32_t)length,
                             .text = text});
}

/* Two's complement of any width; what 64 bits do not hold becomes the nearest that they do. */
static int take_long(struct machine *machine, unsigned bytes)
{
    if (left(machine) < bytes)
        return cut_off(machine);
    uint64_t length = take(machine, bytes);
    if (length > left(machine) || length > INT32_MAX)
        return cut_off(machine);
    const uint8_t *digits = machine->at;
    bool negative = length > 0 && (digits[length - 1] & 0x80);
    bool fits = true;
    for (uint64_t i = 8; i < length; i++)
        fits &= digits[i] == (negative ? 0xff : 0);
    if (length > 8)
        fits &= (bool)(digits[7] & 0x80) == negative;
    uint64_t number = negative ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < length && i < 8; i++)
        number = (number & ~(UINT64_C(0xff) << 8 * i)) | (uint64_t)digits[i] << 8 * i;
    machine->at += length;
    if (!fits)
        number = negative ? (uint64_t)INT64_MIN : INT64_MAX;
    return push_int(machine, (int64_t)number);
}

/* A line of text, without its end. NULL: there is none. */
static char *take_line(struct machine *machine, size_t *ret_length)
{
    char *line = (char *)machine->at;
    char *end = memchr(line, '\n', left(machine));

    if (!end)
        return NULL;
    *ret_length = (size_t)(end - line);
    machine->at = (uint8_t *)end + 1;
    return line;
}

/* A number written as text, into an array that ends it. */
static int take_digits(struct machine *machine, char *ret_digits, size_t bytes)
{
    size_t length;
    const char *line = take_line(machine, &length);

    if (!line)
        return cut_off(machine);
    if (length == 0 || length >= bytes)
        return fail(machine, -EBADMSG, "damaged: %s without a number",
                    opcodes[machine->opcode].name);
    memcpy(ret_digits, line, length);
    ret_digits[length] = '\0';
    return 0;
}

static int take_decimal(struct machine *machine)
{
    char digits[DIGITS_MAX], *end;

    int error = take_digits(machine, digits, sizeof(digits));
    if (error)
        return error;
    if (machine->opcode == OPCODE_INT && (!strcmp(digits, "00") || !strcmp(digits, "01")))
        return push(machine, (struct ng_unpickle_value){.kind = NG_UNPICKLE_BOOL,
                                                        .number = digits[1] - '0'});
    int64_t number = strtoll(digits, &end, 10); /* the nearest, where it does not fit */
    if (end == digits || (*end && strcmp(end, "L") != 0))
        return fail(machine, -EBADMSG, "damaged: a number that is none");
    return push_int(machine, number);
}

static int take_real(struct machine *machine)
{
    char digits[DIGITS_MAX], *end;

    int error = take_digits(machine, digits, sizeof(digits));
    if (error)
        return error;
    double real = strtod(digits, &end);
    if (end == digits || *end)
        return fail(machine, -EBADMSG, "damaged: a number that is none");
    return push(machine, (struct ng_unpickle_value){.kind = NG_UNPICKLE_FLOAT, .real = real});
}

static int take_binary_real(struct machine *machine)
{
    struct ng_unpickle_value value = {.kind = NG_UNPICKLE_FLOAT};

    if (left(machine) < 8)
        return cut_off(machine);
    /* The only number that stands with its highest byte first. */
    uint64_t bits = __builtin_bswap64(take(machine, 8));
    memcpy(&value.real, &bits, sizeof(value.real));
    return push(machine, value);
}

static int hex_digit(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

static size_t put_utf8(uint32_t point, char *ret_bytes)
{
    if (point < 0x80) {
        ret_bytes[0] = (char)point;
        return 1;
    }
    size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, point >>= 6)
        ret_bytes[i] = (char)(0x80 | (point & 0x3f));
    ret_bytes[0] = (char)(first[more] | point);
    return more + 1;
}

/* Protocol 0 writes texts in Latin-1 with \u and \U escapes, which are longer than the UTF-8 that
 * they stand for. A byte of Latin-1 has no room to become two, and becomes '?'. */
static size_t decode_escapes(char *text, size_t length)
{
    size_t used = 0;

    for (size_t i = 0; i < length;) {
        size_t digits = text[i] != '\\' || i + 1 >= length ? 0
                        : text[i + 1] == 'u'               ? 4
                        : text[i + 1] == 'U'               ? 8
                                                           : 0;
        uint32_t point = 0;
        bool valid = digits && i + 2 + digits <= length;
        for (size_t k = 0; valid && k < digits; k++) {
            int digit = hex_digit(text[i + 2 + k]);
            valid = digit >= 0;
            point = point << 4 | (uint32_t)(digit & 0xf);
        }
        if (valid && point < 0x110000) {
            used += put_utf8(point, text + used);
            i += 2 + digits;
        } else {
            text[used++] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
            i++;
        }
    }
    return used;
}

static int take_text_line(struct machine *machine)
{
    size_t length;
    char *text = take_line(machine, &length);

    if (!text)
        return cut_off(machine);
    if (machine->opcode == OPCODE_UNICODE) {
        length = decode_escapes(text, length);
    } else {
        /* The text in quotes, as Python 2 wrote it; what it escapes stays as it is. */
        while (length > 0 && strchr(" \t\r", text[length - 1]))
            length--;
        if (length < 2 || text[0] != text[length - 1] || (text[0] != '\'' && text[0] != '"'))
            return fail(machine, -EBADMSG, "damaged: a text without quotes");
        text++;
        length -= 2;
    }
    if (length > UINT32_MAX)
        return cut_off(machine);
    return push(machine, (struct ng_unpickle_value){
                             .kind = NG_UNPICKLE_TEXT,
                             .word = machine->sink->word(machine->context, text, (uint32_t)length),
                             .length = (uint32_t)length,
                             .text = text});
}

static bool is_container(const struct ng_unpickle_value *value)
{
    return value->kind >= NG_UNPICKLE_LIST;
}

/* A container remembers under which number, from 1, it is known, so that what is added to it is
 * known there too. */
static int put(struct machine *machine, uint64_t index)
{
    struct ng_unpickle *pickle = machine->pickle;

    if (machine->used <= machine->floor)
        return out_of_order(machine);
    /* Each number costs a byte at least. */
    if (index >= MEMO_MAX || index >= (uint64_t)(machine->end - machine->begin))
        return fail(machine, -E2BIG, "it refers to more values than any flight recorder writes");
    if (index >= pickle->memo_room && !grow(&pickle->memo, &pickle->memo_room, (size_t)index + 1))
        return fail(machine, -ENOMEM, "out of memory");
    struct ng_unpickle_value *top = &machine->stack[machine->used - 1];
    if (is_container(top))
        top->length = (uint32_t)index + 1;
    pickle->memo[index] = *top;
    if (index >= pickle->memo_used)
        pickle->memo_used = (size_t)index + 1;
    return 0;
}

static inline int get(struct machine *machine, uint64_t index)
{
    const struct ng_unpickle *pickle = machine->pickle;

    if (index >= pickle->memo_used || pickle->memo[index].kind == NG_UNPICKLE_UNSET)
        return fail(machine, -EBADMSG, "damaged: it refers to a value that is not there");
    return push(machine, pickle->memo[index]);
}

static int take_index(struct machine *machine, uint64_t *ret_index)
{
    char digits[24], *end;

    int error = take_digits(machine, digits, sizeof(digits));
    if (error)
        return error;
    *ret_index = strtoull(digits, &end, 10);
    if (*end || digits[0] < '0' || digits[0] > '9')
        return fail(machine, -EBADMSG, "damaged: a number that is none");
    return 0;
}

static int mark(struct machine *machine)
{
    if (machine->depth == DEPTH_MAX)
        return fail(machine, -E2BIG, "nested more deeply than any flight recorder writes");
    machine->marks[machine->depth++] = (uint32_t)machine->floor;
    machine->floor = machine->used;
    return 0;
}

struct span {
    struct ng_unpickle_value *values;
    size_t count;
};

/* Everything from the innermost mark on, which is there; the mark is gone. */
static struct span unmark(struct machine *machine)
{
    struct span span = {machine->stack + machine->floor, machine->used - machine->floor};

    machine->used = machine->floor;
    machine->floor = machine->marks[--machine->depth];
    return span;
}

static void remember(const struct machine *machine, const struct ng_unpickle_value *container)
{
    if (container->length)
        machine->pickle->memo[container->length - 1] = *container;
}

/* Values were added to the container on top of the stack. */
static inline int add(struct machine *machine, enum ng_unpickle_kind kind,
                      const struct ng_unpickle_value *values, size_t count)
{
    bool pairs = kind == NG_UNPICKLE_DICT;

    if (machine->used <= machine->floor || machine->stack[machine->used - 1].kind != kind ||
        (pairs && count % 2))
        return out_of_order(machine);
    if (count == 0)
        return 0;
    struct ng_unpickle_value *top = &machine->stack[machine->used - 1];
    int error = pairs ? machine->sink->pairs(machine->context, top, values, count / 2)
                      : machine->sink->items(machine->context, top, values, count);
    if (error)
        return fail(machine, error, "%s", strerror(-error));
    remember(machine, top);
    return 0;
}

static int add_marked(struct machine *machine, enum ng_unpickle_kind kind)
{
    if (machine->depth == 0)
        return out_of_order(machine);
    struct span span = unmark(machine);
    return add(machine, kind, span.values, span.count);
}

static int add_top(struct machine *machine, enum ng_unpickle_kind kind)
{
    size_t count = kind == NG_UNPICKLE_DICT ? 2 : 1;

    if (machine->used - machine->floor <= count)
        return out_of_order(machine);
    machine->used -= count;
    return add(machine, kind, machine->stack + machine->used, count);
}

/* A container of `count` values from `values` on, which lie above the stack and make room for it.
 */
static int gather(struct machine *machine, enum ng_unpickle_kind kind,
                  const struct ng_unpickle_value *values, size_t count)
{
    struct ng_unpickle_value container = {.kind = (uint8_t)kind};
    int error = 0;

    if (kind == NG_UNPICKLE_DICT && count % 2)
        return out_of_order(machine);
    if (count && kind == NG_UNPICKLE_DICT)
        error = machine->sink->pairs(machine->context, &container, values, count / 2);
    else if (count)
        error = machine->sink->items(machine->context, &container, values, count);
    return error ? fail(machine, error, "%s", strerror(-error)) : push(machine, container);
}

static int gather_marked(struct machine *machine, enum ng_unpickle_kind kind)
{
    if (machine->depth == 0)
        return out_of_order(machine);
    struct span span = unmark(machine);
    return gather(machine, kind, span.values, span.count);
}

static int drop(struct machine *machine)
{
    if (machine->opcode == OPCODE_POP && machine->used > machine->floor) {
        machine->used--;
        return 0;
    }
    if (machine->depth == 0)
        return out_of_order(machine);
    unmark(machine);
    return 0;
}

static int gather_top(struct machine *machine, size_t count)
{
    if (machine->used - machine->floor < count)
        return out_of_order(machine);
    machine->used -= count;
    return gather(machine, NG_UNPICKLE_TUPLE, machine->stack + machine->used, count);
}

__attribute__((cold)) static int refuse(const struct machine *machine)
{
    static const char *const reasons[] = {
        [LOADED] = "%s would load something from elsewhere, which is refused",
        [RUN] = "%s would run code, which is refused",
        [ODD] = "%s makes what no flight recorder writes",
    };
    uint8_t opcode = machine->opcode;
    char reason[96];

    if (opcodes[opcode].treatment < LOADED)
        return fail(machine, -EBADMSG, "damaged: 0x%02x is no instruction of a pickle", opcode);
    snprintf(reason, sizeof(reason), reasons[opcodes[opcode].treatment], opcodes[opcode].name);
    return fail(machine, -EBADMSG, "%s", reason);
}

static int protocol(struct machine *machine)
{
    uint64_t version = take(machine, 1);

    if (version > PROTOCOL_MAX)
        return fail(machine, -EPROTO, "a pickle of protocol %u, later than %d", (unsigned)version,
                    PROTOCOL_MAX);
    return 0;
}

/* Instructions whose operands are as wide as their names say. */
static int step_wide(struct machine *machine)
{
    uint64_t index;
    int error;

    switch (machine->opcode) {
    case OPCODE_LONG1:
        return take_long(machine, 1);
    case OPCODE_LONG4:
        return take_long(machine, 4);
    case OPCODE_SHORT_BINUNICODE:
    case OPCODE_SHORT_BINSTRING:
        return take_text(machine, 1, NG_UNPICKLE_TEXT);
    case OPCODE_BINUNICODE:
    case OPCODE_BINSTRING:
        return take_text(machine, 4, NG_UNPICKLE_TEXT);
    case OPCODE_BINUNICODE8:
        return take_text(machine, 8, NG_UNPICKLE_TEXT);
    case OPCODE_SHORT_BINBYTES:
        return take_text(machine, 1, NG_UNPICKLE_BYTES);
    case OPCODE_BINBYTES:
        return take_text(machine, 4, NG_UNPICKLE_BYTES);
    case OPCODE_BINBYTES8:
        return take_text(machine, 8, NG_UNPICKLE_BYTES);
    case OPCODE_BINFLOAT:
        return take_binary_real(machine);
    case OPCODE_INT:
    case OPCODE_LONG:
        return take_decimal(machine);
    case OPCODE_FLOAT:
        return take_real(machine);
    case OPCODE_UNICODE:
    case OPCODE_STRING:
        return take_text_line(machine);
    case OPCODE_PUT:
        error = take_index(machine, &index);
        return error ? error : put(machine, index);
    case OPCODE_GET:
        error = take_index(machine, &index);
        return error ? error : get(machine, index);
    case OPCODE_PROTO:
        return left(machine) < 1 ? cut_off(machine) : protocol(machine);
    case OPCODE_FRAME:
        /* Where a frame ends makes no difference to who has all bytes at hand. */
        if (left(machine) < 8)
            return cut_off(machine);
        take(machine, 8);
        return 0;
    default:
        return refuse(machine);
    }
}

/* One instruction, but STOP; those that files are full of come first. */
static inline int step(struct machine *machine)
{
    switch (machine->opcode) {
    case OPCODE_BINGET:
        return left(machine) < 1 ? cut_off(machine) : get(machine, take(machine, 1));
    case OPCODE_LONG_BINGET:
        return left(machine) < 4 ? cut_off(machine) : get(machine, take(machine, 4));
    case OPCODE_BINPUT:
        return left(machine) < 1 ? cut_off(machine) : put(machine, take(machine, 1));
    case OPCODE_LONG_BINPUT:
        return left(machine) < 4 ? cut_off(machine) : put(machine, take(machine, 4));
    case OPCODE_MEMOIZE:
        return put(machine, machine->pickle->memo_used);
    case OPCODE_BININT1:
        return left(machine) < 1 ? cut_off(machine) : push_int(machine, (int64_t)take(machine, 1));
    case OPCODE_BININT2:
        return left(machine) < 2 ? cut_off(machine) : push_int(machine, (int64_t)take(machine, 2));
    case OPCODE_BININT:
        return left(machine) < 4 ? cut_off(machine)
                                 : push_int(machine, (int32_t)(uint32_t)take(machine, 4));
    case OPCODE_NONE:
        return push_empty(machine, NG_UNPICKLE_NONE);
    case OPCODE_NEWTRUE:
    case OPCODE_NEWFALSE:
        return push(machine,
                    (struct ng_unpickle_value){.kind = NG_UNPICKLE_BOOL,
                                               .number = machine->opcode == OPCODE_NEWTRUE});
    case OPCODE_EMPTY_LIST:
        return push_empty(machine, NG_UNPICKLE_LIST);
    case OPCODE_EMPTY_DICT:
        return push_empty(machine, NG_UNPICKLE_DICT);
    case OPCODE_EMPTY_TUPLE:
        return push_empty(machine, NG_UNPICKLE_TUPLE);
    case OPCODE_MARK:
        return mark(machine);
    case OPCODE_APPEND:
        return add_top(machine, NG_UNPICKLE_LIST);
    case OPCODE_APPENDS:
        return add_marked(machine, NG_UNPICKLE_LIST);
    case OPCODE_SETITEM:
        return add_top(machine, NG_UNPICKLE_DICT);
    case OPCODE_SETITEMS:
        return add_marked(machine, NG_UNPICKLE_DICT);
    case OPCODE_TUPLE1:
        return gather_top(machine, 1);
    case OPCODE_TUPLE2:
        return gather_top(machine, 2);
    case OPCODE_TUPLE3:
        return gather_top(machine, 3);
    case OPCODE_TUPLE:
        return gather_marked(machine, NG_UNPICKLE_TUPLE);
    case OPCODE_LIST:
        return gather_marked(machine, NG_UNPICKLE_LIST);
    case OPCODE_DICT:
        return gather_marked(machine, NG_UNPICKLE_DICT);
    case OPCODE_POP:
    case OPCODE_POP_MARK:
        return drop(machine);
    case OPCODE_DUP:
        return machine->used <= machine->floor ? out_of_order(machine)
                                               : push(machine, machine->stack[machine->used - 1]);
    default:
        return step_wide(machine);
    }
}

/* No instruction that `run` does itself is longer. */
#define NEAR_END 16

static inline uint32_t number_at(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/*
 * Most instructions of a file are one of these few, and there are a hundred in each entry of a
 * flight recorder: where reading stands and the top of the stack are kept in registers, and each
 * instruction jumps to the next by itself, since entries are alike and the processor learns what
 * comes after what. Ends where another instruction stands, at the last bytes, or when the stack is
 * full: all that is for `step`.
 */
static void run(struct machine *machine)
{
    static const void *const places[256] = {
        [OPCODE_BINGET] = &&binget,         [OPCODE_LONG_BINGET] = &&long_binget,
        [OPCODE_BINPUT] = &&binput,         [OPCODE_LONG_BINPUT] = &&long_binput,
        [OPCODE_MEMOIZE] = &&memoize,       [OPCODE_BININT1] = &&binint1,
        [OPCODE_BININT2] = &&binint2,       [OPCODE_BININT] = &&binint,
        [OPCODE_LONG1] = &&long1,           [OPCODE_NONE] = &&none,
        [OPCODE_NEWTRUE] = &&newtrue,       [OPCODE_NEWFALSE] = &&newfalse,
        [OPCODE_EMPTY_LIST] = &&empty_list, [OPCODE_EMPTY_DICT] = &&empty_dict,
        [OPCODE_MARK] = &&open_mark,
    };
    struct ng_unpickle *pickle = machine->pickle;
    struct ng_unpickle_value *const memo = pickle->memo;
    struct ng_unpickle_value *const stack = machine->stack;
    const struct ng_unpickle_value *const full = stack + pickle->stack_room;
    const uint8_t *const near_end =
        machine->end - machine->begin < NEAR_END ? machine->begin : machine->end - NEAR_END;
    struct ng_unpickle_value *top = stack + machine->used;
    const struct ng_unpickle_value *floor = stack + machine->floor;
    size_t memo_used = pickle->memo_used;
    uint8_t *at = machine->at;
    uint64_t number;

#define NEXT()                                                                                     \
    do {                                                                                           \
        if (at >= near_end || top >= full || !places[*at])                                         \
            goto out;                                                                              \
        goto *places[*at];                                                                         \
    } while (0)
#define GET(index, bytes)                                                                          \
    do {                                                                                           \
        number = (index);                                                                          \
        if (number >= memo_used || memo[number].kind == NG_UNPICKLE_UNSET)                         \
            goto out;                                                                              \
        *top++ = memo[number];                                                                     \
        at += (bytes);                                                                             \
        NEXT();                                                                                    \
    } while (0)
#define PUT(index, bytes)                                                                          \
    do {                                                                                           \
        number = (index);                                                                          \
        if (number >= pickle->memo_room || top <= floor)                                           \
            goto out;                                                                              \
        if (is_container(&top[-1]))                                                                \
            top[-1].length = (uint32_t)number + 1;                                                 \
        memo[number] = top[-1];                                                                    \
        memo_used = number >= memo_used ? number + 1 : memo_used;                                  \
        at += (bytes);                                                                             \
        NEXT();                                                                                    \
    } while (0)
#define PUSH(what, value, bytes)                                                                   \
    do {                                                                                           \
        *top++ = (struct ng_unpickle_value){.kind = (what), .number = (value)};                    \
        at += (bytes);                                                                             \
        NEXT();                                                                                    \
    } while (0)

    NEXT();
binget:
    GET(at[1], 2);
long_binget:
    GET(number_at(at + 1), 5);
binput:
    PUT(at[1], 2);
long_binput:
    PUT(number_at(at + 1), 5);
memoize:
    PUT(memo_used, 1);
binint1:
    PUSH(NG_UNPICKLE_INT, at[1], 2);
binint2:
    PUSH(NG_UNPICKLE_INT, at[1] | at[2] << 8, 3);
binint:
    PUSH(NG_UNPICKLE_INT, (int32_t)number_at(at + 1), 5);
long1:
    /* A time of these years has eight bytes. */
    if (at[1] != 8)
        goto out;
    PUSH(NG_UNPICKLE_INT, (int64_t)(number_at(at + 2) | (uint64_t)number_at(at + 6) << 32), 10);
none:
    PUSH(NG_UNPICKLE_NONE, 0, 1);
newtrue:
    PUSH(NG_UNPICKLE_BOOL, 1, 1);
newfalse:
    PUSH(NG_UNPICKLE_BOOL, 0, 1);
empty_list:
    PUSH(NG_UNPICKLE_LIST, 0, 1);
empty_dict:
    PUSH(NG_UNPICKLE_DICT, 0, 1);
open_mark:
    if (machine->depth == DEPTH_MAX)
        goto out;
    machine->marks[machine->depth++] = (uint32_t)(floor - stack);
    floor = top;
    at++;
    NEXT();
out:
    machine->at = at;
    machine->used = (size_t)(top - stack);
    machine->floor = (size_t)(floor - stack);
    pickle->memo_used = memo_used;
#undef NEXT
#undef GET
#undef PUT
#undef PUSH
}

void ng_unpickle_init(struct ng_unpickle *pickle)
{
    *pickle = (struct ng_unpickle){0};
}

void ng_unpickle_fini(struct ng_unpickle *pickle)
{
    free(pickle->stack);
    free(pickle->memo);
    ng_unpickle_init(pickle);
}

int ng_unpickle_read(struct ng_unpickle *pickle, uint8_t *bytes, size_t count,
                     const struct ng_unpickle_sink *sink, void *context,
                     struct ng_unpickle_value *ret_root, char *why, size_t why_bytes)
{
    struct machine machine = {.pickle = pickle,
                              .sink = sink,
                              .context = context,
                              .begin = bytes,
                              .at = bytes,
                              .end = bytes + count,
                              .why = why,
                              .why_bytes = why_bytes};

    /* The first push must find a stack, or `add` would look below nothing. */
    if (!pickle->stack && !grow(&pickle->stack, &pickle->stack_room, 1))
        return fail(&machine, -ENOMEM, "out of memory");
    machine.stack = pickle->stack;
    if (pickle->memo_used)
        memset(pickle->memo, 0, pickle->memo_used * sizeof(*pickle->memo));
    pickle->memo_used = 0;
    for (run(&machine); machine.at < machine.end; run(&machine)) {
        machine.opcode = *machine.at++;
        if (machine.opcode == OPCODE_STOP) {
            if (machine.used != 1 || machine.depth)
                return out_of_order(&machine);
            *ret_root = machine.stack[0];
            return 0;
        }
        int error = step(&machine);
        if (error)
            return error;
    }
    return fail(&machine, -EBADMSG, "cut off: the end of the pickle is missing");
}
