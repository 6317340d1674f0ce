/*
 * How ranks end, and in which order, as the process above them sees it.
 *
 * A rank that is killed cannot tell, and those that could are ended by their launcher in the next
 * instant. What is seen is put into their black boxes, where it is evidence.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_RANK_ENDS_H
#define NCCLGUARD_TOOLS_JOBS_RANK_ENDS_H

#include "tools/jobs/job_folders.h"

struct ng_rank_ends;

/* `dir`: the folder of black boxes that the user has named; NULL none. NULL: no memory. */
struct ng_rank_ends *ng_rank_ends_create(const char *dir);
void ng_rank_ends_destroy(struct ng_rank_ends *ends);

/* Watch the processes whose black boxes have come since. */
void ng_rank_ends_look(struct ng_rank_ends *ends, const struct ng_job_folders *folders);

/* Wait until `fd` can be read, `timeout_ms` at most (-1: for ever), and take note of every end
 * meanwhile. */
void ng_rank_ends_wait(struct ng_rank_ends *ends, int fd, int timeout_ms);

#endif
