/*
 * Creates rules for walks.
 *
 * Entered by the guard's threads. Must never trust a library's tables. What a rule cannot express
 * is not followed.
 */
#include "core/unwind/fast_unwind.h"

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "core/unwind/cfi.h"
#include "core/util/memory.h"

#define BREG0 0x70 /* plus the register's number */
#define DEREF 0x06

static bool fits(int64_t value)
{
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* A register plus an offset, or the value at that address: the form that compilers use after
 * aligning the stack, and the C library for an interrupted frame. */
struct term {
    bool by_pointer, by_reference;
    int32_t offset;
};

static bool read_term(const struct ng_cfi_rule *rule, struct term *ret_term)
{
    struct ng_cursor at = {rule->expression, rule->expression + rule->bytes, 0, false};
    uint64_t code = ng_cursor_take(&at, 1);
    int64_t offset = ng_cursor_take_sleb(&at);

    if (at.bad || (code != BREG0 + NG_REGISTER_STACK && code != BREG0 + NG_REGISTER_FRAME) ||
        !fits(offset))
        return false;
    struct term term = {.by_pointer = code == BREG0 + NG_REGISTER_FRAME, .offset = (int32_t)offset};
    if (at.at < at.end) {
        if (ng_cursor_take(&at, 1) != DEREF || at.at < at.end)
            return false;
        term.by_reference = true;
    }
    *ret_term = term;
    return true;
}

/* False: it cannot be expressed this way. */
static bool place_frame(const struct ng_cfi_row *row, struct ng_fast_unwind_rule *rule)
{
    struct term term;

    if (row->frame.how == NG_CFI_EXPRESSION) {
        if (!read_term(&row->frame, &term))
            return false;
        rule->by_pointer = term.by_pointer;
        rule->by_reference = term.by_reference;
        rule->frame_offset = term.offset;
        return true;
    }
    if (row->frame.how != NG_CFI_IN_REGISTER || !fits(row->frame_offset) ||
        (row->frame.value != NG_REGISTER_STACK && row->frame.value != NG_REGISTER_FRAME))
        return false;
    rule->by_pointer = row->frame.value == NG_REGISTER_FRAME;
    rule->frame_offset = (int32_t)row->frame_offset;
    return true;
}

static enum ng_fast_unwind_where place_register(const struct ng_cfi_rule *from, int32_t *ret_offset)
{
    struct term term;

    *ret_offset = 0;
    switch (from->how) {
    case NG_CFI_SAME:
        return NG_FAST_UNWIND_SAME;
    case NG_CFI_AT_OFFSET:
        if (!fits(from->value))
            return NG_FAST_UNWIND_LOST;
        *ret_offset = (int32_t)from->value;
        return NG_FAST_UNWIND_AT_FRAME;
    case NG_CFI_AT_EXPRESSION:
        if (!read_term(from, &term) || term.by_reference)
            return NG_FAST_UNWIND_LOST;
        *ret_offset = term.offset;
        return term.by_pointer ? NG_FAST_UNWIND_AT_POINTER : NG_FAST_UNWIND_AT_STACK;
    default:
        return NG_FAST_UNWIND_LOST;
    }
}

static bool translate(const struct ng_cfi *cfi, struct ng_fast_unwind_rule *rule)
{
    const struct ng_cfi_row *row = &cfi->machine.row;
    uint64_t back = cfi->entry.return_register;

    if (back != NG_REGISTER_RETURN)
        return false;
    rule->kind = NG_FAST_UNWIND_OUTERMOST;
    if (row->rule[back].how == NG_CFI_UNDEFINED)
        return true;
    rule->kind = NG_FAST_UNWIND_RULE;
    rule->signal = cfi->entry.signal_frame;
    rule->return_at = place_register(&row->rule[back], &rule->return_offset);
    rule->pointer_at = place_register(&row->rule[NG_REGISTER_FRAME], &rule->pointer_offset);
#if defined(__x86_64__)
    if (rule->return_at == NG_FAST_UNWIND_SAME)
        return false;
#endif
    return rule->return_at != NG_FAST_UNWIND_LOST && place_frame(row, rule);
}

/* Is this the code that a signal handler returns to? On x86-64 the C library's code for that has
 * rules. */
static bool is_behind_handler(uint64_t place, struct ng_fast_unwind_rule *rule)
{
#if defined(__aarch64__)
    static const uint32_t code[2] = {0xd2801168, 0xd4000001}; /* mov x8, 139; svc 0 */
    const int32_t context = 128 + offsetof(ucontext_t, uc_mcontext);
    uint32_t there[2];

    if (!ng_memory_read(place + 1, there, sizeof(there)) || memcmp(there, code, sizeof(code)) != 0)
        return false;
    *rule = (struct ng_fast_unwind_rule){
        .kind = NG_FAST_UNWIND_RULE,
        .by_reference = true,
        .frame_offset = context + (int32_t)offsetof(mcontext_t, sp),
        .return_at = NG_FAST_UNWIND_AT_STACK,
        .return_offset = context + (int32_t)offsetof(mcontext_t, pc),
        .pointer_at = NG_FAST_UNWIND_AT_STACK,
        .pointer_offset = context + (int32_t)offsetof(mcontext_t, regs[29]),
        .signal = true,
        .link_too = true,
    };
    return true;
#else
    return false;
#endif
}

struct ng_fast_unwind_rule ng_fast_unwind_rule_make(const struct ng_images *images, uint64_t place)
{
    struct ng_fast_unwind_rule rule = {0};
    struct ng_cfi cfi;

    if (is_behind_handler(place, &rule))
        return rule;
    if (!ng_cfi_find(&cfi, ng_images_find(images, place), place))
        return (struct ng_fast_unwind_rule){.kind = NG_FAST_UNWIND_POINTER};
    if (!translate(&cfi, &rule))
        return (struct ng_fast_unwind_rule){.kind = NG_FAST_UNWIND_UNKNOWN};
    return rule;
}
