/*
 * A picture on a terminal.
 *
 * Signals are blocked and read as events, so that the terminal is restored however the command
 * ends. Must never write after the terminal was given back.
 */
#include "tools/render/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/render/curses.h"

/* The alternate screen, no cursor, no line wrapping; and the reverse. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[2J"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

static struct {
    bool open, keys; /* keys: standard input is the terminal, too */
    bool browser;    /* drawn by curses */
    int key;
    int signals; /* a signalfd */
    int ended_by;
    struct termios before;
    sigset_t mask_before;
} screen = {.signals = -1};

static bool is_terminal(int fd)
{
    const char *kind = getenv("TERM");

    return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0;
}

bool ng_screen_possible(void)
{
    return is_terminal(STDOUT_FILENO);
}

bool ng_screen_has_colours(int fd)
{
    const char *no_colour = getenv("NO_COLOR");

    return is_terminal(fd) && (!no_colour || !*no_colour);
}

static bool write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(STDOUT_FILENO, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) {
            struct pollfd polled = {STDOUT_FILENO, POLLOUT, 0};
            if (poll(&polled, 1, 1000) > 0)
                continue;
        }
        if (written <= 0)
            return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

static bool enter(void)
{
    struct termios raw = screen.before;
    unsigned lines, columns;

    if (screen.browser) {
        ng_screen_size(&lines, &columns);
        ng_curses_enter(lines, columns);
        return true;
    }
    if (screen.keys) {
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    return write_all(ENTER, strlen(ENTER));
}

static void leave(void)
{
    if (screen.browser) {
        ng_curses_leave();
        return;
    }
    write_all(LEAVE, strlen(LEAVE));
    if (screen.keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &screen.before);
}

/* Signals become events. 0 or -errno. */
static int begin(void)
{
    static const int numbers[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGPIPE,
                                  SIGTSTP, SIGWINCH, SIGTTOU, SIGTTIN};
    sigset_t signals;

    sigemptyset(&signals);
    for (size_t i = 0; i < NG_COUNT(numbers); i++)
        sigaddset(&signals, numbers[i]);
    if (sigprocmask(SIG_BLOCK, &signals, &screen.mask_before) != 0)
        return -errno;
    screen.signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (screen.signals < 0) {
        int error = -errno;
        sigprocmask(SIG_SETMASK, &screen.mask_before, NULL);
        return error;
    }
    screen.keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen.before) == 0 &&
                  tcgetpgrp(STDIN_FILENO) == getpgrp();
    screen.open = true;
    return 0;
}

int ng_screen_open(void)
{
    int error = begin();

    if (!error)
        enter();
    return error;
}

static void end(void)
{
    screen.open = screen.browser = false;
    close(screen.signals);
    screen.signals = -1;
}

int ng_screen_open_browser(void)
{
    int error = begin();

    if (error)
        return error;
    screen.browser = screen.keys && ng_curses_open(ng_screen_has_colours(STDOUT_FILENO));
    if (screen.browser)
        return 0;
    end();
    sigprocmask(SIG_SETMASK, &screen.mask_before, NULL);
    return -ENOSYS;
}

int ng_screen_key(void)
{
    return screen.key;
}

/* Ctrl-Z: the shell gets its terminal back, and we redraw when continued. */
static void stop(void)
{
    leave();
    raise(SIGSTOP);
    enter();
}

static enum ng_screen_event take_signal(void)
{
    struct signalfd_siginfo info;
    enum ng_screen_event event = NG_SCREEN_TIME;

    while (read(screen.signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        switch (info.ssi_signo) {
        case SIGWINCH:
            event = NG_SCREEN_REDRAW;
            break;
        case SIGTSTP:
            stop();
            event = NG_SCREEN_REDRAW;
            break;
        case SIGTTOU:
        case SIGTTIN:
            break;
        default:
            screen.ended_by = (int)info.ssi_signo;
            return NG_SCREEN_QUIT;
        }
    }
    return event;
}

/* Curses reads ahead, so it is asked before each wait. */
static enum ng_screen_event take_browser_key(void)
{
    screen.key = ng_curses_key();
    return screen.key == NG_CURSES_NO_KEY ? NG_SCREEN_TIME : NG_SCREEN_KEY;
}

/* Readable, but not for us: the terminal is gone, or is that of another job of a shell. */
static bool is_at_end(void)
{
    int bytes = 0;

    return ioctl(STDIN_FILENO, FIONREAD, &bytes) != 0 || bytes == 0 ||
           tcgetpgrp(STDIN_FILENO) != getpgrp();
}

static enum ng_screen_event take_key(void)
{
    char keys[64];
    ssize_t bytes = read(STDIN_FILENO, keys, sizeof(keys));
    enum ng_screen_event event = NG_SCREEN_TIME;

    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return event;
    if (bytes <= 0)
        return NG_SCREEN_QUIT;
    for (ssize_t i = 0; i < bytes; i++) {
        if (keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 4)
            return NG_SCREEN_QUIT;
        /* The rest of an escape sequence, as of an arrow key, has no meaning here. */
        if (keys[i] == 27)
            return event;
        if (keys[i] == ' ' || keys[i] == '\n' || keys[i] == '\r')
            event = NG_SCREEN_LOOK;
    }
    return event;
}

enum ng_screen_event ng_screen_wait(int64_t until_mono_ns)
{
    if (screen.browser && take_browser_key() == NG_SCREEN_KEY)
        return NG_SCREEN_KEY;
    for (;;) {
        struct pollfd polled[2] = {{screen.signals, POLLIN, 0},
                                   {screen.keys ? STDIN_FILENO : -1, POLLIN, 0}};
        int64_t left_ns = until_mono_ns - ng_clock_mono_ns();
        int64_t left = left_ns <= 0 ? 0 : left_ns / NG_MS + 1;
        int left_ms = left < 60000 ? (int)left : 60000;
        int ready = poll(polled, 2, left_ms);
        enum ng_screen_event event = NG_SCREEN_TIME;

        if (ready > 0 && polled[0].revents)
            event = take_signal();
        if (event == NG_SCREEN_TIME && ready > 0 && polled[1].revents)
            event = !screen.browser ? take_key()
                    : is_at_end()   ? NG_SCREEN_QUIT
                                    : take_browser_key();
        if (event != NG_SCREEN_TIME || ng_clock_mono_ns() >= until_mono_ns)
            return event;
    }
}

void ng_screen_size(unsigned *ret_lines, unsigned *ret_columns)
{
    struct winsize size = {0};

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *ret_lines = size.ws_row ? size.ws_row : 24;
    *ret_columns = size.ws_col ? size.ws_col : 80;
}

bool ng_screen_draw(const char *text)
{
    unsigned lines, columns;
    char *picture = NULL;
    size_t bytes = 0;

    ng_screen_size(&lines, &columns);
    if (screen.browser) {
        ng_curses_draw(text, lines, columns);
        return true;
    }
    FILE *file = open_memstream(&picture, &bytes);
    if (!file)
        return true; /* the picture stays unchanged */
    fputs("\033[H", file);
    for (unsigned i = 0; i < lines && *text; i++) {
        size_t length = strcspn(text, "\n");
        fprintf(file, "%s%.*s\033[K", i ? "\r\n" : "", (int)length, text);
        text += length + (text[length] == '\n');
    }
    fputs("\033[J", file);
    bool whole = fclose(file) == 0;
    bool written = !whole || write_all(picture, bytes);
    free(picture);
    return written;
}

void ng_screen_close(void)
{
    if (!screen.open)
        return;
    if (screen.browser)
        ng_curses_close();
    else
        leave();
    end();
    /* Ctrl-C is the usual way to quit: not reported as a signal. */
    int ending = screen.ended_by;
    if (ending == SIGINT || ending == SIGQUIT || ending == SIGPIPE)
        screen.ended_by = 0;
    sigprocmask(SIG_SETMASK, &screen.mask_before, NULL);
}

int ng_screen_ending_signal(void)
{
    return screen.ended_by;
}
