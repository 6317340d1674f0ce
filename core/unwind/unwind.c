/*
 * Walks up a thread's stack.
 *
 * Entered by the guard's threads. Must never trust a byte that it reads, neither of the stack nor
 * of the rules: every number is bounded, every loop ends.
 *
 * Failures are distinguished as far as this helps a reader of the stack.
 */
#include "core/unwind/unwind.h"

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "core/unwind/cfi.h"
#include "core/util/memory.h"

#define OPERANDS_MAX 16 /* of an expression */
#define STEPS_MAX    256

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

/* Always true. */
static bool push(struct operands *operands, uint64_t value)
{
    if (operands->count == OPERANDS_MAX)
        operands->bad = true;
    else
        operands->value[operands->count++] = value;
    return true;
}

static uint64_t pop(struct operands *operands)
{
    if (operands->count == 0) {
        operands->bad = true;
        return 0;
    }
    return operands->value[--operands->count];
}

/* False: not an operation on two operands. */
static bool combine(struct operands *operands, uint8_t code)
{
    uint64_t top = pop(operands), below = pop(operands);

    switch (code) {
    case 0x1a:
        return push(operands, below & top);
    case 0x1c:
        return push(operands, below - top);
    case 0x1e:
        return push(operands, below * top);
    case 0x21:
        return push(operands, below | top);
    case 0x22:
        return push(operands, below + top);
    case 0x24:
        return push(operands, top < 64 ? below << top : 0);
    case 0x25:
        return push(operands, top < 64 ? below >> top : 0);
    case 0x27:
        return push(operands, below ^ top);
    case 0x29:
        return push(operands, below == top);
    case 0x2a:
        return push(operands, (int64_t)below >= (int64_t)top);
    case 0x2b:
        return push(operands, (int64_t)below > (int64_t)top);
    case 0x2c:
        return push(operands, (int64_t)below <= (int64_t)top);
    case 0x2d:
        return push(operands, (int64_t)below < (int64_t)top);
    case 0x2e:
        return push(operands, below != top);
    default:
        return false;
    }
}

/* Constants of fixed width, by code: DW_OP_addr, const1u to const8s. */
static bool push_constant(struct operands *operands, struct ng_cursor *at, uint8_t code)
{
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 8, 8};

    if (code == 0x03)
        return push(operands, ng_cursor_take(at, 8));
    if (code >= 0x08 && code <= 0x0f)
        return push(operands, code & 1 ? (uint64_t)ng_cursor_take_signed(at, widths[code - 0x08])
                                       : ng_cursor_take(at, widths[code - 0x08]));
    if (code == 0x10)
        return push(operands, ng_cursor_take_uleb(at));
    if (code == 0x11)
        return push(operands, (uint64_t)ng_cursor_take_sleb(at));
    return code >= 0x30 && code <= 0x4f && push(operands, code - 0x30u);
}

/* Supports the operations that compilers and hand-written code use in .eh_frame; no jumps. */
static bool evaluate(const struct ng_cfi_rule *rule, const struct ng_registers *registers,
                     const uint64_t *first, uint64_t *ret_value)
{
    struct ng_cursor at = {rule->expression, rule->expression + rule->bytes, 0, false};
    struct operands operands = {0};
    uint64_t value;

    if (first)
        push(&operands, *first);
    for (unsigned step = 0; at.at < at.end && step < STEPS_MAX; step++) {
        uint8_t code = (uint8_t)ng_cursor_take(&at, 1);
        if (push_constant(&operands, &at, code))
            continue;
        if (code >= 0x70 && code <= 0x8f) { /* breg */
            if (!known(registers, code - 0x70u))
                return false;
            push(&operands, registers->value[code - 0x70] + (uint64_t)ng_cursor_take_sleb(&at));
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
            push(&operands, pop(&operands) + ng_cursor_take_uleb(&at));
        } else if (code != 0x96 && !combine(&operands, code)) { /* 0x96: nop */
            return false;
        }
    }
    *ret_value = pop(&operands);
    return !operands.bad && !at.bad;
}

static enum ng_unwind_end find_frame(const struct ng_cfi_row *row,
                                     const struct ng_registers *registers, uint64_t *ret_frame)
{
    if (row->frame.how == NG_CFI_EXPRESSION)
        return evaluate(&row->frame, registers, NULL, ret_frame) ? NG_UNWIND_WHOLE
                                                                 : NG_UNWIND_UNREADABLE;
    if (row->frame.how != NG_CFI_IN_REGISTER || (uint64_t)row->frame.value >= NG_REGISTERS)
        return NG_UNWIND_NO_RULE;
    if (!known(registers, (uint64_t)row->frame.value))
        return NG_UNWIND_NO_REGISTER;
    *ret_frame = registers->value[row->frame.value] + (uint64_t)row->frame_offset;
    return NG_UNWIND_WHOLE;
}

/* Restore one register of the caller. False: not available. */
static bool restore(const struct ng_cfi_rule *rule, const struct ng_registers *before,
                    uint64_t frame, unsigned number, struct ng_registers *caller)
{
    uint64_t value = 0;

    switch (rule->how) {
    case NG_CFI_AT_OFFSET:
        if (!ng_memory_read(frame + (uint64_t)rule->value, &value, sizeof(value)))
            return false;
        break;
    case NG_CFI_OFFSET:
        value = frame + (uint64_t)rule->value;
        break;
    case NG_CFI_IN_REGISTER:
        if (!known(before, (uint64_t)rule->value)) {
            caller->known &= ~(UINT64_C(1) << number);
            return true;
        }
        value = before->value[rule->value];
        break;
    case NG_CFI_AT_EXPRESSION:
        if (!evaluate(rule, before, &frame, &value) ||
            !ng_memory_read(value, &value, sizeof(value)))
            return false;
        break;
    case NG_CFI_EXPRESSION:
        if (!evaluate(rule, before, &frame, &value))
            return false;
        break;
    default: /* unchanged; or meaningless to the caller, which does not use it */
        return true;
    }
    set(caller, number, value);
    return true;
}

/* WHOLE: *registers are the caller's; its program counter is 0 if there is no caller. */
static enum ng_unwind_end apply(const struct ng_cfi_entry *rules, const struct ng_cfi_row *row,
                                struct ng_registers *registers)
{
    struct ng_registers caller = *registers;
    uint64_t frame;

    if (rules->return_register >= NG_CFI_RULES)
        return NG_UNWIND_NO_RULE;
    enum ng_unwind_end end = find_frame(row, registers, &frame);
    if (end != NG_UNWIND_WHOLE)
        return end;
    set(&caller, NG_REGISTER_STACK, frame);
    for (unsigned number = 0; number < NG_CFI_RULES; number++)
        if (!restore(&row->rule[number], registers, frame, number, &caller))
            return NG_UNWIND_UNREADABLE;
    if (row->rule[rules->return_register].how == NG_CFI_UNDEFINED)
        set(&caller, NG_REGISTER_PROGRAM, 0);
    else if (!known(&caller, rules->return_register))
        return NG_UNWIND_NO_REGISTER;
    else
        set(&caller, NG_REGISTER_PROGRAM, ng_registers_strip(caller.value[rules->return_register]));
    *registers = caller;
    return NG_UNWIND_WHOLE;
}

/* Step by the image's rules for the code at `place`. NO_RULE: there are none. */
static enum ng_unwind_end step_by_rules(struct ng_cfi *cfi, const struct ng_image *image,
                                        uint64_t place, struct ng_registers *registers)
{
    if (!ng_cfi_find(cfi, image, place))
        return NG_UNWIND_NO_RULE;
    return apply(&cfi->entry, &cfi->machine.row, registers);
}

/* Step by frame pointers: code generated at run time, or without tables. */
static enum ng_unwind_end step_by_pointer(struct ng_registers *registers)
{
    uint64_t pair[2];

    if (!known(registers, NG_REGISTER_FRAME))
        return NG_UNWIND_NO_REGISTER;
    uint64_t frame = registers->value[NG_REGISTER_FRAME];
    if (frame % 8 || frame < registers->value[NG_REGISTER_STACK] ||
        !ng_memory_read(frame, pair, sizeof(pair)))
        return NG_UNWIND_NO_RULE;
    /* The caller's frame is further up, or there is none. */
    if (pair[0] && pair[0] <= frame)
        return NG_UNWIND_NO_RULE;
    set(registers, NG_REGISTER_FRAME, pair[0]);
    set(registers, NG_REGISTER_STACK, frame + sizeof(pair));
    set(registers, NG_REGISTER_PROGRAM, ng_registers_strip(pair[1]));
    return NG_UNWIND_WHOLE;
}

/* A call through a bad pointer: nothing is mapped there, but the return address is known. */
static bool step_out_of_nowhere(const struct ng_images *images, struct ng_registers *registers)
{
#if defined(__x86_64__)
    uint64_t back, stack = registers->value[NG_REGISTER_STACK];

    if (!ng_memory_read(stack, &back, sizeof(back)) || !ng_images_find(images, back))
        return false;
    set(registers, NG_REGISTER_STACK, stack + sizeof(back));
#else
    uint64_t back = ng_registers_strip(registers->value[NG_REGISTER_RETURN]);

    if (!known(registers, NG_REGISTER_RETURN) || !ng_images_find(images, back))
        return false;
#endif
    set(registers, NG_REGISTER_PROGRAM, back);
    return true;
}

/* At the code that a signal handler returns to, the interrupted registers are on the stack. On
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
    return false;
#endif
}

static enum ng_unwind_end step(struct ng_cfi *cfi, const struct ng_images *images, bool first,
                               struct ng_registers *registers, bool *interrupted)
{
    uint64_t program = registers->value[NG_REGISTER_PROGRAM];
    /* A call may be the last instruction of its function: then the return address is in the next
     * function. */
    uint64_t place = *interrupted ? program : program - 1;
    const struct ng_image *image = ng_images_find(images, place);

    if (step_out_of_signal(registers)) {
        *interrupted = true;
        return NG_UNWIND_WHOLE;
    }
    enum ng_unwind_end end = step_by_rules(cfi, image, place, registers);
    *interrupted = end == NG_UNWIND_WHOLE && cfi->entry.signal_frame;
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
    struct ng_cfi cfi;
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
        *ret_end = step(&cfi, images, count == 1, &now, &interrupted);
        if (*ret_end != NG_UNWIND_WHOLE)
            return count;
        if (program == now.value[NG_REGISTER_PROGRAM] && stack == now.value[NG_REGISTER_STACK]) {
            *ret_end = NG_UNWIND_UNREADABLE;
            return count;
        }
    }
}
