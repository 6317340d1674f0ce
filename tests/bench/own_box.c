/* The black box of the measuring process, found in its own address space. */
#include "tests/bench/own_box.h"

#include "core/recorder/box.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int own_box_read(struct own_box *ret_box)
{
    char mark[64], line[4096];
    snprintf(mark, sizeof(mark), "/" NG_BOX_PREFIX "%d-", (int)getpid());
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -errno;
    const struct ng_box_header *header = NULL;
    size_t map_bytes = 0;
    while (fgets(line, sizeof(line), maps)) {
        uintptr_t start, end, offset;
        if (!strstr(line, mark) ||
            sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNxPTR, &start, &end, &offset) != 3)
            continue;
        if (offset == 0)
            header = (const struct ng_box_header *)start;
        map_bytes += end - start;
    }
    fclose(maps);
    if (!header)
        return -ENOENT;
    if (header->magic != NG_BOX_MAGIC || header->version != NG_BOX_VERSION)
        return -EPROTO;
    *ret_box = (struct own_box){
        .records = atomic_load_explicit(&header->record_next, memory_order_relaxed) - 1,
        .lost = atomic_load_explicit(&header->records_lost, memory_order_relaxed),
        .groups_lost = atomic_load_explicit(&header->groups_lost, memory_order_relaxed),
        .map_bytes = map_bytes,
    };
    return 0;
}

void own_box_print(void)
{
    struct own_box box;
    if (own_box_read(&box) == 0)
        fprintf(stderr, "box records=%llu lost=%llu groups_lost=%llu\n",
                (unsigned long long)box.records, (unsigned long long)box.lost,
                (unsigned long long)box.groups_lost);
}
