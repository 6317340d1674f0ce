/*
 * Where calls were made: the tables in the black box, their writers and readers.
 *
 * Three tables (core/recorder/box.h): the frames of each record, as addresses; the program's files
 * in memory; and what is known of each address that occurs in frames: its file, and the name of its
 * function. So a box is self-contained, wherever it is read. One guard thread writes modules and
 * places; any process and thread may read them meanwhile, without a lock.
 */
#ifndef NCCLGUARD_CORE_UNWIND_FRAME_TABLE_H
#define NCCLGUARD_CORE_UNWIND_FRAME_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"
#include "core/unwind/image.h"

#define NG_FRAME_NO_MODULE UINT32_MAX

/* One row of each table, as it was read. */
struct ng_frame_module {
    uint64_t start, end, bias;
    uint8_t build_id[32];
    uint32_t build_id_bytes;
    char path[NG_BOX_PATH_BYTES];
};

struct ng_frame_address {
    uint64_t address;
    uint32_t module; /* NG_FRAME_NO_MODULE: not known, or none */
    int64_t gone_mono_ns;
    char name[NG_BOX_FRAME_NAME_BYTES]; /* "" not known */
    uint64_t name_offset;
};

/* How many rows may be read of any mapped box. */
uint32_t ng_frame_table_module_count(const struct ng_box *box);
uint32_t ng_frame_table_count(const struct ng_box *box);

/* Row `index`, below the count. */
void ng_frame_table_read_module(const struct ng_box *box, uint32_t index,
                                struct ng_frame_module *ret_module);
void ng_frame_table_read(const struct ng_box *box, uint32_t index,
                         struct ng_frame_address *ret_address);

/* The frames of a record. False: there are none, or they were overwritten meanwhile. */
bool ng_frame_table_read_frames(const struct ng_box *box, uint64_t record_id,
                                uint64_t ret_addresses[NG_BOX_FRAMES], uint32_t *ret_count,
                                enum ng_frames_state *ret_state);

/* The row of an image, added if there is none; NG_FRAME_NO_MODULE: no room. Writer. */
uint32_t ng_frame_table_add_module(struct ng_box *box, const struct ng_image *image);

/* Does that row describe this image? Writer. */
bool ng_frame_table_is_module(const struct ng_box *box, uint32_t index,
                              const struct ng_image *image);

/* A row for an address; UINT32_MAX: no room. Writer. */
uint32_t ng_frame_table_add(struct ng_box *box, uint64_t address, uint32_t module);

/* Set its name, the first or a better one; longer ones are cut. One thread at a time per row. */
void ng_frame_table_name(struct ng_box *box, uint32_t index, const char *name,
                         uint64_t name_offset);

/* Mark that the code is no longer there. Writer. */
void ng_frame_table_retire(struct ng_box *box, uint32_t index, int64_t now_mono_ns);

#endif
