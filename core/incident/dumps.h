/*
 * When this process writes its evidence: at a deadline, and where somebody asks for it.
 *
 * Incident thread alone. Other threads write (core/evidence/evidence.h), as the folder may hang.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_DUMPS_H
#define NCCLGUARD_CORE_INCIDENT_DUMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/util/clock.h"

/* For a verdict to be on disk. */
#define NG_DUMPS_WRITE_NS (2 * NG_S)

/* How long our own evidence is waited for: others wait for it no longer, either. */
int64_t ng_dumps_bound_ns(void);

/*
 * Our own evidence; and where the verdict is reached on another host, the first of those who live
 * here writes that of its dead, too. False: the folder hangs, and no other file will come there.
 */
bool ng_dumps_write_here(const struct ng_incident *incident, bool claimant);

/* Dump ourselves into `folder`, as far as it can be had; nobody waits for it. `rank`: only if that
 * is ours; -1 whoever. */
void ng_dumps_on_request(const char *folder, int rank);

/* Write this process's evidence into `folder` ("" the configured one), because somebody asked for
 * it. 0, with what cannot be written there logged; -ETIMEDOUT: a disk holds it up; -EBUSY: it holds
 * up those that were asked for before; or -errno. Incident thread. */
int ng_dumps_write(const char *folder);

/* What was asked for through NCCLGUARD_DUMP_PIPE. */
void ng_dumps_read_pipe(void);

/* In a forked child. */
void ng_dumps_after_fork(void);

#endif
