/*
 * Line tables of CPython's code objects, 3.11 and later.
 *
 * Format: Objects/locations.md of CPython. Entries have one to many bytes, of which only the first
 * has its highest bit set; each entry gives the line delta for up to 8 code units. Pure.
 */
#ifndef NCCLGUARD_CORE_UNWIND_PYTHON_LINES_H
#define NCCLGUARD_CORE_UNWIND_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

/*
 * The line, from 1, of the instruction at `offset` in the code's bytes. `table` may be truncated or
 * damaged. 0: not in these bytes, or the instruction has no line.
 */
int32_t ng_python_line(const uint8_t *table, size_t bytes, int32_t first_line, uint32_t offset);

#endif
