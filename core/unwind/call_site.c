/*
 * Names of return addresses, and the walk up to one in the program's own code.
 *
 * Not in the path of a call. Entered by threads that report a finding. Must never call the dynamic
 * linker, whose lock may be held by a thread that waits for this one.
 */
#include "core/unwind/call_site.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/unwind/fast_unwind.h"
#include "core/unwind/image.h"
#include "core/unwind/symbols.h"
#include "core/unwind/unwind.h"
#include "core/util/clock.h"
#include "core/util/macros.h"

#define FRAMES  32u
#define NAME_NS (20 * NG_MS) /* CPU time */

static const char *file_name(const struct ng_image *image)
{
    const char *slash = strrchr(image->path, '/');

    return slash ? slash + 1 : image->path;
}

static bool is_between(const struct ng_images *images, uint64_t address)
{
    static const char *const names[] = {"libncclguard", "libnccl", "libcudart", "libcuda."};
    const struct ng_image *image = ng_images_find(images, address - 1);

    return image && NG_ANY(name, names, NG_COUNT(names),
                           strncmp(file_name(image), *name, strlen(*name)) == 0);
}

__attribute__((noinline)) uintptr_t ng_call_site_find(const void *caller)
{
    struct ng_fast_unwind_position here = ng_fast_unwind_here();
    struct ng_registers registers = {.known = UINT64_C(1) << NG_REGISTER_STACK |
                                              UINT64_C(1) << NG_REGISTER_FRAME |
                                              UINT64_C(1) << NG_REGISTER_PROGRAM};
    struct ng_frame frames[FRAMES];
    struct ng_images images;
    struct ng_arena arena = {0};
    enum ng_unwind_end end;
    uintptr_t found = (uintptr_t)caller;
    bool passed = false;

    registers.value[NG_REGISTER_STACK] = here.stack;
    registers.value[NG_REGISTER_FRAME] = here.pointer;
    registers.value[NG_REGISTER_PROGRAM] = here.place;
#if defined(__aarch64__)
    registers.value[NG_REGISTER_RETURN] = here.link;
    registers.known |= UINT64_C(1) << NG_REGISTER_RETURN;
#endif
    if (ng_images_read(&arena, &images) == 0 && is_between(&images, (uintptr_t)caller)) {
        uint32_t count = ng_unwind(&images, &registers, frames, FRAMES, &end);
        for (uint32_t i = 0; i < count && found == (uintptr_t)caller; i++) {
            passed |= frames[i].address == (uintptr_t)caller;
            if (passed && !is_between(&images, frames[i].address))
                found = frames[i].address;
        }
    }
    ng_arena_reset(&arena);
    return found;
}

const char *ng_call_site_name(uintptr_t address, char ret_text[NG_CALL_SITE_BYTES])
{
    struct ng_arena arena = {0};
    struct ng_images images;
    const struct ng_image *image = NULL;

    snprintf(ret_text, NG_CALL_SITE_BYTES, "0x%" PRIxPTR, address);
    if (ng_images_read(&arena, &images) == 0)
        image = ng_images_find(&images, address - 1);
    if (image) {
        /* Look up the call instruction: the return address may belong to another function. */
        struct ng_symbol_query query = {.address = address - 1 - image->bias};
        ng_symbols_of_memory(image, &query, 1, ng_clock_thread_ns() + NAME_NS, &arena);
        if (!query.name && !image->remote)
            ng_symbols_of_file(image, &query, 1, ng_clock_thread_ns() + NAME_NS, &arena);
        if (query.name)
            snprintf(ret_text, NG_CALL_SITE_BYTES, "%.160s+0x%" PRIx64 " (%.64s)", query.name,
                     address - image->bias - query.start, file_name(image));
        else
            snprintf(ret_text, NG_CALL_SITE_BYTES, "0x%" PRIx64 " in %.128s", address - image->bias,
                     file_name(image));
    }
    ng_arena_reset(&arena);
    return ret_text;
}
