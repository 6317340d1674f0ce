/*
 * Python code objects, and frames in them, in the black box.
 *
 * Written by the program's threads. No lock, no allocation. Must never trust a box that it reads:
 * it may belong to another process, and be damaged.
 */
#include "core/recorder/python_code.h"

#include <string.h>

#include "core/recorder/kept.h"
#include "core/util/macros.h"

uint32_t ng_python_code_count(const struct ng_box *box)
{
    if (!box->code_capacity)
        return 0;
    uint32_t used = NG_LOAD(box->header->code_used);
    return used < box->code_capacity ? used : box->code_capacity;
}

static uint32_t copy_text(char *ret_text, const char *text, uint32_t bytes, uint32_t room)
{
    bytes = NG_MIN(bytes, room);
    memcpy(ret_text, text, bytes);
    ret_text[bytes] = '\0';
    return bytes;
}

bool ng_python_code_read(const struct ng_box *box, uint32_t index,
                         struct ng_python_code_row *ret_row)
{
    const struct ng_box_code *row = &box->codes[index];

    if (atomic_load_explicit(&row->complete, memory_order_acquire) != 1)
        return false;
    uint32_t at = row->lines_at, kept = row->lines_kept;
    if (kept > box->lines_capacity || at > box->lines_capacity - kept)
        kept = at = 0;
    copy_text(ret_row->file, row->file, row->file_bytes, sizeof(row->file));
    copy_text(ret_row->name, row->name, row->name_bytes, sizeof(row->name));
    ret_row->first_line = row->first_line;
    ret_row->lines = box->lines + at;
    ret_row->lines_kept = kept;
    return true;
}

bool ng_python_code_read_frames(const struct ng_box *box, uint64_t record_id,
                                struct ng_python_frame ret_frames[NG_BOX_PYTHON_FRAMES],
                                uint32_t *ret_count, bool *ret_cut)
{
    if (!box->python_capacity || !record_id)
        return false;
    const struct ng_box_python *slot = &box->python[ng_kept_slot(box, record_id)];
    uint64_t before = atomic_load_explicit(&slot->id_state, memory_order_acquire);
    enum ng_frames_state state = (enum ng_frames_state)(before & 0xff);
    uint64_t frame;
    uint32_t count = 0;

    if (before >> 8 != record_id || (state != NG_FRAMES_WHOLE && state != NG_FRAMES_CUT))
        return false;
    while (count < NG_BOX_PYTHON_FRAMES && (frame = NG_LOAD(slot->frame[count]))) {
        uint32_t code = (uint32_t)(frame >> 32);
        ret_frames[count++] = (struct ng_python_frame){
            .code = code && code <= box->code_capacity ? code - 1 : NG_PYTHON_CODE_UNKNOWN,
            .offset = (uint32_t)frame};
    }
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(slot->id_state) != before)
        return false;
    *ret_count = count;
    *ret_cut = state == NG_FRAMES_CUT;
    return count > 0;
}

/* Take `wanted` units out of `capacity`. False: not enough left. */
static bool take(_Atomic uint32_t *used, uint32_t wanted, uint32_t capacity, uint32_t *ret_first)
{
    uint32_t first = NG_LOAD(*used);

    do {
        if (first > capacity || wanted > capacity - first)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(used, &first, first + wanted,
                                                    memory_order_relaxed, memory_order_relaxed));
    *ret_first = first;
    return true;
}

uint32_t ng_python_code_add(struct ng_box *box, const struct ng_python_code *code, uint32_t hash)
{
    uint32_t kept =
        code->lines_bytes < NG_PYTHON_LINES_MAX ? code->lines_bytes : NG_PYTHON_LINES_MAX;
    uint32_t index, at = 0;

    if (!take(&box->header->code_used, 1, box->code_capacity, &index)) {
        atomic_fetch_add_explicit(&box->header->codes_lost, 1, memory_order_relaxed);
        return NG_PYTHON_CODE_UNKNOWN;
    }
    if (!take(&box->header->lines_used, kept, box->lines_capacity, &at))
        kept = 0;
    struct ng_box_code *row = &box->codes[index];
    row->first_line = code->first_line;
    row->file_bytes = code->file_bytes;
    row->name_bytes = code->name_bytes;
    row->lines_bytes = code->lines_bytes;
    row->lines_kept = kept;
    row->lines_at = at;
    row->hash = hash;
    memcpy(row->file, code->file, code->file_bytes);
    memcpy(row->name, code->name, code->name_bytes);
    if (kept)
        memcpy(box->lines + at, code->lines, kept);
    atomic_store_explicit(&row->complete, 1, memory_order_release);
    return index;
}

void ng_python_code_write_frames(struct ng_box *box, uint64_t record_id,
                                 const struct ng_python_frame *frames, uint32_t count, bool cut)
{
    struct ng_box_python *slot = &box->python[ng_record_slot(record_id, box->python_capacity)];

    NG_STORE(slot->id_state, record_id << 8 | NG_FRAMES_WRITING);
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 0; i < count; i++)
        NG_STORE(
            slot->frame[i],
            (uint64_t)(frames[i].code == NG_PYTHON_CODE_UNKNOWN ? UINT32_MAX : frames[i].code + 1)
                    << 32 |
                frames[i].offset);
    if (count < NG_BOX_PYTHON_FRAMES)
        NG_STORE(slot->frame[count], 0);
    atomic_store_explicit(&slot->id_state, record_id << 8 | (cut ? NG_FRAMES_CUT : NG_FRAMES_WHOLE),
                          memory_order_release);
}
