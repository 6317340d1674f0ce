/*
 * One view of many processes, merged from their reports, with as many records as a verdict needs.
 *
 * A small job keeps all its records. In a large one, each member keeps its newest records and those
 * in flight; its earlier calls are in the histories of its groups (tools/ingest/histories.h), from
 * which the records around every difference are reconstructed at the end.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_VIEW_MERGE_H
#define NCCLGUARD_TOOLS_INGEST_VIEW_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"
#include "tools/ingest/histories.h"

/* Number of records kept before members begin to keep fewer: about 35 MB of them. */
#define NG_VIEW_MERGE_RECORDS (UINT64_C(1) << 18)

struct ng_view_merge {
    struct ng_view *view; /* the caller's */
    struct ng_histories histories;
    uint64_t records_whole; /* how many may be kept in full, */
    uint64_t records_left;  /* and how many of these are left */
    bool *kept_whole;       /* by member */
    uint32_t member_room;
    uint32_t *call_stacks; /* scratch, for the view being added: the corresponding indices here */
    uint8_t *marks;        /* scratch: by record of the member being added */
    size_t mark_room;
    uint64_t records; /* of all that was added */
};

/* Cannot fail. `view` is empty. One thread at a time. */
void ng_view_merge_init(struct ng_view_merge *merge, struct ng_view *view, uint64_t records_whole);
void ng_view_merge_fini(struct ng_view_merge *merge);

/* Reset to the state after ng_view_merge_init; the view is empty again, without its previous
 * content. */
void ng_view_merge_restart(struct ng_view_merge *merge);

/*
 * Add the process in `told`, a view that is not sealed; it may be freed afterwards. 0; -EEXIST the
 * process was added already, with the reason in `why`; -EALREADY the same, by evidence that says
 * more; -ENOMEM.
 */
int ng_view_merge_add(struct ng_view_merge *merge, const struct ng_view *told, char *why,
                      size_t why_bytes);

/*
 * After the last process: find the differences (merge->histories.differences), and add the records
 * that a verdict needs to the view. It is then ready to be sealed. 0 or -ENOMEM.
 */
int ng_view_merge_finish(struct ng_view_merge *merge);

#endif
