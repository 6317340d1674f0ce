/*
 * Makes a page of `ncclguard analyze --html` of a training job that never ran.
 *
 *     page_job RANKS TROUBLE FILE [STACKS]
 *
 * RANKS is a multiple of 8; TROUBLE one of healthy, missing, dead, stall, mismatch, order, late.
 * STACKS is a folder to which stacks of the ranks are written and from which the page takes them,
 * and, of 8 ranks, their dumps. Each rank has a group of 8 on its host, one across the hosts and
 * the world.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/verdict/straggler.h"
#include "core/verdict/verdict.h"
#include "tools/render/page.h"
#include "tools/render/stack_groups.h"

#define PER_HOST 8
#define STEPS    12 /* of training, that the records tell of */
#define STEP_NS  (48 * NG_MS)
#define STUCK_NS (31 * NG_S + 400 * NG_MS)
#define NOW_NS   (INT64_C(1790412345) * NG_S)

enum trouble { HEALTHY, MISSING, DEAD, STALL, MISMATCH, ORDER, LATE, TROUBLES };
static const char *const trouble_names[TROUBLES] = {"healthy",  "missing", "dead", "stall",
                                                    "mismatch", "order",   "late"};

static struct ng_view view;
static int ranks, culprit;
static enum trouble trouble;

static uint32_t chance(void)
{
    static uint64_t state = 42;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

static int64_t about(int64_t ns)
{
    return ns * 9 / 10 + (int64_t)(chance() % 1000) * ns / 5000;
}

/* Index of the new member; pointers do not last. */
static uint32_t join(uint32_t process, uint64_t id, const char *name, int nranks, int rank)
{
    struct ng_view_group told = {.id = id, .nranks = nranks, .nccl_version = 22809};

    snprintf(told.name, sizeof(told.name), "%s", name);
    uint32_t group = ng_view_tell_group(&view, &told);
    struct ng_view_member *member = ng_view_add_member(&view, process, group, rank);
    member->state = NG_GROUP_READY;
    member->device = (int)process % PER_HOST;
    member->records = ng_arena_alloc(&view.arena, 64 * sizeof(*member->records));
    return view.member_count - 1;
}

/* One more call; `took_ns` 0: it does not finish, and -1: nor does it begin. */
static void call(uint32_t of, struct ng_signature signature, int64_t ago_ns, int64_t took_ns)
{
    static uint64_t next_id;
    struct ng_view_member *member = &view.members[of];
    struct ng_view_record *record = &member->records[member->record_count++];
    int64_t start_ns = ago_ns - about(120 * NG_US);

    member->entered++;
    member->last = signature;
    *record = (struct ng_view_record){.id = ++next_id,
                                      .state = NG_RECORD_SCHEDULED,
                                      .signature = signature,
                                      .coll_seq = member->entered,
                                      .entered_age_ns = ago_ns,
                                      .stream = 0x5500,
                                      .tid = 100};
    member->scheduled = member->entered;
    if (took_ns >= 0) {
        record->state = NG_RECORD_STARTED;
        record->started_age_ns = start_ns;
        member->started = member->entered;
    }
    if (took_ns > 0) {
        record->state = NG_RECORD_COMPLETED;
        record->completed_age_ns = start_ns - took_ns;
        member->completed = member->entered;
    } else if (!member->pending_record) {
        member->pending_record = record->id;
        member->pending_seq = member->entered;
        member->pending_age_ns = ago_ns;
        member->pending_started = took_ns == 0;
    }
}

static const struct ng_signature gather = {NG_OP_AllGather, 9, -1, -1, 1 << 20},
                                 scatter = {NG_OP_ReduceScatter, 9, 0, -1, 1 << 20},
                                 reduce = {NG_OP_AllReduce, 9, 0, -1, 1 << 22},
                                 odd = {NG_OP_AllReduce, 9, 0, -1, (1 << 22) - 512},
                                 norm = {NG_OP_AllReduce, 7, 0, -1, 1};

static void fill_rank(int rank)
{
    struct ng_view_process *process = ng_view_add_process(&view);
    uint32_t index = view.process_count - 1;
    int hosts = ranks / PER_HOST;
    bool stuck = trouble != HEALTHY && trouble != LATE;
    bool guilty = trouble != HEALTHY && trouble != STALL && rank == culprit;
    int64_t end_ns = stuck ? STUCK_NS : 5 * NG_MS;
    char name[64];

    process->rank = process->local_rank = rank;
    process->local_rank = rank % PER_HOST;
    process->world_size = ranks;
    process->pid = 20000 + rank;
    process->life = guilty && trouble == DEAD ? NG_LIFE_DEAD : NG_LIFE_RUNNING;
    process->life_age_ns = process->life == NG_LIFE_DEAD ? STUCK_NS : 0;
    process->moment_mono_ns = 900 * NG_S;
    process->moment_unix_ns = NOW_NS;
    if (process->life == NG_LIFE_DEAD) {
        process->moment_mono_ns -= STUCK_NS;
        process->moment_unix_ns -= STUCK_NS;
    }
    int64_t since_death_ns = NOW_NS - process->moment_unix_ns;
    snprintf(process->host, sizeof(process->host), "gpu-node-%03d", rank / PER_HOST);
    snprintf(process->program, sizeof(process->program), "python3.11 </script><b>train.py</b>");
    snprintf(process->source, sizeof(process->source), "rank_%d.json", rank);

    snprintf(name, sizeof(name), "tensor_%d", rank / PER_HOST);
    uint32_t tensor =
        join(index, 0x7e450000 + (uint64_t)(rank / PER_HOST), name, PER_HOST, rank % PER_HOST);
    snprintf(name, sizeof(name), "data_%d", rank % PER_HOST);
    uint32_t data = 0;
    if (hosts > 1)
        data = join(index, 0xda7a0000 + (uint64_t)(rank % PER_HOST), name, hosts, rank / PER_HOST);
    uint32_t world = join(index, 0x30110, "world \"<img src=x onerror=alert(1)>\"", ranks, rank);

    for (uint64_t i = 1; trouble == LATE && i <= 20; i++) {
        struct ng_view_sample sample = {i * 128, 1, about(guilty ? NG_MS : 7 * NG_MS)};
        ng_view_add_sample(&view, &view.members[world], &sample);
    }
    for (int step = 0; step < STEPS; step++) {
        int64_t at_ns =
            end_ns - since_death_ns + (STEPS - step) * STEP_NS + (int64_t)(chance() % 900) * NG_US;
        bool last = step == STEPS - 1 && stuck;
        for (int layer = 0; layer < 2; layer++) {
            call(tensor, gather, at_ns - layer * 12 * NG_MS, about(3 * NG_MS));
            call(tensor, scatter, at_ns - layer * 12 * NG_MS - 6 * NG_MS, about(4 * NG_MS));
        }
        if (hosts > 1)
            call(data, reduce, at_ns - 26 * NG_MS, about(9 * NG_MS));
        if (last && guilty && (trouble == MISSING || trouble == DEAD))
            continue;
        if (last && trouble == ORDER && guilty) {
            call(tensor, reduce, at_ns - 37 * NG_MS, 0);
            continue;
        }
        call(world, last && guilty && trouble == MISMATCH ? odd : norm, at_ns - 37 * NG_MS,
             last ? 0 : about(2 * NG_MS));
        if (last)
            call(world, norm, at_ns - 39 * NG_MS, -1);
    }
}

static void write_stacks(const char *folder)
{
    static const char waits[] = "  in ncclAllReduce #12 of group 0000000000030110 for 31 s\n"
                                "  Native, innermost first:\n"
                                "    #0  cuStreamSynchronize+0x4a (libcuda.so.1+0x1fe0c2)\n"
                                "    #1  cudaStreamSynchronize+0x9c (libcudart.so.12+0x3a01c)\n";
    static const char loads[] = "  Python, innermost first:\n"
                                "    File \"/srv/train/data.py\", line 118 in __getitem__\n"
                                "    File \"/srv/train/<loader>.py\", line 41 in next_batch\n"
                                "    File \"/srv/train/train.py\", line 212 in main\n"
                                "  Native, innermost first:\n"
                                "    #0  read+0x12 (libc.so.6+0xfe0c2)\n"
                                "    #1  _io_FileIO_read_impl+0x70 (python3.11+0x2a1370)\n";
    char path[512];

    for (int rank = 0; rank < ranks; rank++) {
        bool guilty = rank == culprit;
        snprintf(path, sizeof(path), "%s/rank_%d.stacks.txt", folder, rank);
        FILE *file = fopen(path, "w");
        if (!file)
            exit(1);
        fprintf(file, "Stacks of rank %d, pid %d (python3.11) on host gpu-node-%03d.\n", rank,
                20000 + rank, rank / PER_HOST);
        if (guilty)
            fprintf(file,
                    "Look at: thread %d \"python3.11\", in read of /data/shard-07.tar; "
                    "Python: __getitem__ (data.py:118) < next_batch (<loader>.py:41)\n",
                    20000 + rank);
        fprintf(file, "\nThread %d \"python3.11\", %s\n%s", 20000 + rank,
                guilty ? "in read of /data/shard-07.tar" : "in futex", guilty ? loads : waits);
        fprintf(file,
                "\nThread %d \"ncclguard\", in poll\n  Native, innermost first:\n"
                "    #0  poll+0x4f (libc.so.6+0x%x)\n",
                30000 + rank, 0x10a1000 + rank);
        fprintf(file, "\nFiles, with build ids:\n  - libc.so.6\n");
        fclose(file);
    }
}

static int make(const char *file, const char *stacks_folder)
{
    struct ng_verdict_query query = {.stalled_ns = 5 * NG_S};
    struct ng_stack_groups stacks = NG_STACK_GROUPS_NONE;
    struct ng_verdict verdict;

    ng_view_init(&view);
    snprintf(view.job, sizeof(view.job), "llama-70b & <friends>");
    for (int rank = 0; rank < ranks; rank++)
        fill_rank(rank);
    ng_view_note(&view, "rank_77.json: cut off <after> 8192 bytes");
    ng_view_seal(&view);
    int error = ng_verdict_reach(&view, &query, &verdict);
    if (!error)
        error = ng_straggler_blame(&view, &verdict);
    if (error)
        return error;
    verdict.action = "kill";
    if (stacks_folder) {
        write_stacks(stacks_folder);
        error = ng_stack_groups_add_folder(&stacks, stacks_folder);
        for (int rank = 0; ranks == PER_HOST && rank < ranks && !error; rank++)
            error = ng_dump_save_process(&view, (uint32_t)rank, stacks_folder);
    }
    struct ng_page page = {.view = &view, .verdict = &verdict, .stacks = &stacks};
    if (!error)
        error = ng_page_write(&page, file);
    ng_stack_groups_fini(&stacks);
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return error;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    ranks = atoi(argv[1]);
    culprit = ranks * 5 / 8 + 1;
    while (trouble < TROUBLES && strcmp(trouble_names[trouble], argv[2]) != 0)
        trouble++;
    if (ranks <= 0 || trouble == TROUBLES)
        return 2;
    int error = make(argv[3], argc > 4 ? argv[4] : NULL);
    if (error)
        fprintf(stderr, "page_job: %s\n", strerror(-error));
    return error ? 1 : 0;
}
