/*
 * Stacks of many ranks, with identical ones listed once.
 *
 * From rank_<r>.stacks.txt, which each rank writes at an incident (core/report/stacks_format.h): a
 * paragraph for each thread. Two are identical if they differ only in addresses, ids and times.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_STACK_GROUPS_H
#define NCCLGUARD_TOOLS_RENDER_STACK_GROUPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/view/view.h"

/* The most significant state of a rank, in one line. */
struct ng_stack_groups_summary {
    int rank;
    char *text;
};

/* The stack of one thread or more. */
struct ng_stack_group {
    char *title; /* first line, as the first rank has it */
    char *text;  /* the other lines, as the first rank has them */
    int *ranks;  /* ascending, each once */
    uint32_t rank_count, rank_room;
    uint32_t threads; /* number of threads, over all of these ranks */
    uint64_t hash;
    const char *files; /* of the first rank: a line for each file, "  BUILD-ID PATH"; "" none */
};

struct ng_stack_groups {
    struct ng_arena arena;         /* owns the texts */
    struct ng_stack_group *stacks; /* in order of the ranks and the files */
    uint32_t count, room;
    uint32_t *slots; /* index + 1 by hash */
    uint32_t slot_count;
    struct ng_stack_groups_summary *summaries;
    uint32_t summary_count, summary_room;
    uint32_t files;
};

#define NG_STACK_GROUPS_NONE ((struct ng_stack_groups){0})

/* Add those of all files in `folder`; none is no error. 0, -ENOMEM, or -errno of the folder.
 * Unreadable files are skipped. */
int ng_stack_groups_add_folder(struct ng_stack_groups *folded, const char *folder);

/* Add those of one rank, from the text of its file. 0 or -ENOMEM. */
int ng_stack_groups_add(struct ng_stack_groups *folded, int rank, const char *text);

/* Add where each rank waits, or made its newest call, by the Python frames of its calls: what dumps
 * of PyTorch's flight recorder have. 0 or -ENOMEM. */
int ng_stack_groups_add_calls(struct ng_stack_groups *folded, const struct ng_view *view);

/* Write behind a line of a stack's text what belongs there, or nothing. */
typedef void ng_stack_groups_annotate(void *context, const char *files, const char *line,
                                      size_t length, FILE *output);

/* Annotate the lines of the first NG_STACK_GROUPS_SHOWN stacks; more are not looked at on a page.
 * 0 or -ENOMEM. */
#define NG_STACK_GROUPS_SHOWN 1000u
int ng_stack_groups_rewrite(struct ng_stack_groups *folded, ng_stack_groups_annotate *annotate,
                            void *context);

void ng_stack_groups_fini(struct ng_stack_groups *folded);

#endif
