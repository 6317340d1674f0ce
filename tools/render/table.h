/*
 * A job as a table: the state of each rank, culprits first, identical ones merged into one line.
 *
 * Made from a sealed view and a verdict, which must outlive it. Pure: no clock, no store.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_TABLE_H
#define NCCLGUARD_TOOLS_RENDER_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

#define NG_TABLE_NOBODY UINT32_MAX
#define NG_TABLE_LIVES  (NG_LIFE_LOST + 1)

enum ng_table_phase {
    NG_PHASE_NONE,   /* outside NCCL, and nothing is in flight */
    NG_PHASE_GROUP,  /* called after ncclGroupStart, and ncclGroupEnd has not been called yet */
    NG_PHASE_CALL,   /* a thread is inside the call */
    NG_PHASE_QUEUED, /* on the stream; not started on the device */
    NG_PHASE_DEVICE, /* started on the device */
};

/* The smaller, the higher up. */
enum ng_table_place {
    NG_PLACE_CULPRIT,    /* in the group that the verdict names */
    NG_PLACE_SUSPICIOUS, /* the same process elsewhere */
    NG_PLACE_GONE,
    NG_PLACE_BEHIND,
    NG_PLACE_WAITING,
    NG_PLACE_OTHER,
    NG_PLACE_OVER,
};

/* One rank of one group. */
struct ng_table_row {
    uint32_t process;                    /* NG_TABLE_NOBODY: a culprit not in the view */
    const struct ng_view_member *member; /* NULL: of a process that is not in a group now */
    const struct ng_culprit *culprit;    /* the verdict names this rank; NULL it does not */
    int rank;                            /* global; -1 not known */
    uint64_t behind;                     /* collectives behind the group's furthest */
    int64_t behind_ns;                   /* time since a rank first passed this one; 0 not known */
    /* What it has been in for the longest time. */
    enum ng_table_phase phase;
    enum ng_op op;
    uint64_t seq; /* 0 no collective, or not known */
    int64_t age_ns;
    /* Unfinished sends and receives, and the oldest of them. */
    uint32_t sends, receives;
    const struct ng_view_record *oldest_p2p;
    bool hidden; /* ended, like all the others of its group, so not of interest */
    enum ng_table_place place;
};

struct ng_table {
    const struct ng_view *view;
    const struct ng_verdict *verdict;
    struct ng_table_row *rows; /* rows[i] is view->members[i]; then those without a member */
    uint32_t row_count;
    uint32_t *order; /* indices of the rows to be shown, culprits first */
    uint32_t order_count;
    bool *shares_name;       /* per group: another group has the same name */
    uint64_t *front;         /* per group: the furthest collective that any rank has entered */
    uint32_t seen, expected; /* ranks; expected 0: not known */
    const char **hosts;      /* each once, sorted */
    uint32_t host_count;
    uint32_t lives[NG_TABLE_LIVES]; /* number of processes for each kind of life */
};

/* How to print it. */
struct ng_table_paper {
    unsigned lines, columns; /* 0: no limits but sensible ones */
    bool colour;
    int64_t time_unix_ns;
    const char *trouble; /* why the table is not current; NULL it is */
    int64_t stuck_ns;    /* threshold for stuck, if nothing is; 0 not mentioned */
};

/* 0 or -ENOMEM. */
int ng_table_make(const struct ng_view *view, const struct ng_verdict *verdict,
                  struct ng_table *ret_table);
void ng_table_fini(struct ng_table *table);

/* Lists by process: those of process p are list[start[p]] to list[start[p + 1]]. */
struct ng_table_lists {
    uint32_t *start, *list;
};

/* Sort `count` things, or the calls, into lists by process. 0 or -ENOMEM; finish them after
 * either. */
int ng_table_sort(const struct ng_view *view, uint32_t count,
                  uint32_t (*process_of)(const struct ng_view *view, uint32_t index),
                  struct ng_table_lists *ret_lists);
int ng_table_sort_calls(const struct ng_view *view, struct ng_table_lists *ret_lists);
void ng_table_lists_fini(struct ng_table_lists *lists);

/* Print it: lines ended by '\n', none longer than the output is wide. */
void ng_table_print(const struct ng_table *table, const struct ng_table_paper *paper, FILE *file);

/* "340 ms", "12.3 s", "5 min 3 s" …; in ret_text, which is returned. */
const char *ng_table_duration(int64_t ns, char *ret_text, size_t bytes);

#endif
