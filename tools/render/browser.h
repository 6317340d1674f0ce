/*
 * A job as people browse it: which rows there are, in which order, which is selected, and what a
 * key does. The terminal is someone else's (tools/render/curses.h).
 *
 * Pure: made from tables, no clock, no store, no terminal. Rows keep their places from one look to
 * the next: only a key sorts them anew.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_BROWSER_H
#define NCCLGUARD_TOOLS_RENDER_BROWSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/render/table.h"
#include "tools/render/table_cells.h"

enum ng_browser_page {
    NG_PAGE_RANKS,
    NG_PAGE_GROUPS,
    NG_PAGE_JOBS,
    NG_PAGE_RANK, /* one rank, with its stack */
    NG_PAGE_HELP,
    NG_PAGE_COUNT,
};

enum ng_browser_sort {
    NG_SORT_RANK,
    NG_SORT_AGE,   /* the longest wait first */
    NG_SORT_STATE, /* culprits first, then who is gone, behind, waiting */
    NG_SORT_HOST,
    NG_SORT_COUNT,
};

/* A printable character is a key of its own. */
enum ng_browser_key {
    NG_KEY_ESCAPE = 27,
    NG_KEY_UP = 0x110000,
    NG_KEY_DOWN,
    NG_KEY_PAGE_UP,
    NG_KEY_PAGE_DOWN,
    NG_KEY_HOME,
    NG_KEY_END,
    NG_KEY_ENTER,
    NG_KEY_BACKSPACE,
};

/* What a key asks of its caller. */
enum ng_browser_action {
    NG_BROWSER_DRAW,
    NG_BROWSER_LOOK,       /* take a new look at once */
    NG_BROWSER_LIST_JOBS,  /* call ng_browser_set_jobs */
    NG_BROWSER_OPEN_JOB,   /* the job ng_browser_job */
    NG_BROWSER_SHOW_RANK,  /* call ng_browser_set_stack for ng_browser_row: what is there */
    NG_BROWSER_TAKE_STACK, /* likewise, after taking it now */
    NG_BROWSER_QUIT,
};

/* A job to choose. */
struct ng_browser_job {
    char name[128], where[32];
    unsigned processes, living; /* processes 0: not known */
};

/* Rows that are alike, as one line; or one row. */
struct ng_browser_unit {
    uint32_t first, count; /* in ng_browser.members */
    uint32_t before;       /* its place at the last look; UINT32_MAX none */
    int64_t age_ns;        /* of the longest wait in it */
};

struct ng_browser_place {
    uint64_t key;
    uint32_t place;
};

/* A list on a page, or its lines. */
struct ng_browser_list {
    uint32_t cursor, top, count;
    uint64_t key; /* of what is selected */
};

struct ng_browser {
    const struct ng_table *table;    /* of the last look; NULL none yet */
    enum ng_browser_page page, back; /* back: where Escape leads to from a rank, help or the jobs */
    enum ng_browser_sort sort;
    bool unfolded, typing;
    char filter[64];
    uint64_t group_id; /* only this group's rows; 0: of all */

    uint32_t *members; /* rows of the table, unit by unit, each in order of rank */
    uint32_t member_count;
    struct ng_browser_unit *units;
    struct ng_browser_place *places; /* of rows at the last look, sorted by key */
    uint32_t place_count;
    uint32_t *groups;    /* of the view, in the order in which they are shown */
    uint64_t detail_key; /* of the row whose details are shown */
    char *stack;         /* lines; NULL not known */
    struct ng_browser_job *jobs;
    struct ng_browser_list lists[NG_PAGE_COUNT];
    unsigned body; /* lines of the list, as drawn last */
    size_t widths[NG_COLUMN_COUNT];
    unsigned widths_for; /* columns */
};

void ng_browser_init(struct ng_browser *ret_browser);
void ng_browser_fini(struct ng_browser *browser);

/* A new look, which must outlive the next; NULL: of another job, nothing is known yet. 0 or
 * -ENOMEM: nothing is shown until the next. */
int ng_browser_update(struct ng_browser *browser, const struct ng_table *table);

enum ng_browser_action ng_browser_press(struct ng_browser *browser, int key);

/* Jobs to choose from; copied. Their page is shown. 0 or -ENOMEM. */
int ng_browser_set_jobs(struct ng_browser *browser, const struct ng_browser_job *jobs,
                        size_t count);

/* The selected job; NULL none. */
const struct ng_browser_job *ng_browser_job(const struct ng_browser *browser);

/* The row whose details are shown; NULL: it is gone. */
const struct ng_table_row *ng_browser_row(const struct ng_browser *browser);

/* Its stack, or why there is none, in lines; copied. NULL: none. */
void ng_browser_set_stack(struct ng_browser *browser, const char *text);

/* Write the picture: as many lines as the paper has. Colours as in ng_table_print; reversed is what
 * is selected. */
void ng_browser_print(struct ng_browser *browser, const struct ng_table_paper *paper, FILE *file);

/* ---- For browser_text.c ---- */

/* A key that stays the same for a row as long as its process lives. */
uint64_t ng_browser_row_key(const struct ng_table *table, const struct ng_table_row *row);

#endif
