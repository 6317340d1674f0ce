/*
 * One scrape of `ncclguard exporter`: reading the jobs.
 */
#ifndef NCCLGUARD_TOOLS_CMD_EXPORTER_H
#define NCCLGUARD_TOOLS_CMD_EXPORTER_H

#include "tools/jobs/jobs.h"

struct ng_exporter {
    struct ng_jobs_of_host where;
    struct ng_job *store_job; /* the job whose ranks a store of several hosts has; NULL none */
    bool store_lost;          /* the store did not answer the last scrape */
};

/*
 * Read the jobs as they are now, and write their metrics to `fd`. What cannot be read is counted
 * and left out; a line on stderr says when the store does not answer, and when it does again.
 * Begins no further run after five seconds, besides two for the store. 0 or -errno. One thread at a
 * time.
 */
int ng_exporter_scrape(struct ng_exporter *exporter, int fd);

#endif
