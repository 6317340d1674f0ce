/*
 * A thread that writes the log for one that must not be held up by it.
 *
 * A log in a file may be of a file server that is dead, and then whoever writes to it, or opens it,
 * does not come back. The incident thread must, so its lines go by way of this one: it waits for
 * each, but not for long. Where nothing of the kind can happen there is no such thread.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_LOG_WRITER_H
#define NCCLGUARD_CORE_RUNTIME_LOG_WRITER_H

/* Start the thread, where the log is a file. 0 or -errno. */
int ng_log_writer_start(void);

/* Lines of the calling thread go by way of the writer from now on; of one thread at a time. */
void ng_log_writer_adopt(void);

/* Nobody is left to be guarded: the thread ends, and everybody writes for himself. */
void ng_log_writer_quit(void);

/* In a forked child. Async-signal-safe. */
void ng_log_writer_after_fork(void);

#endif
