/*
 * Finds the copies of NCCL in this process and fills the table of real functions of each.
 *
 * At the first call only. Entered by the program's threads, several at once, perhaps before our
 * constructor or from another library's constructor. Must never load a library that the program has
 * not loaded, and never call the dynamic linker with our lock held or from inside dl_iterate_phdr:
 * a thread in dlopen holds the linker's lock and may be waiting for ours.
 */
#include "shim/instance.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/fault/inject.h"
#include "core/nccl/api.h"
#include "core/runtime/unusual.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "shim/dlsym.h"
#include "shim/shim.h"
#include "shim/state.h"

struct ng_instance ng_instances[NG_INSTANCES_ROOM] NG_LARGE;
atomic_uint ng_instance_count;
atomic_uint ng_instance_called;

/* Serialises writers of the tables in this file. Innermost lock: no function is called with it
 * held. */
static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Functions that a library lacks ---- */

#define TOLD_ABSENT  1
#define TOLD_MISSING 2

static atomic_uchar told[NG_API_COUNT];

const char *ng_instance_version_text(int version, char buffer[NG_VERSION_TEXT_BYTES])
{
    int major = version < 10000 ? version / 1000 : version / 10000;
    int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;

    snprintf(buffer, NG_VERSION_TEXT_BYTES, "%d.%d.%d", major, minor, version % 100);
    return buffer;
}

/* The function of a row, as an address. */
static void *const *slot(const struct ng_functions *functions, enum ng_api_id id)
{
    return (void *const *)functions + id;
}

/* The library that lacks the function of a row; NULL none. */
static const struct ng_nccl *find_lacking(enum ng_api_id id)
{
    for (unsigned i = 0; i < atomic_load(&ng_instance_count); i++)
        if (*slot(&ng_instances[i].functions, id) == *slot(&ng_instance_absent.functions, id))
            return &ng_instances[i].nccl;
    return NULL;
}

/* One line for each function, however often the program calls it. */
static void report_missing(enum ng_api_id id)
{
    const struct ng_api *api = &ng_api_table[id];
    const struct ng_nccl *nccl = find_lacking(id);
    unsigned char bit = nccl ? TOLD_MISSING : TOLD_ABSENT;
    char version[NG_VERSION_TEXT_BYTES];

    if (ng_shim_is_inert() || atomic_fetch_or(&told[id], bit) & bit)
        return;
    if (!nccl)
        ng_log(NG_LOG_WARN, "nccl%s was called, but no NCCL library is loaded here: the call fails",
               api->name);
    else if (api->since == 0)
        ng_log(NG_LOG_WARN, "nccl%s exists only in RCCL; %s (NCCL %s) lacks it: the call fails",
               api->name, nccl->path, ng_instance_version_text(nccl->version, version));
    else
        ng_log(NG_LOG_WARN, "nccl%s came with NCCL %s; %s (NCCL %s) lacks it: the call fails",
               api->name, api->since_text, nccl->path,
               ng_instance_version_text(nccl->version, version));
}

#define NG_TRACK(name, major, minor, patch, op, owner, prototype, arguments, ...)                  \
    static ncclResult_t missing_##name prototype                                                   \
    {                                                                                              \
        report_missing(NG_API_##name);                                                             \
        return ncclInvalidUsage;                                                                   \
    }
#define NG_PASS(name, major, minor, patch, owner, type, missing, prototype, arguments, reason)     \
    static type missing_##name prototype                                                           \
    {                                                                                              \
        report_missing(NG_API_##name);                                                             \
        return missing;                                                                            \
    }
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS

const struct ng_instance ng_instance_absent = {
    .functions =
        {
#define NG_TRACK(name, ...) .name = missing_##name,
#define NG_PASS(name, ...)  .name = missing_##name,
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS
        },
    .nccl.path = "",
};

/* ---- The table of libraries ---- */

static const struct ng_instance *find(const struct ng_object *object, bool chained)
{
    unsigned count = atomic_load_explicit(&ng_instance_count, memory_order_acquire);

    return NG_FIND(one, ng_instances, count,
                   one->object.dynamic == object->dynamic && one->chained == chained);
}

/* The entry, or that of another thread that was first; NULL if the table is full. */
static const struct ng_instance *publish(struct ng_instance *instance, void *handle)
{
    const struct ng_instance *published;
    unsigned count;

    pthread_mutex_lock(&publish_lock);
    published = find(&instance->object, instance->chained);
    count = atomic_load_explicit(&ng_instance_count, memory_order_relaxed);
    if (!published && count < NG_INSTANCES_ROOM) {
        instance->nccl.index = count;
        ng_instances[count] = *instance;
        atomic_store_explicit(&ng_instance_count, count + 1, memory_order_release);
        ng_unusual_set(NG_UNUSUAL_LIBRARIES, count > 0);
        published = &ng_instances[count];
        handle = NULL;
    }
    pthread_mutex_unlock(&publish_lock);
    if (handle)
        ng_object_unpin(handle);
    return published;
}

/* If faults are armed, core is informed of each use of a communicator by the program. */
static int injected_async_error(void *comm, int *ret_error)
{
    const struct ng_nccl *nccl = ng_comm_nccl(comm);
    const struct ng_instance *instance = &ng_instances[nccl ? nccl->index : 0];
    ncclResult_t error, result = instance->functions.CommGetAsyncError(comm, &error);

    if (result == ncclSuccess)
        *ret_error = ng_inject_answer(comm, (int)error);
    return (int)result;
}

/* `handle` RTLD_NEXT: the next definition in the global scope, perhaps through other
 * interposers. */
static void fill(struct ng_instance *instance, void *handle)
{
    instance->functions = ng_instance_absent.functions;
    for (unsigned id = 0; id < NG_API_COUNT; id++) {
        char name[64] = "nccl";
        void *symbol;

        strncat(name, ng_api_table[id].name, sizeof(name) - 5);
        symbol = ng_real_dlsym(handle, name);
        if (symbol)
            *(void **)slot(&instance->functions, id) = symbol;
    }

    /* Core's own calls go to the library as well; it tests for NULL instead. */
#define CORE(field, name)                                                                          \
    instance->nccl.field = (__typeof__(instance->nccl.field))ng_real_dlsym(handle, "nccl" #name)
    CORE(get_unique_id, GetUniqueId);
    CORE(comm_init_rank, CommInitRank);
    CORE(comm_init_rank_config, CommInitRankConfig);
    CORE(comm_init_rank_scalable, CommInitRankScalable);
    CORE(comm_split, CommSplit);
    CORE(comm_shrink, CommShrink);
    CORE(comm_grow, CommGrow);
    CORE(comm_abort, CommAbort);
    CORE(comm_get_async_error, CommGetAsyncError);
    CORE(comm_count, CommCount);
    CORE(comm_user_rank, CommUserRank);
    CORE(comm_cu_device, CommCuDevice);
    CORE(comm_register, CommRegister);
    CORE(comm_deregister, CommDeregister);
    CORE(group_start, GroupStart);
    CORE(group_end, GroupEnd);
    /* RCCL dereferences the communicator before it checks that there is one. */
    if (!ng_real_dlsym(handle, "ncclAllToAllv"))
        CORE(all_reduce, AllReduce);
    CORE(get_error_string, GetErrorString);
    CORE(get_last_error, GetLastError);
#undef CORE
    if (ng_inject_armed && instance->nccl.comm_get_async_error)
        instance->nccl.comm_get_async_error = injected_async_error;
}

/* Register `object`, if it contains its own NCCL. */
const struct ng_instance *ng_instance_add(const struct ng_object *object)
{
    const struct ng_instance *known = find(object, false);
    struct ng_instance instance = {.object = *object};
    struct link_map *map = NULL;
    void *handle, *version, *door;

    if (known)
        return known;
    handle = ng_object_pin(object, &instance.nccl.foreign);
    if (!handle)
        return NULL;
    version = ng_real_dlsym(handle, "ncclGetVersion");
    door = ng_real_dlsym(handle, "dlsym");
    /* It has none, or sees that of a library it needs; or it is a second guard, which is no
     * NCCL. */
    if (!version || !ng_object_holds(object, version) || (door && ng_object_holds(object, door))) {
        ng_object_unpin(handle);
        return NULL;
    }
    fill(&instance, handle);
    /* The linker's copy of the path lives as long as the library, which we hold. */
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    instance.nccl.path = map ? map->l_name : "";
    if (ng_object_named_nccl(instance.nccl.path)) {
        instance.start = object->start;
        instance.size = object->end - object->start;
    }
    return publish(&instance, handle);
}

/* Whether every function that exists lies in `object`. */
static bool is_one_object(const struct ng_functions *functions, const struct ng_object *object)
{
    for (unsigned id = 0; id < NG_API_COUNT; id++)
        if (*slot(functions, id) != *slot(&ng_instance_absent.functions, id) &&
            !ng_object_holds(object, *slot(functions, id)))
            return false;
    return true;
}

/*
 * The next definition in the global scope: the library that the program is linked with, perhaps
 * behind another interposer. In that case functions come from more than one object, and each goes
 * where it would go without us.
 */
const struct ng_instance *ng_instance_add_next(void)
{
    void *next = ng_real_dlsym(RTLD_NEXT, "ncclCommInitRank");
    struct ng_instance chain = {.chained = true, .nccl.path = ""};
    const struct ng_instance *known;
    bool foreign;

    if (!next)
        next = ng_real_dlsym(RTLD_NEXT, "ncclAllReduce");
    if (!next || !ng_object_of(next, &chain.object))
        return NULL;
    if ((known = find(&chain.object, true)))
        return known;
    fill(&chain, RTLD_NEXT);
    if (is_one_object(&chain.functions, &chain.object) && (known = ng_instance_add(&chain.object)))
        return known;
    return publish(&chain, ng_object_pin(&chain.object, &foreign));
}

/* What the caller's own object sees: its local scope, with the libraries that it needs. */
const struct ng_instance *ng_instance_add_needed_by(const struct ng_object *caller)
{
    const struct ng_instance *instance = NULL;
    struct ng_object object;
    bool foreign;
    void *handle, *version;

    handle = ng_object_pin(caller, &foreign);
    if (!handle)
        return NULL; /* the program itself: its scope is the global one */
    version = ng_real_dlsym(handle, "ncclGetVersion");
    if (version && ng_object_of(version, &object) && !ng_object_holds(&object, ng_instances))
        instance = ng_instance_add(&object);
    ng_object_unpin(handle);
    return instance;
}

/* All loaded copies: by NCCL's name, or, if NCCL was renamed or is part of a larger library, by its
 * symbols. */
void ng_instance_add_all(bool any_name)
{
    struct ng_object object;

    for (unsigned i = 0; ng_object_next(any_name, i, &object); i++)
        ng_instance_add(&object);
}

void ng_instance_tell_too_many(const struct ng_instance *instance)
{
    static atomic_bool told;

    if (!atomic_exchange(&told, true))
        ng_log(NG_LOG_WARN, "more than %d copies of NCCL are loaded here: %s is not guarded",
               NG_INSTANCES_MAX, instance->nccl.path);
}

const struct ng_instance *ng_instance_of_function(enum ng_api_id id, const void *function)
{
    const struct ng_instance *instance = NULL;
    static atomic_bool told_foreign;
    struct ng_object object;
    int saved = errno;

    if (ng_object_of(function, &object) && !ng_object_holds(&object, ng_instances)) {
        ng_shim_state.depth++;
        instance = ng_instance_add(&object);
        dlerror();
        ng_shim_state.depth--;
    }
    if (instance && instance->nccl.foreign && !atomic_exchange(&told_foreign, true))
        ng_log(NG_LOG_INFO,
               "%s is loaded in a namespace of its own (dlmopen): calls that were looked up from "
               "outside are guarded, those from within are not",
               instance->nccl.path);
    /* Not a variable of that name, nor a function of another interposer. */
    if (instance && *slot(&instance->functions, id) != function)
        instance = NULL;
    if (instance && !ng_instance_is_guarded(instance)) {
        ng_instance_tell_too_many(instance);
        instance = NULL;
    }
    errno = saved;
    return instance;
}

void ng_instance_first_call(const struct ng_instance *instance)
{
    struct ng_instance *entry = &ng_instances[instance - ng_instances];
    int version = 0, saved = errno;

    ng_shim_state.depth++;
    if (entry->functions.GetVersion != ng_instance_absent.functions.GetVersion &&
        entry->functions.GetVersion(&version) == ncclSuccess)
        atomic_store(&entry->nccl.version, version);
    ng_shim_state.depth--;
    errno = saved;
    /* Last: another thread that sees the flag set must also see the version. */
    atomic_fetch_or(&ng_instance_called, 1u << (instance - ng_instances));
}

void ng_instance_after_fork(void)
{
    pthread_mutex_init(&publish_lock, NULL);
}
