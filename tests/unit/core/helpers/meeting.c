/*
 * The ranks of one host, of which nothing exists but their black boxes.
 */
#include "tests/unit/core/helpers/meeting.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/check/rendezvous.h"
#include "core/comm/comm.h"
#include "core/nccl/nccl.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/view/hash_log.h"

#define ID UINT64_C(0x77)

static const struct ng_nccl nccl = {.version = 22809};
static struct ng_comm *mine;
static struct ng_box writers[MEETING_RANKS], copies[MEETING_RANKS];
static int rank_count;

static struct ng_box *box_of(int rank)
{
    return rank ? &writers[rank] : &ng_guard.box;
}

static void make_group(int rank, uint32_t generation)
{
    struct ng_box_group *group = &box_of(rank)->groups[0];

    group->id = ID;
    group->nranks = rank_count;
    group->group_rank = rank;
    group->entered = 0;
    group->generation = generation;
    group->state = NG_GROUP_READY;
    box_of(rank)->header->group_used = 1;
}

void meeting_begin(const char *folder, int nranks)
{
    const struct ng_box_identity identity = {.job = ""};
    char path[PATH_MAX];

    ng_rendezvous_after_fork();
    ng_comm_after_fork();
    rank_count = nranks;
    for (int rank = 0; rank < nranks; rank++) {
        ng_box_create(folder, &identity, 16, box_of(rank));
        if (!rank)
            continue;
        make_group(rank, 1);
        snprintf(path, sizeof(path), "%s/%s", folder, writers[rank].name);
        ng_box_open(path, &copies[rank]);
        ng_box_read(&copies[rank], NG_BOX_GROUPS);
    }
    mine = ng_comm_create(&nccl, NG_OP_CommInitRank, ID, nranks, 0, "");
}

void meeting_finish(void)
{
    ng_comm_end(mine, NG_GROUP_DESTROYED);
    ng_rendezvous_drop_ended();
    for (int rank = 0; rank < rank_count; rank++) {
        ng_box_close(box_of(rank), NULL);
        if (rank)
            ng_box_close(&copies[rank], NULL);
    }
    ng_guard.box = NG_BOX_NONE;
}

void meeting_open(char kind)
{
    struct ng_rendezvous_place places[MEETING_RANKS];

    for (int rank = 1; rank < rank_count; rank++)
        places[rank - 1] = (struct ng_rendezvous_place){&copies[rank], 0};
    ng_rendezvous_open(mine, kind == 'l' ? NG_RENDEZVOUS_LEADS : NG_RENDEZVOUS_WHOLE, places,
                       (uint32_t)rank_count - 1);
}

void meeting_follow(int lowest)
{
    const struct ng_rendezvous_place place = {&copies[lowest], 0};

    ng_rendezvous_open(mine, NG_RENDEZVOUS_FOLLOWS, &place, 1);
}

void meeting_agree(int rank, uint64_t seq)
{
    ng_hash_log_agree(&box_of(rank)->hash_logs[0], seq);
}

void meeting_pass(int rank, uint64_t seq)
{
    box_of(rank)->hash_logs[0].passed = seq;
    ng_hash_log_wake(&box_of(rank)->hash_logs[0]);
}

void meeting_round(void)
{
    ng_rendezvous_drop_ended();
}

void meeting_enter(int rank, uint64_t hash)
{
    struct ng_box *box = box_of(rank);
    uint64_t seq = NG_LOAD(box->groups[0].entered) + 1;

    ng_hash_log_add(&box->hash_logs[0], seq, hash);
    atomic_store_explicit(&box->groups[0].entered, seq, memory_order_release);
}

void meeting_announce(int rank)
{
    struct ng_comm comm = {.group = &box_of(rank)->groups[0]};

    ng_rendezvous_announce(&comm);
}

void meeting_take_back(int rank)
{
    atomic_fetch_sub(&box_of(rank)->groups[0].entered, 1);
}

void meeting_refuse(int rank)
{
    meeting_take_back(rank);
    atomic_fetch_add(&box_of(rank)->hash_logs[0].refused, 1);
}

void meeting_end(int rank)
{
    if (rank)
        box_of(rank)->groups[0].state = NG_GROUP_DESTROYED;
    else
        ng_comm_end(mine, NG_GROUP_DESTROYED);
}

void meeting_replace(int rank)
{
    meeting_end(rank);
    make_group(rank, box_of(rank)->groups[0].generation + 1);
}

void meeting_renumber(int rank, int as)
{
    box_of(rank)->groups[0].group_rank = as;
    ng_box_read(&copies[rank], NG_BOX_GROUPS);
}

void meeting_truncate(int rank, const char *folder)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", folder, writers[rank].name);
    if (truncate(path, 4096) != 0)
        perror(path);
}

char meeting_await(uint64_t seq, int64_t for_ns)
{
    return "mhau"[ng_rendezvous_await(mine, seq, ng_clock_mono_ns() + for_ns)];
}

int meeting_maps_of(int comms)
{
    struct ng_comm *first = mine, *all[NG_COMM_CAPACITY];

    for (int i = 0; i < comms; i++) {
        mine = all[i] = ng_comm_create(&nccl, NG_OP_CommInitRank, ID, rank_count, 0, "");
        meeting_open('w');
    }
    int most = meeting_maps();
    for (int i = 0; i < comms; i++)
        ng_comm_end(all[i], NG_GROUP_DESTROYED);
    ng_rendezvous_drop_ended();
    mine = first;
    return most;
}

int meeting_maps(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    int count = 0;

    /* Rank 0's own, and those of the writers, may be written to. */
    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "/" NG_BOX_PREFIX) && strstr(line, " r--s ");
    if (maps)
        fclose(maps);
    return count;
}
