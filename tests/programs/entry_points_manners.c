/* What the dynamic linker answers to look-ups, right and wrong ones: the same with a guard between
 * as without.
 *
 *   entry_points_manners NCCL OTHER_NCCL PLUGIN SEEK
 *
 * NCCL and OTHER_NCCL are copies of NCCL, PLUGIN is linked with NCCL, SEEK is linked with it and
 * has functions of its own whose names begin as NCCL's and CUDA's do. Every line of stdout must be
 * the same with and without the guard. */
#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(const char *what, const char *value)
{
    printf("%s: %s\n", what, value ? value : "nothing");
}

static void say_error(const char *what)
{
    say(what, dlerror());
}

static void say_if(const char *what, bool value)
{
    printf("%s: %s\n", what, value ? "yes" : "no");
}

/* The file name of the object that holds an address. */
static const char *object_of(const void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_fname)
        return NULL;
    return info.dli_fname;
}

static void *open_library(const char *path, int mode)
{
    void *handle = dlopen(path, RTLD_NOW | mode);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return handle;
}

static void missing_names(void *nccl)
{
    const struct {
        const char *what;
        void *handle;
        const char *name, *version; /* of none: NULL */
    } rows[] = {
        {"a name that NCCL lacks", nccl, "ncclNoSuch", NULL},
        {"a name of CUDA that NCCL lacks", nccl, "cuNoSuch", NULL},
        {"a name of nobody", nccl, "no_such_name", NULL},
        {"an empty name", nccl, "", NULL},
        {"a missing version", nccl, "ncclNoSuch", "NCCL_1.0"},
        {"a missing name in the global scope", RTLD_DEFAULT, "ncclNoSuch", NULL},
        {"a missing next one", RTLD_NEXT, "ncclNoSuch", NULL},
        {"a missing versioned one", RTLD_DEFAULT, "ncclNoSuch", "NCCL_1.0"},
        {"a missing versioned next one", RTLD_NEXT, "ncclNoSuch", "NCCL_1.0"},
    };
    dlerror();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *found = rows[i].version ? dlvsym(rows[i].handle, rows[i].name, rows[i].version)
                                      : dlsym(rows[i].handle, rows[i].name);
        printf("%s is found: %s\n", rows[i].what, found ? "yes" : "no");
        say_error("its error");
        if (i == 0)
            say_error("the error once read");
    }
}

/* The error of an earlier failure, with a success in between. */
static void pending_errors(void *nccl)
{
    dlsym(nccl, "ncclNoSuch");
    dlsym(nccl, "ncclAllReduce");
    say_error("an error after a success of ours");
    dlsym(nccl, "no_such_name");
    dlsym(nccl, "ncclAllReduce");
    say_error("an error of another name after a success of ours");
    dlsym(nccl, "ncclNoSuch");
    dlsym(nccl, "dlsym");
    say_error("an error after a success of others");
    dlerror();
    dlsym(nccl, "ncclAllReduce");
    say_error("an error after a success alone");
    dlvsym(nccl, "ncclNoSuch", "NCCL_1.0");
    dlsym(nccl, "ncclAllReduce");
    say_error("an error of a version after a success of ours");
}

static void *error_of_thread(void *nccl)
{
    say_error("the error of another thread");
    dlsym(nccl, "ncclOtherThread");
    say_error("the error of this thread");
    return NULL;
}

static void errors_of_threads(void *nccl)
{
    pthread_t thread;
    dlsym(nccl, "ncclNoSuch");
    if (pthread_create(&thread, NULL, error_of_thread, nccl) == 0)
        pthread_join(thread, NULL);
    say_error("the error of the first thread");
}

static void same_answers(void *nccl, void *again, void *plugin, void *other)
{
    void *answer = dlsym(nccl, "ncclAllReduce");
    say_if("AllReduce is found", answer != NULL);
    say_if("AllReduce twice the same", answer == dlsym(nccl, "ncclAllReduce"));
    say_if("two handles of one library are one", nccl == again);
    say_if("AllReduce through the second handle the same", answer == dlsym(again, "ncclAllReduce"));
    say_if("AllReduce through a library that needs it the same",
           answer == dlsym(plugin, "ncclAllReduce"));
    say_if("AllReduce of two copies differs", answer != dlsym(other, "ncclAllReduce"));
    say_if("AllReduce and AllGather differ", answer != dlsym(nccl, "ncclAllGather"));
    void *versioned = dlvsym(nccl, "ncclAllReduce", "NCCL_1.0");
    say_if("a version of a library without versions is found", versioned != NULL);
    say_error("its error");
    say_if("it is the plain one", versioned == answer);
    say("pncclAllReduce lies in", object_of(dlsym(nccl, "pncclAllReduce")));
    say("pncclAllReduce of the other lies in", object_of(dlsym(other, "pncclAllReduce")));
}

/* Names that only begin alike. */
static void own_names(void *seek)
{
    int *data = dlsym(seek, "ncclNetPlugin_v0");
    int (*answer)(void) = (int (*)(void))dlsym(seek, "cuPluginAnswer");
    printf("data of a plugin: %d\n", data ? *data : -1);
    printf("function of a plugin: %d\n", answer ? answer() : -1);
    say("ncclNetPlugin_v0 lies in", object_of(data));
    say("cuPluginAnswer lies in", object_of((void *)answer));
}

/* Look-ups of everybody else. */
static void names_of_others(void)
{
    void *plain = dlsym(RTLD_DEFAULT, "memcpy");
    say_if("memcpy is found", plain != NULL);
#if defined(__x86_64__)
    void *old = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
    say_if("the old memcpy is found", old != NULL);
    say_if("it is another one", old != plain);
    say_if("a version that nobody has is found",
           dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9") != NULL);
    say_error("its error");
#endif
    say_if("the next malloc is found", dlsym(RTLD_NEXT, "malloc") != NULL);
    say("qsort lies in", object_of(dlsym(RTLD_NEXT, "qsort")));
    say_if("dlsym is found", dlsym(RTLD_DEFAULT, "dlsym") != NULL);
}

static void keeps_errno(void *nccl)
{
    errno = 77;
    dlsym(nccl, "ncclReduce");
    printf("errno after a success: %d\n", errno);
    errno = 77;
    dlsym(nccl, "ncclReduce");
    printf("errno after a second success: %d\n", errno);
}

/* What is in use of a version-less look-up must work as a call, also from a static table. */
static void calls_work(void *nccl, void *other)
{
    int first = 0, second = 0;
    ncclResult_t (*version)(int *) = (ncclResult_t(*)(int *))dlsym(nccl, "ncclGetVersion");
    ncclResult_t (*version_of_other)(int *);
    const char *(*text)(ncclResult_t);
    version_of_other = (ncclResult_t(*)(int *))dlsym(other, "ncclGetVersion");
    text = (const char *(*)(ncclResult_t))dlsym(other, "ncclGetErrorString");
    if (version && version_of_other && text) {
        version(&first);
        version_of_other(&second);
        printf("versions: %d and %d\n", first, second);
        say("text", text(ncclInvalidUsage));
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: entry_points_manners NCCL OTHER_NCCL PLUGIN SEEK\n");
        return 2;
    }
    void *nccl = open_library(argv[1], RTLD_LOCAL);
    void *again = open_library(argv[1], RTLD_LOCAL);
    void *other = open_library(argv[2], RTLD_LOCAL);
    void *plugin = open_library(argv[3], RTLD_LOCAL);
    void *seek = open_library(argv[4], RTLD_LOCAL);

    missing_names(nccl);
    pending_errors(nccl);
    errors_of_threads(nccl);
    same_answers(nccl, again, plugin, other);
    own_names(seek);
    names_of_others();
    keeps_errno(nccl);
    calls_work(nccl, other);
    missing_names(other);
    printf("closed: %d %d %d %d %d\n", dlclose(seek), dlclose(plugin), dlclose(other),
           dlclose(again), dlclose(nccl));
    return 0;
}
