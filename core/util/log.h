/*
 * The log: one line, one write(2), never more than the configured level.
 *
 * Any thread, any time after ng_log_init; before it, errors and warnings go to stderr. Never
 * allocates, never takes a lock, keeps errno.
 */
#ifndef NCCLGUARD_CORE_UTIL_LOG_H
#define NCCLGUARD_CORE_UTIL_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum ng_log_level { NG_LOG_OFF, NG_LOG_ERROR, NG_LOG_WARN, NG_LOG_INFO, NG_LOG_DEBUG };

/*
 * `file` NULL means stderr; %r, %p and %h in it are replaced. It is opened with the first line, so
 * a process that logs nothing creates no file; relative paths refer to the current working
 * directory at the time of this call. If it cannot be opened, one warning says so and stderr is
 * used. `rank` < 0 is left out of the lines.
 */
void ng_log_init(enum ng_log_level level, const char *file, int rank);

/* From now on. Any thread. A forked child has the level of ng_log_init again. */
void ng_log_set_level(enum ng_log_level level);

bool ng_log_enabled(enum ng_log_level level);

/* Is the log a file, which may be on a dead file server? */
bool ng_log_may_hang(void);

/*
 * Function that gets each line first, such as that of core/runtime/log_writer.h. False: the thread
 * that logs the line writes it; true: the line was taken over. NULL: none.
 */
typedef bool ng_log_take_fn(const char *line, size_t length);
void ng_log_hand_to(ng_log_take_fn *take);

/* Write a line that was taken over. */
#define NG_LOG_LINE_BYTES 1152
void ng_log_write(const char *line, size_t length);

/* In a forked child: its lines go to a separate file. Async-signal-safe. */
void ng_log_after_fork(void);

/* One line without its newline; longer than about 1,000 bytes is cut. The host and the time come
 * after the text, so that a search can match the fixed words at its beginning. */
__attribute__((format(printf, 2, 3))) void ng_log(enum ng_log_level level, const char *format, ...);

/* Expand a file name from an option: %r `rank`, %p this process, %h this host. Always
 * NUL-terminated. */
void ng_log_expand(const char *pattern, int rank, char *ret_path, size_t bytes);

#endif
