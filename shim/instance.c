/*
 * Finds the copies of NCCL in this process and fills the table of real functions of each.
 *
 * Step 5 of a call's life, at the first call only. Entered by the program's threads, several at
 * once, perhaps before our constructor or from another library's constructor. Must never load a
 * library that the program has not loaded, and never call the dynamic linker with our lock held or
 * from inside dl_iterate_phdr: a thread in dlopen holds the linker's lock and may be waiting for
 * ours.
 */
#include "shim/instance.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/api.h"
#include "core/log.h"
#include "shim/depth.h"
#include "shim/shim.h"

struct ng_instance ng_instances[NG_INSTANCES_MAX];
atomic_uint ng_instance_count;

/* Serialises writers of the two above. Innermost lock: nothing is called with it held. */
static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Functions that a library lacks ---- */

#define TOLD_ABSENT  1
#define TOLD_MISSING 2

static atomic_uchar told[sizeof(struct ng_functions) / sizeof(void (*)(void))];

static const char *version_text(int version, char *buffer, size_t size)
{
    int major = version < 10000 ? version / 1000 : version / 10000;
    int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;

    snprintf(buffer, size, "%d.%d.%d", major, minor, version % 100);
    return buffer;
}

/* One line a function, however often the program tries. */
static void report_missing(enum ng_api_id id)
{
    const struct ng_api *api = &ng_api_table[id];
    const struct ng_nccl *nccl = ng_shim_nccl(0);
    unsigned char bit = nccl ? TOLD_MISSING : TOLD_ABSENT;
    char version[32];

    if (atomic_fetch_or(&told[id], bit) & bit)
        return;
    if (!nccl)
        ng_log(NG_LOG_WARN, "nccl%s was called, but no NCCL library is loaded here: the call fails",
               api->name);
    else if (api->since == 0)
        ng_log(NG_LOG_WARN, "nccl%s exists only in RCCL; %s (NCCL %s) lacks it: the call fails",
               api->name, nccl->path, version_text(nccl->version, version, sizeof(version)));
    else
        ng_log(NG_LOG_WARN, "nccl%s came with NCCL %s; %s (NCCL %s) lacks it: the call fails",
               api->name, api->since_text, nccl->path,
               version_text(nccl->version, version, sizeof(version)));
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

/* ---- Objects of this process ---- */

/* One loaded object; `path` is a copy, since the object may go away while we look at it. */
struct object {
    char path[PATH_MAX];
    uintptr_t base;
    uintptr_t start;
    uintptr_t size;
};

/* The object that contains an address, or else the `skip`-th one with NCCL's name, or of any. */
struct search {
    const void *address;
    bool by_name;
    unsigned skip;
    struct object *found;
};

static bool is_nccl_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    /* Not libnccl-net.so and other plugins, nor ourselves. */
    return strncmp(name, "libnccl.so", 10) == 0 || strncmp(name, "librccl.so", 10) == 0;
}

static int match(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    uintptr_t low = UINTPTR_MAX;
    uintptr_t high = 0;

    /* The program and the vdso have no path; symbols of the program are never preempted. */
    if (!info->dlpi_name || !strchr(info->dlpi_name, '/'))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type != PT_LOAD)
            continue;
        if (begin < low)
            low = begin;
        if (begin + segment->p_memsz > high)
            high = begin + segment->p_memsz;
    }
    if (low >= high || (uintptr_t)&ng_instances - low < high - low)
        return 0; /* nothing loaded, or ourselves */

    if (search->address) {
        if ((uintptr_t)search->address - low >= high - low)
            return 0;
    } else {
        if (search->by_name && !is_nccl_name(info->dlpi_name))
            return 0;
        if (search->skip > 0) {
            search->skip--;
            return 0;
        }
    }
    if (strlen(info->dlpi_name) >= sizeof(search->found->path))
        return 0;
    strcpy(search->found->path, info->dlpi_name);
    search->found->base = info->dlpi_addr;
    search->found->start = low;
    search->found->size = high - low;
    return 1;
}

static bool find_containing(const void *address, struct object *ret_object)
{
    struct search search = {.address = address, .found = ret_object};

    return dl_iterate_phdr(match, &search) == 1;
}

static bool find_next(bool by_name, unsigned skip, struct object *ret_object)
{
    struct search search = {.by_name = by_name, .skip = skip, .found = ret_object};

    return dl_iterate_phdr(match, &search) == 1;
}

/* ---- Instances ---- */

static void publish(struct ng_instance *instance)
{
    unsigned count;

    pthread_mutex_lock(&publish_lock);
    count = atomic_load_explicit(&ng_instance_count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        if (ng_instances[i].base == instance->base)
            goto unlock; /* another thread was first */
    if (count < NG_INSTANCES_MAX) {
        instance->nccl.index = count;
        ng_instances[count] = *instance;
        atomic_store_explicit(&ng_instance_count, count + 1, memory_order_release);
        instance = NULL;
    }
unlock:
    pthread_mutex_unlock(&publish_lock);
    if (instance)
        dlclose(instance->handle);
}

static void fill(struct ng_instance *instance)
{
    void *handle = instance->handle;
    void *symbol;

    instance->functions = ng_instance_absent.functions;
#define NG_TRACK(name, ...)                                                                        \
    symbol = dlsym(handle, "nccl" #name);                                                          \
    if (symbol)                                                                                    \
        instance->functions.name = (__typeof__(instance->functions.name))symbol;
#define NG_PASS NG_TRACK
#include "shim/nccl_api.def"
#undef NG_TRACK
#undef NG_PASS

    /* Core's own calls go to the library as well; it tests for NULL instead. */
#define CORE(field, name)                                                                          \
    instance->nccl.field = (__typeof__(instance->nccl.field))dlsym(handle, "nccl" #name)
    CORE(comm_abort, CommAbort);
    CORE(comm_get_async_error, CommGetAsyncError);
    CORE(comm_count, CommCount);
    CORE(comm_user_rank, CommUserRank);
    CORE(comm_cu_device, CommCuDevice);
    CORE(group_start, GroupStart);
    CORE(group_end, GroupEnd);
    CORE(get_error_string, GetErrorString);
    CORE(get_last_error, GetLastError);
#undef CORE
}

/* Makes an instance of an object, if it holds a NCCL of its own. */
static void add(const struct object *object)
{
    struct ng_instance instance = {0};
    struct link_map *map = NULL;
    void *symbol;

    instance.handle = dlopen(object->path, RTLD_NOLOAD | RTLD_LAZY);
    if (!instance.handle)
        return; /* unloaded meanwhile */
    symbol = dlsym(instance.handle, "ncclGetVersion");
    if (!symbol || (uintptr_t)symbol - object->start >= object->size) {
        dlclose(instance.handle); /* has none, or sees that of a library it needs */
        return;
    }
    fill(&instance);
    instance.base = object->base;
    if (is_nccl_name(object->path)) {
        instance.start = object->start;
        instance.size = object->size;
    }
    /* The linker's copy of the path lives as long as the library, which we hold. */
    dlinfo(instance.handle, RTLD_DI_LINKMAP, &map);
    instance.nccl.path = map ? map->l_name : "";
    if (instance.functions.GetVersion(&instance.nccl.version) != ncclSuccess)
        instance.nccl.version = 0;
    publish(&instance);
}

/*
 * Several ways lead to NCCL: next in the global scope, where the program is linked with it; by
 * name, where a framework loaded it with RTLD_LOCAL (PyTorch); and at last by its symbols, where it
 * was renamed or is part of a larger library.
 */
static void find_libraries(void)
{
    struct object object;
    void *next = dlsym(RTLD_NEXT, "ncclGetVersion");

    if (next && find_containing(next, &object))
        add(&object);
    for (unsigned i = 0; find_next(true, i, &object); i++)
        add(&object);
    if (atomic_load(&ng_instance_count) == 0)
        for (unsigned i = 0; find_next(false, i, &object); i++)
            add(&object);
    dlerror(); /* or the program would read our failures as its own */
}

const struct ng_instance *ng_instance_choose(const void *owner)
{
    int saved = errno;

    if (atomic_load_explicit(&ng_instance_count, memory_order_acquire) == 0) {
        ng_shim_depth++;
        find_libraries();
        ng_shim_depth--;
        errno = saved;
    }
    /* Several instances: the handle's own one goes here, once creation calls note it. */
    (void)owner;
    if (atomic_load_explicit(&ng_instance_count, memory_order_acquire) == 0)
        return &ng_instance_absent;
    return &ng_instances[0];
}

unsigned ng_shim_nccl_count(void)
{
    return atomic_load_explicit(&ng_instance_count, memory_order_acquire);
}

const struct ng_nccl *ng_shim_nccl(unsigned index)
{
    return index < ng_shim_nccl_count() ? &ng_instances[index].nccl : NULL;
}
