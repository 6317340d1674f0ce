/*
 * Walks up a thread's stack, from its registers, by the compiler's exception tables.
 *
 * The thread is another one of this process, and is stopped. Rules come from the .eh_frame of the
 * image that contains the code; without one, frame pointers are used. Everything is read through
 * core/util/memory.h, so that a damaged stack only ends the walk. No allocation, no lock; about 10
 * KiB of stack.
 */
#ifndef NCCLGUARD_CORE_UNWIND_UNWIND_H
#define NCCLGUARD_CORE_UNWIND_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/unwind/image.h"
#include "core/unwind/registers.h"

struct ng_frame {
    uint64_t address; /* where the thread is, or, in outer frames, where it will return to */
    bool interrupted; /* it was interrupted at the address, not in the call before it */
};

enum ng_unwind_end {
    NG_UNWIND_WHOLE,       /* up to the function that the thread began with */
    NG_UNWIND_NO_ROOM,     /* there are more frames than room */
    NG_UNWIND_NO_RULE,     /* no rule for the next step */
    NG_UNWIND_UNREADABLE,  /* a damaged stack, or a wrong rule */
    NG_UNWIND_NO_REGISTER, /* a register that is needed is not known */
};

/* The frames of a stack, innermost first. Returns their number, and why the walk ended. */
uint32_t ng_unwind(const struct ng_images *images, const struct ng_registers *registers,
                   struct ng_frame *ret_frames, uint32_t room, enum ng_unwind_end *ret_end);

#endif
