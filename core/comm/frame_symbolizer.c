/*
 * Unwind rules, frames and symbol names for calls.
 *
 * Entered by its own thread, and by one I/O task at a time for names from files. Must never lock or
 * allocate with malloc, nor wait for anything that the program may hold.
 */
#include "core/comm/frame_symbolizer.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm/call_stack.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/unwind/fast_unwind.h"
#include "core/unwind/frame_table.h"
#include "core/unwind/image.h"
#include "core/unwind/symbols.h"
#include "core/util/clock.h"
#include "core/util/memory.h"

/* Time between two polls: a young program makes its first calls; later calls rarely reach a new
 * address. */
#define YOUNG_NS       (10 * NG_S)
#define PAUSE_YOUNG_NS (2 * NG_MS)
#define PAUSE_NS       (20 * NG_MS)
/* Interval of re-reading the loaded images: catches a library that replaces another one without a
 * walk reaching an unknown address. */
#define RENEW_NS   (5 * NG_S)
#define NAME_NS    (500 * NG_MS) /* CPU time */
#define PLACES_MAX 2048u         /* addresses known to this thread; the box has no more rows */
#define FILL_MAX   64u           /* rules that one walk may lack, at most */
/* Module rows used at the start: the rest is for libraries loaded later. */
#define MODULES_AT_START(capacity) ((capacity) / 4 * 3)

/* An address that has a row in the box, at the same index. */
struct known {
    uint64_t address;
    uint32_t module;
    bool gone;
};

/* Owned by this thread. */
static struct {
    struct ng_arena arena; /* of `images` */
    struct ng_images images;
    struct known known[PLACES_MAX];
    uint32_t known_count;
    uint32_t named; /* this many of them have been looked up in memory */
} own NG_LARGE;

/* Names from files: owned by the I/O task while `under_way`. */
static struct {
    atomic_bool under_way;
    struct ng_arena arena;
    uint32_t first; /* rows from here on are named next; owned by this thread */
    struct ng_symbol_wanted *wanted;
    uint32_t *rows;
    uint32_t count;
} files;

static atomic_bool quitting;

/* ---- Loaded images ---- */

/* Retire addresses whose code has changed: they lose their rule, and get a new row when they occur
 * again. */
static void retire(void)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();

    for (uint32_t i = 0; i < own.known_count; i++) {
        struct known *known = &own.known[i];
        const struct ng_image *image = ng_images_find(&own.images, known->address - 1);
        bool same = known->module == NG_FRAME_NO_MODULE
                        ? !image || ng_frame_table_module_count(box) == box->module_capacity
                        : image && ng_frame_table_is_module(box, known->module, image);
        if (known->gone || same)
            continue;
        known->gone = true;
        ng_fast_unwind_table_remove(&ng_call_stacks->table, known->address - 1);
        ng_frame_table_retire(box, i, now);
    }
}

static bool look_at_images(void)
{
    ng_arena_recycle(&own.arena);
    own.images = (struct ng_images){0};
    if (ng_images_read(&own.arena, &own.images) != 0)
        return false;
    retire();
    return true;
}

/* Publish the modules, so that addresses without a row yet can be resolved if the process ends
 * now. */
static void tell_modules(void)
{
    struct ng_box *box = &ng_guard.box;

    for (uint32_t i = 0; i < own.images.count && i < MODULES_AT_START(box->module_capacity); i++)
        ng_frame_table_add_module(box, &own.images.images[i]);
}

/* ---- Rules ---- */

static void tell_place(uint64_t address)
{
    struct ng_box *box = &ng_guard.box;
    const struct ng_image *image = ng_images_find(&own.images, address - 1);

    if (own.known_count == PLACES_MAX)
        return;
    uint32_t module = image ? ng_frame_table_add_module(box, image) : NG_FRAME_NO_MODULE;
    if (ng_frame_table_add(box, address, module) == own.known_count)
        own.known[own.known_count++] = (struct known){.address = address, .module = module};
}

static bool fill(uint64_t place)
{
    struct ng_fast_unwind_rule rule = ng_fast_unwind_rule_make(&own.images, place);

    tell_place(place + 1);
    return ng_fast_unwind_table_add(&ng_call_stacks->table, place, &rule);
}

/* Continue the walk where it ended, on the copy of the stack, and add the rules that it lacks. */
static enum ng_fast_unwind_end walk_on(const struct ng_call_stack_miss *miss,
                                       uint64_t *ret_addresses, uint32_t room, uint32_t *ret_count)
{
    struct ng_fast_unwind_table *table = &ng_call_stacks->table;
    struct ng_fast_unwind_memory memory = {.until = miss->at.stack + miss->bytes,
                                           .shift = (uintptr_t)miss->copy - miss->at.stack};
    struct ng_fast_unwind_position start = miss->at, walk;
    enum ng_fast_unwind_end end = NG_FAST_UNWIND_MISSED;

    *ret_count = 0;
    for (unsigned tries = 0; tries < FILL_MAX && end == NG_FAST_UNWIND_MISSED; tries++) {
        walk = start;
        end = miss->found ? NG_FAST_UNWIND_GOES_ON
                          : ng_call_stack_leave_own(table, &memory, miss->caller, &walk);
        if (end == NG_FAST_UNWIND_GOES_ON)
            end = ng_fast_unwind_up(table, &memory, &walk, ret_addresses, room, ret_count);
        if (end == NG_FAST_UNWIND_MISSED && !fill(walk.place))
            break;
    }
    return end;
}

/* Complete the record that lacks frames, unless it was overwritten. */
static void complete(const struct ng_call_stack_miss *miss)
{
    struct ng_box *box = &ng_guard.box;
    uint64_t addresses[NG_BOX_FRAMES], part = miss->record_id << 8 | NG_FRAMES_PART;
    uint32_t first = miss->found ? miss->found - 1 : 0, count;

    enum ng_fast_unwind_end end = walk_on(miss, addresses, NG_BOX_FRAMES - first, &count);
    struct ng_box_frames *frames =
        &box->frames[ng_record_slot(miss->record_id, box->frames_capacity)];
    if (!count || !atomic_compare_exchange_strong(&frames->id_state, &part,
                                                  miss->record_id << 8 | NG_FRAMES_WRITING))
        return;
    for (uint32_t i = 0; i < count; i++)
        NG_STORE(frames->address[first + i], addresses[i]);
    if (first + count < NG_BOX_FRAMES)
        NG_STORE(frames->address[first + count], 0);
    atomic_store_explicit(&frames->id_state,
                          miss->record_id << 8 |
                              (end == NG_FAST_UNWIND_WHOLE ? NG_FRAMES_WHOLE : NG_FRAMES_CUT),
                          memory_order_release);
}

/* Take over walks that wait to be completed, a bit for each. Some copies are left for program
 * threads; otherwise a burst of calls would leave walks that are never completed. */
static uint32_t take_missed(void)
{
    uint32_t missed = 0;

    for (unsigned i = 0;
         i < NG_CALL_STACK_COPIES && __builtin_popcount(missed) < NG_CALL_STACK_COPIES / 2; i++) {
        enum ng_miss_state ready = NG_MISS_READY;
        if (atomic_compare_exchange_strong_explicit(&ng_call_stacks->misses[i].state, &ready,
                                                    NG_MISS_BUSY, memory_order_acquire,
                                                    memory_order_relaxed))
            missed |= 1u << i;
    }
    return missed;
}

/* Complete walks that were taken before the images were read; later ones may be in images loaded
 * since. If the images could not be read, the walks are dropped. */
static void complete_all(uint32_t missed, bool possible)
{
    for (unsigned i = 0; i < NG_CALL_STACK_COPIES; i++) {
        if (!(missed & 1u << i))
            continue;
        if (possible)
            complete(&ng_call_stacks->misses[i]);
        atomic_store_explicit(&ng_call_stacks->misses[i].state, NG_MISS_FREE, memory_order_release);
    }
}

/* ---- Names ---- */

/* Collect the rows from `first` on that lie in an image; memory from `arena`. */
static uint32_t gather(uint32_t first, struct ng_arena *arena, struct ng_symbol_wanted **ret_wanted,
                       uint32_t **ret_rows)
{
    uint32_t room = own.known_count - first, count = 0;
    struct ng_symbol_wanted *wanted = ng_arena_alloc(arena, room * sizeof(*wanted));
    uint32_t *rows = ng_arena_alloc(arena, room * sizeof(*rows));

    for (uint32_t i = first; wanted && rows && i < own.known_count; i++) {
        uint64_t place = own.known[i].address - 1;
        const struct ng_image *image = ng_images_find(&own.images, place);
        if (!image || own.known[i].gone)
            continue;
        rows[count] = i;
        wanted[count++] = (struct ng_symbol_wanted){.image = image, .place = place};
    }
    *ret_wanted = wanted;
    *ret_rows = rows;
    return count;
}

static void tell_names(const struct ng_symbol_wanted *wanted, const uint32_t *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (wanted[i].name)
            ng_frame_table_name(&ng_guard.box, rows[i], wanted[i].name,
                                wanted[i].place + 1 - wanted[i].start);
}

static void name_from_files(void *unused)
{
    if (ng_symbolize(files.wanted, files.count, ng_symbols_of_file, ng_clock_thread_ns() + NAME_NS,
                     &files.arena) == 0)
        tell_names(files.wanted, files.rows, files.count);
    ng_arena_reset(&files.arena);
    atomic_store(&files.under_way, false);
}

/* Copy the images for the I/O task, since this thread re-reads its own. */
static bool copy_images(void)
{
    const struct ng_image *before = NULL;
    struct ng_image *copy = NULL;

    for (uint32_t i = 0; i < files.count; i++) {
        if (files.wanted[i].image != before) {
            before = files.wanted[i].image;
            copy = ng_arena_alloc(&files.arena, sizeof(*copy));
            if (!copy)
                return false;
            *copy = *before;
            copy->path = ng_arena_strdup(&files.arena, before->path);
            if (!copy->path)
                return false;
        }
        files.wanted[i].image = copy;
    }
    return true;
}

/* Look up in files what memory does not name, or names less well. A task that hangs blocks the next
 * one. */
static void begin_files(void)
{
    if (files.first == own.known_count || atomic_load(&files.under_way))
        return;
    files.count = gather(files.first, &files.arena, &files.wanted, &files.rows);
    files.first = own.known_count;
    atomic_store(&files.under_way, true);
    if (!files.count || !copy_images() ||
        ng_io_workers_add(NG_IO_WORKERS_PROGRAMS, name_from_files, NULL) != 0) {
        ng_arena_reset(&files.arena);
        atomic_store(&files.under_way, false);
    }
}

static void name_new(void)
{
    struct ng_arena arena = {0};
    struct ng_symbol_wanted *wanted;
    uint32_t *rows;

    if (own.named == own.known_count)
        return;
    uint32_t count = gather(own.named, &arena, &wanted, &rows);
    own.named = own.known_count;
    if (count && ng_symbolize(wanted, count, ng_symbols_of_memory, ng_clock_thread_ns() + NAME_NS,
                              &arena) == 0)
        tell_names(wanted, rows, count);
    ng_arena_reset(&arena);
}

/* ---- The thread ---- */

static bool is_wanted(uint32_t generation)
{
    return atomic_load(&ng_guard.generation) == generation && !atomic_load(&quitting) &&
           !atomic_load(&ng_guard.ending);
}

static void *serve(void *unused)
{
    uint32_t generation = atomic_load(&ng_guard.generation);
    int64_t young_until = ng_clock_mono_ns() + YOUNG_NS;
    int64_t renew_mono_ns = ng_clock_mono_ns() + RENEW_NS;

    ng_guard.adopt_thread();
    if (look_at_images())
        tell_modules();
    while (is_wanted(generation)) {
        int64_t pause_ns = ng_clock_mono_ns() < young_until ? PAUSE_YOUNG_NS : PAUSE_NS;
        uint32_t missed = take_missed();
        if (missed || ng_clock_mono_ns() > renew_mono_ns) {
            complete_all(missed, look_at_images());
            name_new();
            renew_mono_ns = ng_clock_mono_ns() + RENEW_NS;
        }
        begin_files();
        ng_clock_sleep(pause_ns);
    }
    return unused;
}

int ng_frame_symbolizer_start(void)
{
    if (!ng_guard.box.frames_capacity)
        return 0;
    if (!ng_call_stacks) {
        void *memory = mmap(NULL, sizeof(*ng_call_stacks), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return -errno;
        ng_call_stacks = memory;
    }
    return ng_guard_thread("ncclguard/calls", serve);
}

void ng_frame_symbolizer_quit(void)
{
    atomic_store(&quitting, true);
}

void ng_frame_symbolizer_after_fork(void)
{
    /* The child has a different box, which has none of these addresses. */
    if (ng_call_stacks)
        munmap(ng_call_stacks, sizeof(*ng_call_stacks));
    ng_call_stacks = NULL;
    own.arena.chunks = files.arena.chunks =
        NULL; /* another thread of the parent may have been using them */
    own.known_count = own.named = files.first = 0;
    atomic_store(&files.under_way, false);
    atomic_store(&quitting, false);
}
