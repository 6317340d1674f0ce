/*
 * One process of a view that was read, made older by the time since it was written.
 *
 * Pure: no clock, no lock, no malloc. Entered by the incident thread and by tools. Must never let
 * an age go beyond what ng_view_age allows.
 */
#include "store/wire/progress.h"

static void make_older(int64_t *age_ns, int64_t by_ns)
{
    *age_ns = ng_view_age(ng_view_age(*age_ns) + ng_view_age(by_ns));
}

void ng_progress_age(struct ng_view *view, uint32_t process, int64_t by_ns)
{
    struct ng_view_process *told = &view->processes[process];

    if (by_ns <= 0)
        return;
    if (told->life != NG_LIFE_RUNNING && told->life != NG_LIFE_STOPPED) {
        if (told->life_age_ns > 0)
            make_older(&told->life_age_ns, by_ns);
        if (told->alive_age_ns > 0)
            make_older(&told->alive_age_ns, by_ns);
        return;
    }
    if (told->moment_unix_ns)
        make_older(&told->moment_unix_ns, by_ns);
    if (told->watchdog_stuck_ns)
        make_older(&told->watchdog_stuck_ns, by_ns);
    if (told->nan.age_ns)
        make_older(&told->nan.age_ns, by_ns);
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_member *member = &view->members[i];
        if (member->process != process)
            continue;
        if (member->created_age_ns)
            make_older(&member->created_age_ns, by_ns);
        if (member->ended_age_ns)
            make_older(&member->ended_age_ns, by_ns);
        if (member->pending_record)
            make_older(&member->pending_age_ns, by_ns);
        for (uint32_t k = 0; k < member->record_count; k++) {
            struct ng_view_record *record = &member->records[k];
            make_older(&record->entered_age_ns, by_ns);
            if (record->started_age_ns)
                make_older(&record->started_age_ns, by_ns);
            if (record->completed_age_ns)
                make_older(&record->completed_age_ns, by_ns);
        }
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == process)
            make_older(&view->calls[i].age_ns, by_ns);
    for (uint32_t i = 0; i < view->failure_count; i++) {
        struct ng_view_member *member = &view->failures[i].member;
        if (member->process == process && member->created_age_ns)
            make_older(&member->created_age_ns, by_ns);
        if (member->process == process && member->ended_age_ns)
            make_older(&member->ended_age_ns, by_ns);
    }
    for (uint32_t i = 0; i < view->fault_count; i++)
        if (view->faults[i].process == process) {
            make_older(&view->faults[i].first_age_ns, by_ns);
            make_older(&view->faults[i].last_age_ns, by_ns);
        }
}
