/*
 * The log: formats a line on the stack and writes it with one write(2), or hands it over to be
 * written.
 *
 * Entered by any thread. Must never allocate, lock, change errno or use stdio, whose locks a stuck
 * program may hold.
 */
#include "core/util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/descriptor.h"
#include "core/util/memory.h"
#include "core/util/text.h"

#define PATIENCE_MS 200

/* Plain ints; atomics because a thread may log while the rank becomes known, or the level changes.
 */
static _Atomic int log_level = NG_LOG_WARN, first_level = NG_LOG_WARN;
static _Atomic int log_rank = -1;

/* Where the lines go. The first line opens the file; a thread that logs at the same moment opens it
 * for its own line only, so that no thread waits. */
enum file_state { FILE_NONE, FILE_CLOSED, FILE_OPENING, FILE_OPEN, FILE_BAD };
static _Atomic int file_state;                     /* enum file_state */
static struct ng_descriptor log_file = {.fd = -1}; /* valid in state FILE_OPEN */
static char file_pattern[4096] NG_LARGE;           /* absolute; written at start */

/* The file that stderr was at the start. */
static struct {
    bool known, open, is_file;
    dev_t device;
    ino_t inode;
} first_stderr;

static NG_FORGOTTEN _Atomic(ng_log_take_fn *) taker;

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

void ng_log_expand(const char *pattern, int rank, char *ret_path, size_t bytes)
{
    char host[64] = "unknown";
    size_t used = 0;

    gethostname(host, sizeof(host) - 1);
    for (; *pattern && used + 1 < bytes; pattern++) {
        int written = 0;
        if (pattern[0] == '%' && pattern[1] == 'r')
            written = snprintf(ret_path + used, bytes - used, "%d", rank);
        else if (pattern[0] == '%' && pattern[1] == 'p')
            written = snprintf(ret_path + used, bytes - used, "%d", (int)getpid());
        else if (pattern[0] == '%' && pattern[1] == 'h')
            written = snprintf(ret_path + used, bytes - used, "%s", host);
        if (written > 0) {
            used = used + (size_t)written < bytes ? used + (size_t)written : bytes - 1;
            pattern++;
        } else {
            ret_path[used++] = *pattern;
        }
    }
    ret_path[used] = '\0';
}

void ng_log_init(enum ng_log_level level, const char *file, int rank)
{
    size_t used = 0;
    struct stat status;

    first_stderr.open = fstat(STDERR_FILENO, &status) == 0;
    if (first_stderr.open) {
        first_stderr.device = status.st_dev;
        first_stderr.inode = status.st_ino;
        first_stderr.is_file = S_ISREG(status.st_mode);
    }
    first_stderr.known = true;

    log_level = first_level = (int)level;
    log_rank = rank;
    if (!file || !*file)
        return;
    /* The program may change its folder before the first line. */
    if (file[0] != '/' && getcwd(file_pattern, sizeof(file_pattern) - 1)) {
        used = strlen(file_pattern);
        file_pattern[used++] = '/';
    }
    snprintf(file_pattern + used, sizeof(file_pattern) - used, "%s", file);
    file_state = FILE_CLOSED;
}

bool ng_log_may_hang(void)
{
    return file_state != FILE_NONE || first_stderr.is_file;
}

void ng_log_hand_to(ng_log_take_fn *take)
{
    atomic_store_explicit(&taker, take, memory_order_release);
}

void ng_log_after_fork(void)
{
    log_level = first_level;
    if (file_state == FILE_NONE)
        return;
    if (file_state == FILE_OPEN)
        ng_descriptor_close(&log_file);
    file_state = FILE_CLOSED;
}

void ng_log_set_level(enum ng_log_level level)
{
    log_level = (int)level;
}

bool ng_log_enabled(enum ng_log_level level)
{
    return (int)level <= log_level && level != NG_LOG_OFF;
}

/*
 * A pipe closed at the other end must not raise SIGPIPE in the program's thread, nor a limit on
 * file sizes SIGXFSZ. A full pipe without a reader must not block a thread for long: then the line
 * is dropped.
 */
static void write_quietly(int fd, const char *line, size_t length)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    sigset_t ours, before, pending_before;

    if (poll(&room, 1, PATIENCE_MS) == 0)
        return;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigpending(&pending_before);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    if (write(fd, line, length) < 0 && (errno == EPIPE || errno == EFBIG)) {
        struct timespec at_once = {0, 0};
        sigdelset(&ours, errno == EPIPE ? SIGXFSZ : SIGPIPE);
        if (!sigismember(&pending_before, errno == EPIPE ? SIGPIPE : SIGXFSZ))
            sigtimedwait(&ours, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A separate function, so that only the first line needs stack for a path. */
static __attribute__((noinline)) int open_file(bool tell)
{
    char path[sizeof(file_pattern)];

    ng_log_expand(file_pattern, log_rank, path, sizeof(path));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0 && tell)
        ng_log(NG_LOG_WARN,
               "cannot open the log file %s (NCCLGUARD_LOG_FILE): %s; logging to stderr", path,
               strerror(errno));
    return fd;
}

/* The descriptor for a line; *ret_close: it is for this line only. */
static int choose_file(bool *ret_close)
{
    int state = FILE_CLOSED;

    *ret_close = false;
    if (atomic_compare_exchange_strong(&file_state, &state, FILE_OPENING)) {
        int fd = open_file(false);
        if (fd >= 0)
            log_file = ng_descriptor_keep(fd);
        /* From here on the warning goes to stderr. */
        atomic_store_explicit(&file_state, fd >= 0 ? FILE_OPEN : FILE_BAD, memory_order_release);
        if (fd < 0)
            open_file(true);
        state = file_state;
    }
    if (state == FILE_OPEN && ng_descriptor_ours(&log_file))
        return log_file.fd;
    if (state == FILE_OPENING || state == FILE_OPEN) {
        /* Another thread is opening it, or the program has closed it. */
        int fd = open_file(false);
        *ret_close = fd >= 0;
        if (fd >= 0)
            return fd;
    }
    return STDERR_FILENO;
}

/*
 * A program that has closed its stderr may get the number again for its own file or socket, which a
 * line of ours would damage. If it has redirected stderr (to a daemon's log), our lines go there.
 */
static bool is_stderr(void)
{
    struct stat now;

    if (!first_stderr.known)
        return true;
    if (fstat(STDERR_FILENO, &now) != 0)
        return false;
    if (first_stderr.open && now.st_dev == first_stderr.device && now.st_ino == first_stderr.inode)
        return true;
    if (S_ISREG(now.st_mode))
        return fcntl(STDERR_FILENO, F_GETFL) & O_APPEND;
    return first_stderr.open || S_ISCHR(now.st_mode);
}

void ng_log_write(const char *line, size_t length)
{
    bool close_after;
    int before;

    /* A thread that the program cancels in here would never release what it holds. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    int fd = choose_file(&close_after);
    if (fd != STDERR_FILENO || is_stderr())
        write_quietly(fd, line, length);
    if (close_after)
        close(fd);
    pthread_setcancelstate(before, NULL);
}

void ng_log(enum ng_log_level level, const char *format, ...)
{
    char line_text[NG_LOG_LINE_BYTES] = "", end_text[128] = "", host[65] = "";
    struct ng_text line = {line_text, 0, sizeof(line_text)}, end = {end_text, 0, sizeof(end_text)};
    va_list arguments;
    int saved_errno = errno;

    if (!ng_log_enabled(level))
        return;
    gethostname(host, sizeof(host) - 1);
    ng_text_add(&end, " [%s, ", host);
    ng_text_add_utc(&end, ng_clock_unix_ns(), true);
    ng_text_add(&end, "]\n");
    line.bytes -= end.used; /* cut the message, not the end */
    ng_text_add(&line, "ncclguard[%d] ", (int)getpid());
    if (log_rank >= 0)
        ng_text_add(&line, "rank %d ", log_rank);
    ng_text_add(&line, "%s: ", level_names[level]);
    va_start(arguments, format);
    errno = saved_errno; /* for %m */
    ng_text_add_list(&line, format, arguments);
    va_end(arguments);
    line.bytes = sizeof(line_text);
    ng_text_add(&line, "%s", end_text);
    ng_log_take_fn *take = atomic_load_explicit(&taker, memory_order_acquire);
    if (!take || !take(line.text, line.used))
        ng_log_write(line.text, line.used);
    errno = saved_errno;
}
