/*
 * Logs NCCL results other than success: the result, the call and communicator, and what it may
 * mean.
 *
 * Any thread; takes no lock, keeps errno. Identical failures are counted, and logged the first,
 * tenth, hundredth time and so on.
 */
#ifndef NCCLGUARD_CORE_COMM_FAILURE_H
#define NCCLGUARD_CORE_COMM_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;
struct ng_nccl;

/*
 * A call of the program returned `result`. `comm` NULL: no communicator; `seq` 0: no collective.
 * Silent if the program or the guard has aborted the communicator meanwhile, since the call
 * returned because of that.
 */
void ng_failure_tell(const struct ng_call *call, const struct ng_comm *comm, uint64_t seq,
                     int result);

/* The same for a call that is only forwarded, by its name without "nccl"; `comm` NULL: none, or not
 * known. */
void ng_failure_tell_passed(const char *name, const struct ng_nccl *nccl,
                            const struct ng_comm *comm, int result);

/* Log a call, by its name without "nccl", on a communicator that the program has ended itself:
 * `result` is returned without calling NCCL. */
void ng_failure_tell_ended(const char *name, const void *handle, int result);

/* NCCL reports `error` on a communicator asynchronously. */
void ng_failure_tell_async(const struct ng_nccl *nccl, const struct ng_comm *comm, int error);

/* Is the occurrence with this number, from 1, one that is logged? */
bool ng_failure_is_power_of_ten(uint64_t count);

/* The usual meaning of a result, and where to look; "" none known. */
const char *ng_failure_hint(int result);

#endif
