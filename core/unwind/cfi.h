/*
 * Reads what the compiler recorded, for exceptions, about the frame at one place in the code.
 *
 * Call frame information: the DWARF 5 standard, section 6.4, in the form of the Linux Standard Base
 * (.eh_frame, .eh_frame_hdr). Any guard thread; no allocation, no lock. Rules are read through
 * core/util/memory.h and never trusted: every number is bounded, every loop ends.
 */
#ifndef NCCLGUARD_CORE_UNWIND_CFI_H
#define NCCLGUARD_CORE_UNWIND_CFI_H

#include <stdbool.h>
#include <stdint.h>

#include "core/unwind/image.h"
#include "core/unwind/registers.h"
#include "core/util/cursor.h"

#define NG_CFI_CIE_BYTES  1024
#define NG_CFI_FDE_BYTES  4096
#define NG_CFI_STATES_MAX 8 /* remembered states at a time */

#if defined(__x86_64__)
#define NG_CFI_RULES NG_REGISTERS
#else
#define NG_CFI_RULES 32 /* the program counter has no rule of its own */
#endif

enum ng_cfi_how {
    NG_CFI_SAME,
    NG_CFI_UNDEFINED,
    NG_CFI_AT_OFFSET,
    NG_CFI_OFFSET,
    NG_CFI_IN_REGISTER,
    NG_CFI_AT_EXPRESSION,
    NG_CFI_EXPRESSION
};

struct ng_cfi_rule {
    uint8_t how;   /* enum ng_cfi_how */
    int64_t value; /* offset, or register */
    const uint8_t *expression;
    uint32_t bytes;
};

struct ng_cfi_row {
    struct ng_cfi_rule frame; /* of the canonical frame address: NG_CFI_IN_REGISTER plus offset, or
                                 NG_CFI_EXPRESSION */
    int64_t frame_offset;
    struct ng_cfi_rule rule[NG_CFI_RULES];
};

/* Includes the remembered rows: too large for nested stack frames. */
struct ng_cfi_machine {
    struct ng_cfi_row row, first, remembered[NG_CFI_STATES_MAX];
    unsigned remembered_count;
    struct ng_cfi_rule elsewhere; /* vector registers: not needed */
};

/* One function's entry in .eh_frame (FDE) and its common part (CIE). */
struct ng_cfi_entry {
    uint8_t cie_bytes[NG_CFI_CIE_BYTES], fde_bytes[NG_CFI_FDE_BYTES];
    struct ng_cursor common, own; /* the instructions */
    uint64_t start;               /* of the function */
    uint64_t code_align, return_register;
    int64_t data_align;
    uint8_t encoding;
    bool signal_frame, augmented;
};

/* All large state of a look-up: about 10 KiB. Expressions point into `entry`. */
struct ng_cfi {
    struct ng_cfi_entry entry;
    struct ng_cfi_machine machine;
};

/*
 * Find the rules of `image` (NULL: there are none) for the code at `place`. They are in
 * cfi->machine.row; the return address is in register cfi->entry.return_register; the entry also
 * says whether it is a signal frame. False: there are no rules.
 */
bool ng_cfi_find(struct ng_cfi *cfi, const struct ng_image *image, uint64_t place);

#endif
