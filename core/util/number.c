/*
 * Properties of floating types, and their numbers as text.
 *
 * For core/check/nan.c and for reports. Pure: any thread, no state.
 */
#include "core/util/number.h"

#include <inttypes.h>
#include <stdio.h>

/* Magnitude of infinity, by ncclDataType_t; float8e4m3 has none, and its only NaN is all ones. */
static const struct {
    unsigned shift;
    uint64_t infinity, largest; /* largest: greatest magnitude that is not NaN */
} types[] = {
    [6] = {1, 0x7c00, 0x7c00},                         /* float16 */
    [7] = {2, 0x7f800000, 0x7f800000},                 /* float32 */
    [8] = {3, 0x7ff0000000000000, 0x7ff0000000000000}, /* float64 */
    [9] = {1, 0x7f80, 0x7f80},                         /* bfloat16 */
    [10] = {0, 0, 0x7e},                               /* float8e4m3 */
    [11] = {0, 0x7c, 0x7c},                            /* float8e5m2 */
};

bool ng_number_type(int dtype, bool with_infinity, struct ng_number_type *ret_type)
{
    if (dtype < 0 || dtype >= (int)(sizeof(types) / sizeof(types[0])) || !types[dtype].largest)
        return false;
    ret_type->shift = types[dtype].shift;
    ret_type->limit = types[dtype].largest - (with_infinity && types[dtype].infinity);
    return true;
}

void ng_number_text(int dtype, uint64_t bits, char *ret_text, size_t bytes)
{
    struct ng_number_type type;

    if (!ng_number_type(dtype, false, &type)) {
        snprintf(ret_text, bytes, "0x%" PRIx64, bits);
        return;
    }
    int width = 8 << type.shift;
    uint64_t sign = UINT64_C(1) << (width - 1), magnitude = bits & (sign - 1);
    const char *name = magnitude > type.limit                                        ? "NaN"
                       : types[dtype].infinity && magnitude == types[dtype].infinity ? "Inf"
                                                                                     : "a number";
    snprintf(ret_text, bytes, "%s%s (0x%0*" PRIx64 ")", bits & sign && name[0] == 'I' ? "-" : "",
             name, width / 4, bits);
}
