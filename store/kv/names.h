/*
 * A list of names, as the backends of store/kv/kv.h make one of all keys.
 *
 * Of one thread. All zeros is an empty one.
 */
#ifndef NCCLGUARD_STORE_KV_NAMES_H
#define NCCLGUARD_STORE_KV_NAMES_H

#include <stddef.h>

struct ng_names {
    char **list; /* each its own copy */
    size_t count, room;
};

/* A copy of so many bytes of `name`. 0 or -ENOMEM: then it is not there, and the others stay. */
int ng_names_add(struct ng_names *names, const char *name, size_t bytes);

/* In the order of strcmp, each once: who asks a store for its keys may be shown one several times.
 */
void ng_names_sort(struct ng_names *names);

/* Leaves an empty one. */
void ng_names_free(struct ng_names *names);

#endif
