/*
 * What a thread of the program asks of the guard, and waits for: exchange of small data, a
 * monitored barrier, a dump.
 *
 * Beside the life of a call. Only the incident thread talks to the board, so it does the work, in
 * steps between its other duties; the asking thread sleeps on a futex until it is done or its
 * deadline has passed.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_PROGRAM_REQUESTS_H
#define NCCLGUARD_CORE_INCIDENT_PROGRAM_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"

struct ng_comm;

/*
 * Program threads. Each waits until `deadline_mono_ns`, and where the incident thread is at an
 * incident for NG_PROGRAM_REQUEST_GRACE_NS beyond it, never longer. 0, or
 *   -ETIMEDOUT  it did not come about
 *   -EOPNOTSUPP this process shares nothing with others
 *   -EIO        the store did not answer until the deadline
 *   -EBUSY      too many threads wait
 *   -ESHUTDOWN  the process is ending
 * or what the function itself names.
 */
#define NG_PROGRAM_REQUEST_GRACE_NS (2 * NG_S)

/* Put `bytes` (up to NG_BOARD_VALUE_MAX) under `key` (1 to NG_BOARD_KEY_MAX bytes). -EEXIST:
 * another process has put something else there; -EMSGSIZE, -EINVAL, -ENOSPC. */
int ng_program_request_put(const char *key, const void *data, size_t bytes,
                           int64_t deadline_mono_ns);

/* The same, for `keep_ns` only: it goes then, though this process lives on. */
int ng_program_request_put_for(const char *key, const void *data, size_t bytes, int64_t keep_ns,
                               int64_t deadline_mono_ns);

/* Wait until something is there under each of the keys "<prefix><number>", `count` numbers from
 * `first`. */
int ng_program_request_meet(const char *prefix, uint32_t first, uint32_t count,
                            int64_t deadline_mono_ns);

/* Wait until somebody has put something there. -EMSGSIZE: more than `room`, and nothing is copied;
 * *ret_bytes has the size then, too. */
int ng_program_request_get(const char *key, void *ret_data, size_t room, size_t *ret_bytes,
                           int64_t deadline_mono_ns);

/*
 * Wait until all ranks of the group have called this as often as this one. -ETIMEDOUT:
 * *ret_missing ranks did not come, as far as is known, and the first `room` of them are in `ranks`:
 * global ranks, or, where one is not known, its rank in the group. -EINVAL: the group's size or
 * this rank is not known.
 */
int ng_program_request_barrier(struct ng_comm *comm, int64_t deadline_mono_ns, int *ranks,
                               uint32_t room, uint32_t *ret_missing);

/* Write this process's evidence into `folder` ("" the configured one). -ENAMETOOLONG. */
int ng_program_request_dump(const char *folder, int64_t deadline_mono_ns);

/* ---- Incident thread ---- */

/* One step for each request that is due; `news`: on the board, all are. Returns in how many
 * milliseconds the next is due; -1 none is there. */
int ng_program_request_serve(bool news);

/* The thread ends: nobody is served any more. */
void ng_program_request_close(void);

/* In a forked child. */
void ng_program_request_after_fork(void);

#endif
