/*
 * Finds the C library's own dlsym and dlvsym, which our exported ones hide even from ourselves, and
 * the next ones after ours.
 *
 * Entered by any thread at any time: in the constructors of libraries that start before us, in a
 * replacement of malloc, in the start of a sanitizer's runtime, even before this library is linked.
 * So it takes no lock of ours, allocates nothing, calls nothing but the dlsym that it finds
 * (dl_iterate_phdr belongs to ThreadSanitizer, which is not ready yet), and is built without
 * sanitizers and stack protectors.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "shim/dlsym.h"

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

#pragma GCC visibility push(hidden)

/* Read by dlsym.S. Written by the first caller, perhaps by several with the same value. */
dlsym_function *ng_next_dlsym_address;
dlvsym_function *ng_next_dlvsym_address;

/* Called by dlsym.S: sets the two. */
void ng_next_find(void);

/*
 * Called by dlsym.S before this library is linked: the C library's dlsym, or dlvsym. At that point
 * nothing outside this file can be called, and nothing that the dynamic linker fills in can be
 * read.
 */
void *ng_real_find_unlinked(int versioned);

#pragma GCC visibility pop

static dlsym_function *real_dlsym;
static dlvsym_function *real_dlvsym;

static bool is_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* "/lib/libc.so.6": is libc.so.6. */
static bool is_named(const char *path, const char *name)
{
    const char *last = path;

    for (const char *at = path; *at; at++)
        if (*at == '/')
            last = at + 1;
    return is_same(last, name);
}

/* Address in an entry of the dynamic section. The linker has relocated them in place, but not on
 * every machine and in every object. */
static const void *place(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

/* Number of symbols in an object's table: a GNU hash table gives it only through its chains. */
static uint32_t count_symbols(const uint32_t *gnu_hash)
{
    uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom = gnu_hash[2], last = 0;
    const uint32_t *bucket = gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;

    for (uint32_t i = 0; i < buckets; i++)
        if (bucket[i] > last)
            last = bucket[i];
    if (last < first)
        return 0;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

/* A symbol that an object defines itself. */
static void *find_symbol(uintptr_t base, const ElfW(Dyn) * dynamic, const char *name, unsigned type)
{
    const ElfW(Sym) *symbols = NULL;
    const uint32_t *gnu_hash = NULL, *hash = NULL;
    const char *strings = NULL;
    uint32_t count;

    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *there = place(base, dynamic->d_un.d_ptr);

        if (dynamic->d_tag == DT_SYMTAB)
            symbols = there;
        else if (dynamic->d_tag == DT_STRTAB)
            strings = there;
        else if (dynamic->d_tag == DT_GNU_HASH)
            gnu_hash = there;
        else if (dynamic->d_tag == DT_HASH)
            hash = there;
    }
    if (!symbols || !strings || (!gnu_hash && !hash))
        return NULL;
    count = hash ? hash[1] : count_symbols(gnu_hash);
    /* Each version of it is the same code. */
    for (uint32_t i = 1; i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && (symbols[i].st_info & 0xf) == type &&
            is_same(strings + symbols[i].st_name, name))
            return (void *)(base + symbols[i].st_value);
    return NULL;
}

static const ElfW(Dyn) * find_dynamic(uintptr_t base, const ElfW(Phdr) * headers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (headers[i].p_type == PT_DYNAMIC)
            return (const void *)(base + headers[i].p_vaddr);
    return NULL;
}

/*
 * A function of the C library; `map` is the first of the program's namespace. Objects that the
 * program was started with come first and are never unloaded, so a concurrent dlopen does not
 * interfere.
 */
static void *find_function(const struct link_map *map, const char *name)
{
    void *found = NULL;

    /* Until glibc 2.33 they are in a separate library; after that it is an empty one. */
    for (; map && !found; map = map->l_next)
        if (map->l_name &&
            (is_named(map->l_name, "libc.so.6") || is_named(map->l_name, "libdl.so.2")))
            found = find_symbol(map->l_addr, map->l_ld, name, STT_FUNC);
    return found;
}

static void *no_dlsym(void *handle, const char *name)
{
    return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
    return NULL;
}

static void find_real(void)
{
    dlsym_function *dlsym_there;
    dlvsym_function *dlvsym_there;

    if (__atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE))
        return;
    dlsym_there = (dlsym_function *)find_function(_r_debug.r_map, "dlsym");
    dlvsym_there = (dlvsym_function *)find_function(_r_debug.r_map, "dlvsym");
    /* In another C library nothing is found by name any more, but nothing crashes. */
    __atomic_store_n(&real_dlvsym, dlvsym_there ? dlvsym_there : no_dlvsym, __ATOMIC_RELAXED);
    __atomic_store_n(&real_dlsym, dlsym_there ? dlsym_there : no_dlsym, __ATOMIC_RELEASE);
}

void ng_next_find(void)
{
    dlsym_function *next_dlsym;
    dlvsym_function *next_dlvsym;

    find_real();
    /* Programs that share a GPU run behind interposers that rely on seeing each look-up. */
    next_dlsym = (dlsym_function *)real_dlsym(RTLD_NEXT, "dlsym");
    next_dlvsym = (dlvsym_function *)real_dlsym(RTLD_NEXT, "dlvsym");
    __atomic_store_n(&ng_next_dlvsym_address, next_dlvsym ? next_dlvsym : real_dlvsym,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&ng_next_dlsym_address, next_dlsym ? next_dlsym : real_dlsym,
                     __ATOMIC_RELEASE);
}

void *ng_real_dlsym(void *handle, const char *name)
{
    find_real();
    return real_dlsym(handle, name);
}

void *ng_next_dlsym(void *handle, const char *name)
{
    return ng_next_dlsym_address(handle, name);
}

void *ng_next_dlvsym(void *handle, const char *name, const char *version)
{
    return ng_next_dlvsym_address(handle, name, version);
}

/* ---- Before this library is linked ---- */

static long call_system(long number, long first, long second, long third, long fourth)
{
#if defined(__x86_64__)
    register long rest asm("r10") = fourth;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(first), "S"(second), "d"(third), "r"(rest)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 asm("x8") = number;
    register long x0 asm("x0") = first;
    register long x1 asm("x1") = second;
    register long x2 asm("x2") = third;
    register long x3 asm("x3") = fourth;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

/* An entry of the auxiliary vector that the kernel passed to the dynamic linker; 0: none. */
static uintptr_t find_auxiliary(const ElfW(auxv_t) * entries, unsigned count, uintptr_t type)
{
    for (unsigned i = 0; i < count && entries[i].a_type != AT_NULL; i++)
        if (entries[i].a_type == type)
            return entries[i].a_un.a_val;
    return 0;
}

/* Where the dynamic linker is mapped; 0: unknown. */
static uintptr_t find_linker(void)
{
    ElfW(auxv_t) entries[64];
    uintptr_t base;
    long fd, size;

    fd = call_system(SYS_openat, AT_FDCWD, (long)"/proc/self/auxv", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    size = call_system(SYS_read, fd, (long)entries, sizeof(entries), 0);
    call_system(SYS_close, fd, 0, 0, 0);
    if (size <= 0)
        return 0;
    base = find_auxiliary(entries, (unsigned)(size / (long)sizeof(entries[0])), AT_BASE);
    if (base)
        return base;
    /* It was started as a program, with ours as its argument; its headers are in its first page. */
    base = find_auxiliary(entries, (unsigned)(size / (long)sizeof(entries[0])), AT_PHDR);
    return base & ~(uintptr_t)4095;
}

void *ng_real_find_unlinked(int versioned)
{
    uintptr_t base = find_linker();
    const ElfW(Ehdr) *header = (const void *)base;
    const struct r_debug *debug = NULL;
    void *found;

    if (base)
        debug = find_symbol(
            base, find_dynamic(base, (const void *)(base + header->e_phoff), header->e_phnum),
            "_r_debug", STT_OBJECT);
    found = find_function(debug ? debug->r_map : NULL, versioned ? "dlvsym" : "dlsym");
    if (found)
        return found;
    return versioned ? (void *)no_dlvsym : (void *)no_dlsym;
}
