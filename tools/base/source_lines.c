/*
 * Source files and lines of addresses in programs and libraries, from their debugging information.
 *
 * Used by the commands, which have one thread. libdw of elfutils does the reading: it is opened
 * when it is needed, in a child process, so that neither a damaged file nor a slow server harms the
 * command. Must never read a file that is not the one that was in memory.
 */
#include "tools/base/source_lines.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"

#if NG_HAVE_LIBDW

#include <elfutils/libdwfl.h>

#define BUILD_ID_BYTES 64u

/* How a child's answer begins; the name of the file follows. */
struct answer {
    uint32_t index;
    int32_t line;
    uint32_t bytes; /* of the name, up to PATH_MAX */
};

/* ---- In the child ---- */

#define FUNCTIONS(DO)                                                                              \
    DO(dwfl_begin)                                                                                 \
    DO(dwfl_end)                                                                                   \
    DO(dwfl_report_offline)                                                                        \
    DO(dwfl_report_end)                                                                            \
    DO(dwfl_module_build_id)                                                                       \
    DO(dwfl_module_getelf)                                                                         \
    DO(dwfl_module_getsrc)                                                                         \
    DO(dwfl_lineinfo)                                                                              \
    DO(dwfl_line_comp_dir)                                                                         \
    DO(dwfl_standard_find_debuginfo)                                                               \
    DO(dwfl_offline_section_address)

static struct {
#define DO(name) __typeof__(&name) name;
    FUNCTIONS(DO)
#undef DO
} dw;

static bool open_library(void)
{
    void *library = dlopen("libdw.so.1", RTLD_NOW);

    if (!library)
        return false;
#define DO(name)                                                                                   \
    dw.name = (__typeof__(dw.name))dlsym(library, #name);                                          \
    if (!dw.name)                                                                                  \
        return false;
    FUNCTIONS(DO)
#undef DO
    return true;
}

static bool has_build_id(Dwfl_Module *module, const char *build_id)
{
    const unsigned char *bits;
    char hex[2 * BUILD_ID_BYTES + 1] = "";
    GElf_Addr address;
    int bytes = dw.dwfl_module_build_id(module, &bits, &address);

    for (int i = 0; i < bytes && i < (int)BUILD_ID_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", bits[i]);
    return hex[0] && strcmp(hex, build_id) == 0;
}

/* The module of a file with this build id, alone in `dwfl`; NULL: it is another file. Takes `fd`.
 */
static Dwfl_Module *report(Dwfl *dwfl, const char *path, int fd, const char *build_id)
{
    struct stat status;
    Dwfl_Module *module = NULL;

    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        module = dw.dwfl_report_offline(dwfl, path, path, fd);
    if (!module && fd >= 0)
        close(fd);
    dw.dwfl_report_end(dwfl, NULL, NULL);
    return module && has_build_id(module, build_id) ? module : NULL;
}

static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* The debugging information alone, for evidence of another machine, or of a file that was replaced.
 * A descriptor, or a negative number. */
static int open_debug_file(const char *build_id, bool fetch)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%.2s/%s.debug", build_id, build_id + 2);
    int fd = fetch ? -1 : open_file(path);
    const char *urls = getenv("DEBUGINFOD_URLS");
    void *library = fetch && urls && *urls ? dlopen("libdebuginfod.so.1", RTLD_NOW) : NULL;
    if (!library)
        return fd;
    void *(*begin)(void) = (__typeof__(begin))dlsym(library, "debuginfod_begin");
    int (*find)(void *, const unsigned char *, int, char **) =
        (__typeof__(find))dlsym(library, "debuginfod_find_debuginfo");
    void *client = begin && find ? begin() : NULL;
    /* Length 0: the build id is hex digits. */
    return client ? find(client, (const unsigned char *)build_id, 0, NULL) : -1;
}

static bool write_all(int fd, const void *bytes, size_t count)
{
    for (const char *at = bytes; count > 0;) {
        ssize_t wrote = write(fd, at, count);
        if (wrote < 0 && errno != EINTR)
            return false;
        at += wrote > 0 ? wrote : 0;
        count -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

/* False: nobody reads any more. */
static bool tell(int fd, uint32_t index, Dwfl_Line *found)
{
    struct answer answer = {.index = index};
    char path[PATH_MAX];
    int line = 0;
    const char *file = dw.dwfl_lineinfo(found, NULL, &line, NULL, NULL, NULL);
    const char *folder = dw.dwfl_line_comp_dir(found);

    if (!file || line <= 0)
        return true;
    int bytes = file[0] == '/' || !folder ? snprintf(path, sizeof(path), "%s", file)
                                          : snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (bytes <= 0 || bytes >= (int)sizeof(path))
        return true;
    answer.line = line;
    answer.bytes = (uint32_t)bytes;
    return write_all(fd, &answer, sizeof(answer)) && write_all(fd, path, answer.bytes);
}

/* Evidence may say anything; of this, paths and requests are made. */
static bool is_build_id(const char *text)
{
    size_t digits = strspn(text, "0123456789abcdef");

    return digits >= 2 && digits <= 2 * BUILD_ID_BYTES && text[digits] == '\0';
}

static bool is_of_same(const struct ng_source_line *a, const struct ng_source_line *b)
{
    return strcmp(a->build_id, b->build_id) == 0 && strcmp(a->path, b->path) == 0;
}

/* All addresses from `first` on that are in its file. */
static void look_up(const struct ng_source_line *lines, size_t first, size_t count, int fd)
{
    const Dwfl_Callbacks callbacks = {.find_debuginfo = dw.dwfl_standard_find_debuginfo,
                                      .section_address = dw.dwfl_offline_section_address};
    const char *path = lines[first].path, *build_id = lines[first].build_id;
    GElf_Addr bias = 0;
    bool done = false;

    for (int attempt = 0; attempt < 3 && !done; attempt++) {
        int file = attempt == 0 ? open_file(path) : open_debug_file(build_id, attempt == 2);
        Dwfl *dwfl = file >= 0 ? dw.dwfl_begin(&callbacks) : NULL;
        Dwfl_Module *module = dwfl ? report(dwfl, path, file, build_id) : NULL;
        done = module && dw.dwfl_module_getelf(module, &bias);
        for (size_t i = first; done && i < count; i++) {
            Dwfl_Line *found = is_of_same(&lines[i], &lines[first])
                                   ? dw.dwfl_module_getsrc(module, bias + lines[i].offset)
                                   : NULL;
            if (found && !tell(fd, (uint32_t)i, found))
                _exit(0);
        }
        if (dwfl)
            dw.dwfl_end(dwfl);
    }
}

static _Noreturn void child_main(const struct ng_source_line *lines, size_t count, int fd)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0); /* a damaged file leaves no core */
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(nothing, 2) < 0 ||
        !open_library())
        _exit(0);
    for (size_t i = 0; i < count; i++) {
        bool seen = !is_build_id(lines[i].build_id);
        for (size_t k = 0; k < i && !seen; k++)
            seen = is_of_same(&lines[k], &lines[i]);
        if (!seen)
            look_up(lines, i, count, fd);
    }
    _exit(0);
}

/* ---- In the parent ---- */

/* Everything that comes until the end, or the deadline. 0, -ETIMEDOUT or -ENOMEM. */
static int read_answers(int fd, int64_t until_ns, FILE *answers)
{
    char part[4096];

    for (;;) {
        int64_t left_ns = until_ns - ng_clock_mono_ns();
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (left_ns <= 0)
            return -ETIMEDOUT;
        if (poll(&poll_fd, 1, (int)(left_ns / NG_MS) + 1) <= 0)
            continue;
        ssize_t bytes = read(fd, part, sizeof(part));
        if (bytes == 0)
            return 0;
        if (bytes > 0 && fwrite(part, 1, (size_t)bytes, answers) != (size_t)bytes)
            return -ENOMEM;
    }
}

/* The whole ones; the child may have been ended within the last. */
static int take_answers(struct ng_source_line *lines, size_t count, const char *bytes, size_t size)
{
    struct answer answer;

    for (size_t at = 0; at + sizeof(answer) <= size; at += sizeof(answer) + answer.bytes) {
        memcpy(&answer, bytes + at, sizeof(answer));
        if (answer.bytes > size - at - sizeof(answer) || answer.index >= count)
            break;
        struct ng_source_line *line = &lines[answer.index];
        free(line->file);
        line->file = strndup(bytes + at + sizeof(answer), answer.bytes);
        line->line = answer.line;
        if (!line->file)
            return -ENOMEM;
    }
    return 0;
}

static int find(struct ng_source_line *lines, size_t count, int64_t limit_ns, int fd)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *answers = open_memstream(&bytes, &size);

    if (!answers)
        return -ENOMEM;
    int error = read_answers(fd, ng_clock_mono_ns() + limit_ns, answers);
    if (fclose(answers) != 0)
        error = -ENOMEM;
    int taken = error == -ENOMEM ? 0 : take_answers(lines, count, bytes, size);
    free(bytes);
    return taken ? taken : error;
}

int ng_source_lines_find(struct ng_source_line *lines, size_t count, int64_t limit_ns)
{
    int ends[2];

    if (count == 0)
        return 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        child_main(lines, count, ends[1]);
    }
    int error = child < 0 ? -errno : 0;
    close(ends[1]);
    if (child > 0) {
        error = find(lines, count, limit_ns, ends[0]);
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    return error;
}

#else

int ng_source_lines_find(struct ng_source_line *lines, size_t count, int64_t limit_ns)
{
    return 0;
}

#endif

void ng_source_lines_fini(struct ng_source_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(lines[i].file);
        lines[i].file = NULL;
    }
}
