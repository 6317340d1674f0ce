/*
 * Writing the evidence of an incident.
 *
 * Started by the incident thread, done by the threads of core/runtime/io_workers.h; no malloc, no
 * lock. A file that cannot be written is logged and skipped; the others are still written.
 */
#include "core/evidence/evidence.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/nccl/group_id.h"
#include "core/recorder/paths.h"
#include "core/report/dump.h"
#include "core/report/flight.h"
#include "core/report/report.h"
#include "core/report/trace.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/macros.h"

/* A target of tasks besides the folder and NG_IO_WORKERS_PROGRAMS: reading a page of a mapped file
 * may block, and then so do all others. */
#define MEMORY "the memory of this process"

static _Atomic uint32_t newest_deadline; /* counted by ng_evidence_outdate */

/* Does the folder exist, and may we write to it? False: the reason was logged, once. */
static bool is_ready(const char *folder)
{
    static _Atomic uint64_t complained; /* the last folder that was reported */
    uint64_t this_one = ng_hash(0, folder, strlen(folder));
    int error = ng_paths_make(folder);

    if (error && atomic_exchange(&complained, this_one) != this_one)
        ng_log(NG_LOG_ERROR,
               "cannot write evidence to %s: %s; set NCCLGUARD_DUMP_DIR to a folder of your own",
               folder,
               error == -EPERM ? "it belongs to somebody else or others may write to it"
                               : strerror(-error));
    return error == 0;
}

static void save_dump(const struct ng_view *view, uint32_t process, const char *folder)
{
    if (!is_ready(folder))
        return;
    int error = ng_dump_save_process(view, process, folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the dump of pid %d to %s: %s",
               view->processes[process].pid, folder, strerror(-error));
}

static void save_dump_and_flight(const struct ng_view *view, uint32_t process, const char *folder)
{
    save_dump(view, process, folder);
    if (!is_ready(folder))
        return;
    int error = ng_flight_save_process(view, process, folder);
    if (error)
        ng_log(NG_LOG_ERROR,
               "cannot write the flight record of pid %d to %s/" NG_FLIGHT_FOLDER ": %s",
               view->processes[process].pid, folder, strerror(-error));
}

/* ---- This process ---- */

/* Write first what is available: stacks take time, and may never arrive. */
static void write_self(struct ng_evidence *evidence)
{
    save_dump_and_flight(&evidence->view, evidence->self, evidence->folder);
    if (ng_guard.config.stacks && is_ready(evidence->folder))
        ng_evidence_begin(evidence, NG_EVIDENCE_STACKS);
}

static void take_stacks(struct ng_evidence *evidence)
{
    int error = ng_stacks_take(ng_guard.read_python, &evidence->stacks);

    if (error)
        ng_log(NG_LOG_WARN, "cannot take the host stacks: %s", strerror(-error));
    else
        ng_evidence_begin(evidence, NG_EVIDENCE_STACKS_FILE);
}

static void save_stacks(struct ng_evidence *evidence)
{
    /* Other threads read the view meanwhile. */
    struct ng_view view = evidence->view;
    const struct ng_view_process *self = &view.processes[evidence->self];

    view.stacks = &evidence->stacks;
    save_dump(&view, evidence->self, evidence->folder);
    int error = ng_stacks_save(&evidence->stacks, self, ng_dump_rank(&view, evidence->self),
                               evidence->folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the stacks to %s: %s", evidence->folder,
               strerror(-error));
}

static void write_stacks(struct ng_evidence *evidence)
{
    save_stacks(evidence);
    ng_evidence_begin(evidence, NG_EVIDENCE_NAMES);
}

/* Only now: the program may be stuck in a disk access. */
static void find_names(struct ng_evidence *evidence)
{
    if (ng_stacks_name_from_files(&evidence->stacks))
        ng_evidence_begin(evidence, NG_EVIDENCE_NAMES_FILE);
}

/* ---- Others ---- */

/* Does a living process write a dump of this name: the same rank, after an exec or a restart? */
static bool has_successor(const struct ng_view *view, uint32_t process)
{
    char name[64], other[64];

    ng_dump_name(view, process, name, sizeof(name));
    for (uint32_t i = 0; i < view->process_count; i++) {
        enum ng_life life = view->processes[i].life;
        if (i == process || (life != NG_LIFE_RUNNING && life != NG_LIFE_STOPPED))
            continue;
        ng_dump_name(view, i, other, sizeof(other));
        if (strcmp(name, other) == 0)
            return true;
    }
    return false;
}

static void write_neighbours(struct ng_evidence *evidence)
{
    const struct ng_view *view = &evidence->view;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        bool writes = process->life == NG_LIFE_RUNNING && (process->self || !process->cut_off);
        if (!writes && !has_successor(view, i))
            save_dump_and_flight(view, i, evidence->folder);
    }
}

/* Is there another process on its host that has its black box and writes its dump from it? */
static bool has_neighbour(const struct ng_view *view, const struct ng_view_process *process)
{
    return NG_ANY(other, view->processes, view->process_count,
                  other != process && !other->self && other->life == NG_LIFE_RUNNING &&
                      strcmp(other->host, process->host) == 0);
}

static void write_lost(struct ng_evidence *evidence)
{
    const struct ng_view *view = &evidence->view;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        bool box = strncmp(process->source, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0;
        if (!process->self && !box && process->life != NG_LIFE_RUNNING &&
            !has_neighbour(view, process) && !has_successor(view, i))
            save_dump_and_flight(view, i, evidence->folder);
    }
}

/* ---- Of the job ---- */

static bool has_verdict(const char *folder)
{
    char path[PATH_MAX + sizeof("/verdict.json")];

    snprintf(path, sizeof(path), "%s/verdict.json", folder);
    return access(path, F_OK) == 0;
}

/* Has the folder a verdict that this one does not replace? */
static bool yields(const struct ng_evidence *evidence)
{
    return (evidence->yields || evidence->number != atomic_load(&newest_deadline)) &&
           has_verdict(evidence->folder);
}

static void write_verdict(struct ng_evidence *evidence)
{
    if (!is_ready(evidence->folder) || yields(evidence))
        return;
    int error = ng_report_save(&evidence->verdict, evidence->folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the verdict to %s: %s", evidence->folder,
               strerror(-error));
}

static void write_documents(struct ng_evidence *evidence)
{
    if (!is_ready(evidence->folder) || yields(evidence))
        return;
    int error = ng_report_save_documents(&evidence->documents, evidence->folder);
    if (error)
        ng_log(NG_LOG_WARN, "cannot write the verdict of another host to %s: %s", evidence->folder,
               strerror(-error));
}

static void write_trace(struct ng_evidence *evidence)
{
    if (!is_ready(evidence->folder))
        return;
    int error = ng_trace_save(&evidence->view, evidence->has_verdict ? &evidence->verdict : NULL,
                              evidence->folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the timeline to %s: %s", evidence->folder,
               strerror(-error));
}

/* ---- Tasks ---- */

static const struct {
    void (*write)(struct ng_evidence *evidence);
    const char *place; /* NULL: the folder */
} parts[NG_EVIDENCE_PARTS] = {
    [NG_EVIDENCE_SELF] = {write_self, NULL},
    [NG_EVIDENCE_STACKS] = {take_stacks, MEMORY},
    [NG_EVIDENCE_STACKS_FILE] = {write_stacks, NULL},
    [NG_EVIDENCE_NAMES] = {find_names, NG_IO_WORKERS_PROGRAMS},
    [NG_EVIDENCE_NAMES_FILE] = {save_stacks, NULL},
    [NG_EVIDENCE_NEIGHBOURS] = {write_neighbours, NULL},
    [NG_EVIDENCE_LOST] = {write_lost, NULL},
    [NG_EVIDENCE_VERDICT] = {write_verdict, NULL},
    [NG_EVIDENCE_DOCUMENTS] = {write_documents, NULL},
    [NG_EVIDENCE_TRACE] = {write_trace, NULL},
};

struct ng_evidence *ng_evidence_create(struct ng_view *view, struct ng_verdict *verdict,
                                       const char *folder)
{
    struct ng_arena arena = {0};
    struct ng_evidence *evidence = ng_arena_alloc(&arena, sizeof(*evidence));

    if (!evidence) {
        ng_log(NG_LOG_ERROR, "cannot write evidence: %s", strerror(ENOMEM));
        return NULL;
    }
    evidence->arena = arena;
    atomic_store(&evidence->users, 1);
    for (unsigned i = 0; i < NG_EVIDENCE_PARTS; i++)
        evidence->tasks[i].evidence = evidence;
    evidence->view = *view;
    ng_view_init(view);
    evidence->number = atomic_load(&newest_deadline);
    evidence->has_verdict = verdict != NULL;
    if (verdict) {
        evidence->verdict = *verdict;
        memset(verdict, 0, sizeof(*verdict));
    }
    snprintf(evidence->folder, sizeof(evidence->folder), "%s", folder);
    return evidence;
}

void ng_evidence_outdate(void)
{
    atomic_fetch_add(&newest_deadline, 1);
}

void ng_evidence_release(struct ng_evidence *evidence)
{
    if (!evidence || atomic_fetch_sub(&evidence->users, 1) != 1)
        return;
    ng_stacks_fini(&evidence->stacks);
    ng_arena_reset(&evidence->documents.arena);
    if (evidence->has_verdict)
        ng_verdict_fini(&evidence->verdict);
    ng_view_fini(&evidence->view);
    struct ng_arena arena = evidence->arena;
    ng_arena_reset(&arena);
}

static void end_part(struct ng_evidence *evidence, unsigned part)
{
    ng_io_workers_end(&evidence->under_way, NG_EVIDENCE_BIT(part));
    ng_evidence_release(evidence);
}

static void write_part(void *context)
{
    struct ng_evidence_task *task = context;
    struct ng_evidence *evidence = task->evidence;
    unsigned part = (unsigned)(task - evidence->tasks);

    parts[part].write(evidence);
    end_part(evidence, part);
}

void ng_evidence_begin(struct ng_evidence *evidence, enum ng_evidence_part part)
{
    if (!evidence)
        return;
    const char *place = parts[part].place ? parts[part].place : evidence->folder;
    atomic_fetch_add(&evidence->users, 1);
    atomic_fetch_or(&evidence->under_way, NG_EVIDENCE_BIT(part));
    if (ng_io_workers_add(place, write_part, &evidence->tasks[part]) == 0)
        return;
    ng_log(NG_LOG_ERROR, "cannot write evidence to %s: earlier writes are still blocked",
           evidence->folder);
    end_part(evidence, part);
}

bool ng_evidence_is_done(const struct ng_evidence *evidence, uint32_t parts)
{
    return !evidence || !(atomic_load(&evidence->under_way) & parts);
}

bool ng_evidence_await(struct ng_evidence *evidence, uint32_t parts, int64_t until_mono_ns)
{
    const uint32_t memory = NG_EVIDENCE_BIT(NG_EVIDENCE_STACKS);
    const uint32_t programs = NG_EVIDENCE_BIT(NG_EVIDENCE_NAMES);

    if (!evidence || ng_io_workers_await(&evidence->under_way, parts, until_mono_ns))
        return true;
    if (!ng_evidence_is_done(evidence, parts & ~(memory | programs)))
        ng_log(NG_LOG_ERROR, "writing evidence to %s is blocked: going on without it",
               evidence->folder);
    else
        ng_log(NG_LOG_WARN, "the host stacks are not complete: reading %s is blocked",
               ng_evidence_is_done(evidence, memory) ? NG_IO_WORKERS_PROGRAMS : MEMORY);
    return false;
}

void ng_evidence_write_verdict(struct ng_verdict *verdict, bool yields, int64_t until_mono_ns)
{
    struct ng_view none;

    ng_view_init(&none);
    struct ng_evidence *evidence = ng_evidence_create(&none, verdict, ng_guard_dump_dir());
    if (evidence)
        evidence->yields = yields;
    ng_evidence_begin(evidence, NG_EVIDENCE_VERDICT);
    ng_evidence_await(evidence, NG_EVIDENCE_ALL, until_mono_ns);
    ng_evidence_release(evidence);
}
