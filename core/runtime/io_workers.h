/*
 * Worker threads for what may never return: files, and mapped pages of files, on a file system
 * whose server is dead, and questions to the driver of a device.
 *
 * The incident thread must reach a verdict whatever hangs, so it hands such work over and decides
 * how long to wait for it. Tasks of one place run one at a time, in the order in which they were
 * added; a task that hangs occupies a thread and blocks only its own place. The threads exist from
 * the start: creating one needs malloc, in which the program may be stuck.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_IO_WORKERS_H
#define NCCLGUARD_CORE_RUNTIME_IO_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

/* If this many tasks hang at once, no task runs any more. When a device is in trouble, the driver
 * (NVML), reading of its memory, and a file of the program may hang together: one is left then, for
 * the evidence. */
#define NG_IO_WORKERS_THREADS 4
#define NG_IO_WORKERS_MAX     32

/* A place of tasks: reading the files of the program and its libraries. */
#define NG_IO_WORKERS_PROGRAMS "the files of the program"

typedef void ng_io_work_fn(void *context);

/* Start the threads. 0 or -errno. */
int ng_io_workers_start(void);

/*
 * Call `run` with `context` on one of the worker threads; `place` names what it may hang on, and is
 * not kept. 0; -EAGAIN: too many tasks are waiting, and it is not called. Guard threads; never
 * waits.
 */
int ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context);

/*
 * The caller tracks its tasks in a word with one bit per task: it sets the bit before it adds the
 * task, and the task ends the bit with this as its last action.
 */
void ng_io_workers_end(_Atomic uint32_t *under_way, uint32_t bit);

/* Wait until none of `bits` is under way, and keep up the heartbeat meanwhile. False: one still is
 * at `until_mono_ns`. */
bool ng_io_workers_await(_Atomic uint32_t *under_way, uint32_t bits, int64_t until_mono_ns);

/* No program thread is left to guard: idle worker threads end. */
void ng_io_workers_finish(void);

/* In a forked child: tasks under way belong to the parent. */
void ng_io_workers_after_fork(void);

#endif
