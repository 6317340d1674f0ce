/*
 * Evidence for the tests of `ncclguard analyze`: black boxes of real processes, made through core.
 */
#include "tests/unit/tools/evidence.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/clock.h"
#include "core/dump.h"
#include "core/verdict.h"
#include "core/view.h"
#include "tools/read_box.h"
#include "tools/read_dump.h"

#define GROUP_ID UINT64_C(0x0123456789abcdef)

static struct ng_signature all_reduce(void)
{
    return (struct ng_signature){
        .op = NG_OP_AllReduce, .dtype = 7, .redop = 0, .root = -1, .count = 1024};
}

static int add_rank(struct ng_view *view, const struct evidence_rank *rank, int nranks)
{
    static const enum ng_life lives[] = {NG_LIFE_RUNNING, NG_LIFE_DEAD, NG_LIFE_ENDED_BY_GUARD};
    struct ng_view_process *process = ng_view_add_process(view);
    uint32_t group = ng_view_intern_group(view, GROUP_ID);

    process->rank = rank->rank;
    process->world_size = nranks;
    process->pid = 1000 + rank->rank;
    snprintf(process->host, sizeof(process->host), "node1");
    process->life = lives[rank->life];
    process->life_age_ns = rank->dead_ms * NG_MS;
    view->groups[group].nranks = nranks;
    struct ng_view_member *member =
        ng_view_add_member(view, view->process_count - 1, group, rank->rank);
    member->state = NG_GROUP_READY;
    member->device = rank->rank;
    member->entered = member->scheduled = rank->entered;
    member->started = member->completed = rank->completed;
    member->last = all_reduce();
    member->records = ng_arena_alloc(&view->arena, (rank->entered + 1) * sizeof(*member->records));
    for (uint64_t seq = 1; seq <= rank->entered; seq++)
        member->records[member->record_count++] = (struct ng_view_record){
            .id = seq,
            .state = seq <= rank->completed ? NG_RECORD_COMPLETED : NG_RECORD_STARTED,
            .signature = all_reduce(),
            .coll_seq = seq,
            .entered_age_ns = rank->pending_ms * NG_MS,
        };
    if (rank->pending_ms) {
        member->pending_seq = member->pending_record = rank->completed + 1;
        member->pending_age_ns = rank->pending_ms * NG_MS;
        member->pending_started = true;
        member->started = rank->completed + 1;
    }
    return 0;
}

int evidence_write_dumps(const char *folder, const struct evidence_rank *ranks, int count,
                         int nranks)
{
    struct ng_view view;
    int error = 0;

    ng_view_init(&view);
    snprintf(view.job, sizeof(view.job), "test-job");
    for (int i = 0; i < count; i++)
        add_rank(&view, &ranks[i], nranks);
    ng_view_seal(&view);
    for (uint32_t i = 0; i < view.process_count && !error; i++)
        error = ng_dump_save_process(&view, i, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_make_box(const char *folder, const struct evidence_rank *rank, int nranks)
{
    return evidence_make_box_of("test-job", "", folder, rank, nranks);
}

int evidence_make_box_of(const char *job, const char *group_name, const char *folder,
                         const struct evidence_rank *rank, int nranks)
{
    static struct ng_box box;
    struct ng_box_identity identity = {.rank = rank->rank,
                                       .world_size = nranks,
                                       .local_rank = rank->rank,
                                       .job = job,
                                       .timeout_ns = 600 * NG_S,
                                       .suspect_ns = 5 * NG_S,
                                       .init_timeout_ns = 600 * NG_S};

    int error = ng_box_create(folder, &identity, 64, &box);
    if (error)
        return error;
    error = ng_box_reserve_group(&box, 0);
    if (error)
        return error;
    struct ng_signature signature = all_reduce();
    struct ng_box_group *group = &box.groups[0];
    group->id = GROUP_ID;
    group->nranks = nranks;
    group->group_rank = rank->rank;
    ng_box_write_name(group, group_name);
    group->device = rank->rank;
    group->entered = group->scheduled = rank->entered;
    group->started = group->completed = rank->completed;
    group->last_call = ng_box_pack_call(signature.op, signature.dtype, signature.root);
    group->last_redop = signature.redop;
    group->last_count = signature.count;
    if (rank->pending_ms) {
        group->pending_record = group->pending_seq = rank->completed + 1;
        group->pending_age_ns = rank->pending_ms * NG_MS;
        group->pending_started = 1;
    }
    group->state = NG_GROUP_READY;
    box.header->group_used = 1;
    /* The clock of a dead process is its last heartbeat. */
    box.header->heartbeat_mono_ns = ng_clock_mono_ns() - rank->dead_ms * NG_MS;
    if (rank->life == EVIDENCE_ENDED_BY_GUARD) {
        box.header->life_mono_ns = ng_clock_mono_ns();
        box.header->life = NG_BOX_ENDED_BY_GUARD;
    }
    return 0;
}

static uint64_t any(unsigned *seed, uint64_t limit)
{
    uint64_t number =
        ((uint64_t)rand_r(seed) << 40) ^ ((uint64_t)rand_r(seed) << 20) ^ (uint64_t)rand_r(seed);
    return limit ? number % limit : number;
}

/* Small, in the middle, or at the end of what 64 bits hold. */
static uint64_t any_count(unsigned *seed)
{
    switch (any(seed, 4)) {
    case 0:
        return any(seed, 10);
    case 1:
        return UINT64_MAX - any(seed, 3);
    default:
        return any(seed, 0);
    }
}

static struct ng_signature any_signature(unsigned *seed)
{
    return (struct ng_signature){.op = (uint32_t)any(seed, NG_OP_LIMIT),
                                 .dtype = (int32_t)any(seed, 14) - 1,
                                 .redop = (int32_t)any(seed, 8) - 1,
                                 .root = (int32_t)any(seed, 9) - 1,
                                 .count = any_count(seed)};
}

int evidence_write_random(const char *folder, unsigned seed, char *ret_name, size_t bytes)
{
    struct ng_view view;

    ng_view_init(&view);
    snprintf(view.job, sizeof(view.job), "job \"%u\" \xc3\xa9 \n", seed);
    struct ng_view_process *process = ng_view_add_process(&view);
    process->rank = (int)any(&seed, 4) - 1;
    process->world_size = 4;
    process->pid = (int)any(&seed, 1 << 22) + 1;
    snprintf(process->host, sizeof(process->host), "node-%u", (unsigned)any(&seed, 100));
    process->life = (enum ng_life)any(&seed, NG_LIFE_ENDED_BY_GUARD + 1);
    process->exit_status = (int)any(&seed, 256);
    process->life_age_ns = (int64_t)any(&seed, INT64_MAX);
    for (uint64_t i = any(&seed, 4); i > 0; i--) {
        struct ng_view_call *call = ng_view_add_call(&view, 0);
        call->tid = (uint32_t)any(&seed, UINT32_MAX);
        call->op = (enum ng_op)(1 + any(&seed, NG_OP_LIMIT - 1));
        call->group_id = any(&seed, 0);
        call->group_rank = (int)any(&seed, 5) - 1;
        call->seq = any_count(&seed);
        call->record_id = any_count(&seed);
        call->age_ns = (int64_t)any(&seed, INT64_MAX);
    }
    for (uint64_t i = any(&seed, 5); i > 0; i--) {
        uint32_t index = ng_view_intern_group(&view, 1 + any(&seed, 0));
        struct ng_view_group *group = &view.groups[index];
        group->nranks = 1 + (int)any(&seed, 8);
        group->parent_id = any(&seed, 2) ? any(&seed, 0) : 0;
        group->nccl_version = 22809;
        snprintf(group->name, sizeof(group->name), "tensor\tparallel %u", (unsigned)i);
        struct ng_view_member *member =
            ng_view_add_member(&view, 0, index, (int)any(&seed, (unsigned)group->nranks));
        member->device = (int)any(&seed, 9) - 1;
        member->state = (enum ng_group_state)any(&seed, NG_GROUP_FAILED + 1);
        member->async_error = (int)any(&seed, 8);
        member->ordinal = (uint32_t)any(&seed, 5);
        member->derived = (uint32_t)any(&seed, 5);
        member->entered = any_count(&seed);
        member->scheduled = any_count(&seed);
        member->started = any_count(&seed);
        member->completed = any_count(&seed);
        member->p2p_entered = any_count(&seed);
        member->p2p_completed = any_count(&seed);
        member->last = any_signature(&seed);
        member->pending_seq = any_count(&seed);
        member->pending_record = any_count(&seed);
        member->pending_age_ns = (int64_t)any(&seed, INT64_MAX);
        member->pending_started = any(&seed, 2);
        member->record_count = (uint32_t)any(&seed, 20);
        member->records =
            ng_arena_alloc(&view.arena, (member->record_count + 1) * sizeof(*member->records));
        for (uint32_t k = 0; k < member->record_count; k++)
            member->records[k] = (struct ng_view_record){
                .id = 1 + any(&seed, UINT32_MAX),
                .state = (enum ng_record_state)(1 + any(&seed, NG_RECORD_UNWATCHED)),
                .signature = any_signature(&seed),
                .coll_seq = any_count(&seed),
                .p2p_seq = any_count(&seed),
                .peer_ordinal = any(&seed, 3),
                .entered_age_ns = (int64_t)any(&seed, INT64_MAX),
                .caller = any(&seed, 0),
                .flags = (uint32_t)any(&seed, 16),
            };
    }
    ng_view_seal(&view);
    ng_dump_name(&view, 0, ret_name, bytes);
    int error = ng_dump_save_process(&view, 0, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_copy_dump(const char *path, const char *folder, char *why, size_t why_bytes)
{
    struct ng_view view;

    ng_view_init(&view);
    int error = ng_read_dump(&view, path, "copied", why, why_bytes);
    if (!error) {
        ng_view_seal(&view);
        error = ng_dump_save_process(&view, 0, folder);
    }
    ng_view_fini(&view);
    return error;
}

int evidence_judge(const char *path, int64_t stalled_ns)
{
    struct ng_view view;
    struct ng_verdict verdict;
    struct ng_box_header header;
    struct ng_verdict_query query = {.stalled_ns = stalled_ns};
    char why[256];

    ng_view_init(&view);
    int error = ng_read_dump(&view, path, "file", why, sizeof(why));
    if (error)
        error = ng_read_box(&view, path, "file", &header, why, sizeof(why));
    ng_view_seal(&view);
    if (!error && ng_verdict_reach(&view, &query, &verdict) == 0)
        ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return error;
}
