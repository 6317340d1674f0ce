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
 * a process that says nothing makes no file, and from where the process stands now. If it cannot be
 * opened, one warning says so and stderr is used. `rank` < 0 is left out of the lines.
 */
void ng_log_init(enum ng_log_level level, const char *file, int rank);

bool ng_log_enabled(enum ng_log_level level);

/* Is the log a file, which may be of a file server that is dead? */
bool ng_log_may_hang(void);

/*
 * Whoever is to see each line first, such as core/runtime/log_writer.h: false has the line written
 * by the thread that logs it, true says that it has been seen to. NULL nobody.
 */
typedef bool ng_log_take_fn(const char *line, size_t length);
void ng_log_hand_to(ng_log_take_fn *take);

/* Write a line that was taken. */
#define NG_LOG_LINE_BYTES 1152
void ng_log_write(const char *line, size_t length);

/* In a forked child: its lines go to a file of its own. Async-signal-safe. */
void ng_log_after_fork(void);

/* One line without its newline; longer than about 1,000 bytes is cut. This host and the time stand
 * behind it: fixed words can be searched for from its beginning. */
__attribute__((format(printf, 2, 3))) void ng_log(enum ng_log_level level, const char *format, ...);

/* A file's name as options have it: %r `rank`, %p this process, %h this host. Always ended. */
void ng_log_expand(const char *pattern, int rank, char *ret_path, size_t bytes);

#endif
