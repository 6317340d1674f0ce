/*
 * Walking up a thread's stack.
 *
 * Serves step 11. Entered by the guard's threads. Must never trust a byte of what it reads, neither
 * of the stack nor of the rules: every number is bounded, every loop ends.
 *
 * The rules are those of the DWARF 5 standard, section 6.4 (call frame information), in the form of
 * the Linux Standard Base (.eh_frame, .eh_frame_hdr). The ways to fail are told apart as far as
 * they say something to a reader of the stack.
 */
#include "core/unwind.h"

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "core/memory.h"

#define CIE_BYTES        1024
#define FDE_BYTES        4096
#define EXPRESSION_BYTES 256
#define STATES_MAX       8  /* remembered at a time */
#define OPERANDS_MAX     16 /* of an expression */
#define STEPS_MAX        256

#if defined(__x86_64__)
#define RULES NG_REGISTERS
#else
#define RULES 32 /* the program counter has none of its own */
#endif

/* ---- Bytes of the rules, copied, with the address that they came from ---- */

struct cursor {
    const uint8_t *at, *end;
    uint64_t address; /* of `at` in memory */
    bool bad;         /* it ended too early: what was read is zero */
};

static void skip(struct cursor *cursor, uint64_t count)
{
    if (count > (uint64_t)(cursor->end - cursor->at)) {
        cursor->bad = true;
        count = (uint64_t)(cursor->end - cursor->at);
    }
    cursor->at += count;
    cursor->address += count;
}

static uint64_t take(struct cursor *cursor, unsigned bytes)
{
    uint64_t value = 0;

    if ((size_t)(cursor->end - cursor->at) < bytes) {
        cursor->bad = true;
        return 0;
    }
    memcpy(&value, cursor->at, bytes);
    skip(cursor, bytes);
    return value;
}

static int64_t take_signed(struct cursor *cursor, unsigned bytes)
{
    unsigned unused = 64 - 8 * bytes;

    return (int64_t)(take(cursor, bytes) << unused) >> unused;
}

static uint64_t take_uleb(struct cursor *cursor)
{
    uint64_t value = 0, byte = 0x80;

    for (unsigned shift = 0; (byte & 0x80) && !cursor->bad; shift += 7) {
        byte = take(cursor, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    return value;
}

static int64_t take_sleb(struct cursor *cursor)
{
    uint64_t value = 0, byte = 0x80;
    unsigned shift = 0;

    for (; (byte & 0x80) && !cursor->bad; shift += 7) {
        byte = take(cursor, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
    }
    if ((byte & 0x40) && shift < 64)
        value |= UINT64_MAX << shift;
    return (int64_t)value;
}

/* Encodings of pointers: how wide, relative to what. */
#define ENCODING_OMIT     0xff
#define ENCODING_INDIRECT 0x80

static uint64_t take_encoded(struct cursor *cursor, uint8_t encoding, uint64_t data)
{
    uint64_t place = cursor->address, value = 0;

    if (encoding == ENCODING_OMIT)
        return 0;
    switch (encoding & 0x0f) {
    case 0x00: /* absolute */
    case 0x04:
    case 0x0c:
        value = take(cursor, 8);
        break;
    case 0x01:
        value = take_uleb(cursor);
        break;
    case 0x02:
        value = take(cursor, 2);
        break;
    case 0x03:
        value = take(cursor, 4);
        break;
    case 0x09:
        value = (uint64_t)take_sleb(cursor);
        break;
    case 0x0a:
        value = (uint64_t)take_signed(cursor, 2);
        break;
    case 0x0b:
        value = (uint64_t)take_signed(cursor, 4);
        break;
    default:
        cursor->bad = true;
    }
    switch (encoding & 0x70) {
    case 0x00:
        break;
    case 0x10:
        value += place;
        break;
    case 0x30:
        value += data;
        break;
    default:
        cursor->bad = true;
    }
    if ((encoding & ENCODING_INDIRECT) && !ng_memory_read(value, &value, sizeof(value)))
        cursor->bad = true;
    return value;
}

/* ---- Which rules ---- */

/* What one function's entry in .eh_frame says, and that of its common part. */
struct rules {
    uint8_t cie_bytes[CIE_BYTES], fde_bytes[FDE_BYTES];
    struct cursor common, own; /* the instructions */
    uint64_t start;            /* of the function */
    uint64_t code_align, return_register;
    int64_t data_align;
    uint8_t encoding;
    bool signal_frame, augmented;
};

/* One entry's bytes without its length; as many as fit. */
static bool read_entry(uint64_t address, uint8_t *bytes, size_t room, struct cursor *ret_cursor)
{
    uint32_t short_length;
    uint64_t length, at = address + 4;

    if (!ng_memory_read(address, &short_length, sizeof(short_length)))
        return false;
    length = short_length;
    if (short_length == UINT32_MAX) {
        if (!ng_memory_read(at, &length, sizeof(length)))
            return false;
        at += 8;
    }
    if (length < 4)
        return false; /* the end of the table */
    size_t want = length < room ? (size_t)length : room;
    if (!ng_memory_read(at, bytes, want))
        return false;
    *ret_cursor = (struct cursor){bytes, bytes + want, at, false};
    return true;
}

static bool read_common(struct rules *rules, uint64_t address)
{
    struct cursor at;
    char letters[16] = "";
    unsigned count = 0;

    if (!read_entry(address, rules->cie_bytes, sizeof(rules->cie_bytes), &at) || take(&at, 4) != 0)
        return false;
    uint64_t version = take(&at, 1);
    if (version != 1 && version != 3 && version != 4)
        return false;
    for (uint64_t letter; (letter = take(&at, 1)) != 0 && !at.bad;) {
        if (count == sizeof(letters) - 1)
            return false;
        letters[count++] = (char)letter;
    }
    if (version == 4)
        skip(&at, 2); /* sizes of addresses and segments: ours */
    rules->code_align = take_uleb(&at);
    rules->data_align = take_sleb(&at);
    rules->return_register = version == 1 ? take(&at, 1) : take_uleb(&at);
    rules->encoding = 0;
    rules->signal_frame = false;
    rules->augmented = letters[0] == 'z';
    if (rules->augmented) {
        uint64_t length = take_uleb(&at);
        struct cursor end = at;
        skip(&end, length);
        for (const char *letter = letters + 1; *letter && !at.bad; letter++) {
            if (*letter == 'R')
                rules->encoding = (uint8_t)take(&at, 1);
            else if (*letter == 'L')
                skip(&at, 1);
            else if (*letter == 'P')
                /* Only its width counts: what it points to is not called. */
                take_encoded(&at, take(&at, 1) & 0x0f, 0);
            else if (*letter == 'S')
                rules->signal_frame = true;
            else if (*letter != 'B' && *letter != 'G')
                break; /* the length passes over what is unknown */
        }
        at = end;
    } else if (letters[0]) {
        return false;
    }
    rules->common = at;
    return !at.bad;
}

/* The entry at `address`, if it is about the code at `place`. */
static bool read_rules(uint64_t address, uint64_t place, struct rules *rules)
{
    struct cursor at;

    if (!read_entry(address, rules->fde_bytes, sizeof(rules->fde_bytes), &at))
        return false;
    uint64_t here = at.address, back = take(&at, 4);
    if (back == 0 || !read_common(rules, here - back))
        return false;
    rules->start = take_encoded(&at, rules->encoding, 0);
    uint64_t length = take_encoded(&at, rules->encoding & 0x0f, 0);
    if (at.bad || place - rules->start >= length)
        return false;
    if (rules->augmented)
        skip(&at, take_uleb(&at));
    rules->own = at;
    return !at.bad;
}

/* In the sorted table of .eh_frame_hdr, the entry of the last function that begins at or before
 * `place`. */
static bool find_entry(const struct ng_image *image, uint64_t place, uint64_t *ret_address)
{
    uint8_t bytes[24];
    uint64_t header = image->eh_frame_header;
    size_t got = ng_memory_read_some(header, bytes, sizeof(bytes));
    struct cursor at = {bytes, bytes + got, header, false};

    uint64_t version = take(&at, 1);
    uint8_t frame_encoding = (uint8_t)take(&at, 1), count_encoding = (uint8_t)take(&at, 1);
    uint8_t table_encoding = (uint8_t)take(&at, 1);
    take_encoded(&at, frame_encoding, header);
    uint64_t count = take_encoded(&at, count_encoding, header);
    /* Linkers write one form of the table: pairs of 4 bytes, relative to the header. */
    if (at.bad || version != 1 || table_encoding != 0x3b || count == 0 || count > (1u << 26))
        return false;
    uint64_t table = at.address, low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int32_t start;
        if (!ng_memory_read(table + middle * 8, &start, sizeof(start)))
            return false;
        if (header + (uint64_t)(int64_t)start <= place)
            low = middle + 1;
        else
            high = middle;
    }
    int32_t entry;
    if (low == 0 || !ng_memory_read(table + (low - 1) * 8 + 4, &entry, sizeof(entry)))
        return false;
    *ret_address = header + (uint64_t)(int64_t)entry;
    return true;
}

/* ---- What the rules say at one place in the function ---- */

enum how { SAME, UNDEFINED, AT_OFFSET, OFFSET, IN_REGISTER, AT_EXPRESSION, EXPRESSION };

struct rule {
    uint8_t how;   /* enum how */
    int64_t value; /* offset, or register */
    const uint8_t *expression;
    uint32_t bytes;
};

struct row {
    struct rule frame; /* of the canonical frame address: IN_REGISTER plus offset, or EXPRESSION */
    int64_t frame_offset;
    struct rule rule[RULES];
};

/* With the rows that were remembered: too large for frames that nest. */
struct machine {
    struct row row, first, remembered[STATES_MAX];
    unsigned remembered_count;
    struct rule elsewhere; /* vector registers: nobody asks for them */
};

static struct rule *rule_of(struct machine *machine, uint64_t number)
{
    return number < RULES ? &machine->row.rule[number] : &machine->elsewhere;
}

static struct rule take_expression(struct cursor *cursor, enum how how)
{
    uint64_t bytes = take_uleb(cursor);
    struct rule rule = {.how = how, .expression = cursor->at, .bytes = (uint32_t)bytes};

    if (bytes > EXPRESSION_BYTES)
        cursor->bad = true;
    skip(cursor, bytes);
    return rule;
}

static void set_frame(struct machine *machine, int64_t number, int64_t offset)
{
    machine->row.frame = (struct rule){.how = IN_REGISTER, .value = number};
    machine->row.frame_offset = offset;
}

/* The instructions that have no operand in their first byte. False: one that nobody knows. */
static bool run_other(struct machine *machine, const struct rules *rules, struct cursor *at,
                      uint8_t code, uint64_t *place)
{
    uint64_t number;

    switch (code) {
    case 0x00: /* nop */
        return true;
    case 0x01: /* set_loc */
        *place = take_encoded(at, rules->encoding, 0);
        return true;
    case 0x02: /* advance_loc1 */
    case 0x03:
        *place += take(at, code - 1u) * rules->code_align;
        return true;
    case 0x04: /* advance_loc4 */
        *place += take(at, 4) * rules->code_align;
        return true;
    case 0x05: /* offset_extended */
        number = take_uleb(at);
        *rule_of(machine, number) =
            (struct rule){.how = AT_OFFSET, .value = (int64_t)take_uleb(at) * rules->data_align};
        return true;
    case 0x06: /* restore_extended */
        number = take_uleb(at);
        if (number < RULES)
            machine->row.rule[number] = machine->first.rule[number];
        return true;
    case 0x07: /* undefined */
        rule_of(machine, take_uleb(at))->how = UNDEFINED;
        return true;
    case 0x08: /* same_value */
        rule_of(machine, take_uleb(at))->how = SAME;
        return true;
    case 0x09: /* register */
        number = take_uleb(at);
        *rule_of(machine, number) =
            (struct rule){.how = IN_REGISTER, .value = (int64_t)take_uleb(at)};
        return true;
    case 0x0a: /* remember_state */
        if (machine->remembered_count == STATES_MAX)
            return false;
        machine->remembered[machine->remembered_count++] = machine->row;
        return true;
    case 0x0b: /* restore_state */
        if (machine->remembered_count == 0)
            return false;
        machine->row = machine->remembered[--machine->remembered_count];
        return true;
    case 0x0c: /* def_cfa */
        number = take_uleb(at);
        set_frame(machine, (int64_t)number, (int64_t)take_uleb(at));
        return true;
    case 0x0d: /* def_cfa_register */
        set_frame(machine, (int64_t)take_uleb(at), machine->row.frame_offset);
        return true;
    case 0x0e: /* def_cfa_offset */
        machine->row.frame_offset = (int64_t)take_uleb(at);
        return true;
    case 0x0f: /* def_cfa_expression */
        machine->row.frame = take_expression(at, EXPRESSION);
        return true;
    case 0x10: /* expression */
        number = take_uleb(at);
        *rule_of(machine, number) = take_expression(at, AT_EXPRESSION);
        return true;
    case 0x11: /* offset_extended_sf */
        number = take_uleb(at);
        *rule_of(machine, number) =
            (struct rule){.how = AT_OFFSET, .value = take_sleb(at) * rules->data_align};
        return true;
    case 0x12: /* def_cfa_sf */
        number = take_uleb(at);
        set_frame(machine, (int64_t)number, take_sleb(at) * rules->data_align);
        return true;
    case 0x13: /* def_cfa_offset_sf */
        machine->row.frame_offset = take_sleb(at) * rules->data_align;
        return true;
    case 0x14: /* val_offset */
        number = take_uleb(at);
        *rule_of(machine, number) =
            (struct rule){.how = OFFSET, .value = (int64_t)take_uleb(at) * rules->data_align};
        return true;
    case 0x15: /* val_offset_sf */
        number = take_uleb(at);
        *rule_of(machine, number) =
            (struct rule){.how = OFFSET, .value = take_sleb(at) * rules->data_align};
        return true;
    case 0x16: /* val_expression */
        number = take_uleb(at);
        *rule_of(machine, number) = take_expression(at, EXPRESSION);
        return true;
    case 0x2d: /* aarch64: the return address is signed from here on, or no more; see strip */
        return true;
    case 0x2e: /* size of arguments on the stack: for throwing only */
        take_uleb(at);
        return true;
    default:
        return false;
    }
}

/* Up to the code at `place`. */
static bool run(struct machine *machine, const struct rules *rules, struct cursor at,
                uint64_t place)
{
    uint64_t here = rules->start;

    while (at.at < at.end && !at.bad) {
        uint8_t code = (uint8_t)take(&at, 1), low = code & 0x3f;
        switch (code >> 6) {
        case 1: /* advance_loc */
            here += low * rules->code_align;
            break;
        case 2: /* offset */
            *rule_of(machine, low) = (struct rule){
                .how = AT_OFFSET, .value = (int64_t)take_uleb(&at) * rules->data_align};
            break;
        case 3: /* restore */
            if (low < RULES)
                machine->row.rule[low] = machine->first.rule[low];
            break;
        default:
            if (!run_other(machine, rules, &at, code, &here))
                return false;
        }
        if (here > place)
            return true;
    }
    return !at.bad;
}

/* ---- From a frame to its caller ---- */

static bool known(const struct ng_registers *registers, uint64_t number)
{
    return number < NG_REGISTERS && (registers->known >> number & 1);
}

static void set(struct ng_registers *registers, unsigned number, uint64_t value)
{
    registers->value[number] = value;
    registers->known |= UINT64_C(1) << number;
}

/* The operands of an expression; the top is the last. */
struct operands {
    uint64_t value[OPERANDS_MAX];
    unsigned count;
    bool bad;
};

static void push(struct operands *operands, uint64_t value)
{
    if (operands->count == OPERANDS_MAX)
        operands->bad = true;
    else
        operands->value[operands->count++] = value;
}

static uint64_t pop(struct operands *operands)
{
    if (operands->count == 0) {
        operands->bad = true;
        return 0;
    }
    return operands->value[--operands->count];
}

/* False: it computes nothing of two operands. */
static bool combine(struct operands *operands, uint8_t code)
{
    uint64_t top = pop(operands), below = pop(operands), value;

    switch (code) {
    case 0x1a:
        value = below & top;
        break;
    case 0x1c:
        value = below - top;
        break;
    case 0x1e:
        value = below * top;
        break;
    case 0x21:
        value = below | top;
        break;
    case 0x22:
        value = below + top;
        break;
    case 0x24:
        value = top < 64 ? below << top : 0;
        break;
    case 0x25:
        value = top < 64 ? below >> top : 0;
        break;
    case 0x27:
        value = below ^ top;
        break;
    case 0x29:
        value = below == top;
        break;
    case 0x2a:
        value = (int64_t)below >= (int64_t)top;
        break;
    case 0x2b:
        value = (int64_t)below > (int64_t)top;
        break;
    case 0x2c:
        value = (int64_t)below <= (int64_t)top;
        break;
    case 0x2d:
        value = (int64_t)below < (int64_t)top;
        break;
    case 0x2e:
        value = below != top;
        break;
    default:
        return false;
    }
    push(operands, value);
    return true;
}

/* Constants of fixed width, by code: DW_OP_addr, const1u to const8s. */
static bool push_constant(struct operands *operands, struct cursor *at, uint8_t code)
{
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 8, 8};

    if (code == 0x03)
        push(operands, take(at, 8));
    else if (code >= 0x08 && code <= 0x0f)
        push(operands, code & 1 ? (uint64_t)take_signed(at, widths[code - 0x08])
                                : take(at, widths[code - 0x08]));
    else if (code == 0x10)
        push(operands, take_uleb(at));
    else if (code == 0x11)
        push(operands, (uint64_t)take_sleb(at));
    else if (code >= 0x30 && code <= 0x4f)
        push(operands, code - 0x30u);
    else
        return false;
    return true;
}

/* Those that compilers and hand-written code use in .eh_frame; no jumps. */
static bool evaluate(const struct rule *rule, const struct ng_registers *registers,
                     const uint64_t *first, uint64_t *ret_value)
{
    struct cursor at = {rule->expression, rule->expression + rule->bytes, 0, false};
    struct operands operands = {0};
    uint64_t value;

    if (first)
        push(&operands, *first);
    for (unsigned step = 0; at.at < at.end && step < STEPS_MAX; step++) {
        uint8_t code = (uint8_t)take(&at, 1);
        if (push_constant(&operands, &at, code))
            continue;
        if (code >= 0x70 && code <= 0x8f) { /* breg */
            if (!known(registers, code - 0x70u))
                return false;
            push(&operands, registers->value[code - 0x70] + (uint64_t)take_sleb(&at));
        } else if (code == 0x06) { /* deref */
            if (!ng_memory_read(pop(&operands), &value, sizeof(value)))
                return false;
            push(&operands, value);
        } else if (code == 0x12) { /* dup */
            value = pop(&operands);
            push(&operands, value);
            push(&operands, value);
        } else if (code == 0x13) { /* drop */
            pop(&operands);
        } else if (code == 0x23) { /* plus_uconst */
            push(&operands, pop(&operands) + take_uleb(&at));
        } else if (code != 0x96 && !combine(&operands, code)) { /* 0x96: nop */
            return false;
        }
    }
    *ret_value = pop(&operands);
    return !operands.bad && !at.bad;
}

/* Pointer authentication puts a signature into the bits that no address of a program uses. */
static uint64_t strip(uint64_t address)
{
#if defined(__aarch64__)
    return address & ((UINT64_C(1) << 48) - 1);
#else
    return address;
#endif
}

static enum ng_unwind_end find_frame(const struct row *row, const struct ng_registers *registers,
                                     uint64_t *ret_frame)
{
    if (row->frame.how == EXPRESSION)
        return evaluate(&row->frame, registers, NULL, ret_frame) ? NG_UNWIND_WHOLE
                                                                 : NG_UNWIND_UNREADABLE;
    if (row->frame.how != IN_REGISTER || (uint64_t)row->frame.value >= NG_REGISTERS)
        return NG_UNWIND_NO_RULE;
    if (!known(registers, (uint64_t)row->frame.value))
        return NG_UNWIND_NO_REGISTER;
    *ret_frame = registers->value[row->frame.value] + (uint64_t)row->frame_offset;
    return NG_UNWIND_WHOLE;
}

/* One register of the caller. False: it cannot be had. */
static bool restore(const struct rule *rule, const struct ng_registers *before, uint64_t frame,
                    unsigned number, struct ng_registers *caller)
{
    uint64_t value = 0;

    switch (rule->how) {
    case AT_OFFSET:
        if (!ng_memory_read(frame + (uint64_t)rule->value, &value, sizeof(value)))
            return false;
        break;
    case OFFSET:
        value = frame + (uint64_t)rule->value;
        break;
    case IN_REGISTER:
        if (!known(before, (uint64_t)rule->value)) {
            caller->known &= ~(UINT64_C(1) << number);
            return true;
        }
        value = before->value[rule->value];
        break;
    case AT_EXPRESSION:
        if (!evaluate(rule, before, &frame, &value) ||
            !ng_memory_read(value, &value, sizeof(value)))
            return false;
        break;
    case EXPRESSION:
        if (!evaluate(rule, before, &frame, &value))
            return false;
        break;
    default: /* the same; or of no value to the caller, who does not ask for it */
        return true;
    }
    set(caller, number, value);
    return true;
}

/* WHOLE: *registers are the caller's, whose program counter is 0 where there is none. */
static enum ng_unwind_end apply(const struct rules *rules, const struct row *row,
                                struct ng_registers *registers)
{
    struct ng_registers caller = *registers;
    uint64_t frame;

    if (rules->return_register >= RULES)
        return NG_UNWIND_NO_RULE;
    enum ng_unwind_end end = find_frame(row, registers, &frame);
    if (end != NG_UNWIND_WHOLE)
        return end;
    set(&caller, NG_REGISTER_STACK, frame);
    for (unsigned number = 0; number < RULES; number++)
        if (!restore(&row->rule[number], registers, frame, number, &caller))
            return NG_UNWIND_UNREADABLE;
    if (row->rule[rules->return_register].how == UNDEFINED)
        set(&caller, NG_REGISTER_PROGRAM, 0);
    else if (!known(&caller, rules->return_register))
        return NG_UNWIND_NO_REGISTER;
    else
        set(&caller, NG_REGISTER_PROGRAM, strip(caller.value[rules->return_register]));
    *registers = caller;
    return NG_UNWIND_WHOLE;
}

/* Everything large of a step, in one place. */
struct work {
    struct rules rules;
    struct machine machine;
};

/* By the image's rules for the code at `place`. NO_RULE: there are none. */
static enum ng_unwind_end step_by_rules(struct work *work, const struct ng_image *image,
                                        uint64_t place, struct ng_registers *registers)
{
    struct machine *machine = &work->machine;
    uint64_t entry;

    if (!image || !image->eh_frame_header || !find_entry(image, place, &entry) ||
        !read_rules(entry, place, &work->rules))
        return NG_UNWIND_NO_RULE;
    memset(&machine->row, 0, sizeof(machine->row));
    machine->remembered_count = 0;
    /* The common part is true everywhere: its instructions have no place. */
    machine->first = machine->row;
    if (!run(machine, &work->rules, work->rules.common, UINT64_MAX))
        return NG_UNWIND_NO_RULE;
    machine->first = machine->row;
    if (!run(machine, &work->rules, work->rules.own, place))
        return NG_UNWIND_NO_RULE;
    return apply(&work->rules, &machine->row, registers);
}

/* By frame pointers: code that was made at run time, or without tables. */
static enum ng_unwind_end step_by_pointer(struct ng_registers *registers)
{
    uint64_t pair[2];

    if (!known(registers, NG_REGISTER_FRAME))
        return NG_UNWIND_NO_REGISTER;
    uint64_t frame = registers->value[NG_REGISTER_FRAME];
    if (frame % 8 || frame < registers->value[NG_REGISTER_STACK] ||
        !ng_memory_read(frame, pair, sizeof(pair)))
        return NG_UNWIND_NO_RULE;
    /* The caller's is further up, or there is none. */
    if (pair[0] && pair[0] <= frame)
        return NG_UNWIND_NO_RULE;
    set(registers, NG_REGISTER_FRAME, pair[0]);
    set(registers, NG_REGISTER_STACK, frame + sizeof(pair));
    set(registers, NG_REGISTER_PROGRAM, strip(pair[1]));
    return NG_UNWIND_WHOLE;
}

/* A call through a bad pointer: nothing lies there, and where it came from is known. */
static bool step_out_of_nowhere(const struct ng_images *images, struct ng_registers *registers)
{
#if defined(__x86_64__)
    uint64_t back, stack = registers->value[NG_REGISTER_STACK];

    if (!ng_memory_read(stack, &back, sizeof(back)) || !ng_images_find(images, back))
        return false;
    set(registers, NG_REGISTER_STACK, stack + sizeof(back));
#else
    uint64_t back = strip(registers->value[NG_REGISTER_RETURN]);

    if (!known(registers, NG_REGISTER_RETURN) || !ng_images_find(images, back))
        return false;
#endif
    set(registers, NG_REGISTER_PROGRAM, back);
    return true;
}

/* Where a signal handler returns to, the registers of what it interrupted lie on the stack. On
 * x86-64 the C library's code for that has rules. */
static bool step_out_of_signal(struct ng_registers *registers)
{
#if defined(__aarch64__)
    static const uint32_t code[2] = {0xd2801168, 0xd4000001}; /* mov x8, 139; svc 0 */
    uint64_t stack = registers->value[NG_REGISTER_STACK];
    uint32_t there[2];
    mcontext_t context;

    if (!ng_memory_read(registers->value[NG_REGISTER_PROGRAM], there, sizeof(there)) ||
        memcmp(there, code, sizeof(code)) != 0 ||
        !ng_memory_read(stack + 128 + offsetof(ucontext_t, uc_mcontext), &context,
                        offsetof(mcontext_t, pstate)))
        return false;
    for (unsigned i = 0; i < 31; i++)
        set(registers, i, context.regs[i]);
    set(registers, NG_REGISTER_STACK, context.sp);
    set(registers, NG_REGISTER_PROGRAM, context.pc);
    return true;
#else
    (void)registers;
    return false;
#endif
}

static enum ng_unwind_end step(struct work *work, const struct ng_images *images, bool first,
                               struct ng_registers *registers, bool *interrupted)
{
    uint64_t program = registers->value[NG_REGISTER_PROGRAM];
    /* A call may be the last instruction of its function: what it returns to is the next one. */
    uint64_t place = *interrupted ? program : program - 1;
    const struct ng_image *image = ng_images_find(images, place);

    if (step_out_of_signal(registers)) {
        *interrupted = true;
        return NG_UNWIND_WHOLE;
    }
    work->rules.signal_frame = false;
    enum ng_unwind_end end = step_by_rules(work, image, place, registers);
    *interrupted = end == NG_UNWIND_WHOLE && work->rules.signal_frame;
    if (end != NG_UNWIND_NO_RULE)
        return end;
    if (first && !image && step_out_of_nowhere(images, registers))
        return NG_UNWIND_WHOLE;
    return step_by_pointer(registers);
}

uint32_t ng_unwind(const struct ng_images *images, const struct ng_registers *registers,
                   struct ng_frame *ret_frames, uint32_t room, enum ng_unwind_end *ret_end)
{
    struct ng_registers now = *registers;
    struct work work;
    bool interrupted = true;
    uint32_t count = 0;

    *ret_end = NG_UNWIND_NO_REGISTER;
    if (!known(registers, NG_REGISTER_PROGRAM) || !known(registers, NG_REGISTER_STACK))
        return 0;
    for (;;) {
        uint64_t program = now.value[NG_REGISTER_PROGRAM], stack = now.value[NG_REGISTER_STACK];
        if (!interrupted && program == 0) {
            *ret_end = NG_UNWIND_WHOLE;
            return count;
        }
        if (count == room) {
            *ret_end = NG_UNWIND_NO_ROOM;
            return count;
        }
        ret_frames[count++] = (struct ng_frame){program, interrupted};
        *ret_end = step(&work, images, count == 1, &now, &interrupted);
        if (*ret_end != NG_UNWIND_WHOLE)
            return count;
        if (program == now.value[NG_REGISTER_PROGRAM] && stack == now.value[NG_REGISTER_STACK]) {
            *ret_end = NG_UNWIND_UNREADABLE;
            return count;
        }
    }
}
