/*
 * Asks NCCL's RAS, the service that NCCL 2.24 and newer runs in every process of a job.
 */
#ifndef NCCLGUARD_STORE_RAS_RAS_CLIENT_H
#define NCCLGUARD_STORE_RAS_RAS_CLIENT_H

#include <stdint.h>

#include "core/view/ras.h"

/* Where NCCL listens unless NCCL_RAS_ADDR says otherwise. */
#define NG_RAS_ADDRESS "localhost:28028"

/*
 * Connect to `address` ("host:port"; the host is a numeric address or localhost: names are not
 * looked up), ask for the state of the job, and read the answer, until `deadline_mono_ns`. The
 * processes of a host share the port, so where one does not greet (it is frozen), another
 * connection is tried. Nothing but the greeting is sent to a service that does not greet as RAS
 * does.
 *
 * 0, and then the caller frees ret_answer->arena. -ECONNREFUSED and similar: nobody listens;
 * -EINVAL: no such address; -ETIMEDOUT; -EBADMSG: what came is no answer of RAS; -EMSGSIZE: it is
 * too long; -ENOMEM. One question at a time, from a thread that may wait and that blocks SIGPIPE;
 * no malloc.
 */
int ng_ras_ask(const char *address, int64_t deadline_mono_ns, struct ng_ras_answer *ret_answer);

#endif
