/*
 * Every kind of look-up by name, and what comes of it: the same with the guard preloaded as
 * without.
 *
 *   door_program FOLDER
 *
 * FOLDER holds the libraries of the door tests. Prints one line for each check; what it prints must
 * be the same both ways, and it exits with 0 only when each check holds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/door/library.h"

#define EXPORT __attribute__((visibility("default")))

/* The linked ones. */
door_look_function first_look, second_look;
door_look_version_function first_look_version;
door_early_function first_early, second_early;

static const char *folder;
static unsigned failures;

EXPORT const char *door_where(void)
{
    return "program";
}

__attribute__((format(printf, 2, 3))) static void check(bool holds, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf(holds ? "ok " : "not ok ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    failures += !holds;
}

static const char *text(const char *string)
{
    return string ? string : "(nothing)";
}

/* Nothing was found just now; says why. */
static void check_missing(const char *what, void *found)
{
    const char *error = dlerror();

    check(!found && error, "%s: %s", what, text(error));
    check(dlerror() == NULL, "an error is told once");
}

/* Who answers to door_where there. */
static const char *who(void *address)
{
    return address ? ((door_where_function *)address)() : "(nobody)";
}

static void check_who(const char *what, void *address, const char *expected)
{
    check(strcmp(who(address), expected) == 0, "%s: %s", what, who(address));
}

static void *open_library(const char *name, int mode)
{
    char path[PATH_MAX];
    void *handle;

    snprintf(path, sizeof(path), "%s/lib%s.so", folder, name);
    handle = dlopen(path, RTLD_NOW | mode);
    if (!handle) {
        printf("not ok %s\n", dlerror());
        exit(1);
    }
    return handle;
}

static void scopes(void *plugin)
{
    door_look_function *plugin_look = (door_look_function *)dlsym(plugin, "plugin_look");

    check_who("next after the program", dlsym(RTLD_NEXT, "door_where"), "first");
    check_who("next after the first library", first_look(RTLD_NEXT, "door_where"), "second");
    check_who("next after the second library", second_look(RTLD_NEXT, "door_where"), "(nobody)");
    check_who("next after a plugin", plugin_look(RTLD_NEXT, "door_where"), "third");
    check_who("default for the program", dlsym(RTLD_DEFAULT, "door_where"), "program");
    check_who("default for a library", first_look(RTLD_DEFAULT, "door_where"), "program");
    check_who("default for a plugin", plugin_look(RTLD_DEFAULT, "door_where"), "program");
    check_who("a plugin's own scope, seen by it", plugin_look(RTLD_DEFAULT, "third_only"), "third");
    check_who("a plugin's own scope, seen by the program", dlsym(RTLD_DEFAULT, "third_only"),
              "(nobody)");
    check_who("a plugin's handle", dlsym(plugin, "door_where"), "plugin");
    check_who("what a plugin needs, by its handle", first_look(plugin, "third_only"), "third");
}

static void program_handle(void)
{
    void *program = dlopen(NULL, RTLD_NOW);

    check_who("the program's handle", dlsym(program, "door_where"), "program");
    check_who("a library by the program's handle", dlsym(program, "second_only"), "second");
    check(dlsym(program, "malloc") == dlsym(RTLD_DEFAULT, "malloc"), "malloc by both");
    check_missing("the program lacks it", dlsym(program, "cuDoorMissing"));
    dlclose(program);
}

static void through_a_pointer(void)
{
    door_look_function *look = (door_look_function *)dlsym(RTLD_DEFAULT, "dlsym");
    door_look_version_function *look_version =
        (door_look_version_function *)dlsym(RTLD_DEFAULT, "dlvsym");

    check(look && look_version, "dlsym and dlvsym are found by name");
    check_who("next, through a pointer to dlsym", look(RTLD_NEXT, "door_where"), "first");
    check_missing("a version next, through a pointer to dlvsym",
                  look_version(RTLD_NEXT, "door_where", "DOOR_1"));
}

static int number(void *address)
{
    return address ? ((int (*)(void))address)() : -1;
}

static void versions(void)
{
    static const char *const names[] = {"door_number", "ncclDoorNumber", "cuDoorNumber"};
    void *library = open_library("door_versions", RTLD_LOCAL);

    for (unsigned i = 0; i < 3; i++) {
        check(number(dlsym(library, names[i])) == 2, "%s", names[i]);
        check(number(dlvsym(library, names[i], "DOOR_1")) == 1, "%s@DOOR_1", names[i]);
        check(number(dlvsym(library, names[i], "DOOR_2")) == 2, "%s@DOOR_2", names[i]);
        check(dlerror() == NULL, "no error after success");
        check_missing("a third version", dlvsym(library, names[i], "DOOR_3"));
        check_missing("by default", dlvsym(RTLD_DEFAULT, names[i], "DOOR_1"));
    }
    check_missing("a version next", first_look_version(RTLD_NEXT, "door_where", "DOOR_1"));
#if defined(__x86_64__)
    void *old = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
    void *new = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14");

    check(old && new &&old != new, "two versions of memcpy by default");
    check(dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.2.5") == old, "old memcpy next");
    check(dlvsym(RTLD_NEXT, "memcpy", "GLIBC_2.14") == new, "new memcpy next");
#endif
    /* The one that interposers know to fetch the C library's own dlsym with. */
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#endif
    Dl_info info = {0};
    void *real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);

    check(real && dladdr(real, &info) && strstr(info.dli_fname, "libc.so.6"),
          "dlsym@" FIRST_GLIBC " next is the C library's");
    dlclose(library);
}

static void names_alike(void)
{
    static const struct {
        const char *name;
        int value;
    } rows[] = {
        {"n", 10},
        {"nc", 11},
        {"c", 12},
        {"cu", 13},
        {"nccl", 15},
        {"ncurses_door", 14},
        {"ncclDoor", 16},
        {"cuDoor", 17},
        {"cublasDoor", 18},
        {"curl_door", 20},
        {"ncclAllReduceDoor", 19},
    };
    void *library = open_library("door_versions", RTLD_LOCAL);

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check(number(dlsym(library, rows[i].name)) == rows[i].value, "%s in a library",
              rows[i].name);
    dlclose(library);
    library = open_library("door_versions", RTLD_GLOBAL);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check(number(dlsym(RTLD_DEFAULT, rows[i].name)) == rows[i].value, "%s by default",
              rows[i].name);
    dlclose(library);
    check_missing("an empty name", dlsym(RTLD_DEFAULT, ""));
}

static void errors(void *plugin)
{
    static const char *const missing[] = {"door_nothing", "ncclNothing",   "ncclAllReduceNothing",
                                          "cuNothing",    "cublasNothing", "nothing",
                                          "cNothing",     "ncNothing"};
    void *program = dlopen(NULL, RTLD_NOW), *const handles[] = {plugin, program, RTLD_DEFAULT,
                                                                RTLD_NEXT};

    for (unsigned h = 0; h < 4; h++)
        for (unsigned i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
            void *found;
            const char *error;
            int left;

            errno = ELNRNG;
            found = dlsym(handles[h], missing[i]);
            left = errno;
            error = dlerror();
            check(!found && error && left == ELNRNG && strstr(error, missing[i]), "missing: %s",
                  text(error));
            check(dlerror() == NULL, "an error is told once");
            found = first_look_version(handles[h], missing[i], "DOOR_1");
            error = dlerror();
            check(!found && error && strstr(error, missing[i]), "missing: %s", text(error));
        }
    /* In a library that has nothing of NCCL: every name of the table is one that is missing. */
    check_missing("no NCCL there", dlsym(plugin, "ncclAllReduce"));
    check_missing("no NCCL there", dlvsym(plugin, "ncclAllReduce", "DOOR_1"));
    check_missing("no driver there", dlsym(plugin, "cuGetProcAddress"));

    dlsym(plugin, "ncclNothing");
    dlsym(program, "cuNothing");
    check(true, "the last of two errors: %s", text(dlerror()));
    dlsym(plugin, "ncclAllReduce");
    dlsym(plugin, "door_where");
    check(dlerror() == NULL, "success takes an error away");
    dlsym(plugin, "door_nothing");
    dlsym(RTLD_DEFAULT, "door_where");
    check(dlerror() == NULL, "success takes an error away, by default");
    dlopen("/nothing/there.so", RTLD_NOW);
    check(true, "of dlopen: %s", text(dlerror()));
    dlopen("/nothing/there.so", RTLD_NOW);
    dlsym(plugin, "cuNothing");
    check(true, "of dlsym after dlopen: %s", text(dlerror()));
    errno = ELNRNG;
    dlsym(plugin, "door_where");
    dlsym(RTLD_DEFAULT, "malloc");
    check(errno == ELNRNG, "errno is left alone");
    dlclose(program);
}

static void closed(void)
{
    void *one = open_library("door_versions", RTLD_LOCAL);
    void *two = open_library("door_versions", RTLD_LOCAL);

    dlclose(one);
    check(number(dlsym(two, "ncclDoor")) == 16, "closed once, open twice");
    dlclose(two);
    two = open_library("door_versions", RTLD_LOCAL);
    check(number(dlsym(two, "cuDoor")) == 17, "closed and opened again");
    dlclose(two);
}

static void check_early(const char *name, const struct door_early *early, const char *next)
{
    check(early->ran, "the constructor of %s ran", name);
    check_who("it found next", early->next, next);
    check_who("it found by default", early->self, "program");
    check(!early->version, "it found no version");
    check(!early->missing, "it missed: %s", early->error);
}

static void *on_small_stack(void *plugin)
{
    static char words[3][160];
    const char *error;

    snprintf(words[0], sizeof(words[0]), "%s", who(dlsym(RTLD_NEXT, "door_where")));
    snprintf(words[1], sizeof(words[1]), "%s", who(dlsym(plugin, "door_where")));
    dlsym(plugin, "ncclAllReduce");
    error = dlerror();
    snprintf(words[2], sizeof(words[2]), "%s", error ? strrchr(error, ' ') : " (nothing)");
    return words;
}

static void small_stack(void *plugin)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char(*words)[160];

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    if (pthread_create(&thread, &attributes, on_small_stack, plugin) != 0) {
        check(false, "a thread with the smallest stack starts");
        return;
    }
    pthread_join(thread, (void **)&words);
    check(strcmp(words[0], "first") == 0 && strcmp(words[1], "plugin") == 0 &&
              strcmp(words[2], " ncclAllReduce") == 0,
          "on the smallest stack: %s, %s,%s", words[0], words[1], words[2]);
    pthread_attr_destroy(&attributes);
}

#ifndef WITHOUT_NAMESPACES
static void namespaces(void)
{
    char path[PATH_MAX];
    door_look_function *look;
    void *handle;

    snprintf(path, sizeof(path), "%s/libdoor_plugin.so", folder);
    handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    check(handle != NULL, "a library in a namespace of its own");
    if (!handle)
        return;
    look = (door_look_function *)dlsym(handle, "plugin_look");
    check_who("by its handle", dlsym(handle, "door_where"), "plugin");
    check_who("by default, inside", look(RTLD_DEFAULT, "door_where"), "plugin");
    check_who("next, inside", look(RTLD_NEXT, "door_where"), "third");
    check(!look(RTLD_DEFAULT, "first_only"), "not of the program's namespace");
    check_missing("missing there", dlsym(handle, "ncclNothing"));
    check_missing("missing there", dlsym(handle, "cuNothing"));
    check_missing("missing there", dlsym(handle, "ncclAllReduce"));
}
#endif

int main(int argc, char **argv)
{
    void *plugin;

    if (argc != 2) {
        fprintf(stderr, "usage: door_program FOLDER\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    folder = argv[1];
    check_early("the first library", first_early(), "second");
    check_early("the second library", second_early(), "(nobody)");
    plugin = open_library("door_plugin", RTLD_LOCAL);
    scopes(plugin);
    program_handle();
    through_a_pointer();
    versions();
    names_alike();
    errors(plugin);
    closed();
    small_stack(plugin);
#ifndef WITHOUT_NAMESPACES
    namespaces();
#endif
    dlclose(plugin);
    return failures > 0;
}
