/*
 * What is told of results of NCCL that are no success: which, of what, and what it may mean.
 *
 * Any thread; takes no lock, keeps errno. Identical ones are counted, and told of at the first, the
 * tenth, the hundredth time.
 */
#ifndef NCCLGUARD_CORE_COMM_FAILURE_H
#define NCCLGUARD_CORE_COMM_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;
struct ng_nccl;

/*
 * A call of the program returned this. `comm` NULL: of no communicator; `seq` 0: no collective.
 * Silent where the communicator has been aborted meanwhile, by the program or the guard: that is
 * what the call returned for.
 */
void ng_failure_tell(const struct ng_call *call, const struct ng_comm *comm, uint64_t seq,
                     int result);

/* The same of a call that is only forwarded, by its name without "nccl"; `comm` NULL: of none, or
 * not known. */
void ng_failure_tell_passed(const char *name, const struct ng_nccl *nccl,
                            const struct ng_comm *comm, int result);

/* A call of the program, by its name without "nccl", on a communicator that it has ended itself:
 * what it returns without NCCL. */
void ng_failure_tell_ended(const char *name, const void *handle, int result);

/* NCCL reports this of a communicator without being called. */
void ng_failure_tell_async(const struct ng_nccl *nccl, const struct ng_comm *comm, int error);

/* Is the time with this number, from 1, one of those that are told of? */
bool ng_failure_is_power_of_ten(uint64_t count);

/* What a result mostly means, and where to look; "" nothing is known. */
const char *ng_failure_hint(int result);

#endif
