/*
 * The answers of dlsym and dlvsym for names that are ours.
 *
 * Entered by the program's threads from dlsym.S, only for names that begin with "nc" or "cu". Must
 * never answer if the C library's answer depends on the caller, and never change what dlerror
 * reports.
 */
#include "shim/dlsym.h"

#include <dlfcn.h>
#include <string.h>

#include "core/nccl/api.h"
#include "shim/cuda_door.h"
#include "shim/shim.h"
#include "shim/state.h"
#include "shim/stub.h"

static const struct ng_door_answer natural;

/* The row of a name; NG_API_COUNT none. */
static unsigned find_row(const char *name)
{
    unsigned id = 0;

    while (id < NG_API_COUNT && strcmp(ng_api_table[id].name, name) != 0)
        id++;
    return id;
}

static void *look_up(void *handle, const char *name, const char *version)
{
    return version ? ng_next_dlvsym(handle, name, version) : ng_next_dlsym(handle, name);
}

static bool is_ours(const void *address)
{
    struct ng_object object;

    return ng_object_of(address, &object) && ng_object_holds(&object, ng_instances);
}

/*
 * Whether a look-up that depends on the caller would find nothing without us: then it must find
 * nothing with us. Programs use it to test whether NCCL is loaded, or whether it has a newer
 * function. If so, dlerror reports it; only for the program itself does the message name our
 * library.
 */
static bool is_nowhere_else(void *handle, const char *name, const void *caller)
{
    struct ng_object object;
    bool foreign;
    void *found = ng_real_dlsym(RTLD_DEFAULT, name);
    void *scope;

    /* Before us, or behind us in the global scope. */
    if (!found || !is_ours(found) || ng_real_dlsym(RTLD_NEXT, name) ||
        !ng_object_of(caller, &object))
        return false;
    scope = ng_object_pin(&object, &foreign);
    if (!scope) {
        ng_real_dlsym(RTLD_NEXT, name);
        return true; /* the program itself: it sees only the global scope */
    }
    /* Of the libraries, only those preloaded before us reach us with RTLD_NEXT. */
    if (handle == RTLD_NEXT || foreign || ng_real_dlsym(scope, name)) {
        ng_object_unpin(scope);
        return false;
    }
    ng_object_unpin(scope);
    ng_real_dlsym(scope, name); /* it is still loaded, since the caller lies in it */
    return true;
}

struct ng_door_answer ng_door_answer(void *handle, const char *name, const char *version,
                                     const void *caller)
{
    struct ng_door_answer answer = {.answered = 1};
    const struct ng_instance *instance;
    unsigned id;

    /* These two depend on the caller; they find our exported wrappers by themselves if they
     * should. */
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
        if (version || strncmp(name, "nccl", 4) != 0 || find_row(name + 4) == NG_API_COUNT ||
            !is_nowhere_else(handle, name, caller))
            return natural;
        return answer;
    }
    if (ng_shim_is_inert())
        return natural;
    if (name[0] == 'c') {
        if (!ng_cuda_door_is_open())
            return natural;
        answer.address = look_up(handle, name, version);
        if (answer.address)
            answer.address = ng_cuda_door(name, answer.address, caller);
        return answer;
    }
    /* Look-ups of ours, and of NCCL during a call, are not intercepted. */
    if (ng_shim_state.depth > 0 || strncmp(name, "nccl", 4) != 0 ||
        (id = find_row(name + 4)) == NG_API_COUNT)
        return natural;
    answer.address = look_up(handle, name, version);
    if (!answer.address)
        return answer;
    /* The program's own handle, whose scope is the global one. */
    if (is_ours(answer.address)) {
        if (!ng_real_dlsym(RTLD_NEXT, name))
            answer.address = NULL;
        return answer;
    }
    instance = ng_instance_of_function((enum ng_api_id)id, answer.address);
    if (instance)
        answer.address = ng_stub((enum ng_api_id)id, (unsigned)(instance - ng_instances));
    return answer;
}
