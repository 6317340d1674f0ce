/*
 * NCCL's floating types: which bit patterns are NaN.
 *
 * Pure data; any thread.
 */
#ifndef NCCLGUARD_CORE_UTIL_NUMBER_H
#define NCCLGUARD_CORE_UTIL_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value is bad if its bits, without the sign, are greater than `limit`. */
struct ng_number_type {
    unsigned shift; /* it has 1 << shift bytes */
    uint64_t limit;
};

/* Look up an ncclDataType_t; `with_infinity`: infinities are bad, too. False: not a floating
 * type. */
bool ng_number_type(int dtype, bool with_infinity, struct ng_number_type *ret_type);

/* "NaN (0x7fc0)", "-Inf (0xff80)" */
void ng_number_text(int dtype, uint64_t bits, char *ret_text, size_t bytes);

#endif
