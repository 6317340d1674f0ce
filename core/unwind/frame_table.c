/*
 * Frames, modules and addresses in the black box.
 *
 * Written by one guard thread, frames also by the program's threads. No lock, no allocation. Must
 * never trust a box that it reads: it may belong to another process, and be damaged.
 */
#include "core/unwind/frame_table.h"

#include <string.h>

#include "core/recorder/kept.h"

#define TRIES 8 /* to read a name that is being written */

uint32_t ng_frame_table_module_count(const struct ng_box *box)
{
    if (!box->module_capacity)
        return 0;
    uint32_t used = atomic_load_explicit(&box->header->module_used, memory_order_acquire);
    return used < box->module_capacity ? used : box->module_capacity;
}

uint32_t ng_frame_table_count(const struct ng_box *box)
{
    if (!box->address_capacity)
        return 0;
    uint32_t used = atomic_load_explicit(&box->header->address_used, memory_order_acquire);
    return used < box->address_capacity ? used : box->address_capacity;
}

void ng_frame_table_read_module(const struct ng_box *box, uint32_t index,
                                struct ng_frame_module *ret_module)
{
    const struct ng_box_module *row = &box->modules[index];
    struct ng_frame_module module = {.start = row->start, .end = row->end, .bias = row->bias};

    module.build_id_bytes =
        row->build_id_bytes <= sizeof(module.build_id) ? row->build_id_bytes : 0;
    memcpy(module.build_id, row->build_id, sizeof(module.build_id));
    memcpy(module.path, row->path, sizeof(module.path));
    module.path[sizeof(module.path) - 1] = '\0';
    *ret_module = module;
}

/* False: there is none, or it was being written. */
static bool read_name(const struct ng_box_address *row, struct ng_frame_address *address)
{
    uint64_t words[NG_BOX_FRAME_NAME_BYTES / 8];

    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t version = atomic_load_explicit(&row->name_version, memory_order_acquire);
        if (version == 0)
            return false;
        address->name_offset = NG_LOAD(row->name_offset);
        for (unsigned i = 0; i < NG_BOX_FRAME_NAME_BYTES / 8; i++)
            words[i] = NG_LOAD(row->name[i]);
        atomic_thread_fence(memory_order_acquire);
        if (version % 2 || NG_LOAD(row->name_version) != version)
            continue;
        memcpy(address->name, words, sizeof(words));
        address->name[sizeof(address->name) - 1] = '\0';
        return true;
    }
    return false;
}

void ng_frame_table_read(const struct ng_box *box, uint32_t index,
                         struct ng_frame_address *ret_address)
{
    const struct ng_box_address *row = &box->addresses[index];
    struct ng_frame_address address = {.address = row->address, .module = row->module};

    if (address.module >= ng_frame_table_module_count(box))
        address.module = NG_FRAME_NO_MODULE;
    address.gone_mono_ns = NG_LOAD(row->gone_mono_ns);
    if (!read_name(row, &address)) {
        address.name[0] = '\0';
        address.name_offset = 0;
    }
    *ret_address = address;
}

bool ng_frame_table_read_frames(const struct ng_box *box, uint64_t record_id,
                                uint64_t ret_addresses[NG_BOX_FRAMES], uint32_t *ret_count,
                                enum ng_frames_state *ret_state)
{
    if (!box->frames_capacity || !record_id)
        return false;
    const struct ng_box_frames *frames = &box->frames[ng_kept_slot(box, record_id)];
    uint64_t before = atomic_load_explicit(&frames->id_state, memory_order_acquire);
    enum ng_frames_state state = (enum ng_frames_state)(before & 0xff);
    uint32_t count = 0;

    if (before >> 8 != record_id || state < NG_FRAMES_PART || state > NG_FRAMES_CUT)
        return false;
    while (count < NG_BOX_FRAMES && (ret_addresses[count] = NG_LOAD(frames->address[count])))
        count++;
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(frames->id_state) != before)
        return false;
    *ret_count = count;
    *ret_state = state;
    return count > 0;
}

/* The end of a path is more informative than its beginning. */
static void keep_path(char *ret_path, const char *path)
{
    size_t length = strlen(path);

    if (length >= NG_BOX_PATH_BYTES) {
        memcpy(ret_path, "...", 3);
        strcpy(ret_path + 3, path + length - (NG_BOX_PATH_BYTES - 4));
    } else {
        strcpy(ret_path, path);
    }
}

static bool is_row_of(const struct ng_box_module *row, const struct ng_image *image,
                      const char *path)
{
    return row->start == image->start && row->end == image->end && row->bias == image->bias &&
           row->build_id_bytes == image->build_id_bytes &&
           memcmp(row->build_id, image->build_id, image->build_id_bytes) == 0 &&
           strcmp(row->path, path) == 0;
}

bool ng_frame_table_is_module(const struct ng_box *box, uint32_t index,
                              const struct ng_image *image)
{
    char path[NG_BOX_PATH_BYTES];

    keep_path(path, image->path);
    return is_row_of(&box->modules[index], image, path);
}

uint32_t ng_frame_table_add_module(struct ng_box *box, const struct ng_image *image)
{
    uint32_t used = ng_frame_table_module_count(box);
    char path[NG_BOX_PATH_BYTES];

    keep_path(path, image->path);
    /* Newest first: an image that was loaded again may have the same address as before. */
    for (uint32_t i = used; i > 0; i--)
        if (is_row_of(&box->modules[i - 1], image, path))
            return i - 1;
    if (used == box->module_capacity) {
        NG_STORE(box->header->modules_lost, NG_LOAD(box->header->modules_lost) + 1);
        return NG_FRAME_NO_MODULE;
    }
    struct ng_box_module *row = &box->modules[used];
    row->start = image->start;
    row->end = image->end;
    row->bias = image->bias;
    row->build_id_bytes = image->build_id_bytes;
    memcpy(row->build_id, image->build_id, sizeof(row->build_id));
    strcpy(row->path, path);
    atomic_store_explicit(&box->header->module_used, used + 1, memory_order_release);
    return used;
}

uint32_t ng_frame_table_add(struct ng_box *box, uint64_t address, uint32_t module)
{
    uint32_t used = ng_frame_table_count(box);

    if (used == box->address_capacity) {
        NG_STORE(box->header->addresses_lost, NG_LOAD(box->header->addresses_lost) + 1);
        return UINT32_MAX;
    }
    box->addresses[used].address = address;
    box->addresses[used].module = module;
    atomic_store_explicit(&box->header->address_used, used + 1, memory_order_release);
    return used;
}

void ng_frame_table_name(struct ng_box *box, uint32_t index, const char *name, uint64_t name_offset)
{
    uint64_t words[NG_BOX_FRAME_NAME_BYTES / 8] = {0};
    struct ng_box_address *row = &box->addresses[index];
    uint32_t version = NG_LOAD(row->name_version);

    memcpy(words, name, strnlen(name, sizeof(words) - 1));
    NG_STORE(row->name_version, version + 1);
    atomic_thread_fence(memory_order_release);
    NG_STORE(row->name_offset, name_offset);
    for (unsigned i = 0; i < NG_BOX_FRAME_NAME_BYTES / 8; i++)
        NG_STORE(row->name[i], words[i]);
    atomic_store_explicit(&row->name_version, version + 2, memory_order_release);
}

void ng_frame_table_retire(struct ng_box *box, uint32_t index, int64_t now_mono_ns)
{
    NG_STORE(box->addresses[index].gone_mono_ns, now_mono_ns);
}
