/*
 * Black boxes of a large job whose processes have all ended, for `run-analyze-scale`: one rank has
 * not come to the last collective.
 *
 *     analyze_boxes FOLDER RANKS RECORDS
 *
 * One box is made as the library makes it, and written again and again with another rank in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/signature.h"
#include "core/util/clock.h"

#define GROUP_ID UINT64_C(0x0123456789abcdef)

static const struct ng_signature all_reduce = {NG_OP_AllReduce, 7, 0, -1, 1 << 20};

static void fill_records(struct ng_box *box, uint64_t records, uint64_t completed)
{
    int64_t now_ns = box->header->heartbeat_mono_ns;
    uint64_t hash = 0;

    for (uint64_t id = 1; id <= records; id++) {
        struct ng_box_record *record = &box->records[ng_record_slot(id, box->record_capacity)];
        bool done = id <= completed;
        hash = ng_signature_roll(hash, &all_reduce);
        record->group_id = GROUP_ID;
        record->group_slot = 0;
        record->op = all_reduce.op;
        record->coll_seq = id;
        record->count = all_reduce.count;
        record->dtype = all_reduce.dtype;
        record->redop = all_reduce.redop;
        record->root = all_reduce.root;
        record->entered_mono_ns = now_ns - 30 * NG_S - (int64_t)(records - id) * NG_MS;
        record->started_mono_ns = record->entered_mono_ns + 20 * NG_US;
        record->completed_mono_ns = done ? record->entered_mono_ns + 50 * NG_US : 0;
        record->tid = 77;
        record->rolling_hash = hash;
        record->id_state = id << 8 | (done ? NG_RECORD_COMPLETED : NG_RECORD_STARTED);
    }
    box->header->record_next = records + 1;
    box->groups[0].rolling_hash = hash;
}

static void fill(struct ng_box *box, int rank, int ranks, uint64_t records)
{
    bool came = rank != ranks / 2;
    uint64_t entered = came ? records : records - 1, completed = records - 1;
    struct ng_box_group *group = &box->groups[0];

    fill_records(box, entered, completed);
    group->id = GROUP_ID;
    group->nranks = ranks;
    group->group_rank = rank;
    group->device = rank % 8;
    group->entered = group->scheduled = group->started = entered;
    group->completed = completed;
    group->entered_record = entered;
    group->pending_record = group->pending_seq = came ? entered : 0;
    group->pending_age_ns = came ? 30 * NG_S : 0;
    group->pending_started = came;
    group->state = NG_GROUP_READY;
    box->header->group_used = 1;
    box->header->rank = rank;
    box->header->local_rank = rank % 8;
    /* Numbers that no process of this machine has. */
    box->header->pid = 5000000 + rank;
}

/* As in the file of a live process: pages that nobody wrote to are holes. */
static int write_pages(int fd, const char *bytes, size_t count)
{
    static const char zeros[4096];

    for (size_t at = 0; at < count; at += sizeof(zeros)) {
        size_t part = count - at < sizeof(zeros) ? count - at : sizeof(zeros);
        if (memcmp(bytes + at, zeros, part) != 0 &&
            pwrite(fd, bytes + at, part, (off_t)at) != (ssize_t)part)
            return -EIO;
    }
    return ftruncate(fd, (off_t)count) == 0 ? 0 : -errno;
}

static int write_box(const struct ng_box *box, const char *folder)
{
    char name[64], path[512];

    ng_box_name(box->header->pid, box->header->start_ticks, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int error = write_pages(fd, (const char *)box->header, box->header->total_bytes);
    close(fd);
    return error;
}

int main(int argc, char **argv)
{
    static struct ng_box box;

    if (argc != 4) {
        fprintf(stderr, "usage: %s FOLDER RANKS RECORDS\n", argv[0]);
        return 2;
    }
    int ranks = atoi(argv[2]), error = 0;
    uint64_t records = strtoull(argv[3], NULL, 10);
    struct ng_box_identity identity = {.rank = 0,
                                       .world_size = ranks,
                                       .local_rank = 0,
                                       .job = "large-job",
                                       .timeout_ns = 600 * NG_S,
                                       .suspect_ns = 5 * NG_S,
                                       .init_timeout_ns = 600 * NG_S};

    /* Without a folder it lives in memory alone. */
    ng_box_create(NULL, &identity, (uint32_t)records, &box);
    if (!box.header || ng_box_reserve_group(&box, 0) != 0) {
        fprintf(stderr, "no black box can be made\n");
        return 1;
    }
    /* They all end at once. */
    box.header->heartbeat_mono_ns = ng_clock_mono_ns();
    for (int rank = 0; rank < ranks && !error; rank++) {
        fill(&box, rank, ranks, records);
        error = write_box(&box, argv[1]);
    }
    if (error)
        fprintf(stderr, "%s: %s\n", argv[1], strerror(-error));
    return error ? 1 : 0;
}
