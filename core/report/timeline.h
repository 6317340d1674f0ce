/*
 * A job as a timeline: its ranks from top to bottom, their calls from left to right.
 *
 * Shared by trace.json and the page of `ncclguard analyze`: which ranks have a row, which of their
 * records are drawn, and from when to when. Pure, without malloc; linear in the records.
 */
#ifndef NCCLGUARD_CORE_REPORT_TIMELINE_H
#define NCCLGUARD_CORE_REPORT_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict/verdict.h"
#include "core/view/clock_sync.h"
#include "core/view/view.h"

#define NG_TIMELINE_NOBODY UINT32_MAX

/* A process's rank, or one of the ranks that it drives. */
struct ng_timeline_rank {
    int rank;              /* global; -1 not known */
    uint32_t process;      /* in the view; NG_TIMELINE_NOBODY: a culprit without evidence */
    uint32_t first, count; /* its members, in ng_timeline.members */
    bool waits;            /* it is a waiting rank of the verdict */
    const struct ng_culprit *culprit; /* its entry in the verdict; NULL: not a culprit */
};

struct ng_timeline {
    struct ng_arena arena; /* owns everything below */
    const struct ng_view *view;
    const struct ng_verdict *verdict; /* NULL: none was reached */
    struct ng_clock_offsets clocks;
    struct ng_timeline_rank *ranks; /* ascending; unknown ones last */
    uint32_t rank_count;
    uint32_t *members;         /* indices in the view */
    int64_t begin_ns, end_ns;  /* Unix time, on one clock; from the first record that is drawn */
    uint32_t records_each;     /* the number of newest records drawn per member */
    uint64_t records_left_out; /* the number not drawn, over all members */
};

enum ng_span_state {
    NG_SPAN_POINT, /* over, or not tracked: its end is not known */
    NG_SPAN_DONE,
    NG_SPAN_CALLED, /* in flight: the host call has not returned, or its group is open */
    NG_SPAN_QUEUED, /* on the stream; the device has not reached it */
    NG_SPAN_DEVICE, /* the device is in it */
};

/*
 * A record on the clock of the timeline. The device is observed by polling, so begin and end of a
 * short operation may be seen together. Then it ran at some time after the end of the previous
 * operation was seen, and after it was called; if the device measured its duration, it ran for this
 * duration up to the moment at which its end was seen.
 */
struct ng_span {
    enum ng_span_state state;
    bool bounds; /* true: it ran at some time between start and end; false: all the time */
    int64_t entered_ns;
    int64_t start_ns; /* when the device reached it, if known; otherwise as entered_ns */
    int64_t end_ns;   /* if in flight: the moment at which the process was inspected */
};

/*
 * `view` is sealed; it and `verdict` (NULL: none) must outlive the timeline. At most `records_max`
 * records are drawn: the newest of each member, the same number for all. 0; -ENOMEM.
 */
int ng_timeline_make(const struct ng_view *view, const struct ng_verdict *verdict,
                     uint32_t records_max, struct ng_timeline *ret_timeline);
void ng_timeline_fini(struct ng_timeline *timeline);

/* The first of a member's records that is drawn. */
uint32_t ng_timeline_first(const struct ng_timeline *timeline, const struct ng_view_member *member);

/* The time during which `record`, one of `member`'s, ran: within the timeline, and its end is not
 * before its start. */
struct ng_span ng_timeline_span(const struct ng_timeline *timeline,
                                const struct ng_view_member *member,
                                const struct ng_view_record *record);

/* Is the time of the call known? Some evidence has no times. */
bool ng_timeline_knows(const struct ng_view_record *record);

/* The moment `age_ns` before a process was inspected, on the clock of the timeline. */
int64_t ng_timeline_at(const struct ng_timeline *timeline, uint32_t process, int64_t age_ns);

#endif
