/*
 * The terminal, taken over for a picture that is redrawn, and given back as it was.
 *
 * One at a time, by the command's only thread.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_SCREEN_H
#define NCCLGUARD_TOOLS_RENDER_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ng_screen_event {
    NG_SCREEN_TIME,   /* the time that was waited for has come */
    NG_SCREEN_REDRAW, /* another size, or back from a stop */
    NG_SCREEN_LOOK,   /* a key that asks for news at once: space, Enter */
    NG_SCREEN_QUIT,   /* q, Ctrl-C, or the terminal is gone */
};

/* Whether standard output is a terminal on which a picture can be redrawn. */
bool ng_screen_possible(void);

/* Take it over. From here on the signals that end or stop a program come as events; 0 or -errno. */
int ng_screen_open(void);

/* Wait until then (CLOCK_MONOTONIC), or until something happens. */
enum ng_screen_event ng_screen_wait(int64_t until_mono_ns);

void ng_screen_size(unsigned *ret_lines, unsigned *ret_columns);

/* Show `text`: as many of its lines as there is room for. False: the terminal is gone. */
bool ng_screen_draw(const char *text);

/* Give it back as it was; nothing where it was not taken. */
void ng_screen_close(void);

/* The signal that ended the waiting, where it is one that should end the command, too; 0 none. */
int ng_screen_ending_signal(void);

#endif
