/*
 * Which readers there are.
 */
#include "tests/fuzz/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct part *const parts[] = {&part_progress, &part_incident, &part_faults, &part_rules,
                                    &part_frames,   &part_lines,    &part_ras,    NULL};

const struct part *part_find(const char *name)
{
    for (size_t i = 0; parts[i]; i++)
        if (strcmp(parts[i]->name, name) == 0)
            return parts[i];
    return NULL;
}

void part_promise(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}
