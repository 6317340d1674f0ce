/*
 * Where calls were made in Python: the tables in the black box, their writers and readers.
 *
 * Three tables (core/recorder/box.h): the frames of each record, as code objects and offsets in
 * them; the description of each code object; and their line tables. A code object may be freed and
 * its address reused, so nothing here is an address. Written by the program's threads; any process
 * and thread may read them meanwhile, without a lock.
 */
#ifndef NCCLGUARD_CORE_RECORDER_PYTHON_CODE_H
#define NCCLGUARD_CORE_RECORDER_PYTHON_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"

#define NG_PYTHON_CODE_UNKNOWN UINT32_MAX

/* Longer line tables are truncated. */
#define NG_PYTHON_LINES_MAX 4096u

/* The description of a code object. Its texts are not NUL-terminated. */
struct ng_python_code {
    int32_t first_line;
    char file[NG_BOX_CODE_FILE_BYTES], name[NG_BOX_CODE_NAME_BYTES];
    uint32_t file_bytes, name_bytes;
    const uint8_t *lines;
    uint32_t lines_bytes; /* full size; at most NG_PYTHON_LINES_MAX bytes are kept */
};

/* A frame of a record; NG_PYTHON_CODE_UNKNOWN: nothing is known of its code object. */
struct ng_python_frame {
    uint32_t code;
    uint32_t offset; /* of the instruction, in the code's bytes */
};

/* How many rows may be read of any mapped box. */
uint32_t ng_python_code_count(const struct ng_box *box);

/* Row `index`, below the count, with NUL-terminated texts. False: incomplete or damaged. `lines`
 * points into the box. */
struct ng_python_code_row {
    char file[NG_BOX_CODE_FILE_BYTES + 1], name[NG_BOX_CODE_NAME_BYTES + 1];
    int32_t first_line;
    const uint8_t *lines;
    uint32_t lines_kept;
};
bool ng_python_code_read(const struct ng_box *box, uint32_t index,
                         struct ng_python_code_row *ret_row);

/* The Python frames of a record, innermost first. False: there are none, or they were overwritten
 * meanwhile. */
bool ng_python_code_read_frames(const struct ng_box *box, uint64_t record_id,
                                struct ng_python_frame ret_frames[NG_BOX_PYTHON_FRAMES],
                                uint32_t *ret_count, bool *ret_cut);

/* Find or add a complete row with this description; NG_PYTHON_CODE_UNKNOWN: no room. If there is no
 * room for its line table, the row has none. Writer, any thread of the program. */
uint32_t ng_python_code_add(struct ng_box *box, const struct ng_python_code *code, uint32_t hash);

/* Write the frames of record `record_id`. Only the thread that made that record. */
void ng_python_code_write_frames(struct ng_box *box, uint64_t record_id,
                                 const struct ng_python_frame *frames, uint32_t count, bool cut);

#endif
