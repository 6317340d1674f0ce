/*
 * One scrape of `ncclguard exporter`: reading the jobs.
 */
#ifndef NCCLGUARD_TOOLS_CMD_EXPORTER_H
#define NCCLGUARD_TOOLS_CMD_EXPORTER_H

#include "tools/jobs/jobs.h"

struct ng_exporter {
    struct ng_jobs_of_host where;
    struct ng_job *store_job; /* the job whose ranks a store of several hosts has; NULL none */
};

/*
 * Read the jobs as they are now, and write their metrics to `fd`. What cannot be read is counted
 * and left out. Begins no further run after five seconds, besides two for the store. 0 or -errno.
 * One thread at a time.
 */
int ng_exporter_scrape(const struct ng_exporter *exporter, int fd);

#endif
