/*
 * When this process writes its evidence: at a deadline and on request.
 *
 * Incident thread alone. Other threads do the writing (core/evidence/evidence.h), since the folder
 * may hang.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_DUMPS_H
#define NCCLGUARD_CORE_INCIDENT_DUMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/util/clock.h"

/* Time for a verdict to reach the disk. */
#define NG_DUMPS_WRITE_NS (2 * NG_S)

/* How long this process waits for its own evidence; other processes wait no longer for it. */
int64_t ng_dumps_bound_ns(void);

/*
 * Write the evidence of this process. If the verdict is reached on another host, the first live
 * process of this host also writes the evidence of its dead processes. False: the folder hangs, so
 * no other file will be written there.
 */
bool ng_dumps_write_here(const struct ng_incident *incident, bool claimant);

/* Dump this process into `folder`, best effort and without waiting. `rank`: only if it is the rank
 * of this process; -1 any. */
void ng_dumps_on_request(const char *folder, int rank);

/* Write this process's evidence into `folder` ("" the configured one) on request. 0, with write
 * failures logged; -ETIMEDOUT: the disk does not answer; -EBUSY: earlier requests are still
 * blocked; or -errno. Incident thread. */
int ng_dumps_write(const char *folder);

/* Serve requests from NCCLGUARD_DUMP_PIPE. */
void ng_dumps_read_pipe(void);

#endif
