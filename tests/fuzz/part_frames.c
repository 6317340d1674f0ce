/*
 * Call frame information and a stack: the walks of core/unwind/unwind.h and
 * core/unwind/fast_unwind.h.
 *
 * A sample is an .eh_frame_hdr with one entry, the two entries of .eh_frame that it refers to, and
 * then the words of a stack. Samples come from the files of this process, so they differ between
 * machines. All addresses in a sample are relative to it.
 */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/unwind/cfi.h"
#include "core/unwind/fast_unwind.h"
#include "core/unwind/unwind.h"
#include "tests/fuzz/parts.h"

#define COMMON_AT   24u
#define STACK_WORDS 64u
#define CODE_AT     (1u << 20) /* where the function is, from the header */
#define FRAMES      24u
#define ENTRY_MAX   600u
#define EVERY       37u /* of a file's functions: so that all files come to have some */

struct taking {
    struct damage_sample *samples;
    size_t count;
};

static uint32_t word_at(const uint8_t *at)
{
    uint32_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

static void put(uint8_t *at, uint32_t word)
{
    memcpy(at, &word, sizeof(word));
}

/* One function's. */
static void take_function(struct taking *taking, const uint8_t *entry)
{
    uint32_t length = word_at(entry) + 4;
    const uint8_t *common = entry + 4 - word_at(entry + 4);
    uint32_t common_length = word_at(common) + 4;
    size_t count = COMMON_AT + common_length + length + STACK_WORDS * 8;
    char name[32];

    if (length < 20 || length > ENTRY_MAX || common_length > ENTRY_MAX ||
        taking->count == PART_SAMPLES_MAX)
        return;
    uint8_t *bytes = calloc(1, count);
    if (!bytes)
        exit(1);
    uint8_t *own = bytes + COMMON_AT + common_length;
    memcpy(bytes, "\x01\x1b\x03\x3b", 4);
    put(bytes + 4, COMMON_AT - 4);
    put(bytes + 8, 1);
    put(bytes + 12, CODE_AT);
    put(bytes + 16, (uint32_t)(own - bytes));
    memcpy(bytes + COMMON_AT, common, common_length);
    memcpy(own, entry, length);
    put(own + 4, (uint32_t)(own + 4 - (bytes + COMMON_AT)));
    put(own + 8, CODE_AT - (uint32_t)(own + 8 - bytes));
    /* What looks like a stack: offsets into it, and into the code. */
    for (uint32_t i = 0; i < STACK_WORDS; i++)
        put(own + length + i * 8, i % 3 ? CODE_AT + i : i * 8 + 16);
    snprintf(name, sizeof(name), "function %zu", taking->count);
    taking->samples[taking->count++] = damage_sample_make(name, bytes, count);
}

static int take_file(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct taking *taking = context;
    size_t most = taking->count + PART_SAMPLES_MAX / 4;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_GNU_EH_FRAME)
            continue;
        const uint8_t *header = (const uint8_t *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        if (memcmp(header, "\x01\x1b\x03\x3b", 4) != 0)
            continue;
        uint32_t count = word_at(header + 8);
        for (uint32_t k = 0; k < count && taking->count < most; k += 1 + k / EVERY)
            take_function(taking, header + (int32_t)word_at(header + 12 + 8 * k + 4));
    }
    return 0;
}

static size_t make_frames(struct damage_sample samples[PART_SAMPLES_MAX])
{
    struct taking taking = {samples, 0};

    dl_iterate_phdr(take_file, &taking);
    part_promise(taking.count > 0, "no file of this process has rules");
    return taking.count;
}

/* By the table of rules, as a program's thread does. */
static void walk(const struct ng_images *images, uint64_t place, uint64_t stack, uint64_t end)
{
    static struct ng_fast_unwind_table table;
    struct ng_fast_unwind_memory memory = {.until = end};
    struct ng_fast_unwind_position at = {.place = place, .stack = stack, .pointer = stack + 64};
    uint64_t addresses[FRAMES];
    uint32_t count = 0;

    memset(&table, 0, sizeof(table));
    for (uint64_t k = 0; k < 40; k++) {
        struct ng_fast_unwind_rule rule = ng_fast_unwind_rule_make(images, place + k);
        ng_fast_unwind_table_add(&table, place + k, &rule);
    }
    ng_fast_unwind_up(&table, &memory, &at, addresses, FRAMES, &count);
    part_promise(count <= FRAMES, "more frames than there is room for");
}

static bool take_frames(const uint8_t *bytes, size_t count)
{
    static struct ng_cfi cfi;
    uint64_t header = (uintptr_t)bytes, code = header + CODE_AT;
    size_t stack_at = count > STACK_WORDS * 8 ? (count - STACK_WORDS * 8) & ~(size_t)7 : 0;
    uint64_t words[STACK_WORDS + 1] = {0};
    struct ng_image image = {.start = code, .end = code + (1 << 16), .eh_frame_header = header};
    struct ng_images images = {.images = &image, .count = 1, .room = 1, .complete = true};
    struct ng_registers registers = {.known = (UINT64_C(1) << NG_REGISTERS) - 1};
    struct ng_frame frames[FRAMES];
    enum ng_unwind_end end;
    bool found = false;

    /* The stack, apart from the rules and aligned. Small numbers are offsets into it or the code.
     */
    memcpy(words, bytes + stack_at,
           count - stack_at < sizeof(words) ? count - stack_at : sizeof(words));
    for (uint32_t i = 0; i < STACK_WORDS; i++)
        words[i] = words[i] < sizeof(words)  ? (uintptr_t)words + words[i]
                   : words[i] < 2u * CODE_AT ? header + words[i]
                                             : words[i];
    for (unsigned i = 0; i < NG_REGISTERS; i++)
        registers.value[i] = (uintptr_t)words + 8 * i;
    for (uint64_t k = 0; k < 48; k += 7) {
        found |= ng_cfi_find(&cfi, &image, code + k);
        registers.value[NG_REGISTER_STACK] = (uintptr_t)words;
        registers.value[NG_REGISTER_PROGRAM] = code + k;
        part_promise(ng_unwind(&images, &registers, frames, FRAMES, &end) <= FRAMES,
                     "more frames than there is room for");
    }
    walk(&images, code + 1, (uintptr_t)words, (uintptr_t)(words + STACK_WORDS));
    return found;
}

const struct part part_frames = {"frames", make_frames, take_frames};
