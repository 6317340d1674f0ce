/*
 * The two forms of RAS's answers, for store/ras/ras_answer.c alone.
 */
#ifndef NCCLGUARD_STORE_RAS_RAS_PARTS_H
#define NCCLGUARD_STORE_RAS_RAS_PARTS_H

#include "core/view/ras.h"

/* A communicator with more ranks than this is not believed. */
#define NG_RAS_RANKS_MAX (1 << 20)

/* Nor an answer with more of them, or more remarks on them, in all: they take more memory than
 * their text. */
#define NG_RAS_LISTED_MAX (1u << 18)

/* Text without a terminator. */
struct ng_ras_input {
    const char *at, *end;
};

/* Both add communicators to `answer`. 0, -EBADMSG or -ENOMEM. */
int ng_ras_json_read(struct ng_ras_input input, struct ng_ras_answer *answer);
int ng_ras_text_read(struct ng_ras_input input, struct ng_ras_answer *answer);

#endif
