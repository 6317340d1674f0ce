/*
 * A black box on disk becomes part of a view: a live process's, a dead one's, or a copy from
 * elsewhere.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_BOX_H
#define NCCLGUARD_TOOLS_INGEST_READ_BOX_H

#include <stddef.h>

#include "core/view/view.h"

/*
 * Append the process of the black box at `path`, with a copy of its header. `source` names the file
 * in messages, and ages are as of `now_mono_ns`: one moment for all boxes that are looked at
 * together. 0; -EEXIST the view has this process already, -EBADMSG not a black box, -EPROTO
 * another layout version, -EIO cut off, or -errno, all with the reason in `why` and the view
 * unchanged; -ENOMEM, and the view is of no use.
 */
int ng_read_box(struct ng_view *view, const char *path, const char *source, int64_t now_mono_ns,
                struct ng_box_header *ret_header, char *why, size_t why_bytes);

#endif
