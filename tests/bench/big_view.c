/*
 * Views of large jobs, and verdicts over them.
 */
#include "tests/bench/big_view.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/verdict/verdict.h"

#define SECOND         INT64_C(1000000000)
#define GROUPS_OF_EACH 10
#define PER_HOST       8

static const struct ng_signature all_reduce = {NG_OP_AllReduce, 7, 0, -1, 1024};

/* Group `which` of a process: its number among those of this kind, its place and its size. Kind 0
 * is the world; the others cut it into blocks and combs of different sizes. */
struct place {
    int number, rank, size;
};

static struct place place_of(int process, int which, int processes)
{
    static const int sizes[] = {0, 2, 2, 8, 16, 32, 64, 8, 64, 512};
    int size = which ? sizes[which] : processes;
    if (size > processes)
        size = processes;
    /* Pairs of neighbours, which with those of kind 1 go round all processes. */
    if (which == 2)
        process = (process + processes - 1) % processes;
    if (which < 7)
        return (struct place){process / size, process % size, size};
    int stride = processes / size;
    return (struct place){process % stride, process / stride, size};
}

static struct ng_view_record record_of(uint64_t id, uint64_t seq, enum ng_record_state state)
{
    struct ng_view_record record = {.id = id};
    record.state = state;
    record.signature = all_reduce;
    record.coll_seq = seq;
    record.entered_age_ns = 30 * SECOND;
    record.rolling_hash = seq * 77;
    return record;
}

/* Sends and receives of neighbours near and far, all in flight; of an odd number the last send has
 * no receive. */
static void fill_sends(struct ng_view *view, struct ng_view_member *member, int size, int records)
{
    member->records = ng_arena_alloc(&view->arena, (size_t)records * sizeof(*member->records));
    member->record_count = (uint32_t)records;
    member->p2p_entered = (uint64_t)records;
    member->pending_record = 1;
    member->pending_age_ns = 30 * SECOND;
    for (int i = 0; i < records; i++) {
        struct ng_view_record *record = &member->records[i];
        *record = record_of((uint64_t)i + 1, 0, NG_RECORD_STARTED);
        record->id = 1;
        record->p2p_seq = (uint64_t)i + 1;
        record->peer_ordinal = 1;
        int step = 1 + i / 2;
        bool sends = i % 2 == 0;
        int peer = (member->group_rank + (sends ? step : size - step)) % size;
        record->signature = (struct ng_signature){sends ? NG_OP_Send : NG_OP_Recv, 7, -1, peer, 64};
    }
}

static void fill(struct ng_view *view, const struct big_shape *shape)
{
    ng_view_init(view);
    for (int p = 0; p < shape->processes; p++) {
        struct ng_view_process *process = ng_view_add_process(view);
        process->rank = p;
        process->world_size = shape->processes;
        process->pid = 1000 + p;
        process->life = NG_LIFE_RUNNING;
        snprintf(process->host, sizeof(process->host), "compute-node-%04d", p / PER_HOST);
        if (shape->trouble == BIG_LOST_HOST && p / PER_HOST == 17) {
            process->life = NG_LIFE_LOST;
            process->life_age_ns = 6 * SECOND;
        }
        for (int which = 0; which < GROUPS_OF_EACH; which++) {
            struct place place = place_of(p, which, shape->processes);
            uint64_t id =
                UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)which << 32 | (uint64_t)place.number) + 1;
            uint32_t group = ng_view_intern_group(view, id);
            view->groups[group].nranks = place.size;
            struct ng_view_member *member =
                ng_view_add_member(view, (uint32_t)p, group, place.rank);
            member->state = NG_GROUP_READY;
            if (shape->trouble == BIG_EVERY_SEND && which == 0) {
                fill_sends(view, member, place.size, shape->records);
                continue;
            }
            bool absent = false;
            if (shape->trouble == BIG_MISSING_RANK || shape->trouble == BIG_LOST_HOST)
                absent = shape->trouble == BIG_MISSING_RANK ? p == 1234 : p / PER_HOST == 17;
            /* Everybody came to one half of its groups, and the halves differ. */
            if (shape->trouble == BIG_ORDER)
                absent = (p + which) % 2;
            /* Each waits for the next process, in the pair that it is the first of. */
            if (shape->trouble == BIG_RING)
                absent = which != 1 + p % 2;
            bool waits = shape->trouble != BIG_NOTHING && !absent;
            uint64_t entered = 1000 + waits;
            member->entered = member->scheduled = member->started = entered;
            member->completed = 1000;
            member->last = all_reduce;
            member->rolling_hash = entered * 77 + (shape->trouble == BIG_PARTED && p == 99);
            if (waits) {
                member->pending_record = entered;
                member->pending_seq = entered;
                member->pending_age_ns = 30 * SECOND;
                member->pending_started = true;
            }
            member->record_count = (uint32_t)shape->records;
            member->records =
                ng_arena_alloc(&view->arena, (size_t)shape->records * sizeof(*member->records));
            for (int i = 0; i < shape->records; i++) {
                uint64_t seq = entered - (uint64_t)(shape->records - 1 - i);
                member->records[i] =
                    record_of(seq, seq, seq > 1000 ? NG_RECORD_STARTED : NG_RECORD_COMPLETED);
                member->records[i].rolling_hash += shape->trouble == BIG_PARTED && p == 99;
            }
        }
    }
    ng_view_seal(view);
}

struct ng_view *big_view_make(const struct big_shape *shape)
{
    struct ng_view *view = malloc(sizeof(*view));

    if (view)
        fill(view, shape);
    return view;
}

void big_view_free(struct ng_view *view)
{
    ng_view_fini(view);
    free(view);
}

bool big_view_judge(const struct ng_view *view, char *ret_what, size_t bytes)
{
    const struct ng_verdict_query query = {.stalled_ns = 5 * SECOND};
    struct ng_verdict verdict;

    if (ng_verdict_reach(view, &query, &verdict))
        return false;
    snprintf(ret_what, bytes, "%s, %u culprits", ng_verdict_kind_name(verdict.kind),
             verdict.culprit_count);
    ng_verdict_fini(&verdict);
    return true;
}
