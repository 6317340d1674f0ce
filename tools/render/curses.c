/*
 * ncursesw, opened by name.
 *
 * Signals are the screen's business: those that ncurses would catch are blocked, and it gets none.
 * Must never print when the terminal was given back.
 */
#include "tools/render/curses.h"

#include "tools/render/browser.h"

#if NG_HAVE_CURSES

#include <dlfcn.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"

#define NCURSES_NOMACROS
#include <curses.h>

/* How long a lone Escape waits for the rest of a key. */
#define ESCAPE_MS 50

#define FUNCTIONS(DO)                                                                              \
    DO(newterm)                                                                                    \
    DO(delscreen)                                                                                  \
    DO(endwin)                                                                                     \
    DO(cbreak)                                                                                     \
    DO(noecho)                                                                                     \
    DO(nonl)                                                                                       \
    DO(keypad)                                                                                     \
    DO(nodelay)                                                                                    \
    DO(set_escdelay)                                                                               \
    DO(curs_set)                                                                                   \
    DO(has_colors)                                                                                 \
    DO(start_color)                                                                                \
    DO(use_default_colors)                                                                         \
    DO(init_pair)                                                                                  \
    DO(wattrset)                                                                                   \
    DO(wmove)                                                                                      \
    DO(waddnstr)                                                                                   \
    DO(wclrtoeol)                                                                                  \
    DO(wclrtobot)                                                                                  \
    DO(clearok)                                                                                    \
    DO(wrefresh)                                                                                   \
    DO(wgetch)                                                                                     \
    DO(resizeterm)

static struct {
#define DO(name) __typeof__(&name) name;
    FUNCTIONS(DO)
#undef DO
    WINDOW **window;
} library;

static SCREEN *terminal;
static bool coloured;

static bool open_library(void)
{
    void *handle = dlopen("libncursesw.so.6", RTLD_NOW);

    if (!handle)
        return false;
#define DO(name)                                                                                   \
    library.name = (__typeof__(library.name))dlsym(handle, #name);                                 \
    if (!library.name)                                                                             \
        return false;
    FUNCTIONS(DO)
#undef DO
    library.window = dlsym(handle, "stdscr");
    return library.window != NULL;
}

/* What is drawn is UTF-8, as everything that the command prints. */
static void use_utf8(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void prepare(bool colours)
{
    library.cbreak();
    library.noecho();
    library.nonl();
    library.keypad(*library.window, TRUE);
    library.nodelay(*library.window, TRUE);
    library.set_escdelay(ESCAPE_MS);
    library.curs_set(0);
    coloured = colours && library.has_colors();
    if (!coloured)
        return;
    library.start_color();
    library.use_default_colors();
    for (short colour = COLOR_RED; colour <= COLOR_YELLOW; colour++)
        library.init_pair(colour, colour, -1);
}

bool ng_curses_open(bool colours)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
    const char *kind = getenv("TERM");
    struct sigaction before[NG_COUNT(caught)];

    if (!kind || !open_library())
        return false;
    use_utf8();
    for (size_t i = 0; i < NG_COUNT(caught); i++)
        sigaction(caught[i], NULL, &before[i]);
    terminal = library.newterm(kind, stdout, stdin);
    for (size_t i = 0; i < NG_COUNT(caught); i++)
        sigaction(caught[i], &before[i], NULL);
    if (!terminal)
        return false;
    prepare(colours);
    return true;
}

void ng_curses_leave(void)
{
    library.endwin();
}

void ng_curses_enter(unsigned lines, unsigned columns)
{
    library.resizeterm((int)lines, (int)columns);
    library.clearok(*library.window, TRUE);
    library.wrefresh(*library.window);
}

/* Of the parameters of ESC [ … m: bold, reverse, and the colours 31 to 33. */
static int attributes(const char *parameters)
{
    int all = A_NORMAL;

    for (const char *at = parameters; *at != 'm' && *at; at += strspn(at, ";")) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at)
            break;
        if (number == 1)
            all |= (int)A_BOLD;
        else if (number == 7)
            all |= (int)A_REVERSE;
        else if (coloured && number >= 31 && number <= 33)
            all |= (int)NCURSES_BITS((chtype)(number - 30), 0);
        at = end;
    }
    return all;
}

static size_t characters(const char *text, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void draw_line(const char *text, size_t length, unsigned columns)
{
    WINDOW *window = *library.window;
    int how = A_NORMAL;

    if (length > 2 && text[0] == '\033') {
        const char *from = memchr(text, 'm', length);
        const char *to = from ? memchr(from, '\033', length - (size_t)(from - text)) : NULL;
        if (!to)
            return;
        how = attributes(text + 2);
        text = from + 1;
        length = (size_t)(to - text);
    }
    library.wattrset(window, how);
    library.waddnstr(window, text, (int)length);
    /* A reversed line goes on to the edge. */
    for (size_t width = characters(text, length); how & (int)A_REVERSE && width < columns; width++)
        library.waddnstr(window, " ", 1);
    library.wattrset(window, A_NORMAL);
}

void ng_curses_draw(const char *text, unsigned lines, unsigned columns)
{
    WINDOW *window = *library.window;
    unsigned line = 0;

    library.resizeterm((int)lines, (int)columns);
    for (; line < lines && *text; line++) {
        size_t length = strcspn(text, "\n");
        library.wmove(window, (int)line, 0);
        library.wclrtoeol(window);
        draw_line(text, length, columns);
        text += length + (text[length] == '\n');
    }
    if (line < lines) {
        library.wmove(window, (int)line, 0);
        library.wclrtobot(window);
    }
    library.wrefresh(window);
}

int ng_curses_key(void)
{
    static const struct {
        int theirs, ours;
    } keys[] = {
        {KEY_UP, NG_KEY_UP},         {KEY_DOWN, NG_KEY_DOWN},
        {KEY_PPAGE, NG_KEY_PAGE_UP}, {KEY_NPAGE, NG_KEY_PAGE_DOWN},
        {KEY_HOME, NG_KEY_HOME},     {KEY_END, NG_KEY_END},
        {KEY_ENTER, NG_KEY_ENTER},   {'\r', NG_KEY_ENTER},
        {'\n', NG_KEY_ENTER},        {KEY_BACKSPACE, NG_KEY_BACKSPACE},
        {127, NG_KEY_BACKSPACE},     {'\b', NG_KEY_BACKSPACE},
    };
    int key;

    while ((key = library.wgetch(*library.window)) != ERR) {
        for (size_t i = 0; i < NG_COUNT(keys); i++)
            if (key == keys[i].theirs)
                return keys[i].ours;
        if (key < 256)
            return key;
    }
    return NG_CURSES_NO_KEY;
}

void ng_curses_close(void)
{
    library.endwin();
    library.delscreen(terminal);
    terminal = NULL;
}

#else

bool ng_curses_open(bool colours)
{
    return false;
}

void ng_curses_leave(void)
{
}

void ng_curses_enter(unsigned lines, unsigned columns)
{
}

void ng_curses_draw(const char *text, unsigned lines, unsigned columns)
{
}

int ng_curses_key(void)
{
    return NG_CURSES_NO_KEY;
}

void ng_curses_close(void)
{
}

#endif
