/*
 * Messages to the user about the guard's coverage: what it guards, and which calls bypassed it.
 *
 * No step of a call's life: entered at the first communicator, and once more at exit, when other
 * threads may still run. Reads the dynamic linker's tables; must never change or load anything, and
 * never warn of a NCCL that was loaded as a dependency of a library and never used.
 */
#include "shim/parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/nccl/api.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "shim/instance.h"

#define LARGE_CHILD_KIB (64 << 10)

void ng_coverage_log_guarded(const struct ng_guard *guard)
{
    unsigned count = atomic_load(&ng_instance_count);
    char text[700] = "";
    char buffer[NG_VERSION_TEXT_BYTES];

    if (!ng_log_enabled(NG_LOG_INFO))
        return;
    for (unsigned i = 0; i < count; i++) {
        const struct ng_instance *instance = &ng_instances[i];
        size_t used = strlen(text);
        int version = instance->nccl.version;

        snprintf(text + used, sizeof(text) - used, "%sNCCL %s (%s%s)", i ? ", " : "",
                 version > 0 ? ng_instance_version_text(version, buffer) : "of unknown version",
                 instance->chained ? "through another interposer" : instance->nccl.path,
                 instance->nccl.foreign
                     ? ", in a namespace of dlmopen: only calls looked up by dlsym"
                     : "");
    }
    ng_log(NG_LOG_INFO, "guarding job %s, rank %d of %d (%s): %s; %s; black boxes in %s",
           guard->launch.job, guard->launch.rank, guard->launch.world_size, guard->launch.launcher,
           text, ng_guard_cuda() ? "CUDA driver found" : "no CUDA driver yet",
           guard->board ? guard->dir : "private memory");
}

/* ---- Calls that bypassed the guard ---- */

/* A NCCL library of which no call was seen, or not all. */
struct unseen {
    struct ng_object object;
    char path[PATH_MAX];
    bool foreign;
    char bound[PATH_MAX]; /* an object whose calls go straight into it; "" none was found */
};

static bool was_seen(const struct ng_object *object)
{
    unsigned called = atomic_load(&ng_instance_called);

    for (unsigned i = 0; i < NG_INSTANCES_MAX && i < atomic_load(&ng_instance_count); i++)
        if (ng_instances[i].object.dynamic == object->dynamic && called & 1u << i)
            return true;
    return false;
}

static bool is_wrapped(const char *name)
{
    if (strncmp(name, "nccl", 4) != 0)
        return false;
    return NG_ANY(one, ng_api_table, ng_api_count, strcmp(name + 4, one->name) == 0);
}

/* Whether a relocation table binds a name of NCCL's into `object`. */
static bool binds(const ElfW(Rela) * table, size_t bytes, const ElfW(Sym) * symbols,
                  const char *strings, uintptr_t base, const struct ng_object *object)
{
    for (size_t i = 0; i < bytes / sizeof(*table); i++) {
        unsigned long index = ELF64_R_SYM(table[i].r_info);

        if (index == 0 || !is_wrapped(strings + symbols[index].st_name))
            continue;
        if (ng_object_holds(object, *(void *const *)(base + table[i].r_offset)))
            return true;
    }
    return false;
}

static int look_for_binding(struct dl_phdr_info *info, size_t size, void *data)
{
    struct unseen *unseen = data;
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) *rela = NULL, *plt = NULL;
    size_t rela_bytes = 0, plt_bytes = 0, relative = 0;
    const char *strings = NULL;

    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    /* Neither NCCL's calls of itself nor those of one copy to another are calls of the program. */
    if (!dynamic || (uintptr_t)dynamic == unseen->object.dynamic ||
        (info->dlpi_name && ng_object_named_nccl(info->dlpi_name)))
        return 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t value = dynamic->d_un.d_ptr;
        /* The vdso's addresses are not relocated. */
        const void *there =
            (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);

        if (dynamic->d_tag == DT_SYMTAB)
            symbols = there;
        else if (dynamic->d_tag == DT_STRTAB)
            strings = there;
        else if (dynamic->d_tag == DT_RELA)
            rela = there;
        else if (dynamic->d_tag == DT_RELASZ)
            rela_bytes = value;
        else if (dynamic->d_tag == DT_RELACOUNT)
            relative = value;
        else if (dynamic->d_tag == DT_JMPREL)
            plt = there;
        else if (dynamic->d_tag == DT_PLTRELSZ)
            plt_bytes = value;
    }
    if (!symbols || !strings)
        return 0;
    if (rela && relative * sizeof(*rela) <= rela_bytes) {
        rela += relative; /* these have no symbol, and there are many */
        rela_bytes -= relative * sizeof(*rela);
    }
    if (!(rela && binds(rela, rela_bytes, symbols, strings, info->dlpi_addr, &unseen->object)) &&
        !(plt && binds(plt, plt_bytes, symbols, strings, info->dlpi_addr, &unseen->object)))
        return 0;
    snprintf(unseen->bound, sizeof(unseen->bound), "%s",
             info->dlpi_name && info->dlpi_name[0] ? info->dlpi_name : "the program");
    return 1;
}

/*
 * In our namespace: a library to which an object is bound past our wrappers, whether called or not;
 * else the first library of which no call was seen.
 */
static bool find_unseen(struct unseen *ret_unseen)
{
    static struct unseen first NG_LARGE;
    struct ng_object object;
    bool found = false;

    for (unsigned i = 0; ng_object_next(false, i, &object); i++) {
        ret_unseen->object = object;
        if (!ng_object_path(&object, ret_unseen->path, sizeof(ret_unseen->path)))
            continue;
        if (dl_iterate_phdr(look_for_binding, ret_unseen) == 1)
            return true;
        if (!was_seen(&object) && !found) {
            first = *ret_unseen;
            found = true;
        }
    }
    if (found)
        *ret_unseen = first;
    return found;
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

/* The first one in a dlmopen namespace, which dl_iterate_phdr does not show. */
static bool find_foreign(struct unseen *ret_unseen)
{
    const struct r_debug_extended *space = (const struct r_debug_extended *)&_r_debug;

    /* The header declares fewer values than exist. */
    __asm__("" : "+r"(space));
    if (space->base.r_version < 2)
        return false;
    for (space = space->r_next; space; space = space->r_next)
        for (const struct link_map *map = space->base.r_map; map; map = map->l_next) {
            struct ng_object object = {.dynamic = (uintptr_t)map->l_ld};

            if (!ng_object_named_nccl(map->l_name) || was_seen(&object) ||
                strlen(map->l_name) >= PATH_MAX)
                continue;
            strcpy(ret_unseen->path, map->l_name);
            ret_unseen->foreign = true;
            return true;
        }
    return false;
}

#else

static bool find_foreign(struct unseen *ret_unseen)
{
    return false;
}

#endif

/* The process has no rank set, and has waited for a child as large as a rank: a process with a CUDA
 * context has more than 100 MB, and the compilers and tools that programs run have less. Whether
 * this process had a context can no longer be determined: the driver has shut down. */
static bool is_launcher(const struct ng_launch *launch)
{
    struct rusage children;

    return launch->rank < 0 && getrusage(RUSAGE_CHILDREN, &children) == 0 &&
           children.ru_maxrss >= LARGE_CHILD_KIB;
}

void ng_coverage_warn_bypassed(const struct ng_guard *guard)
{
    static struct unseen unseen NG_LARGE;

    if (!find_unseen(&unseen) && !find_foreign(&unseen))
        return;
    /* Frameworks load NCCL whether or not a program uses it. If calls were seen, or if it cannot
     * have been used (no GPU was touched, no other rank) or others use it (a launcher), only a
     * binding past our wrappers counts. */
    bool idle = atomic_load(&ng_instance_called) != 0 || !ng_driver_was_initialised() ||
                guard->launch.world_size == 1 || is_launcher(&guard->launch);
    if (unseen.bound[0])
        ng_log(
            NG_LOG_WARN,
            "%s is bound straight to %s (RTLD_DEEPBIND, or its own symbols first): no call of it "
            "was seen; run `ncclguard doctor -- PROGRAM`",
            unseen.bound, unseen.path);
    else
        ng_log(idle ? NG_LOG_INFO : NG_LOG_WARN,
               "%s was loaded%s, but no call of it was seen: if this program uses it, it was not "
               "guarded; run `ncclguard doctor -- PROGRAM`",
               unseen.path, unseen.foreign ? " in a namespace of its own (dlmopen)" : "");
}
