/*
 * Prints the text of a verdict.
 *
 * Used by the commands, which have one thread.
 */
#include "tools/render/verdict_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/demangle.h"
#include "tools/render/screen.h"

#define RED    "\033[1;31m"
#define GREEN  "\033[1;32m"
#define NORMAL "\033[0m"

/* The rest of a file; NULL: no memory, or not readable. */
static char *read_rest(int fd)
{
    char *text = NULL, part[4096];
    size_t bytes;
    ssize_t got;
    FILE *all = open_memstream(&text, &bytes);

    if (!all)
        return NULL;
    while ((got = read(fd, part, sizeof(part))) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            fwrite(part, 1, (size_t)got, all);
    bool failed = got < 0 || ferror(all);
    if (fclose(all) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno != EINTR)
            return -errno;
        text += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

static int write_coloured(int fd, const char *text)
{
    size_t headline = strcspn(text, "\n");
    bool healthy = memmem(text, headline, ": healthy", 9) != NULL;
    const char *colour = healthy ? GREEN : RED;

    int error = write_all(fd, colour, strlen(colour)) ?: write_all(fd, text, headline);
    error = error ?: write_all(fd, NORMAL, strlen(NORMAL));
    return error ?: write_all(fd, text + headline, strlen(text + headline));
}

int ng_verdict_text_print(int from_fd, int to_fd)
{
    char *text = read_rest(from_fd), *plain = text ? ng_demangle(text) : NULL;
    int error = -ENOMEM;

    if (plain)
        error = ng_screen_has_colours(to_fd) ? write_coloured(to_fd, plain)
                                             : write_all(to_fd, plain, strlen(plain));
    free(plain);
    free(text);
    return error;
}
