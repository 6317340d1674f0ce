/*
 * Names the place in the program that made a call, for a log line.
 *
 * For findings only: reads the list of mappings and the symbols in memory, which takes
 * milliseconds. Any thread; no malloc, no lock of the dynamic linker.
 */
#ifndef NCCLGUARD_CORE_UNWIND_CALL_SITE_H
#define NCCLGUARD_CORE_UNWIND_CALL_SITE_H

#include <stdint.h>

#define NG_CALL_SITE_BYTES 256

/*
 * The return address into the innermost function of the calling thread's stack that does not belong
 * to the guard, NCCL or CUDA; `caller` if the stack cannot be walked that far.
 */
uintptr_t ng_call_site_find(const void *caller);

/* "train_step+0x1c (trainer)", "0x4f2c in libmodel.so"; in ret_text, which is returned. */
const char *ng_call_site_name(uintptr_t address, char ret_text[NG_CALL_SITE_BYTES]);

#endif
