/*
 * A program under two interposers of dlsym: names that the other one resolves must still resolve.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

static bool check(const char *what, bool holds)
{
    printf("%s %s\n", holds ? "ok" : "not ok", what);
    return holds;
}

static bool is_other(void *function)
{
    return function && ((int (*)(void))function)() == 42;
}

int main(void)
{
    int (*answers)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "other_door_answers");
    void *library = dlopen("libm.so.6", RTLD_NOW);
    bool ok = true;

    ok &= check("the other interposer is there", answers != NULL);
    ok &= check("by default", is_other(dlsym(RTLD_DEFAULT, "other_door_function")));
    ok &= check("in a library", is_other(dlsym(library, "other_door_function")));
    ok &= check("a name of CUDA", is_other(dlsym(library, "cuOtherDoor")));
    ok &= check("a name of NCCL", is_other(dlsym(library, "ncclOtherDoor")));
    ok &= check("each reached it", answers && answers() == 4);
    ok &= check("what it passes on", dlsym(library, "cos") != NULL);
    ok &= check("what nobody has", !dlsym(library, "cuNobody") && dlerror());
    return !ok;
}
