/*
 * The program's own nonblocking communicators, while a call on them is in progress.
 *
 * The program sees NCCL's answers unchanged: it polls the state until the call is done, and until
 * then may call nothing but an abort. So the call stays visible in the slot of its thread, its
 * records stay entered, and deadlines apply as for a blocking call. Work that it puts on a stream
 * gets its end event when NCCL reports to the program that it has been launched. If the thread
 * meanwhile uses another communicator, its slot shows that call instead.
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

/* The same for the communicator that the slot names, if any: for calls that create communicators or
 * end a NCCL group. */
void ng_in_progress_stay_here(struct ng_thread *thread);

/* Keep the filled-in work that the call puts on `stream`. Takes ownership of it. */
void ng_in_progress_keep(struct ng_comm *comm, struct ng_async_op *work, void *stream);

/* The program has received the state of the communicator: the call in progress may be done. */
void ng_in_progress_note_state(struct ng_comm *comm, int state);

/* The communicator ends, whatever is in progress. */
void ng_in_progress_end(struct ng_comm *comm);

#endif
