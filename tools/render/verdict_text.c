/*
 * Prints the text of a verdict.
 *
 * Used by the commands, which have one thread.
 */
#include "tools/render/verdict_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/demangle.h"
#include "tools/base/owned.h"
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

int ng_verdict_text_print(int from_fd, int to_fd)
{
    NG_FREED char *text = read_rest(from_fd);
    NG_FREED char *plain = text ? ng_demangle(text) : NULL;
    int written;

    if (!plain)
        return -ENOMEM;
    if (ng_screen_has_colours(to_fd)) {
        size_t headline = strcspn(plain, "\n");
        bool healthy = memmem(plain, headline, ": healthy", 9) != NULL;
        written = dprintf(to_fd, "%s%.*s" NORMAL "%s", healthy ? GREEN : RED, (int)headline, plain,
                          plain + headline);
    } else {
        written = dprintf(to_fd, "%s", plain);
    }
    return written < 0 ? -errno : 0;
}
