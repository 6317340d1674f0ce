/*
 * A reader of Python pickles that executes nothing.
 *
 * Used by `ncclguard analyze`, from several threads with a struct ng_unpickle each. A pickle is a
 * program for a small stack machine; only the instructions that build plain data are implemented
 * here. Instructions that import, call or build an object are rejected by name: a file from an
 * untrusted source must never run. No number in the file is trusted before it is compared with the
 * rest of the file's size.
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
 * something outside of the data; RUN would execute something; ODD builds data that is not plain.
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
    struct ng_unpickle_value *stack; /* copy of pickle->stack, for speed */
    size_t used;                     /* values on the stack */
    size_t floor;                    /* number of values below the innermost mark */
    uint32_t marks[DEPTH_MAX];
    unsigned depth;
    uint8_t opcode; /* the current instruction */
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

static int push_text(struct machine *machine, enum ng_unpickle_kind kind, const char *text,
                     uint64_t length)
{
    if (length > UINT32_MAX)
        return cut_off(machine);
    return push(machine, (struct ng_unpickle_value){
                             .kind = (uint8_t)kind,
                             .word = machine->sink->word(machine->context, text, (uint32_t)length),
                             .length = (uint32_t)length,
                             .text = text});
}

static int take_text(struct machine *machine, uint64_t length, enum ng_unpickle_kind kind)
{
    if (length > left(machine))
        return cut_off(machine);
    const char *text = (const char *)machine->at;
    machine->at += length;
    return push_text(machine, kind, text, length);
}

/* A number of so many bytes, little endian. */
static inline uint64_t number_at(const uint8_t *at, unsigned bytes)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* Two's complement of any width; a number that does not fit into 64 bits becomes the nearest that
 * does. */
static int take_long(struct machine *machine, uint64_t length)
{
    if (length > left(machine) || length > INT32_MAX)
        return cut_off(machine);
    const uint8_t *digits = machine->at;
    unsigned kept = length < 8 ? (unsigned)length : 8, unused = 64 - 8 * kept;
    bool negative = length > 0 && (digits[length - 1] & 0x80), fits = true;
    /* Eight bytes at once are one load. */
    uint64_t bits = left(machine) >= 8 ? number_at(digits, 8) : number_at(digits, kept);
    int64_t number = kept ? (int64_t)(bits << unused) >> unused : 0;
    for (uint64_t i = 8; i < length; i++)
        fits &= digits[i] == (negative ? 0xff : 0);
    fits &= length <= 8 || (number < 0) == negative;
    machine->at += length;
    return push_int(machine, fits ? number : negative ? INT64_MIN : INT64_MAX);
}

/* A line of text, without its end. NULL: none. */
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

/* A number written as text, into a NUL-terminated array. */
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
    int64_t number = strtoll(digits, &end, 10); /* the nearest, if it does not fit */
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
 * they encode. A Latin-1 byte has no room to become two, and becomes '?'. */
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
        /* The quoted text as Python 2 wrote it; its escapes stay as they are. */
        while (length > 0 && strchr(" \t\r", text[length - 1]))
            length--;
        if (length < 2 || text[0] != text[length - 1] || (text[0] != '\'' && text[0] != '"'))
            return fail(machine, -EBADMSG, "damaged: a text without quotes");
        text++;
        length -= 2;
    }
    return push_text(machine, NG_UNPICKLE_TEXT, text, length);
}

static bool is_container(const struct ng_unpickle_value *value)
{
    return value->kind >= NG_UNPICKLE_LIST;
}

/* A container keeps its memo number, from 1, so that later additions update the memo, too. */
static int put(struct machine *machine, uint64_t index)
{
    struct ng_unpickle *pickle = machine->pickle;

    if (machine->used <= machine->floor)
        return out_of_order(machine);
    /* Each number takes at least a byte. */
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

/* All values from the innermost mark on; removes the mark, which must exist. */
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

/* Make a container of the `count` values from `values` on, which are on top of the stack; it
 * replaces them. */
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

static int dup(struct machine *machine)
{
    return machine->used <= machine->floor ? out_of_order(machine)
                                           : push(machine, machine->stack[machine->used - 1]);
}

/* The only big-endian number. */
static int push_binary_real(struct machine *machine, uint64_t number)
{
    struct ng_unpickle_value value = {.kind = NG_UNPICKLE_FLOAT};
    uint64_t bits = __builtin_bswap64(number);

    memcpy(&value.real, &bits, sizeof(value.real));
    return push(machine, value);
}

static int protocol(const struct machine *machine, uint64_t version)
{
    return version <= PROTOCOL_MAX
               ? 0
               : fail(machine, -EPROTO, "a pickle of protocol %u, later than %d", (unsigned)version,
                      PROTOCOL_MAX);
}

/*
 * Runs all instructions, up to STOP. A file has millions of them: the read position and the top of
 * the stack are kept in registers, except around calls of other functions.
 */
static int run(struct machine *machine)
{
#define OF_TAKEN(name)       &&do_##name
#define OF_LOADED(name)      &&refused
#define OF_RUN(name)         &&refused
#define OF_ODD(name)         &&refused
#define OP(code, name, what) [(code)] = OF_##what(name),
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
    static const void *const places[256] = {[0 ... 255] = &&refused, OPCODES(OP)};
#pragma GCC diagnostic pop
#undef OP
    struct ng_unpickle *pickle = machine->pickle;
    struct ng_unpickle_value *stack = machine->stack, *top = stack + machine->used;
    const struct ng_unpickle_value *full = stack + pickle->stack_room;
    uint8_t *at = machine->at, *const end = machine->end;
    uint64_t number, index;
    int error;

#define LEAVE()                                                                                    \
    do {                                                                                           \
        machine->at = at;                                                                          \
        machine->used = (size_t)(top - stack);                                                     \
    } while (0)
#define CALL(what)                                                                                 \
    do {                                                                                           \
        LEAVE();                                                                                   \
        error = (what);                                                                            \
        if (__builtin_expect(error != 0, 0))                                                       \
            return error;                                                                          \
        at = machine->at;                                                                          \
        stack = machine->stack;                                                                    \
        top = stack + machine->used;                                                               \
        full = stack + pickle->stack_room;                                                         \
    } while (0)
/* `number` is set to the next so many bytes, little endian. */
#define TAKE(bytes)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(end - at < (bytes), 0)) {                                             \
            LEAVE();                                                                               \
            return cut_off(machine);                                                               \
        }                                                                                          \
        number = number_at(at, (bytes));                                                           \
        at += (bytes);                                                                             \
    } while (0)
#define NEXT()                                                                                     \
    do {                                                                                           \
        if (__builtin_expect(at >= end || top == full, 0))                                         \
            goto pause;                                                                            \
        machine->opcode = *at++;                                                                   \
        goto *places[machine->opcode];                                                             \
    } while (0)
#define ON(name, ...)                                                                              \
    do_##name : __VA_ARGS__;                                                                       \
    NEXT()
#define PUSH(what, value)                                                                          \
    (*top++ = (struct ng_unpickle_value){.kind = (what), .number = (int64_t)(value)})
#define GET(place)                                                                                 \
    do {                                                                                           \
        if (__builtin_expect(                                                                      \
                (place) >= pickle->memo_used || pickle->memo[place].kind == NG_UNPICKLE_UNSET, 0)) \
            CALL(fail(machine, -EBADMSG, "damaged: it refers to a value that is not there"));      \
        *top++ = pickle->memo[place];                                                              \
    } while (0)

    NEXT();
    /* clang-format off */
    ON(BINGET, TAKE(1); GET(number));
    ON(LONG_BINGET, TAKE(4); GET(number));
    ON(GET, CALL(take_index(machine, &index)); GET(index));
    ON(BINPUT, TAKE(1); CALL(put(machine, number)));
    ON(LONG_BINPUT, TAKE(4); CALL(put(machine, number)));
    ON(MEMOIZE, CALL(put(machine, pickle->memo_used)));
    ON(PUT, CALL(take_index(machine, &index)); CALL(put(machine, index)));
    ON(BININT1, TAKE(1); PUSH(NG_UNPICKLE_INT, number));
    ON(BININT2, TAKE(2); PUSH(NG_UNPICKLE_INT, number));
    ON(BININT, TAKE(4); PUSH(NG_UNPICKLE_INT, (int32_t)(uint32_t)number));
    ON(LONG1, TAKE(1); CALL(take_long(machine, number)));
    ON(LONG4, TAKE(4); CALL(take_long(machine, number)));
    ON(INT, CALL(take_decimal(machine)));
    ON(LONG, CALL(take_decimal(machine)));
    ON(FLOAT, CALL(take_real(machine)));
    ON(BINFLOAT, TAKE(8); CALL(push_binary_real(machine, number)));
    ON(NONE, PUSH(NG_UNPICKLE_NONE, 0));
    ON(NEWTRUE, PUSH(NG_UNPICKLE_BOOL, true));
    ON(NEWFALSE, PUSH(NG_UNPICKLE_BOOL, false));
    ON(EMPTY_LIST, PUSH(NG_UNPICKLE_LIST, 0));
    ON(EMPTY_DICT, PUSH(NG_UNPICKLE_DICT, 0));
    ON(EMPTY_TUPLE, PUSH(NG_UNPICKLE_TUPLE, 0));
    ON(SHORT_BINUNICODE, TAKE(1); CALL(take_text(machine, number, NG_UNPICKLE_TEXT)));
    ON(SHORT_BINSTRING, TAKE(1); CALL(take_text(machine, number, NG_UNPICKLE_TEXT)));
    ON(BINUNICODE, TAKE(4); CALL(take_text(machine, number, NG_UNPICKLE_TEXT)));
    ON(BINSTRING, TAKE(4); CALL(take_text(machine, number, NG_UNPICKLE_TEXT)));
    ON(BINUNICODE8, TAKE(8); CALL(take_text(machine, number, NG_UNPICKLE_TEXT)));
    ON(SHORT_BINBYTES, TAKE(1); CALL(take_text(machine, number, NG_UNPICKLE_BYTES)));
    ON(BINBYTES, TAKE(4); CALL(take_text(machine, number, NG_UNPICKLE_BYTES)));
    ON(BINBYTES8, TAKE(8); CALL(take_text(machine, number, NG_UNPICKLE_BYTES)));
    ON(UNICODE, CALL(take_text_line(machine)));
    ON(STRING, CALL(take_text_line(machine)));
    ON(MARK, CALL(mark(machine)));
    ON(APPEND, CALL(add_top(machine, NG_UNPICKLE_LIST)));
    ON(APPENDS, CALL(add_marked(machine, NG_UNPICKLE_LIST)));
    ON(SETITEM, CALL(add_top(machine, NG_UNPICKLE_DICT)));
    ON(SETITEMS, CALL(add_marked(machine, NG_UNPICKLE_DICT)));
    ON(TUPLE1, CALL(gather_top(machine, 1)));
    ON(TUPLE2, CALL(gather_top(machine, 2)));
    ON(TUPLE3, CALL(gather_top(machine, 3)));
    ON(TUPLE, CALL(gather_marked(machine, NG_UNPICKLE_TUPLE)));
    ON(LIST, CALL(gather_marked(machine, NG_UNPICKLE_LIST)));
    ON(DICT, CALL(gather_marked(machine, NG_UNPICKLE_DICT)));
    ON(POP, CALL(drop(machine)));
    ON(POP_MARK, CALL(drop(machine)));
    ON(DUP, CALL(dup(machine)));
    ON(PROTO, TAKE(1); CALL(protocol(machine, number)));
    ON(FRAME, TAKE(8)); /* all bytes are in memory, wherever a frame ends */
    /* clang-format on */
do_STOP:
    LEAVE();
    return machine->used == 1 && !machine->depth ? 0 : out_of_order(machine);
refused:
    CALL(refuse(machine));
pause:
    if (at < end) {
        CALL(grow_stack(machine));
        NEXT();
    }
    LEAVE();
    return fail(machine, -EBADMSG, "cut off: the end of the pickle is missing");
#undef NEXT
#undef LEAVE
#undef CALL
#undef TAKE
#undef PUSH
#undef GET
#undef ON
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

    /* The first push needs a stack, or `add` would read below it. */
    if (!pickle->stack && !grow(&pickle->stack, &pickle->stack_room, 1))
        return fail(&machine, -ENOMEM, "out of memory");
    machine.stack = pickle->stack;
    if (pickle->memo_used)
        memset(pickle->memo, 0, pickle->memo_used * sizeof(*pickle->memo));
    pickle->memo_used = 0;
    int error = run(&machine);
    if (!error)
        *ret_root = machine.stack[0];
    return error;
}
