/*
 * Writing the evidence of an incident.
 *
 * Step 11. Entered by the incident thread; no malloc, no lock. A file that cannot be written is
 * logged and left out: the others are written all the same.
 */
#include "core/evidence.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/dump.h"
#include "core/flight.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/paths.h"
#include "core/report.h"
#include "core/stacks.h"
#include "core/trace.h"

bool ng_evidence_ready(const char *folder)
{
    static char complained[PATH_MAX]; /* of which folder, last */
    int error = ng_paths_make(folder);

    if (error && strcmp(folder, complained) != 0) {
        snprintf(complained, sizeof(complained), "%s", folder);
        ng_log(NG_LOG_ERROR,
               "cannot write evidence to %s: %s; set NCCLGUARD_DUMP_DIR to a folder of your own",
               folder,
               error == -EPERM ? "it belongs to somebody else or others may write to it"
                               : strerror(-error));
    }
    return error == 0;
}

void ng_evidence_save_verdict(const struct ng_verdict *verdict, const char *folder)
{
    if (!ng_evidence_ready(folder))
        return;
    int error = ng_report_save(verdict, folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the verdict to %s: %s", folder, strerror(-error));
}

void ng_evidence_save_trace(const struct ng_view *view, const struct ng_verdict *verdict,
                            const char *folder)
{
    if (!ng_evidence_ready(folder))
        return;
    int error = ng_trace_save(view, verdict, folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the timeline to %s: %s", folder, strerror(-error));
}

static void save_dump(const struct ng_view *view, uint32_t process, const char *folder)
{
    if (!ng_evidence_ready(folder))
        return;
    int error = ng_dump_save_process(view, process, folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the dump of pid %d to %s: %s",
               view->processes[process].pid, folder, strerror(-error));
}

static void save_flight(const struct ng_view *view, uint32_t process, const char *folder)
{
    if (!ng_evidence_ready(folder))
        return;
    int error = ng_flight_save_process(view, process, folder);
    if (error)
        ng_log(NG_LOG_ERROR,
               "cannot write the flight record of pid %d to %s/" NG_FLIGHT_FOLDER ": %s",
               view->processes[process].pid, folder, strerror(-error));
}

static void save_stacks(const struct ng_view *view, uint32_t process, const char *folder)
{
    int error = ng_stacks_save(view->stacks, &view->processes[process], ng_dump_rank(view, process),
                               folder);
    if (error)
        ng_log(NG_LOG_ERROR, "cannot write the stacks to %s: %s", folder, strerror(-error));
}

void ng_evidence_dump_self(struct ng_view *view, uint32_t process, const char *folder)
{
    struct ng_stacks stacks;

    /* What is at hand first: stacks take their time, and may not come. */
    save_dump(view, process, folder);
    save_flight(view, process, folder);
    ng_guard_beat();
    if (!ng_guard.config.stacks || !ng_evidence_ready(folder))
        return;
    int error = ng_stacks_take(ng_guard.read_python, &stacks);
    ng_guard_beat();
    if (error) {
        ng_log(NG_LOG_WARN, "cannot take the host stacks: %s", strerror(-error));
        return;
    }
    view->stacks = &stacks;
    save_dump(view, process, folder);
    save_stacks(view, process, folder);
    /* Only now: a disk may be what the program is stuck in. */
    if (ng_stacks_name_from_files(&stacks)) {
        save_dump(view, process, folder);
        save_stacks(view, process, folder);
    }
    view->stacks = NULL;
    ng_stacks_fini(&stacks);
}

/* Does somebody who lives write a dump of this name: the same rank, after an exec or a restart? */
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

void ng_evidence_dump_neighbours(const struct ng_view *view, const char *folder)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life != NG_LIFE_RUNNING && !has_successor(view, i)) {
            save_dump(view, i, folder);
            save_flight(view, i, folder);
        }
}

/* Is somebody else left on its host, who has its black box and writes its dump from that? */
static bool has_neighbour(const struct ng_view *view, const struct ng_view_process *process)
{
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *other = &view->processes[i];
        if (other != process && !other->self && other->life == NG_LIFE_RUNNING &&
            strcmp(other->host, process->host) == 0)
            return true;
    }
    return false;
}

void ng_evidence_dump_lost(const struct ng_view *view, const char *folder)
{
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        bool box = strncmp(process->source, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0;
        if (!process->self && !box && process->life != NG_LIFE_RUNNING &&
            !has_neighbour(view, process) && !has_successor(view, i)) {
            save_dump(view, i, folder);
            save_flight(view, i, folder);
        }
    }
}
