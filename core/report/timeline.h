/*
 * A job as people draw it: its ranks from top to bottom, their calls from left to right.
 *
 * What trace.json and the page of `ncclguard analyze` have in common: who has a row, which of its
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

/* A rank that one process is, or one of those that it drives. */
struct ng_timeline_rank {
    int rank;              /* global; -1 not known */
    uint32_t process;      /* in the view; NG_TIMELINE_NOBODY: a culprit that nobody has seen */
    uint32_t first, count; /* its members, in ng_timeline.members */
    bool waits;            /* the verdict says so */
    const struct ng_culprit *culprit; /* the verdict names it; NULL it does not */
};

struct ng_timeline {
    struct ng_arena arena; /* owns everything below */
    const struct ng_view *view;
    const struct ng_verdict *verdict; /* NULL: none was reached */
    struct ng_clock_offsets clocks;
    struct ng_timeline_rank *ranks; /* ascending; those that are not known last */
    uint32_t rank_count;
    uint32_t *members;         /* indices in the view */
    int64_t begin_ns, end_ns;  /* Unix time, on one clock; from the first record that is drawn */
    uint32_t records_each;     /* of a member: so many are drawn, the newest */
    uint64_t records_left_out; /* of all */
};

enum ng_span_state {
    NG_SPAN_POINT, /* over, or not followed: nobody knows when it ended */
    NG_SPAN_DONE,
    NG_SPAN_CALLED, /* in flight: the host call has not returned, or its group is open */
    NG_SPAN_QUEUED, /* on the stream; the device has not reached it */
    NG_SPAN_DEVICE, /* the device is in it */
};

/*
 * A record on the clock of the timeline. What the device does is seen by polling: of a short
 * operation, begin and end may be seen together. Then it ran at some time since the one before it
 * was seen to end, and since it was called; where the device has measured how long it took, so long
 * before it was seen to end.
 */
struct ng_span {
    enum ng_span_state state;
    bool bounds; /* it ran at some time between start and end; else, all the time */
    int64_t entered_ns;
    int64_t start_ns; /* the device reached it, as far as that is known; else as entered */
    int64_t end_ns;   /* of what is in flight: the moment at which it was looked at */
};

/*
 * `view` is sealed; it and `verdict` (NULL: none) must outlive the timeline. At most `records_max`
 * records are drawn, of every member alike the newest. 0; -ENOMEM.
 */
int ng_timeline_make(const struct ng_view *view, const struct ng_verdict *verdict,
                     uint32_t records_max, struct ng_timeline *ret_timeline);
void ng_timeline_fini(struct ng_timeline *timeline);

/* The first record of a member that is drawn. */
uint32_t ng_timeline_first(const struct ng_timeline *timeline, const struct ng_view_member *member);

/* From when to when `record`, one of those of `member`, ran: never before the timeline begins or
 * behind its end, end not before start. */
struct ng_span ng_timeline_span(const struct ng_timeline *timeline,
                                const struct ng_view_member *member,
                                const struct ng_view_record *record);

/* Whether anything says when the call was made; some evidence tells no times. */
bool ng_timeline_knows(const struct ng_view_record *record);

/* The moment `age_ns` before a process was looked at, on the clock of the timeline. */
int64_t ng_timeline_at(const struct ng_timeline *timeline, uint32_t process, int64_t age_ns);

#endif
