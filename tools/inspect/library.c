/*
 * Finds libncclguard.so, detects its use, prepares the environment that preloads it, and validates
 * its settings.
 *
 * Must never change the environment: `ncclguard run` does that.
 */
#include "tools/inspect/library.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/config/fault_spec.h"
#include "core/util/macros.h"
#include "store/kv/url.h"
#include "tools/inspect/elf_file.h"

/* Paths relative to our own folder in a build, an installation and a bundle. */
static const char *const places[] = {
    "/../shim/libncclguard.so",
    "/../lib/libncclguard.so",
#ifdef NG_LIBDIR
    "/../" NG_LIBDIR "/ncclguard/libncclguard.so",
#endif
    "/libncclguard.so",
};

__attribute__((format(printf, 3, 4))) static bool mistake(struct ng_mistake *ret_mistake,
                                                          const char *mend, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(ret_mistake->text, sizeof(ret_mistake->text), format, arguments);
    va_end(arguments);
    snprintf(ret_mistake->mend, sizeof(ret_mistake->mend), "%s", mend);
    return true;
}

static bool find(char ret_path[PATH_MAX], struct ng_mistake *ret_mistake)
{
    char here[PATH_MAX], place[PATH_MAX + 64];
    const char *given = getenv("NCCLGUARD_LIB");

    if (given && *given) {
        if (realpath(given, ret_path))
            return true;
        return !mistake(ret_mistake, "set it to the path of libncclguard.so",
                        "NCCLGUARD_LIB=%s: %s", given, strerror(errno));
    }
    ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
    if (length > 0) {
        here[length] = '\0';
        *strrchr(here, '/') = '\0';
        for (size_t i = 0; i < NG_COUNT(places); i++) {
            snprintf(place, sizeof(place), "%s%s", here, places[i]);
            if (realpath(place, ret_path))
                return true;
        }
    }
    return !mistake(ret_mistake, "set NCCLGUARD_LIB to its path",
                    "libncclguard.so was not found beside %s", length > 0 ? here : "the command");
}

bool ng_library_find(char ret_path[PATH_MAX], struct ng_mistake *ret_mistake)
{
    if (!find(ret_path, ret_mistake))
        return false;
    if (!strpbrk(ret_path, ": "))
        return true;
    return !mistake(ret_mistake, "put it where the path has neither, and set NCCLGUARD_LIB",
                    "the dynamic linker cannot preload %s: a colon or space separates entries",
                    ret_path);
}

bool ng_library_check(const char *path, struct ng_mistake *ret_mistake)
{
    struct ng_elf_file file;
    const char *why;

    if (ng_elf_open(path, &file, &why) != 0) {
        return !mistake(ret_mistake,
                        "install ncclguard again, or set NCCLGUARD_LIB to libncclguard.so",
                        "%s is not our library: it %s", path, why);
    }
    bool foreign = file.foreign,
         ours = !foreign && file.type == ET_DYN && !ng_elf_is_program(&file);
    ours = ours && ng_elf_exports(&file, "ncclAllReduce");
    ng_elf_close(&file);
    if (foreign)
        mistake(ret_mistake, "install ncclguard for this machine",
                "%s was built for another kind of machine", path);
    else if (!ours)
        mistake(ret_mistake, "set NCCLGUARD_LIB to the path of libncclguard.so",
                "%s is not our library: it is a program, or has no function of NCCL's names", path);
    return ours;
}

/* Whether a list in the dynamic linker's format (separated by colons and spaces) contains this path
 * already. */
static bool has(const char *list, const char *path)
{
    size_t length = strlen(path);

    for (const char *at = list; (at = strstr(at, path)); at += length)
        if ((at == list || strchr(": ", at[-1])) && (!at[length] || strchr(": ", at[length])))
            return true;
    return false;
}

char *ng_library_preload_list(const char *before, const char *path)
{
    char *list;

    if (!before || !*before)
        return strdup(path);
    if (has(before, path))
        return strdup(before);
    /* After the existing entries: tools such as sanitizers must be first. */
    return asprintf(&list, "%s:%s", before, path) < 0 ? NULL : list;
}

int ng_library_watch(const char *path)
{
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (watch >= 0 && inotify_add_watch(watch, path, IN_OPEN | IN_ONESHOT) < 0) {
        close(watch);
        watch = -1;
    }
    return watch;
}

bool ng_library_was_opened(int watch)
{
    _Alignas(struct inotify_event) char events[1024];
    ssize_t bytes;

    do
        bytes = read(watch, events, sizeof(events));
    while (bytes < 0 && errno == EINTR);
    close(watch);
    return bytes > 0;
}

bool ng_library_bad_store(const char *value, struct ng_mistake *ret_mistake)
{
    struct ng_url url;
    char shown[256], why[512];

    if (!value)
        return false;
    ng_url_redact(value, shown, sizeof(shown));
    if (ng_url_parse(value, &url, why, sizeof(why)) != 0) {
        /* Its line begins with the store, too. */
        size_t length = strlen("store \"\": ") + strlen(shown);
        return mistake(ret_mistake, strlen(why) > length ? why + length : why,
                       "store \"%s\" is not valid", shown);
    }
    explicit_bzero(&url.password, sizeof(url.password));
#if !NG_HAVE_HIREDIS
    if (url.kind != NG_URL_NONE && url.kind != NG_URL_LOCAL)
        return mistake(ret_mistake,
                       "install hiredis (libhiredis-dev) and build it with -Dredis=enabled, or use "
                       "local:",
                       "store \"%s\": this build of ncclguard has no Redis", shown);
#endif
    return false;
}

bool ng_library_bad_fault(const char *name, const char *value, struct ng_mistake *ret_mistake)
{
    struct ng_fault_mistake found;
    struct ng_fault_spec spec;
    char possible[sizeof(found.possible) + 32];

    if (!value || ng_fault_spec_parse(value, &spec, &found) == 0)
        return false;
    snprintf(possible, sizeof(possible), "possible there: %s", found.possible);
    return mistake(ret_mistake, possible, "%s, column %u: %s", name, found.column, found.what);
}

struct first {
    char line[512];
};

static void take_first(void *context, char severity, const char *line)
{
    struct first *first = context;
    /* The library reports warnings, once, in the job's log. */
    if (severity == 'E' && !first->line[0])
        snprintf(first->line, sizeof(first->line), "%s", line);
}

bool ng_library_bad_setting(struct ng_mistake *ret_mistake)
{
    struct first first = {0};
    struct ng_config config;

    if (ng_config_parse(&config, environ, take_first, &first) != 0)
        return mistake(ret_mistake, "`ncclguard config` lists the variables and what they take",
                       "%s", first.line);
    if (ng_config_parse_exit(config.exit_how, &(int){0}) != 0)
        return mistake(ret_mistake, "use abort, or exit:CODE with a code from 0 to 255",
                       "NCCLGUARD_EXIT=%s is not valid", config.exit_how);
    if (ng_library_bad_fault("NCCLGUARD_FAULT", config.fault, ret_mistake))
        return true;
    return ng_library_bad_store(config.store, ret_mistake);
}
