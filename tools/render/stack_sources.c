/*
 * The lines of source files at which frames of stacks are.
 *
 * Used by `ncclguard analyze`, if the user asks for them: who made the evidence chooses the files.
 */
#include "tools/render/stack_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/owned.h"

#define FILES_MAX       256u
#define FILE_BYTES_MAX  ((off_t)1 << 20)
#define LINE_BYTES_MAX  200
#define SOURCE_INDENTED "          "

struct source {
    char *path;
    char *text; /* NULL: it is not shown */
};

struct sources {
    int64_t unix_ns;
    uint32_t count;
    struct source files[FILES_MAX];
};

static bool has_source_name(const char *path)
{
    static const char *const endings[] = {".c",  ".cc",  ".cpp", ".cxx", ".cu",  ".h",
                                          ".hh", ".hpp", ".cuh", ".py",  ".pyx", ".rs"};
    const char *dot = strrchr(path, '.');

    return dot && NG_ANY(ending, endings, NG_COUNT(endings), strcmp(dot, *ending) == 0);
}

/* NULL: it may not be shown, or cannot be read. */
static char *read_source(const char *path, int64_t unix_ns)
{
    struct stat status;
    char *text = NULL;
    NG_CLOSED int fd = has_source_name(path) && path[0] == '/'
                           ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                           : -1;

    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size <= FILE_BYTES_MAX &&
        (int64_t)status.st_mtim.tv_sec * NG_S + status.st_mtim.tv_nsec <= unix_ns)
        text = calloc(1, (size_t)status.st_size + 1);
    if (text && read(fd, text, (size_t)status.st_size) != (ssize_t)status.st_size) {
        free(text);
        text = NULL;
    }
    return text;
}

/* The text of a file, read once; NULL: it is not shown. */
static const char *text_of(struct sources *sources, const char *path)
{
    for (uint32_t i = 0; i < sources->count; i++)
        if (strcmp(sources->files[i].path, path) == 0)
            return sources->files[i].text;
    char *copy = sources->count < FILES_MAX ? strdup(path) : NULL;
    if (!copy)
        return NULL;
    struct source *source = &sources->files[sources->count++];
    source->path = copy;
    source->text = read_source(path, sources->unix_ns);
    return source->text;
}

/* '    File "PATH", line N in …' or '    #… at PATH:N'. False: neither. */
static bool read_frame(const char *line, size_t length, char *ret_path, int *ret_line)
{
    static const char python[] = "    File \"", native[] = "    #";
    char text[PATH_MAX + 512], *path, *end, *number;

    if (length >= sizeof(text))
        return false;
    memcpy(text, line, length);
    text[length] = '\0';
    if (strncmp(text, python, strlen(python)) == 0) {
        path = text + strlen(python);
        end = strstr(path, "\", line ");
        number = end ? end + strlen("\", line ") : NULL;
    } else if (strncmp(text, native, strlen(native)) == 0) {
        path = strstr(text, ") at ");
        path = path ? path + strlen(") at ") : NULL;
        end = path ? strrchr(path, ':') : NULL;
        number = end ? end + 1 : NULL;
    } else {
        return false;
    }
    if (!number || end - path >= PATH_MAX)
        return false;
    *end = '\0';
    *ret_line = atoi(number);
    strcpy(ret_path, path);
    return *ret_line > 0;
}

/* Without its indentation; nothing where the file is shorter. */
static void put_line(FILE *output, const char *text, int line)
{
    for (; line > 1 && text; line--) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    if (!text)
        return;
    text += strspn(text, " \t");
    int length = (int)strnlen(text, LINE_BYTES_MAX);
    const char *end = memchr(text, '\n', (size_t)length);
    length = end ? (int)(end - text) : length;
    if (length > 0)
        fprintf(output, "\n" SOURCE_INDENTED "%.*s", length, text);
}

static void put_source(void *context, const char *files, const char *line, size_t length,
                       FILE *output)
{
    char path[PATH_MAX];
    int number;

    (void)files;
    if (read_frame(line, length, path, &number))
        put_line(output, text_of(context, path), number);
}

int ng_stack_sources_add(struct ng_stack_groups *stacks, int64_t unix_ns)
{
    NG_FREED struct sources *sources = calloc(1, sizeof(*sources));

    if (!sources)
        return -ENOMEM;
    sources->unix_ns = unix_ns;
    int error = ng_stack_groups_rewrite(stacks, put_source, sources);
    for (uint32_t i = 0; i < sources->count; i++) {
        free(sources->files[i].path);
        free(sources->files[i].text);
    }
    return error;
}
