/*
 * Reading call frame information.
 *
 * Also used to build the tables of core/unwind/fast_unwind.h. Entered by the guard's threads. Must
 * never trust a byte that it reads.
 */
#include "core/unwind/cfi.h"

#include <string.h>

#include "core/util/memory.h"

#define EXPRESSION_BYTES 256

/* Encodings of pointers: width and base. */
#define ENCODING_OMIT     0xff
#define ENCODING_INDIRECT 0x80

static uint64_t take_encoded(struct ng_cursor *cursor, uint8_t encoding, uint64_t data)
{
    uint64_t place = cursor->address, value = 0;

    if (encoding == ENCODING_OMIT)
        return 0;
    switch (encoding & 0x0f) {
    case 0x00: /* absolute */
    case 0x04:
    case 0x0c:
        value = ng_cursor_take(cursor, 8);
        break;
    case 0x01:
        value = ng_cursor_take_uleb(cursor);
        break;
    case 0x02:
        value = ng_cursor_take(cursor, 2);
        break;
    case 0x03:
        value = ng_cursor_take(cursor, 4);
        break;
    case 0x09:
        value = (uint64_t)ng_cursor_take_sleb(cursor);
        break;
    case 0x0a:
        value = (uint64_t)ng_cursor_take_signed(cursor, 2);
        break;
    case 0x0b:
        value = (uint64_t)ng_cursor_take_signed(cursor, 4);
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

/* ---- Finding rules ---- */

/* Read one entry's bytes without its length; as many as fit. */
static bool read_entry(uint64_t address, uint8_t *bytes, size_t room, struct ng_cursor *ret_cursor)
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
    *ret_cursor = (struct ng_cursor){bytes, bytes + want, at, false};
    return true;
}

static bool read_common(struct ng_cfi_entry *rules, uint64_t address)
{
    struct ng_cursor at;
    char letters[16] = "";
    unsigned count = 0;

    if (!read_entry(address, rules->cie_bytes, sizeof(rules->cie_bytes), &at) ||
        ng_cursor_take(&at, 4) != 0)
        return false;
    uint64_t version = ng_cursor_take(&at, 1);
    if (version != 1 && version != 3 && version != 4)
        return false;
    for (uint64_t letter; (letter = ng_cursor_take(&at, 1)) != 0 && !at.bad;) {
        if (count == sizeof(letters) - 1)
            return false;
        letters[count++] = (char)letter;
    }
    if (version == 4)
        ng_cursor_skip(&at, 2); /* sizes of addresses and segments: those of this machine */
    rules->code_align = ng_cursor_take_uleb(&at);
    rules->data_align = ng_cursor_take_sleb(&at);
    rules->return_register = version == 1 ? ng_cursor_take(&at, 1) : ng_cursor_take_uleb(&at);
    rules->encoding = 0;
    rules->signal_frame = false;
    rules->augmented = letters[0] == 'z';
    if (rules->augmented) {
        uint64_t length = ng_cursor_take_uleb(&at);
        struct ng_cursor end = at;
        ng_cursor_skip(&end, length);
        for (const char *letter = letters + 1; *letter && !at.bad; letter++) {
            if (*letter == 'R')
                rules->encoding = (uint8_t)ng_cursor_take(&at, 1);
            else if (*letter == 'L')
                ng_cursor_skip(&at, 1);
            else if (*letter == 'P')
                /* Only its width matters: its target is not called. */
                take_encoded(&at, ng_cursor_take(&at, 1) & 0x0f, 0);
            else if (*letter == 'S')
                rules->signal_frame = true;
            else if (*letter != 'B' && *letter != 'G')
                break; /* the length lets us skip what is unknown */
        }
        at = end;
    } else if (letters[0]) {
        return false;
    }
    rules->common = at;
    return !at.bad;
}

/* Read the entry at `address`, if it covers the code at `place`. */
static bool read_rules(uint64_t address, uint64_t place, struct ng_cfi_entry *rules)
{
    struct ng_cursor at;

    if (!read_entry(address, rules->fde_bytes, sizeof(rules->fde_bytes), &at))
        return false;
    uint64_t here = at.address, back = ng_cursor_take(&at, 4);
    if (back == 0 || !read_common(rules, here - back))
        return false;
    rules->start = take_encoded(&at, rules->encoding, 0);
    uint64_t length = take_encoded(&at, rules->encoding & 0x0f, 0);
    if (at.bad || place - rules->start >= length)
        return false;
    if (rules->augmented)
        ng_cursor_skip(&at, ng_cursor_take_uleb(&at));
    rules->own = at;
    return !at.bad;
}

/* Find, in the sorted table of .eh_frame_hdr, the last function that begins at or before
 * `place`. */
static bool find_entry(const struct ng_image *image, uint64_t place, uint64_t *ret_address)
{
    uint8_t bytes[24];
    uint64_t header = image->eh_frame_header;
    size_t got = ng_memory_read_some(header, bytes, sizeof(bytes));
    struct ng_cursor at = {bytes, bytes + got, header, false};

    uint64_t version = ng_cursor_take(&at, 1);
    uint8_t frame_encoding = (uint8_t)ng_cursor_take(&at, 1),
            count_encoding = (uint8_t)ng_cursor_take(&at, 1);
    uint8_t table_encoding = (uint8_t)ng_cursor_take(&at, 1);
    take_encoded(&at, frame_encoding, header);
    uint64_t count = take_encoded(&at, count_encoding, header);
    /* Linkers write only one form of the table: pairs of 4-byte values, relative to the header. */
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

/* ---- The rules at one place in the function ---- */

static struct ng_cfi_rule *rule_of(struct ng_cfi_machine *machine, uint64_t number)
{
    return number < NG_CFI_RULES ? &machine->row.rule[number] : &machine->elsewhere;
}

static struct ng_cfi_rule take_expression(struct ng_cursor *cursor, enum ng_cfi_how how)
{
    uint64_t bytes = ng_cursor_take_uleb(cursor);
    struct ng_cfi_rule rule = {.how = how, .expression = cursor->at, .bytes = (uint32_t)bytes};

    if (bytes > EXPRESSION_BYTES)
        cursor->bad = true;
    ng_cursor_skip(cursor, bytes);
    return rule;
}

static void set_frame(struct ng_cfi_machine *machine, int64_t number, int64_t offset)
{
    machine->row.frame = (struct ng_cfi_rule){.how = NG_CFI_IN_REGISTER, .value = number};
    machine->row.frame_offset = offset;
}

/* In damaged tables factors can have any value: the product wraps. */
static int64_t aligned(const struct ng_cfi_entry *rules, uint64_t factor)
{
    return (int64_t)(factor * (uint64_t)rules->data_align);
}

/* Instructions that have no operand in their first byte. False: unknown instruction. */
static bool run_other(struct ng_cfi_machine *machine, const struct ng_cfi_entry *rules,
                      struct ng_cursor *at, uint8_t code, uint64_t *place)
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
        *place += ng_cursor_take(at, code - 1u) * rules->code_align;
        return true;
    case 0x04: /* advance_loc4 */
        *place += ng_cursor_take(at, 4) * rules->code_align;
        return true;
    case 0x05: /* offset_extended */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = (struct ng_cfi_rule){
            .how = NG_CFI_AT_OFFSET, .value = aligned(rules, ng_cursor_take_uleb(at))};
        return true;
    case 0x06: /* restore_extended */
        number = ng_cursor_take_uleb(at);
        if (number < NG_CFI_RULES)
            machine->row.rule[number] = machine->first.rule[number];
        return true;
    case 0x07: /* undefined */
        rule_of(machine, ng_cursor_take_uleb(at))->how = NG_CFI_UNDEFINED;
        return true;
    case 0x08: /* same_value */
        rule_of(machine, ng_cursor_take_uleb(at))->how = NG_CFI_SAME;
        return true;
    case 0x09: /* register */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = (struct ng_cfi_rule){.how = NG_CFI_IN_REGISTER,
                                                         .value = (int64_t)ng_cursor_take_uleb(at)};
        return true;
    case 0x0a: /* remember_state */
        if (machine->remembered_count == NG_CFI_STATES_MAX)
            return false;
        machine->remembered[machine->remembered_count++] = machine->row;
        return true;
    case 0x0b: /* restore_state */
        if (machine->remembered_count == 0)
            return false;
        machine->row = machine->remembered[--machine->remembered_count];
        return true;
    case 0x0c: /* def_cfa */
        number = ng_cursor_take_uleb(at);
        set_frame(machine, (int64_t)number, (int64_t)ng_cursor_take_uleb(at));
        return true;
    case 0x0d: /* def_cfa_register */
        set_frame(machine, (int64_t)ng_cursor_take_uleb(at), machine->row.frame_offset);
        return true;
    case 0x0e: /* def_cfa_offset */
        machine->row.frame_offset = (int64_t)ng_cursor_take_uleb(at);
        return true;
    case 0x0f: /* def_cfa_expression */
        machine->row.frame = take_expression(at, NG_CFI_EXPRESSION);
        return true;
    case 0x10: /* expression */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = take_expression(at, NG_CFI_AT_EXPRESSION);
        return true;
    case 0x11: /* offset_extended_sf */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = (struct ng_cfi_rule){
            .how = NG_CFI_AT_OFFSET, .value = aligned(rules, (uint64_t)ng_cursor_take_sleb(at))};
        return true;
    case 0x12: /* def_cfa_sf */
        number = ng_cursor_take_uleb(at);
        set_frame(machine, (int64_t)number, aligned(rules, (uint64_t)ng_cursor_take_sleb(at)));
        return true;
    case 0x13: /* def_cfa_offset_sf */
        machine->row.frame_offset = aligned(rules, (uint64_t)ng_cursor_take_sleb(at));
        return true;
    case 0x14: /* val_offset */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = (struct ng_cfi_rule){
            .how = NG_CFI_OFFSET, .value = aligned(rules, ng_cursor_take_uleb(at))};
        return true;
    case 0x15: /* val_offset_sf */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = (struct ng_cfi_rule){
            .how = NG_CFI_OFFSET, .value = aligned(rules, (uint64_t)ng_cursor_take_sleb(at))};
        return true;
    case 0x16: /* val_expression */
        number = ng_cursor_take_uleb(at);
        *rule_of(machine, number) = take_expression(at, NG_CFI_EXPRESSION);
        return true;
    case 0x2d: /* aarch64: the return address is signed from here on, or no longer; see strip */
        return true;
    case 0x2e: /* size of arguments on the stack: only for throwing */
        ng_cursor_take_uleb(at);
        return true;
    default:
        return false;
    }
}

/* Run the instructions up to the code at `place`. */
static bool run(struct ng_cfi_machine *machine, const struct ng_cfi_entry *rules,
                struct ng_cursor at, uint64_t place)
{
    uint64_t here = rules->start;

    while (at.at < at.end && !at.bad) {
        uint8_t code = (uint8_t)ng_cursor_take(&at, 1), low = code & 0x3f;
        switch (code >> 6) {
        case 1: /* advance_loc */
            here += low * rules->code_align;
            break;
        case 2: /* offset */
            *rule_of(machine, low) = (struct ng_cfi_rule){
                .how = NG_CFI_AT_OFFSET, .value = aligned(rules, ng_cursor_take_uleb(&at))};
            break;
        case 3: /* restore */
            if (low < NG_CFI_RULES)
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

bool ng_cfi_find(struct ng_cfi *cfi, const struct ng_image *image, uint64_t place)
{
    struct ng_cfi_machine *machine = &cfi->machine;
    uint64_t address;

    cfi->entry.signal_frame = false;
    if (!image || !image->eh_frame_header || !find_entry(image, place, &address) ||
        !read_rules(address, place, &cfi->entry))
        return false;
    memset(&machine->row, 0, sizeof(machine->row));
    machine->remembered_count = 0;
    /* The common part applies everywhere: its instructions have no place. */
    machine->first = machine->row;
    if (!run(machine, &cfi->entry, cfi->entry.common, UINT64_MAX))
        return false;
    machine->first = machine->row;
    return run(machine, &cfi->entry, cfi->entry.own, place);
}
