/*
 * How ranks end, and in which order, as observed by the process above them.
 *
 * A rank that is killed cannot report its end, and its launcher ends the others an instant later.
 * Observed ends are written into the ranks' black boxes, as evidence, and deaths are told to the
 * store of several hosts: nobody else may be left to do that.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_RANK_ENDS_H
#define NCCLGUARD_TOOLS_JOBS_RANK_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/jobs/job_folders.h"
#include "tools/jobs/witness.h"

struct ng_rank_ends;

/* `dir`: the folder of black boxes that the user has set; NULL none. `witness`, which outlives it:
 * how ends are told to other hosts; NULL: they are not. NULL: no memory. */
struct ng_rank_ends *ng_rank_ends_create(const char *dir, const struct ng_witness_options *witness);
void ng_rank_ends_destroy(struct ng_rank_ends *ends);

/* Watch the processes whose black boxes have appeared since the last call. */
void ng_rank_ends_look(struct ng_rank_ends *ends, const struct ng_job_folders *folders);

/*
 * Did the job go on after a verdict of `since_unix_ns`, as far as the black boxes tell: has a rank
 * finished collectives or made a communicator since then, and does none still wait in collective
 * `seq` of group `group_id` (0: the verdict names none)?
 */
bool ng_rank_ends_went_on(const struct ng_rank_ends *ends, int64_t since_unix_ns, uint64_t group_id,
                          uint64_t seq);

/* Wait until `fd` is readable, at most `timeout_ms` (-1: for ever), and record every end
 * meanwhile; deaths are told once those of the same moment are known. */
void ng_rank_ends_wait(struct ng_rank_ends *ends, int fd, int timeout_ms);

/* Tell recorded deaths now. */
void ng_rank_ends_tell(struct ng_rank_ends *ends);

#endif
