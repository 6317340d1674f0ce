/*
 * Threads for what may never come back: files, and mapped pages of files, on a file system whose
 * server is dead.
 *
 * The incident thread must get through to the verdict whatever hangs, so it hands such work over
 * and waits for it as long as it likes. Tasks of one place are done in the order in which they were
 * added, one at a time; one that hangs keeps a thread, and holds up its own place alone. The
 * threads are there from the start: making one needs malloc, which the program may be stuck in.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_IO_WORKERS_H
#define NCCLGUARD_CORE_RUNTIME_IO_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

/* So many may hang at once before nothing is done any more. */
#define NG_IO_WORKERS_THREADS 3
#define NG_IO_WORKERS_MAX     32

/* A place of tasks: reading the files of the program and its libraries. */
#define NG_IO_WORKERS_PROGRAMS "the files of the program"

typedef void ng_io_work_fn(void *context);

/* Start the threads. 0 or -errno. */
int ng_io_workers_start(void);

/*
 * Have `run` called with `context`, on a thread of these; `place` tells where it may hang, and is
 * not kept. 0; -EAGAIN: too many are waiting already, and it is not called. Guard threads; never
 * waits.
 */
int ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context);

/*
 * What is under way for somebody, a bit for each task, in a word of its own: set one before the
 * task is added, and have the task end it, as the last thing that it does.
 */
void ng_io_workers_end(_Atomic uint32_t *under_way, uint32_t bit);

/* Wait until none of `bits` is under way, with a heartbeat meanwhile. False: one is, at
 * `until_mono_ns`. */
bool ng_io_workers_await(_Atomic uint32_t *under_way, uint32_t bits, int64_t until_mono_ns);

/* Nobody is left to be guarded: threads that rest end. */
void ng_io_workers_finish(void);

/* In a forked child: what was under way is the parent's. */
void ng_io_workers_after_fork(void);

#endif
