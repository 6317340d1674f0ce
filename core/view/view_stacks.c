/*
 * Call stacks: adds the frames of a black box's records to a view.
 *
 * Nearly all calls are made from a few places, so records share their stacks. The box may be
 * written to during the reading, or be damaged. Opens no file.
 */
#include <errno.h>
#include <string.h>

#include "core/recorder/python_code.h"
#include "core/unwind/frame_table.h"
#include "core/unwind/python_lines.h"
#include "core/util/macros.h"
#include "core/view/view.h"

/* ---- Equal stacks ---- */

static bool is_same_module(const struct ng_view_module *a, const struct ng_view_module *b)
{
    return a == b ||
           (a && b && strcmp(a->path, b->path) == 0 && strcmp(a->build_id, b->build_id) == 0);
}

static bool is_same_frame(const struct ng_view_frame *a, const struct ng_view_frame *b)
{
    return is_same_module(a->module, b->module) && a->offset == b->offset &&
           a->name_offset == b->name_offset && a->is_python == b->is_python && a->line == b->line &&
           (a->name == b->name || (a->name && b->name && strcmp(a->name, b->name) == 0));
}

static bool is_same(const struct ng_view_call_stack *a, const struct ng_view_call_stack *b)
{
    if (a->process != b->process || a->count != b->count || a->whole != b->whole ||
        a->python_cut != b->python_cut)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!is_same_frame(&a->frames[i], &b->frames[i]))
            return false;
    return true;
}

static uint64_t hash_of(const struct ng_view_call_stack *stack)
{
    uint64_t hash = stack->process + 1;

    for (uint32_t i = 0; i < stack->count; i++)
        hash = (hash ^ stack->frames[i].offset) * UINT64_C(0x9e3779b97f4a7c15);
    return hash >> 32;
}

static uint32_t *slot_of(const struct ng_view *view, const struct ng_view_call_stack *stack)
{
    uint32_t mask = view->call_stack_slot_count - 1, at = (uint32_t)hash_of(stack) & mask;

    while (view->call_stack_slots[at] &&
           !is_same(&view->call_stacks[view->call_stack_slots[at] - 1], stack))
        at = (at + 1) & mask;
    return &view->call_stack_slots[at];
}

/* Keeps at least half of the entries free. */
static bool make_slots(struct ng_view *view)
{
    if (view->call_stack_count < view->call_stack_slot_count / 2)
        return true;
    uint32_t count = view->call_stack_slot_count ? view->call_stack_slot_count * 2 : 64;
    uint32_t *slots = ng_arena_alloc(&view->arena, count * sizeof(*slots));
    if (!slots)
        return false;
    view->call_stack_slots = slots;
    view->call_stack_slot_count = count;
    for (uint32_t i = 0; i < view->call_stack_count; i++)
        *slot_of(view, &view->call_stacks[i]) = i + 1;
    return true;
}

uint32_t ng_view_intern_call_stack(struct ng_view *view, const struct ng_view_call_stack *stack)
{
    if (!make_slots(view))
        return 0;
    uint32_t *slot = slot_of(view, stack);
    if (*slot)
        return *slot;
    struct ng_view_frame *frames = ng_arena_alloc(&view->arena, stack->count * sizeof(*frames));
    struct ng_view_call_stack *added =
        frames ? NG_ARENA_APPEND(&view->arena, view->call_stacks, view->call_stack_count,
                                 view->call_stack_room)
               : NULL;
    if (!added)
        return 0;
    memcpy(frames, stack->frames, stack->count * sizeof(*frames));
    *added = *stack;
    added->frames = frames;
    return *slot = view->call_stack_count;
}

/* ---- From another view ---- */

/* State while the modules of one stack are copied. */
struct copying {
    struct ng_view *view;
    const struct ng_view_module *from[NG_VIEW_FRAMES], *to[NG_VIEW_FRAMES];
    uint32_t count;
};

static const struct ng_view_module *copy_module(struct copying *copying,
                                                const struct ng_view_module *module)
{
    for (uint32_t i = 0; i < copying->count; i++)
        if (copying->from[i] == module)
            return copying->to[i];
    const struct ng_view_module *copy =
        ng_view_add_module(copying->view, module->path, module->build_id);
    if (copy && copying->count < sizeof(copying->to) / sizeof(copying->to[0])) {
        copying->from[copying->count] = module;
        copying->to[copying->count++] = copy;
    }
    return copy;
}

uint32_t ng_view_copy_call_stack(struct ng_view *view, const struct ng_view_call_stack *from,
                                 uint32_t process)
{
    struct ng_view_call_stack stack = *from;
    struct copying copying = {.view = view};

    stack.process = process;
    /* Thousands of calls may share one stack. */
    uint32_t known = view->call_stack_slot_count ? *slot_of(view, &stack) : 0;
    if (known)
        return known;
    struct ng_view_frame *frames = ng_arena_alloc(&view->arena, from->count * sizeof(*frames));
    if (!frames)
        return 0;
    for (uint32_t i = 0; i < from->count; i++) {
        frames[i] = from->frames[i];
        if (frames[i].module && !(frames[i].module = copy_module(&copying, frames[i].module)))
            return 0;
        if (frames[i].name && !(frames[i].name = ng_arena_strdup(&view->arena, frames[i].name)))
            return 0;
    }
    stack.frames = frames;
    return ng_view_intern_call_stack(view, &stack);
}

/* ---- From a box ---- */

/* An address of the box's frame table, with its name in the view's memory. */
struct known {
    uint64_t address;
    uint32_t order; /* in which they were recorded */
    int64_t gone_mono_ns;
    struct ng_view_frame frame;
};

/* A code object of the box, with its texts in the view's memory. */
struct known_code {
    bool looked_at;
    struct ng_view_frame frame; /* without the offset */
};

/* Each line is looked up once, since most calls are made from a few places. */
#define LINES_KEPT 256u /* a power of two */
struct known_line {
    uint32_t code, offset; /* the index plus 1; 0 free */
    int32_t line;
};

struct reading {
    struct ng_view *view;
    const struct ng_box *box;
    const struct ng_view_module **modules; /* NULL: no frame lies in this one */
    struct ng_frame_module *rows;
    uint32_t module_count;
    struct known *known; /* sorted by address, then order */
    uint32_t known_count;
    struct known_code *codes; /* NULL: there are no Python frames */
    uint32_t code_count;
    struct known_line lines[LINES_KEPT];
};

static void put_hex(const uint8_t *bytes, uint32_t count, char *ret_text)
{
    static const char digits[] = "0123456789abcdef";

    for (uint32_t i = 0; i < count; i++) {
        *ret_text++ = digits[bytes[i] >> 4];
        *ret_text++ = digits[bytes[i] & 15];
    }
    *ret_text = '\0';
}

static const struct ng_view_module *module_of(struct reading *reading, uint32_t index)
{
    char build_id[2 * sizeof(reading->rows->build_id) + 1];

    if (index >= reading->module_count)
        return NULL;
    if (!reading->modules[index]) {
        put_hex(reading->rows[index].build_id, reading->rows[index].build_id_bytes, build_id);
        reading->modules[index] =
            ng_view_add_module(reading->view, reading->rows[index].path, build_id);
    }
    return reading->modules[index];
}

/* The frame for an address without an entry: the file that it lies in, if only one was ever mapped
 * there. */
static struct ng_view_frame frame_by_file(struct reading *reading, uint64_t address)
{
    uint32_t found = NG_FRAME_NO_MODULE, count = 0;

    for (uint32_t i = 0; i < reading->module_count; i++)
        if (address - 1 >= reading->rows[i].start && address - 1 < reading->rows[i].end) {
            found = i;
            count++;
        }
    const struct ng_view_module *module = count == 1 ? module_of(reading, found) : NULL;
    return (struct ng_view_frame){.module = module,
                                  .offset = module ? address - reading->rows[found].bias : address};
}

/* Sorts in place: qsort may call malloc, and this also runs in programs that are stuck in
 * malloc. */
static void sort(struct known *known, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (uint32_t i = gap; i < count; i++) {
            struct known moved = known[i];
            uint32_t k = i;
            for (; k >= gap && (known[k - gap].address > moved.address ||
                                (known[k - gap].address == moved.address &&
                                 known[k - gap].order > moved.order));
                 k -= gap)
                known[k] = known[k - gap];
            known[k] = moved;
        }
}

static int read_tables(struct reading *reading)
{
    struct ng_arena *arena = &reading->view->arena;
    uint32_t count = ng_frame_table_count(reading->box);
    struct ng_frame_address row;

    reading->module_count = ng_frame_table_module_count(reading->box);
    reading->modules =
        ng_arena_alloc(arena, (reading->module_count + 1) * sizeof(reading->modules[0]));
    reading->rows = ng_arena_alloc(arena, (reading->module_count + 1) * sizeof(reading->rows[0]));
    reading->known = ng_arena_alloc(arena, (count + 1) * sizeof(reading->known[0]));
    if (!reading->modules || !reading->rows || !reading->known)
        return -ENOMEM;
    for (uint32_t i = 0; i < reading->module_count; i++)
        ng_frame_table_read_module(reading->box, i, &reading->rows[i]);
    for (uint32_t i = 0; i < count; i++) {
        ng_frame_table_read(reading->box, i, &row);
        const struct ng_view_module *module = module_of(reading, row.module);
        struct known *known = &reading->known[reading->known_count++];
        *known = (struct known){.address = row.address,
                                .order = i,
                                .gone_mono_ns = row.gone_mono_ns,
                                .frame = {.module = module, .offset = row.address}};
        if (module)
            known->frame.offset -= reading->rows[row.module].bias;
        if (row.name[0]) {
            known->frame.name = ng_arena_strdup(arena, row.name);
            known->frame.name_offset = row.name_offset;
            if (!known->frame.name)
                return -ENOMEM;
        }
    }
    sort(reading->known, reading->known_count);
    reading->code_count = ng_python_code_count(reading->box);
    if (reading->code_count)
        reading->codes = ng_arena_alloc(arena, reading->code_count * sizeof(reading->codes[0]));
    return reading->code_count && !reading->codes ? -ENOMEM : 0;
}

/* Looks the address up as of the time of the call: other code may have been mapped there before or
 * since. */
static struct ng_view_frame find_frame(struct reading *reading, uint64_t address, int64_t mono_ns)
{
    uint32_t low = NG_FIRST_INDEX(reading->known_count, i, reading->known[i].address < address);

    for (; low < reading->known_count && reading->known[low].address == address; low++)
        if (!reading->known[low].gone_mono_ns || reading->known[low].gone_mono_ns > mono_ns)
            return reading->known[low].frame;
    return frame_by_file(reading, address);
}

/* ---- Python ---- */

/* One module for all code objects of a file. */
static const struct ng_view_module *file_of(struct reading *reading, const char *path)
{
    for (uint32_t i = 0; i < reading->code_count; i++) {
        const struct ng_view_module *module = reading->codes[i].frame.module;
        if (module && strcmp(module->path, path) == 0)
            return module;
    }
    return ng_view_add_module(reading->view, path, "");
}

/* False: out of memory. */
static bool look_at_code(struct reading *reading, uint32_t index)
{
    struct known_code *known = &reading->codes[index];
    struct ng_python_code_row row;

    if (known->looked_at)
        return true;
    known->looked_at = true;
    known->frame.is_python = true;
    if (!ng_python_code_read(reading->box, index, &row))
        return true;
    known->frame.module = row.file[0] ? file_of(reading, row.file) : NULL;
    known->frame.name = row.name[0] ? ng_arena_strdup(&reading->view->arena, row.name) : NULL;
    return (known->frame.module || !row.file[0]) && (known->frame.name || !row.name[0]);
}

static int32_t line_of(struct reading *reading, const struct ng_python_frame *frame)
{
    struct known_line *known =
        &reading->lines[(frame->code * 31 + frame->offset / 2) & (LINES_KEPT - 1)];
    struct ng_python_code_row row;

    if (known->code != frame->code + 1 || known->offset != frame->offset) {
        *known = (struct known_line){.code = frame->code + 1, .offset = frame->offset};
        if (ng_python_code_read(reading->box, frame->code, &row))
            known->line = ng_python_line(row.lines, row.lines_kept, row.first_line, frame->offset);
    }
    return known->line;
}

static int add_python(struct reading *reading, const struct ng_view_record *record,
                      struct ng_view_call_stack *stack, struct ng_view_frame *frames)
{
    struct ng_python_frame found[NG_BOX_PYTHON_FRAMES];
    uint32_t count;

    if (!reading->codes ||
        !ng_python_code_read_frames(reading->box, record->id, found, &count, &stack->python_cut))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        frames[i] = (struct ng_view_frame){.is_python = true, .offset = found[i].offset};
        if (found[i].code >= reading->code_count)
            continue;
        if (!look_at_code(reading, found[i].code))
            return -ENOMEM;
        frames[i] = reading->codes[found[i].code].frame;
        frames[i].offset = found[i].offset;
        frames[i].line = line_of(reading, &found[i]);
    }
    stack->count = count;
    return 0;
}

static int add_stack(struct reading *reading, uint32_t process, int64_t now_mono_ns,
                     struct ng_view_record *record)
{
    uint64_t addresses[NG_BOX_FRAMES];
    struct ng_view_frame frames[NG_VIEW_FRAMES];
    struct ng_view_call_stack stack = {.process = process, .frames = frames};
    enum ng_frames_state state;
    uint32_t count;

    if (add_python(reading, record, &stack, frames) != 0)
        return -ENOMEM;
    if (ng_frame_table_read_frames(reading->box, record->id, addresses, &count, &state)) {
        for (uint32_t i = 0; i < count; i++)
            frames[stack.count++] =
                find_frame(reading, addresses[i], now_mono_ns - record->entered_age_ns);
        stack.whole = state == NG_FRAMES_WHOLE;
    }
    if (!stack.count)
        return 0;
    record->call_stack = ng_view_intern_call_stack(reading->view, &stack);
    return record->call_stack ? 0 : -ENOMEM;
}

int ng_view_add_call_stacks(struct ng_view *view, const struct ng_box *box, uint32_t process,
                            int64_t now_mono_ns)
{
    struct reading reading = {.view = view, .box = box};

    if (!box->frames_capacity)
        return 0;
    int error = read_tables(&reading);
    for (uint32_t i = 0; !error && i < view->member_count; i++) {
        struct ng_view_member *member = &view->members[i];
        for (uint32_t k = 0; !error && member->process == process && k < member->record_count; k++)
            error = add_stack(&reading, process, now_mono_ns, &member->records[k]);
    }
    return error;
}
