/*
 * A list of names.
 */
#include "store/kv/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ng_names_add(struct ng_names *names, const char *name, size_t bytes)
{
    if (names->count == names->room) {
        size_t room = names->room ? names->room * 2 : 64;
        char **larger = realloc(names->list, room * sizeof(*larger));
        if (!larger)
            return -ENOMEM;
        names->list = larger;
        names->room = room;
    }
    char *copy = strndup(name, bytes);
    if (!copy)
        return -ENOMEM;
    names->list[names->count++] = copy;
    return 0;
}

void ng_names_free(struct ng_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (struct ng_names){0};
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void ng_names_sort(struct ng_names *names)
{
    size_t kept = 0;

    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), compare_names);
    for (size_t i = 0; i < names->count; i++) {
        if (kept && strcmp(names->list[kept - 1], names->list[i]) == 0)
            free(names->list[i]);
        else
            names->list[kept++] = names->list[i];
    }
    names->count = kept;
}
