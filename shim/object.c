/*
 * The objects (program and shared libraries) that are loaded in this process, as reported by glibc.
 *
 * Entered by the program's threads. Must never call the dynamic linker from inside dl_iterate_phdr,
 * and never with a lock of ours held: a thread in dlopen holds the linker's lock and may be waiting
 * for ours.
 */
#include "shim/object.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/memory.h"
#include "shim/dlsym.h"

bool ng_object_named_nccl(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    /* Not libnccl-net.so and other plugins, nor ourselves. */
    return strncmp(name, "libnccl.so", 10) == 0 || strncmp(name, "librccl.so", 10) == 0;
}

/* The object that contains an address, or else the `skip`-th one with NCCL's name, or of any
 * name. */
struct search {
    const void *address;
    bool any_name;
    unsigned skip;
    struct ng_object *found;
    char *path; /* its path is copied here; NULL none. Stacks may be small. */
    size_t size;
};

static bool describe(const struct dl_phdr_info *info, struct ng_object *ret_object)
{
    struct ng_object object = {.start = UINTPTR_MAX};

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + segment->p_vaddr;

        if (segment->p_type == PT_DYNAMIC)
            object.dynamic = begin;
        if (segment->p_type != PT_LOAD)
            continue;
        if (begin < object.start)
            object.start = begin;
        if (begin + segment->p_memsz > object.end)
            object.end = begin + segment->p_memsz;
    }
    *ret_object = object;
    return object.start < object.end;
}

static int match(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    struct ng_object object;

    if (!describe(info, &object))
        return 0;
    if (search->address) {
        if (!ng_object_holds(&object, search->address))
            return 0;
    } else {
        /* The program and the vdso have no path; symbols of the program are never preempted. */
        if (!info->dlpi_name || !strchr(info->dlpi_name, '/') ||
            ng_object_holds(&object, &ng_object_of))
            return 0;
        if (!search->any_name && !ng_object_named_nccl(info->dlpi_name))
            return 0;
        if (search->skip > 0) {
            search->skip--;
            return 0;
        }
    }
    if (search->path) {
        if (!info->dlpi_name || strlen(info->dlpi_name) >= search->size)
            return 0;
        strcpy(search->path, info->dlpi_name);
    }
    *search->found = object;
    return 1;
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

/* By pointer: built here, but may run where glibc lacks it. */
typedef int find_object_function(void *address, struct dl_find_object *ret_found);
static find_object_function *_Atomic find_object;
static atomic_bool find_object_asked;

bool ng_object_of(const void *address, struct ng_object *ret_object)
{
    struct dl_find_object found;
    struct search search = {.address = address, .found = ret_object};
    find_object_function *function = atomic_load_explicit(&find_object, memory_order_acquire);

    if (!function && !atomic_load(&find_object_asked)) {
        function = (find_object_function *)ng_real_dlsym(RTLD_DEFAULT, "_dl_find_object");
        atomic_store_explicit(&find_object, function, memory_order_release);
        atomic_store(&find_object_asked, true);
    }
    if (!function)
        return dl_iterate_phdr(match, &search) == 1;
    if (function((void *)address, &found) != 0)
        return false;
    ret_object->map = found.dlfo_link_map;
    ret_object->start = (uintptr_t)found.dlfo_map_start;
    ret_object->end = (uintptr_t)found.dlfo_map_end;
    ret_object->dynamic = (uintptr_t)found.dlfo_link_map->l_ld;
    return true;
}

#else

bool ng_object_of(const void *address, struct ng_object *ret_object)
{
    struct search search = {.address = address, .found = ret_object};

    return dl_iterate_phdr(match, &search) == 1;
}

#endif

bool ng_object_path(const struct ng_object *object, char *path, size_t size)
{
    struct ng_object again;
    struct search search = {
        .address = (const void *)object->start, .found = &again, .path = path, .size = size};

    if (!object->map)
        return dl_iterate_phdr(match, &search) == 1;
    if (!object->map->l_name || strlen(object->map->l_name) >= size)
        return false;
    strcpy(path, object->map->l_name);
    return true;
}

static __attribute__((noinline)) bool is_nccl_by_copy(const struct ng_object *object)
{
    char path[PATH_MAX];

    return ng_object_path(object, path, sizeof(path)) && ng_object_named_nccl(path);
}

bool ng_object_is_nccl(const struct ng_object *object)
{
    if (object->map)
        return object->map->l_name && ng_object_named_nccl(object->map->l_name);
    return is_nccl_by_copy(object);
}

bool ng_object_next(bool any_name, unsigned skip, struct ng_object *ret_object)
{
    struct search search = {.any_name = any_name, .skip = skip, .found = ret_object};

    return dl_iterate_phdr(match, &search) == 1;
}

/* How many objects the program was started with: these see each other, whatever their order. */
static unsigned first_objects = UINT_MAX;

/* Their dynamic sections, as far as there is room. */
#define FIRST_MAX 512u
static uintptr_t first_dynamic[FIRST_MAX] NG_LARGE;

static int note_object(struct dl_phdr_info *info, size_t size, void *data)
{
    unsigned *count = data;
    struct ng_object object;

    if (*count < FIRST_MAX && describe(info, &object))
        first_dynamic[*count] = object.dynamic;
    ++*count;
    return 0;
}

/* Before the composition root's constructor. */
__attribute__((constructor(101))) static void note_first_objects(void)
{
    unsigned count = 0;

    dl_iterate_phdr(note_object, &count);
    first_objects = count;
}

/* The linker appends the objects that it loads. */
struct order {
    uintptr_t object, other; /* dynamic sections */
    unsigned passed;
    bool met;
};

static int match_order(struct dl_phdr_info *info, size_t size, void *data)
{
    struct order *order = data;
    struct ng_object object;

    if (describe(info, &object)) {
        if (object.dynamic == order->other)
            return 1;
        if (object.dynamic == order->object)
            order->met = true;
    }
    order->passed++;
    return 0;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *data)
{
    *(uint64_t *)data = info->dlpi_subs;
    return 1;
}

uint64_t ng_object_unloads(void)
{
    uint64_t unloads = 0;

    dl_iterate_phdr(count_unloads, &unloads);
    return unloads;
}

bool ng_object_stays(const struct ng_object *object)
{
    for (unsigned i = 0; first_objects != UINT_MAX && i < FIRST_MAX && i < first_objects; i++)
        if (first_dynamic[i] == object->dynamic)
            return true;
    return false;
}

bool ng_object_missed(const struct ng_object *object, const struct ng_object *other)
{
    struct order order = {.object = object->dynamic, .other = other->dynamic};

    return dl_iterate_phdr(match_order, &order) == 1 && order.met && order.passed >= first_objects;
}

/* Without a link map: by a copy of the path, which takes a page of stack. */
static __attribute__((noinline)) void *open_by_copy(const struct ng_object *object)
{
    char path[PATH_MAX];

    return ng_object_path(object, path, sizeof(path)) && path[0]
               ? dlopen(path, RTLD_NOLOAD | RTLD_LAZY)
               : NULL;
}

void *ng_object_pin(const struct ng_object *object, bool *ret_foreign)
{
    const char *path = object->map ? object->map->l_name : NULL;
    struct link_map *map = NULL;
    Lmid_t space = LM_ID_BASE;
    void *handle;

    /* glibc's handles are its link maps. Without one, the object was found in our own namespace. */
    if (object->map &&
        (!path || !path[0] || dlinfo((void *)object->map, RTLD_DI_LMID, &space) != 0))
        return NULL;
    if (!object->map)
        handle = open_by_copy(object);
    else if (space == LM_ID_BASE)
        handle = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    else
        handle = dlmopen(space, path, RTLD_NOLOAD | RTLD_LAZY);
    if (!handle)
        return NULL;
    /* Another object may have this path by now. */
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || (uintptr_t)map->l_ld != object->dynamic) {
        dlclose(handle);
        return NULL;
    }
    *ret_foreign = space != LM_ID_BASE;
    return handle;
}

void ng_object_unpin(void *handle)
{
    dlclose(handle);
}
