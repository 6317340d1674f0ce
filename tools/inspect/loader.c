/*
 * The dynamic linker's search for libraries, reproduced by reading only.
 *
 * Must never load a library nor run a dynamic linker: either may run code of the file.
 */
#include "tools/inspect/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/macros.h"
#include "tools/base/grow.h"
#include "tools/base/search_path.h"

#define CACHE_PATH    "/etc/ld.so.cache"
#define CACHE_LIMIT   ((off_t)64 << 20)
#define OBJECTS_LIMIT 500

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#define PLATFORM  "x86_64"
#else
#define MULTIARCH "aarch64-linux-gnu"
#define PLATFORM  "aarch64"
#endif

static const char *const default_folders[] = {
    "/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib",
};

/* The cache as written by ldconfig since glibc 2.2 (an older table may precede it). */
#define CACHE_MAGIC "glibc-ld.so.cache1.1"
#define OLD_MAGIC   "ld.so-1.7.0"

struct cache_header {
    char magic[20];
    uint32_t count, string_bytes;
    uint32_t flags, extensions, unused[3];
};

struct cache_entry {
    int32_t flags;
    uint32_t key, value; /* offsets from the header */
    uint32_t unused;
    uint64_t hwcap;
};

static size_t cache_start(const struct ng_loader *loader)
{
    struct {
        char magic[12];
        uint32_t count;
    } old;

    if (loader->cache_bytes < sizeof(old))
        return 0;
    memcpy(&old, loader->cache, sizeof(old));
    if (memcmp(old.magic, OLD_MAGIC, sizeof(OLD_MAGIC) - 1) != 0)
        return 0;
    return (sizeof(old) + (size_t)old.count * 12 + 7) & ~(size_t)7;
}

void ng_loader_init(struct ng_loader *ret_loader, const char *library_path)
{
    struct stat status;

    *ret_loader = (struct ng_loader){.library_path = library_path};
    int fd = open(CACHE_PATH, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < CACHE_LIMIT) {
        ret_loader->cache = malloc((size_t)status.st_size + 1);
        ssize_t bytes =
            ret_loader->cache ? read(fd, ret_loader->cache, (size_t)status.st_size) : -1;
        if (bytes > 0) {
            ret_loader->cache_bytes = (size_t)bytes;
            ret_loader->cache[bytes] = '\0'; /* every string is terminated */
        }
    }
    close(fd);
}

void ng_loader_fini(struct ng_loader *loader)
{
    free(loader->cache);
    *loader = (struct ng_loader){0};
}

void ng_loader_each_cached(const struct ng_loader *loader, const char *name,
                           void (*found)(void *context, const char *path), void *context)
{
    size_t start = cache_start(loader);
    struct cache_header header;

    if (start > loader->cache_bytes || loader->cache_bytes - start < sizeof(header))
        return;
    const char *base = loader->cache + start;
    size_t bytes = loader->cache_bytes - start;
    memcpy(&header, base, sizeof(header));
    if (memcmp(header.magic, CACHE_MAGIC, sizeof(header.magic)) != 0 ||
        header.count > (bytes - sizeof(header)) / sizeof(struct cache_entry))
        return;
    for (uint32_t i = 0; i < header.count; i++) {
        struct cache_entry entry;
        memcpy(&entry, base + sizeof(header) + i * sizeof(entry), sizeof(entry));
        if (entry.key < bytes && entry.value < bytes && strcmp(base + entry.key, name) == 0)
            found(context, base + entry.value);
    }
}

/* Whether the dynamic linker would accept this file: it skips those of other machines. */
static bool is_loadable(const char *path)
{
    struct ng_elf_file file;
    const char *why;

    int error = ng_elf_open(path, &file, &why);
    if (error != 0)
        return error == -EBADMSG || error == -ENOEXEC || error == -EACCES; /* it would fail */
    bool foreign = file.foreign;
    ng_elf_close(&file);
    return !foreign;
}

/* `folder` of `length` characters with its tokens replaced: $ORIGIN, $LIB, $PLATFORM. */
static bool expand(const char *folder, size_t length, const char *origin, char *ret_text,
                   size_t bytes)
{
    /* Distributions differ in $LIB; their own C library is there. */
    const char *library_folder = access("/lib/" MULTIARCH, F_OK) == 0 ? "lib/" MULTIARCH : "lib64";
    const struct {
        const char *name, *value;
    } tokens[] = {{"ORIGIN", origin}, {"LIB", library_folder}, {"PLATFORM", PLATFORM}};
    size_t used = 0;

    for (size_t i = 0; i < length;) {
        const char *value = NULL;
        size_t skip = 0;
        for (size_t t = 0; folder[i] == '$' && !value && t < 3; t++) {
            char braced[16];
            size_t name_length = strlen(tokens[t].name);
            int braced_length = snprintf(braced, sizeof(braced), "{%s}", tokens[t].name);
            if (length - i - 1 >= (size_t)braced_length &&
                memcmp(folder + i + 1, braced, (size_t)braced_length) == 0)
                skip = (size_t)braced_length + 1;
            else if (length - i - 1 >= name_length &&
                     memcmp(folder + i + 1, tokens[t].name, name_length) == 0)
                skip = name_length + 1;
            value = skip ? tokens[t].value : NULL;
        }
        const char *piece = value ? value : folder + i;
        size_t piece_length = value ? strlen(value) : 1;
        if (used + piece_length >= bytes)
            return false;
        memcpy(ret_text + used, piece, piece_length);
        used += piece_length;
        i += value ? skip : 1;
        if (value && used > 0 && ret_text[used - 1] == '/' && i < length && folder[i] == '/')
            i++;
    }
    ret_text[used] = '\0';
    return true;
}

static bool find_in_list(const char *list, const char *separators, const char *origin,
                         const char *name, char ret_path[PATH_MAX])
{
    char folder[PATH_MAX], path[PATH_MAX];

    for (const char *at = list; at;) {
        size_t length = strcspn(at, separators);
        /* An empty entry is the working folder. */
        bool fits = expand(length ? at : ".", length ? length : 1, origin, folder, sizeof(folder));
        size_t end = strlen(folder);
        const char *slash = end > 0 && folder[end - 1] == '/' ? "" : "/";
        if (fits &&
            snprintf(path, sizeof(path), "%s%s%s", folder, slash, name) < (int)sizeof(path) &&
            is_loadable(path)) {
            memcpy(ret_path, path, strlen(path) + 1);
            return true;
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

struct take {
    char *path;
    bool taken;
};

static void take_first(void *context, const char *path)
{
    struct take *take = context;

    if (take->taken || strlen(path) >= PATH_MAX || !is_loadable(path))
        return;
    memcpy(take->path, path, strlen(path) + 1);
    take->taken = true;
}

static void origin_of(const char *path, char ret_origin[PATH_MAX])
{
    if (!realpath(path, ret_origin))
        snprintf(ret_origin, PATH_MAX, "%s", path);
    char *slash = strrchr(ret_origin, '/');
    if (slash)
        slash[slash == ret_origin] = '\0'; /* of a program in the root folder: "/" */
}

/* `by` is the chain of requesting objects, the requesting one last; none: an ordinary program. */
static int find(const struct ng_loader *loader, const char *name, const struct ng_closure *closure,
                int by, char ret_path[PATH_MAX])
{
    char origin[PATH_MAX] = "";
    const struct ng_loaded *asker = closure ? closure->objects[by] : NULL;

    if (asker)
        origin_of(asker->path, origin);
    if (strchr(name, '/')) {
        if (!expand(name, strlen(name), origin, ret_path, PATH_MAX))
            return -ENAMETOOLONG;
        return access(ret_path, F_OK) == 0 ? 0 : -ENOENT;
    }
    /* A RUNPATH of the requesting object disables all RPATHs. */
    if (asker && !asker->elf.runpath) {
        for (int at = by; at >= 0; at = closure->objects[at]->parent) {
            const struct ng_loaded *object = closure->objects[at];
            char its_origin[PATH_MAX];
            if (!object->elf.rpath || object->elf.runpath)
                continue;
            origin_of(object->path, its_origin);
            if (find_in_list(object->elf.rpath, ":", its_origin, name, ret_path))
                return 0;
        }
    }
    if (loader->library_path && *loader->library_path &&
        find_in_list(loader->library_path, ":;", origin, name, ret_path))
        return 0;
    if (asker && asker->elf.runpath &&
        find_in_list(asker->elf.runpath, ":", origin, name, ret_path))
        return 0;
    if (asker && asker->elf.no_default_libraries)
        return -ENOENT;
    struct take take = {ret_path, false};
    ng_loader_each_cached(loader, name, take_first, &take);
    if (take.taken)
        return 0;
    for (size_t i = 0; i < NG_COUNT(default_folders); i++)
        if (find_in_list(default_folders[i], ":", origin, name, ret_path))
            return 0;
    return -ENOENT;
}

int ng_loader_find(const struct ng_loader *loader, const char *name, char ret_path[PATH_MAX])
{
    return find(loader, name, NULL, -1, ret_path);
}

static bool answers_to(const struct ng_loaded *object, const char *name)
{
    return (object->elf.soname && strcmp(object->elf.soname, name) == 0) ||
           strcmp(ng_last_part(object->path), name) == 0;
}

const struct ng_loaded *ng_closure_find(const struct ng_closure *closure, const char *name)
{
    for (size_t i = 1; i < closure->count; i++)
        if (answers_to(closure->objects[i], name))
            return closure->objects[i];
    return NULL;
}

/* 0, or -errno and why; an object that is in the list already is not added again. */
static int add_object(struct ng_closure *closure, const char *path, int parent,
                      const char **ret_why)
{
    struct stat status;

    if (stat(path, &status) != 0)
        status = (struct stat){0};
    if (status.st_ino && NG_ANY(one, closure->objects, closure->count,
                                (*one)->device == status.st_dev && (*one)->inode == status.st_ino))
        return 0;
    struct ng_loaded *object = calloc(1, sizeof(*object));
    if (!object || !NG_GROW(closure->objects, closure->count, closure->room)) {
        free(object);
        *ret_why = "no memory";
        return -ENOMEM;
    }
    snprintf(object->path, sizeof(object->path), "%s", path);
    object->device = status.st_dev;
    object->inode = status.st_ino;
    object->parent = parent;
    int error = ng_elf_open(path, &object->elf, ret_why);
    if (error != 0) {
        free(object);
        return error;
    }
    closure->objects[closure->count++] = object;
    return 0;
}

static void add_missing(struct ng_closure *closure, const char *name, int parent, const char *why)
{
    for (size_t i = 0; i < closure->missing_count; i++)
        if (strcmp(closure->missing[i].name, name) == 0)
            return;
    char *copy = strdup(name);
    struct ng_missing *missing = copy ? NG_APPEND(closure->missing, closure->missing_count) : NULL;
    if (missing)
        *missing = (struct ng_missing){copy, parent, why};
    else
        free(copy);
}

int ng_loader_close_over(const struct ng_loader *loader, const char *path,
                         struct ng_closure *ret_closure, const char **ret_why)
{
    struct ng_closure closure = {0};

    int error = add_object(&closure, path, -1, ret_why);
    if (error != 0) {
        ng_closure_fini(&closure);
        return error;
    }
    /* Breadth first, as the dynamic linker does. */
    for (size_t i = 0; i < closure.count; i++) {
        for (size_t j = 0; j < closure.objects[i]->elf.needed_count; j++) {
            const char *name = closure.objects[i]->elf.needed[j], *why = NULL;
            char found[PATH_MAX];
            if (ng_closure_find(&closure, name))
                continue;
            if (closure.count >= OBJECTS_LIMIT)
                closure.cut = true;
            else if (find(loader, name, &closure, (int)i, found) != 0)
                add_missing(&closure, name, (int)i, NULL);
            else if (add_object(&closure, found, (int)i, &why) != 0)
                add_missing(&closure, name, (int)i, why);
        }
    }
    *ret_closure = closure;
    return 0;
}

void ng_closure_fini(struct ng_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++) {
        ng_elf_close(&closure->objects[i]->elf);
        free(closure->objects[i]);
    }
    for (size_t i = 0; i < closure->missing_count; i++)
        free(closure->missing[i].name);
    free(closure->objects);
    free(closure->missing);
    *closure = (struct ng_closure){0};
}
