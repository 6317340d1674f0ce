/*
 * Adds a black box on disk to a view: of a live process, a dead one, or a copy from another
 * machine.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_BOX_H
#define NCCLGUARD_TOOLS_INGEST_READ_BOX_H

#include <stddef.h>

#include "core/view/view.h"

/*
 * Append the process of the black box at `path`, with a copy of its header. `source` names the file
 * in messages, and ages are as of `now_mono_ns`, the same moment for all boxes that are judged
 * together. 0; -EEXIST the view has this process already, -EBADMSG not a black box, -EPROTO another
 * layout version, -EIO truncated, or -errno, all with the reason in `why` and the view unchanged;
 * -ENOMEM, and the view is unusable.
 */
int ng_read_box(struct ng_view *view, const char *path, const char *source, int64_t now_mono_ns,
                struct ng_box_header *ret_header, char *why, size_t why_bytes);

#endif
