/*
 * A picture and keys through ncursesw, which is opened when it is needed: a machine without it has
 * the plain screen (tools/render/screen.c).
 *
 * One terminal, standard input and output, by the command's only thread.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_CURSES_H
#define NCCLGUARD_TOOLS_RENDER_CURSES_H

#include <stdbool.h>

#define NG_CURSES_NO_KEY (-1)

/* Take the terminal over. False: this build or this machine has no ncursesw, or that does not know
 * the terminal; nothing was changed. Dispositions of signals stay as they were. */
bool ng_curses_open(bool colours);

/* Give the terminal back, for a stop; and take it over again, perhaps of another size. */
void ng_curses_leave(void);
void ng_curses_enter(unsigned lines, unsigned columns);

/* Show lines that end in '\n', each plain or as ESC [ parameters m, text, ESC [ 0 m. */
void ng_curses_draw(const char *text, unsigned lines, unsigned columns);

/* The next key that was typed, as enum ng_browser_key has them; NG_CURSES_NO_KEY: none. */
int ng_curses_key(void);

void ng_curses_close(void);

#endif
