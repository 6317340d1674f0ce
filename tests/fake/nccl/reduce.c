/* Arithmetic of the collectives: every type of nccl.h, every operator, element by element. Integers
 * wrap, small floats are computed in float and rounded to nearest even after each step, 8-bit
 * floats saturate to the largest finite value. */
#include "tests/fake/nccl/fake.h"

#include <math.h>
#include <string.h>

/* Buffers of the program may be aligned to less than their type. */
#define UNALIGNED __attribute__((aligned(1), may_alias))
typedef int8_t ua_i8 UNALIGNED;
typedef uint8_t ua_u8 UNALIGNED;
typedef int32_t ua_i32 UNALIGNED;
typedef uint32_t ua_u32 UNALIGNED;
typedef int64_t ua_i64 UNALIGNED;
typedef uint64_t ua_u64 UNALIGNED;
typedef uint16_t ua_u16 UNALIGNED;
typedef float ua_f32 UNALIGNED;
typedef double ua_f64 UNALIGNED;

static uint32_t float_bits(float f)
{
    uint32_t x;
    memcpy(&x, &f, sizeof(x));
    return x;
}

static float bits_float(uint32_t x)
{
    float f;
    memcpy(&f, &x, sizeof(f));
    return f;
}

static float half_decode(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    float f;
    if (exponent == 31)
        return bits_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
}

static uint16_t half_encode(float f)
{
    uint32_t x = float_bits(f), a = x & 0x7fffffff, q, rest, half;
    uint16_t sign = (uint16_t)((x >> 16) & 0x8000);
    if (a > 0x7f800000)
        return 0x7fff;
    if (a >= 0x47800000)
        return sign | 0x7c00;
    if (a < 0x38800000) {
        unsigned int shift = 126 - (a >> 23);
        if (a < 0x33000000)
            return sign;
        a = (a & 0x7fffff) | 0x800000;
        q = a >> shift;
        rest = a & ((1u << shift) - 1);
        half = 1u << (shift - 1);
    } else {
        a -= 0x38000000;
        q = a >> 13;
        rest = a & 0x1fff;
        half = 0x1000;
    }
    if (rest > half || (rest == half && (q & 1)))
        q++;
    return (uint16_t)(sign | q);
}

static float bfloat_decode(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}

static uint16_t bfloat_encode(float f)
{
    uint32_t x = float_bits(f);
    if ((x & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    x += 0x7fff + ((x >> 16) & 1);
    return (uint16_t)(x >> 16);
}

static uint8_t small_encode(float f, int mantissa_bits, int bias, uint8_t max_code, float max_value)
{
    uint8_t sign = (uint8_t)(float_bits(f) >> 31 << 7);
    float a = fabsf(f), q;
    int exponent;
    if (isnan(f))
        return sign | 0x7f;
    if (a >= max_value)
        return sign | max_code;
    if (a == 0)
        return sign;
    exponent = ilogbf(a);
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    q = rintf(ldexpf(a, mantissa_bits - exponent));
    if (q < (float)(1 << mantissa_bits))
        return sign | (uint8_t)q;
    if (q >= (float)(2 << mantissa_bits)) {
        q /= 2;
        exponent++;
    }
    return (uint8_t)(sign | (uint32_t)(exponent + bias) << mantissa_bits |
                     ((uint32_t)q - (1u << mantissa_bits)));
}

static float small_decode(uint8_t code, int mantissa_bits, int bias)
{
    int exponent = (code & 0x7f) >> mantissa_bits;
    int mantissa = code & ((1 << mantissa_bits) - 1);
    float f;
    if (exponent)
        f = ldexpf((float)(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
    else
        f = ldexpf((float)mantissa, 1 - bias - mantissa_bits);
    return code & 0x80 ? -f : f;
}

static float e4m3_decode(uint8_t code)
{
    return (code & 0x7f) == 0x7f ? NAN : small_decode(code, 3, 7);
}
static uint8_t e4m3_encode(float f)
{
    return small_encode(f, 3, 7, 0x7e, 448.0f);
}
static float e5m2_decode(uint8_t code)
{
    if ((code & 0x7f) > 0x7c)
        return NAN;
    if ((code & 0x7f) == 0x7c)
        return code & 0x80 ? -INFINITY : INFINITY;
    return small_decode(code, 2, 15);
}
static uint8_t e5m2_encode(float f)
{
    return small_encode(f, 2, 15, 0x7b, 57344.0f);
}

#define SAME(x) (x)

/* name, element as stored, type to compute sums in, type to compare in, decode, encode */
#define TYPES(X)                                                                                   \
    X(int8, ua_i8, uint32_t, int32_t, SAME, SAME)                                                  \
    X(uint8, ua_u8, uint32_t, uint32_t, SAME, SAME)                                                \
    X(int32, ua_i32, uint32_t, int32_t, SAME, SAME)                                                \
    X(uint32, ua_u32, uint32_t, uint32_t, SAME, SAME)                                              \
    X(int64, ua_i64, uint64_t, int64_t, SAME, SAME)                                                \
    X(uint64, ua_u64, uint64_t, uint64_t, SAME, SAME)                                              \
    X(half, ua_u16, float, float, half_decode, half_encode)                                        \
    X(float, ua_f32, float, float, SAME, SAME)                                                     \
    X(double, ua_f64, double, double, SAME, SAME)                                                  \
    X(bfloat, ua_u16, float, float, bfloat_decode, bfloat_encode)                                  \
    X(e4m3, ua_u8, float, float, e4m3_decode, e4m3_encode)                                         \
    X(e5m2, ua_u8, float, float, e5m2_decode, e5m2_encode)

#define LOOP(name, suffix, stored, expression)                                                     \
    static void name##_##suffix(void *out, const void *a, const void *b, size_t count)             \
    {                                                                                              \
        stored *o = out;                                                                           \
        const stored *x = a, *y = b;                                                               \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = (stored)(expression);                                                           \
    }

#define DEFINE(name, stored, sum_type, cmp_type, decode, encode)                                   \
    LOOP(name, sum, stored, encode((sum_type)decode(x[i]) + (sum_type)decode(y[i])))               \
    LOOP(name, prod, stored, encode((sum_type)decode(x[i]) * (sum_type)decode(y[i])))              \
    LOOP(name, max, stored, (cmp_type)decode(x[i]) > (cmp_type)decode(y[i]) ? x[i] : y[i])         \
    LOOP(name, min, stored, (cmp_type)decode(x[i]) < (cmp_type)decode(y[i]) ? x[i] : y[i])         \
    static void name##_scale(void *out, const void *in, const void *scalar, size_t count)          \
    {                                                                                              \
        stored *o = out, s;                                                                        \
        const stored *x = in;                                                                      \
        memcpy(&s, scalar, sizeof(s));                                                             \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = (stored)(encode((sum_type)decode(x[i]) * (sum_type)decode(s)));                 \
    }                                                                                              \
    static void name##_divide(void *out, const void *in, int divisor, size_t count)                \
    {                                                                                              \
        stored *o = out;                                                                           \
        const stored *x = in;                                                                      \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = (stored)(encode((cmp_type)decode(x[i]) / (cmp_type)divisor));                   \
    }                                                                                              \
    static void name##_inverse(int divisor, void *ret_scalar)                                      \
    {                                                                                              \
        stored s = (stored)(encode((cmp_type)1 / (cmp_type)divisor));                              \
        memcpy(ret_scalar, &s, sizeof(s));                                                         \
    }

TYPES(DEFINE)

#define ROW(name, stored, sum_type, cmp_type, decode, encode)                                      \
    {sizeof(stored),                                                                               \
     {name##_sum, name##_prod, name##_max, name##_min},                                            \
     name##_scale,                                                                                 \
     name##_divide,                                                                                \
     name##_inverse},

static const struct {
    size_t bytes;
    void (*reduce[FAKE_NREDUCE])(void *, const void *, const void *, size_t);
    void (*scale)(void *, const void *, const void *, size_t);
    void (*divide)(void *, const void *, int, size_t);
    void (*inverse)(int, void *);
} types[] = {TYPES(ROW)};

_Static_assert(sizeof(types) / sizeof(types[0]) == ncclNumTypes, "a row for every type of nccl.h");

size_t fake_type_bytes(ncclDataType_t type)
{
    return types[type].bytes;
}

bool fake_type_is_float(ncclDataType_t type)
{
    return type >= ncclFloat16;
}

void fake_reduce(ncclDataType_t type, enum fake_reduce op, void *out, const void *a, const void *b,
                 size_t count)
{
    types[type].reduce[op](out, a, b, count);
}

void fake_scale(ncclDataType_t type, void *out, const void *in, const void *scalar, size_t count)
{
    types[type].scale(out, in, scalar, count);
}

void fake_divide(ncclDataType_t type, void *out, const void *in, int divisor, size_t count)
{
    types[type].divide(out, in, divisor, count);
}

void fake_scalar_inverse(ncclDataType_t type, int divisor, void *ret_scalar)
{
    types[type].inverse(divisor, ret_scalar);
}
