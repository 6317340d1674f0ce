/*
 * The guard of this process, as far as its threads need it: there is no library to tell them from
 * the program's.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_PLAIN_THREADS_H
#define NCCLGUARD_TESTS_UNIT_CORE_PLAIN_THREADS_H

#include <sys/cdefs.h>

__BEGIN_DECLS

/* The threads of core/runtime/io_workers.h run from here on. */
void start_tasks(void);

/* The log's writer writes for the calling thread. */
void start_log_writer(void);

/* The FIFO that asks for a dump is there, as far as it could be made. */
void make_dump_pipe(const char *prefix, int rank);

__END_DECLS

#endif
