/*
 * The objects (program and shared libraries) that are loaded in this process.
 *
 * Any thread. Nothing here loads an object. With glibc 2.35 or newer, only ng_object_next,
 * ng_object_missed, ng_object_pin and ng_object_unpin take a lock of the dynamic linker.
 */
#ifndef NCCLGUARD_SHIM_OBJECT_H
#define NCCLGUARD_SHIM_OBJECT_H

#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Where an object is mapped. */
struct ng_object {
    const struct link_map *map; /* the dynamic linker's; NULL if it was not queried */
    uintptr_t start, end;
    uintptr_t dynamic; /* its dynamic section: distinguishes it from all other loaded objects */
};

static inline bool ng_object_holds(const struct ng_object *object, const void *address)
{
    return (uintptr_t)address - object->start < object->end - object->start;
}

/*
 * The object that contains `address`: a function about to be called, or a return address, so that
 * the object cannot be unloaded meanwhile. In any namespace with glibc 2.35 or newer, else in ours.
 * False: none (code generated at run time). Cheap.
 */
bool ng_object_of(const void *address, struct ng_object *ret_object);

/* Its path, or "" (the program itself). Copied, since the object may be unloaded afterwards. */
bool ng_object_path(const struct ng_object *object, char *path, size_t size);

/*
 * The `skip`-th object of our namespace with NCCL's name, or, with `any_name`, of all objects. It
 * may be unloaded by the time this returns: pin it before use.
 */
bool ng_object_next(bool any_name, unsigned skip, struct ng_object *ret_object);

/* Whether `other` was loaded too late for the symbols of `object` to be bound to it: after
 * `object`, and after the program had started. */
bool ng_object_missed(const struct ng_object *object, const struct ng_object *other);

/* How many objects were unloaded so far. Takes a lock of the dynamic linker that is only held
 * briefly. */
uint64_t ng_object_unloads(void);

/* Whether an object was loaded at the program's start, and so stays until its end. */
bool ng_object_stays(const struct ng_object *object);

/* Whether an object, or a path, has the name of a NCCL library rather than of one of its
 * plugins. */
bool ng_object_is_nccl(const struct ng_object *object);
bool ng_object_named_nccl(const char *path);

/*
 * Take a reference, so that the object stays loaded. NULL: it was unloaded, or is the program.
 * *ret_foreign: it lies in a dlmopen namespace, which does not have our wrappers.
 */
void *ng_object_pin(const struct ng_object *object, bool *ret_foreign);
void ng_object_unpin(void *handle);

#pragma GCC visibility pop

#endif
