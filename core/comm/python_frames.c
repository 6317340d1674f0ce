/*
 * Keeps the Python frames of a call.
 *
 * Entered by the program's threads, and once by the thread that ends the interpreter. Must never
 * allocate, lock, make a system call, or read objects that no frame of the calling thread holds.
 */
#include "core/comm/python_frames.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "core/comm/in_flight_calls.h"
#include "core/nccl/group_id.h"
#include "core/unwind/fast_unwind.h"
#include "core/util/clock.h"

#define READERS        256u  /* thread slots of the box; other threads keep no Python frames */
#define SEEN           4096u /* a power of two; grouped in sets of */
#define SEEN_WAYS      4u
#define BY_CONTENT     4096u /* a power of two, and far more than the box has rows */
#define STEPS_MAX      32u   /* more than the room: some frames are the interpreter's own */
#define CLOSE_WAIT_NS  NG_S
#define TEXT_COMPACT   0x20u
#define TEXT_ASCII     0x40u
#define CUT_MARK       "..."
#define CUT_MARK_BYTES 3u

/* The row that an address had last. Only a hint: two threads may have written address and row. */
struct seen {
    _Atomic uint64_t address; /* 0 free */
    _Atomic uint32_t row;
    _Atomic uint32_t turn; /* in the first of a set: which of the set is replaced next */
};

struct state {
    struct ng_python_interpreter interpreter;
    atomic_bool closed;
    /* A thread is reading the interpreter's objects. Each flag has its own cache line, which only
     * its thread writes. */
    struct {
        _Atomic uint32_t busy;
        char unused[60];
    } readers[READERS];
    struct seen seen[SEEN];
    _Atomic uint32_t by_content[BY_CONTENT]; /* row + 1; 0 free */
};

static struct state *_Atomic state; /* NULL: calls keep no Python frames */

/* A CPython string with `kind` bytes per character. */
struct text {
    const uint8_t *data;
    uint64_t length;
    uint32_t kind;
    bool is_ascii;
};

static NG_FAST_UNWIND_UNCHECKED const uint8_t *pointer_at(const uint8_t *at)
{
    return *(const uint8_t *const volatile *)(const void *)at;
}

static NG_FAST_UNWIND_UNCHECKED uint64_t word_at(const uint8_t *at)
{
    return *(const volatile uint64_t *)(const void *)at;
}

static NG_FAST_UNWIND_UNCHECKED uint32_t half_at(const uint8_t *at)
{
    return *(const volatile uint32_t *)(const void *)at;
}

static NG_FAST_UNWIND_UNCHECKED uint8_t byte_at(const uint8_t *at)
{
    return *(const volatile uint8_t *)at;
}

/* ---- Strings ---- */

static bool read_text(const struct ng_python_layout *layout, const uint8_t *object,
                      struct text *ret_text)
{
    uint32_t form = object ? half_at(object + layout->text_state) : 0;
    uint32_t kind = form >> 2 & 7;

    if (!(form & TEXT_COMPACT) || (kind != 1 && kind != 2 && kind != 4))
        return false;
    ret_text->is_ascii = form & TEXT_ASCII;
    ret_text->kind = kind;
    ret_text->length = word_at(object + layout->text_length);
    ret_text->data = object + (ret_text->is_ascii ? layout->text_ascii : layout->text_other);
    return true;
}

static uint32_t character(const struct text *text, uint64_t index)
{
    uint16_t two;
    uint32_t four;

    switch (text->kind) {
    case 1:
        return text->data[index];
    case 2:
        memcpy(&two, text->data + 2 * index, sizeof(two));
        return two;
    default:
        memcpy(&four, text->data + 4 * index, sizeof(four));
        return four;
    }
}

/* Encode as UTF-8; a character that cannot be encoded becomes a question mark. */
static uint32_t encode(uint32_t character, uint8_t ret_bytes[4])
{
    if (character >= 0xd800 && (character < 0xe000 || character > 0x10ffff))
        character = '?';
    if (character < 0x80) {
        ret_bytes[0] = (uint8_t)character;
        return 1;
    }
    uint32_t count = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (uint32_t i = count - 1; i > 0; i--, character >>= 6)
        ret_bytes[i] = (uint8_t)(0x80 | (character & 0x3f));
    ret_bytes[0] = (uint8_t)(0xf0 << (4 - count) | character);
    return count;
}

/* If too long, keep the end: it says more about a path or qualified name than the beginning. */
static uint32_t keep_other(const struct text *text, uint32_t room, char *ret_bytes)
{
    uint64_t first = text->length > room ? text->length - room : 0, total = 0;
    uint32_t count = 0, skipped = 0, cut = 0;
    uint8_t bytes[4];

    for (uint64_t i = first; i < text->length; i++)
        total += encode(character(text, i), bytes);
    if (first > 0 || total > room) {
        memcpy(ret_bytes, CUT_MARK, CUT_MARK_BYTES);
        count = CUT_MARK_BYTES;
        cut = total > room - CUT_MARK_BYTES ? (uint32_t)total - (room - CUT_MARK_BYTES) : 0;
    }
    for (uint64_t i = first; i < text->length; i++) {
        uint32_t width = encode(character(text, i), bytes);
        if (skipped < cut) {
            skipped += width;
            continue;
        }
        memcpy(ret_bytes + count, bytes, width);
        count += width;
    }
    return count;
}

static uint32_t keep_text(const struct text *text, uint32_t room, char *ret_bytes)
{
    if (!text->is_ascii)
        return keep_other(text, room, ret_bytes);
    if (text->length <= room) {
        memcpy(ret_bytes, text->data, text->length);
        return (uint32_t)text->length;
    }
    memcpy(ret_bytes, CUT_MARK, CUT_MARK_BYTES);
    memcpy(ret_bytes + CUT_MARK_BYTES, text->data + text->length - (room - CUT_MARK_BYTES),
           room - CUT_MARK_BYTES);
    return room;
}

/* Would the string be kept as these bytes? */
static bool is_kept(const struct text *text, uint32_t room, const char *kept, uint32_t kept_bytes)
{
    char bytes[NG_BOX_CODE_FILE_BYTES];

    if (text->is_ascii && text->length <= room)
        return text->length == kept_bytes && memcmp(text->data, kept, kept_bytes) == 0;
    return keep_text(text, room, bytes) == kept_bytes && memcmp(bytes, kept, kept_bytes) == 0;
}

/* ---- Code objects ---- */

NG_FAST_UNWIND_UNCHECKED bool ng_python_frames_describe(const struct ng_python_layout *layout,
                                                        const void *code,
                                                        struct ng_python_code *ret_code)
{
    const uint8_t *at = code, *lines = pointer_at(at + layout->code_lines);
    struct text file, name;

    if (!lines || !read_text(layout, pointer_at(at + layout->code_file), &file) ||
        !read_text(layout, pointer_at(at + layout->code_name), &name))
        return false;
    uint64_t lines_bytes = word_at(lines + layout->bytes_count);
    ret_code->first_line = (int32_t)half_at(at + layout->code_first_line);
    ret_code->file_bytes = keep_text(&file, NG_BOX_CODE_FILE_BYTES, ret_code->file);
    ret_code->name_bytes = keep_text(&name, NG_BOX_CODE_NAME_BYTES, ret_code->name);
    ret_code->lines = lines + layout->bytes_data;
    ret_code->lines_bytes = lines_bytes < UINT32_MAX ? (uint32_t)lines_bytes : UINT32_MAX;
    return true;
}

/* Does the row still describe this code object? */
static NG_FAST_UNWIND_UNCHECKED bool is_row_of(const struct ng_box *box, uint32_t index,
                                               const struct ng_python_layout *layout,
                                               const uint8_t *code)
{
    const struct ng_box_code *row = &box->codes[index];
    const uint8_t *lines = pointer_at(code + layout->code_lines);
    struct text file, name;

    return atomic_load_explicit(&row->complete, memory_order_acquire) &&
           row->first_line == (int32_t)half_at(code + layout->code_first_line) &&
           row->lines_bytes == word_at(lines + layout->bytes_count) &&
           read_text(layout, pointer_at(code + layout->code_name), &name) &&
           is_kept(&name, NG_BOX_CODE_NAME_BYTES, row->name, row->name_bytes) &&
           read_text(layout, pointer_at(code + layout->code_file), &file) &&
           is_kept(&file, NG_BOX_CODE_FILE_BYTES, row->file, row->file_bytes) &&
           memcmp(box->lines + row->lines_at, lines + layout->bytes_data, row->lines_kept) == 0;
}

static uint32_t hash_of(const struct ng_python_code *code)
{
    uint32_t kept =
        code->lines_bytes < NG_PYTHON_LINES_MAX ? code->lines_bytes : NG_PYTHON_LINES_MAX;
    uint64_t hash = ng_hash((uint32_t)code->first_line, code->name, code->name_bytes);

    hash = ng_hash(hash, code->file, code->file_bytes);
    hash = ng_hash(hash, code->lines, kept);
    return (uint32_t)(hash ^ hash >> 32);
}

/* The row of a code object not found by its address: one with the same content, or a new one. */
static NG_FAST_UNWIND_UNCHECKED __attribute__((noinline)) uint32_t
find_by_content(struct state *own, const uint8_t *code)
{
    const struct ng_python_layout *layout = &own->interpreter.layout;
    struct ng_box *box = &ng_guard.box;
    struct ng_python_code told;

    if (!ng_python_frames_describe(layout, code, &told))
        return NG_PYTHON_CODE_UNKNOWN;
    uint32_t hash = hash_of(&told), at = hash & (BY_CONTENT - 1), row = 0;
    for (; (row = atomic_load_explicit(&own->by_content[at], memory_order_acquire));
         at = (at + 1) & (BY_CONTENT - 1))
        if (box->codes[row - 1].hash == hash && is_row_of(box, row - 1, layout, code))
            return row - 1;
    uint32_t added = ng_python_code_add(box, &told, hash);
    if (added == NG_PYTHON_CODE_UNKNOWN)
        return added;
    /* The search ends: there are more entries than rows. */
    for (row = 0; !atomic_compare_exchange_strong_explicit(
             &own->by_content[at], &row, added + 1, memory_order_release, memory_order_relaxed);
         row = 0)
        at = (at + 1) & (BY_CONTENT - 1);
    return added;
}

static NG_FAST_UNWIND_UNCHECKED uint32_t row_of(struct state *own, const uint8_t *code)
{
    uint64_t address = (uintptr_t)code;
    struct seen
        *set = &own->seen[(address * UINT64_C(0x9e3779b97f4a7c15) >> 40 & (SEEN / SEEN_WAYS - 1)) *
                          SEEN_WAYS],
        *put = NULL;

    for (uint32_t i = 0; i < SEEN_WAYS; i++) {
        uint64_t there = NG_LOAD(set[i].address);
        uint32_t row = NG_LOAD(set[i].row);
        if (there == address && is_row_of(&ng_guard.box, row, &own->interpreter.layout, code))
            return row;
        if (there == address || (!there && !put))
            put = &set[i];
    }
    uint32_t found = find_by_content(own, code);
    if (found == NG_PYTHON_CODE_UNKNOWN)
        return found;
    if (!put)
        put = &set[atomic_fetch_add_explicit(&set->turn, 1, memory_order_relaxed) % SEEN_WAYS];
    NG_STORE(put->row, found);
    NG_STORE(put->address, address);
    return found;
}

/* ---- Frames ---- */

NG_FAST_UNWIND_UNCHECKED uint32_t
ng_python_frames_walk(const struct ng_python_interpreter *interpreter, const void *thread,
                      struct ng_python_spot *ret_spots, uint32_t room, bool *ret_cut)
{
    const struct ng_python_layout *layout = &interpreter->layout;
    const uint8_t *frame = pointer_at((const uint8_t *)thread + layout->state_frame);
    uint32_t count = 0;

    if (frame && layout->state_has_cframe)
        frame = pointer_at(frame + layout->cframe_frame);
    for (uint32_t steps = 0; frame && steps < STEPS_MAX && count < room; steps++) {
        const uint8_t *code =
            (const uint8_t *)(uintptr_t)(word_at(frame + layout->frame_code) & ~NG_PYTHON_TAGS);
        if (byte_at(frame + layout->frame_owner) < layout->owner_interpreter && code &&
            pointer_at(code + layout->object_type) == interpreter->code_type) {
            const uint8_t *instruction = pointer_at(frame + layout->frame_instruction);
            ret_spots[count++] = (struct ng_python_spot){
                .code = code,
                /* Before the first instruction: use the first instruction's line. */
                .offset = instruction > code + layout->code_bytes
                              ? (uint32_t)(instruction - (code + layout->code_bytes))
                              : 0};
        }
        frame = pointer_at(frame + layout->frame_previous);
    }
    /* The outermost frames may be the interpreter's own. */
    while (frame && byte_at(frame + layout->frame_owner) >= layout->owner_interpreter)
        frame = pointer_at(frame + layout->frame_previous);
    *ret_cut = frame != NULL;
    return count;
}

static NG_FAST_UNWIND_UNCHECKED void take(struct state *own, uint64_t record_id)
{
    const struct ng_python_interpreter *interpreter = &own->interpreter;
    struct ng_python_spot spots[NG_BOX_PYTHON_FRAMES];
    struct ng_python_frame frames[NG_BOX_PYTHON_FRAMES];
    bool cut;

    /* With several interpreters it cannot be determined without a lock which of them the thread is
     * in. */
    if (!interpreter->is_initialized() || interpreter->newest() != interpreter->first())
        return;
    const void *thread = interpreter->this_thread();
    uint32_t count =
        thread ? ng_python_frames_walk(interpreter, thread, spots, NG_BOX_PYTHON_FRAMES, &cut) : 0;
    if (!count)
        return;
    for (uint32_t i = 0; i < count; i++)
        frames[i] =
            (struct ng_python_frame){.code = row_of(own, spots[i].code), .offset = spots[i].offset};
    ng_python_code_write_frames(&ng_guard.box, record_id, frames, count, cut);
}

void ng_python_frames_take(const struct ng_thread *thread, uint64_t record_id)
{
    struct state *own = atomic_load_explicit(&state, memory_order_acquire);

    if (!own || thread->slot == &thread->spare)
        return;
    size_t reader = (size_t)(thread->slot - ng_guard.box.threads);
    if (reader >= READERS)
        return;
    /* ng_python_frames_close fences for both sides (core/comm/in_flight_calls.h). A signal handler
     * may make a call in between, so the old value is restored. */
    uint32_t before = NG_LOAD(own->readers[reader].busy);
    NG_STORE(own->readers[reader].busy, 1);
    atomic_signal_fence(memory_order_seq_cst);
    if (!NG_LOAD(own->closed))
        take(own, record_id);
    atomic_store_explicit(&own->readers[reader].busy, before, memory_order_release);
}

int ng_python_frames_start(const struct ng_python_interpreter *interpreter)
{
    struct state *made = mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                 *none = NULL;

    if (made == MAP_FAILED)
        return -errno;
    made->interpreter = *interpreter;
    if (!atomic_compare_exchange_strong(&state, &none, made)) {
        munmap(made, sizeof(*made));
        return -EALREADY;
    }
    return 0;
}

void ng_python_frames_close(void)
{
    struct state *own = atomic_load(&state);
    int64_t until = ng_clock_mono_ns() + CLOSE_WAIT_NS;

    if (!own)
        return;
    atomic_store(&own->closed, true);
    ng_in_flight_fence();
    for (uint32_t i = 0; i < READERS; i++)
        while (atomic_load_explicit(&own->readers[i].busy, memory_order_acquire) &&
               ng_clock_mono_ns() < until)
            sched_yield();
}

void ng_python_frames_after_fork(void)
{
    struct state *own = atomic_load(&state);

    if (own)
        munmap(own, sizeof(*own));
    atomic_store(&state, NULL);
}
