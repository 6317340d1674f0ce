/*
 * A thread that writes the log on behalf of a thread that must not block on it.
 *
 * A log file may be on a dead file server, and then a thread that writes or opens it never returns.
 * The incident thread must not hang, so its lines go through this thread: it waits for each line,
 * but only briefly. If the log is not a file, there is no such thread.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_LOG_WRITER_H
#define NCCLGUARD_CORE_RUNTIME_LOG_WRITER_H

/* Start the thread, if the log is a file. 0 or -errno. */
int ng_log_writer_start(void);

/* From now on lines of the calling thread go through the writer; one thread at a time can use
 * it. */
void ng_log_writer_adopt(void);

/* No program thread is left to guard: the thread ends, and each thread writes its own lines. */
void ng_log_writer_quit(void);

#endif
