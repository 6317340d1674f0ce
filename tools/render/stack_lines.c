/*
 * Source files and lines of native frames, where debugging information has them; and the text of
 * the lines at which frames are, if the user asks for it: who made the evidence chooses the files.
 *
 * Used by `ncclguard analyze`, which has one thread.
 */
#include "tools/render/stack_lines.h"

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
#include "tools/base/source_lines.h"

#define LINES_MAX 4096u /* different addresses; those of the verdict are first */
/* Enough for local files of gigabytes, and for downloads. */
#define LIMIT_NS       (10 * NG_S)
#define FETCH_LIMIT_NS (60 * NG_S)
#define SLOTS          (2 * LINES_MAX)

#define FILES_MAX       256u
#define FILE_BYTES_MAX  ((off_t)1 << 20)
#define LINE_BYTES_MAX  200
#define SOURCE_INDENTED "          "

struct asked {
    struct ng_source_line lines[LINES_MAX];
    uint32_t count;
    uint16_t slots[SLOTS]; /* index + 1, by hash */
    struct ng_arena arena; /* of paths and build ids */
};

/* Its index, once for each address; -1: no memory, or too many. */
static int ask(struct asked *asked, const char *path, const char *build_id, size_t id_length,
               uint64_t offset)
{
    uint32_t at = (uint32_t)(offset * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SLOTS;

    for (; asked->slots[at]; at = (at + 1) % SLOTS) {
        const struct ng_source_line *line = &asked->lines[asked->slots[at] - 1];
        if (line->offset == offset && strlen(line->build_id) == id_length &&
            memcmp(line->build_id, build_id, id_length) == 0 && strcmp(line->path, path) == 0)
            return asked->slots[at] - 1;
    }
    if (asked->count == LINES_MAX)
        return -1;
    struct ng_source_line *line = &asked->lines[asked->count];
    line->path = ng_arena_strdup(&asked->arena, path);
    line->build_id = ng_arena_strndup(&asked->arena, build_id, id_length);
    line->offset = offset;
    if (!line->path || !line->build_id)
        return -1;
    asked->slots[at] = (uint16_t)++asked->count;
    return (int)asked->count - 1;
}

/* ---- Calls of a verdict ---- */

/* The address of a frame is behind the call. */
static int ask_frame(struct asked *asked, const struct ng_view_frame *frame)
{
    if (frame->is_python || !frame->module || !frame->module->build_id[0] || !frame->offset)
        return -1;
    return ask(asked, frame->module->path, frame->module->build_id, strlen(frame->module->build_id),
               frame->offset - 1);
}

/* Asks for the frames of a verdict, or, the second time, takes the answers. */
static void walk_calls(struct asked *asked, struct ng_verdict *verdict, bool take)
{
    for (uint32_t i = 0; i < verdict->call_count; i++)
        NG_EACH (frame, verdict->calls[i].frames, verdict->calls[i].count) {
            int index = ask_frame(asked, frame);
            if (!take || index < 0 || !asked->lines[index].file)
                continue;
            frame->source = ng_arena_strdup(&verdict->arena, asked->lines[index].file);
            frame->line = frame->source ? asked->lines[index].line : 0;
        }
}

/* ---- Text of stacks ---- */

/* The build id of a file by the list "  BUILD-ID PATH\n…"; its length. */
static const char *find_build_id(const char *files, const char *path, size_t length,
                                 size_t *ret_length)
{
    for (const char *line = files; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *id = line + strspn(line, " ");
        size_t id_length = strcspn(id, " \n");
        const char *name = id + id_length + strspn(id + id_length, " ");
        if (strcspn(name, "\n") == length && memcmp(name, path, length) == 0) {
            *ret_length = id_length;
            return id;
        }
    }
    return NULL;
}

/* Asks for a frame: "    #3  name+0x12 (PATH+0xADDRESS)", of which the name and the path may
 * contain anything. -1: it has no file with a build id. */
static int ask_line(struct asked *asked, const char *files, const char *line, size_t length)
{
    char text[8192], *address = NULL, *path;
    size_t id_length;

    if (length < 8 || length >= sizeof(text) || strncmp(line, "    #", 5) != 0 ||
        line[length - 1] != ')')
        return -1;
    memcpy(text, line, length);
    text[length - 1] = '\0';
    for (char *at = text; (at = strstr(at, "+0x")); at++)
        address = at;
    if (!address)
        return -1;
    *address = '\0';
    uint64_t offset = strtoull(address + 1, NULL, 16);
    for (path = text; (path = strstr(path, " ("));) {
        path += 2;
        const char *id = find_build_id(files, path, strlen(path), &id_length);
        if (!id)
            continue;
        /* The first frame is where the thread is, the others are behind their calls. */
        if (line[5] != '0')
            offset -= offset > 0;
        return id_length > 1 ? ask(asked, path, id, id_length, offset) : -1;
    }
    return -1;
}

static void ask_stack(struct asked *asked, const struct ng_stack_group *stack)
{
    for (const char *line = stack->text; *line;) {
        size_t length = strcspn(line, "\n");
        ask_line(asked, stack->files, line, length);
        line += length + (line[length] == '\n');
    }
}

static void put_answer(void *context, const char *files, const char *line, size_t length,
                       FILE *output)
{
    struct asked *asked = context;
    int index = ask_line(asked, files, line, length);

    if (index >= 0 && asked->lines[index].file)
        fprintf(output, " at %s:%d", asked->lines[index].file, asked->lines[index].line);
}

int ng_stack_lines_add(struct ng_verdict *verdict, struct ng_stack_groups *stacks)
{
    struct asked *asked = calloc(1, sizeof(*asked));
    const char *urls = getenv("DEBUGINFOD_URLS");

    if (!asked)
        return -ENOMEM;
    walk_calls(asked, verdict, false);
    for (uint32_t i = 0; i < stacks->count && i < NG_STACK_GROUPS_SHOWN; i++)
        ask_stack(asked, &stacks->stacks[i]);
    int error =
        ng_source_lines_find(asked->lines, asked->count, urls && *urls ? FETCH_LIMIT_NS : LIMIT_NS);
    walk_calls(asked, verdict, true);
    if (error != -ENOMEM && ng_stack_groups_rewrite(stacks, put_answer, asked) != 0)
        error = -ENOMEM;
    ng_source_lines_fini(asked->lines, asked->count);
    ng_arena_reset(&asked->arena);
    free(asked);
    return error;
}

/* ---- The text of lines ---- */

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
