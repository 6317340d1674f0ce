/*
 * A sealed view, reduced to what is asked for. A verdict on the rest knows less.
 *
 * One owner at a time, as for the view itself; nothing fails.
 */
#ifndef NCCLGUARD_CORE_VIEW_VIEW_KEEP_H
#define NCCLGUARD_CORE_VIEW_VIEW_KEEP_H

#include <stdint.h>

struct ng_view;

/* Keep the records of calls that are not finished. */
void ng_view_keep_active(struct ng_view *view);

/* Keep one group, with its members, the calls on it and its durations. In a process that drives
 * several devices, ranks are then those of this group. */
void ng_view_keep_group(struct ng_view *view, uint64_t group_id);

/* Keep records without their call stacks. */
void ng_view_forget_frames(struct ng_view *view);

#endif
