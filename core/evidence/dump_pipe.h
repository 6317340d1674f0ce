/*
 * NCCLGUARD_DUMP_PIPE: a FIFO that has this process dump itself when somebody writes to it, as
 * PyTorch's TORCH_NCCL_DEBUG_INFO_PIPE_FILE.
 *
 * It is <prefix><rank>.pipe, or <prefix>unknown_<pid>.pipe where no launcher told the rank; mode
 * 0600. What is written does not matter.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_DUMP_PIPE_H
#define NCCLGUARD_CORE_EVIDENCE_DUMP_PIPE_H

#include <stdbool.h>

/*
 * Have it made, where it is wanted; a FIFO of ours that an earlier run left is used again. Whatever
 * else lies there stays, with a warning, and there is none. Once, when core/runtime/io_workers.h
 * has started; never waits.
 */
void ng_dump_pipe_start(void);

/* Did somebody write to it since the last time? Incident thread; never waits. */
bool ng_dump_pipe_asked(void);

/* Remove it. Incident thread, at the end. */
void ng_dump_pipe_finish(void);

/* In a forked child: it is the parent's. Async-signal-safe. */
void ng_dump_pipe_after_fork(void);

#endif
