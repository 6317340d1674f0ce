/*
 * Verdicts over all records of a made-up job, and over those that a merged view keeps.
 */
#include "tests/unit/tools/ingest/merged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/signature.h"
#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/view/signature.h"
#include "tools/ingest/evidence.h"
#include "tools/ingest/read_dump.h"
#include "tools/ingest/view_merge.h"
#include "tools/judge/postmortem.h"
#include "tools/render/analyze_report.h"

#define RANKS_MAX 12

static unsigned any(unsigned *seed, unsigned limit)
{
    return (unsigned)rand_r(seed) % limit;
}

static int judge(struct ng_view *view, struct ng_view_merge *merge, bool incident,
                 struct merged *ret_merged)
{
    struct ng_postmortem postmortem = {.incident = incident};
    struct ng_mismatches mismatches = {0};
    struct ng_verdict verdict = {0};

    int error = ng_view_merge_finish(merge);
    if (error)
        return error;
    ng_view_seal(view);
    ret_merged->records = 0;
    for (uint32_t i = 0; i < view->member_count; i++)
        ret_merged->records += view->members[i].record_count;
    error = ng_mismatches_find(view, &merge->histories, &mismatches);
    if (!error)
        error = ng_postmortem_judge(view, &postmortem, &verdict);
    int fd = memfd_create("verdict", MFD_CLOEXEC);
    if (!error && fd >= 0)
        error = ng_analyze_write_json(view, &verdict, &mismatches, fd);
    ssize_t bytes =
        fd < 0 ? -1 : pread(fd, ret_merged->verdict, sizeof(ret_merged->verdict) - 1, 0);
    if (fd >= 0)
        close(fd);
    ret_merged->verdict[bytes > 0 ? bytes : 0] = '\0';
    ret_merged->findings = mismatches.count;
    ng_mismatches_fini(&mismatches);
    ng_verdict_fini(&verdict);
    return error ? error : bytes > 0 ? 0 : -EIO;
}

/* What all ranks of a group should call as collective `seq`. */
static struct ng_signature planned(unsigned seed, unsigned period, uint64_t seq)
{
    unsigned at = seed * 31 + (unsigned)(seq % period) * 7;

    return (struct ng_signature){.op = 1 + at % 8,
                                 .dtype = (int32_t)(at % 3) + 6,
                                 .redop = 0,
                                 .root = (int32_t)(at % 2),
                                 .count = 16 + at % 5};
}

/* How one rank does not do what was planned. */
struct deviation {
    uint64_t at;   /* 0 never */
    unsigned kind; /* 0 another count, 1 one call too few from then on, 2 too many, 3 other op */
};

static struct ng_signature called(unsigned seed, unsigned period, const struct deviation *deviation,
                                  uint64_t seq)
{
    bool after = deviation->at && seq >= deviation->at;
    struct ng_signature signature = planned(seed, period,
                                            after && deviation->kind == 1   ? seq + 1
                                            : after && deviation->kind == 2 ? seq - 1
                                                                            : seq);
    if (deviation->at == seq && deviation->kind == 0)
        signature.count++;
    if (deviation->at == seq && deviation->kind == 3)
        signature.op = signature.op % 8 + 1;
    return signature;
}

static void add_rank(struct ng_view *view, unsigned *seed, int rank, int ranks, unsigned plan)
{
    struct ng_view_process *process = ng_view_add_process(view);
    uint32_t groups = 1 + plan % 3;

    process->rank = rank;
    process->world_size = ranks;
    process->pid = 100 + rank;
    process->life = any(seed, 12) ? NG_LIFE_RUNNING : NG_LIFE_DEAD;
    snprintf(process->host, sizeof(process->host), "node");
    for (uint32_t g = 0; g < groups; g++) {
        struct ng_view_group told = {.id = 0x1000 + g, .nranks = ranks};
        unsigned period = 1 + (plan >> g) % 9;
        uint64_t length = 40 + plan % 400, stuck = any(seed, 5) ? length : length - any(seed, 30);
        uint64_t kept = any(seed, 3) ? 20 + any(seed, 300) : 1000, hash = 0;
        struct deviation deviation = {any(seed, 6) ? 0 : 2 + any(seed, (unsigned)length),
                                      any(seed, 4)};
        bool hashes = plan % 4 != 0;
        uint32_t index = ng_view_tell_group(view, &told);
        struct ng_view_member *member =
            ng_view_add_member(view, view->process_count - 1, index, rank);
        member->state = NG_GROUP_READY;
        member->records = ng_arena_alloc(&view->arena, (length + 1) * sizeof(*member->records));
        for (uint64_t seq = 1; seq <= stuck; seq++) {
            struct ng_signature signature = called(plan + g, period, &deviation, seq);
            hash = ng_signature_roll(hash, &signature);
            member->last = signature;
            if (stuck - seq >= kept)
                continue;
            member->records[member->record_count++] = (struct ng_view_record){
                .id = seq * groups + g,
                .state = seq < length ? NG_RECORD_COMPLETED : NG_RECORD_STARTED,
                .signature = signature,
                .coll_seq = seq,
                .entered_age_ns = (int64_t)(length - seq + 10) * NG_S,
                .rolling_hash = hashes ? hash : 0,
            };
        }
        member->entered = member->scheduled = member->started = stuck;
        member->completed = stuck < length ? stuck : length - 1;
        member->rolling_hash = hashes ? hash : 0;
        if (stuck == length) {
            member->pending_record = length * groups + g;
            member->pending_seq = length;
            member->pending_age_ns = 10 * NG_S;
            member->pending_started = true;
        }
    }
}

int merged_random(unsigned seed, uint64_t records_whole, struct merged *ret_merged)
{
    struct ng_view_merge merge;
    struct ng_view view;
    unsigned plan = any(&seed, 1 << 16);
    int ranks = 2 + (int)any(&seed, RANKS_MAX - 2), error = 0;
    char why[256];

    ng_view_init(&view);
    ng_view_merge_init(&merge, &view, records_whole);
    for (int rank = 0; rank < ranks && !error; rank++) {
        struct ng_view told;
        ng_view_init(&told);
        add_rank(&told, &seed, rank, ranks, plan);
        error = ng_view_merge_add(&merge, &told, why, sizeof(why));
        ng_view_fini(&told);
    }
    if (!error)
        error = judge(&view, &merge, false, ret_merged);
    ng_view_merge_fini(&merge);
    ng_view_fini(&view);
    return error;
}

static void ignore(void *context, const char *path, const char *why)
{
}

int merged_folder(const char *folder, uint64_t records_whole, struct merged *ret_merged)
{
    struct ng_evidence_paths paths = {0};
    struct ng_evidence evidence;
    struct ng_view_merge merge;
    struct ng_view view;

    ng_view_init(&view);
    ng_view_merge_init(&merge, &view, records_whole);
    int error = ng_evidence_add_path(&paths, folder, ignore, NULL);
    if (!error)
        error = ng_evidence_gather(&paths, &merge, ignore, NULL, &evidence);
    if (!error)
        error = judge(&view, &merge, evidence.incident, ret_merged);
    ng_evidence_paths_fini(&paths);
    ng_view_merge_fini(&merge);
    ng_view_fini(&view);
    return error;
}

/* Processes that have all ended at the same moment. */
static int write_boxes(const char *folder, int count)
{
    struct ng_box_identity identity = {.rank = 0, .world_size = count, .job = "moments"};
    struct ng_box box;
    char path[4096];

    int error = ng_box_create(folder, &identity, 100, &box);
    if (error)
        return error;
    box.header->life = NG_BOX_EXITED;
    box.header->life_mono_ns = ng_clock_mono_ns() - 20 * NG_S;
    for (int i = 0; i < count && !error; i++) {
        box.header->rank = i;
        box.header->pid = 5000000 + i; /* which no process of this machine has */
        snprintf(path, sizeof(path), "%s/" NG_BOX_PREFIX "%d-1", folder, box.header->pid);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, box.header, box.map_bytes) != (ssize_t)box.map_bytes)
            error = -EIO;
        if (fd >= 0)
            close(fd);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, box.name);
    ng_box_close(&box, path);
    return error;
}

int merged_ends(const char *folder, int count, uint32_t *ret_processes, int64_t *ret_apart_ns)
{
    struct ng_evidence_paths paths = {0};
    struct ng_evidence evidence;
    struct ng_view_merge merge;
    struct ng_view view;
    int64_t least = INT64_MAX, most = 0;

    ng_view_init(&view);
    ng_view_merge_init(&merge, &view, 0);
    int error = write_boxes(folder, count);
    if (!error)
        error = ng_evidence_add_path(&paths, folder, ignore, NULL);
    if (!error)
        error = ng_evidence_gather(&paths, &merge, ignore, NULL, &evidence);
    for (uint32_t i = 0; i < view.process_count; i++) {
        int64_t age = view.processes[i].life_age_ns;
        least = age < least ? age : least;
        most = age > most ? age : most;
    }
    *ret_processes = view.process_count;
    *ret_apart_ns = most - least;
    ng_evidence_paths_fini(&paths);
    ng_view_merge_fini(&merge);
    ng_view_fini(&view);
    return error;
}

int merged_dump(const char *from, const char *to, char *why, size_t why_bytes)
{
    struct ng_view_merge merge;
    struct ng_view view, told;

    ng_view_init(&view);
    ng_view_init(&told);
    ng_view_merge_init(&merge, &view, UINT64_MAX);
    int error = ng_read_dump(&told, from, "copied", why, why_bytes);
    if (!error)
        error = ng_view_merge_add(&merge, &told, why, why_bytes);
    if (!error)
        error = ng_view_merge_finish(&merge);
    if (!error) {
        ng_view_seal(&view);
        error = ng_dump_save_process(&view, 0, to);
    }
    ng_view_merge_fini(&merge);
    ng_view_fini(&told);
    ng_view_fini(&view);
    return error;
}
