/*
 * Answers look-ups of the CUDA driver's functions with the enabled hooks.
 *
 * Beside the steps of a call. Entered by the program's threads from dlsym, and in place of
 * cuGetProcAddress by any code that queries the driver; the first queries arrive before the driver
 * is initialised. Must never load a driver, never take a lock of ours, and never change the
 * driver's answer except for the address of a hooked function.
 */
#include "shim/cuda_door.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "core/util/log.h"
#include "shim/instance.h"
#include "shim/object.h"
#include "shim/state.h"

/* ---- The caller ---- */

struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash, *hash;
};

static bool find_symbols(const struct ng_object *object, struct symbols *ret_symbols)
{
    const ElfW(Dyn) *entry = (const void *)object->dynamic;
    struct symbols symbols = {0};

    for (; entry && entry->d_tag != DT_NULL; entry++) {
        uintptr_t value = entry->d_un.d_ptr;
        /* The dynamic linker has relocated these in place, but not in every object. */
        const void *place = (const void *)(value < object->start ? object->start + value : value);

        if (entry->d_tag == DT_SYMTAB)
            symbols.table = place;
        else if (entry->d_tag == DT_STRTAB)
            symbols.strings = place;
        else if (entry->d_tag == DT_GNU_HASH)
            symbols.gnu_hash = place;
        else if (entry->d_tag == DT_HASH)
            symbols.hash = place;
    }
    *ret_symbols = symbols;
    return symbols.table && symbols.strings && (symbols.gnu_hash || symbols.hash);
}

static bool is_defined(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];

    return symbol->st_shndx != SHN_UNDEF && strcmp(symbols->strings + symbol->st_name, name) == 0;
}

/*
 * Whether an object itself exports a name. Does not use dlsym, which also searches the libraries
 * that the object needs and would leave an error for the program in dlerror.
 */
static bool exports(const struct ng_object *object, const char *name)
{
    const uint32_t *gnu, *bucket, *chain;
    struct symbols symbols;
    uint32_t hash = 5381;
    uint32_t index;

    if (!find_symbols(object, &symbols))
        return false;
    gnu = symbols.gnu_hash;
    if (!gnu) {
        for (index = 1; index < symbols.hash[1]; index++)
            if (is_defined(&symbols, index, name))
                return true;
        return false;
    }
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    /* Buckets, first symbol, words of the filter and its shift; the filter; the buckets. */
    bucket = gnu + 4 + gnu[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chain = bucket + gnu[0];
    index = gnu[0] ? bucket[hash % gnu[0]] : 0;
    if (index < gnu[1])
        return false;
    for (;; index++) {
        uint32_t there = chain[index - gnu[1]];

        if ((there | 1) == (hash | 1) && is_defined(&symbols, index, name))
            return true;
        if (there & 1)
            return false;
    }
}

static bool has_name(const struct ng_object *object, const char *beginning)
{
    char path[PATH_MAX];
    const char *slash;

    if (!ng_object_path(object, path, sizeof(path)))
        return false;
    slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, beginning, strlen(beginning)) == 0;
}

static bool holds_nccl(const struct ng_object *object)
{
    char path[PATH_MAX];

    return (ng_object_path(object, path, sizeof(path)) && ng_object_named_nccl(path)) ||
           exports(object, "ncclGetVersion");
}

/* Objects that have asked before: the address of the dynamic section, with the lowest bit set if it
 * is NCCL's. A runtime asks some hundred times. */
#define ASKERS_MAX 64
static atomic_uintptr_t askers[ASKERS_MAX];

bool ng_cuda_door_is_nccl(const void *address)
{
    unsigned count = atomic_load_explicit(&ng_instance_count, memory_order_acquire);
    struct ng_object object;
    uintptr_t verdict;

    for (unsigned i = 0; i < count; i++)
        if (!ng_instances[i].chained && ng_object_holds(&ng_instances[i].object, address))
            return true;
    if (!ng_object_of(address, &object))
        return false; /* code generated at run time */
    for (unsigned i = 0; i < ASKERS_MAX; i++) {
        uintptr_t known = atomic_load_explicit(&askers[i], memory_order_relaxed);

        if (known == 0)
            break;
        if ((known & ~(uintptr_t)1) == object.dynamic)
            return known & 1;
    }
    verdict = object.dynamic | holds_nccl(&object);
    for (unsigned i = 0; i < ASKERS_MAX; i++) {
        uintptr_t none = 0;

        if (atomic_compare_exchange_strong(&askers[i], &none, verdict) || none == verdict)
            break;
    }
    return verdict & 1;
}

/* ---- The driver ---- */

/* The dynamic section of the one driver whose functions are hooked. */
static atomic_uintptr_t driver;

/*
 * A program's own function with a driver's name stays its own, and a second copy of the driver (in
 * another namespace) does not match the real functions of the first. The driver stays loaded from
 * now on: programs that probe for it close it again, but keep the addresses.
 */
static bool is_driver(const void *function)
{
    struct ng_object object;
    uintptr_t known = atomic_load_explicit(&driver, memory_order_relaxed);
    bool foreign;

    if (!ng_object_of(function, &object))
        return false;
    if (known != 0)
        return known == object.dynamic;
    if (!has_name(&object, "libcuda.so"))
        return false;
    if (!ng_object_pin(&object, &foreign)) {
        dlerror(); /* or the program would read our error as its own */
        return false;
    }
    return atomic_compare_exchange_strong(&driver, &known, object.dynamic) ||
           known == object.dynamic;
}

/*
 * A look-up during a NCCL call belongs to NCCL, except that of a CUDA runtime that NCCL shares with
 * the program and has initialised first.
 */
static bool is_for_nccl(const void *caller)
{
    struct ng_object object;

    if (ng_cuda_door_is_nccl(caller))
        return true;
    return ng_shim_state.depth > 0 &&
           !(ng_object_of(caller, &object) && has_name(&object, "libcudart.so"));
}

void *ng_cuda_door(const char *name, void *real, const void *caller)
{
    enum ng_cuda_hook hook;
    void *answer = real;
    int saved;

    if (!ng_cuda_door_is_open())
        return real;
    hook = ng_cuda_hook_of_symbol(name);
    if (hook == NG_CUDA_HOOK_COUNT)
        return real;
    saved = errno;
    if (ng_cuda_hook_is_for(hook, is_for_nccl(caller)) && is_driver(real))
        answer = ng_cuda_hook_answer(hook, real);
    errno = saved;
    return answer;
}

/* ---- In place of cuGetProcAddress ---- */

/* Replace the driver's answer to the query that matches `hook`. */
static void *ask(enum ng_cuda_hook hook, bool second_form)
{
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags;
    int version;
    const char *name = ng_cuda_hook_question(hook, &version, &flags);
    void *function = NULL;
    CUresult result =
        second_form ? ng_cuda_real_cuGetProcAddress_v2()(name, &function, version, flags, &status)
                    : ng_cuda_real_cuGetProcAddress()(name, &function, version, flags);

    return result == CUDA_SUCCESS ? function : NULL;
}

static void report_unknown(enum ng_cuda_hook hook, const char *name, int version)
{
    static atomic_bool told[NG_CUDA_HOOK_COUNT];

    if (!atomic_exchange(&told[hook], true))
        ng_log(NG_LOG_WARN, "%s of CUDA %d.%d is not known here: calls of it are not seen", name,
               version / 1000, version % 1000 / 10);
}

static void replace(const char *name, void **pfn, int version, cuuint64_t flags, const void *caller,
                    bool second_form)
{
    enum ng_cuda_hook hook;

    if (!name || !pfn || !*pfn)
        return;
    hook = ng_cuda_hook_of_question(name, version, flags);
    if (hook == NG_CUDA_HOOK_COUNT || !ng_cuda_hook_is_for(hook, ng_cuda_door_is_nccl(caller)))
        return;
    /* A version newer than the table may have introduced another form, with other arguments. Then
     * the driver's answer differs from its answer to the query for the table's form. */
    if ((version > NG_CUDA_HOOKS_KNOWN || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) &&
        ask(hook, second_form) != *pfn) {
        report_unknown(hook, name, version);
        return;
    }
    *pfn = ng_cuda_hook_answer(hook, *pfn);
}

CUresult CUDAAPI ng_cuda_get_proc_address(const char *name, void **pfn, int version,
                                          cuuint64_t flags)
{
    CUresult result = ng_cuda_real_cuGetProcAddress()(name, pfn, version, flags);
    int saved = errno;

    if (result == CUDA_SUCCESS)
        replace(name, pfn, version, flags, __builtin_return_address(0), false);
    errno = saved;
    return result;
}

CUresult CUDAAPI ng_cuda_get_proc_address_v2(const char *name, void **pfn, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult *status)
{
    CUresult result = ng_cuda_real_cuGetProcAddress_v2()(name, pfn, version, flags, status);
    int saved = errno;

    if (result == CUDA_SUCCESS)
        replace(name, pfn, version, flags, __builtin_return_address(0), true);
    errno = saved;
    return result;
}

/* Always present, and before those that start the guard: no look-up goes by without them. */
__attribute__((constructor(102))) static void start(void)
{
    ng_cuda_hook_enable_cuGetProcAddress(ng_cuda_get_proc_address);
    ng_cuda_hook_enable_cuGetProcAddress_v2(ng_cuda_get_proc_address_v2);
}
