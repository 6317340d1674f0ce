/*
 * NCCLGUARD_DUMP_PIPE: a FIFO that triggers a dump of this process when written to, like PyTorch's
 * TORCH_NCCL_DEBUG_INFO_PIPE_FILE.
 *
 * Its name is <prefix><rank>.pipe, or <prefix>unknown_<pid>.pipe if no launcher gave the rank; mode
 * 0600. The written content does not matter.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_DUMP_PIPE_H
#define NCCLGUARD_CORE_EVIDENCE_DUMP_PIPE_H

#include <stdbool.h>

/*
 * Request its creation, if configured; our own FIFO from an earlier run is reused. Any other file
 * of that name is kept, with a warning, and there is no FIFO. Once, after core/runtime/io_workers.h
 * has started; never waits.
 */
void ng_dump_pipe_start(void);

/* Was it written to since the last call? Incident thread; never waits. */
bool ng_dump_pipe_asked(void);

/* Remove it. Incident thread, at the end. */
void ng_dump_pipe_finish(void);

/* In a forked child: the FIFO stays the parent's. Async-signal-safe. */
void ng_dump_pipe_after_fork(void);

#endif
