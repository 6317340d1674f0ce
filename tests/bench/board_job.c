/* A made-up job, rank by rank. */
#include "tests/bench/board_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/nccl/op.h"
#include "core/util/clock.h"
#include "store/wire/progress.h"

enum { DTYPE_BFLOAT16 = 9, REDOP_SUM = 0, STUCK_SEQ = 100000, RECORDS_OF_A_RANK = 512 };

__attribute__((noreturn)) static void stop(const char *what)
{
    fprintf(stderr, "board_scale: %s\n", what);
    exit(3);
}

/* Rank r is in the group of those that differ from it only in one or two of its coordinates. */
struct axis {
    const char *name;
    int stride, size;
};

static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static unsigned axes_of(int ranks, struct axis ret_axes[16])
{
    int tp = ranks < 8 ? ranks : 8, pp = ranks / tp < 8 ? ranks / tp : 8, dp = ranks / (tp * pp);
    const struct axis axes[] = {
        {"world", 1, ranks},        {"tensor", 1, tp},           {"pipeline", tp * dp, pp},
        {"data", tp, dp},           {"data, optimizer", tp, dp}, {"tensor and data", 1, tp * dp},
        {"embedding", tp * dp, pp}, {"context", 1, tp},          {"expert", 1, tp * dp},
        {"expert, data", tp, dp},
    };
    memcpy(ret_axes, axes, sizeof(axes));
    return sizeof(axes) / sizeof(axes[0]);
}

static void fill_records(struct ng_view *view, struct ng_view_member *member, unsigned nth,
                         int rank)
{
    uint32_t count = RECORDS_OF_A_RANK / 10;
    member->records = ng_arena_alloc(&view->arena, count * sizeof(*member->records));
    if (!member->records)
        stop("no memory");
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seq = member->entered - count + 1 + i;
        bool done = seq <= member->completed;
        member->records[i] = (struct ng_view_record){
            .id = 1000000 + i * 10 + nth,
            .state = done ? NG_RECORD_COMPLETED : NG_RECORD_STARTED,
            .signature = member->last,
            .coll_seq = seq,
            .entered_age_ns =
                20 * NG_S + (count - i) * 37 * NG_MS + (int64_t)(mix((uint64_t)rank) % NG_MS),
            .caller = UINT64_C(0x7f1234500000) + nth * 4096,
            .tid = 1000u + (uint32_t)rank,
            .rolling_hash = mix(seq * 16 + nth),
        };
    }
    member->record_count = count;
}

static void add_member(struct ng_view *view, const struct board_job *job, int rank, unsigned nth,
                       const struct axis *axis)
{
    int block = rank / (axis->stride * axis->size), place = rank / axis->stride % axis->size;
    uint64_t first = (uint64_t)(block * axis->stride * axis->size + rank % axis->stride);
    uint32_t group = ng_view_intern_group(view, mix((uint64_t)nth << 32 | first));
    struct ng_view_member *member = ng_view_add_member(view, 0, group, place);
    bool stuck = nth == 0, victim = rank == job->victim;

    if (!member)
        stop("no memory");
    struct ng_view_group *told = &view->groups[group];
    told->nranks = axis->size;
    told->nccl_version = 22809;
    told->parent_id = nth ? mix(0) : 0;
    snprintf(told->name, sizeof(told->name), "%s", axis->name);
    member->device = rank % 8;
    member->state = NG_GROUP_READY;
    member->color = nth ? (int)first : -1;
    member->created_by = nth ? NG_OP_CommSplit : NG_OP_CommInitRank;
    member->ordinal = nth;
    member->derived = nth ? 0 : job->groups - 1;
    member->created_age_ns = 3600 * NG_S;
    member->entered = STUCK_SEQ - (stuck && victim);
    member->scheduled = member->entered;
    member->started = member->entered;
    member->completed = stuck ? STUCK_SEQ - 1 : STUCK_SEQ;
    member->rolling_hash = mix(member->entered * 16 + nth);
    member->last = (struct ng_signature){.op = NG_OP_AllReduce,
                                         .dtype = DTYPE_BFLOAT16,
                                         .redop = REDOP_SUM,
                                         .root = -1,
                                         .count = UINT64_C(1) << (12 + nth)};
    snprintf(member->pci_id, sizeof(member->pci_id), "0000:%02x:00.0", 0x18 + rank % 8);
    fill_records(view, member, nth, rank);
    if (stuck && !victim) {
        member->pending_seq = STUCK_SEQ;
        member->pending_record = member->records[member->record_count - 1].id;
        member->pending_age_ns = 20 * NG_S;
        member->pending_started = true;
    }
}

static void encode(const struct board_job *job, int rank, uint32_t records,
                   struct board_blob *ret_blob)
{
    struct ng_view view;
    struct axis axes[16];
    const struct ng_progress_limits limits = {
        .records = records, .label = BOARD_JOB_LABEL, .written_unix_ns = ng_clock_unix_ns()};
    const void *data;

    ng_view_init(&view);
    struct ng_view_process *process = ng_view_add_process(&view);
    if (!process)
        stop("no memory");
    process->rank = rank;
    process->world_size = job->ranks;
    process->local_rank = rank % 8;
    process->pid = 4000 + rank % 8;
    process->uid = mix(UINT64_C(1) << 40 | (uint64_t)rank);
    process->life = NG_LIFE_RUNNING;
    snprintf(process->host, sizeof(process->host), "gpu-node-%04d.cluster", rank / 8);
    snprintf(process->program, sizeof(process->program), "python3.11");
    unsigned count = axes_of(job->ranks, axes);
    for (unsigned nth = 0; nth < job->groups && nth < count; nth++)
        add_member(&view, job, rank, nth, &axes[nth]);
    size_t bytes;
    if (ng_progress_encode(&view, 0, &limits, &view.arena, &data, &bytes) != 0)
        stop("a process cannot be encoded");
    *ret_blob = (struct board_blob){.data = malloc(bytes), .bytes = bytes};
    if (!ret_blob->data)
        stop("no memory");
    memcpy(ret_blob->data, data, bytes);
    ng_view_fini(&view);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void board_job_init(struct board_job *job, int ranks, unsigned groups, uint32_t peace_records,
                    uint32_t suspicion_records)
{
    *job = (struct board_job){.ranks = ranks, .victim = ranks * 5 / 8, .groups = groups};
    job->peace = calloc((size_t)ranks, sizeof(*job->peace));
    job->suspicion = calloc((size_t)ranks, sizeof(*job->suspicion));
    double *times = calloc((size_t)ranks, sizeof(*times));
    if (!job->peace || !job->suspicion || !times)
        stop("no memory");
    for (int rank = 0; rank < ranks; rank++) {
        int64_t before = ng_clock_mono_ns();
        encode(job, rank, peace_records, &job->peace[rank]);
        times[rank] = (double)(ng_clock_mono_ns() - before) / 1e3;
        encode(job, rank, suspicion_records, &job->suspicion[rank]);
    }
    qsort(times, (size_t)ranks, sizeof(*times), by_value);
    job->encode_us = times[ranks / 2];
    free(times);
}
