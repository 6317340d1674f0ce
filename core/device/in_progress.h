/*
 * The program's own nonblocking communicators, while a call on them is in progress.
 *
 * The program sees what NCCL shows, untouched: it asks for the state until the call is done, and
 * until then may call nothing else but an abort. So the call stays visible in the slot of its
 * thread, its records stay entered, and deadlines hold as for a call that blocks; what it has put
 * on a stream gets its end event when the program hears that NCCL has launched it. A thread that
 * goes on to another communicator meanwhile is seen there instead.
 *
 * Program threads; nothing waits.
 */
#ifndef NCCLGUARD_CORE_DEVICE_IN_PROGRESS_H
#define NCCLGUARD_CORE_DEVICE_IN_PROGRESS_H

struct ng_comm;
struct ng_thread;
struct ng_async_op;

/* A call on `comm` is in progress. Instead of ng_thread_leave. */
void ng_in_progress_stay(struct ng_comm *comm, struct ng_thread *thread);

/* The same of the communicator that the slot names, where it names one: of calls that make some, or
 * close a NCCL group. */
void ng_in_progress_stay_here(struct ng_thread *thread);

/* What it puts on `stream`: a work that is filled in. Takes it. */
void ng_in_progress_keep(struct ng_comm *comm, struct ng_async_op *work, void *stream);

/* The program has heard the state of the communicator: what was in progress may be done. */
void ng_in_progress_heard(struct ng_comm *comm, int state);

/* The communicator ends, whatever was in progress. */
void ng_in_progress_end(struct ng_comm *comm);

#endif
