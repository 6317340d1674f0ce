/*
 * Evidence on disk, of any kind, merged into one view: black boxes, dumps, PyTorch's flight
 * recorder.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_EVIDENCE_H
#define NCCLGUARD_TOOLS_INGEST_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/view/view.h"
#include "store/board/local.h"
#include "tools/ingest/read_flight.h"
#include "tools/ingest/view_merge.h"

enum ng_evidence_kind { NG_EVIDENCE_NONE, NG_EVIDENCE_BOX, NG_EVIDENCE_DUMP, NG_EVIDENCE_FLIGHT };

/* What a file contains besides its part of the view. */
struct ng_evidence_file {
    enum ng_evidence_kind kind;
    int64_t suspect_ns, timeout_ns; /* a black box's; 0 not known */
    bool incident;                  /* such a file is written only at an incident, or cannot tell */
};

/*
 * Add the file at `path` to `view`, which is empty; a black box as of `now_mono_ns`. 0; or -errno,
 * with the reason in `why` except for -ENOMEM, and then the view is unusable.
 */
int ng_evidence_read(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                     int64_t now_mono_ns, struct ng_evidence_file *ret_file, char *why,
                     size_t why_bytes);

#define NG_EVIDENCE_INCIDENTS 64u

/* Files to read, in reading order. */
struct ng_evidence_paths {
    char **paths;
    size_t count, room;
    /* Verdicts that guards have left in the folders of the evidence, the newest first in each; up
     * to NG_EVIDENCE_INCIDENTS. */
    struct ng_incident *incidents;
    size_t incident_count;
};

/* The summary of all files. */
struct ng_evidence {
    int64_t stalled_ns; /* the shortest time after which a job calls work stuck; 0 not known */
    size_t usable, unusable;
    bool incident; /* some of it is written only at an incident, or cannot tell */
};

/* Called for each unusable input, with the reason; never by two threads at a time. */
typedef void ng_evidence_refuse_fn(void *context, const char *path, const char *why);

/*
 * Add a file, or the files of a folder whose names mark them as evidence. Unusable ones are
 * refused. 0 or -ENOMEM.
 */
int ng_evidence_add_path(struct ng_evidence_paths *paths, const char *path,
                         ng_evidence_refuse_fn *refuse, void *context);
/* The folder of a verdict.json or verdict.txt where there is evidence, too: whoever names the
 * verdict means that. NULL: it is no such file, or there is none. The caller frees. */
char *ng_evidence_beside(const char *path);
/* Add the files of PyTorch's recorder last: they are left out for ranks of which other evidence
 * says more. 0 or -ENOMEM. */
int ng_evidence_order(struct ng_evidence_paths *paths);
void ng_evidence_paths_fini(struct ng_evidence_paths *paths);

/*
 * The runs that have left black boxes in a folder, at most `room`, if they cannot be one run
 * because a rank is in several of them. How many; 0: all boxes are judged together.
 */
int ng_evidence_runs(const char *folder, struct ng_local_run *ret_runs, uint32_t room);

/* Leave out the black boxes in `folder` that belong to other runs, and messages about them. 0 or
 * -ENOMEM. */
int ng_evidence_keep_run(struct ng_evidence_paths *paths, const char *folder, uint64_t run);

/*
 * Read all files, by as many threads as there are processors, into the view of the merge, in their
 * order. If they belong to several jobs, as in a reused folder, only the newest job is in the view,
 * by the names and times in the files; the others are refused, in one call for each job. 0 or
 * -ENOMEM.
 */
int ng_evidence_gather(const struct ng_evidence_paths *paths, struct ng_view_merge *merge,
                       ng_evidence_refuse_fn *refuse, void *context,
                       struct ng_evidence *ret_evidence);

#endif
