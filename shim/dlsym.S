/*
 * dlsym and dlvsym as the program calls them, and the stubs that they return.
 *
 * Entered by any thread at any time, also before constructors, in a replacement of malloc, and from
 * the dynamic linker's own callers. The C library examines the return address of its dlsym
 * (RTLD_NEXT, RTLD_DEFAULT in a namespace), so look-ups that are not ours to answer are jumped to,
 * never called: the caller stays the caller. Uses no stack, no register that a caller could need,
 * and no memory other than what is listed here.
 */

/*
 * The names that may be ours begin with "nc" or "cu"; all others go straight to the dlsym that the
 * caller would have reached without us: the C library's, or that of an interposer behind us.
 *
 * A resolver of indirect functions in a library that is linked before us gets here before this
 * library is linked. No other function can be called then, so the C library answers.
 */

#include "shim/stub.h"

#if defined(__x86_64__)

#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR endbr64
#endif

/* rdi handle, rsi name, rdx version. */
.macro DOOR symbol, next, version
    .globl \symbol
    .type \symbol, %function
    .balign 16
\symbol:
    .cfi_startproc
    _CET_ENDBR
    movq \next(%rip), %rax
    testq %rax, %rax
    jz 4f
1:  testq %rsi, %rsi
    jz 2f
    cmpb $'n', (%rsi)
    je 3f
    cmpb $'c', (%rsi)
    jne 2f
    cmpb $'u', 1(%rsi)
    je 5f
2:  jmp *%rax
3:  cmpb $'c', 1(%rsi)
    jne 2b
    /* May be ours. */
5:  movq (%rsp), %rcx
    KEEP_ARGUMENTS
    .ifeq \version
    xorl %edx, %edx
    .endif
    call ng_door_answer
    movq %rdx, %rcx
    GET_ARGUMENTS
    testq %rcx, %rcx
    jz 6f
    ret
6:  jmp *\next(%rip)
    /* The first look-up. */
4:  KEEP_ARGUMENTS
    leaq linked(%rip), %rax
    cmpq %rax, linked(%rip)
    jne 7f
    call ng_next_find
    GET_ARGUMENTS
    movq \next(%rip), %rax
    jmp 1b
7:  .cfi_adjust_cfa_offset 24
    movl $\version, %edi
    call ng_real_find_unlinked
    GET_ARGUMENTS
    jmp *%rax
    .cfi_endproc
    .size \symbol, . - \symbol
.endm

.macro KEEP_ARGUMENTS
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
.endm

.macro GET_ARGUMENTS
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
.endm

/* A stub, returned to the program for a name and a handle: stores the library's number (from 1) and
 * jumps on. */
.macro STUB wrapper, number
    .balign NG_STUB_SIZE
    _CET_ENDBR
    movq ng_shim_state@gottpoff(%rip), %rax
    movl $\number, %fs:4(%rax)
    jmp \wrapper
.endm

#elif defined(__aarch64__)

/* x0 handle, x1 name, x2 version; x16 and x17 are scratch registers of the jumping code. */
.macro DOOR symbol, next, version
    .globl \symbol
    .type \symbol, %function
    .balign 16
\symbol:
    .cfi_startproc
    hint #34
    adrp x16, \next
    ldr x16, [x16, :lo12:\next]
    cbz x16, 4f
1:  cbz x1, 2f
    ldrb w9, [x1]
    cmp w9, #'n'
    b.eq 3f
    cmp w9, #'c'
    b.ne 2f
    ldrb w9, [x1, #1]
    cmp w9, #'u'
    b.eq 5f
2:  br x16
3:  ldrb w9, [x1, #1]
    cmp w9, #'c'
    b.ne 2b
    /* May be ours. */
5:  KEEP_ARGUMENTS
    .ifeq \version
    mov x2, xzr
    .endif
    mov x3, x30
    bl ng_door_answer
    mov x9, x1
    mov x10, x0
    GET_ARGUMENTS
    cbz x9, 6f
    mov x0, x10
    ret
6:  adrp x16, \next
    ldr x16, [x16, :lo12:\next]
    br x16
    /* The first look-up. */
4:  KEEP_ARGUMENTS
    adrp x9, linked
    add x9, x9, :lo12:linked
    ldr x10, [x9]
    cmp x9, x10
    b.ne 7f
    bl ng_next_find
    GET_ARGUMENTS
    adrp x16, \next
    ldr x16, [x16, :lo12:\next]
    b 1b
7:  .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov w0, #\version
    bl ng_real_find_unlinked
    mov x16, x0
    GET_ARGUMENTS
    br x16
    .cfi_endproc
    .size \symbol, . - \symbol
.endm

.macro KEEP_ARGUMENTS
    stp x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
.endm

.macro GET_ARGUMENTS
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
.endm

.macro STUB wrapper, number
    .balign NG_STUB_SIZE
    hint #34
    adrp x16, :gottprel:ng_shim_state
    ldr x16, [x16, :gottprel_lo12:ng_shim_state]
    mrs x17, tpidr_el0
    mov w9, #\number
    add x16, x16, x17
    str w9, [x16, #4]
    b \wrapper
.endm

#else
#error "shim/dlsym.S knows x86-64 and aarch64"
#endif

    .text
    DOOR dlsym, ng_next_dlsym_address, 0
    DOOR dlvsym, ng_next_dlvsym_address, 1

/* Holds its own address once the dynamic linker has processed this library. */
    .section .data.rel.ro, "aw", %progbits
    .balign 8
linked:
    .quad linked
    .text

/* In order of the table's rows, and in each row of the libraries: ng_stub() relies on it. */
    .hidden ng_stubs
    .globl ng_stubs
    .type ng_stubs, %object
    .balign NG_STUB_SIZE
ng_stubs:
    .cfi_startproc
#define NG_TRACK(name, ...)                                                                        \
    .irp number, 1, 2, 3, 4, 5, 6, 7, 8;                                                           \
    STUB ng_entry_##name, \number;                                                                 \
    .endr;
#define NG_PASS(name, ...) NG_TRACK(name)
#include "shim/nccl_api.def"
    .balign NG_STUB_SIZE
    .cfi_endproc
    .globl ng_stubs_end
    .hidden ng_stubs_end
ng_stubs_end:
    .size ng_stubs, . - ng_stubs

/* No executable stack. */
    .section .note.GNU-stack, "", %progbits
