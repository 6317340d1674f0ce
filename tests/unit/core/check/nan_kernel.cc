/* The loops of the kernel, compiled for the host, on buffers of any length and alignment. */
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "core/util/number.h"
}
#include "core/check/nan_kernel.h"

namespace
{

struct Buffer {
    std::vector<unsigned char> memory;
    size_t begin; /* in bytes, from a place that is a multiple of 64 */
    unsigned shift;
    size_t elements;

    Buffer(size_t begin, unsigned shift, size_t elements)
        : memory(begin + (elements << shift) + 192, 0xff), begin(begin), shift(shift),
          elements(elements)
    {
        memset(at(), 0, elements << shift); /* and what is around it is no number */
    }

    unsigned char *at()
    {
        uintptr_t base = ((uintptr_t)memory.data() + 127) & ~(uintptr_t)63;
        return (unsigned char *)base + begin;
    }

    void put(size_t index, uint64_t bits)
    {
        memcpy(at() + (index << shift), &bits, (size_t)1 << shift);
    }
};

struct Result {
    uint64_t first, bits, bad;
    bool gate;
};

uint64_t lanes(uint64_t value, unsigned shift)
{
    uint64_t all = 0;

    for (unsigned bit = 0; bit < 64; bit += 8u << shift)
        all |= value << bit;
    return all;
}

struct ng_nan_state state;

Result scan(Buffer &buffer, int dtype, uint64_t threads, bool infinities = false)
{
    struct ng_number_type type;
    struct ng_nan_answer answer = {};
    struct ng_nan_scan scan = {};
    static unsigned ticket;

    EXPECT_TRUE(ng_number_type(dtype, infinities, &type));
    EXPECT_EQ(type.shift, buffer.shift);
    uint64_t highest = UINT64_C(1) << ((8u << type.shift) - 1);
    scan.buffer = buffer.at();
    scan.elements = buffer.elements;
    scan.mask = lanes(highest - 1, type.shift);
    scan.addend = lanes(highest - 1 - type.limit, type.shift);
    scan.answer = &answer;
    scan.shift = type.shift;
    scan.ticket = ++ticket;
    /* In any order, as on a device. */
    for (uint64_t thread = threads; thread > 0; thread--)
        ng_nan_scan_part(&scan, &state, thread - 1, threads);
    ng_nan_scan_answer(&scan, &state);
    EXPECT_EQ(answer.ticket, scan.ticket);
    EXPECT_TRUE(!state.key && !state.bad && !state.blocks);
    return {answer.first, answer.bits, answer.bad, answer.gate == scan.ticket};
}

struct Type {
    int dtype;
    unsigned shift;
    uint64_t nan, negative_nan, largest, infinity; /* infinity 0: none */
};

const Type types[] = {
    {6, 1, 0x7c01, 0xfc01, 0x7bff, 0x7c00},
    {7, 2, 0x7f800001, 0xffffffff, 0xff7fffff, 0x7f800000},
    {8, 3, UINT64_C(0x7ff0000000000001), UINT64_C(0xfff8000000000000), UINT64_C(0x7fefffffffffffff),
     UINT64_C(0x7ff0000000000000)},
    {9, 1, 0x7f81, 0xffff, 0xff7f, 0x7f80},
    {10, 0, 0x7f, 0xff, 0xfe, 0},
    {11, 0, 0x7d, 0xff, 0xfb, 0x7c},
};

TEST(NanKernel, FindsTheOnlyNanWhereverItIs)
{
    for (const Type &type : types)
        for (size_t begin = 0; begin < 32; begin += (size_t)1 << type.shift)
            for (size_t elements : {1, 2, 3, 7, 15, 16, 17, 31, 64, 100})
                for (size_t index = 0; index < elements; index++) {
                    Buffer buffer(begin, type.shift, elements);
                    buffer.put(index, index % 2 ? type.nan : type.negative_nan);
                    Result result = scan(buffer, type.dtype, 32);
                    ASSERT_EQ(result.bad, 1u)
                        << type.dtype << " " << begin << " " << elements << " " << index;
                    ASSERT_EQ(result.first, index);
                    ASSERT_EQ(result.bits, index % 2 ? type.nan : type.negative_nan);
                    ASSERT_FALSE(result.gate);
                }
}

TEST(NanKernel, FindsNothingInNumbersOfAllKindsNorAroundTheBuffer)
{
    std::mt19937_64 random(1);

    for (const Type &type : types)
        for (int round = 0; round < 200; round++) {
            Buffer buffer((random() % 32) >> type.shift << type.shift, type.shift, random() % 600);
            for (size_t i = 0; i < buffer.elements; i++)
                buffer.put(i, i % 3 ? type.largest : type.infinity);
            Result result = scan(buffer, type.dtype, 32 << random() % 4);
            ASSERT_EQ(result.bad, 0u);
            ASSERT_TRUE(result.gate);
        }
}

TEST(NanKernel, InfinitiesCountWhereTheyAreAskedFor)
{
    for (const Type &type : types) {
        Buffer buffer(0, type.shift, 300);
        for (size_t i = 0; i < buffer.elements; i++)
            buffer.put(i, type.largest);
        buffer.put(200, type.infinity ? type.infinity : type.largest);
        EXPECT_EQ(scan(buffer, type.dtype, 64, true).bad, type.infinity ? 1u : 0u) << type.dtype;
        EXPECT_EQ(scan(buffer, type.dtype, 64, false).bad, 0u) << type.dtype;
    }
}

TEST(NanKernel, TheFirstOfManyIsToldAndAllAreCounted)
{
    std::mt19937_64 random(2);

    for (const Type &type : types)
        for (int round = 0; round < 300; round++) {
            size_t elements = 1 + random() % 5000, first = elements, bad = 0;
            Buffer buffer((random() % 64) >> type.shift << type.shift, type.shift, elements);
            for (size_t i = 0; i < elements; i++)
                if (random() % 50 == 0) {
                    buffer.put(i, type.nan);
                    bad++;
                    first = first < i ? first : i;
                }
            Result result = scan(buffer, type.dtype, 16 + random() % 500);
            ASSERT_EQ(result.bad, bad);
            ASSERT_EQ(bad ? result.first : elements, first);
        }
}

} // namespace
