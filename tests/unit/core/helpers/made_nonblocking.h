/*
 * One copy of NCCL whose communicators are nonblocking where they are made so, for tests of what
 * the guard makes of that. C, for core's headers with atomics. After made_begin.
 */
#ifndef NCCLGUARD_TESTS_UNIT_MADE_NONBLOCKING_H
#define NCCLGUARD_TESTS_UNIT_MADE_NONBLOCKING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/cdefs.h>

__BEGIN_DECLS

/* The next `questions` queries of the state return ncclInProgress (-1: all of them), later ones
 * this. */
void made_progress(int questions, int then);
unsigned made_questions(void);                    /* so far */
void made_questions_tell(void (*function)(void)); /* called by each of this thread */

/* What NCCL was handed as configuration last, and how many bytes of it: by its own `size`. */
const void *made_config(size_t *ret_bytes);

/* ncclCommInitRank, with configuration where there is one, and ncclCommInitAll: what the program
 * gets. */
int made_nb_init(void **comm, void *handle, const void *config);
int made_nb_init_all(void **comm, void *handle);
int made_nb_split(void *parent, void **comm, void *handle);
int made_nb_split_later(void *parent,
                        void **comm); /* success, though NCCL has not written the handle yet */
int made_nb_all_reduce(void *comm);   /* NCCL is in progress with it */
int made_nb_state(void *comm, int *ret_state);
bool made_nb_is_converted(const void *comm);
unsigned made_nb_op_inside(void); /* that this thread is seen in; 0 none */
int made_nb_abort(const char *reason);

__END_DECLS

#endif
