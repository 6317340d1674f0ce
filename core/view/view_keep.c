/*
 * Reduces a sealed view to what is asked for.
 *
 * The command alone.
 */
#include "core/view/view_keep.h"

#include "core/util/macros.h"
#include "core/view/view.h"

void ng_view_keep_active(struct ng_view *view)
{
    NG_EACH (member, view->members, view->member_count) {
        NG_KEEP(record, member->records, member->record_count, !ng_view_record_is_retired(record));
    }
    /* A call without a record may have been made now. */
    for (uint32_t i = 0; i < view->process_count; i++)
        view->processes[i].ring_first = 0;
}

void ng_view_keep_group(struct ng_view *view, uint64_t group_id)
{
    uint32_t group = ng_view_find_group(view, group_id);

    NG_KEEP(member, view->members, view->member_count, member->group == group);
    NG_KEEP(call, view->calls, view->call_count, call->group_id == group_id);
    NG_KEEP(one, view->durations, view->duration_count, one->duration.group_id == group_id);
    ng_view_seal(view);
}

void ng_view_forget_frames(struct ng_view *view)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        for (uint32_t k = 0; k < view->members[i].record_count; k++)
            view->members[i].records[k].call_stack = 0;
    view->call_stack_count = 0;
}
