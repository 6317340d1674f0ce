/*
 * The terminal, taken over for a picture that is redrawn, and restored afterwards.
 *
 * One at a time, by the command's only thread.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_SCREEN_H
#define NCCLGUARD_TOOLS_RENDER_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

enum ng_screen_event {
    NG_SCREEN_TIME,   /* the awaited time has come */
    NG_SCREEN_REDRAW, /* the size has changed, or the process was continued after a stop */
    NG_SCREEN_LOOK,   /* a key that requests an update at once: space, Enter */
    NG_SCREEN_QUIT,   /* q, Ctrl-C, or the terminal is gone */
    NG_SCREEN_KEY,    /* of a browser: ng_screen_key has it */
};

/* Whether standard output is a terminal on which a picture can be redrawn. */
bool ng_screen_possible(void);

/* Whether a file is a terminal that shows colours, and NO_COLOR (no-color.org) is not set. */
bool ng_screen_has_colours(int fd);

/* Take it over. From here on, signals that end or stop a program are events. 0 or -errno. */
int ng_screen_open(void);

/* The same through curses, with all keys as events. -ENOSYS: that is not possible here, since there
 * is no ncursesw, it does not know the terminal, or standard input is not the terminal, too. */
int ng_screen_open_browser(void);

/* The key of the last NG_SCREEN_KEY (enum ng_browser_key). */
int ng_screen_key(void);

/* Wait until then (CLOCK_MONOTONIC), or until an event. */
enum ng_screen_event ng_screen_wait(int64_t until_mono_ns);

void ng_screen_size(unsigned *ret_lines, unsigned *ret_columns);

/* Show `text`: as many of its lines as there is room for. False: the terminal is gone. */
bool ng_screen_draw(const char *text);

/* Restore it; no effect if it was not taken over. */
void ng_screen_close(void);

/* The signal that ended the wait, if it should end the command, too; 0 none. */
int ng_screen_ending_signal(void);

#endif
