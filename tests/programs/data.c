/* Data of the test programs: generate, reduce, compare. */
#include "tests/programs/data.h"

#include <math.h>
#include <string.h>

enum class { CLASS_SIGNED, CLASS_UNSIGNED, CLASS_FLOAT };

struct type {
    size_t size;
    enum class class;
    int exponent_bits, mantissa_bits;
    bool finite_only; /* e4m3 has no infinity: its top exponent holds ordinary numbers */
};

static struct type type_of(ncclDataType_t dtype)
{
    static const struct type types[] = {
        [ncclInt8] = {1, CLASS_SIGNED, 0, 0, false},
        [ncclUint8] = {1, CLASS_UNSIGNED, 0, 0, false},
        [ncclInt32] = {4, CLASS_SIGNED, 0, 0, false},
        [ncclUint32] = {4, CLASS_UNSIGNED, 0, 0, false},
        [ncclInt64] = {8, CLASS_SIGNED, 0, 0, false},
        [ncclUint64] = {8, CLASS_UNSIGNED, 0, 0, false},
        [ncclFloat16] = {2, CLASS_FLOAT, 5, 10, false},
        [ncclFloat32] = {4, CLASS_FLOAT, 8, 23, false},
        [ncclFloat64] = {8, CLASS_FLOAT, 11, 52, false},
        [ncclBfloat16] = {2, CLASS_FLOAT, 8, 7, false},
        [10] = {1, CLASS_FLOAT, 4, 3, true},  /* ncclFloat8e4m3, which older headers lack */
        [11] = {1, CLASS_FLOAT, 5, 2, false}, /* ncclFloat8e5m2 */
    };
    bool known = (unsigned)dtype < sizeof(types) / sizeof(types[0]);
    return types[known ? dtype : ncclFloat32];
}

size_t data_size(ncclDataType_t dtype)
{
    return type_of(dtype).size;
}

/* The bits of a small whole number that is not negative. */
static uint64_t encode(struct type type, unsigned value)
{
    if (type.class != CLASS_FLOAT)
        return value;
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp(value, &exponent); /* in [0.5, 1) */
    int bias = (1 << (type.exponent_bits - 1)) - 1;
    uint64_t mantissa = (uint64_t)ldexp(fraction * 2 - 1, type.mantissa_bits);
    return (uint64_t)(exponent - 1 + bias) << type.mantissa_bits | mantissa;
}

static double decode(struct type type, uint64_t bits)
{
    if (type.class == CLASS_UNSIGNED)
        return (double)bits;
    if (type.class == CLASS_SIGNED) {
        unsigned shift = (unsigned)(64 - 8 * type.size);
        return (double)((int64_t)(bits << shift) >> shift);
    }
    int bias = (1 << (type.exponent_bits - 1)) - 1;
    int top = (1 << type.exponent_bits) - 1;
    bool negative = bits >> (type.exponent_bits + type.mantissa_bits) & 1;
    int exponent = (int)(bits >> type.mantissa_bits) & top;
    uint64_t mantissa = bits & ((1ULL << type.mantissa_bits) - 1);
    double value;
    if (exponent == top && (!type.finite_only || mantissa == (1ULL << type.mantissa_bits) - 1))
        value = mantissa ? NAN : HUGE_VAL;
    else if (exponent == 0)
        value = ldexp((double)mantissa, 1 - bias - type.mantissa_bits);
    else
        value = ldexp((double)(mantissa | 1ULL << type.mantissa_bits),
                      exponent - bias - type.mantissa_bits);
    return negative ? -value : value;
}

/* How many different values there are, starting at *ret_first: products stay powers of two,
 * and sums of eight ranks stay exact in 8-bit floats. */
static unsigned variety(const struct stream_of_values *values, unsigned *ret_first)
{
    struct type type = type_of(values->dtype);
    *ret_first = values->redop == ncclProd;
    if (values->redop == ncclProd || (type.class == CLASS_FLOAT && type.size == 1))
        return 2;
    return 4;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

static uint64_t start(const struct stream_of_values *values, int rank)
{
    return mix(values->seed + mix(values->tag + mix((uint64_t)rank + 0x9e3779b97f4a7c15ULL)));
}

static unsigned draw(uint64_t start, size_t index)
{
    return (unsigned)(mix(start + index * 0x9e3779b97f4a7c15ULL) >> 32);
}

double data_value(const struct stream_of_values *values, int rank, size_t index)
{
    unsigned first;
    unsigned n = variety(values, &first);
    return first + draw(start(values, rank), index) % n;
}

void data_fill(void *buffer, const struct stream_of_values *values, int rank, size_t count)
{
    struct type type = type_of(values->dtype);
    unsigned first;
    unsigned n = variety(values, &first);
    uint64_t from = start(values, rank);
    uint64_t patterns[4] = {0};
    for (unsigned i = 0; i < n; i++)
        patterns[i] = encode(type, first + i);
    unsigned char *at = buffer;
    /* Little-endian, as every host of a GPU is. */
    for (size_t i = 0; i < count; i++, at += type.size)
        memcpy(at, &patterns[draw(from, i) % n], type.size);
}

double data_read(const void *buffer, ncclDataType_t dtype, size_t index)
{
    struct type type = type_of(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)buffer + index * type.size, type.size);
    return decode(type, bits);
}

bool data_equal(double got, double expected, ncclDataType_t dtype, bool reduced, ncclRedOp_t redop)
{
    if (got == expected)
        return true;
    struct type type = type_of(dtype);
    if (!reduced || type.class != CLASS_FLOAT || (redop != ncclAvg && type.size > 1))
        return false;
    /* An average may be rounded before or after the sum; an 8-bit float at every step. */
    return fabs(got - expected) <= ldexp(fabs(expected), 2 - type.mantissa_bits);
}

double data_reduce(const struct stream_of_values *values, int nranks, size_t index)
{
    struct type type = type_of(values->dtype);
    double result = data_value(values, 0, index);
    for (int rank = 1; rank < nranks; rank++) {
        double value = data_value(values, rank, index);
        switch ((int)values->redop) {
        case ncclProd:
            result *= value;
            break;
        case ncclMax:
            result = fmax(result, value);
            break;
        case ncclMin:
            result = fmin(result, value);
            break;
        default:
            result += value;
        }
    }
    if (values->redop == ncclAvg) {
        result /= nranks;
        if (type.class != CLASS_FLOAT)
            result = trunc(result);
    }
    if (type.class != CLASS_FLOAT && type.size == 1 && (result > 127 || result < -128)) {
        /* A product of many ranks wraps in 8 bits. */
        result = fmod(result, 256);
        if (type.class == CLASS_SIGNED && result > 127)
            result -= 256;
    }
    return result;
}

uint64_t data_checksum(uint64_t checksum, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        checksum = mix(checksum ^ word) + 0x9e3779b97f4a7c15ULL;
    }
    uint64_t word = size;
    for (size_t i = 0; i < size; i++)
        word = word << 8 | at[i];
    return mix(checksum ^ word) + 0x9e3779b97f4a7c15ULL;
}
