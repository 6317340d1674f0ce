/*
 * Requests that a program thread makes of the guard and waits for: exchange of small data, a
 * monitored barrier, a dump.
 *
 * Not part of the life of a call. Only the incident thread uses the board, so it does the work, in
 * steps between its other duties; the requesting thread sleeps on a futex until the request is done
 * or its deadline has passed.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_PROGRAM_REQUESTS_H
#define NCCLGUARD_CORE_INCIDENT_PROGRAM_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"

struct ng_comm;

/*
 * Program threads. Each waits until `deadline_mono_ns` or, if the incident thread is busy with an
 * incident, up to NG_PROGRAM_REQUEST_GRACE_NS longer. 0, or
 *   -ETIMEDOUT  it was not completed in time
 *   -EOPNOTSUPP this process shares nothing with others
 *   -EIO        the store did not answer until the deadline
 *   -EBUSY      too many threads wait
 *   -ESHUTDOWN  the process is ending
 * or the errors named at each function.
 */
#define NG_PROGRAM_REQUEST_GRACE_NS (2 * NG_S)

/* Put `bytes` (up to NG_BOARD_VALUE_MAX) under `key` (1 to NG_BOARD_KEY_MAX bytes). -EEXIST:
 * another process has put different data there; -EMSGSIZE, -EINVAL, -ENOSPC. */
int ng_program_request_put(const char *key, const void *data, size_t bytes,
                           int64_t deadline_mono_ns);

/* The same, but the entry expires after `keep_ns` even if this process lives on. */
int ng_program_request_put_for(const char *key, const void *data, size_t bytes, int64_t keep_ns,
                               int64_t deadline_mono_ns);

/* Wait until there is an entry under each of the keys "<prefix><number>", `count` numbers from
 * `first`. */
int ng_program_request_meet(const char *prefix, uint32_t first, uint32_t count,
                            int64_t deadline_mono_ns);

/* Wait until there is an entry under `key`. -EMSGSIZE: it is larger than `room` and nothing is
 * copied; *ret_bytes is the size then, too. */
int ng_program_request_get(const char *key, void *ret_data, size_t room, size_t *ret_bytes,
                           int64_t deadline_mono_ns);

/*
 * Wait until all ranks of the group have called this as often as this one. -ETIMEDOUT: *ret_missing
 * ranks have not arrived, as far as is known; the first `room` of them are in `ranks`, as global
 * ranks or, if that is not known, as ranks in the group. -EINVAL: the group's size or this rank is
 * not known.
 */
int ng_program_request_barrier(struct ng_comm *comm, int64_t deadline_mono_ns, int *ranks,
                               uint32_t room, uint32_t *ret_missing);

/* Has a rank of this group on this host aborted its communicator, or ended without destroying it?
 * As far as the board tells. */
int ng_program_request_quitters(uint64_t group_id, int64_t deadline_mono_ns, bool *ret_any);

/* Write this process's evidence into `folder` ("" the configured one). -ENAMETOOLONG. */
int ng_program_request_dump(const char *folder, int64_t deadline_mono_ns);

/* ---- Incident thread ---- */

/* Take one step for each request that is due; `news`: the board has changed, so all are due.
 * Returns the milliseconds until the next is due; -1 there is none. */
int ng_program_request_serve(bool news);

/* The thread ends: no request is served any more. */
void ng_program_request_close(void);

/* In a forked child. */
void ng_program_request_after_fork(void);

#endif
