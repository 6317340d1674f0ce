/*
 * Another interposer of dlsym, as those are that divide one GPU among several programs: answers one
 * name itself, and passes the others on.
 */
#include <dlfcn.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#endif

static int answers;

EXPORT int other_door_answers(void)
{
    return answers;
}

static int mine(void)
{
    return 42;
}

EXPORT void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);

    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    if (strcmp(name, "other_door_function") == 0 || strcmp(name, "cuOtherDoor") == 0 ||
        strcmp(name, "ncclOtherDoor") == 0) {
        answers++;
        return (void *)mine;
    }
    return real(handle, name);
}
