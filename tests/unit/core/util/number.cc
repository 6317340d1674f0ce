/* Which bits of which type are no numbers, against what the host's compiler and the formats'
 * definitions say. */
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

extern "C" {
#include "core/util/number.h"
}

namespace
{

enum { FLOAT16 = 6, FLOAT32 = 7, FLOAT64 = 8, BFLOAT16 = 9, FLOAT8E4M3 = 10, FLOAT8E5M2 = 11 };

enum What { NUMBER, INFINITE, NONE };

/* By the definition of such a format: sign, exponent, mantissa. */
What what_is(uint64_t bits, int exponent_bits, int mantissa_bits, bool finite)
{
    uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1),
             ones = (UINT64_C(1) << exponent_bits) - 1;

    if ((bits >> mantissa_bits & ones) != ones)
        return NUMBER;
    if (finite)
        return mantissa == (UINT64_C(1) << mantissa_bits) - 1 ? NONE : NUMBER;
    return mantissa ? NONE : INFINITE;
}

What by_rule(int dtype, uint64_t bits, int width)
{
    struct ng_number_type strict, plain;

    EXPECT_TRUE(ng_number_type(dtype, true, &strict));
    EXPECT_TRUE(ng_number_type(dtype, false, &plain));
    EXPECT_EQ(8u << plain.shift, (unsigned)width);
    EXPECT_EQ(8u << strict.shift, (unsigned)width);
    uint64_t magnitude = bits & ~(UINT64_C(1) << (width - 1));
    return magnitude > plain.limit ? NONE : magnitude > strict.limit ? INFINITE : NUMBER;
}

TEST(Number, EveryPatternOf16And8BitsIsWhatItsFormatSays)
{
    for (uint64_t bits = 0; bits < 0x10000; bits++) {
        ASSERT_EQ(by_rule(FLOAT16, bits, 16), what_is(bits, 5, 10, false)) << bits;
        ASSERT_EQ(by_rule(BFLOAT16, bits, 16), what_is(bits, 8, 7, false)) << bits;
    }
    for (uint64_t bits = 0; bits < 0x100; bits++) {
        ASSERT_EQ(by_rule(FLOAT8E4M3, bits, 8), what_is(bits, 4, 3, true)) << bits;
        ASSERT_EQ(by_rule(FLOAT8E5M2, bits, 8), what_is(bits, 5, 2, false)) << bits;
    }
}

TEST(Number, PatternsOf32And64BitsAreWhatTheCompilerSays)
{
    uint64_t state = 1;

    for (int i = 0; i < 200000; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        /* Half of them with an exponent of ones. */
        uint32_t few = (uint32_t)(state >> 32) | (i % 2 ? 0x7f800000u : 0);
        uint64_t many = state | (i % 2 ? UINT64_C(0x7ff0000000000000) : 0);
        if (i % 16 == 1) {
            few &= 0xff800000u;
            many &= UINT64_C(0xfff0000000000000);
        }
        float single;
        double twice;
        memcpy(&single, &few, 4);
        memcpy(&twice, &many, 8);
        ASSERT_EQ(by_rule(FLOAT32, few, 32), std::isnan(single)   ? NONE
                                             : std::isinf(single) ? INFINITE
                                                                  : NUMBER)
            << few;
        ASSERT_EQ(by_rule(FLOAT64, many, 64), std::isnan(twice)   ? NONE
                                              : std::isinf(twice) ? INFINITE
                                                                  : NUMBER)
            << many;
    }
}

TEST(Number, IntegersAndUnknownTypesAreNoFloatingTypes)
{
    struct ng_number_type type;

    for (int dtype : {-1, 0, 1, 2, 3, 4, 5, 12, 1000})
        EXPECT_FALSE(ng_number_type(dtype, false, &type)) << dtype;
}

TEST(Number, TextSaysWhatItIsAndItsBits)
{
    auto text = [](int dtype, uint64_t bits) {
        char text[64];
        ng_number_text(dtype, bits, text, sizeof(text));
        return std::string(text);
    };
    EXPECT_EQ(text(BFLOAT16, 0x7fc0), "NaN (0x7fc0)");
    EXPECT_EQ(text(BFLOAT16, 0xff80), "-Inf (0xff80)");
    EXPECT_EQ(text(FLOAT8E4M3, 0xff), "NaN (0xff)");
    EXPECT_EQ(text(FLOAT8E4M3, 0x78), "a number (0x78)");
    EXPECT_EQ(text(FLOAT64, UINT64_C(0x7ff0000000000000)), "Inf (0x7ff0000000000000)");
    EXPECT_EQ(text(FLOAT32, 0), "a number (0x00000000)");
    EXPECT_EQ(text(2, 0x12), "0x12");
}

} // namespace
