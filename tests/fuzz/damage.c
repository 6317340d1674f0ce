/*
 * Good bytes, damaged by chance.
 */
#include "tests/fuzz/damage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64

static uint64_t state;
static uint8_t *scratch;
static size_t room;

/* xorshift64*: good enough, and the same everywhere. */
uint64_t damage_any(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    uint64_t number = state * UINT64_C(0x2545f4914f6cdd1d);
    return limit ? number % limit : number;
}

void damage_seed(uint64_t seed, uint64_t input)
{
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (input + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    for (int i = 0; i < 4; i++)
        damage_any(0);
}

/* Somewhere in what the sample holds, rarely anywhere. */
static size_t any_place(const struct damage_sample *sample, size_t count)
{
    if (damage_any(16) == 0)
        return damage_any(count);
    size_t place = sample->blocks[damage_any(sample->block_count)] + damage_any(BLOCK);
    return place < count ? place : damage_any(count);
}

static const char *const words[] = {
    "0",
    "-1",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "1e999",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\\u0000",
    "\"records\"",
    "\"members\"",
    "4294967296",
    "16777216",
};

static void put_number(uint8_t *at, size_t room)
{
    static const uint64_t numbers[] = {0,         1,          0x7f,       0x80,       0xff,
                                       0x7fff,    0xffff,     0x7fffffff, 0x80000000, 0xffffffff,
                                       INT64_MAX, UINT64_MAX, 1u << 24,   4096};
    uint64_t number = numbers[damage_any(sizeof(numbers) / sizeof(numbers[0]))];
    size_t width = (size_t)1 << damage_any(4);

    memcpy(at, &number, width < room ? width : room);
}

/* Texts stay texts if a whole number of theirs becomes another one. The new size. */
static size_t replace_number(uint8_t *bytes, size_t count, size_t place)
{
    const char *word = words[damage_any(sizeof(words) / sizeof(words[0]))];
    size_t length = strlen(word), first, behind;

    while (place < count && (bytes[place] < '0' || bytes[place] > '9'))
        place++;
    for (first = place; first > 0 && bytes[first - 1] >= '0' && bytes[first - 1] <= '9'; first--)
        ;
    for (behind = place; behind < count && bytes[behind] >= '0' && bytes[behind] <= '9'; behind++)
        ;
    if (behind == first)
        return count;
    memmove(bytes + first + length, bytes + behind, count - behind);
    memcpy(bytes + first, word, length);
    return count - (behind - first) + length;
}

/* One place of damage; the new size. */
static size_t damage_once(const struct damage_sample *samples, size_t sample_count,
                          const struct damage_sample *sample, uint8_t *bytes, size_t count)
{
    static const char opcodes[] = "(.012FIJKLMNPQRSTUVXabcd}eghijl]opqrst)uG\x80\x81\x85\x86\x87"
                                  "\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x93\x94\x95\x96";
    size_t place = any_place(sample, count),
           length = 1 + damage_any(damage_any(8) ? 16 : DAMAGE_GROWTH_MAX);

    switch (damage_any(11)) {
    case 0:
        bytes[place] ^= (uint8_t)(1 << damage_any(8));
        return count;
    case 1:
        bytes[place] = (uint8_t)damage_any(256);
        return count;
    case 2:
        put_number(bytes + place, count - place);
        return count;
    case 3:
        bytes[place] = (uint8_t)opcodes[damage_any(sizeof(opcodes) - 1)];
        return count;
    case 4: { /* something twice */
        length = length < count - place ? length : count - place;
        memmove(bytes + place + length, bytes + place, count - place);
        return count + length;
    }
    case 5: /* something not at all */
        length = length < count - place ? length : count - place;
        memmove(bytes + place, bytes + place + length, count - place - length);
        return count - length;
    case 6: /* cut off */
        return damage_any(4) ? count : place;
    case 7: { /* a part of another file */
        const struct damage_sample *other = &samples[damage_any(sample_count)];
        size_t from = any_place(other, other->count);
        length = length < count - place ? length : count - place;
        length = length < other->count - from ? length : other->count - from;
        memcpy(bytes + place, other->bytes + from, length);
        return count;
    }
    case 8:
    case 9:
        return replace_number(bytes, count, place);
    default: {
        const char *word = words[damage_any(sizeof(words) / sizeof(words[0]))];
        length = strlen(word) < count - place ? strlen(word) : count - place;
        memcpy(bytes + place, word, length);
        return count;
    }
    }
}

struct damage_sample damage_sample_make(const char *name, uint8_t *bytes, size_t count)
{
    struct damage_sample sample = {.bytes = bytes, .count = count};

    sample.blocks = malloc((count / BLOCK + 1) * sizeof(*sample.blocks));
    if (!bytes || !sample.blocks || count == 0) {
        fprintf(stderr, "%s: no sample\n", name);
        exit(1);
    }
    for (size_t at = 0; at < count; at += BLOCK)
        for (size_t i = at; i < at + BLOCK && i < count; i++)
            if (bytes[i]) {
                sample.blocks[sample.block_count++] = at;
                break;
            }
    if (sample.block_count == 0)
        sample.blocks[sample.block_count++] = 0;
    snprintf(sample.name, sizeof(sample.name), "%s", name);
    return sample;
}

void damage_sample_free(struct damage_sample *sample)
{
    free(sample->bytes);
    free(sample->blocks);
}

const uint8_t *damage_do(const struct damage_sample *samples, size_t sample_count, size_t index,
                         size_t *ret_count)
{
    const struct damage_sample *sample = &samples[index];
    size_t count = sample->count;

    if (count + DAMAGE_GROWTH_MAX * 9 > room) {
        room = count + DAMAGE_GROWTH_MAX * 9;
        scratch = realloc(scratch, room);
        if (!scratch)
            exit(1);
    }
    memcpy(scratch, sample->bytes, count);
    for (uint64_t times = 1 + damage_any(damage_any(2) ? 2 : 8); times > 0 && count > 0; times--)
        count = damage_once(samples, sample_count, sample, scratch, count);
    *ret_count = count;
    return scratch;
}

void damage_end(void)
{
    free(scratch);
    scratch = NULL;
    room = 0;
}
