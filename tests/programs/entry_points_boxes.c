/* Prints what the black boxes of a folder hold, a line of JSON for each: its communicators, and how
 * many calls of each kind were recorded on them. */
#include "core/recorder/box.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define STATES 8

static void print_counts(const char *name, const unsigned *counts)
{
    const char *comma = "";
    printf("\"%s\": {", name);
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        if (!counts[op])
            continue;
        printf("%s\"%s\": %u", comma, ng_op_name(op), counts[op]);
        comma = ", ";
    }
    printf("}");
}

static void print_group(const struct ng_box *box, uint32_t slot)
{
    static const char *const states[STATES] = {"free",      "creating", "ready",  "finalized",
                                               "destroyed", "aborted",  "failed", "?"};
    const struct ng_box_group *group = &box->groups[slot];
    unsigned calls[NG_OP_LIMIT] = {0}, grouped[NG_OP_LIMIT] = {0};
    unsigned unfinished = 0, unwatched = 0;
    uint32_t state = NG_LOAD(group->state);

    for (uint32_t i = 0; i < box->record_capacity; i++) {
        const struct ng_box_record *record = &box->records[i];
        uint64_t id_state = NG_LOAD(record->id_state);
        uint32_t op = NG_LOAD(record->op);
        if (!ng_record_id(id_state) || NG_LOAD(record->group_slot) != slot ||
            NG_LOAD(record->group_id) != NG_LOAD(group->id) || op >= NG_OP_LIMIT)
            continue;
        calls[op]++;
        if (NG_LOAD(record->flags) & NG_RECORD_IN_GROUP)
            grouped[op]++;
        if (ng_record_state(id_state) == NG_RECORD_UNWATCHED)
            unwatched++;
        else if (ng_record_state(id_state) != NG_RECORD_COMPLETED)
            unfinished++;
    }
    printf("{\"state\": \"%s\", \"version\": %d, \"made_by\": \"%s\", \"nranks\": %d, "
           "\"group_rank\": %d, \"unfinished\": %u, \"unwatched\": %u, ",
           states[state < STATES ? state : STATES - 1], NG_LOAD(group->nccl_version),
           ng_op_name(NG_LOAD(group->created_by)), NG_LOAD(group->nranks),
           NG_LOAD(group->group_rank), unfinished, unwatched);
    print_counts("calls", calls);
    printf(", ");
    print_counts("grouped", grouped);
    printf("}");
}

static void print_box(const struct ng_box *box)
{
    const struct ng_box_header *header = box->header;
    uint32_t used = NG_LOAD(header->group_used);
    const char *comma = "";

    printf("{\"rank\": %d, \"pid\": %d, \"records_lost\": %llu, \"groups_lost\": %llu, "
           "\"groups\": [",
           header->rank, header->pid, (unsigned long long)NG_LOAD(header->records_lost),
           (unsigned long long)NG_LOAD(header->groups_lost));
    for (uint32_t slot = 0; slot < used && slot < box->group_capacity; slot++) {
        printf("%s", comma);
        print_group(box, slot);
        comma = ", ";
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *entry;

    if (!folder) {
        fprintf(stderr, "usage: entry_points_boxes FOLDER\n");
        return 2;
    }
    while ((entry = readdir(folder))) {
        struct ng_box box;
        char path[4096];
        if (strncmp(entry->d_name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        int error = ng_box_open(path, &box);
        if (!error)
            error = ng_box_read(&box, NG_BOX_ALL);
        if (error) {
            fprintf(stderr, "%s: %s\n", path, strerror(-error));
            closedir(folder);
            return 1;
        }
        print_box(&box);
        ng_box_close(&box, NULL);
    }
    closedir(folder);
    return 0;
}
