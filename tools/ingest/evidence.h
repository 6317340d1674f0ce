/*
 * Evidence on disk, of whatever kind, into one view: black boxes, dumps, PyTorch's flight recorder.
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

/* What a file says beside its part of the view. */
struct ng_evidence_file {
    enum ng_evidence_kind kind;
    int64_t suspect_ns, timeout_ns; /* a black box's; 0 not told */
    bool incident;                  /* it is written only where there was one, or cannot tell */
};

/*
 * Put what the file at `path` tells of into `view`, which is empty; a black box as of
 * `now_mono_ns`. 0; or -errno, with the reason in `why` but for -ENOMEM, and the view is of no use.
 */
int ng_evidence_read(struct ng_flight_reader *reader, struct ng_view *view, const char *path,
                     int64_t now_mono_ns, struct ng_evidence_file *ret_file, char *why,
                     size_t why_bytes);

#define NG_EVIDENCE_INCIDENTS 64u

/* Files to read, in the order in which they are read. */
struct ng_evidence_paths {
    char **paths;
    size_t count, room;
    /* What guards have left in the folders of what they judged, the newest first of each; up to
     * NG_EVIDENCE_INCIDENTS. */
    struct ng_incident *incidents;
    size_t incident_count;
};

/* What was found of all of them. */
struct ng_evidence {
    int64_t stalled_ns; /* the shortest time after which a job calls work stuck; 0 none told */
    size_t usable, unusable;
    bool incident; /* some of it is written only where there was one, or cannot tell */
};

/* Called for each input that cannot be used, with the reason; never by two threads at a time. */
typedef void ng_evidence_refuse_fn(void *context, const char *path, const char *why);

/*
 * Add a file, or those files of a folder that are evidence by their names. What cannot be used is
 * refused. 0 or -ENOMEM.
 */
int ng_evidence_add_path(struct ng_evidence_paths *paths, const char *path,
                         ng_evidence_refuse_fn *refuse, void *context);
/* The files of PyTorch's recorder last: of a rank that other evidence tells more of, they are left
 * out. 0 or -ENOMEM. */
int ng_evidence_order(struct ng_evidence_paths *paths);
void ng_evidence_paths_fini(struct ng_evidence_paths *paths);

/*
 * The runs that have left black boxes in a folder, `room` at most, if they cannot be one: a rank is
 * in several of them. How many; 0: what is there, is judged together.
 */
int ng_evidence_runs(const char *folder, struct ng_local_run *ret_runs, uint32_t room);

/* Leave out the black boxes in `folder` that are of another run, and what was said of others. 0 or
 * -ENOMEM. */
int ng_evidence_keep_run(struct ng_evidence_paths *paths, const char *folder, uint64_t run);

/*
 * Read all files, by as many threads as there are processors, into the view of the digest, in their
 * order. Of several jobs, as in a folder that was used again, only the newest is in it, by the
 * names and times that the files tell; what is left out is refused, in one call for each job. 0 or
 * -ENOMEM.
 */
int ng_evidence_gather(const struct ng_evidence_paths *paths, struct ng_view_merge *merge,
                       ng_evidence_refuse_fn *refuse, void *context,
                       struct ng_evidence *ret_evidence);

#endif
