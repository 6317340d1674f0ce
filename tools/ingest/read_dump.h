/*
 * Reading back what core/report/dump.c wrote: rank_<r>.json becomes part of a view.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_DUMP_H
#define NCCLGUARD_TOOLS_INGEST_READ_DUMP_H

#include <stddef.h>

#include "core/view/view.h"

/*
 * Append the process that the dump at `path` tells of. `source` names the file in messages. Members
 * and records that make no sense are left out, with a note in the view.
 *
 * 0; -EBADMSG not a dump of ours or damaged, -EPROTO another schema, -EEXIST the view has this
 * process already, or -errno of reading, all with the reason in `why` and the view unchanged;
 * -ENOMEM, and the view is of no use.
 */
int ng_read_dump(struct ng_view *view, const char *path, const char *source, char *why,
                 size_t why_bytes);

/* Index of the process with this host and pid; -1 none. */
int ng_read_dump_find(const struct ng_view *view, const char *host, int pid);

#endif
