/*
 * Memory that is about to be freed and is still registered: the free requests its deregistration,
 * and the next thread that holds the table deregisters it.
 *
 * To deregister, NCCL asks the peers of the registration to release it, and waits for their answer
 * without a bound: for a stopped peer, until it continues. A free of the program must not block
 * like this, so it hands the request to a thread of the guard, waits for a moment, and continues
 * without it.
 *
 * Internal to the guard's registrations; the program's side is ng_registrations_forget
 * (core/registration/registrations.h). "Held" is as in core/registration/registration_table.h.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_FREES_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_FREES_H

#include <stdbool.h>

struct ng_comm;
struct ng_registration_table;

/* Held: deregister what frees have requested. In a call on the communicator, or as its guest.
 * `waits`: for the device, as calls do. False: the device still uses some of it, or the
 * communicator is cut off. */
bool ng_registration_frees_catch_up(struct ng_comm *comm, struct ng_registration_table *table,
                                    bool waits);

/* Held: the communicator no longer exists, so nothing is left to deregister. Waiting frees
 * proceed. */
void ng_registration_frees_forget(struct ng_registration_table *table);

/* Held: NCCL will free all of it, but has not done so yet: waiting frees proceed, and are not told
 * that the registrations have ended. */
void ng_registration_frees_drop_all(struct ng_registration_table *table);

/* Held, before releasing the table: the same if the communicator was aborted meanwhile. Its abort
 * may not have waited. */
void ng_registration_frees_drop_cut_off(const struct ng_comm *comm,
                                        struct ng_registration_table *table);

/* Wake the thread: there is something to deregister. False: there is no such thread. Any thread. */
bool ng_registration_frees_ask_thread(void);

/* No thread is left that could free anything: end it. Any thread. */
void ng_registration_frees_quit(void);

#endif
