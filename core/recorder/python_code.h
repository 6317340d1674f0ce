/*
 * Where calls were made in Python: what the black box keeps of it, and reading it.
 *
 * Three tables (core/recorder/box.h): the frames of each record, as code objects and places in
 * them; what is told of each code object; and their line tables. A code object may be freed, and
 * another one lie at its address, so nothing here is an address. Written by the program's threads;
 * read by anybody, any thread, without a lock, while they are written.
 */
#ifndef NCCLGUARD_CORE_RECORDER_PYTHON_CODE_H
#define NCCLGUARD_CORE_RECORDER_PYTHON_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"

#define NG_PYTHON_CODE_UNKNOWN UINT32_MAX

/* A line table that is longer is kept in part. */
#define NG_PYTHON_LINES_MAX 4096u

/* What is told of a code object. Nothing of it is ended. */
struct ng_python_code {
    int32_t first_line;
    char file[NG_BOX_CODE_FILE_BYTES], name[NG_BOX_CODE_NAME_BYTES];
    uint32_t file_bytes, name_bytes;
    const uint8_t *lines;
    uint32_t lines_bytes; /* all of them; NG_PYTHON_LINES_MAX of them at most are kept */
};

/* A frame of a record: NG_PYTHON_CODE_UNKNOWN nothing is known of it. */
struct ng_python_frame {
    uint32_t code;
    uint32_t offset; /* of the instruction, in the code's bytes */
};

/* How many rows may be read of any mapped box. */
uint32_t ng_python_code_count(const struct ng_box *box);

/* Row `index`, below the count, with its texts ended. False: it is not complete, or damaged.
 * `lines` is in the box. */
struct ng_python_code_row {
    char file[NG_BOX_CODE_FILE_BYTES + 1], name[NG_BOX_CODE_NAME_BYTES + 1];
    int32_t first_line;
    const uint8_t *lines;
    uint32_t lines_kept;
};
bool ng_python_code_read(const struct ng_box *box, uint32_t index,
                         struct ng_python_code_row *ret_row);

/* The frames of Python of a record, innermost first. False: they are not there, or overwritten
 * meanwhile. */
bool ng_python_code_read_frames(const struct ng_box *box, uint64_t record_id,
                                struct ng_python_frame ret_frames[NG_BOX_PYTHON_FRAMES],
                                uint32_t *ret_count, bool *ret_cut);

/* A complete row for what is told here; NG_PYTHON_CODE_UNKNOWN: no room. Where there is none for
 * its line table, it is one without. Writer, any thread of the program. */
uint32_t ng_python_code_add(struct ng_box *box, const struct ng_python_code *code, uint32_t hash);

/* The frames of record `record_id`. Only the thread that writes where that record was made. */
void ng_python_code_write_frames(struct ng_box *box, uint64_t record_id,
                                 const struct ng_python_frame *frames, uint32_t count, bool cut);

#endif
