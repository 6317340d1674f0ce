/*
 * One view of many processes, from what each of them told, with as many records as a verdict needs.
 *
 * A small job keeps all its records. Of a large one each member keeps its newest and whatever is in
 * flight; what it called before is in the histories of its groups (tools/ingest/histories.h), from
 * which the records around every difference are made again at the end.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_VIEW_MERGE_H
#define NCCLGUARD_TOOLS_INGEST_VIEW_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"
#include "tools/ingest/histories.h"

/* So many records are kept before members begin to keep less: about 35 MB of them. */
#define NG_VIEW_MERGE_RECORDS (UINT64_C(1) << 18)

struct ng_view_merge {
    struct ng_view *view; /* the caller's */
    struct ng_histories histories;
    uint64_t records_whole; /* that may be kept whole, */
    uint64_t records_left;  /* and those that still may */
    bool *kept_whole;       /* by member */
    uint32_t member_room;
    uint32_t *call_stacks; /* scratch: of the view that is being added, what they are here */
    uint8_t *marks;        /* scratch: by record of the member that is being added */
    size_t mark_room;
    uint64_t records; /* of all that was added */
};

/* Nothing to fail. `view` is empty. One thread at a time. */
void ng_view_merge_init(struct ng_view_merge *merge, struct ng_view *view, uint64_t records_whole);
void ng_view_merge_fini(struct ng_view_merge *merge);

/* As it was after ng_view_merge_init; the view is empty again, and has nothing of what was in it.
 */
void ng_view_merge_restart(struct ng_view_merge *merge);

/*
 * Add the process that `told`, a view that is not sealed, tells of; it may be freed afterwards. 0;
 * -EEXIST the process is there already, with the reason in `why`; -EALREADY likewise, by evidence
 * that tells more; -ENOMEM.
 */
int ng_view_merge_add(struct ng_view_merge *merge, const struct ng_view *told, char *why,
                      size_t why_bytes);

/*
 * All were added: find the differences (digest->histories.differences), and give the view the
 * records that a verdict needs. It is ready to be sealed. 0 or -ENOMEM.
 */
int ng_view_merge_finish(struct ng_view_merge *merge);

#endif
