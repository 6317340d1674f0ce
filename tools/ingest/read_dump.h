/*
 * Reads what core/report/dump.c wrote: adds rank_<r>.json to a view.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_READ_DUMP_H
#define NCCLGUARD_TOOLS_INGEST_READ_DUMP_H

#include <stddef.h>

#include "core/view/view.h"

/*
 * Append the process in the dump at `path`. `source` names the file in messages. Implausible
 * members and records are left out, with a note in the view.
 *
 * 0; -EBADMSG not a dump of ours or damaged, -EPROTO another schema, -EEXIST the view has this
 * process already, or -errno of reading, all with the reason in `why` and the view unchanged;
 * -ENOMEM, and the view is unusable.
 */
int ng_read_dump(struct ng_view *view, const char *path, const char *source, char *why,
                 size_t why_bytes);

/* Index of the process with this host and pid; -1 none. */
int ng_read_dump_find(const struct ng_view *view, const char *host, int pid);

#endif
