/*
 * What is about to be freed, and is still registered: asked for by the free, and given back by
 * whoever next holds the table.
 *
 * Inside of the guard's registrations (core/registration/registrations.h) only, where the program's
 * side of it is: ng_registrations_forget. "Held" is as in core/registration/registration_table.h.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_FREES_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_FREES_H

#include <stdbool.h>

struct ng_comm;
struct ng_registration_table;

/* Held: give back what frees have asked for. In a call on the communicator, or as its guest.
 * `waits`: for the device, as calls do. False: it is not through with what is to go, or the
 * communicator is cut off. */
bool ng_registration_frees_catch_up(struct ng_comm *comm, struct ng_registration_table *table,
                                    bool waits);

/* Held: of a communicator that is no more, nothing is left to be given back. Who waits goes on. */
void ng_registration_frees_forget(struct ng_registration_table *table);

/* Held: all of it is NCCL's to free now. It has not yet: a free that waits goes on, and is not told
 * that it is given back. */
void ng_registration_frees_drop_all(struct ng_registration_table *table);

/* Held, on the way out: the same where the communicator was aborted meanwhile. Its abort may not
 * have waited. */
void ng_registration_frees_drop_cut_off(const struct ng_comm *comm,
                                        struct ng_registration_table *table);

#endif
