/*
 * Names for addresses of several images.
 *
 * For host stacks and the frames of calls. Entered by the guard's threads.
 */
#include "core/unwind/symbolize.h"

#include <errno.h>
#include <stdbool.h>

#include "core/util/clock.h"

static bool is_before(const struct ng_symbol_wanted *a, const struct ng_symbol_wanted *b)
{
    return a->image != b->image ? (uintptr_t)a->image < (uintptr_t)b->image : a->place < b->place;
}

/* In place: qsort may call malloc. */
static void sort(struct ng_symbol_wanted **wanted, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t i = gap; i < count; i++) {
            struct ng_symbol_wanted *moved = wanted[i];
            uint32_t k = i;
            for (; k >= gap && is_before(moved, wanted[k - gap]); k -= gap)
                wanted[k] = wanted[k - gap];
            wanted[k] = moved;
        }
}

int ng_symbolize(struct ng_symbol_wanted *wanted, uint32_t count, ng_symbol_source *source,
                 int64_t until_mono_ns, struct ng_arena *arena)
{
    struct ng_symbol_wanted **sorted = ng_arena_alloc(arena, count * sizeof(sorted[0]));
    struct ng_symbol_query *queries = ng_arena_alloc(arena, count * sizeof(queries[0]));

    if (!sorted || !queries)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &wanted[i];
    sort(sorted, count);
    for (uint32_t i = 0, end; i < count; i = end) {
        const struct ng_image *image = sorted[i]->image;
        for (end = i; end < count && sorted[end]->image == image; end++)
            queries[end] = (struct ng_symbol_query){.address = sorted[end]->place - image->bias};
        if (ng_clock_mono_ns() > until_mono_ns)
            break;
        source(image, queries + i, end - i, until_mono_ns, arena);
        for (uint32_t k = i; k < end; k++)
            if (queries[k].name) {
                sorted[k]->name = queries[k].name;
                sorted[k]->start = queries[k].start + image->bias;
            }
    }
    return 0;
}
