/*
 * Notes of a view, folded: what many files have in common is said once.
 */
#ifndef NCCLGUARD_TOOLS_BASE_NOTES_H
#define NCCLGUARD_TOOLS_BASE_NOTES_H

#include "core/view/view.h"

/* Notes are "FILE: reason". Those of one reason become one where there are many of them, in the
 * place of the first: "rank_0, rank_1, rank_2 and 5 more: reason". 0 or -ENOMEM. */
int ng_notes_fold(struct ng_view *view);

#endif
