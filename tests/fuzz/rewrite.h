/*
 * What the library would write of a view, as dumps: of one that came from damaged files, too.
 */
#ifndef NCCLGUARD_TESTS_FUZZ_REWRITE_H
#define NCCLGUARD_TESTS_FUZZ_REWRITE_H

#include "core/view/view.h"

/* A dump and a flight record of each process of a sealed view. 0 or -errno. */
int rewrite_dumps(const struct ng_view *view, int fd);

#endif
