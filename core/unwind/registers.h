/*
 * The registers of a thread that a walk up its stack needs.
 */
#ifndef NCCLGUARD_CORE_UNWIND_REGISTERS_H
#define NCCLGUARD_CORE_UNWIND_REGISTERS_H

#include <stdint.h>

/* Registers by their DWARF numbers; the program counter is stored after them. */
#if defined(__x86_64__)
#define NG_REGISTER_FRAME   6
#define NG_REGISTER_STACK   7
#define NG_REGISTER_RETURN  16 /* where the rules put the return address */
#define NG_REGISTER_PROGRAM 16
#define NG_REGISTERS        17
#elif defined(__aarch64__)
#define NG_REGISTER_FRAME   29
#define NG_REGISTER_STACK   31
#define NG_REGISTER_RETURN  30
#define NG_REGISTER_PROGRAM 32
#define NG_REGISTERS        33
#else
#error "stacks are walked on x86-64 and aarch64"
#endif

struct ng_registers {
    uint64_t value[NG_REGISTERS];
    uint64_t known; /* one bit each */
};

/* Pointer authentication puts a signature into bits that program addresses do not use. */
static inline uint64_t ng_registers_strip(uint64_t address)
{
#if defined(__aarch64__)
    return address & ((UINT64_C(1) << 48) - 1);
#else
    return address;
#endif
}

#endif
