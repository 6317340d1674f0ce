/* Functions of known names that wait for a byte on a descriptor: 0, or what went wrong. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_STUCK_H
#define NCCLGUARD_TESTS_UNIT_CORE_STUCK_H

#include <sys/cdefs.h>

__BEGIN_DECLS

/* Calls stuck_in_read, through a function that is not exported. */
int stuck_simply(int fd);

/* Recursion of `depth`, whose frames have no constant size. */
int stuck_deeply(int fd, int depth);

/* In a signal handler, which interrupted stuck_interrupted. */
int stuck_in_handler(int fd);

/* With all signals blocked. */
int stuck_unreachably(int fd);

/* By poll, which no signal handler restarts. */
int stuck_in_poll(int fd);

/* A file of its own, without its symbol table; built from stuck_stripped.c. It calls back from a
 * function without a name. */
typedef int stuck_call(int fd);
int stuck_through_stripped(stuck_call *call, int fd);

__END_DECLS

#endif
